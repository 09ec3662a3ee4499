"""Which workspace files a person has vouched for: by content, so that a changed file is a stranger again."""

import os
import stat

import msgspec

from ..errors import InvalidArgument
from ..policy import is_below

PINS = "trusted.json"
MAX_FILE_BYTES = 1 << 20
_LONGEST_LINE = 300  # of a notice: all of them together fit into a pipe that nobody reads


class ConfigError(InvalidArgument):
    """The configuration is wrong; one line for everything that is."""

    def __init__(self, *problems: str) -> None:
        self.problems = [one_line(problem) for problem in problems]
        super().__init__("\n".join(self.problems))


def one_line(text: str) -> str:
    """One line that cannot repaint a terminal: file names and keys in it may be anybody's."""
    clean = "".join(char if char.isprintable() else "?" for char in text)
    return clean if len(clean) <= _LONGEST_LINE else f"{clean[:_LONGEST_LINE]}…"


def is_pinned(path: str, content: bytes, data_dir: str) -> bool:
    """Whether `llmc config trust` has seen this file with this very content."""
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
    """Take trust back; whether there was any."""
    pins = read_pins(data_dir, path)
    if _pin_name(path) not in pins:
        return False
    del pins[_pin_name(path)]
    _write_pins(data_dir, pins)
    return True


def read_pins(data_dir: str, path: str) -> dict[str, str]:
    """Path → sha256; nothing unless the list is ours alone and lies where the workspace of `path` cannot bring it."""
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
    """One name for a file however its folder is reached; the file itself may be a link, its content is what counts."""
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(folder), name)
