"""`llmc install CLIENT…`: put this server into a client's own settings, or take it out again."""

import json
import os
import shutil
import sys
from itertools import pairwise
from typing import Any, NamedTuple, cast

from ...command_line import JSON, Arguments, Flag, Positional, declare
from ...errors import InvalidArgument, LlmcError, NotFound
from ..fixes import not_on_path
from . import hook, jsonc, permissions, toml, yaml
from .client_file import ClientFile, backups, change, print_diff, read, remove, replace
from .clients import BY_NAME, CLIENTS, Client, entry, llmc_command, roots_for, server_command
from .jsonc import Unreadable
from .presence import is_here
from .root import roots_asked_for

_ABOUT = """\
Puts this server into the settings of an MCP client, with everything else in the file kept as it is, comments too. A\
 copy of the old file is kept beside it. A second run changes nothing. Without a client it lists them.

A client that does not start servers in a project needs a folder to serve: --root DIR, or the answer to a question.
"""


_NO_RECIPE = "It has no file for that: allow the tools when it asks."


class _InstallRequest(NamedTuple):
    """The command line."""

    roots: list[str]
    server_flags: list[str]
    project: bool
    uninstall: bool
    dry_run: bool
    allow: bool


@declare(
    "install",
    _ABOUT,
    positionals=(Positional("CLIENT", ", ".join(BY_NAME), tuple(BY_NAME), required=False, repeated=True),),
    flags=(
        Flag(
            "--root",
            "what the server may reach (default: the folder in which the client starts the server, for clients that"
            " start it in the project)",
            "DIR",
            repeated=True,
        ),
        Flag("--project", "the settings of the project in this folder instead of yours, for clients that have such"),
        Flag("--dry-run", "print the change as a diff and make none"),
        Flag("--uninstall", "remove the entry; a file that nothing else changed is restored byte by byte"),
        Flag("--allow", "let the client call the tools without asking, and tell its agents to prefer them"),
        Flag("--hook", "Claude Code: have te condense what its Bash tool prints; with --uninstall: no longer"),
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
        allow="--allow" in given,
    )
    failed = 0
    for name in given.positionals:
        client = BY_NAME[name]
        try:
            if "--hook" in given:
                hook.carry_out(client, hook.HookRequest(request.project, request.uninstall, request.dry_run))
            else:
                _carry_out(client, request)
        except LlmcError as exc:
            failed = 2
            print(f"llmc: {client.title}: {exc.message}", file=sys.stderr)
            if exc.hint:
                print(f"hint: {exc.hint}", file=sys.stderr)
    if not failed and not request.uninstall and not_on_path():
        print(f"llmc is not on your PATH: {llmc_command()} doctor --fix offers to put it there.", file=sys.stderr)
    return failed


def _root(folder: str) -> str:
    path = os.path.abspath(os.path.expanduser(folder))
    if not os.path.isdir(path):
        raise NotFound(f"--root {folder}: no such folder")
    return path


# --- one client ------------------------------------------------------------------------------------------------------


def _carry_out(client: Client, request: _InstallRequest) -> None:
    def act(file: ClientFile) -> None:
        if request.uninstall:
            _uninstall(client, file, dry_run=request.dry_run)
        else:
            _install(client, file, request)

    path = _file_of(client, request.project)
    how: dict[str, bool] = {"project": request.project, "dry_run": request.dry_run}
    if request.uninstall:
        _say(client, "taken back", permissions.remove(client.recipe, _listed_tools(["classic"]), **how))
    change(path, act)
    if request.uninstall and hook.is_there(client, project=request.project):
        project = " --project" if request.project else ""
        print(f"  the hook stays; llmc install {client.name} --hook{project} --uninstall removes it", file=sys.stderr)
    if request.allow and not request.uninstall:
        tools = _listed_tools(request.server_flags)
        _say(client, "allowed", permissions.write(client.recipe, tools, **how))
        if client.recipe.note or not (client.recipe.in_entry or client.recipe.rules):
            print(f"  {client.recipe.note or _NO_RECIPE}", file=sys.stderr)


def _say(client: Client, what: str, paths: list[str]) -> None:
    for path in paths:
        print(f"{client.title}: {what} in {path}")


def _listed_tools(server_flags: list[str]) -> list[str]:
    """The tools that the server lists to the client."""
    from ...config.schema import Config
    from ...gate.catalog import Catalog

    mode = "classic" if "classic" in server_flags else Config().mode
    return sorted(tool.name for tool in Catalog(Config(mode=mode)).listed)


def _file_of(client: Client, project: bool) -> str:
    if not project:
        return client.file()
    if not client.project_file:
        raise InvalidArgument(f"{client.title} has no settings per project", hint="Omit --project.")
    return os.path.join(os.getcwd(), client.project_file)


def _new_entry(client: Client, request: _InstallRequest, there: dict[str, Any] | None) -> dict[str, object]:
    """The entry, for the roots that were named, that the entry has now, or that the person answers, in this order."""
    roots = request.roots
    if not roots and not client.starts_in_project:
        if request.project:
            roots = roots_for(client, os.getcwd(), project=True)
        else:
            roots = _roots_of(client, there) or roots_asked_for(client)
    allowed = client.recipe.entry(_listed_tools(request.server_flags)) if request.allow else {}
    return {**entry(client, server_command(), roots, request.server_flags), **allowed}


def _roots_of(client: Client, there: dict[str, Any] | None) -> list[str]:
    words = client.words_of(there or {})
    return [after for word, after in pairwise(words) if word == "--root"]


def _install(client: Client, file: ClientFile, request: _InstallRequest) -> None:
    before = file.text or ""
    there = _entry_in(client, before)
    wanted = _new_entry(client, request, there)
    if there is not None and {"args": [], **there, **wanted} == {"args": [], **there}:
        print(f"{client.title}: already there ({file.shown})")
        return
    after = _with_entry(client, before, wanted)
    if request.dry_run:
        print_diff(file.shown, before, after)
        return
    found = is_here(client)
    backup = replace(file, after)
    print(f"{client.title}: {'changed' if there else 'installed'} in {file.shown}")
    roots = _roots_of(client, wanted) or [f"the folder in which {client.title} is started"]
    print(f"  root: {', '.join(roots)}", file=sys.stderr)
    print(f"  as it was: {backup}" if backup else "  the file is new", file=sys.stderr)
    if not found:
        print(f"  {client.title} itself was not found on this machine", file=sys.stderr)
    print(f"  {client.then}", file=sys.stderr)


def _uninstall(client: Client, file: ClientFile, *, dry_run: bool) -> None:
    there = _entry_in(client, file.text or "")
    if file.text is None or there is None:
        print(f"{client.title}: not there ({file.shown})")
        return
    original = _original(client, file, there)
    made_by_us = original is None and _only_lacks(client, "", there, file.text)
    after = "" if made_by_us else original[1] if original else _without_entry(client, file.text)
    if dry_run:
        print_diff(file.shown, file.text, after)
        return
    if made_by_us:
        remove(file)
    else:
        replace(file, after, keep=original is None)
    if original:
        os.unlink(original[0])
    print(f"{client.title}: removed from {file.shown}")
    left = "all else in it is kept"
    if made_by_us:
        left = "the file held nothing else and is gone"
    elif original:
        left = "the file is as it was before"
    print(f"  {left}", file=sys.stderr)


def _original(client: Client, file: ClientFile, there: dict[str, Any]) -> tuple[str, str] | None:
    """The backup to which our entry was the only change, and its text."""
    for path in backups(file):
        text = read(path).text
        if text is not None and _only_lacks(client, text, there, file.text or ""):
            return path, text
    return None


def _only_lacks(client: Client, before: str, there: dict[str, Any], after: str) -> bool:
    """Whether our entry is the only difference."""
    try:
        return _entry_in(client, before) is None and _with_entry(client, before, there) == after
    except (Unreadable, InvalidArgument):
        return False


# --- what the text means ---------------------------------------------------------------------------------------------


def _meaning(client: Client, text: str) -> dict[str, Any]:
    if client.form in ("toml", "yaml"):
        found = toml.parse(text) if client.form == "toml" else yaml.parse(text)
    else:
        found = jsonc.parse(text, comments=client.comments).value
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
    elif client.form == "yaml":
        after = yaml.put(text, (table, name), meant[table][name])
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
    elif client.form == "yaml":
        after = yaml.cut(text, (table, name))
        if not meant[table]:
            del meant[table]
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
    return {"client": client.name, "title": client.title, "found": is_here(client), "state": state, "file": path}


def _state(client: Client, path: str) -> str:
    try:
        there = _entry_in(client, read(path).text or "")
    except Unreadable as exc:
        return f"can't be read: line {exc.line}"
    except LlmcError:
        return "can't be read"
    if there is None:
        return "not installed"
    words = client.words_of(there)
    if not words:
        return "installed over HTTP" if "url" in there else "installed, no command"
    return "installed" if shutil.which(words[0]) else "installed, command missing"
