"""`llmc-mcp`, `python -m llmc_mcp.server`: command line → configuration → App → transport.

The flags are few and every client start pays for what is imported here, so they are read by hand.
"""

import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from .app import App
from .config.live import LiveConfig
from .config.load import LoadedConfig, load, parse_flags
from .config.schema import Config
from .config.trust import ConfigError
from .errors import LlmcError
from .gate.catalog import Catalog
from .gate.dispatch import Gate
from .gate.log import Log
from .session import Session

if TYPE_CHECKING:
    from .command_line import Command, Handler

_CLOSE_S = 15.0

_ABOUT = """\
An MCP server on standard input and output, or over HTTP. File tools reach only what lies below the roots.

Settings also come from the environment (LLMC_MCP_TOOLS_READ_TIMEOUT=5). `llmc config show` lists them all.
"""


def definition(run: "Handler | None" = None) -> "Command":
    """The command line, for --help, the documentation and completion; a server's start does without it."""
    from .command_line import Command, Flag, server_flags

    flags = (
        *server_flags(),
        Flag("--verbose", "print every setting in force at the start, on standard error"),
        Flag("--version", "print the version"),
    )
    return Command("", _ABOUT, run, program="llmc-mcp", flags=flags, parsed=False)


def _leave(message: str, code: int) -> NoReturn:
    _write(1 if code == 0 else 2, message)
    raise SystemExit(code)


def _write(fd: int, text: str) -> None:
    try:
        os.write(fd, text.encode("utf-8", "backslashreplace"))
    except OSError:  # nobody listens
        pass


def build(
    config: Config,
    roots: list[str],
    data_dir: str | None = None,
    own_files: Sequence[str] = (),
    trusted_files: Sequence[str] = (),
    log: Log | None = None,
) -> Gate:
    """Wire a server from its configuration."""
    settings = config.observability
    log = log or Log(
        enabled=settings.enabled,
        level=settings.log_level,
        log_format=settings.log_format,
        with_ids=settings.include_correlation_id,
    )
    gate = Gate(App(config, roots, data_dir, own_files, trusted_files), Catalog(config), log)
    for notice in gate.catalog.notices:
        log.warning("catalog", notice=notice)
    if kept := gate.app.files.own_code:
        _write(2, f"llmc-mcp: the server's own code lies in a root; no tool and no command changes {', '.join(kept)}\n")
    return gate


def configure(arguments: list[str]) -> LoadedConfig:
    """The configuration to start with; says on stderr what a person should know about it."""
    flags, left = parse_flags(arguments)
    if "-h" in left or "--help" in left:
        _leave(definition().help(), 0)
    if "--version" in left:
        from . import __version__

        _leave(f"llmc-mcp {__version__}\n", 0)
    verbose = "--verbose" in left
    left = [word for word in left if word != "--verbose"]
    if left:
        from .command_line import near, server_flags

        hint = near(left[0], [flag.name for flag in server_flags()]) or "See llmc-mcp --help."
        raise ConfigError(f"unknown argument {left[0]!r}. {hint}")
    loaded = load(flags)
    if loaded.refusals and loaded.refusals != [loaded.no_root]:
        raise ConfigError(*loaded.refusals)
    if loaded.no_root:
        _write(2, f"llmc-mcp: {loaded.no_root}; no tool works before\n")
    # Not through the log: a workspace's file may set its level, but not hide what was said about the file.
    _write(2, "".join(f"llmc-mcp: {line}\n" for line in loaded.lines()))
    if verbose:
        _write(2, "".join(f"llmc-mcp: {line}\n" for line in loaded.described()))
    return loaded


def build_from(loaded: LoadedConfig, log: Log | None = None) -> Gate:
    """Wire a server from what was loaded; one without a folder to serve says so in every reply."""
    roots, bounds = loaded.roots, loaded.roots
    if loaded.no_root:
        empty = os.path.join(loaded.data_dir, "no-root")
        os.makedirs(empty, mode=0o700, exist_ok=True)
        roots = [empty]
    gate = build(loaded.config, roots, loaded.data_dir, loaded.files, loaded.trusted_files, log)
    gate.app.follow(LiveConfig(loaded))
    gate.without_roots = loaded.no_root
    gate.root_bounds = [os.path.realpath(bound) for bound in bounds]
    return gate


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve MCP until the client hangs up, or over HTTP until a signal comes."""
    try:
        loaded = configure(sys.argv[1:] if arguments is None else list(arguments))
        gate = build_from(loaded)
        config = loaded.config
        gate.log.info("config", mode=config.mode, roots=loaded.roots, data_dir=loaded.data_dir, set=loaded.changed())
        if config.server.transport == "http":
            _serve_http(gate)
            return
    except LlmcError as exc:
        hint = f"\nhint: {exc.hint}" if exc.hint else ""
        _leave("".join(f"llmc-mcp: {line}\n" for line in f"{exc.message}{hint}".splitlines()), 2)
    _serve_stdio(gate)


def _serve_stdio(gate: Gate) -> None:
    from .protocol.stdio import StdioServer

    who = gate.app.config.session
    session = Session(
        f"uid:{os.getuid()}",
        f"stdio-{os.getpid()}-{os.urandom(3).hex()}",
        who.default_agent_id,
        who.default_model,
        budget_profile=who.default_budget_profile,
    )
    server = StdioServer(gate, session)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # as nohup wants it
            signal.signal(number, server.hang_up)
    try:
        server.run()
    finally:
        _close(gate)


def _close(gate: Gate) -> None:
    """Close what the calls left, within a bound: a call that hangs may hold what closing waits for."""
    closing = threading.Thread(target=gate.close, name="close", daemon=True)
    try:
        closing.start()
    except RuntimeError:  # no thread to be had
        gate.close()
    else:
        closing.join(_CLOSE_S)


def _serve_http(gate: Gate) -> None:
    from .web.serve import serve

    try:
        # Where the token is, not what it is: stderr ends up in logs.
        serve(gate, lambda at: _write(2, f"llmc-mcp: listening on {at.url}; token: {at.issued.source}\n"))
    finally:
        gate.close()


if __name__ == "__main__":
    main()
