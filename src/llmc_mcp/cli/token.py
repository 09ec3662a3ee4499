"""`llmc token`: the named tokens of HTTP clients, and their scopes."""

import sys
import time

from ..command_line import Arguments, Command, Flag, Positional
from ..config.schema import data_directory
from ..web.auth import SCOPES, add, remove, stored

command = Command(
    "token",
    "Manages named tokens of HTTP clients. Scopes: read = tools that change nothing, write = tools that change files,"
    " exec = tools that start processes, admin = everybody's statistics. Only hashes are stored.",
    default="list",
)
_NAME = Positional("NAME", "the token's name")


@command.verb("list", "names, scopes and dates of all tokens")
def _list(given: Arguments) -> int:
    del given
    for name, token in stored(data_directory()).items():
        created = time.strftime("%Y-%m-%d", time.localtime(token.created))
        print(f"{name:24} {','.join(token.scopes):24} {created}")
    return 0


@command.verb(
    "add",
    "print a new token, once",
    positionals=(_NAME,),
    flags=(Flag("--scopes", f"a list of {', '.join(SCOPES)}", "SCOPE,…", default="read"),),
)
def _add(given: Arguments) -> int:
    scopes = tuple(scope for scope in given.value("--scopes").split(",") if scope)
    print(add(data_directory(), given.positionals[0], scopes))
    print("Keep it: only its hash is stored. Running servers accept it from now on.", file=sys.stderr)
    return 0


@command.verb("remove", "revoke a token", positionals=(_NAME,))
def _remove(given: Arguments) -> int:
    remove(data_directory(), given.positionals[0])
    print("No server accepts it any more.", file=sys.stderr)
    return 0
