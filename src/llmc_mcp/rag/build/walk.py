"""Which files of a root are indexed, and how they are read without leaving the root.

ripgrep lists the files: it implements .gitignore, .ignore and .rgignore. A `.ragignore` has the syntax of a .gitignore
and may lie in any folder; ripgrep takes a single file of such rules, so rules of nested folders are rewritten relative
to the root. Symbolic links are never followed, and every file is opened beneath the root by openat2.
"""

import errno
import fcntl
import os
import select
import signal
import stat as stat_bits
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ...files.off_limits import HiddenPlaces
from ...kernel import syscalls
from ...kernel.limits import OWN_MEMORY, limit_own_memory
from ...policy import NameRules, name_rules
from .messages import WalkRules

RAG_IGNORE = b".ragignore"
IGNORE_FILES = frozenset({RAG_IGNORE, b".gitignore", b".ignore", b".rgignore"})

_QUIET = ["--no-config", "--no-ignore-global", "--no-messages", "--color=never", "--no-require-git"]
_OWN_IGNORE_FILES = ("--glob", RAG_IGNORE.decode())
_NO_LINKS = syscalls.RESOLVE_BENEATH | syscalls.RESOLVE_NO_MAGICLINKS | syscalls.RESOLVE_NO_SYMLINKS
_OPEN_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW
_READ, _PIPE = 1 << 18, 1 << 20
_TICK_S, _TICK_EVERY = 0.05, 256
_NICE = 10
# Rules cost ripgrep some hundred times their length. A file past these limits excludes its whole folder: the rules that
# are not read may be there to exclude something.
_IGNORE_BYTES = 64 << 10  # of one .ragignore
_RULE_BYTES = 1 << 10  # of one line
_RULES = 5_000  # of all .ragignore files of a root
_IGNORE_FILES_NAMED = 3


class WalkedFile(NamedTuple):
    """A file as a walk saw it."""

    path: bytes
    size: int
    mtime_ns: int


class _Listing(NamedTuple):
    """A ripgrep that lists files, and the end of the pipe to read them from."""

    process: subprocess.Popen[bytes]
    pipe: int

    def end(self) -> None:
        os.close(self.pipe)
        self.process.kill()
        self.process.wait()


class Skip(Exception):
    """A file is not indexed; the message is the reason."""


class Walk:
    """The files below one root; used in the indexing process, whose working directory is the root."""

    def __init__(self, root: int, rules: WalkRules, ripgrep: str, scratch: str) -> None:
        self.root, self._rules, self._ripgrep, self._scratch = root, rules, ripgrep, scratch
        self._secrets: NameRules = name_rules(rules.secret_names, rules.secret_exceptions)
        # A folder above the root may be what makes a name secret: ~/.ssh/*
        self._at = os.readlink(f"/proc/self/fd/{root}").rstrip("/")
        self._hidden = HiddenPlaces(*(tuple(map(os.fsdecode, places)) for places in rules.hidden))
        self._resolve = _NO_LINKS | (0 if rules.cross_mounts else syscalls.RESOLVE_NO_XDEV)
        self.ignore_files = ""  # which ignore files the last walk found too large
        self.past_limit = 0  # files that the last walk left out: more than max_files
        self.listed = 0  # files that the walk under way has found so far
        self.began_ns = 0  # when the last walk began, by the clock of files
        self._ahead: tuple[_Listing, _Listing] | None = None  # of ignore files, and of all files

    def begin(self) -> None:
        """Have ripgrep list the files already, for the next call of `files`."""
        self.began_ns = time.time_ns()
        self._ahead = self._start(*self._flags(), *_OWN_IGNORE_FILES), self._start(*self._flags())

    def files(self, tick: Callable[[], None]) -> list[WalkedFile]:
        """The files to index, sorted by path, at most `max_files`. Calls `tick` often."""
        most = self._rules.max_files
        paths: list[bytes] = []
        count = self.listed = 0
        if self._ahead is None:
            self.began_ns = time.time_ns()
        for path in self._listed(tick):
            if self._is_allowed(path):
                paths.append(path)
                count += 1
                self.listed = count
            if len(paths) >= 2 * most + _TICK_EVERY:
                paths.sort()
                del paths[most:]
        paths.sort()
        self.past_limit = max(count - most, 0)
        found: list[WalkedFile] = []
        for number, path in enumerate(paths[:most]):
            if number % _TICK_EVERY == 0:
                tick()
            if (file := self.look(path)) is not None:
                found.append(file)
        return found

    def look(self, path: bytes) -> WalkedFile | None:
        """Size and time of a regular file; None if it is gone or something else."""
        try:
            info = os.stat(path, dir_fd=self.root, follow_symlinks=False)
        except OSError:
            return None
        return WalkedFile(path, info.st_size, info.st_mtime_ns) if stat_bits.S_ISREG(info.st_mode) else None

    def _is_allowed(self, path: bytes) -> bool:
        real = self._real_path(path)
        return not self._hidden.cover(real) and not self._secrets.covers(real)

    def _real_path(self, path: bytes) -> str:
        return f"{self._at}/{os.fsdecode(path)}"

    def _flags(self) -> list[str]:
        return ["--files", "--null", *([] if self._rules.cross_mounts else ["--one-file-system"])]

    def _listed(self, tick: Callable[[], None]) -> Iterator[bytes]:
        ahead, self._ahead = self._ahead, None
        own, every = ahead or (self._start(*self._flags(), *_OWN_IGNORE_FILES), None)
        own_rules = self._own_rules(own, tick)
        if not own_rules:
            yield from self._paths(every or self._start(*self._flags()), tick)
            return
        if every is not None:
            every.end()
        with tempfile.NamedTemporaryFile(dir=self._scratch, prefix="ignore-") as spelled:
            spelled.write(own_rules)
            spelled.flush()
            yield from self._paths(self._start(*self._flags(), "--ignore-file", spelled.name), tick)

    def _own_rules(self, listing: _Listing, tick: Callable[[], None]) -> bytes:
        """The rules of every .ragignore, from the top down: the deeper of two that match a file decides."""
        visible = (path for path in self._paths(listing, tick) if not self._hidden.cover(self._real_path(path)))
        found = sorted(visible, key=lambda path: path.count(b"/"))
        rules: list[bytes] = []
        refused: list[bytes] = []
        for path in found:
            tick()
            folder = path.rpartition(b"/")[0]
            try:
                own = self._rules_in(path, folder)
            except FileNotFoundError:
                continue
            except (OSError, Skip):
                own = None
            if own is None or len(rules) + len(own) > _RULES:
                refused.append(path)
                own = [spell_out(b"*", folder)]
            rules += own
            if len(rules) > 2 * _RULES:  # even the rules that exclude these folders are too many
                rules = [b"*"]
                break
        self.ignore_files = _refused_words(refused)
        return b"\n".join(rules) + b"\n" if rules else b""

    def _rules_in(self, path: bytes, folder: bytes) -> list[bytes] | None:
        """The rules of one file; None if they are too many or too long."""
        data = self.read(path)[0]
        lines = data.splitlines() if len(data) <= _IGNORE_BYTES else [data]
        if any(len(line) > _RULE_BYTES for line in lines):
            return None
        return [rule for line in lines if (rule := spell_out(line, folder))]

    def _start(self, *arguments: str) -> _Listing:
        command = [self._ripgrep, *_QUIET, *arguments, "--", "./"]
        read, write = os.pipe2(os.O_CLOEXEC)
        try:
            fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, _PIPE)  # it need not wait for somebody to read
        except OSError:
            pass  # an ordinary user has a limit for all pipes
        try:
            listing = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=write,
                env={},
                preexec_fn=_in_the_background,  # noqa: PLW1509 - no other thread of this process holds a Python lock
            )
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        return _Listing(listing, read)

    def _paths(self, listing: _Listing, tick: Callable[[], None]) -> Iterator[bytes]:
        """Paths that ripgrep prints, as they come; it is killed when the iteration ends."""
        try:
            rest = b""
            while True:
                while not select.select([listing.pipe], [], [], _TICK_S)[0]:
                    tick()
                if not (piece := os.read(listing.pipe, _READ)):
                    self._refuse_dead(listing.process.wait())
                    break
                tick()
                *whole, rest = (rest + piece).split(b"\0")
                yield from (path.removeprefix(b"./") for path in whole)
        finally:
            listing.end()

    @staticmethod
    def _refuse_dead(code: int) -> None:
        """Reject the list of a ripgrep that was killed: it is not complete."""
        if code < 0:
            raise OSError(
                errno.ENOMEM,
                f"ripgrep was ended ({signal.Signals(-code).name}) while it listed the files: an ignore file may be "
                f"too large for {OWN_MEMORY >> 20:,} MiB",
            )

    def read(self, path: bytes) -> tuple[bytes, os.stat_result]:
        """The content of a file, opened below the root without following links; Skip if it is not to be indexed."""
        fd = syscalls.openat2(self.root, path, _OPEN_FILE, self._resolve)
        try:
            info = os.fstat(fd)
            if not stat_bits.S_ISREG(info.st_mode):
                raise Skip("not a regular file")
            if self._rules.refuse_foreign_links and info.st_nlink > 1 and info.st_uid != os.geteuid():
                raise Skip("a hard link to another user's file")
            if info.st_size > self._rules.max_file_bytes:
                raise Skip("too large")
            pieces: list[bytes] = []
            room = self._rules.max_file_bytes + 1
            while room > 0 and (piece := os.read(fd, min(room, _READ))):
                pieces.append(piece)
                room -= len(piece)
        finally:
            os.close(fd)
        if room <= 0:
            raise Skip("too large")
        return b"".join(pieces), info


def _in_the_background() -> None:
    """A list of many files must not slow down the first answer after a start."""
    limit_own_memory()
    os.nice(_NICE)


def _refused_words(paths: list[bytes]) -> str:
    if not paths:
        return ""
    named = ", ".join(os.fsdecode(path) for path in paths[:_IGNORE_FILES_NAMED])
    more = f" and {len(paths) - _IGNORE_FILES_NAMED:,} more" if len(paths) > _IGNORE_FILES_NAMED else ""
    return f"ignore file too large: {named}{more}; nothing below its folder is indexed"


def spell_out(line: bytes, folder: bytes) -> bytes:
    """A rule of a folder's ignore file, rewritten relative to the root; empty for comments and blank lines."""
    line = line.rstrip() if not line.endswith(b"\\ ") else line
    if not line or line.startswith(b"#") or not folder:
        return line if not line.startswith(b"#") else b""
    negated = b"!" if line.startswith(b"!") else b""
    pattern = line.removeprefix(b"!")
    prefix = b"/" + b"".join(b"\\" + bytes([byte]) if byte in b"*?[]\\!# " else bytes([byte]) for byte in folder) + b"/"
    if pattern.startswith(b"/"):
        return negated + prefix + pattern[1:]
    return negated + prefix + (b"" if b"/" in pattern.rstrip(b"/") else b"**/") + pattern
