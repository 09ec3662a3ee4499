"""A client's own file: read with what identifies it, replaced as a whole, with a backup."""

import difflib
import glob
import os
import stat
import time
from collections.abc import Callable
from typing import NamedTuple

from ...errors import Conflict, InvalidArgument, WriteFailed, from_oserror
from .jsonc import Unreadable

_TRIES = 3  # clients may write their files at the same time


class ClientFile(NamedTuple):
    """A client's file as it was read; `text` is None where there is none."""

    shown: str
    path: str  # with links resolved: the same file is read and written
    text: str | None
    seen: tuple[int, int, int] | None


class ChangedMeanwhile(Exception):
    """Another process wrote the file meanwhile."""


def change(shown: str, act: Callable[[ClientFile], None]) -> None:
    """Read a file and act on it, again if somebody else changed it meanwhile."""
    for _ in range(_TRIES):
        try:
            act(read(shown))
        except Unreadable as exc:
            raise InvalidArgument(
                f"{shown}:{exc.line}: {exc.problem}; nothing was changed", hint="Correct the file, then try again."
            ) from None
        except ChangedMeanwhile:
            continue
        return
    raise Conflict(f"{shown}: something else keeps changing it", hint="Close the client, then try again.")


def read(shown: str) -> ClientFile:
    path = os.path.realpath(shown)
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
            status = os.fstat(opened.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InvalidArgument(f"{shown} is not a file")
            content = opened.read()
    except FileNotFoundError:
        return ClientFile(shown, path, None, None)
    except OSError as exc:
        raise from_oserror(exc, shown) from None
    try:
        return ClientFile(shown, path, content.decode(), _state_of(status))
    except UnicodeDecodeError as exc:
        line = content.count(b"\n", 0, exc.start) + 1
        raise InvalidArgument(f"{shown}:{line}: not UTF-8; nothing was changed") from None


def _state_of(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


def replace(file: ClientFile, text: str, *, keep: bool = True) -> str | None:
    """Write a temporary file, then rename it over the old one; returns the name of the backup."""
    folder = os.path.dirname(file.path)
    new = os.path.join(folder, f".{os.path.basename(file.path)}.llmc-{os.getpid()}")
    try:
        os.makedirs(folder, exist_ok=True)
        was = os.stat(file.path) if file.text is not None else None
        _write_new(new, text, was)
        try:
            demand_unmoved(file)
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


def print_diff(shown: str, before: str, after: str) -> None:
    """Show what would change."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), shown, shown, lineterm="")
    print("\n".join(lines))


def backups(file: ClientFile) -> list[str]:
    """The backups of a file, the latest first. A file without any was made by llmc, or has never been changed by it."""
    return sorted(glob.glob(f"{glob.escape(file.shown)}.llmc-*.bak"), reverse=True)


def remove(file: ClientFile) -> None:
    """Remove a file."""
    demand_unmoved(file)
    try:
        os.unlink(file.path)
    except OSError as exc:
        raise from_oserror(exc, file.shown) from None


def demand_unmoved(file: ClientFile) -> None:
    now = _state_of(os.stat(file.path)) if os.path.exists(file.path) else None
    if now != file.seen:
        raise ChangedMeanwhile


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


def _backup(file: ClientFile, like: os.stat_result) -> str:
    stamp, number = time.strftime("%Y%m%d-%H%M%S"), 1
    while True:
        path = f"{file.shown}.llmc-{stamp}-{number}.bak"
        try:
            _write_new(path, file.text or "", like)
        except FileExistsError:
            number += 1
        else:
            return path
