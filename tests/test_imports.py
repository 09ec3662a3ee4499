"""Imports point down, form no cycle, and a start pays only for what it needs."""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

import llmc_mcp

PACKAGE = Path(llmc_mcp.__file__).parent
NAME = "llmc_mcp"

# Rooms from the ground up, as DOCS/architecture.md draws them. A module at the root that is not named here is ground.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("ground", "config", "store", "kernel", "permissions"),
    ("files", "egress", "envelope", "rag.parse", "rag.store"),
    ("tracking",),
    ("changes", "sandbox", "rag.build"),
    ("commands", "interpreters", "machine", "rag.query"),
    ("code",),
    ("app", "context"),
    ("review",),
    ("tools",),
    ("gate",),
    ("protocol",),
    ("web",),
    ("server", "te"),
    ("cli",),
    ("entry",),
)
RANKS = {room: rank for rank, rooms in enumerate(LAYERS) for room in rooms}
ENGINES = {room for rooms in LAYERS[1:6] for room in rooms}
SURFACES = ("protocol", "web", "server", "cli")
# Who reaches an engine past the gate, because no tool does it: a person's own journal, handles and index, where
# secrets lie, and what a completion or a listing has to spell.
PAST_THE_GATE: Mapping[str, set[str]] = {
    "cli.allow": {"files", "sandbox"},
    "cli.changes": {"changes"},
    "cli.handles": {"files"},
    "cli.index": {"files", "rag.build", "rag.parse", "rag.query", "rag.store"},
    "cli.ports": {"sandbox"},
    "cli.repos": {"rag.store"},
    "cli.person": {"files", "rag.store"},  # how a path is shown, whether there is an index
    "cli.onboard": {"machine"},
    "cli.top_screen": {"changes"},
    "cli.top_views": {"changes"},
    "protocol.completion": {"files", "rag.query"},
    "web.ui.actions": {"changes"},
    "web.ui.changes": {"changes"},
}

NOT_AT_START = (
    "argparse",
    "asyncio",
    "concurrent",
    "dataclasses",
    "difflib",
    "email",
    "http",
    "importlib.metadata",
    "json",
    "llmc_mcp.files.ripgrep",
    "llmc_mcp.kernel.child",
    "llmc_mcp.kernel.launcher",
    "llmc_mcp.rag",
    "logging",
    "mcp",
    "multiprocessing",
    "numpy",
    "pathlib",
    "psutil",
    "pydantic",
    "shutil",
    "socket",
    "sqlite3",
    "ssl",
    "subprocess",
    "tantivy",
    "tempfile",
    "tree_sitter",
    "unittest",
    "urllib",
)

Imports = Mapping[str, set[str]]


def modules(package: Path = PACKAGE) -> dict[str, Path]:
    """Every module by its dotted name below the package; a folder's own page by the folder's name."""
    found = {".".join(path.relative_to(package).with_suffix("").parts): path for path in package.rglob("*.py")}
    return {name.removesuffix(".__init__"): path for name, path in found.items()}


def imported_names(name: str, path: Path) -> Iterator[str]:
    """Absolute names of everything a module imports anywhere: at the top, in functions, for types only."""
    package = f"{NAME}.{name}".split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *(node.module.split(".") if node.module else [])])
            yield from (f"{source}.{alias.name}" for alias in node.names)


@cache
def own_imports(package: Path = PACKAGE) -> dict[str, set[str]]:
    """For every module of ours the modules of ours that it imports."""
    ours = modules(package)

    def module_of(imported: str) -> str | None:
        parts = imported.split(".")[1:] if imported.split(".")[0] == NAME else []
        while parts and ".".join(parts) not in ours:
            parts.pop()
        return ".".join(parts) or None

    return {
        name: {target for imported in imported_names(name, path) if (target := module_of(imported)) not in (None, name)}
        for name, path in ours.items()
    }  # pyright: ignore[reportReturnType] - None is left out above


def room_of(module: str) -> str:
    """The folder that a module lies in; a module at the root that has no rank of its own is ground."""
    parts = module.split(".")
    if parts[0] == "rag" and len(parts) > 1:
        return ".".join(parts[:2])
    if module in RANKS or len(parts) > 1 or (PACKAGE / parts[0]).is_dir():
        return parts[0]
    return "ground"


def cycle_in(graph: Imports) -> list[str]:
    """The nodes of one cycle, or none."""
    done: set[str] = set()

    def visit(node: str, path: tuple[str, ...]) -> list[str]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return []
        for target in sorted(graph.get(node, ())):
            if found := visit(target, (*path, node)):
                return found
        done.add(node)
        return []

    for node in sorted(graph):
        if found := visit(node, ()):
            return found
    return []


def test_every_room_has_a_rank() -> None:
    assert sorted({room_of(module) for module in modules() if module not in ("rag", "__init__")} - RANKS.keys()) == []


def test_imports_point_down() -> None:
    upward = [
        f"{module} imports {target}"
        for module, targets in own_imports().items()
        for target in targets
        if module not in ("rag", "__init__") and target != "rag" and RANKS[room_of(target)] > RANKS[room_of(module)]
    ]
    assert upward == []


def test_no_rooms_import_each_other() -> None:
    rooms: dict[str, set[str]] = {}
    for module, targets in own_imports().items():
        rooms.setdefault(room_of(module), set()).update(room_of(target) for target in targets)
    between = {room: {other for other in others if other != room} for room, others in rooms.items() if room != "ground"}
    assert cycle_in(between) == []


def test_no_modules_import_each_other() -> None:
    assert cycle_in(own_imports()) == []


@pytest.mark.parametrize(
    ("files", "cycle"),
    [
        ({"one": "from . import two", "two": "def f():\n    from .one import x"}, ["one", "two", "one"]),
        ({"one": "from . import two", "two": "from typing import Any"}, []),
        ({"one": "if TYPE_CHECKING:\n    from .two import X", "two": "from . import one"}, ["one", "two", "one"]),
    ],
)
def test_a_cycle_is_seen_wherever_it_hides(tmp_path: Path, files: dict[str, str], cycle: list[str]) -> None:
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    assert cycle_in(own_imports(tmp_path)) == cycle


def test_a_room_holds_its_page_and_imports_nothing() -> None:
    for path in PACKAGE.rglob("__init__.py"):
        tree = ast.parse(path.read_text())
        assert ast.get_docstring(tree), f"{path} has no page"
        if path.parent != PACKAGE:
            assert len(tree.body) == 1, f"{path} holds more than its page"


def test_surfaces_reach_an_engine_only_where_no_tool_does_it() -> None:
    reached = {
        module: {room_of(target) for target in targets} & ENGINES
        for module, targets in own_imports().items()
        if room_of(module) in SURFACES
    }
    assert {module: rooms for module, rooms in reached.items() if rooms} == PAST_THE_GATE


def test_only_the_kernel_room_uses_ctypes() -> None:
    users = [
        name for name, path in modules().items() if any(i.split(".")[0] == "ctypes" for i in imported_names(name, path))
    ]
    assert users == ["kernel.syscalls"]


def loaded_by(code: str, *flags: str) -> set[str]:
    """What a fresh interpreter has imported after `code`, beyond what it starts with."""
    script = f"import sys\nbefore = set(sys.modules)\n{code}\nprint(*sorted(set(sys.modules) - before))\n"
    done = subprocess.run([sys.executable, *flags, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


LIST_TOOLS = """
from llmc_mcp.config.schema import Config
from llmc_mcp.protocol.methods import Methods, Request
from llmc_mcp.protocol.stdio import StdioServer
from llmc_mcp.server import build
from llmc_mcp.session import Session
gate = build(Config(mode="classic"), ["/usr"])
request = Request("tools/list", {}, Session("uid:0", "s"), print, print)
assert Methods(gate).answer(request)["tools"]
"""


def test_a_server_lists_its_tools_without_any_heavy_import() -> None:
    loaded = loaded_by(LIST_TOOLS)
    assert "llmc_mcp.protocol.stdio" in loaded
    heavy = [name for name in loaded if any(name == big or name.startswith(f"{big}.") for big in NOT_AT_START)]
    assert sorted(heavy) == []


def test_te_starts_without_msgspec_or_typing() -> None:
    loaded = loaded_by("import llmc_mcp.te.main")
    assert "llmc_mcp.te.main" in loaded
    assert {name for name in loaded if name.split(".")[0] in ("msgspec", "typing")} == set()


def test_the_launcher_process_needs_the_standard_library_only() -> None:
    loaded = loaded_by(f"sys.path.append({str(PACKAGE.parent)!r})\nimport llmc_mcp.kernel.launcher_process", "-I", "-S")
    ours = {name for name in loaded if name.split(".")[0] == NAME}
    assert ours == {NAME, f"{NAME}.kernel", f"{NAME}.kernel.syscalls", f"{NAME}.kernel.launcher_process"}
    assert {name.split(".")[0] for name in loaded} - {NAME} <= sys.stdlib_module_names
    assert "threading" not in loaded
