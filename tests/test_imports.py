"""Imports point down, and a start pays only for what it needs."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import llmc_mcp

PACKAGE = Path(llmc_mcp.__file__).parent
NAME = "llmc_mcp"

# From the ground up. An entry covers the module of that name or, for a folder, everything in it.
LAYERS: tuple[tuple[str, ...], ...] = (
    (
        *(
            "__init__",
            "errors",
            "session",
            "config",
            "config_load",
            "config_trust",
            "tool",
            "tokens",
            "policy",
            "store",
        ),
        *("redaction", "visible"),
    ),
    ("te", "rag", "maasl"),
    ("app",),
    ("tools", "prompts"),
    (
        *("catalog", "dispatch", "output", "observability", "usage", "audit", "limits", "metrics", "otel"),
        *("resources", "flow_prompts", "completion"),
    ),
    (
        "protocol",
        "api",
        "server",
        "cli",
        "doctor",
        "te_cli",
        "te_asked",
        "te_enriched",
        "te_shell",
        "te_stats",
        "sample",
        "smoke",
        "calls_cli",
        "stats_cli",
        "config_cli",
        "changes_cli",
        "clients",
        "command_line",
        "completion_cli",
        "config_docs",
        "graph_cli",
        "handles_cli",
        "rag_cli",
        "install_cli",
        "onboard_cli",
        "printing",
        "jsonc",
        "toml_tables",
        "tool_docs",
        "validate",
    ),
)
RANKS = {name: rank for rank, names in enumerate(LAYERS) for name in names}
TRANSPORTS = ("protocol", "api")
ENGINES = LAYERS[1]

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
    "llmc_mcp.rag",
    "llmc_mcp.kernel.launcher",
    "llmc_mcp.kernel.child",
    "llmc_mcp.files.ripgrep",
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


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name below it."""
    found = {".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")}
    assert {"errors", "te.kernel", "protocol.stdio", "server"} <= found.keys()
    return found


def imported_by(name: str, path: Path) -> Iterator[str]:
    """Absolute names of everything a module imports anywhere: at the top, in functions, for types only."""
    package = f"{NAME}.{name}".split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *(node.module.split(".") if node.module else [])])
            yield source
            yield from (f"{source}.{alias.name}" for alias in node.names)


def own(imported: str) -> str | None:
    """The layer entry that an import belongs to; None for what is not ours."""
    parts = imported.split(".")
    if parts[0] != NAME:
        return None
    return parts[1] if len(parts) > 1 and parts[1] in RANKS else "__init__"


def test_every_module_has_a_layer() -> None:
    assert sorted(name for name in modules() if name.split(".")[0] not in RANKS) == []


def test_imports_point_down() -> None:
    upward = [
        f"{name} imports {imported}"
        for name, path in modules().items()
        for imported in imported_by(name, path)
        if (target := own(imported)) is not None and RANKS[target] > RANKS.get(name.split(".")[0], -1)
    ]
    assert upward == []


def test_an_upward_import_is_seen_wherever_it_hides(tmp_path: Path) -> None:
    module = tmp_path / "kernel.py"
    module.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from ..app import App\n"
        "def later():\n    from .. import server\n    import llmc_mcp.protocol.stdio\n"
    )
    seen = {own(imported) for imported in imported_by("te.kernel", module)}
    assert {"app", "server", "protocol"} <= seen


def test_transports_never_see_an_engine() -> None:
    seen = [
        f"{name} imports {imported}"
        for name, path in modules().items()
        if name.split(".")[0] in TRANSPORTS
        for imported in imported_by(name, path)
        if own(imported) in ENGINES
    ]
    assert seen == []


def test_only_the_kernel_module_uses_ctypes() -> None:
    users = [
        name for name, path in modules().items() if any(i.split(".")[0] == "ctypes" for i in imported_by(name, path))
    ]
    assert users == ["te.kernel"]


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
    loaded = loaded_by(f"sys.path.append({str(PACKAGE.parent)!r})\nimport llmc_mcp.kernel.launcher", "-I", "-S")
    ours = {name for name in loaded if name.split(".")[0] == NAME}
    assert ours == {NAME, f"{NAME}.te", f"{NAME}.te.kernel", f"{NAME}.te.launcher"}
    assert {name.split(".")[0] for name in loaded} - {NAME} <= sys.stdlib_module_names
    assert "threading" not in loaded
