"""`llmc install CLIENT…`: put this server into a client's own settings, or take it out again."""

import difflib
import glob
import json
import os
import shutil
import stat
import sys
import time
from typing import Any, NamedTuple, cast

from ...command_line import JSON, Arguments, Flag, Positional, declare
from ...errors import Conflict, InvalidArgument, LlmcError, NotFound, WriteFailed, from_oserror
from . import jsonc, toml
from .clients import BY_NAME, CLIENTS, Client, entry, roots_for, server_command
from .jsonc import Unreadable

_ABOUT = """\
Puts this server into the settings of an MCP client, with everything else in the file kept as it is, comments too. A\
 copy of the old file is kept beside it. A second run changes nothing. Without a client it lists them.
"""
_TRIES = 3  # clients may write their files at the same time


class _InstallRequest(NamedTuple):
    """The command line."""

    roots: list[str]
    server_flags: list[str]
    project: bool
    uninstall: bool
    dry_run: bool


class _ClientFile(NamedTuple):
    """A client's file as it was read; `text` is None where there is none."""

    shown: str
    path: str  # with links resolved: the same file is read and written
    text: str | None
    seen: tuple[int, int, int] | None


class _ChangedMeanwhile(Exception):
    """Another process wrote the file meanwhile."""


@declare(
    "install",
    _ABOUT,
    positionals=(Positional("CLIENT", ", ".join(BY_NAME), tuple(BY_NAME), required=False, repeated=True),),
    flags=(
        Flag(
            "--root",
            "what the server may reach (default: the folder in which the client starts the server, for clients that"
            " start it in the project; else this folder)",
            "DIR",
            repeated=True,
        ),
        Flag("--project", "the settings of the project in this folder instead of yours, for clients that have such"),
        Flag("--dry-run", "print the change as a diff and make none"),
        Flag("--uninstall", "remove the entry; a file that nothing else changed is restored byte by byte"),
        Flag("--list", "list the clients found here, and which of them have the server"),
        JSON._replace(help="print the list as JSON"),
    ),
    rest=Positional("SERVER FLAGS", "further flags of llmc-mcp, for example: -- --mode classic"),
)
def command(given: Arguments) -> int:
    """Install, uninstall or list."""
    if "--uninstall" in given and not given.positionals:
        raise InvalidArgument("--uninstall: from which client?", hint=f"Known are {', '.join(BY_NAME)}.")
    if "--list" in given or not given.positionals:
        _list(as_json="--json" in given)
        return 0
    request = _InstallRequest(
        roots=[_root(folder) for folder in given.all("--root")],
        server_flags=given.rest,
        project="--project" in given,
        uninstall="--uninstall" in given,
        dry_run="--dry-run" in given,
    )
    failed = 0
    for name in given.positionals:
        client = BY_NAME[name]
        try:
            _carry_out(client, request)
        except LlmcError as exc:
            failed = 2
            print(f"llmc: {client.title}: {exc.message}", file=sys.stderr)
            if exc.hint:
                print(f"hint: {exc.hint}", file=sys.stderr)
    return failed


def _root(folder: str) -> str:
    path = os.path.abspath(os.path.expanduser(folder))
    if not os.path.isdir(path):
        raise NotFound(f"--root {folder}: no such folder")
    return path


# --- one client ------------------------------------------------------------------------------------------------------


def _carry_out(client: Client, request: _InstallRequest) -> None:
    shown = _file_of(client, request.project)
    for _ in range(_TRIES):
        file = _read(shown)
        try:
            if request.uninstall:
                _uninstall(client, file, dry_run=request.dry_run)
            else:
                _install(client, file, _new_entry(client, request), dry_run=request.dry_run)
        except Unreadable as exc:
            raise InvalidArgument(
                f"{shown}:{exc.line}: {exc.problem}; nothing was changed", hint="Correct the file, then try again."
            ) from None
        except _ChangedMeanwhile:
            continue
        return
    raise Conflict(f"{shown}: something else keeps changing it", hint="Close the client, then try again.")


def _file_of(client: Client, project: bool) -> str:
    if not project:
        return client.file()
    if not client.project_file:
        raise InvalidArgument(f"{client.title} has no settings per project", hint="Omit --project.")
    return os.path.join(os.getcwd(), client.project_file)


def _new_entry(client: Client, request: _InstallRequest) -> dict[str, object]:
    here = os.getcwd()
    roots = request.roots or roots_for(client, here, project=request.project)
    if not request.roots and here in roots and _holds_home(here):
        raise InvalidArgument(
            f"{here} is too much to open by default",
            hint="Go to a project's folder, or name one: --root DIR.",
        )
    return entry(client, server_command(), roots, request.server_flags)


def _holds_home(folder: str) -> bool:
    home = os.path.realpath(os.path.expanduser("~"))
    return os.path.commonpath([home, os.path.realpath(folder)]) == os.path.realpath(folder)


def _install(client: Client, file: _ClientFile, wanted: dict[str, object], *, dry_run: bool) -> None:
    before = file.text or ""
    there = _entry_in(client, before)
    if there is not None and {"args": [], **there, **wanted} == {"args": [], **there}:
        print(f"{client.title}: already there ({file.shown})")
        return
    after = _with_entry(client, before, wanted)
    if dry_run:
        _print_diff(file.shown, before, after)
        return
    is_here = _is_here(client)  # before its folder is made
    backup = _replace(file, after)
    print(f"{client.title}: {'changed' if there else 'installed'} in {file.shown}")
    print(f"  as it was: {backup}" if backup else "  the file is new", file=sys.stderr)
    if not is_here:
        print(f"  {client.title} itself was not found on this machine", file=sys.stderr)
    print(f"  {client.then}", file=sys.stderr)


def _uninstall(client: Client, file: _ClientFile, *, dry_run: bool) -> None:
    there = _entry_in(client, file.text or "")
    if file.text is None or there is None:
        print(f"{client.title}: not there ({file.shown})")
        return
    original = _original(client, file, there)
    made_by_us = original is None and _only_lacks(client, "", there, file.text)
    after = "" if made_by_us else original[1] if original else _without_entry(client, file.text)
    if dry_run:
        _print_diff(file.shown, file.text, after)
        return
    if made_by_us:
        _demand_unmoved(file)
        os.unlink(file.path)
    else:
        _replace(file, after, keep=original is None)
    if original:
        os.unlink(original[0])
    print(f"{client.title}: removed from {file.shown}")
    left = "all else in it is kept"
    if made_by_us:
        left = "the file held nothing else and is gone"
    elif original:
        left = "the file is as it was before"
    print(f"  {left}", file=sys.stderr)


def _original(client: Client, file: _ClientFile, there: dict[str, Any]) -> tuple[str, str] | None:
    """The backup to which our entry was the only change, and its text."""
    for path in sorted(glob.glob(glob.escape(file.shown) + ".llmc-*.bak"), reverse=True):
        text = _read(path).text
        if text is not None and _only_lacks(client, text, there, file.text or ""):
            return path, text
    return None


def _only_lacks(client: Client, before: str, there: dict[str, Any], after: str) -> bool:
    """Whether our entry is the only difference."""
    try:
        return _entry_in(client, before) is None and _with_entry(client, before, there) == after
    except (Unreadable, InvalidArgument):
        return False


def _print_diff(shown: str, before: str, after: str) -> None:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), shown, shown, lineterm="")
    print("\n".join(lines))


# --- what the text means ---------------------------------------------------------------------------------------------


def _meaning(client: Client, text: str) -> dict[str, Any]:
    found = toml.parse(text) if client.form == "toml" else jsonc.parse(text, comments=client.comments).value
    if not isinstance(found, dict):
        raise Unreadable(1, "the whole is not an object")
    servers = cast("dict[str, Any]", found).get(client.table, {})
    if not isinstance(servers, dict):
        raise Unreadable(_line_of(text, client.table), f"{client.table} is not a table of servers")
    return cast("dict[str, Any]", found)


def _line_of(text: str, word: str) -> int:
    return text.count("\n", 0, max(text.find(word), 0)) + 1


def _entry_in(client: Client, text: str) -> dict[str, Any] | None:
    table, name = client.path()
    found = _meaning(client, text).get(table, {}).get(name)
    if found is not None and not isinstance(found, dict):
        raise Unreadable(_line_of(text, name), f"{table}.{name} is not a server's entry")
    return cast("dict[str, Any] | None", found)


def _with_entry(client: Client, text: str, wanted: dict[str, Any]) -> str:
    """The text with our keys set; other keys of the entry stay."""
    table, name = client.path()
    meant = _meaning(client, text)
    there = _entry_in(client, text)
    meant[table] = {**meant.get(table, {}), name: {**(there or {}), **wanted}}
    if client.form == "toml":
        after = toml.put(text, (table, name), wanted)
    elif there is None:
        after = jsonc.put(text, (table, name), wanted, comments=client.comments)
    else:
        after = text
        for key, value in wanted.items():
            if key not in there or there[key] != value:
                after = jsonc.put(after, (table, name, key), value, comments=client.comments)
    return _checked(client, after, meant)


def _without_entry(client: Client, text: str) -> str:
    table, name = client.path()
    meant = _meaning(client, text)
    del meant[table][name]
    if client.form == "toml":
        after = toml.cut(text, (table, name))
        if not meant[table]:
            del meant[table]  # without its only table it is not there
    else:
        after = jsonc.cut(text, (table, name), comments=client.comments)
    return _checked(client, after, meant)


def _checked(client: Client, text: str, meant: dict[str, Any]) -> str:
    """Refuse a text that does not parse to exactly the intended value."""
    try:
        right = _meaning(client, text) == meant
    except Unreadable:
        right = False
    if not right:
        raise InvalidArgument(
            f"{client.table}.{client.path()[1]} is written there in a way that is not touched; nothing was changed",
            hint="Edit it by hand: llmc smoke prints the entry.",
        )
    return text


# --- the file --------------------------------------------------------------------------------------------------------


def _read(shown: str) -> _ClientFile:
    path = os.path.realpath(shown)
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
            status = os.fstat(opened.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InvalidArgument(f"{shown} is not a file")
            content = opened.read()
    except FileNotFoundError:
        return _ClientFile(shown, path, None, None)
    except OSError as exc:
        raise from_oserror(exc, shown) from None
    try:
        return _ClientFile(shown, path, content.decode(), _state_of(status))
    except UnicodeDecodeError as exc:
        line = content.count(b"\n", 0, exc.start) + 1
        raise InvalidArgument(f"{shown}:{line}: not UTF-8; nothing was changed") from None


def _state_of(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _replace(file: _ClientFile, text: str, *, keep: bool = True) -> str | None:
    """Write a temporary file, then rename it over the old one; returns the name of the backup."""
    folder = os.path.dirname(file.path)
    new = os.path.join(folder, f".{os.path.basename(file.path)}.llmc-{os.getpid()}")
    try:
        os.makedirs(folder, exist_ok=True)
        was = os.stat(file.path) if file.text is not None else None
        _write_new(new, text, was)
        try:
            _demand_unmoved(file)
            backup = _backup(file, was) if was and keep else None
            os.replace(new, file.path)
        except BaseException:
            os.unlink(new)
            raise
    except UnicodeEncodeError:
        raise WriteFailed(f"{file.shown}: a path of the entry is not UTF-8") from None
    except OSError as exc:
        raise from_oserror(exc, file.shown) from None
    return backup


def _demand_unmoved(file: _ClientFile) -> None:
    now = _state_of(os.stat(file.path)) if os.path.exists(file.path) else None
    if now != file.seen:
        raise _ChangedMeanwhile


def _write_new(path: str, text: str, like: os.stat_result | None) -> None:
    content = text.encode()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as opened:
        opened.write(content)
        opened.flush()
        if like is not None:
            if os.geteuid() == 0:
                os.fchown(fd, like.st_uid, like.st_gid)
            os.fchmod(fd, stat.S_IMODE(like.st_mode))
        os.fsync(fd)


def _backup(file: _ClientFile, like: os.stat_result) -> str:
    stamp, number = time.strftime("%Y%m%d-%H%M%S"), 1
    while True:
        path = f"{file.shown}.llmc-{stamp}-{number}.bak"
        try:
            _write_new(path, file.text or "", like)
        except FileExistsError:
            number += 1
        else:
            return path


# --- list ------------------------------------------------------------------------------------------------------------


def _list(*, as_json: bool) -> None:
    rows = [_row(client) for client in CLIENTS]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        here = "found" if row["found"] else "not found"
        print(f"{row['client']!s:15} {here:10} {row['state']!s:24} {row['file']}")
    print("llmc install CLIENT puts the server there; --help says more", file=sys.stderr)


def _row(client: Client) -> dict[str, object]:
    files = [client.file()]
    if client.project_file:
        files += [path for path in [os.path.join(os.getcwd(), client.project_file)] if os.path.exists(path)]
    states = [(path, _state(client, path)) for path in files]
    installed = [found for found in states if found[1].startswith("installed")]
    path, state = (installed or states)[0]
    return {"client": client.name, "title": client.title, "found": _is_here(client), "state": state, "file": path}


def _is_here(client: Client) -> bool:
    return any(map(os.path.exists, client.signs())) or shutil.which(client.program) is not None


def _state(client: Client, path: str) -> str:
    try:
        there = _entry_in(client, _read(path).text or "")
    except Unreadable as exc:
        return f"can't be read: line {exc.line}"
    except LlmcError:
        return "can't be read"
    if there is None:
        return "not installed"
    program = there.get("command")
    if not isinstance(program, str):
        return "installed over HTTP" if "url" in there else "installed, no command"
    return "installed" if shutil.which(program) else "installed, command missing"
