"""About the server itself."""

from typing import ClassVar

from .. import __version__
from ..context import Context
from ..errors import FeatureUnavailable, ResourceBusy
from ..tool import Result, tool
from .introduction import bootstrap


class ServerHealth(Result):
    """What runs here, and how safely; `ok` is false where nothing can be stored, so no file can be changed."""

    ok: bool
    version: str
    mode: str
    roots: list[str]
    sandbox: dict[str, str]
    index: str
    store: str


class InitText(Result):
    """The bootstrap text."""

    text: str
    body: ClassVar[str] = "text"

    def cut(self, kept: int) -> None:
        """It is far below any limit; nothing else depends on its length."""


@tool("Server version, mode, roots, sandbox level, code index, store", read_only=True)
def health(ctx: Context) -> ServerHealth:
    app = ctx.app
    roots = [root.shown for root in app.files.roots]
    sandbox = {"files": "openat2 beneath the roots", "search": _search(), "commands": app.command_confinement()}
    usable, store = _store(ctx)
    return ServerHealth(usable, __version__, app.config.mode, roots, sandbox, _index(ctx), store)


def _search() -> str:
    from ..kernel import syscalls

    abi = syscalls.landlock_abi()
    return f"read-only in Landlock (ABI {abi})" if abi else "unavailable: the kernel has no Landlock"


def _index(ctx: Context) -> str:
    """What there is of the code index; nothing is built for it."""
    if not ctx.app.config.rag.jit_context_enabled:
        return "switched off"
    return ctx.app.index_state()


def _store(ctx: Context) -> tuple[bool, str]:
    """Whether the store can be written, and where it is or what is wrong with it."""
    try:
        ctx.app.store.probe()
        return True, ctx.app.store.name
    except (FeatureUnavailable, ResourceBusy) as exc:
        return False, " ".join(filter(None, (exc.message, exc.hint)))


@tool("Start here: how to work with this server", name="00_INIT", read_only=True, role="bootstrap")
def init(ctx: Context) -> InitText:
    return InitText(bootstrap(ctx.app, ctx.gate.catalog))
