"""Copies of a checkout that commands may change: what they changed, and back again."""

import hashlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_UPLOAD = "git -c safe.directory=* -c uploadpack.allowAnySHA1InWant=true upload-pack"
_UNCOMPARED = frozenset(
    (".git", "__pycache__")
)  # times and inodes of the index; bytecode, which our commands don't keep


class Effect(NamedTuple):
    """What a path became: its mode and a digest of its content; both empty where it is gone."""

    mode: int = 0
    content: str = ""


class _Seen(NamedTuple):
    mode: int
    size: int
    modified: int
    changed: int


class Copy:
    """A folder, and how it looked when it was last in order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen = _look(path)

    def changed(self) -> list[str]:
        """The paths, relative, that are no longer as they were; outermost first."""
        now = _look(self.path)
        return sorted(path for path in {*now, *self._seen} if now.get(path) != self._seen.get(path))

    def effects(self, changed: Iterable[str], before: "Copy") -> dict[str, Effect]:
        """What a command did to the files, beside another copy that it did not see."""
        found: dict[str, Effect] = {}
        for path in changed:
            if _UNCOMPARED.isdisjoint(Path(path).parts):
                effect = _effect(self.path / path)
                if effect != _effect(before.path / path):
                    found[path] = effect
        return found

    def take(self, source: "Copy", paths: list[str]) -> None:
        """Make the paths what they are in another copy, times included."""
        for path in reversed(paths):
            target = self.path / path
            if _is_folder(target) and not _is_folder(source.path / path):
                _remove_tree(target)
            elif os.path.lexists(target) and not _is_folder(target):
                target.unlink()
        folders: list[str] = []
        for path in paths:
            origin, target = source.path / path, self.path / path
            if _is_folder(origin):
                target.mkdir(exist_ok=True)
                folders.append(path)
            elif os.path.lexists(origin):
                shutil.copy2(origin, target, follow_symlinks=False)
        for path in reversed(folders):  # whose times change with what is put into them
            shutil.copystat(source.path / path, self.path / path)
        self.keep()

    def keep(self) -> None:
        """Take how the folder looks now as the order it is in."""
        self._seen = _look(self.path)


def check_out(repository: Path, commit: str, target: Path) -> None:
    """A commit with nothing of its history, so that the copy needs no other folder."""
    git = ["git", "-C", str(target), "-c", "advice.detachedHead=false"]
    env = {**os.environ, "GIT_NO_LAZY_FETCH": "1"}
    target.mkdir(parents=True)
    for words in (
        ["init", "-q"],
        ["fetch", "-q", "--depth", "1", "--no-tags", "--upload-pack", _UPLOAD, f"file://{repository}", commit],
        ["checkout", "-q", "FETCH_HEAD"],
        ["config", "user.name", "Agent"],
        ["config", "user.email", "agent@example.org"],
        ["config", "gc.auto", "0"],
    ):
        subprocess.run([*git, *words], check=True, capture_output=True, env=env)


def duplicate(source: Copy, target: Path) -> Copy:
    """Another copy; its index is told about its own files."""
    subprocess.run(["cp", "-a", "--reflink=auto", str(source.path), str(target)], check=True)
    subprocess.run(["git", "-C", str(target), "status"], check=True, capture_output=True)
    return Copy(target)


def _look(folder: Path) -> dict[str, _Seen]:
    found: dict[str, _Seen] = {}
    todo = [str(folder)]
    skip = len(todo[0]) + 1
    while todo:
        with os.scandir(todo.pop()) as entries:
            for entry in entries:
                info = entry.stat(follow_symlinks=False)
                found[entry.path[skip:]] = _Seen(info.st_mode, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
    return found


def _effect(path: Path) -> Effect:
    try:
        info = path.lstat()
    except OSError:
        return Effect()
    if stat.S_ISLNK(info.st_mode):
        return Effect(info.st_mode, os.readlink(path))
    if stat.S_ISREG(info.st_mode):
        with path.open("rb") as file:
            return Effect(info.st_mode, hashlib.file_digest(file, "sha256").hexdigest())
    return Effect(info.st_mode)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _remove_tree(path: Path) -> None:
    for folder, _, _ in os.walk(path):
        os.chmod(folder, 0o700)
    shutil.rmtree(path)
