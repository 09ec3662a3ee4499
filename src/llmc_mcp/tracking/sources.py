"""Where the content of a file can be had again after a command has changed it.

What git has as a blob needs no copy: a file that git takes for unchanged, or one whose content has the blob's name.
Everything else is copied to the spool, up to a size and a budget.
"""

import hashlib
import os
import re
import stat as stat_bits
from contextlib import suppress

from ..files.filesystem import Root
from ..kernel import syscalls
from . import git_dirs, git_index
from .entries import (
    EMPTY,
    GIT,
    LINK,
    NO_ROOM,
    SPECIAL,
    SPOOL,
    TOO_LARGE,
    UNREADABLE,
    EntryLook,
    digest_of,
    offset_of,
    spooled,
)
from .generated import IgnorePatterns
from .git_index import IndexEntry
from .git_objects import GitObjects, blob_name
from .spool import ContentSpool

_BENEATH = syscalls.RESOLVE_BENEATH | syscalls.RESOLVE_NO_SYMLINKS | syscalls.RESOLVE_NO_MAGICLINKS
_INDEX_BYTES = 256 << 20
_CONFIG_BYTES = 1 << 20
_SHARED_FROM = 256 << 10  # bytes of a file whose blocks are shared rather than copied, where that is possible
# What makes a file differ from its blob although git takes it for unchanged; line ends also change its size.
_CONVERTS = re.compile(rb"(?:^|\s)(?:filter=|ident(?:\s|$)|working-tree-encoding=)", re.MULTILINE)
# In a configuration: attributes, or more configuration, that is not looked at. Then files are read to compare them.
_ELSEWHERE = re.compile(rb"attributesfile[ \t]*=|^[ \t]*\[(?:include|attr\b)", re.IGNORECASE | re.MULTILINE)
_OTHER_NAMES = re.compile(rb"objectformat\s*=\s*sha256", re.IGNORECASE)
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class ContentSources:
    """Finds or makes the sources of the files below one root."""

    def __init__(self, root: Root, spool: ContentSpool, largest: int) -> None:
        self._root, self.spool, self._largest = root, spool, largest
        self._repositories: dict[str, _WorkTree] = {}

    def found_repository(self, folder: str) -> None:
        """Take note of a folder with a `.git` in it; the empty path is the root itself."""
        if folder not in self._repositories:
            with suppress(OSError, git_dirs.OutsideOfRoot):
                self._repositories[folder] = _WorkTree(self._root.fd, folder, git_dirs.find(self._root, folder))

    def found_attributes(self, folder: str) -> None:
        """Take note of a folder whose .gitattributes hold for everything below it, before that is looked at."""
        repository, inside = self._repository_of(f"{folder}/.gitattributes" if folder else ".gitattributes")
        if repository is not None:
            repository.attributes.add(inside)
            repository.forget_index()

    def is_ignored(self, path: str) -> bool:
        """Whether git ignores a folder."""
        repository, inside = self._repository_of(path)
        return repository is not None and bool(inside) and repository.ignores(inside)

    def source(
        self,
        dir_fd: int,
        name: str,
        path: str,
        info: os.stat_result,
        before: EntryLook | None,
        *,
        ask_git: bool,
        generated: bool = False,
    ) -> bytes:
        """Where the content of an entry can be had from now on; where it is the content of before, from the same place.

        Asking git takes reading its index, which pays for many files. What tools have generated may fill half of the
        room for copies.
        """
        if not stat_bits.S_ISREG(info.st_mode) or not info.st_size:
            return _without_content(dir_fd, name, info)
        repository, inside = self._repository_of(path) if ask_git else (None, "")
        entry = repository.entry(inside) if repository is not None else None
        if repository is not None and entry is not None and repository.is_clean(entry, info):
            return GIT + entry.oid
        if info.st_size > self._largest:
            return TOO_LARGE
        try:
            data = _read(dir_fd, name, info.st_size)
        except OSError:
            return UNREADABLE
        if before is not None and before.size == len(data) and _is_content(before.source, data):
            return before.source
        if repository is not None and entry is not None and repository.holds(entry, data):
            return GIT + entry.oid
        if len(data) >= _SHARED_FROM and (offset := self._shared(dir_fd, name, info, half=generated)) is not None:
            return spooled(offset, hashlib.sha256(data).digest())
        return self.keep(data, half=generated)

    def _shared(self, dir_fd: int, name: str, info: os.stat_result, *, half: bool) -> int | None:
        """Share the blocks of a large file that was not touched since it was read."""
        with suppress(OSError):
            fd = os.open(name, _FLAGS, dir_fd=dir_fd)
            try:
                offset = self.spool.share(fd, half=half)
                now = os.fstat(fd)
            finally:
                os.close(fd)
            if (now.st_ino, now.st_ctime_ns, now.st_size) == (info.st_ino, info.st_ctime_ns, info.st_size):
                return offset
        return None

    def keep(self, data: bytes, *, half: bool = False) -> bytes:
        """Copy content to the spool, or to the first half of it."""
        offset = self.spool.add(data, half=half)
        return NO_ROOM if offset is None else spooled(offset, hashlib.sha256(data).digest())

    def content(self, path: str, look: EntryLook) -> bytes | None:
        """The content of a file as it was; None where it can't be had."""
        kind = look.source[:1]
        if kind == EMPTY:
            return b""
        if kind == SPOOL:
            data = self.spool.read(offset_of(look.source), look.size)
            return data if _is_content(look.source, data) else None
        if kind == GIT:
            return self._blob(path, look)
        return None

    def _blob(self, path: str, look: EntryLook) -> bytes | None:
        """Of the repository that the path is in; after a move, of any."""
        for repository in sorted(self._repositories.values(), key=lambda one: not path.startswith(one.prefix)):
            if (data := repository.objects.read(look.source[1:], b"blob", look.size)) is not None:
                return data
        return None

    def _repository_of(self, path: str) -> "tuple[_WorkTree | None, str]":
        folder = path.rpartition("/")[0]
        while True:
            if folder in self._repositories:
                return self._repositories[folder], path[len(folder) + 1 :] if folder else path
            if not folder:
                return None, ""
            folder = folder.rpartition("/")[0]

    def forget_indexes(self) -> None:
        """Free what was read of the indexes."""
        for repository in self._repositories.values():
            repository.forget_index()

    def close(self) -> None:
        """Close the packs; the spool is shared with other roots."""
        for repository in self._repositories.values():
            repository.objects.close()


class _WorkTree:
    """A work tree and its repository."""

    def __init__(self, root_fd: int, folder: str, dirs: git_dirs.GitDirs) -> None:
        self.prefix = f"{folder}/" if folder else ""
        self._root_fd, self._dirs = root_fd, dirs
        self.objects = GitObjects(root_fd, f"{dirs.common}/objects")
        self.attributes: set[str] = set()  # files that git may not have in its index
        self._entries: dict[bytes, IndexEntry] | None = None
        self._written_ns = 0
        self._converts = False
        self._ignored: IgnorePatterns | None = None

    def entry(self, path: str) -> IndexEntry | None:
        """What the index says of a path."""
        if self._entries is None:
            self._read_index()
        return (self._entries or {}).get(os.fsencode(path))

    def ignores(self, folder: str) -> bool:
        """Whether a folder is ignored by itself: those in it come with it."""
        if self._ignored is None:
            files = (f"{self.prefix}.gitignore", f"{self._dirs.common}/info/exclude")
            self._ignored = IgnorePatterns(b"\n".join(self._content(path, _CONFIG_BYTES) for path in files))
        return self._ignored.match(folder)

    def is_clean(self, entry: IndexEntry, info: os.stat_result) -> bool:
        """Whether the file of an entry is its blob, byte for byte, without reading it."""
        if self._converts or not entry.is_clean(info, self._written_ns):
            return False
        return self.objects.size(entry.oid) == info.st_size

    def holds(self, entry: IndexEntry, data: bytes) -> bool:
        """Whether content is the blob of an entry, and that is there."""
        return blob_name(data) == entry.oid and self.objects.size(entry.oid) == len(data)

    def _read_index(self) -> None:
        self._entries, self._converts = {}, False
        config = self._content(f"{self._dirs.common}/config", _CONFIG_BYTES)
        if _OTHER_NAMES.search(config):
            return
        try:
            fd = self._open(f"{self._dirs.own}/index")
        except OSError:
            return
        with open(fd, "rb") as file:
            self._written_ns = os.fstat(fd).st_mtime_ns
            self._entries = git_index.parse(file.read(_INDEX_BYTES))
        named = {os.fsdecode(path) for path in self._entries if path.endswith(b".gitattributes")} | self.attributes
        files = [f"{self._dirs.common}/info/attributes", *(self.prefix + path for path in named)]
        config += self._content(f"{self._dirs.own}/config.worktree", _CONFIG_BYTES)
        self._converts = (
            bool(_ELSEWHERE.search(config))
            or any(_CONVERTS.search(self._content(path, _CONFIG_BYTES)) for path in files)
            or _converts_everywhere()
        )

    def forget_index(self) -> None:
        self._entries = self._ignored = None

    def _content(self, path: str, most: int) -> bytes:
        with suppress(OSError), open(self._open(path), "rb") as file:
            return file.read(most)
        return b""

    def _open(self, path: str) -> int:
        return syscalls.openat2(self._root_fd, os.fsencode(path), _FLAGS, _BENEATH)


def _without_content(dir_fd: int, name: str, info: os.stat_result) -> bytes:
    """The source of an empty file, or of what is no file."""
    if stat_bits.S_ISLNK(info.st_mode):
        try:
            return LINK + os.fsencode(os.readlink(name, dir_fd=dir_fd))
        except OSError:
            return UNREADABLE
    if stat_bits.S_ISREG(info.st_mode):
        return EMPTY
    return b"" if stat_bits.S_ISDIR(info.st_mode) else SPECIAL


def _converts_everywhere() -> bool:
    """Whether the attributes of the machine or the user may make files differ from their blobs."""
    home = os.path.expanduser("~")
    own = os.path.join(os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config", "git")
    for path, pattern in (
        ("/etc/gitattributes", _CONVERTS),
        (f"{own}/attributes", _CONVERTS),
        ("/etc/gitconfig", _ELSEWHERE),
        (f"{own}/config", _ELSEWHERE),
        (f"{home}/.gitconfig", _ELSEWHERE),
    ):
        with suppress(OSError), open(path, "rb") as file:
            if pattern.search(file.read(_CONFIG_BYTES)):
                return True
    return False


def _is_content(source: bytes, data: bytes) -> bool:
    """Whether content is what a source leads to."""
    if source[:1] == SPOOL:
        return digest_of(source)[1:] == hashlib.sha256(data).digest()
    return source[:1] == GIT and source[1:] == blob_name(data)


def _read(dir_fd: int, name: str, size: int) -> bytes:
    fd = os.open(name, _FLAGS, dir_fd=dir_fd)
    try:
        if not stat_bits.S_ISREG(os.fstat(fd).st_mode):
            raise OSError("no regular file any more")
        data = os.pread(fd, size + 1, 0)
        while len(data) < size and (more := os.pread(fd, size - len(data), len(data))):
            data += more
    finally:
        os.close(fd)
    if len(data) != size:
        raise OSError("its size changes while it is read")
    return data
