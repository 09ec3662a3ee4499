"""Targets of changes: a name in an open directory, and the few system calls that act on it.

Every change first finds its target: the containing directory is opened below a root once, and from then on only that
fd and the last name are used, so that nothing swapped along the path can redirect the change.
"""

import errno
import hashlib
import os
import shutil
import stat as stat_bits
from collections.abc import Callable, Iterable
from contextlib import suppress

from ..errors import (
    InvalidPath,
    IsDirectory,
    LlmcError,
    NotADirectory,
    NotAFile,
    NotFound,
    PermissionDenied,
    Stale,
    WriteFailed,
    from_oserror,
)
from ..files.filesystem import Filesystem, Place, kind_of
from ..kernel import syscalls

_RACES = 50  # attempts to find a target that keeps changing
_CHUNK = 1 << 20
_ACL = "system.posix_acl_access"


class Target:
    """A name in an open directory, and the entry that had that name when it was found.

    Directories that must be made first are in `missing`; `enter` descends into them once they exist.
    """

    def __init__(self, files: Filesystem, dir_fd: int, missing: list[bytes], name: bytes, label: str) -> None:
        self._files, self.dir_fd, self.missing, self.name, self.label = files, dir_fd, missing, name, label
        self._folder = files.where(dir_fd, label)
        self.place = Place(self._folder.root, os.path.join(_below(self._folder), *missing, name), label)
        self.path = self.place.real
        self.pin = -1  # O_PATH fd of the entry: while it is open, no other file can get its inode number
        self.info: os.stat_result | None = None
        if not missing:
            self._look()

    def _look(self) -> None:
        try:
            self.pin = os.open(self.name, syscalls.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.dir_fd)
        except FileNotFoundError:
            if os.fstat(self.dir_fd).st_nlink == 0:
                raise NotFound(f"{self.label}: its folder is gone") from None
            return
        self.info = os.fstat(self.pin)

    @property
    def kind(self) -> str:
        """`file`, `dir`, `symlink`, `other`, or `` if there is no entry."""
        return "" if self.info is None else kind_of(self.info.st_mode)

    def existing(self) -> os.stat_result:
        """The stat of the entry; NOT_FOUND if there is none."""
        if self.info is None:
            raise NotFound(f"{self.label}: no such file or directory")
        return self.info

    def changed(self) -> bool:
        """Whether the entry or the directory's path has changed since it was found."""
        try:
            if self._files.where(self.dir_fd, self.label) != self._folder:
                return True
            now = os.stat(self.missing[0] if self.missing else self.name, dir_fd=self.dir_fd, follow_symlinks=False)
        except FileNotFoundError:
            return self.info is not None
        except InvalidPath:
            return True
        return self.info is None or identity(now) != identity(self.info)

    def enter(self) -> None:
        """Descend into directories that were missing and exist now; never through a link."""
        while self.missing:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            inner = os.open(self.missing[0], flags, dir_fd=self.dir_fd)
            os.close(self.dir_fd)
            self.dir_fd = inner
            del self.missing[0]
        self._folder = self._files.where(self.dir_fd, self.label)

    def open(self) -> int:
        """The entry opened for reading; only for a regular file."""
        return os.open(f"/proc/self/fd/{self.pin}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)

    def writable(self) -> bool:
        """Whether the server's user may write the entry; a read-only mode binds root, too."""
        return bool(self.existing().st_mode & stat_bits.S_IWUSR) and os.access(
            f"/proc/self/fd/{self.pin}", os.W_OK, effective_ids=os.access in os.supports_effective_ids
        )

    def close(self) -> None:
        """Close the descriptors; may be called twice."""
        for fd in (self.dir_fd, self.pin):
            if fd >= 0:
                os.close(fd)
        self.dir_fd = self.pin = -1


def _below(place: Place) -> bytes:
    return b"" if place.below == b"." else place.below


def identity(info: os.stat_result) -> str:
    """A string that changes when a file is replaced or written; for a directory, only when it is replaced."""
    if stat_bits.S_ISREG(info.st_mode):
        return f"{info.st_dev}.{info.st_ino}.{info.st_size}.{info.st_mtime_ns}"
    return f"{info.st_dev}.{info.st_ino}"


# --- finding ---------------------------------------------------------------------------------------


def find_file(files: Filesystem, path: str, *, parents: bool = False) -> Target:
    """The regular file that a path leads to, through links that stay inside, or the name for a new one.

    With `parents`, directories on the way may be missing.
    """
    place = files.locate(path)
    target = _find(files, place, follow=True, parents=parents)
    try:
        files.refuse_change(target.place)
        if place.below != target.place.below:  # it came through a link, whose name may be protected too
            files.refuse_change(place)
        if target.info is not None:
            _refuse_unwritable(files, target, target.info)
    except BaseException:
        target.close()
        raise
    return target


def find_entry(files: Filesystem, path: str, *, tree: bool = True) -> Target:
    """The entry that a path names, without following a last link; refuses entries that must stay."""
    target = _find(files, files.locate(path), follow=False, parents=False)
    try:
        files.refuse_change(target.place, tree=tree)
        if path.endswith("/") and target.kind not in ("", "dir"):
            raise NotADirectory(f"{path}: not a directory")
    except BaseException:
        target.close()
        raise
    return target


def find_new(files: Filesystem, path: str, refuse: Callable[[Place], None] | None = None) -> Target:
    """A name, and the directories above it that must be made first; `refuse` raises for what must stay."""
    target = _find(files, files.locate(path), follow=False, parents=True)
    try:
        (refuse or files.refuse_change)(target.place)
    except BaseException:
        target.close()
        raise
    return target


def reopen(files: Filesystem, recorded: str) -> Target:
    """The target at a recorded `Target.path`; no component may have become a link since."""
    place = files.locate(recorded)
    parent, last = os.path.split(place.below)
    return _make(files, files.reopen_dir(Place(place.root, parent or b".", recorded)), [], last, recorded)


def _find(files: Filesystem, place: Place, *, follow: bool, parents: bool) -> Target:
    parent, last = os.path.split(place.below if follow else place.below.rstrip(b"/"))
    if last in (b"", b".", b".."):
        if follow:
            raise IsDirectory(f"{place.label}: names a directory")
        raise PermissionDenied(f"{place.label}: an allowed root, or no name of its own; it stays")
    for _ in range(_RACES):
        dir_fd, missing = _open_parent(files, Place(place.root, parent or b".", place.label), parents=parents)
        try:
            target = _make(files, dir_fd, missing, last, place.label)
            if not follow or target.kind != "symlink":
                return target
            target.close()
            real = _behind_link(files, place)
            target = _make(files, files.reopen_dir(real[0]), [], real[1], place.label)
        except (InvalidPath, NotFound):
            if follow and _is_link_out(files, place):
                raise
            continue
        if target.kind == "file":
            return target
        target.close()  # it was swapped while we looked
    raise Stale(f"{place.label}: keeps changing while we look", hint="Try again.")


def _is_link_out(files: Filesystem, place: Place) -> bool:
    """Whether a link really leads out, rather than being swapped while we looked."""
    try:
        os.close(files.open(place, syscalls.O_PATH))
    except LlmcError:
        return True
    return False


def _make(files: Filesystem, dir_fd: int, missing: list[bytes], name: bytes, label: str) -> Target:
    try:
        return Target(files, dir_fd, missing, name, label)
    except OSError as exc:
        os.close(dir_fd)
        raise from_oserror(exc, label) from None
    except LlmcError:
        os.close(dir_fd)
        raise


def _behind_link(files: Filesystem, place: Place) -> tuple[Place, bytes]:
    """The directory and name of a link's target; dangling links are refused, nothing is created through them."""
    try:
        pin = files.open(place, syscalls.O_PATH)
    except NotFound:
        raise InvalidPath(
            f"{place.label}: a link that leads nowhere", hint="Name the file it should lead to."
        ) from None
    try:
        mode = os.fstat(pin).st_mode
        if not stat_bits.S_ISREG(mode):
            raise _not_a_file(place.label, mode)
        real = files.where(pin, place.label)
    finally:
        os.close(pin)
    folder, name = os.path.split(real.below)
    return Place(real.root, folder or b".", place.label), name


def _open_parent(files: Filesystem, parent: Place, *, parents: bool) -> tuple[int, list[bytes]]:
    """The deepest directory that exists, and the names below it that don't."""
    try:
        return files.open_dir(parent), []
    except NotFound:
        if not parents:
            raise NotFound(
                f"{parent.label}: its folder does not exist",
                hint="Make it with linux_fs_mkdirs or create_parents=true.",
            ) from None
    above, name = os.path.split(parent.below.rstrip(b"/"))
    if name in (b"", b".", b".."):
        raise NotFound(f"{parent.label}: no such file or directory")
    dir_fd, missing = _open_parent(files, Place(parent.root, above or b".", parent.label), parents=True)
    if not missing and exists_in(dir_fd, name):
        os.close(dir_fd)
        raise InvalidPath(f"{parent.label}: a link that leads nowhere is in the way")
    return dir_fd, [*missing, name]


def _refuse_unwritable(files: Filesystem, target: Target, info: os.stat_result) -> None:
    if not stat_bits.S_ISREG(info.st_mode):
        raise _not_a_file(target.label, info.st_mode)
    if files.foreign_link(info):
        raise PermissionDenied(
            f"{target.label}: a hard link to another user's file",
            hint="The operator may allow it: mcp.policy.hard_links.",
        )
    if not target.writable():
        raise PermissionDenied(
            f"{target.label}: read-only", hint="Its mode or owner forbids writing; it was respected."
        )


def _not_a_file(label: str, mode: int) -> LlmcError:
    if stat_bits.S_ISDIR(mode):
        return IsDirectory(f"{label}: is a directory")
    return NotAFile(f"{label}: not a regular file")


# --- acting ----------------------------------------------------------------------------------------


def failed(exc: OSError, label: str) -> LlmcError:
    """The error for a failed system call during a change; the change has no effect."""
    known = from_oserror(exc, label)
    if known.code != "INTERNAL":
        return known
    return WriteFailed(f"{label}: {os.strerror(exc.errno or errno.EIO).lower()}")


def exists_in(dir_fd: int, name: bytes) -> bool:
    """Whether a directory has an entry with a name."""
    return identity_in(dir_fd, name) != ""


def identity_in(dir_fd: int, name: bytes) -> str:
    """The identity of the entry with a name; empty if there is none."""
    try:
        return identity(os.lstat(name, dir_fd=dir_fd))
    except FileNotFoundError:
        return ""


def tree_identity(dir_fd: int, name: bytes) -> str:
    """A string that changes when anything in a tree is written, replaced, added or removed; no link is followed."""
    top = os.lstat(name, dir_fd=dir_fd)
    if not stat_bits.S_ISDIR(top.st_mode):
        return identity(top)
    digest = hashlib.sha256()
    for folder, folders, others, fd in os.fwalk(name, dir_fd=dir_fd):
        folders.sort()
        digest.update(folder[len(name) :] + b"\0" + identity(os.fstat(fd)).encode())
        for entry in (*folders, *sorted(others)):
            digest.update(entry + b"\0" + identity_in(fd, entry).encode())
    return digest.hexdigest()


def mount_of(fd: int) -> int:
    """The id of the mount that a directory was opened through; the kernel renames only within one mount.

    Device numbers don't tell mounts apart: bind mounts of one file system share them.
    """
    with open(f"/proc/self/fdinfo/{fd}") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("mnt_id:"))


def write_beside(
    target: Target, name: bytes, pieces: Iterable[bytes], mode: int | None, tick: Callable[[], None]
) -> None:
    """Write a new file beside the target; it is on disk when this returns."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(name, flags, _first_mode(target, mode), dir_fd=target.dir_fd)
    try:
        _fill(fd, target, pieces, mode, tick)
        os.fsync(fd)
    finally:
        os.close(fd)


def write_unnamed(target: Target, pieces: Iterable[bytes], mode: int | None) -> int | None:
    """The same in an unnamed file (O_TMPFILE), not yet synced; None if the file system has no such files.

    If it never gets a name, nothing is left of it.
    """
    try:
        fd = os.open(b".", os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, _first_mode(target, mode), dir_fd=target.dir_fd)
    except OSError as exc:
        if exc.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT):
            return None
        raise
    try:
        _fill(fd, target, pieces, mode, lambda: None)
    except BaseException:
        os.close(fd)
        raise
    return fd


def name_beside(target: Target, fd: int, name: bytes) -> None:
    """Give an unnamed file a name beside the target."""
    os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=target.dir_fd, follow_symlinks=True)


def _first_mode(target: Target, mode: int | None) -> int:
    """The mode at creation: a new file gets 0666 or an explicit mode, less the umask."""
    return 0o600 if target.info else 0o666 if mode is None else mode & 0o777


def _fill(fd: int, target: Target, pieces: Iterable[bytes], mode: int | None, tick: Callable[[], None]) -> None:
    """Write the content and copy mode, owner, group and extended attributes of the file it replaces."""
    for piece in pieces:
        view = memoryview(piece)
        while view:
            view = view[os.write(fd, view) :]
        tick()
    if target.info is not None:
        _copy_attributes(fd, target, target.info, mode)


def _copy_attributes(fd: int, target: Target, model: os.stat_result, mode: int | None) -> None:
    if (model.st_uid, model.st_gid) != (os.geteuid(), os.getegid()):
        for owner in ((model.st_uid, model.st_gid), (-1, model.st_gid)):
            try:
                os.fchown(fd, *owner)
                break
            except PermissionError:  # only root may change the owner; setting an own group is allowed
                continue
    source = f"/proc/self/fd/{target.pin}"
    try:
        attributes = [name for name in os.listxattr(source) if name.startswith("user.") or name == _ACL]
    except OSError:  # a file system without them
        attributes = []
    for name in attributes:
        try:
            os.setxattr(fd, name, os.getxattr(source, name))
        except OSError:
            continue
    os.fchmod(fd, (model.st_mode if mode is None else mode) & 0o777)  # never set-user-id


def exchange(dir_fd: int, new: bytes, name: bytes, expected: str) -> bool:
    """Swap a new entry in for another of its folder, which gets its name; False if that is not the expected one.

    Then everything is as before: what somebody else saved under the name meanwhile has it again. A file system that
    can't swap names replaces the entry, which leaves a moment between the last look and the rename.
    """
    ours = identity_in(dir_fd, new)
    try:
        swapped = syscalls.rename_exchange(dir_fd, new, name)
    except FileNotFoundError:
        return False
    if swapped and identity_in(dir_fd, new) != expected:
        put_back(dir_fd, new, name, ours)
        return False
    if not swapped:
        if identity_in(dir_fd, name) != expected:
            return False
        os.rename(new, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    return True


def put_back(dir_fd: int, replaced: bytes, name: bytes, ours: str) -> None:
    """Give a replaced entry its name back; afterwards `replaced` names ours, or a save that a later one replaced.

    Whoever saves again meanwhile replaces our entry and not theirs, so what comes out is swapped in once more.
    """
    for _ in range(_RACES):
        inside = identity_in(dir_fd, replaced)
        try:
            syscalls.rename_exchange(dir_fd, replaced, name)
        except FileNotFoundError:  # ours was deleted or moved away
            try:
                syscalls.rename_no_replace(dir_fd, replaced, dir_fd, name)
            except FileExistsError:
                continue
            return
        if identity_in(dir_fd, replaced) == ours:
            return
        ours = inside
    raise Stale(f"{os.fsdecode(name)}: keeps changing while we look", hint="Try again.")


def copy_tree(source_fd: int, source: bytes, into_fd: int, name: bytes, tick: Callable[[], None]) -> None:
    """Copy a tree to another mount; it is on disk when this returns. Links are copied as links, devices refused."""
    info = os.lstat(source, dir_fd=source_fd)
    if stat_bits.S_ISLNK(info.st_mode):
        os.symlink(os.readlink(source, dir_fd=source_fd), name, dir_fd=into_fd)
        return
    if stat_bits.S_ISDIR(info.st_mode):
        _copy_folder(source_fd, source, into_fd, name, tick)
    elif stat_bits.S_ISREG(info.st_mode):
        _copy_file(source_fd, source, into_fd, name, tick)
    else:
        raise OSError(errno.EPERM, "holds a device, FIFO or socket, which can't be copied to another file system")


def _copy_folder(source_fd: int, source: bytes, into_fd: int, name: bytes, tick: Callable[[], None]) -> None:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    os.mkdir(name, 0o700, dir_fd=into_fd)
    inner, copy = os.open(source, flags, dir_fd=source_fd), os.open(name, flags, dir_fd=into_fd)
    try:
        for entry in os.listdir(inner):
            copy_tree(inner, os.fsencode(entry), copy, os.fsencode(entry), tick)
        _copy_times_and_mode(copy, os.fstat(inner))
        os.fsync(copy)
    finally:
        os.close(inner)
        os.close(copy)


def _copy_file(source_fd: int, source: bytes, into_fd: int, name: bytes, tick: Callable[[], None]) -> None:
    flags = os.O_NOFOLLOW | os.O_CLOEXEC
    inner = os.open(source, os.O_RDONLY | os.O_NONBLOCK | flags, dir_fd=source_fd)
    try:
        copy = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | flags, 0o600, dir_fd=into_fd)
        try:
            while os.sendfile(copy, inner, None, _CHUNK):
                tick()
            _copy_times_and_mode(copy, os.fstat(inner))
            os.fsync(copy)
        finally:
            os.close(copy)
    finally:
        os.close(inner)


def _copy_times_and_mode(fd: int, model: os.stat_result) -> None:
    try:
        os.fchown(fd, model.st_uid, model.st_gid)
    except PermissionError:
        pass
    os.fchmod(fd, model.st_mode & 0o777)
    os.utime(fd, ns=(model.st_atime_ns, model.st_mtime_ns))


def remove_tree(dir_fd: int, name: bytes) -> None:
    """Remove an entry, recursively, if it exists; never through a link."""
    for _ in range(_RACES):
        try:
            is_folder = stat_bits.S_ISDIR(os.lstat(name, dir_fd=dir_fd).st_mode)
        except FileNotFoundError:
            return
        with suppress(FileNotFoundError):  # another server may be removing it as well
            if is_folder:
                shutil.rmtree(os.fsdecode(name), dir_fd=dir_fd)  # fd-based: a folder swapped for a link isn't entered
            else:
                os.unlink(name, dir_fd=dir_fd)
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))


def read_all(target: Target, limit: int) -> bytes | None:
    """The file's content; None if it is larger than `limit`."""
    size = target.existing().st_size
    if size > limit:
        return None
    fd = target.open()
    try:
        data = os.pread(fd, size + 1, 0)
        while len(data) <= limit and (more := os.pread(fd, _CHUNK, len(data))):  # it may grow while we read
            data += more
    finally:
        os.close(fd)
    return None if len(data) > limit else data


def pieces_of(target: Target) -> Iterable[bytes]:
    """The file's content in pieces, for files too large for memory."""
    fd = target.open()
    try:
        position = 0
        while piece := os.pread(fd, _CHUNK, position):
            yield piece
            position += len(piece)
    finally:
        os.close(fd)


def sha256(pieces: Iterable[bytes]) -> str:
    """The SHA-256 of content given in pieces."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()
