"""`llmc allow`: widen what commands may do, in the user's own configuration file."""

import os
import shutil
import sys

from ..command_line import Arguments, Flag, Positional, UsageError, declare
from ..config.edit import (
    SettingChange,
    add_to,
    edited_file,
    read_users_config,
    remove_from,
    set_key,
    takes_effect,
    unset_key,
)
from ..config.load import is_broad, load
from ..config.network import invalid_entries
from ..config.schema import data_directory
from ..config.trust import ConfigError
from ..files.off_limits import homes, secrets
from ..policy import is_below
from ..printing import print_line

_ABOUT = """\
Lets commands do more: start another program, reach a host (a name, *.suffix or address, with :PORT or at 80 and 443),\
 the hosts of a preset (python, node, rust, go, git), with no name the whole network, or read a folder outside of the\
 roots (--write: change it, too). It is written into your own configuration file, and running servers notice within a\
 second. Without arguments, lists what was allowed.

No tool and no command of a server can do this: your file is out of their reach.
"""
_PROGRAMS = "linux_ops.commands.allowed_binaries"
_UNSAFE = "linux_ops.commands.unsafe_binaries"
_NETWORK, _NETWORK_MODE, _HOSTS = "tools.allow_outbound_network", "tools.network", "tools.network_allow"
_READ, _WRITE = "sandbox.extra_read", "sandbox.extra_write"


@declare(
    "allow",
    _ABOUT,
    positionals=(
        Positional("KIND", "what to allow", ("program", "network", "dir"), required=False),
        Positional("NAME", "the program, the host or preset, or the folder", required=False),
    ),
    flags=(Flag("--write", "a folder that commands may change"), Flag("--revoke", "take it back")),
)
def command(given: Arguments) -> int:
    """Change or list what is allowed."""
    what, name, *_ = (*given.positionals, "", "")
    if not what:
        if given_flags := [flag for flag in ("--revoke", "--write") if flag in given]:
            raise UsageError(f"{given_flags[0]}: of what?", hint="llmc allow lists what is allowed, a line each.")
        _list()
        return 0
    if not name and what != "network":
        raise UsageError(f"which {what}?")
    if what != "dir" and "--write" in given:
        raise UsageError("--write is about a folder")
    revoke = "--revoke" in given
    if what == "program":
        edits = [_program(name, revoke=revoke)]
    elif what == "network":
        edits = _network(name, revoke=revoke)
    else:
        edits = _folder(name, write="--write" in given, revoke=revoke)
    _report(edits, f"{what} {name}" if name else "the whole network", revoke=revoke)
    return 0


def _program(name: str, *, revoke: bool) -> SettingChange:
    if "/" in name:
        name = os.path.abspath(os.path.expanduser(name))
    if revoke:
        return remove_from(_PROGRAMS, name)
    commands = load().config.linux_ops.commands
    if name in commands.unsafe_binaries and not commands.allow_unsafe:
        raise ConfigError(f"{name} is in mcp.{_UNSAFE}, which goes before what is allowed: take it out there first")
    if not _is_program(name):
        print_line(f"llmc: commands find no program {name} now; it is allowed for when there is one", sys.stderr)
    return add_to(_PROGRAMS, name)


def _is_program(name: str) -> bool:
    from ..sandbox.profile import search_path, settings_from

    return shutil.which(name, path=":".join(search_path(settings_from(load().config)))) is not None


def _network(name: str, *, revoke: bool) -> list[SettingChange]:
    """The whole network, or a host; a mode in the file that would keep that from taking effect is taken out."""
    if name:
        name = name.lower()
        if why := invalid_entries([name]).get(name):
            raise ConfigError(f"{name}: {why}; name a host as example.org, example.org:8443 or *.example.org")
    if revoke:
        return [remove_from(_HOSTS, name) if name else unset_key(_NETWORK)]
    tools = read_users_config().tools
    if name and (tools.network == "on" or (tools.network == "auto" and tools.allow_outbound_network)):
        raise ConfigError("commands have the whole network: llmc allow network --revoke leaves them what is listed")
    edits = [add_to(_HOSTS, name) if name else set_key(_NETWORK, "true")]
    if tools.network == "off" or (tools.network == "allowlist" and not name):
        edits.append(unset_key(_NETWORK_MODE))
    return edits


def _folder(name: str, *, write: bool, revoke: bool) -> list[SettingChange]:
    path = os.path.abspath(os.path.expanduser(name))
    if revoke:
        return [remove_from(key, path) for key in ((_WRITE,) if write else (_READ, _WRITE))]
    if not os.path.isdir(path):
        raise ConfigError(f"{path}: there is no such folder")
    _refuse_private(os.path.realpath(path))
    return [add_to(_WRITE if write else _READ, path)]


def _refuse_private(real: str) -> None:
    """Refuse a folder that is nobody's to give by a short word: a whole home, keys, the server's own state."""
    if is_broad(real):
        raise ConfigError(f"{real} is or holds a whole home directory: name the folder in it that is needed")
    own = (data_directory(), os.path.dirname(edited_file()))
    private = (*own, *secrets(load().config.sandbox.deny_read, homes(os.getuid())))
    for place in map(os.path.realpath, private):
        if is_below(real, place) or (os.path.exists(place) and is_below(place, real)):
            raise ConfigError(f"{real}: {place} is kept from commands; name another folder")


def _report(edits: list[SettingChange], what: str, *, revoke: bool) -> None:
    changed = [edit for edit in edits if edit.before != edit.after]
    if not changed:
        print_line(f"{what}: {'was not allowed' if revoke else 'allowed already'} in {edits[0].path}")
        return
    print_line(f"{'no longer allowed' if revoke else 'allowed'}: {what}   # {changed[0].path}")
    print_line(takes_effect(changed[0].name))
    source = load().sources.get(changed[0].name, "")
    if source and not source.startswith(edited_file()):
        print_line(f"llmc: {source} says otherwise here, and takes precedence", sys.stderr)


def _list() -> None:
    """Each line is what `llmc allow --revoke` takes back."""
    config, path = read_users_config(), edited_file()
    lines = [f"program {name}" for name in config.linux_ops.commands.allowed_binaries]
    lines += ["network"] if config.tools.allow_outbound_network else []
    lines += [f"network {entry}" for entry in config.tools.network_allow]
    lines += [f"dir {folder}" for folder in config.sandbox.extra_read]
    lines += [f"dir {folder} --write" for folder in config.sandbox.extra_write]
    for line in lines:
        print_line(line)
    print_line(f"llmc: {f'from {path}' if lines else f'nothing is allowed in {path}'}", sys.stderr)
