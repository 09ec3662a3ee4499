"""Loads the configuration from the command line, the environment and files, by precedence and trust.

Command line > environment > files > defaults. A file is the one that --config or LLMC_CONFIG names; otherwise the
user's own, and the `llmc.toml` of the working directory. That last one came with somebody's repository: it may
only tighten what the others say, until `llmc config trust` pins its content.

Every client start comes through here, so whatever is not always needed is imported where it is.
"""

import os
import stat
from collections.abc import Iterable, Mapping
from types import UnionType
from typing import Any, NamedTuple, cast, get_origin

import msgspec

from ..policy import is_below_any, is_broad
from .schema import (
    RISKS,
    Config,
    PolicyRule,
    SettingKey,
    WorkspaceRule,
    data_directory,
    find_key,
    get_key,
    keys,
    put_key,
    sections,
)
from .trust import FILE_NAME, MAX_FILE_BYTES, ConfigError, is_pinned, one_line, user_config_file

_ENV = "LLMC_MCP_"
_MOST_DEEP = 2  # `**` in a path of a rule
_TOO_BROAD = "is too much to open by default"


class ServerFlag(NamedTuple):
    """A flag of llmc-mcp: the name of its value, its help, and the setting that it sets."""

    name: str
    value: str
    help: str
    setting: str = ""
    repeated: bool = False


SERVER_FLAGS = (
    ServerFlag("--root", "DIR", "an allowed folder (default: the working directory)", repeated=True),
    ServerFlag(
        "--mode",
        "MODE",
        "which tools are listed: classic = all, hybrid = a small set (default), code_execution = fewest",
        "mode",
    ),
    ServerFlag("--config", "FILE", "read this file only, instead of ~/.config/llmc/llmc.toml and ./llmc.toml"),
    ServerFlag("--set", "KEY=VALUE", "any other setting, for example --set tools.read_timeout=5", repeated=True),
    ServerFlag(
        "--log-level",
        "LEVEL",
        "debug, info, warning or error, on standard error (default: info)",
        "observability.log_level",
    ),
    ServerFlag("--transport", "T", "stdio (default), or http: MCP at /mcp and REST around it", "server.transport"),
    ServerFlag("--host", "H", "the address that HTTP listens on (default: 127.0.0.1)", "server.host"),
    ServerFlag("--port", "P", "its port; 0 takes any that is free (default: 8080)", "server.port"),
)
_FLAGS = {flag.name: flag.setting for flag in SERVER_FLAGS}


class GivenSetting(NamedTuple):
    """A key and its value. `spelled`: the value is still text, from the command line or the environment."""

    key: str
    value: object
    origin: str
    spelled: bool = False


class Flags(msgspec.Struct):
    """The flags that concern the configuration."""

    config_file: str = ""
    roots: list[str] = []
    settings: list[GivenSetting] = []


class LoadedConfig(msgspec.Struct):
    """A configuration ready for use."""

    config: Config
    roots: list[str]
    data_dir: str
    files: list[str]  # that were read
    trusted_files: list[str]  # those of them that the next start obeys, whatever they say then
    sources: dict[str, str]  # where every value that is not a default was set
    ignored: list[str]  # settings of a workspace's file that were refused
    idle: list[str]  # what is set but not in force in this version
    risks: dict[str, str]  # what the person who starts the server must not overlook, and what to do instead
    notices: list[str]  # the rest
    refusals: list[str]  # why a server must not start like this
    no_root: str  # the one of them that a server starts with all the same: no folder is opened by default
    flags: Flags  # what it was loaded by, with the working directory
    directory: str

    def changed(self) -> dict[str, object]:
        """What differs from the defaults, without secrets."""
        settings = [(key, get_key(self.config, name)) for name in self.sources if (key := find_key(name)) is not None]
        return {key.name: key.visible(value) for key, value in settings if value != key.default}

    def described(self) -> list[str]:
        """Every setting in force and where it was set, as TOML with comments, without secrets."""
        lines = [f"# roots: {', '.join(self.roots)}", f"# data directory: {self.data_dir}"]
        lines += [f"# read: {path}" for path in self.files]
        for prefix, section in sections().items():
            own = [key for name, key in keys().items() if name.rpartition(".")[0] == prefix]
            if own:
                lines += ["", section.__doc__ or "", *map(self._described, own)]
        return lines

    def _described(self, key: SettingKey) -> str:
        assignment = f"{key.name.rpartition('.')[2]} = {key.shown(get_key(self.config, key.name))}"
        source = self.sources.get(key.name, "default")
        return f"{assignment:40} # {source}{'; not in force in this version' if key.not_in_force else ''}"

    def lines(self) -> list[str]:
        """The messages of a start, the most urgent first."""
        return [*(f"WARNING: {risk}" for risk in self.risks), *self.ignored, *self.notices, *self.idle]


def parse_flags(arguments: Iterable[str]) -> tuple[Flags, list[str]]:
    """The flags that every command which loads a configuration takes, and the arguments that are left."""
    flags, left, todo = Flags(), list[str](), list(arguments)
    while todo:
        flag, has_value, value = todo.pop(0).partition("=")
        if flag not in _FLAGS:
            left.append(flag + has_value + value)
            continue
        if not has_value:
            value = todo.pop(0) if todo else ""
        if not value:
            raise ConfigError(f"{flag} needs a value")
        if flag == "--root":
            flags.roots.append(value)
        elif flag == "--config":
            flags.config_file = value
        elif flag == "--set":
            name, has_value, text = value.partition("=")
            if not has_value:
                raise ConfigError(f"--set {value}: expected section.key=value")
            flags.settings.append(GivenSetting(name.strip().removeprefix("mcp."), text, f"--set {name}", spelled=True))
        else:
            flags.settings.append(GivenSetting(_FLAGS[flag], value, flag, spelled=True))
    return flags, left


def load(
    flags: Flags | None = None, *, environ: Mapping[str, str] | None = None, directory: str | None = None
) -> LoadedConfig:
    """The configuration in force; raises a ConfigError with a line for each mistake."""
    flags = flags or Flags()
    environ = os.environ if environ is None else environ
    directory = _working_directory() if directory is None else directory
    data_dir = data_directory(environ)

    trusted, workspace = _find_files(flags, environ, directory)
    files = [file for file in (trusted, workspace) if file is not None]
    pinned = workspace is not None and is_pinned(workspace.path, workspace.content, data_dir)

    merged = _ConfigDraft()
    if trusted is not None:
        merged.apply(trusted.settings)
    if workspace is not None and pinned:
        merged.apply(workspace.settings)
    above_files = [*_from_environment(environ, merged.config.auth.token_env), *flags.settings]
    merged.apply(above_files)
    if workspace is not None and not pinned:
        said_above = {setting.key for setting in above_files}
        wishes = [setting for setting in workspace.settings if setting.key not in said_above]
        merged.tighten(wishes, directory)
    if merged.problems:
        raise ConfigError(*merged.problems)

    own = [file for file in files if file is trusted or pinned]
    notices = _choose_mode(merged, own)
    roots, root_risks, refusals = _choose_roots(flags, merged, directory)
    return LoadedConfig(
        config=merged.config,
        roots=roots,
        data_dir=data_dir,
        files=[file.path for file in files],
        trusted_files=[trusted.path] if trusted else [],
        sources=merged.sources,
        ignored=[one_line(text) for text in merged.ignored],
        idle=_idle(merged, data_dir),
        risks={**root_risks, **_running_as_root()},
        notices=notices,
        refusals=[*_refusals(merged), *refusals],
        no_root=next((line for line in refusals if _TOO_BROAD in line), ""),
        flags=flags,
        directory=directory,
    )


def typed_settings(settings: Iterable[GivenSetting]) -> Config:
    """A configuration of these settings alone; raises a ConfigError with a line for each mistake."""
    draft = _ConfigDraft()
    draft.apply(settings)
    if draft.problems:
        raise ConfigError(*draft.problems)
    return draft.config


class _ConfigDraft:
    """A configuration being merged: each value with where it was set."""

    def __init__(self) -> None:
        self.config = Config()
        self.sources: dict[str, str] = {}
        self.untrusted: set[str] = set()
        self.ignored: list[str] = []
        self.problems: list[str] = []

    def apply(self, settings: Iterable[GivenSetting]) -> None:
        """Apply trusted settings."""
        for setting in settings:
            typed = self._typed(setting)
            if typed is not None:
                put_key(self.config, setting.key, typed[1])
                self.sources[setting.key] = setting.origin

    def tighten(self, wishes: Iterable[GivenSetting], directory: str) -> None:
        """Apply an untrusted file's settings where they tighten; the others are reported as ignored."""
        roots = [os.path.realpath(root) for root in _absolute(self.config.configured_roots()[0] or (".",), directory)]
        for wish in wishes:
            typed = self._typed(wish)
            if typed is None:
                continue
            key, asked = typed
            if key.rule == "beneath":  # a link is judged, and later opened, as its target
                asked = tuple(os.path.realpath(path) for path in _absolute(asked, directory))
            in_force = get_key(self.config, wish.key)
            granted = _granted(key, in_force, asked, roots)
            if granted != asked and (key.rule != "rules" or len(granted) < len(in_force) + len(asked)):
                self.ignored.append(
                    f"{wish.origin}: mcp.{key.name} = {_short(key.shown(wish.value))} is ignored where it widens;"
                    " see `llmc config trust`"
                )
            if granted != in_force or (granted == asked and wish.key not in self.sources):
                put_key(self.config, wish.key, granted)
                self.sources[wish.key] = wish.origin
                self.untrusted.add(wish.key)

    def _typed(self, setting: GivenSetting) -> tuple[SettingKey, Any] | None:
        key = find_key(setting.key)
        if key is None:
            self.problems.append(f"{setting.origin}: {_unknown(setting.key)}")
            return None
        try:
            return key, _read_text(key, cast(str, setting.value)) if setting.spelled else _check(key, setting.value)
        except msgspec.MsgspecError as exc:
            self.problems.append(f"{setting.origin}: mcp.{key.name}: {_in_plain_words(str(exc))}")
            return None


def _granted(key: SettingKey, base: Any, asked: Any, roots: list[str]) -> Any:
    """The part of an untrusted value that tightens `base`: all of it, some of it, or `base` itself."""
    match key.rule:
        case "free":
            return asked
        case "smaller":
            return min(base, asked)
        case "off":
            return base and asked
        case "on":
            return base or asked
        case "fewer":
            return tuple(item for item in asked if item in base)
        case "more":
            return asked if set(base) <= set(asked) else (*base, *(item for item in asked if item not in base))
        case "stricter":
            return min(base, asked, key=key.choices.index)
        case "rules":
            stricter = (WorkspaceRule(**msgspec.structs.asdict(rule)) for rule in asked if rule.do != "allow")
            return (*base, *stricter)
        case "beneath":
            return tuple(path for path in asked if is_below_any(path, roots)) or base
        case _:
            return base


# --- sources --------------------------------------------------------------------------------------


class ConfigFile(NamedTuple):
    """A configuration file as it was read."""

    path: str
    content: bytes
    settings: list[GivenSetting]


def _find_files(
    flags: Flags, environ: Mapping[str, str], directory: str
) -> tuple[ConfigFile | None, ConfigFile | None]:
    """The file that the user chose or owns, and the one that lies in the working directory."""
    users_own, named = trusted_path(flags, environ, directory)
    if named:
        by = "--config" if flags.config_file else "LLMC_CONFIG"
        file = _read_file(users_own, named)
        if file is None:
            raise ConfigError(f"{named}: no such file ({by})")
        return file, None
    in_workspace = os.path.join(directory, FILE_NAME)
    if not directory or os.path.realpath(in_workspace) == os.path.realpath(users_own):
        return _read_file(users_own, users_own), None
    return _read_file(users_own, users_own), _read_file(in_workspace, FILE_NAME)


def trusted_path(flags: Flags, environ: Mapping[str, str], directory: str) -> tuple[str, str]:
    """The path of the file that is obeyed whatever it says, and what it was named as, if it was."""
    named = flags.config_file or environ.get("LLMC_CONFIG", "")
    return (_absolute((named,), directory)[0], named) if named else (user_config_file(environ), "")


def _read_file(path: str, shown: str) -> ConfigFile | None:
    content = read_bytes(path, shown)
    return None if content is None else parse_file(path, content, shown)


def parse_file(path: str, content: bytes, shown: str) -> ConfigFile:
    """The settings of a file; whether they are known and valid is not checked yet."""
    import tomllib

    try:
        text = content.decode("utf-8-sig")
        tables = tomllib.loads(text)
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{shown}: not UTF-8 at byte {exc.start}") from None
    except tomllib.TOMLDecodeError as exc:
        what, _, where = str(exc).rpartition(" (at line ")
        line = where.partition(",")[0]
        raise ConfigError(f"{shown}:{line}: {what}" if what else f"{shown}: {exc}") from None
    except ValueError as exc:  # numbers of thousands of digits, invalid dates
        raise ConfigError(f"{shown}: {exc}") from None
    except RecursionError:
        raise ConfigError(f"{shown}: nested too deeply") from None
    settings: list[GivenSetting] = []
    _flatten(tables.get("mcp", {}), (), settings)
    placed = [
        setting._replace(origin=f"{shown}:{_line_of(text, ('mcp', *setting.key.split('.')))}") for setting in settings
    ]
    return ConfigFile(path, content, placed)


def read_bytes(path: str, shown: str) -> bytes | None:
    """A configuration file's content, None when there is none; anything but a small regular file is refused."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # opening a FIFO would wait for a writer
    try:
        _demand_plain_file(os.stat(path), shown)
        fd = os.open(path, flags)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
        raise ConfigError(f"{shown}: cannot be read: {reason.lower()}") from None
    try:
        _demand_plain_file(os.fstat(fd), shown)
        content = b""
        while piece := os.read(fd, MAX_FILE_BYTES + 1 - len(content)):
            content += piece
    except OSError as exc:
        raise ConfigError(f"{shown}: cannot be read: {(exc.strerror or '').lower()}") from None
    finally:
        os.close(fd)
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"{shown}: larger than {MAX_FILE_BYTES:,} bytes")
    return content


def _demand_plain_file(info: os.stat_result, shown: str) -> None:
    if stat.S_ISDIR(info.st_mode):
        raise ConfigError(f"{shown}: is a directory, not a configuration file")
    if not stat.S_ISREG(info.st_mode):
        raise ConfigError(f"{shown}: is not a regular file")
    if info.st_size > MAX_FILE_BYTES:
        raise ConfigError(f"{shown}: {info.st_size:,} bytes; a configuration has at most {MAX_FILE_BYTES:,}")


def _flatten(value: object, path: tuple[str, ...], into: list[GivenSetting]) -> None:
    """Tables into dotted keys. Only our own sections are entered: a value may be a table itself."""
    if path == ("policy",) and isinstance(value, list):  # [[mcp.policy]]: a table could not stand beside it
        path = ("policy", "rules")
    if not isinstance(value, dict) or ".".join(path) not in sections():
        into.append(GivenSetting(".".join(path), value, ""))
        return
    for name, below in cast(dict[str, object], value).items():
        _flatten(below, (*path, name), into)


def _line_of(text: str, path: tuple[str, ...]) -> int:
    """The line where a key is set or, where it stands inside another's value, where that begins.

    The parser keeps no positions. A scan for headers and keys is right for every ordinary file, and a file that
    fools it, with a string that looks like one, gets a wrong number in a message and nothing else.
    """
    table: tuple[str, ...] = ()
    best, best_depth = 1, 0
    for number, line in enumerate((line.strip() for line in text.splitlines()), 1):
        if line.startswith("[") and "," not in line and "=" not in line.partition("#")[0]:
            table = _dotted(line.partition("#")[0].strip().strip("[]"))
            found = table
        elif "=" in line and not line.startswith("#"):
            found = (*table, *_dotted(line.partition("=")[0]))
        else:
            continue
        if found == path:
            return number
        if path[: len(found)] == found and len(found) > best_depth:
            best, best_depth = number, len(found)
    return best


def _dotted(name: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in name.split("."))


def _from_environment(environ: Mapping[str, str], token_env: str) -> list[GivenSetting]:
    names = [
        name
        for name in environ
        if name.startswith(_ENV) and environ[name] and name not in ("LLMC_MCP_TOKEN", token_env)
    ]
    if not names:
        return []
    by_variable = {variable_of(name): name for name in keys()}
    return [
        GivenSetting(by_variable.get(name, name.removeprefix(_ENV).lower()), environ[name], name, spelled=True)
        for name in sorted(names)
    ]


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    return _ENV + name.replace(".", "_").upper()


# --- values ---------------------------------------------------------------------------------------


def _check(key: SettingKey, value: object, *, strict: bool = True) -> Any:
    typed = msgspec.convert(value, key.type, strict=strict)
    if key.choices and isinstance(typed, str) and typed not in key.choices:
        raise msgspec.ValidationError(f"{typed!r} is none of {', '.join(key.choices)}")
    if key.name == "policy.rules":
        _check_rules(cast(tuple[PolicyRule, ...], typed))
    if key.name == "policy.ask" and (unknown := set(typed) - set(RISKS)):
        raise msgspec.ValidationError(f"{min(unknown)!r} is none of {', '.join(RISKS)}")
    if key.name == "tools.network_allow" and typed:
        from .network import invalid_entries

        for entry, why in invalid_entries(typed).items():
            raise msgspec.ValidationError(f"{entry!r} is {why}")
    return typed


def _check_rules(rules: tuple[PolicyRule, ...]) -> None:
    """One proxy serves all sessions of a server: a rule about hosts holds for all of them.

    A path is matched in time that grows with its depth to the power of the `**` in a rule.
    """
    from .network import invalid_entries

    for rule in rules:
        if rule.path.count("**") > _MOST_DEEP:
            raise msgspec.ValidationError(f"path {rule.path!r} has more than {_MOST_DEEP} **")
        if not rule.host:
            continue
        if rule != PolicyRule(rule.do, host=rule.host):
            raise msgspec.ValidationError(f"a rule about a host ({rule.host}) has no other conditions")
        for entry, why in invalid_entries([rule.host]).items():
            raise msgspec.ValidationError(f"host {entry!r} is {why}")


def _read_text(key: SettingKey, text: str) -> Any:
    """A value that was typed as text: lists as JSON or separated by commas, tables as JSON."""
    kind = get_origin(key.bare_type)
    if kind is UnionType:  # a word or a list
        kind = str if text in key.choices else tuple
    value: object = text
    if kind is dict or (kind is tuple and text.lstrip().startswith("[")):
        value = msgspec.json.decode(text)
    elif kind is tuple:
        value = [item.strip() for item in text.split(",") if item.strip()]
    elif key.bare_type is bool:
        value = {"yes": "true", "on": "true", "no": "false", "off": "false"}.get(text.lower(), text)
    return _check(key, value, strict=False)


_WORDS = {
    "`int`": "a whole number",
    "`float`": "a number",
    "`bool`": "true or false",
    "`str`": "text",
    "`array`": "a list",
    "`object`": "a table",
}


def _in_plain_words(message: str) -> str:
    message = message.partition(" - at ")[0]
    for word, plain in _WORDS.items():
        message = message.replace(word, plain)
    return message[:1].lower() + message[1:]


def _unknown(name: str) -> str:
    """The message about an unknown key, with the nearest known one."""
    import difflib

    section, _, last = name.rpartition(".")
    if name in sections():
        return f"{f'mcp.{name}'.rstrip('.')} is a section, not a value"
    elsewhere = [known for known in keys() if known.rpartition(".")[2] == last]
    here = {known.rpartition(".")[2]: known for known in (*keys(), *sections()) if known.rpartition(".")[0] == section}
    if not elsewhere and (close := difflib.get_close_matches(last, here, n=1)):
        return f"unknown key mcp.{name}, did you mean {close[0]}?"
    elsewhere += difflib.get_close_matches(name, keys(), n=1)
    return f"unknown key mcp.{name}" + (f", did you mean mcp.{elsewhere[0]}?" if elsewhere else "")


# --- mode, roots, refusals ----------------------------------------------------------------------------


def _choose_mode(merged: _ConfigDraft, own: list[ConfigFile]) -> list[str]:
    """Choose the mode where nothing sets it: hybrid, but a full file of the user's own means what it meant before.

    A full file is one from before modes existed: it gives the version, or says how to serve, to whom, and what.
    """
    if "mode" in merged.sources:
        return []
    full = [file for file in own if _is_full(file)]
    if merged.config.code_execution.enabled:
        mode, rule = "code_execution", "mcp.code_execution.enabled is on, and nothing sets a mode"
    elif full:
        mode, rule = "classic", f"{full[0].path} is a full configuration without a mode"
    else:
        return []
    merged.config.mode, merged.sources["mode"] = mode, rule
    return [f'{rule}: {mode} mode. Write mode = "hybrid" under [mcp] for the small set of tools.']


def _is_full(file: ConfigFile) -> bool:
    given = {setting.key for setting in file.settings}
    return "config_version" in given or {"server", "auth", "tools"} <= {key.partition(".")[0] for key in given}


def _choose_roots(flags: Flags, merged: _ConfigDraft, directory: str) -> tuple[list[str], dict[str, str], list[str]]:
    """The roots, their risks, and the reasons to refuse them."""
    configured, written_in = merged.config.configured_roots()
    written_out = bool(flags.roots) or (bool(configured) and written_in not in merged.untrusted)
    roots = _absolute(flags.roots or configured or (directory,), directory)
    broad = [root for root in roots if is_broad(root)]
    if broad and not written_out:
        return roots, {}, [f"{broad[0]} {_TOO_BROAD}: name the folder to work in with --root DIR"]
    if not all(roots):
        why = "a root is empty" if configured else "the working directory is gone"
        return roots, {}, [f"{why}: name the folder to work in with --root DIR"]
    advice = "Name the folders that are needed instead."
    return roots, {f"root {root}: {_what_is_broad(root)} open to the tools": advice for root in broad}, []


def _what_is_broad(root: str) -> str:
    return "the whole machine is" if os.path.realpath(root) == "/" else "a whole home directory is"


def _running_as_root() -> dict[str, str]:
    if os.geteuid() != 0:
        return {}
    return {"running as root: the tools act with root's rights below the roots": "Start it as an ordinary user."}


def _refusals(merged: _ConfigDraft) -> list[str]:
    config, sources = merged.config, merged.sources
    found: list[str] = []
    if not config.enabled:
        found.append(f"{sources['enabled']}: mcp.enabled is false: this server is switched off")
    if config.server.tls_enabled:
        found.append(
            f"{sources['server.tls_enabled']}: mcp.server.tls_enabled: this server speaks no TLS;"
            " set it to false and put a reverse proxy in front"
        )
    return found


def _idle(merged: _ConfigDraft, data_dir: str) -> list[str]:
    """One line for all settings that have no effect for the same reason."""
    by_reason: dict[str, list[str]] = {}
    for name in merged.sources:
        key = find_key(name)
        if name == "docker.data_volume" and merged.config.docker.data_volume == data_dir:
            continue  # it is set to the value in force
        if key is not None and key.not_in_force:
            by_reason.setdefault(key.not_in_force, []).append(f"mcp.{name}")
    return [f"not in force in this version: {', '.join(names)} ({why})" for why, names in by_reason.items()]


# --- helpers ---------------------------------------------------------------------------------


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


def _absolute(paths: Iterable[str], directory: str) -> list[str]:
    return [os.path.normpath(os.path.join(directory, os.path.expanduser(path))) if path else "" for path in paths]


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}…"
