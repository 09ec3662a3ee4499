"""Files below the allowed roots, reached so that the kernel, not a string comparison, decides what is inside.

A root is an open directory. Every path is opened below it by openat2 with RESOLVE_BENEATH, so neither `..`,
nor a symbolic link, nor a directory swapped while we look can lead out. What was opened is looked at (fstat)
before it is really opened for reading, so a FIFO never blocks and a device is never touched.
"""

import errno
import itertools
import os
import stat as stat_bits
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from ..errors import (
    FeatureUnavailable,
    InvalidPath,
    LlmcError,
    NotADirectory,
    NotAFile,
    PermissionDenied,
    from_oserror,
)
from ..policy import GIT_FILES, GIT_FOLDERS, NameRules, folders_above, name_rules, refuse_protected, refuse_secret
from . import kept, kernel, names
from .kept import is_below

_BENEATH = kernel.RESOLVE_BENEATH | kernel.RESOLVE_NO_MAGICLINKS
_MAX_LINKS = 40  # as many as the kernel follows


class Root(NamedTuple):
    """An allowed directory: the fd decides, the two spellings only tell which root an absolute path means."""

    fd: int
    path: bytes
    real: bytes

    @property
    def shown(self) -> str:
        return names.show(self.path)


class Place(NamedTuple):
    """Where a path argument points: a root, what is left below it, and the words the caller used."""

    root: Root
    below: bytes
    asked: str

    @property
    def absolute(self) -> str:
        return names.show(os.path.join(self.root.path, self.below) if self.below != b"." else self.root.path)

    @property
    def real(self) -> str:
        """The same below the root's real path: one spelling for all servers, whatever link their root is."""
        return names.show(os.path.join(self.root.real, self.below) if self.below != b"." else self.root.real)


class Entry(NamedTuple):
    """One row of a walk; `path` is relative to the directory that was walked."""

    path: bytes
    kind: str
    depth: int
    size: int = 0
    mtime: float = 0.0


DirEntry = os.DirEntry[str]


class Bound:
    """How many entries a walk may still come across; `reached` once there were more."""

    def __init__(self, entries: int) -> None:
        self.left = entries
        self.reached = False

    def take(self, found: Iterable[DirEntry]) -> list[DirEntry]:
        """As many as are left: of a huge directory whichever come first."""
        taken = list(itertools.islice(found, self.left + 1))
        self.reached = len(taken) > self.left
        taken = taken[: self.left]
        self.left -= len(taken)
        return taken


def kind_of(mode: int) -> str:
    """`file`, `dir`, `symlink` or `other`."""
    if stat_bits.S_ISREG(mode):
        return "file"
    if stat_bits.S_ISDIR(mode):
        return "dir"
    return "symlink" if stat_bits.S_ISLNK(mode) else "other"


def _special(mode: int) -> str:
    tests = {
        "a FIFO": stat_bits.S_ISFIFO,
        "a socket": stat_bits.S_ISSOCK,
        "a character device": stat_bits.S_ISCHR,
        "a block device": stat_bits.S_ISBLK,
    }
    return next((name for name, test in tests.items() if test(mode)), "not a file")


class Access(NamedTuple):
    """What the operator keeps from being read or changed below the roots, beside what the kernel does."""

    secret_names: tuple[str, ...] = ()
    secret_exceptions: tuple[str, ...] = ()
    refuse_foreign_links: bool = True  # a hard link may make a name in the root of another user's file
    cross_mounts: bool = True
    hidden_dir: str | None = None  # the server's own data, should it lie below a root
    protected_names: tuple[str, ...] = ()
    protected_files: tuple[str, ...] = ()  # the server's own configuration, wherever it lies
    hidden: tuple[str, ...] = ()  # what commands don't see either
    own_code: tuple[str, ...] = ()  # what the server runs, or may yet


class Filesystem:
    """All file access of the server; made once, used by every thread."""

    def __init__(self, roots: list[str], access: Access | None = None) -> None:
        if reason := kernel.missing_openat2():
            raise FeatureUnavailable(reason)
        self.access = access or Access()
        self._resolve = _BENEATH | (0 if self.access.cross_mounts else kernel.RESOLVE_NO_XDEV)
        self.roots = [_open_root(path) for path in roots]
        self._proc_device = os.stat("/proc").st_dev
        self._hidden = self._hidden_below_a_root()
        self._kept_secret = self._below_roots(self.access.hidden)
        self.own_code = self._own_code()

    @cached_property
    def _secrets(self) -> NameRules:
        return name_rules(self.access.secret_names, self.access.secret_exceptions)

    @cached_property
    def _protected(self) -> NameRules:
        return name_rules(self.access.protected_names)

    @cached_property
    def _above_protected(self) -> NameRules:
        return name_rules(folders_above(self.access.protected_names))

    @cached_property
    def _protected_files(self) -> frozenset[str]:
        return frozenset(os.path.realpath(path) for path in self.access.protected_files)

    def _hidden_below_a_root(self) -> str | None:
        if self.access.hidden_dir is None:
            return None
        folders = [os.fsdecode(root.real) for root in self.roots]
        places = kept.seen_from(os.path.realpath(self.access.hidden_dir), folders)
        return next((hidden for hidden in places if kept.is_below_any(hidden, folders)), None)

    def _below_roots(self, paths: Iterable[str]) -> tuple[str, ...]:
        """The real places, and the links that lead there: who could replace one would be rid of the rule."""
        folders = [os.fsdecode(root.real) for root in self.roots]
        trails = (place for path in paths for place in kept.trail(path))
        real = dict.fromkeys(name for place in trails for name in kept.seen_from(place, folders))
        return tuple(kept.outermost(place for place in real if any(is_below(place, folder) for folder in folders)))

    def _own_code(self) -> tuple[str, ...]:
        """Where the server's code lies below the roots; a root that lies in it could only be served by halves."""
        folders = [os.fsdecode(root.real) for root in self.roots]
        for path in map(os.path.realpath, self.access.own_code):
            for root in self.roots:
                if kept.is_below_any(os.fsdecode(root.real), kept.seen_from(path, folders)):
                    raise PermissionDenied(
                        f"root {root.shown}: lies in {path}, which the server runs its own code from",
                        hint="Serve another folder, or install the server in an environment of its own.",
                    )
        return self._below_roots(self.access.own_code)

    def _is_kept_secret(self, path: str) -> bool:
        """Whether a real path is one that nobody may see, unless the operator named a root in there."""
        return any(
            is_below(path, secret) and not any(is_below(root, secret) and is_below(path, root) for root in self._named)
            for secret in self._kept_secret
        )

    @cached_property
    def _named(self) -> tuple[str, ...]:
        return tuple(os.fsdecode(root.real) for root in self.roots)

    # --- finding ---------------------------------------------------------------------------------

    def locate(self, path: str) -> Place:
        """Which root a path argument means. Says nothing about what exists: opening does."""
        name = names.parse(os.path.join(os.path.expanduser("~"), path[2:]) if path.startswith("~/") else path)
        if not name.startswith(b"/"):
            return Place(self.roots[0], name, path)
        place = self._below_a_root(name, path)
        if place is None:
            raise self._outside(path)
        return place

    def below(self, place: Place, path: str) -> Place:
        """A path relative to another; an absolute one must lie below it as well."""
        inner = names.parse(path)
        if inner.startswith(b"/"):
            outer = self.locate(path)
            prefix = place.below.rstrip(b"/") + b"/"
            if outer.root != place.root or (place.below != b"." and not outer.below.startswith(prefix)):
                raise self._outside(path)
            return outer
        if b".." in inner.split(b"/"):
            raise self._outside(path)
        return Place(place.root, inner if place.below == b"." else os.path.join(place.below, inner), path)

    def _below_a_root(self, name: bytes, asked: str) -> Place | None:
        best: tuple[Root, bytes] | None = None
        for root in self.roots:
            for spelling in (root.path, root.real):
                prefix = spelling.rstrip(b"/") + b"/"
                if not (name + b"/").startswith(prefix):
                    continue
                if best is None or len(spelling) > len(best[1]):
                    best = (root, spelling)
        if best is None:
            return None
        below = name[len(best[1].rstrip(b"/")) :].lstrip(b"/")
        return Place(best[0], below or b".", asked)

    def _outside(self, path: str) -> InvalidPath:
        shown = ", ".join(root.shown for root in self.roots)
        return InvalidPath(f"{path}: outside the allowed roots", hint=f"Allowed roots: {shown}")

    # --- opening ---------------------------------------------------------------------------------

    def open(self, place: Place, flags: int) -> int:
        """An fd for `place`, resolved beneath its root by the kernel."""
        fd = self._open(place, flags)
        try:
            self._refuse_hidden(fd, place)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _refuse_hidden(self, fd: int, place: Place) -> None:
        if not self.hides_anything:
            return
        real = _real_path(fd)
        if self._hidden and is_below(real, self._hidden):
            raise self._outside(place.asked)
        if self._is_kept_secret(real):
            raise _refuse_kept_secret(place.asked)

    def _open(self, place: Place, flags: int) -> int:
        try:
            return kernel.openat2(place.root.fd, place.below, flags, self._resolve)
        except OSError as exc:
            if exc.errno != errno.EXDEV:
                raise from_oserror(exc, place.asked) from None
        # An absolute link that stays inside is fine, but RESOLVE_BENEATH can't tell: spell its target out
        # below a root, then let the kernel decide once more, this time without any link left to follow.
        spelled = self._spell_out(place, follow_last=not flags & os.O_NOFOLLOW)
        try:
            return kernel.openat2(spelled.root.fd, spelled.below, flags, self._resolve | kernel.RESOLVE_NO_SYMLINKS)
        except OSError as exc:
            raise from_oserror(exc, place.asked) from None

    def _spell_out(self, place: Place, *, follow_last: bool) -> Place:
        root, todo = place.root, place.below.split(b"/")
        done: list[bytes] = []
        links = 0
        while todo:
            part = todo.pop(0)
            if part in (b"", b".", b".."):
                self._link_target(root, b"/".join([*done, b"."]), place.asked)  # only a directory has these
                if part == b"..":
                    if not done:
                        raise self._outside(place.asked)
                    done.pop()
                continue
            target = self._link_target(root, b"/".join([*done, part]), place.asked)
            if target is None or (not todo and not follow_last):
                done.append(part)
                continue
            links += 1
            if links > _MAX_LINKS:
                raise InvalidPath(f"{place.asked}: too many symbolic links")
            if target.startswith(b"/"):
                inside = self._below_a_root(target, place.asked)
                if inside is None:
                    raise self._outside(place.asked)
                root, target, done = inside.root, inside.below, []
            todo = target.split(b"/") + todo
        return Place(root, b"/".join(done) or b".", place.asked)

    def _link_target(self, root: Root, below: bytes, asked: str) -> bytes | None:
        try:
            fd = kernel.openat2(root.fd, below, kernel.O_PATH | os.O_NOFOLLOW, self._resolve)
        except OSError as exc:
            raise from_oserror(exc, asked) from None
        try:
            if not stat_bits.S_ISLNK(os.fstat(fd).st_mode):
                return None
            return os.readlink(b"", dir_fd=fd)
        finally:
            os.close(fd)

    def open_file(self, place: Place) -> tuple[int, os.stat_result]:
        """A regular file, open for reading, with its stat; anything else is refused before it is opened."""
        handle = self.open(place, kernel.O_PATH)
        try:
            info = os.fstat(handle)
            self._refuse_special(handle, info, place)
            # The O_PATH handle pins the very inode that was looked at; reopening it can't be raced.
            fd = os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError as exc:
            raise from_oserror(exc, place.asked) from None
        finally:
            os.close(handle)
        return fd, info

    def _refuse_special(self, handle: int, info: os.stat_result, place: Place) -> None:
        if stat_bits.S_ISDIR(info.st_mode):
            raise NotAFile(f"{place.asked}: is a directory", hint="List it with list_dir.")
        if not stat_bits.S_ISREG(info.st_mode):
            raise NotAFile(f"{place.asked}: {_special(info.st_mode)}, not a regular file")
        real = _real_path(handle)
        if info.st_dev == self._proc_device and real.split("/")[2].isdigit():
            raise PermissionDenied(f"{place.asked}: files about a process are not readable by this tool")
        if self._secrets.covers(real) or self._secrets.covers(place.asked):
            raise refuse_secret(place.asked)
        if self.foreign_link(info):
            raise PermissionDenied(
                f"{place.asked}: a hard link to another user's file",
                hint="The operator may allow it: mcp.policy.hard_links.",
            )

    def may_show(self, directory: int, name: bytes, path: str) -> bool:
        """Whether a search may show a file it found: the same rules as for reading it."""
        if self._secrets.covers(path) or self.hides(directory, name):
            return False
        try:
            info = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except OSError:
            return True  # it is gone already; what was found was allowed to be read
        return not self.foreign_link(info)

    @property
    def hides_anything(self) -> bool:
        """Whether anything that nobody may look into lies below a root."""
        return self._hidden is not None or bool(self._kept_secret)

    def hides(self, directory: int, name: bytes) -> bool:
        """Whether a name below an open directory, without a link in it, is one that nobody may look into."""
        if not self.hides_anything:
            return False
        return self._is_hidden(os.path.normpath(os.path.join(_real_path(directory), os.fsdecode(name))))

    def open_dir(self, place: Place) -> int:
        """A directory, open for scanning."""
        try:
            return self.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK)
        except NotADirectory:
            raise NotADirectory(f"{place.asked}: not a directory") from None

    def open_dir_or_file(self, place: Place) -> tuple[int, bool]:
        """Either a directory to search in or a file, open for reading; True for the directory."""
        handle = self.open(place, kernel.O_PATH)
        try:
            is_directory = stat_bits.S_ISDIR(os.fstat(handle).st_mode)
        finally:
            os.close(handle)
        return (self.open_dir(place), True) if is_directory else (self.open_file(place)[0], False)

    # --- for changes -----------------------------------------------------------------------------

    def where(self, directory: int, asked: str) -> Place:
        """The place of an open directory at this moment; no link is left in it."""
        real = os.readlink(b"/proc/self/fd/%d" % directory)
        for root in self.roots:
            base = os.readlink(b"/proc/self/fd/%d" % root.fd)
            if real == base:
                return Place(root, b".", asked)
            if real.startswith(base.rstrip(b"/") + b"/"):
                return Place(root, real[len(base) :].lstrip(b"/"), asked)
        raise self._outside(asked)

    def reopen_dir(self, place: Place) -> int:
        """A directory whose place `where` has told: a link on the way means that it is no longer there."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK
        try:
            return kernel.openat2(place.root.fd, place.below, flags, self._resolve | kernel.RESOLVE_NO_SYMLINKS)
        except OSError as exc:
            raise from_oserror(exc, place.asked) from None

    def is_protected(self, path: str) -> bool:
        """Whether no file tool may change what lies at this path."""
        return self._protected.covers(path) or path in self._protected_files or self._is_own_code(path)

    def _is_own_code(self, path: str) -> bool:
        return any(is_below(path, own) for own in self.own_code)

    def holds_protected(self, path: str) -> bool:
        """Whether a folder at this path may hold something protected, so that no link may take its place."""
        return self._above_protected.covers(path)

    def is_secret(self, path: str) -> bool:
        """Whether no file tool may show what lies at this path."""
        return self._secrets.covers(path) or self._is_kept_secret(path)

    def refuse_change(self, place: Place, *, tree: bool = False) -> None:
        """Raise for what must stay as it is; for a `tree` that is also whatever holds a root or our own data."""
        real = os.fsdecode(names.parse(place.real))
        if self._is_own_code(real) or any(is_below(own, real) for own in self.own_code):
            raise PermissionDenied(
                f"{place.asked}: belongs to the server's own code or holds it; it stays as it is",
                hint="Serve a folder without it, or install the server elsewhere: pipx install, uv tool install.",
            )
        if self._is_kept_secret(real) or any(is_below(secret, real) for secret in self._kept_secret):
            raise _refuse_kept_secret(place.asked)
        if self.is_protected(real) or (place.absolute != real and self.is_protected(place.absolute)):
            raise refuse_protected(place.asked)
        if "HEAD" in self.access.protected_names and _is_obeyed_by_git(place):
            raise refuse_protected(place.asked)
        stay = self._named if tree else ()
        if any(is_below(path, real) for path in (*stay, *((self._hidden,) if self._hidden else ()))):
            raise PermissionDenied(f"{place.asked}: holds an allowed root or the server's own data; it stays")
        if self._hidden and is_below(real, self._hidden):
            raise self._outside(place.asked)

    def foreign_link(self, info: os.stat_result) -> bool:
        """Whether a file has several names and another owner, and the operator keeps away from those."""
        return self.access.refuse_foreign_links and info.st_nlink > 1 and info.st_uid != os.geteuid()

    # --- looking ---------------------------------------------------------------------------------

    def stat(self, place: Place) -> tuple[os.stat_result, bytes | None]:
        """The stat of what a path leads to and, for a link, its target; a link that leads out is only itself."""
        handle = self.open(place, kernel.O_PATH | os.O_NOFOLLOW)
        try:
            info = os.fstat(handle)
            if not stat_bits.S_ISLNK(info.st_mode):
                return info, None
            target = os.readlink(b"", dir_fd=handle)
        except OSError as exc:
            raise from_oserror(exc, place.asked) from None
        finally:
            os.close(handle)
        try:
            handle = self.open(place, kernel.O_PATH)
        except LlmcError:
            return info, target
        try:
            return os.fstat(handle), target
        finally:
            os.close(handle)

    def _is_hidden(self, path: str) -> bool:
        return (self._hidden is not None and is_below(path, self._hidden)) or self._is_kept_secret(path)

    def walk(
        self,
        place: Place,
        *,
        depth: int,
        include_hidden: bool,
        enter: Callable[[bytes], bool] | None = None,
        with_stat: bool = False,
        bound: Bound | None = None,
    ) -> Iterator[Entry]:
        """Entries below a directory, level by level, each level sorted; links are rows, never followed.

        `enter` may keep the walk out of a directory; size and time are only filled in `with_stat`. The walk ends
        where `bound` is reached.
        """
        top = self.open_dir(place)
        try:
            level = [b""]
            for current in range(1, depth + 1):
                below: list[bytes] = []
                for prefix in level:
                    if bound is not None and bound.reached:
                        return
                    for entry in self._scan_below(top, prefix, include_hidden, with_stat, bound):
                        yield entry._replace(depth=current)
                        if entry.kind == "dir" and (enter is None or enter(entry.path)):
                            below.append(entry.path + b"/")
                level = [path for path in below if not self.hides(top, path)]
        finally:
            os.close(top)

    def _scan_below(
        self, top: int, prefix: bytes, include_hidden: bool, with_stat: bool, bound: Bound | None
    ) -> list[Entry]:
        """Sorted entries of a directory below `top`; none when it vanished, became a link, or may not be read.

        Each directory is opened anew from the top, so a wide tree never holds more than two fds.
        """
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK
        try:
            fd = kernel.openat2(top, prefix or b".", flags, self._resolve | kernel.RESOLVE_NO_SYMLINKS)
        except OSError:
            return []
        try:
            with os.scandir(fd) as found:
                wanted = (entry for entry in found if include_hidden or not entry.name.startswith("."))
                rows = [_entry(prefix, entry, with_stat) for entry in (bound.take(wanted) if bound else wanted)]
        except OSError:
            return []
        finally:
            os.close(fd)
        rows.sort()
        return rows


def _entry(prefix: bytes, found: DirEntry, with_stat: bool) -> Entry:
    path = prefix + os.fsencode(found.name)
    try:
        if found.is_symlink():
            kind = "symlink"
        elif found.is_dir(follow_symlinks=False):
            kind = "dir"
        else:
            kind = "file" if found.is_file(follow_symlinks=False) else "other"
        if with_stat:
            info = found.stat(follow_symlinks=False)
            return Entry(path, kind, 0, info.st_size, info.st_mtime)
    except OSError:  # it vanished while we looked
        kind = "other"
    return Entry(path, kind, 0)


def _is_obeyed_by_git(place: Place) -> bool:
    """Whether a path is the configuration or a hook of a repository; its folder has a HEAD, which no tool moves."""
    parts = place.below.split(b"/")
    for depth, part in enumerate(parts):
        if part in (GIT_FILES if depth == len(parts) - 1 else GIT_FOLDERS):
            try:
                os.lstat(b"/".join([*parts[:depth], b"HEAD"]), dir_fd=place.root.fd)
            except OSError:
                continue
            return True
    return False


def _real_path(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")


def _refuse_kept_secret(asked: str) -> PermissionDenied:
    return PermissionDenied(
        f"{asked}: kept from tools and commands, because it holds keys or other secrets, or shall not be read",
        hint="The operator may serve it by naming it as a root; his own list is mcp.sandbox.deny_read.",
    )


def _open_root(path: str) -> Root:
    spelled = os.fsencode(os.path.abspath(os.path.expanduser(path)))
    try:
        fd = os.open(spelled, kernel.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as exc:
        raise from_oserror(exc, f"root {path}") from None
    return Root(fd, spelled, os.path.realpath(spelled))
