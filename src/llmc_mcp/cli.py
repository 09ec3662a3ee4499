"""`llmc`: the commands for people."""

import os
import sys

from . import __version__

_USAGE = """\
usage: llmc COMMAND

  serve [FLAGS]    the MCP server itself; the same as llmc-mcp (see: llmc serve --help)
  smoke            start the server on this folder, call it once, print a client configuration
  --version
"""


def main() -> None:
    """Run one command."""
    arguments = sys.argv[1:]
    command = arguments[0] if arguments else "--help"
    if command == "serve":
        from . import server

        sys.argv = ["llmc serve", *arguments[1:]]
        server.main()
    elif command == "smoke":
        from .smoke import run

        raise SystemExit(run(os.getcwd()))
    elif command in ("-h", "--help", "help"):
        print(_USAGE, end="")
    elif command == "--version":
        print(f"llmc {__version__}")
    else:
        print(f"llmc: unknown command {command!r}\n{_USAGE}", end="", file=sys.stderr)
        raise SystemExit(2)
