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
# An index is as true for the files of a copy, which have the same size and time, as for its own.
_SETTINGS = """[user]
\tname = Agent
\temail = agent@example.org
[gc]
\tauto = 0
[core]
\tcheckStat = minimal
\ttrustctime = false
"""
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
            if os.path.lexists(target) and not (_is_folder(target) and _is_folder(source.path / path)):
                _remove(target)
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
        self.keep(paths)

    def keep(self, paths: list[str]) -> None:
        """Take how these paths look now, and the folders they are in, as the order they are in."""
        for path in {*paths, *(os.path.dirname(path) for path in paths)} - {""}:
            try:
                info = os.lstat(self.path / path)
            except (FileNotFoundError, NotADirectoryError):
                self._seen.pop(path, None)
            else:
                self._seen[path] = _seen(info)


class Checkout:
    """A work tree at one of some commits, with nothing of their history, so that it needs no other folder.

    Going from one commit to another writes only what differs between them, and leaves nothing of what was done since.
    """

    def __init__(self, repository: Path, commits: list[str], target: Path) -> None:
        self._path = target
        target.mkdir(parents=True)
        self._git("init", "-q")
        self.commits = self._fetched(f"file://{repository}", commits)

    def _fetched(self, source: str, commits: list[str]) -> list[str]:
        """The commits of which the repository has everything, fetched together as far as that is possible."""
        try:
            self._git("fetch", "-q", "--depth", "1", "--no-tags", "--upload-pack", _UPLOAD, source, *commits)
        except subprocess.CalledProcessError:
            middle = len(commits) // 2
            halves = (commits[:middle], commits[middle:]) if middle else ()
            return [commit for half in halves for commit in self._fetched(source, half)]
        return commits

    def go_to(self, commit: str) -> None:
        """Have the files of a commit and nothing else, and a `.git` that knows no other."""
        for entry in (self._path / ".git").iterdir():
            if entry.name not in ("objects", "index"):
                _remove(entry)
        self._git("init", "-q")
        (self._path / ".git" / "shallow").write_text("".join(f"{one}\n" for one in self.commits))
        (self._path / ".git" / "HEAD").write_text(f"{commit}\n")
        with (self._path / ".git" / "config").open("a") as config:
            config.write(_SETTINGS)
        self._git("reset", "-q", "--hard")
        self._git("clean", "-ffdxq")

    def _git(self, *words: str) -> None:
        env = {**os.environ, "GIT_NO_LAZY_FETCH": "1"}
        subprocess.run(["git", "-C", str(self._path), *words], check=True, capture_output=True, env=env)


def duplicate(source: Copy, target: Path) -> Copy:
    """Another copy."""
    subprocess.run(["cp", "-a", "--reflink=auto", str(source.path), str(target)], check=True)
    return Copy(target)


def _look(folder: Path) -> dict[str, _Seen]:
    found: dict[str, _Seen] = {}
    todo = [str(folder)]
    skip = len(todo[0]) + 1
    while todo:
        with os.scandir(todo.pop()) as entries:
            for entry in entries:
                info = entry.stat(follow_symlinks=False)
                found[entry.path[skip:]] = _seen(info)
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
    return found


def _seen(info: os.stat_result) -> _Seen:
    return _Seen(info.st_mode, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


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


def _remove(path: Path) -> None:
    if not _is_folder(path):
        path.unlink()
        return
    for folder, _, _ in os.walk(path):
        os.chmod(folder, 0o700)
    shutil.rmtree(path)
