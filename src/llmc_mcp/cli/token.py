"""`llmc token`: who else may call this server over HTTP, and what he may do."""

import sys
import time

from ..config.schema import data_directory
from ..web.auth import SCOPES, add, remove, stored

_USAGE = f"""\
usage: llmc token list
       llmc token add NAME [--scopes {",".join(SCOPES)}]   print a new token, once (default: read)
       llmc token remove NAME

Who else may call a server over HTTP, and what he may do: read = tools that change nothing, write = tools that change
files, exec = tools that start processes, admin = everybody's statistics. Only hashes are kept.
"""


def command(arguments: list[str]) -> int:
    """List, add or remove named tokens."""
    match arguments:
        case [] | ["list"]:
            for name, token in stored(data_directory()).items():
                made = time.strftime("%Y-%m-%d", time.localtime(token.created))
                print(f"{name:24} {','.join(token.scopes):24} {made}")
        case ["add", name]:
            _add(name, "read")
        case ["add", name, "--scopes", scopes]:
            _add(name, scopes)
        case ["remove", name]:
            remove(data_directory(), name)
            print("No server takes it any more.", file=sys.stderr)
        case ["-h"] | ["--help"]:
            print(_USAGE, end="")
        case _:
            print(_USAGE, end="", file=sys.stderr)
            return 2
    return 0


def _add(name: str, scopes: str) -> None:
    token = add(data_directory(), name, tuple(scope for scope in scopes.split(",") if scope))
    print(token)
    print("Keep it: only its hash is stored. Servers that run take it from now on.", file=sys.stderr)
