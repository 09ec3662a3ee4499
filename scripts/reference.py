"""`python -m scripts.reference` (`make docs`): every generated page anew. Tests fail when one of them is stale.

What the code declares (tools, settings, errors, metrics, commands, clients) is written down once, there.
"""

import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from llmc_mcp import errors
from llmc_mcp.cli import main as cli
from llmc_mcp.cli.completion import help_of
from llmc_mcp.cli.install import clients
from llmc_mcp.config.schema import Config
from llmc_mcp.server import build
from llmc_mcp.te.queries import te
from llmc_mcp.web.metrics import Metrics
from scripts import config_docs, tool_docs

TOP = Path(__file__).parent.parent
DOCS = TOP / "DOCS"
_MADE = "Made by `make docs`; a test fails when it is stale."
_ERROR = re.compile(r"[├└─│ ]*(\w+) +([A-Z_]+) +(\d{3})(?: {3}(.+))?$")


# --- errors -----------------------------------------------------------------------------------------------------------


def error_page() -> str:
    """Every code, from the tree in errors.py."""
    rows = "".join(f"| `{code}` | {status} | {when} |\n" for code, status, when in _error_rows())
    return f"""\
# Errors

{_MADE}

A call that fails answers `{{"code", "message", "hint"?, "correlation_id"}}`: over MCP as text with `isError: true`,
over HTTP as JSON with the status below. `hint` says what to do next, `correlation_id` finds the call in the log. The
same call again gives the same answer; nothing was changed unless the message says so. No traceback reaches a client,
and a refusal for a path outside the roots never says whether something is there.

| code | HTTP | when |
|---|---:|---|
{rows}
Inside `execute_code` a failed tool call is an exception whose text starts with the code. HTTP itself adds 400 for a
body that is not JSON, 405 for a method and 415 for a content type that the route does not take; 429 comes with
`Retry-After`.
"""


def _error_rows() -> Iterator[tuple[str, int, str]]:
    told = {found[1]: found for line in (errors.__doc__ or "").splitlines() if (found := _ERROR.match(line.strip()))}
    seen = set[str]()
    for kind in _kinds(errors.LlmcError):
        found = told[kind.__name__]
        if (found[2], int(found[3])) != (kind.code, kind.http_status):
            raise SystemExit(f"errors.py: the docstring is wrong about {kind.__name__}")
        if kind.code not in seen and kind is not errors.Unprocessable:
            seen.add(kind.code)
            yield kind.code, kind.http_status, found[4] or ""


def _kinds(base: type[errors.LlmcError]) -> Iterator[type[errors.LlmcError]]:
    for kind in base.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield kind
            yield from _kinds(kind)


# --- metrics ----------------------------------------------------------------------------------------------------------


def metric_page() -> str:
    """Every metric that a server registers, with its labels."""
    rows = "".join(
        f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {text} |\n"
        for name, kind, labels, text in sorted(_metric_rows())
    )
    return f"""\
# Metrics

{_MADE}

`GET /metrics` in Prometheus' text format, for a token with the scope `read` or `admin`; `mcp.observability` in the
[configuration](configuration.md) switches it off or moves it. Labels come from lists of the server's own: no client can
make the page grow. What else is recorded about calls: [observability.md](observability.md).

| name | type | labels | what |
|---|---|---|---|
{rows}
`llmc_process_*` (CPU seconds, memory, start time, open files) are about the server's own process. A histogram has
`_bucket`, `_sum` and `_count`.
"""


def _metric_rows() -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    with tempfile.TemporaryDirectory() as folder:
        gate = build(Config(), [folder], os.path.join(folder, "data"))
        try:
            metrics = Metrics(gate)
            declared: dict[str, Any] = {one._name: one for one in vars(metrics).values() if hasattr(one, "_labelnames")}
            registry = cast(Any, metrics)._registry
            for family in registry.collect():
                if family.name.startswith("llmc_process_"):
                    continue
                labels = tuple(declared[family.name]._labelnames) if family.name in declared else _labels_in(family)
                total = "_total" if family.type == "counter" else ""
                yield family.name + total, family.type, labels, family.documentation
        finally:
            gate.close()


def _labels_in(family: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(label for sample in family.samples for label in sample.labels))


# --- commands ---------------------------------------------------------------------------------------------------------


def command_page() -> str:
    """What every command says about itself."""
    parts = [
        f"# Commands\n\n{_MADE}\n\nData goes to stdout, everything else to stderr; exit code 2 is a wrong command line."
    ]
    parts.append(f"## llmc-mcp\n\n{_fenced(help_of('serve'))}")
    parts.append(f"## te\n\n{_fenced(te.help())}\n\nWhat it does with a command's output: [te.md](te.md).")
    for title, names in cli.GROUPS.items():
        for name in names:
            if name in cli.COMMANDS and name != "serve":
                parts.append(f"## llmc {name}\n\n{title}: {cli.COMMANDS[name][1]}.\n\n{_fenced(help_of(name))}")
    listed = subprocess.run(["make", "-s", "help"], cwd=TOP, check=True, capture_output=True, text=True).stdout
    parts.append(f"## make\n\nIn a clone of the repository:\n\n{_fenced(listed)}")
    return "\n\n".join(parts) + "\n"


def _fenced(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```"


# --- clients ----------------------------------------------------------------------------------------------------------


def client_page() -> str:
    """Where each client keeps what, from the table that `llmc install` uses."""
    guides = "\n".join(f"## {one.title}\n\n{_guide(one)}" for one in clients.CLIENTS)
    return f"""\
# Clients

{_MADE}

`llmc install CLIENT` writes what stands below into the client's own file; everything else in it is kept, comments
too, and the file as it was stays beside it. `--dry-run` shows the change, `--uninstall` takes it back, `--list` tells
which clients are here. `--root DIR` names what the server may reach, `-- --mode classic` adds flags of the server. A
file that can't be read is named with its line and left alone.

The command is an absolute path into the environment that `llmc` runs in: clients start servers with a `PATH` of their
own. A project's file then names a folder of this machine: keep it out of the repository, or put `llmc-mcp` there
where everybody has it on the path. Claude Code 2.1.325 and Codex 0.166.0 are run against this by the tests
(`make clients`); the other clients' files follow their documentation and were not run.

{guides}
## Any other client

The command `llmc-mcp` with `--root DIR`, over standard input and output.

## Over HTTP

`llmc run` prints the URL, the token and an entry in JSON; [http.md](http.md) says more. Claude Code:

```
claude mcp add --transport http llmc http://127.0.0.1:8080/mcp --header "X-LLMC-Token: TOKEN"
```

Codex:

```toml
[mcp_servers.llmc]
url = "http://127.0.0.1:8080/mcp"
http_headers = {{ X-LLMC-Token = "TOKEN" }}
```
"""


def _guide(client: clients.Client) -> str:
    paragraph, _, rest = clients.guide(client, ["/path/to/.venv/bin/llmc-mcp"], "/path/to/project").partition("\n\n")
    tied = re.sub(r"`[^`]*`", lambda found: found[0].replace(" ", "\0"), paragraph)  # code stays on one line
    filled = textwrap.fill(tied, 120, break_long_words=False, break_on_hyphens=False).replace("\0", " ")
    return f"{filled}\n\n{rest}"


# --- README.md --------------------------------------------------------------------------------------------------------

_QUOTED = {  # rows of README's table: the benchmark, the row there, and what a person calls it
    "spawn → tools/list, median": ("startup", "spawn → tools/list, median ms", " ms"),
    "idle memory (RSS)": ("startup", "idle RSS, MB", " MB"),
    "no-op (ping), p95": ("startup", "ping p95, ms", " ms"),
    "cheapest tool, p50": ("startup", "cheapest tool p50, ms", " ms"),
    "tools listed": ("startup", "tools", ""),
    "their list, tokens": ("startup", "tool list, tokens", ""),
    "replies to the same tasks, tokens": ("tasks", "replies without the floods, tokens", ""),
    "the same with two that flood": ("tasks", "replies, all tasks, tokens", ""),
}


def with_made_parts(readme: str) -> str:
    """README.md with what stands between its markers made anew."""
    for name, made in (("clients", _guide(clients.BY_NAME["claude-desktop"])), ("measured", measured())):
        marked = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        readme = re.sub(marked, lambda found, made=made: found[1] + made + found[2], readme, flags=re.S)
    return readme


def measured() -> str:
    """The figures that benchmarks/README.md has, the few that a newcomer wants."""
    page = (TOP / "benchmarks" / "README.md").read_text()
    sections = {part.partition("\n")[0]: part for part in re.split(r"^## ", page, flags=re.M)[1:]}
    lines = [
        "| | LLMC MCP, hybrid | classic | reference filesystem server | Desktop Commander |",
        "|---|---:|---:|---:|---:|",
    ]
    for title, (section, row, unit) in _QUOTED.items():
        if found := re.search(rf"^\| {re.escape(row)} \|(.*)\|$", sections.get(section, ""), re.M):
            cells = [cell.strip() for cell in found[1].split("|")[:4]]
            lines.append(f"| {title} | " + " | ".join(f"{cell}{unit}" if cell else "" for cell in cells) + " |")
    where = re.search(r"^Measured on (.*) · `", sections["startup"], re.M)
    if where:
        lines += ["", textwrap.fill(f"{where[1]}; all servers in one run, each at its best.", 120)]
    if "tasks" in sections:
        lines += ["", "![tokens of the replies, task by task](DOCS/images/tokens.svg)"]
    return "\n".join(lines) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "cli.md": command_page,
    "clients.md": client_page,
    "configuration.md": config_docs.page,
    "errors.md": error_page,
    "mcp_linuxops_tools.md": tool_docs.document,
    "metrics.md": metric_page,
}


def main() -> None:
    """Write them all."""
    for name, page in PAGES.items():
        (DOCS / name).write_text(page())
    readme = TOP / "README.md"
    readme.write_text(with_made_parts(readme.read_text()))
    subprocess.run([sys.executable, "-m", "scripts.mcpb", "--manifest"], cwd=TOP, check=True)


if __name__ == "__main__":
    os.environ["HOME"] = "/home/me"  # so that nobody's own folders end up in a page
    os.environ.pop("XDG_CONFIG_HOME", None)
    main()
