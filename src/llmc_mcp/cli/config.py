"""`llmc config show | set | unset | trust | untrust`."""

import os
import sys

import msgspec

from ..command_line import JSON, Arguments, Command, Positional
from ..config.edit import SettingChange, edited_file, set_key, takes_effect, unset_key
from ..config.load import Flags, LoadedConfig, load, read_bytes
from ..config.schema import data_directory, get_key, keys
from ..config.trust import FILE_NAME, ConfigError, pin, unpin
from ..printing import print_json, print_line

command = Command(
    "config",
    "Shows the configuration in force, edits your own file, and lets a folder's own file widen it."
    " DOCS/configuration.md lists every setting; llmc repo validate says what is wrong or risky.",
)
_KEY = Positional("KEY", "a setting, for example tools.exec_timeout")
_FILE = Positional("FILE", f"a {FILE_NAME} or its folder (default: this folder)", required=False)


@command.verb("show", "every setting in force, and where it was set", flags=(JSON,), server_flags=True)
def _show(given: Arguments) -> int:
    loaded = load(given.server)
    if "--json" in given:
        print_json(_as_data(loaded))
    else:
        for line in loaded.described():
            print_line(line)
    for line in (*loaded.refusals, *loaded.lines()):
        print_line(f"llmc: {line}", sys.stderr)
    return 0


def _as_data(loaded: LoadedConfig) -> dict[str, object]:
    return {
        "roots": loaded.roots,
        "data_dir": loaded.data_dir,
        "files": loaded.files,
        "settings": {
            f"mcp.{name}": {
                "value": msgspec.json.decode(key.shown(get_key(loaded.config, name))),
                "source": loaded.sources.get(name, "default"),
                "in_force": not key.not_in_force,
            }
            for name, key in keys().items()
        },
        "notices": [*loaded.refusals, *loaded.lines()],
    }


@command.verb(
    "set",
    "write a setting into your own file; lists as JSON or separated by commas",
    positionals=(_KEY, Positional("VALUE", "")),
)
def _set(given: Arguments) -> int:
    name, text = given.positionals
    _report(set_key(name, text))
    return 0


@command.verb("unset", "take a setting out of your own file", positionals=(_KEY,))
def _unset(given: Arguments) -> int:
    _report(unset_key(given.positionals[0]))
    return 0


def _report(edit: SettingChange) -> None:
    key = keys()[edit.name]
    if edit.after is None:
        state = "was not in" if edit.before is None else "taken out of"
        print_line(f"mcp.{edit.name} {state} {edit.path}; default: {key.shown(key.default)}")
    else:
        print_line(f"mcp.{edit.name} = {key.shown(edit.after)}   # {edit.path}")
    if edit.before != edit.after:
        print_line(takes_effect(edit.name))
    source = load().sources.get(edit.name, "")
    if source and not source.startswith(edited_file()):
        print_line(f"llmc: {source} says otherwise here, and takes precedence", sys.stderr)


@command.verb("trust", f"let ./{FILE_NAME} widen what the server may do, as it is now", positionals=(_FILE,))
def _trust(given: Arguments) -> int:
    path = _workspace_file(given.first() or FILE_NAME)
    content = read_bytes(path, path)
    if content is None:
        raise ConfigError(f"{path}: no such file")
    widens = load(Flags(), directory=os.path.dirname(path)).ignored
    digest = pin(path, content, data_directory())
    print(f"trusted {path}\nsha256  {digest}")
    for line in widens:
        print_line(f"widens  {line.partition(' is ignored')[0]}")
    print("A changed file is untrusted again.")
    return 0


@command.verb("untrust", "take that back", positionals=(_FILE,))
def _untrust(given: Arguments) -> int:
    path = _workspace_file(given.first() or FILE_NAME)
    there_was = unpin(path, data_directory())
    print(f"{'no longer trusted:' if there_was else 'was not trusted:'} {path}")
    return 0


def _workspace_file(path: str) -> str:
    path = os.path.abspath(os.path.expanduser(path))
    if os.path.isdir(path):
        path = os.path.join(path, FILE_NAME)
    if os.path.basename(path) != FILE_NAME:
        raise ConfigError(f"{path}: trust is about a folder's {FILE_NAME}; a file of another name is read by --config")
    return path
