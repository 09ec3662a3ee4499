"""Edits of the user's own configuration file: one setting at a time, comments and layout kept.

An edit is checked by the rules of loading before anything is written, and takes the place of the old file at once.
The file is out of reach for every tool and command of a server; these edits are for a person in a terminal.
"""

import copy
import fcntl
import os
import tomllib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from .live import LIVE, READ_BY_PEOPLE
from .load import GivenSetting, parse_file, read_bytes, typed_settings
from .schema import Config, find_key, get_key, keys
from .trust import INSIDE_COMMAND, ConfigError, user_config_file

if TYPE_CHECKING:
    from tomlkit import TOMLDocument


class SettingChange(NamedTuple):
    """An edit that was made: the file, the setting, and its value before and after (None: not in the file)."""

    path: str
    name: str
    before: object
    after: object


def edited_file(environ: Mapping[str, str] | None = None) -> str:
    """The file that edits go to: the one that a server started from this environment obeys."""
    environ = os.environ if environ is None else environ
    return os.path.abspath(os.path.expanduser(environ.get("LLMC_CONFIG", "") or user_config_file(environ)))


def read_users_config() -> Config:
    """What the user's file says, without any other source."""
    return typed_settings(_Document(edited_file()).settings())


def set_key(name: str, text: str) -> SettingChange:
    """Set a key to a value that was typed as text."""
    name = name.removeprefix("mcp.")
    config = typed_settings([GivenSetting(name, text, "config set", spelled=True)])
    return _edit(name, get_key(config, name))


def unset_key(name: str) -> SettingChange:
    """Take a key out of the file: its default is in force again."""
    name = name.removeprefix("mcp.")
    if find_key(name) is None:
        typed_settings([GivenSetting(name, "", "config unset", spelled=True)])
    return _edit(name, None)


def add_to(name: str, item: str) -> SettingChange:
    """Add an item to a list, unless it is on it."""
    return _edit_list(name, item, present=True)


def remove_from(name: str, item: str) -> SettingChange:
    """Take an item off a list."""
    return _edit_list(name, item, present=False)


def _edit(name: str, value: object) -> SettingChange:
    with _opened() as document:
        before = document.value(name)
        document.put(name, value)
        document.save()
    return SettingChange(document.path, name, before, value)


def _edit_list(name: str, item: str, *, present: bool) -> SettingChange:
    with _opened() as document:
        listed: list[str] = list(get_key(typed_settings(document.settings()), name))
        if (item in listed) == present:
            return SettingChange(document.path, name, listed, listed)
        document.put_item(name, item, present=present)
        document.save()
    after = [*listed, item] if present else [one for one in listed if one != item]
    return SettingChange(document.path, name, listed, after)


@contextmanager
def _opened() -> "Generator[_Document]":
    """The file, locked against another edit at the same time."""
    if os.environ.get(INSIDE_COMMAND):
        raise ConfigError("this is a command of a server: what it may do is for a person to say, in a terminal")
    path = os.path.realpath(edited_file())
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as exc:
        raise _unwritable(path, exc) from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield _Document(path)
    finally:
        os.close(folder)


class _Document:
    """The text of a file, and the same with one edit."""

    def __init__(self, path: str) -> None:
        import tomlkit

        self.path = path
        content = read_bytes(path, path) or b""
        self._settings = parse_file(path, content, path).settings  # refuses what is no TOML, with the line
        self._text = content.decode("utf-8-sig")
        self._edited: TOMLDocument = tomlkit.parse(self._text)
        self._expected: dict[str, Any] = tomllib.loads(self._text)

    def settings(self) -> list[GivenSetting]:
        """The settings in the file."""
        return self._settings

    def value(self, name: str) -> object:
        """The value in the file; None if there is none."""
        return next((setting.value for setting in self._settings if setting.key == name), None)

    def put(self, name: str, value: object) -> None:
        """Set a value; None removes it."""
        *sections, last = ("mcp", *name.split("."))
        plain = list(cast("tuple[str, ...]", value)) if isinstance(value, tuple) else value
        if value is None:
            if self.value(name) is None:
                return
            for tables in (self._edited, self._expected):
                del _table(tables, sections)[last]
            return
        try:
            _make_tables(self._edited, sections)[last] = plain
            _make_tables(self._expected, sections)[last] = copy.deepcopy(plain)
        except TypeError:
            raise ConfigError(f"{self.path}: one of {'.'.join(sections)} is no table; nothing was written") from None

    def put_item(self, name: str, item: str, *, present: bool) -> None:
        """Add an item to a list or remove it; the others, and comments between them, stay as they are."""
        *sections, last = ("mcp", *name.split("."))
        if self.value(name) is None:  # the list in force is the default one
            listed = [*get_key(Config(), name)]
            self.put(name, tuple([*listed, item] if present else [one for one in listed if one != item]))
            return
        for tables in (self._edited, self._expected):
            found = _table(tables, sections)[last]
            if present:
                found.append(item)
            else:
                while item in found:
                    found.remove(item)

    def save(self) -> None:
        """Write the file, if what it would say is valid and is what was meant."""
        import tomlkit

        text = tomlkit.dumps(self._edited)
        if tomllib.loads(text) != self._expected:
            raise ConfigError(f"{self.path}: its layout is too unusual to edit: nothing was written; edit it by hand")
        content = text.encode()
        typed_settings(parse_file(self.path, content, self.path).settings)
        _write(self.path, content)


def _table(tables: Any, path: Sequence[str]) -> Any:
    for name in path:
        tables = tables[name]
    return tables


def _make_tables(tables: Any, path: Sequence[str]) -> Any:
    """The table at a path; those that are missing are made, as tables of a kind with what holds them."""
    for depth, name in enumerate(path):
        if name not in tables:
            tables[name] = _new_table(tables, is_last=depth == len(path) - 1)
        tables = tables[name]
    return tables


def _new_table(parent: Any, *, is_last: bool) -> Any:
    import tomlkit
    from tomlkit.items import InlineTable

    if type(parent) is dict:
        return {}
    if isinstance(parent, InlineTable):
        return tomlkit.inline_table()
    return tomlkit.table(is_super_table=not is_last)


def _write(path: str, content: bytes) -> None:
    unfinished = f"{path}.{os.getpid()}"
    try:
        fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with open(fd, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(fd)
            os.replace(unfinished, path)
        except BaseException:
            os.unlink(unfinished)
            raise
    except OSError as exc:
        raise _unwritable(path, exc) from None


def _unwritable(path: str, exc: OSError) -> ConfigError:
    return ConfigError(f"{path}: cannot be written: {(exc.strerror or '').lower()}")


def takes_effect(name: str) -> str:
    """When a changed setting takes effect, as a sentence."""
    key = keys()[name]
    if key.not_in_force:
        return f"It has no effect in this version: {key.not_in_force}."
    if name in READ_BY_PEOPLE:
        return "It holds from now on."
    return "Running servers notice within a second." if name in LIVE else "Servers notice when they start again."
