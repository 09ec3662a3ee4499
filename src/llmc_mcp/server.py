"""`llmc-mcp`, `python -m llmc_mcp.server`: command line → App → transport.

The flags are few and every client start pays for what is imported here, so they are read by hand.
"""

import os
import signal
import sys
from typing import NoReturn

from .app import App
from .catalog import MODES, Catalog
from .config import Config, data_directory
from .dispatch import Gate
from .errors import LlmcError
from .observability import Log
from .session import Session

_USAGE = f"""\
usage: llmc-mcp [--root DIR]… [--mode {"|".join(MODES)}] [--log-level LEVEL] [--help] [--version]

An MCP server on standard input and output. File tools reach only what lies below the roots.

  --root DIR       an allowed folder; may be given several times (default: the working directory)
  --mode MODE      which tools are listed: classic = all, hybrid = a small set (default), code_execution = fewest
  --log-level L    debug, info, warning or error, on standard error (default: info)
"""


def parse(arguments: list[str], config: Config) -> list[str]:
    """Flags into `config`; returns the roots."""
    roots: list[str] = []
    rest = list(arguments)
    while rest:
        flag, has_value, value = rest.pop(0).partition("=")
        if flag in ("-h", "--help"):
            _leave(_USAGE, 0)
        if flag == "--version":
            from . import __version__

            _leave(f"llmc-mcp {__version__}\n", 0)
        if flag not in ("--root", "--mode", "--log-level"):
            _leave(f"llmc-mcp: unknown argument {flag!r}\n{_USAGE}", 2)
        if not has_value:
            if not rest:
                _leave(f"llmc-mcp: {flag} needs a value\n", 2)
            value = rest.pop(0)
        if flag == "--root":
            roots.append(value)
        elif flag == "--mode":
            config.mode = value
        else:
            config.observability.log_level = value
    return roots


def _leave(message: str, code: int) -> NoReturn:
    os.write(1 if code == 0 else 2, message.encode())
    raise SystemExit(code)


def build(config: Config, roots: list[str]) -> Gate:
    """Wire a server from its configuration."""
    settings = config.observability
    log = Log(enabled=settings.enabled, level=settings.log_level, log_format=settings.log_format)
    app = App(config, roots or list(config.tools.allowed_roots) or [os.getcwd()], data_directory())
    gate = Gate(app, Catalog(config), log)
    for notice in gate.catalog.notices:
        log.warning("catalog", notice=notice)
    return gate


def main() -> None:
    """Serve MCP on stdio until the client hangs up."""
    config = Config()
    roots = parse(sys.argv[1:], config)
    try:
        gate = build(config, roots)
    except LlmcError as exc:
        hint = f"\nhint: {exc.hint}" if exc.hint else ""
        _leave(f"llmc-mcp: {exc.message}{hint}\n", 2)
    from .protocol.stdio import StdioServer

    session = Session(principal=f"uid:{os.getuid()}", session_id=f"stdio-{os.getpid()}")
    server = StdioServer(gate, session)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, server.hang_up)
    try:
        server.run()
    finally:
        gate.app.close()
        gate.log.close()


if __name__ == "__main__":
    main()
