"""Access to files below the allowed roots, where the kernel, not a string comparison, decides what is inside.

A root is an open directory. Every path is opened below it by openat2 with RESOLVE_BENEATH, so neither `..`, nor a
symbolic link, nor a directory swapped meanwhile can lead out. An O_PATH descriptor is checked by fstat before the file
is opened for reading, so a FIFO never blocks and a device is never touched.
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
    NotFound,
    PermissionDenied,
    from_oserror,
)
from ..kernel import syscalls
from ..policy import (
    GIT_FILES,
    GIT_FOLDERS,
    NameRules,
    folders_above,
    is_below,
    is_below_any,
    name_rules,
    refuse_protected,
    refuse_secret,
)
from . import names, off_limits
from .silent_roots import SilentRoots

_BENEATH = syscalls.RESOLVE_BENEATH | syscalls.RESOLVE_NO_MAGICLINKS
_MAX_LINKS = 40  # the kernel's own limit


class Root(NamedTuple):
    """An allowed directory. Access goes through the fd; the two spellings only match absolute paths to a root."""

    fd: int
    path: bytes
    real: bytes

    @property
    def shown(self) -> str:
        return names.show(self.path)


class Place(NamedTuple):
    """A path argument, resolved: its root, the rest below it, and the label that messages use."""

    root: Root
    below: bytes
    label: str

    @property
    def absolute(self) -> str:
        return names.show(os.path.join(self.root.path, self.below) if self.below != b"." else self.root.path)

    @property
    def real(self) -> str:
        """The same below the root's real path: one spelling for all servers, even if a root is a link."""
        return names.show(os.path.join(self.root.real, self.below) if self.below != b"." else self.root.real)


class Entry(NamedTuple):
    """One entry of a walk; `path` is relative to the top directory."""

    path: bytes
    kind: str
    depth: int
    size: int = 0
    mtime: float = 0.0


DirEntry = os.DirEntry[str]


class WalkBudget:
    """A limit on the entries of a walk; `reached` is set once there were more."""

    def __init__(self, entries: int) -> None:
        self.left = entries
        self.reached = False

    def take(self, found: Iterable[DirEntry]) -> list[DirEntry]:
        """Take entries up to the limit, in directory order."""
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
    """The operator's rules on what may be read or changed below the roots, beyond file permissions."""

    secret_names: tuple[str, ...] = ()
    secret_exceptions: tuple[str, ...] = ()
    refuse_foreign_links: bool = True  # a hard link can expose another user's file below a root
    cross_mounts: bool = True
    hidden_dir: str | None = None  # the server's data directory, in case it is below a root
    shared_trash: bool = False  # whether what is deleted goes to the top of its root
    protected_names: tuple[str, ...] = ()
    protected_files: tuple[str, ...] = ()  # the server's own configuration files
    hidden: tuple[str, ...] = ()  # hidden from commands as well
    own_code: tuple[str, ...] = ()  # code that the server runs or may import
    system_code: tuple[str, ...] = ()  # what it shares with the machine; roots may lie in there


class Filesystem:
    """All file access of the server; created once, thread-safe."""

    def __init__(self, roots: list[str], access: Access | None = None) -> None:
        if reason := syscalls.missing_openat2():
            raise FeatureUnavailable(reason)
        self.access = access or Access()
        self._resolve = _BENEATH | (0 if self.access.cross_mounts else syscalls.RESOLVE_NO_XDEV)
        self.roots = [_open_root(path) for path in roots]
        self._proc_device = os.stat("/proc").st_dev
        self._mounts = off_limits.MountTable()
        self._hidden = self._hidden_below_a_root()
        self._kept_secret = self._below_roots(self.access.hidden)
        self.own_code = self._own_code()
        self._system_code = self._below_roots(self.access.system_code)

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
        places = self._mounts.names_of(os.path.realpath(self.access.hidden_dir))
        return next((hidden for hidden in places if is_below_any(hidden, folders)), None)

    def _below_roots(self, paths: Iterable[str]) -> tuple[str, ...]:
        """The real paths, and the links that lead to them: replacing such a link would circumvent the rule."""
        folders = [os.fsdecode(root.real) for root in self.roots]
        trails = (place for path in paths for place in off_limits.trail(path))
        real = dict.fromkeys(name for place in trails for name in self._mounts.names_of(place))
        return tuple(off_limits.outermost(place for place in real if is_below_any(place, folders)))

    def _own_code(self) -> tuple[str, ...]:
        """The server's own code below the roots; a root inside that code is refused."""
        for path in map(os.path.realpath, self.access.own_code):
            names_of_path = self._mounts.names_of(path)
            for root in self.roots:
                if is_below_any(os.fsdecode(root.real), names_of_path):
                    raise PermissionDenied(
                        f"root {root.shown}: lies in {path}, which the server runs its own code from",
                        hint="Serve another folder, or install the server in an environment of its own.",
                    )
        return self._below_roots(self.access.own_code)

    def _is_kept_secret(self, path: str) -> bool:
        """Whether a real path is one that nobody may see, unless the operator named a root in there."""
        return self.hidden_places.keep_secret(path)

    @cached_property
    def hidden_places(self) -> off_limits.HiddenPlaces:
        """What lies below the roots and no tool may look into."""
        return off_limits.HiddenPlaces((self._hidden,) if self._hidden else (), self._kept_secret, self._named)

    @cached_property
    def _named(self) -> tuple[str, ...]:
        return tuple(os.fsdecode(root.real) for root in self.roots)

    @cached_property
    def silent_roots(self) -> SilentRoots:
        """The roots that do not answer."""
        return SilentRoots([root.real for root in self.roots])

    # --- finding ---------------------------------------------------------------------------------

    def locate(self, path: str) -> Place:
        """Assign a path argument to a root. Existence is not checked: opening does that."""
        in_home = path == "~" or path.startswith("~/")
        name = names.parse(os.path.join(os.path.expanduser("~"), path[2:]) if in_home else path)
        place = self._below_a_root(name, path) if name.startswith(b"/") else Place(self.roots[0], name, path)
        if place is None:
            raise self._outside(path)
        _refuse_deleted(place.root)
        return place

    def below(self, place: Place, path: str) -> Place:
        """Resolve a path relative to another; an absolute one must be below it as well."""
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

    def _below_a_root(self, name: bytes, label: str) -> Place | None:
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
        return Place(best[0], below or b".", label)

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

    def _open_existing(self, place: Place, flags: int) -> int:
        """Open what the caller says exists; where it does not, the error names what is nearest."""
        try:
            return self.open(place, flags)
        except NotFound as exc:
            exc.hint = exc.hint or self._near_paths(place)
            raise

    def _near_paths(self, place: Place) -> str | None:
        """A hint about a path that leads nowhere; it names nothing that listing would not show, and no secrets."""
        from .near_names import near_paths

        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK

        def open_folder(below: bytes) -> int:
            return syscalls.openat2(place.root.fd, below, flags, self._resolve)

        def shows(folder: int, name: bytes) -> bool:
            return not self.is_secret(os.path.join(_real_path(folder), os.fsdecode(name))) and not self.hides(
                folder, name
            )

        try:
            return near_paths(place.label, place.below, open_folder, shows) or None
        except OSError:  # the folder can't be listed
            return None

    def _refuse_hidden(self, fd: int, place: Place) -> None:
        if not self.hides_anything:
            return
        real = _real_path(fd)
        if self._is_own_data(real):
            raise self._outside(place.label)
        if self._is_kept_secret(real):
            raise _refuse_kept_secret(place.label)

    def _is_own_data(self, real: str) -> bool:
        return bool(self._hidden and is_below(real, self._hidden)) or off_limits.is_trash(real)

    def _open(self, place: Place, flags: int) -> int:
        try:
            return syscalls.openat2(place.root.fd, place.below, flags, self._resolve)
        except OSError as exc:
            if exc.errno != errno.EXDEV:
                raise from_oserror(exc, place.label) from None
        # An absolute link that stays inside is fine, but RESOLVE_BENEATH refuses it: resolve links by hand
        # below a root, then let the kernel check the result, with no links left to follow.
        spelled = self._spell_out(place, follow_last=not flags & os.O_NOFOLLOW)
        try:
            return syscalls.openat2(spelled.root.fd, spelled.below, flags, self._resolve | syscalls.RESOLVE_NO_SYMLINKS)
        except OSError as exc:
            raise from_oserror(exc, place.label) from None

    def _spell_out(self, place: Place, *, follow_last: bool) -> Place:
        root, todo = place.root, place.below.split(b"/")
        done: list[bytes] = []
        links = 0
        while todo:
            part = todo.pop(0)
            if part in (b"", b".", b".."):
                self._link_target(root, b"/".join([*done, b"."]), place.label)  # fails unless it is a directory
                if part == b"..":
                    if not done:
                        raise self._outside(place.label)
                    done.pop()
                continue
            target = self._link_target(root, b"/".join([*done, part]), place.label)
            if target is None or (not todo and not follow_last):
                done.append(part)
                continue
            links += 1
            if links > _MAX_LINKS:
                raise InvalidPath(f"{place.label}: too many symbolic links")
            if target.startswith(b"/"):
                inside = self._below_a_root(target, place.label)
                if inside is None:
                    raise self._outside(place.label)
                root, target, done = inside.root, inside.below, []
            todo = target.split(b"/") + todo
        return Place(root, b"/".join(done) or b".", place.label)

    def _link_target(self, root: Root, below: bytes, label: str) -> bytes | None:
        try:
            fd = syscalls.openat2(root.fd, below, syscalls.O_PATH | os.O_NOFOLLOW, self._resolve)
        except OSError as exc:
            raise from_oserror(exc, label) from None
        try:
            if not stat_bits.S_ISLNK(os.fstat(fd).st_mode):
                return None
            return os.readlink(b"", dir_fd=fd)
        finally:
            os.close(fd)

    def open_file(self, place: Place) -> tuple[int, os.stat_result]:
        """Open a regular file for reading, with its stat; anything else is refused before it is opened."""
        handle = self._open_existing(place, syscalls.O_PATH)
        try:
            info = os.fstat(handle)
            self._refuse_special(handle, info, place)
            # The O_PATH handle pins the inode that was checked; reopening it can't be raced.
            fd = os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError as exc:
            raise from_oserror(exc, place.label) from None
        finally:
            os.close(handle)
        return fd, info

    def _refuse_special(self, handle: int, info: os.stat_result, place: Place) -> None:
        if stat_bits.S_ISDIR(info.st_mode):
            raise NotAFile(f"{place.label}: is a directory", hint="List it with list_dir.")
        if not stat_bits.S_ISREG(info.st_mode):
            raise NotAFile(f"{place.label}: {_special(info.st_mode)}, not a regular file")
        real = _real_path(handle)
        if info.st_dev == self._proc_device and real.split("/")[2].isdigit():
            raise PermissionDenied(f"{place.label}: files about a process are not readable by this tool")
        if self._secrets.covers(real) or self._secrets.covers(place.label):
            raise refuse_secret(place.label)
        if self.foreign_link(info):
            raise PermissionDenied(
                f"{place.label}: a hard link to another user's file",
                hint="The operator may allow it: mcp.policy.hard_links.",
            )

    def may_show(self, directory: int, name: bytes, path: str) -> bool:
        """Whether a search may show a file, by the same rules as reading it."""
        if self._secrets.covers(path) or self.hides(directory, name):
            return False
        try:
            info = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except OSError:
            return True  # gone already; the search was allowed to read it
        return not self.foreign_link(info)

    @property
    def hides_anything(self) -> bool:
        """Whether anything below a root is hidden from everybody."""
        return self._hidden is not None or bool(self._kept_secret) or self.access.shared_trash

    def hides(self, directory: int, name: bytes) -> bool:
        """Whether a name below an open directory is hidden from everybody; the name must not contain links."""
        if not self.hides_anything:
            return False
        return self._is_hidden(os.path.normpath(os.path.join(_real_path(directory), os.fsdecode(name))))

    def open_dir(self, place: Place) -> int:
        """Open a directory for scanning."""
        try:
            return self._open_existing(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK)
        except NotADirectory:
            raise NotADirectory(f"{place.label}: not a directory") from None

    def open_dir_or_file(self, place: Place) -> tuple[int, bool]:
        """Open a directory or a file for reading; True for a directory."""
        handle = self._open_existing(place, syscalls.O_PATH)
        try:
            is_directory = stat_bits.S_ISDIR(os.fstat(handle).st_mode)
        finally:
            os.close(handle)
        return (self.open_dir(place), True) if is_directory else (self.open_file(place)[0], False)

    # --- for changes -----------------------------------------------------------------------------

    def where(self, directory: int, label: str) -> Place:
        """The current place of an open directory, free of links."""
        real = os.readlink(b"/proc/self/fd/%d" % directory)
        for root in self.roots:
            base = os.readlink(b"/proc/self/fd/%d" % root.fd)
            if real == base:
                return Place(root, b".", label)
            if real.startswith(base.rstrip(b"/") + b"/"):
                return Place(root, real[len(base) :].lstrip(b"/"), label)
        raise self._outside(label)

    def resolved(self, place: Place) -> str:
        """The absolute path that a place leads to through all links; what does not exist lies in what does."""
        missing: list[bytes] = []
        below = place.below
        while True:
            try:
                fd = self._open(Place(place.root, below or b".", place.label), syscalls.O_PATH)
                break
            except NotFound:
                below, _, name = below.rpartition(b"/")
                missing.insert(0, name)
        try:
            return os.path.join(_real_path(fd), *map(os.fsdecode, missing))
        finally:
            os.close(fd)

    def reopen_dir(self, place: Place) -> int:
        """Reopen a directory by a place from `where`; fails if a component has become a link."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK
        try:
            return syscalls.openat2(place.root.fd, place.below, flags, self._resolve | syscalls.RESOLVE_NO_SYMLINKS)
        except OSError as exc:
            raise from_oserror(exc, place.label) from None

    def is_protected(self, path: str) -> bool:
        """Whether no file tool may change what lies at this path."""
        return self._protected.covers(path) or path in self._protected_files or self._is_own_code(path)

    def _is_own_code(self, path: str) -> bool:
        return is_below_any(path, self.own_code) or any(
            is_below(path, shared) and not any(is_below(root, shared) and is_below(path, root) for root in self._named)
            for shared in self._system_code
        )

    def holds_protected(self, path: str) -> bool:
        """Whether a folder at this path may contain something protected, so that no link may replace it."""
        return self._above_protected.covers(path)

    def is_secret(self, path: str) -> bool:
        """Whether no file tool may show what lies at this path."""
        return self._secrets.covers(path) or self._is_kept_secret(path)

    def refuse_ours(self, place: Place) -> None:
        """Refuse to change what belongs to the server: its code, its data, its configuration, what it keeps secret."""
        real = os.fsdecode(names.parse(place.real))
        if self._is_own_code(real) or real in self._protected_files:
            raise refuse_protected(place.label)
        if self._is_kept_secret(real):
            raise _refuse_kept_secret(place.label)
        if self._is_own_data(real):
            raise self._outside(place.label)

    def refuse_change(self, place: Place, *, tree: bool = False) -> None:
        """Refuse to change what must stay; for a `tree`, also what contains a root or the server's data."""
        real = os.fsdecode(names.parse(place.real))
        if self._is_own_code(real) or any(is_below(own, real) for own in (*self.own_code, *self._system_code)):
            raise PermissionDenied(
                f"{place.label}: belongs to the server's own code or holds it; it stays as it is",
                hint="Serve a folder without it, or install the server elsewhere: pipx install, uv tool install.",
            )
        if self._is_kept_secret(real) or any(is_below(secret, real) for secret in self._kept_secret):
            raise _refuse_kept_secret(place.label)
        if self.is_protected(real) or (place.absolute != real and self.is_protected(place.absolute)):
            raise refuse_protected(place.label)
        if "HEAD" in self.access.protected_names and _is_obeyed_by_git(place):
            raise refuse_protected(place.label)
        stay = self._named if tree else ()
        if any(is_below(path, real) for path in (*stay, *((self._hidden,) if self._hidden else ()))):
            raise PermissionDenied(f"{place.label}: holds an allowed root or the server's own data; it stays")
        if self._is_own_data(real):
            raise self._outside(place.label)

    def foreign_link(self, info: os.stat_result) -> bool:
        """Whether a file has several names and another owner, and the policy refuses such hard links."""
        return self.access.refuse_foreign_links and info.st_nlink > 1 and info.st_uid != os.geteuid()

    # --- inspecting ------------------------------------------------------------------------------

    def stat(self, place: Place) -> tuple[os.stat_result, bytes | None]:
        """The stat of a path and, for a link, its target; a link that leads out is not followed."""
        handle = self._open_existing(place, syscalls.O_PATH | os.O_NOFOLLOW)
        try:
            info = os.fstat(handle)
            if not stat_bits.S_ISLNK(info.st_mode):
                return info, None
            target = os.readlink(b"", dir_fd=handle)
        except OSError as exc:
            raise from_oserror(exc, place.label) from None
        finally:
            os.close(handle)
        try:
            handle = self.open(place, syscalls.O_PATH)
        except LlmcError:
            return info, target
        try:
            return os.fstat(handle), target
        finally:
            os.close(handle)

    def _is_hidden(self, path: str) -> bool:
        return self.hidden_places.cover(path)

    def walk(
        self,
        place: Place,
        *,
        depth: int,
        include_hidden: bool,
        enter: Callable[[bytes], bool] | None = None,
        with_stat: bool = False,
        bound: WalkBudget | None = None,
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
        self, top: int, prefix: bytes, include_hidden: bool, with_stat: bool, bound: WalkBudget | None
    ) -> list[Entry]:
        """Sorted entries of a directory below `top`; none when it vanished, became a link, or may not be read.

        Each directory is opened anew from the top, so a wide tree never holds more than two fds.
        """
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK
        try:
            fd = syscalls.openat2(top, prefix or b".", flags, self._resolve | syscalls.RESOLVE_NO_SYMLINKS)
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
    except OSError:  # it vanished meanwhile
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


def _refuse_kept_secret(label: str) -> PermissionDenied:
    return PermissionDenied(
        f"{label}: kept from tools and commands, because it holds keys or other secrets, or shall not be read",
        hint="The operator may serve it by naming it as a root; the setting is mcp.sandbox.deny_read.",
    )


def _refuse_deleted(root: Root) -> None:
    """Say what to do about a root whose directory was deleted.

    A directory that has come to stand in its place is not entered: nobody has said yet that it is to be served.
    """
    ours = os.fstat(root.fd)
    if ours.st_nlink == 0 and not _leads_to(root.real, ours):  # some FUSE file systems count no links at all
        raise NotFound(
            f"root {root.shown}: the directory was deleted while the server ran",
            hint="Make it again if it is gone, then restart the server: it goes on with the directory that is there.",
        )


def _leads_to(path: bytes, info: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), info)
    except OSError:
        return False


def _open_root(path: str) -> Root:
    spelled = os.fsencode(os.path.abspath(os.path.expanduser(path)))
    try:
        fd = os.open(spelled, syscalls.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as exc:
        raise from_oserror(exc, f"root {path}") from None
    return Root(fd, spelled, os.path.realpath(spelled))
