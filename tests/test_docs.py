"""What README.md and DOCS/ say is so: links lead somewhere, commands exist, generated pages are fresh."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from benchmarks import tokens
from llmc_mcp.cli import main
from llmc_mcp.cli.completion import help_of
from llmc_mcp.cli.install.clients import CLIENTS
from llmc_mcp.config.load import parse_flags
from llmc_mcp.config.schema import Config, keys, sections
from llmc_mcp.errors import LlmcError
from llmc_mcp.gate.catalog import Catalog
from llmc_mcp.te.queries import te
from scripts import reference, svg, tutorial
from scripts.readme import ABOUT_THIS_REPOSITORY, command_lines

from .support.client import Client
from .support.workspace import Workspace, require

TOP = reference.TOP
PAGES = sorted([*TOP.glob("*.md"), *(TOP / "DOCS").glob("*.md"), TOP / "benchmarks" / "README.md"])
NAMES = [str(page.relative_to(TOP)) for page in PAGES]
# What a person would regret to have run by a test, takes minutes, or never ends.
NOT_RUN = ("make ", "claude ", "npx ", "curl ")


@pytest.fixture(autouse=True)
def nobodys_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages name the usual places, whoever makes them."""
    for name in ("XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)


# --- generated --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_generated_page_is_fresh(name: str) -> None:
    assert (TOP / "DOCS" / name).read_text() == reference.PAGES[name](), "run: make docs"


def test_entries_and_figures_in_the_readme_are_what_install_writes_and_what_was_measured() -> None:
    text = (TOP / "README.md").read_text()
    assert text == reference.with_made_parts(text), "run: make docs"
    assert '"command": "/path/to/.venv/bin/llmc-mcp"' in text
    assert re.search(r"\| spawn → tools/list, median \| [\d.]+ ms \|", text)


def all_errors() -> list[type[LlmcError]]:
    kinds, todo = list[type[LlmcError]](), [LlmcError]
    while todo:
        below = todo.pop().__subclasses__()
        kinds += [kind for kind in below if kind.__module__ == "llmc_mcp.errors"]
        todo += below
    return kinds


def test_every_error_code_has_a_row() -> None:
    page = (TOP / "DOCS" / "errors.md").read_text()
    assert [kind.code for kind in all_errors() if f"| `{kind.code}` | {kind.http_status} |" not in page] == []


# --- links ------------------------------------------------------------------------------------------------------------


def outside_fences(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What may follow # in a link to this page, as GitHub makes it from headings."""
    found = set[str]()
    for heading in re.findall(r"^#+ (.+)$", outside_fences(page.read_text()), re.MULTILINE):
        plain = re.sub(r"[`*\[\]]|\(.*?\)", "", heading).strip().lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page: Path) -> None:
    broken = list[str]()
    for target in re.findall(r"\]\(([^)\s]+)\)", outside_fences(page.read_text())):
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


def test_every_page_is_found_from_the_index() -> None:
    index = (TOP / "DOCS" / "README.md").read_text()
    # Sidecars are read by agents, through resources.
    others = {"README.md", "agents.core.min.md", "contracts.env.min.md"}
    assert [
        name for page in (TOP / "DOCS").glob("*.md") if (name := page.name) not in others and name not in index
    ] == []


def test_the_readme_is_read_in_three_minutes() -> None:
    prose = re.sub(
        r"^\|.*$|<!--.*?-->|!?\[([^\]]*)\]\([^)]*\)", r"\1", outside_fences((TOP / "README.md").read_text()), flags=re.M
    )
    assert len(prose.split()) <= 3 * 250
    assert len((TOP / "README.md").read_text().split()) < 1_500


def test_the_first_screen_says_what_it_is_and_how_to_start() -> None:
    screen = "\n".join((TOP / "README.md").read_text().splitlines()[:40])
    for said in ("One MCP server", "make run", "make test", "make install CLIENT=", "uvx --from", "run.svg"):
        assert said in screen


def test_pictures_are_drawings_with_a_title_that_show_the_commands() -> None:
    text = (TOP / "README.md").read_text()
    shown = re.findall(r"!\[[^\]]+\]\((\S+\.svg)\)", text)
    assert {"DOCS/images/run.svg", "DOCS/images/undo.svg", "DOCS/images/doctor.svg"} <= set(shown)
    for name in shown:
        drawing = ElementTree.parse(TOP / name).getroot()
        assert drawing.tag.endswith("}svg")
        assert drawing.findtext("{http://www.w3.org/2000/svg}title")
    assert "make run" in (TOP / "DOCS/images/run.svg").read_text()
    assert "llmc undo" in (TOP / "DOCS/images/undo.svg").read_text()
    assert "running as root" not in (TOP / "DOCS/images/run.svg").read_text()


# --- commands ---------------------------------------------------------------------------------------------------------


def words_of(line: str) -> list[str]:
    return shlex.split(line, comments=True)


def complaint(line: str) -> str | None:
    """What is wrong with a command line, if anything."""
    program, *rest = words_of(line.rpartition(" | ")[2])
    program = program.rpartition("/")[2]
    rest = [word for word in rest if word not in ("…", "|")]
    if program == "make":
        targets = re.findall(r"^([a-z-]+):", (TOP / "Makefile").read_text(), re.MULTILINE)
        wrong = [word for word in rest if "=" not in word and word not in targets]
        return f"no target {wrong[0]}" if wrong else None
    if program == "llmc-mcp":
        return next((f"no flag {word}" for word in parse_flags(rest)[1]), None)
    if program == "te":
        return next(
            (f"no flag {w}" for w in rest[:1] if w.startswith("--") and w != "--" and w not in te.first_words()), None
        )
    if program == "llmc":
        if rest[0].startswith("-"):
            return None if rest[0] in ("--help", "--version") else f"no flag {rest[0]}"
        if rest[0] not in main.COMMANDS:
            return f"no command {rest[0]}"
        verbs = main.find(rest[0]).verbs
        if verbs and rest[1:] and rest[1] not in verbs and re.fullmatch(r"[a-z]+", rest[1]):
            return f"no command {rest[0]} {rest[1]}"
        known = help_of(rest[0]) + help_of("serve")
        return next(
            (f"no flag {word}" for word in rest if word.startswith("--") and word.split("=")[0] not in known), None
        )
    return None


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_commands_in_code_blocks_exist(page: Path) -> None:
    assert [(line, said) for line in command_lines(page) if (said := complaint(line))] == []


def test_a_command_that_does_not_exist_is_seen() -> None:
    wrong = ["make frobnicate", "llmc frobnicate", "llmc undo --frobnicate", "llmc-mcp --frobnicate", "te --frobnicate"]
    wrong.append("llmc token frobnicate anna")
    assert all(complaint(line) for line in wrong)
    assert not any(
        complaint(line) for line in ["llmc undo --force", "echo x | llmc-mcp --root .", "make bench BENCH_ARGS=--quick"]
    )


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_commands_in_the_text_exist(page: Path) -> None:
    wrong = list[str]()
    for code in re.findall(r"`((?:llmc|make) [^`]+)`", outside_fences(page.read_text())):
        for line in code.split(", "):
            if re.match(r"(llmc|make) [a-z-]+", line) and "|" not in line:
                wrong += [f"{line}: {said}" for said in [complaint(line.replace("…", ""))] if said]
    assert wrong == []


def test_the_commands_of_the_readme_do_what_it_says(workspace: Workspace, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    workspace.file("cart.py", "def total(prices):\n    return sum(prices)\n")
    environment = {
        "HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "LLMC_DATA_DIR": str(tmp_path / "data"),
        "LANG": "C.UTF-8",
    }
    with Client("--root", str(workspace.root), "--mode", "classic", env=environment) as agent:
        agent.call("linux_fs_write", path="new.py", content="pass\n")
        agent.call("linux_fs_delete", path="cart.py")
    ran = 0
    for line in command_lines(TOP / "README.md"):
        if line.startswith(NOT_RUN):
            continue
        folder = TOP if line.startswith(ABOUT_THIS_REPOSITORY) else workspace.root
        done = subprocess.run(
            ["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        assert done.stdout + done.stderr, line
        ran += 1
    assert ran >= 10
    assert (workspace.root / "cart.py").exists(), "llmc undo took the newest change back"
    assert "llmc" not in json.loads((home / ".claude.json").read_text() if (home / ".claude.json").exists() else "{}")


@pytest.mark.parametrize("name", tutorial.PAGES)
def test_every_output_on_a_page_that_shows_some_is_real(name: str, tmp_path: Path) -> None:
    require(shutil.which("bwrap") is not None, "bubblewrap")
    page = tutorial.page_of(name).read_text()
    fresh = tutorial.refreshed(page, tutorial.Reader(tmp_path))
    assert list(tutorial.comparable(fresh)) == list(tutorial.comparable(page)), f"python -m scripts.tutorial {name}"


def test_troubleshooting_has_the_twenty_errors_that_people_meet_first() -> None:
    page = (TOP / "DOCS" / "troubleshooting.md").read_text()
    assert len(re.findall(r"^\*\*\d+\. ", page, re.MULTILINE)) >= 20
    assert "cannot make virtual environments" in (TOP / "Makefile").read_text(), "entry 2"


def test_what_the_pages_call_a_setting_is_one() -> None:
    known = {*keys(), *sections()}
    unknown = list[str]()
    for page in PAGES:
        for name in re.findall(r"`mcp\.([a-z_]+(?:\.[a-z_]+)*)", page.read_text()):
            if name not in known and page.name != "CHANGELOG.md":
                unknown.append(f"{page.name}: mcp.{name}")
    assert sorted(set(unknown)) == []


def test_the_readme_says_how_many_clients_there_are() -> None:
    assert f"which of {len(CLIENTS)} clients" in (TOP / "README.md").read_text()


def test_what_the_pages_call_a_metric_is_one() -> None:
    known = (TOP / "DOCS" / "metrics.md").read_text()
    named = {
        name for page in PAGES for name in re.findall(r"`(llmc_[a-z_]+_(?:total|seconds|bytes))`", page.read_text())
    }
    assert sorted(name for name in named if name not in known) == []


def test_what_the_pages_call_an_error_is_one() -> None:
    known = {kind.code for kind in all_errors()}
    text = "".join(page.read_text() for page in PAGES)
    named = set(re.findall(r'"code":"([A-Z_]+)"', text))
    named |= set(
        re.findall(r"`([A-Z_]+_(?:UNAVAILABLE|DENIED|ALLOWED|FOUND|MISMATCH|PATH|REQUIRED|BUSY|DISABLED))`", text)
    )
    assert len(named) >= 10
    assert sorted(named - known) == []


def test_what_the_pages_call_a_tool_is_one() -> None:
    tools = Catalog(Config(mode="classic", linux_ops=Config().linux_ops)).tools
    known = {alias for tool in tools.values() for alias in (tool.name, *tool.aliases)}
    unknown = list[str]()
    for page in PAGES:
        for name in re.findall(r"`((?:linux|rag|repo)_[a-z_]+)", page.read_text()):
            if name not in known | {"linux_sys_logs", "linux_ops", "linux_ops_"}:
                unknown.append(f"{page.name}: {name}")
    assert sorted(set(unknown)) == []


def test_the_readme_leads_to_the_container_and_to_every_tool() -> None:
    readme = (TOP / "README.md").read_text()
    for page in ("DOCS/deploy.md", "DOCS/mcp_linuxops_tools.md"):
        assert f"({page})" in readme
    deploy = (TOP / "DOCS" / "deploy.md").read_text()
    assert "docker compose" in deploy
    tools = (TOP / "DOCS" / "mcp_linuxops_tools.md").read_text()
    assert [name for name in Catalog(Config(mode="classic")).tools if name not in tools] == []


@pytest.mark.filterwarnings("ignore:open_binary is deprecated")  # in the tokenizer's wheel
def test_the_figures_on_the_first_screen_hold(workspace: Workspace) -> None:
    text = " ".join((TOP / "README.md").read_text().split())
    said = re.search(r"Seven tools up front, about (\d+) tokens with instructions", text)
    assert said
    with Client("--root", str(workspace.root)) as agent:
        listed = agent.tools()
        greeting = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        instructions = agent.request("initialize", greeting)["result"]["instructions"]
    assert len(listed) == 7
    assert abs(tokens.count_tools(listed) + tokens.count(instructions) - int(said[1])) <= 100
    assert f"at most {Config().limits.max_reply_bytes // 1000} kB" in text


def test_the_readme_names_every_tool_and_marks_those_that_are_listed() -> None:
    text = (TOP / "README.md").read_text()
    table = text[text.index("\n## Tools\n") : text.index("`--mode classic` lists them all")]
    marked = set(re.findall(r"\*\*`(\w+)`\*\*", table))
    assert marked == {tool.name for tool in Catalog(Config(mode="hybrid")).listed}
    assert set(re.findall(r"`(\w+)`", table)) == Catalog(Config(mode="classic")).tools.keys()


# --- coming from elsewhere --------------------------------------------------------------------------------------------


def test_each_tool_of_desktop_commander_has_a_row(tmp_path: Path) -> None:
    folder = TOP / "benchmarks/peers/node_modules/@wonderwhy-er/desktop-commander"
    require(folder.exists(), "Desktop Commander (make peers)")
    page = (TOP / "DOCS" / "desktop_commander.md").read_text()
    version = json.loads((folder / "package.json").read_text())["version"]
    assert version in page
    source = (folder / "dist" / "server.js").read_text()
    names = set(re.findall(r'^\s+name: "([a-z_]+)",$', source, re.MULTILINE)) - {"desktop_commander"}
    rows = set(re.findall(r"^\| `([a-z_]+)` \|", page, re.MULTILINE))
    assert len(names) >= 20
    assert names - rows == set()


# --- pictures ---------------------------------------------------------------------------------------------------------


def test_a_picture_keeps_text_colours_and_columns() -> None:
    printed = "\x1b[31mred\x1b[0m <&> plain\r\n\t\x1b]8;;file:///x\x1b\\indented\x1b[?25l\x07"
    drawing = svg.picture(printed, title="a & b")
    root = ElementTree.fromstring(drawing)
    spans = [(span.text, span.get("fill"), span.get("x")) for span in root.iter("{http://www.w3.org/2000/svg}tspan")]
    assert spans == [("red", "#ef7c8e", "16"), (" <&> plain", None, "40"), ("        indented", None, "16")]


def test_what_is_printed_over_is_gone_as_on_a_terminal() -> None:
    shown = svg.spans("10 %\r\x1b[32m100 %\x1b[0m\r\n[####]\r\x1b[Kdone\r\nab\rx")
    assert [[span.text for span in line] for line in shown] == [["100 %"], ["done"], ["xb"]]
    assert shown[0][0].colour == "#8fd694"


def test_a_long_line_wraps_as_on_a_terminal() -> None:
    assert [[span.text for span in row] for row in svg.wrapped(svg.spans("abcdefg")[0], 3)] == [["abc"], ["def"], ["g"]]


def test_no_file_names_the_folder_that_it_was_made_in() -> None:
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=TOP, capture_output=True, check=False)
    require(tracked.returncode == 0, "a git repository")
    files = [TOP / os.fsdecode(name) for name in tracked.stdout.split(b"\0") if name]
    assert [file.name for file in files if file.is_file() and os.fsencode(TOP) in file.read_bytes()] == []
