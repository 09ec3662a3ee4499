"""About the server itself."""

from typing import ClassVar

from .. import __version__
from ..app import Context
from ..tool import Result, tool


class Health(Result):
    """What runs here, and how safely."""

    ok: bool
    version: str
    mode: str
    roots: list[str]
    sandbox: str


class InitText(Result):
    """The bootstrap text."""

    text: str
    body: ClassVar[str] = "text"

    def cut(self, kept: int) -> None:
        """It is far below any limit; nothing else depends on its length."""


@tool("Server version, mode, roots and sandbox level", read_only=True)
def health(ctx: Context) -> Health:
    roots = [root.shown for root in ctx.app.files.roots]
    return Health(True, __version__, ctx.app.config.mode, roots, _sandbox())


@tool("Start here: how to work with this server", name="00_INIT", read_only=True)
def init(ctx: Context) -> InitText:
    lines = [
        f"LLMC MCP {__version__}, {ctx.app.config.mode} mode.",
        "Roots (relative paths start at the first): " + ", ".join(root.shown for root in ctx.app.files.roots),
        f"Confinement: {_sandbox()}.",
        "Replies: one line of JSON about the body, then the body as it is. A cut reply says how to go on.",
        "Tools:",
        *(f"- {tool.name}: {tool.description}" for tool in ctx.app.listed if tool.name != "00_INIT"),
    ]
    return InitText("\n".join(lines))


def _sandbox() -> str:
    from ..te import kernel

    abi = kernel.landlock_abi()
    search = f"search in Landlock (ABI {abi}), read-only" if abi else "search unavailable, the kernel has no Landlock"
    return f"files beneath the roots by openat2; {search}"
