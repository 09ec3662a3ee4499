"""Which programs may start.

The list of programs keeps an agent to what the operator had in mind; it is not what confines it. Any shell or
interpreter on the list can start whatever it likes, inside the sandbox.
"""

import os
import shlex
import stat as stat_bits
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager

from ..config.schema import Config
from ..errors import CommandNotAllowed, LlmcError, NotFound, PermissionDenied
from ..files.filesystem import Root
from ..policy import is_below_any
from ..sandbox.profile import program_folders, search_path, settings_from

_SHEBANG_BYTES = 256
_LIST_HINT = "Only the user can allow it, in a terminal: llmc allow program {name} (mcp.tools.run_cmd_allowlist)."
_UNSAFE_HINT = "Only the user can allow it: {name} is in mcp.linux_ops.commands.unsafe_binaries."

_Identity = tuple[int, int]  # device and inode


class Programs:
    """Which binaries may start: by identity (device and inode) as found in a fixed PATH, not by name.

    `folders` are those that commands can see; a program anywhere else counts as missing. `own` are those whose
    programs are the project's, which a line for a shell may start as the shell itself may.
    """

    def __init__(
        self,
        allowed: Iterable[str],
        refused: Iterable[str],
        path: Sequence[str],
        folders: Sequence[str],
        own: Sequence[str] = (),
    ) -> None:
        self._allowed, self._refused, self._path, self._folders = tuple(allowed), tuple(refused), path, folders
        self._own = own
        self._identities: set[_Identity] = set()

    def replace(self, other: "Programs") -> None:
        """Become like another list: whoever holds this one obeys the new rules from now on."""
        self.__dict__.update(other.__dict__)

    def find(self, program: str, cwd: str) -> str:
        """The path to execute for a program's name or path, if it may start."""
        with self._opened(program, cwd) as (path, fd):
            if self._may_start(fd):
                return path
            raise self._not_allowed(program, path, fd)

    def refuse_unlisted(self, program: str, cwd: str) -> None:
        """Raise if a program that a line for a shell names is there and not on the list.

        One that is not there is for the shell to complain about: it may lie in a folder that the line adds to PATH.
        """
        try:
            with self._opened(program, cwd) as (path, fd):
                allowed = self._may_start(fd) or ("/" in program and is_below_any(os.path.realpath(path), self._own))
                if not allowed:
                    raise self._not_allowed(program, path, fd)
        except (NotFound, PermissionDenied):
            return

    def locate(self, program: str, cwd: str) -> str:
        """The path of a program, whether or not it is on the list."""
        with self._opened(program, cwd) as (path, _):
            return path

    @contextmanager
    def _opened(self, program: str, cwd: str) -> Generator[tuple[str, int]]:
        """The path of a program, and an O_PATH descriptor of the executable file that is there now."""
        path = os.path.normpath(os.path.join(cwd, program)) if "/" in program else self._search(program)
        fd = self._reach(path) if path is not None else None
        if fd is None:
            raise NotFound(
                f"{program}: there is no such program",
                hint=f"Searched: {':'.join(self._path)}. What lies elsewhere, the user can show to commands:"
                " llmc allow dir DIR.",
            )
        try:
            if not stat_bits.S_ISREG(os.fstat(fd).st_mode) or not os.access(f"/proc/self/fd/{fd}", os.X_OK):
                raise PermissionDenied(f"{program}: not an executable file")
            yield path or program, fd
        finally:
            os.close(fd)

    def _reach(self, path: str) -> int | None:
        """An O_PATH descriptor of the file that a path leads to through any links, if commands can see it."""
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            return None
        real = os.readlink(f"/proc/self/fd/{fd}")
        if is_below_any(real, self._folders):
            return fd
        os.close(fd)
        return None

    def _search(self, name: str) -> str | None:
        for folder in self._path:
            candidate = os.path.join(folder, name)
            if os.access(candidate, os.X_OK) and os.path.isfile(candidate):
                return candidate
        if name == "python":
            return self._search("python3")
        if name == "rg":
            from ..files.ripgrep import find_ripgrep

            return os.fsdecode(find_ripgrep())
        return None

    def _may_start(self, fd: int) -> bool:
        if self._is_listed(fd):
            return True
        interpreter = _interpreter(fd)  # `./tool.py` is `python3 tool.py`, which would be allowed
        path = self._search(interpreter) if interpreter and "/" not in interpreter else interpreter
        interpreter_fd = self._reach(path) if path else None
        if interpreter_fd is None:
            return False
        try:
            return self._is_listed(interpreter_fd)
        finally:
            os.close(interpreter_fd)

    def _not_allowed(self, program: str, path: str, fd: int) -> CommandNotAllowed:
        """The refusal of a program, with the setting that decided and who can change it."""
        unsafe = _identity_of(os.fstat(fd)) in self._identities_of(self._refused)
        hint = _UNSAFE_HINT if unsafe else _LIST_HINT
        name = shlex.quote(path if "/" in program else program)
        message = "is refused as unsafe" if unsafe else "is not on the list of allowed programs"
        return CommandNotAllowed(f"{program} {message}", hint=hint.format(name=name))

    def _is_listed(self, fd: int) -> bool:
        identity = _identity_of(os.fstat(fd))
        if identity not in self._identities:
            self._identities = self._look_up()  # something may have been installed since
        return identity in self._identities

    def _look_up(self) -> set[_Identity]:
        allowed = [program for program in self._allowed if program not in self._refused]
        return self._identities_of(allowed) - self._identities_of(self._refused)

    def _identities_of(self, programs: Iterable[str]) -> set[_Identity]:
        paths = (path for program in programs for path in ([program] if "/" in program else self._all_named(program)))
        return {identity for path in paths if (identity := _identity(path)) is not None}

    def _all_named(self, name: str) -> list[str]:
        """Every program of a name: `/usr/bin/python3` is meant as well where a toolchain has one ahead of it."""
        found = [os.path.join(folder, name) for folder in self._path]
        try:
            return [*found, *filter(None, (self._search(name),))]
        except LlmcError:
            return found


def programs_from(config: Config, roots: tuple[Root, ...]) -> Programs:
    """The operator's list: run_cmd_allowlist and allowed_binaries without unsafe_binaries."""
    commands = config.linux_ops.commands
    allowed = (*config.tools.run_cmd_allowlist, *commands.allowed_binaries)
    refused = () if commands.allow_unsafe else commands.unsafe_binaries
    settings = settings_from(config)
    own = [os.fsdecode(root.real) for root in roots]
    return Programs(allowed, refused, search_path(settings), program_folders(settings, roots), own)


def _identity(path: str) -> _Identity | None:
    try:
        return _identity_of(os.stat(path))
    except OSError:
        return None


def _identity_of(info: os.stat_result) -> _Identity:
    return info.st_dev, info.st_ino


def _interpreter(fd: int) -> str | None:
    """The program that a script's first line names; `fd` is a regular file, so reading it can't block."""
    try:
        with open(f"/proc/self/fd/{fd}", "rb", opener=_open_without_blocking) as file:
            first = file.read(_SHEBANG_BYTES).split(b"\n", 1)[0]
    except OSError:
        return None
    if not first.startswith(b"#!"):
        return None
    words = os.fsdecode(first[2:]).split()
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return words[0] if words else None


def _open_without_blocking(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
