"""Where git keeps what belongs to a work tree, and what the paths in there mean.

A work tree has a `.git` folder, or a file of that name which leads to one (linked work trees, submodules). Only paths
are looked at, and one file of a few bytes; what lies outside of the root is not followed.
"""

import os
import stat as stat_bits
from typing import NamedTuple

from ..files.filesystem import Root
from ..kernel import syscalls

_BENEATH = syscalls.RESOLVE_BENEATH | syscalls.RESOLVE_NO_SYMLINKS | syscalls.RESOLVE_NO_MAGICLINKS
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LINK_BYTES = 8 << 10
_NO_GIT_DIRS = frozenset(("refs", "logs", "hooks", "info"))


class GitDirs(NamedTuple):
    """Relative to the root: `own` has HEAD and the index, `common` has refs, objects and configuration."""

    own: str
    common: str


class OutsideOfRoot(Exception):
    """A work tree whose repository can't be looked at."""


def find(root: Root, folder: str) -> GitDirs:
    """The folders of the work tree in a folder; OSError where there is none."""
    link = f"{folder}/.git" if folder else ".git"
    info = os.stat(link, dir_fd=root.fd, follow_symlinks=False)
    if stat_bits.S_ISDIR(info.st_mode):
        return GitDirs(link, link)
    text = read(root.fd, link, _LINK_BYTES).decode("utf-8", "surrogateescape").strip()
    if not text.startswith("gitdir:"):
        raise NotADirectoryError(link)
    own = _below(root, folder, text[7:].strip())
    try:
        common = read(root.fd, f"{own}/commondir", _LINK_BYTES).decode("utf-8", "surrogateescape").strip()
    except FileNotFoundError:
        return GitDirs(own, own)
    return GitDirs(own, _below(root, own, common))


def read(root_fd: int, path: str | bytes, most: int) -> bytes:
    """The first bytes of a regular file below a root."""
    fd = syscalls.openat2(root_fd, os.fsencode(path), _FLAGS, _BENEATH)
    with open(fd, "rb") as file:
        if not stat_bits.S_ISREG(os.fstat(fd).st_mode):
            raise OSError("no regular file")
        return file.read(most)


def _below(root: Root, folder: str, path: str) -> str:
    """A path that git has noted, relative to the root."""
    top = os.fsdecode(root.real).rstrip("/")
    full = os.path.normpath(os.path.join(f"{top}/{folder}", path))
    if not full.startswith(f"{top}/"):
        raise OutsideOfRoot(full)
    return full[len(top) + 1 :]


# --- what paths mean -------------------------------------------------------------------------------


def git_dir_of(path: str) -> str | None:
    """The innermost git directory that a path is in, relative to the root; None for one that is in none."""
    if ".git/" not in path:
        return None
    at = f"/{path}".find("/.git/")
    if at < 0:
        return None
    parts, inner = path[at + 5 :].split("/")[:-1], 0
    for end in range(1, len(parts) + 1):
        if _is_git_dir(parts[:end]):
            inner = end
    return "/".join((path[: at + 4], *parts[:inner]))


def _is_git_dir(parts: list[str]) -> bool:
    """Whether a folder inside of `.git`, given by the parts of its path, is of a submodule or a linked work tree."""
    if not parts:
        return True
    if parts[-1] in ("modules", "worktrees") or not _NO_GIT_DIRS.isdisjoint(parts):
        return False
    return parts[0] == "modules" or (parts[0] == "worktrees" and len(parts) == 2)


def is_index(path: str) -> bool:
    """Whether a path is that of an index."""
    return path.endswith("index") and is_file_of_git_dir(path, "index")


def is_file_of_git_dir(path: str, name: str) -> bool:
    """Whether a path is that name, directly in a git directory."""
    folder, _, last = path.rpartition("/")
    return last == name and git_dir_of(path) == folder


def is_kept_whole(path: str) -> bool:
    """Whether a path is that of a folder of objects, whose content is left as it is."""
    return path.endswith(("/objects", "/lfs")) and is_file_of_git_dir(path, path.rpartition("/")[2])
