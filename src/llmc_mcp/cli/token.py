"""`llmc token`: the tokens of HTTP clients, with scopes, tools and expiry."""

import os
import re
import sys
import time

from ..command_line import Arguments, Command, Flag, Positional, UsageError
from ..config.load import load
from ..config.schema import data_directory
from ..config.trust import INSIDE_COMMAND
from ..errors import Forbidden
from ..permissions.sign_ins import SignIns
from ..permissions.tokens import OWNER, SCOPES, TokenTable
from ..store.opening import open_store
from ..web.auth import open_table, read_secret, revoke_owner, rotate_owner

command = Command(
    "token",
    "Manages tokens of HTTP clients. Scopes: read = tools that change nothing, write = tools that change files,"
    " exec = tools that start processes, admin = everybody's sessions, changes and statistics, approvals and tokens."
    " Only hashes are stored; the operator's own token (owner) is kept in the data directory. Running servers follow at"
    " once, on other machines as well where they share a store.",
    default="list",
)
_NAME = Positional("NAME", "the token's name")
_UNITS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def _table() -> TokenTable:
    loaded = load()
    return open_table(loaded.data_dir, loaded.config.store.url)


@command.verb("list", "names, scopes, tools and expiry of all tokens")
def _list(given: Arguments) -> int:
    del given
    data_dir, now = data_directory(), time.time()
    has_owner = bool(read_secret(os.path.join(data_dir, "token")))
    if has_owner:
        print(f"{OWNER:24} {','.join(SCOPES):24} the operator's own")
    tokens = _table().list()
    for token in tokens:
        created = time.strftime("%Y-%m-%d", time.localtime(token.created_at))
        ends = "never" if not token.expires_at else time.strftime("%Y-%m-%d %H:%M", time.localtime(token.expires_at))
        state = f"expires {ends}" if token.is_valid(now) else f"EXPIRED {ends}"
        print(f"{token.name:24} {','.join(token.scopes):24} {created}  {state}  {','.join(token.tools)}".rstrip())
    if not (has_owner or tokens):
        print("no tokens", file=sys.stderr)
    return 0


def _create(given: Arguments) -> int:
    _refuse_inside_a_command()
    scopes = tuple(scope for scope in given.value("--scope").split(",") if scope)
    tools = tuple(tool for tool in given.value("--tools").split(",") if tool)
    print(_table().create(given.positionals[0], scopes, tools=tools, lasts_s=_seconds(given.value("--expires"))))
    print("Keep it: only its hash is stored. Running servers accept it from now on.", file=sys.stderr)
    return 0


command.verb(
    "create",
    "print a new token, once",
    positionals=(_NAME,),
    flags=(
        Flag("--scope", f"a list of {', '.join(SCOPES)}", "SCOPE,…", default="read"),
        Flag("--expires", "after this time: 90m, 12h, 30d, 4w (default: never)", "TIME"),
        Flag("--tools", "only these: names or patterns, as linux_fs_*", "TOOL,…"),
    ),
)(_create)


@command.verb("rotate", "print a new token in the place of one; the old one is refused at once", positionals=(_NAME,))
def _rotate(given: Arguments) -> int:
    _refuse_inside_a_command()
    name, data_dir = given.positionals[0], data_directory()
    print(rotate_owner(data_dir, _table()) if name == OWNER else _table().rotate(name))
    return 0


@command.verb("revoke", "refuse a token from now on", positionals=(_NAME,))
def _revoke(given: Arguments) -> int:
    name, data_dir = given.positionals[0], data_directory()
    if name == OWNER:
        revoke_owner(data_dir, _table())
    else:
        _table().revoke(name)
    print("No server accepts it any more.", file=sys.stderr)
    return 0


@command.verb("sign-out", "sign every browser out: no cookie and no link of before counts any more")
def _sign_out(given: Arguments) -> int:
    del given
    loaded = load()
    store = open_store(loaded.config.store.url, loaded.data_dir)
    SignIns(lambda: store).end_all()
    print("Every browser has to sign in again.", file=sys.stderr)
    return 0


def _refuse_inside_a_command() -> None:
    if os.environ.get(INSIDE_COMMAND):
        raise Forbidden("a command of a server can't make tokens", hint="Run it in a terminal of your own.")


def _seconds(text: str) -> float | None:
    if not text:
        return None
    found = re.fullmatch(r"(\d{1,6})([mhdw])", text)
    if found is None or not int(found[1]):
        raise UsageError(f"--expires {text}: expected a number and m, h, d or w, as 30d")
    return float(int(found[1]) * _UNITS[found[2]])
