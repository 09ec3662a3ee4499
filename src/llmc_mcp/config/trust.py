"""Trusted workspace files, pinned by content: a changed file is untrusted again."""

import os
import stat
from collections.abc import Mapping

import msgspec

from ..errors import InvalidArgument
from ..policy import is_below

FILE_NAME = "llmc.toml"
PINS = "trusted.json"
INSIDE_COMMAND = "LLMC_COMMAND"  # set in the environment of every command that a server starts
MAX_FILE_BYTES = 1 << 20
_LONGEST_LINE = 300  # of a notice: all notices together fit into a pipe that nobody reads


class ConfigError(InvalidArgument):
    """The configuration has mistakes; one line for each."""

    def __init__(self, *problems: str) -> None:
        self.problems = [one_line(problem) for problem in problems]
        super().__init__("\n".join(self.problems))


def one_line(text: str) -> str:
    """Text as one line without control characters: file names and keys in it are untrusted."""
    clean = "".join(char if char.isprintable() else "?" for char in text)
    return clean if len(clean) <= _LONGEST_LINE else f"{clean[:_LONGEST_LINE]}…"


def user_config_file(environ: Mapping[str, str] | None = None) -> str:
    """The user's own file, which is trusted as it is; it need not exist."""
    home = (os.environ if environ is None else environ).get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(home):
        home = os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(home, "llmc", FILE_NAME)


def is_pinned(path: str, content: bytes, data_dir: str) -> bool:
    """Whether `llmc config trust` pinned this file with this content."""
    expected = read_pins(data_dir, path).get(_pin_name(path))
    return expected is not None and expected == _digest(content)


def pin(path: str, content: bytes, data_dir: str) -> str:
    """Trust a file as it is now; returns the hash."""
    if is_below(os.path.realpath(data_dir), os.path.dirname(_pin_name(path))):
        raise ConfigError(
            f"the data directory {data_dir} lies in the workspace, whose files may be anybody's:"
            " set LLMC_DATA_DIR to another folder, or start the server with --config"
        )
    digest = _digest(content)
    _write_pins(data_dir, {**read_pins(data_dir, path), _pin_name(path): digest})
    return digest


def unpin(path: str, data_dir: str) -> bool:
    """Remove a pin; returns whether there was one."""
    pins = read_pins(data_dir, path)
    if _pin_name(path) not in pins:
        return False
    del pins[_pin_name(path)]
    _write_pins(data_dir, pins)
    return True


def read_pins(data_dir: str, path: str) -> dict[str, str]:
    """Path → sha256; empty unless the list is writable by us alone and lies outside the workspace of `path`."""
    if is_below(os.path.realpath(data_dir), os.path.dirname(_pin_name(path))):
        return {}
    try:
        fd = os.open(os.path.join(data_dir, PINS), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o022:
            return {}
        return msgspec.json.decode(os.read(fd, MAX_FILE_BYTES), type=dict[str, str])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}
    finally:
        os.close(fd)


def _write_pins(data_dir: str, pins: dict[str, str]) -> None:
    target = os.path.join(data_dir, PINS)
    unfinished = f"{target}.{os.getpid()}"
    try:
        os.makedirs(data_dir, mode=0o700, exist_ok=True)
        fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, msgspec.json.encode(pins))
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(unfinished, target)
    except OSError as exc:
        raise ConfigError(f"{target}: cannot be written: {(exc.strerror or '').lower()}") from None


def _digest(content: bytes) -> str:
    import hashlib

    return hashlib.sha256(content).hexdigest()


def _pin_name(path: str) -> str:
    """A file's path with its folder resolved; the file itself may be a link, since its content is pinned."""
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(folder), name)
