"""Sort a folder of downloads: move files into folders by type, and split large groups by year.

Planning changes nothing. Applying a plan is one change in the journal: all or nothing, and undone as one.
Entries that may still be in use stay in place: folders, links, hidden files, unfinished downloads.
"""

import os
import re
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..changes import targets
from ..changes.operations import Operations
from ..changes.records import MakeRecord, SortRecord
from ..changes.steps import Branches, Make, Sort
from ..changes.transaction import Changes, Draft
from ..errors import Conflict, InvalidArgument, LlmcError, NotFound, ResourceBusy, Stale
from ..files import names
from ..files.filesystem import Filesystem, Place, kind_of
from ..session import Session

_KINDS = {
    "Documents": "pdf doc docx odt rtf txt md tex ps djvu pages xls xlsx ods csv tsv ppt pptx odp key ics vcf eml",
    "Images": "jpg jpeg png gif webp svg bmp tif tiff heic heif avif ico raw cr2 nef dng xcf psd ai",
    "Audio": "mp3 flac wav ogg oga opus m4a aac wma aiff mid midi",
    "Video": "mp4 mkv webm mov avi wmv flv m4v mpg mpeg 3gp srt vtt",
    "Archives": "zip tar gz tgz bz2 tbz xz txz zst 7z rar lz4 lzma cab cpio",
    "Installers": "deb rpm appimage snap flatpak flatpakref run exe msi dmg pkg apk jar iso img vdi vmdk qcow2 whl",
    "Books": "epub mobi azw azw3 cbz cbr fb2",
    "Code": "py js ts jsx tsx java c h cpp hpp rs go rb php sh pl lua sql html css scss vue ipynb patch diff kt swift",
    "Data": "json jsonl xml yaml yml toml sqlite db parquet feather arrow avro h5 hdf5 npy npz pkl log pcap gpx",
    "Fonts": "ttf otf woff woff2",
}
_KIND_OF = {ending.encode(): kind for kind, endings in _KINDS.items() for ending in endings.split()}
_OTHER = "Other"
_UNFINISHED = re.compile(
    rb"\.(?:part|partial|crdownload|download|opdownload|aria2|!ut|!qb|ytdl|tmp|temp)$", re.IGNORECASE
)
_PROJECT = (".git", ".hg", "pyproject.toml", "package.json", "Cargo.toml", "go.mod", "Makefile", "pom.xml")
_BY_YEAR_FROM = 60  # a kind with at least this many files is split by year
_MOST_MOVES = 20_000  # per change; the journal stores them in one row
_TRIES = 4  # attempts to apply a plan while the folder keeps changing
_EXAMPLES = 3
_MAX_PROJECT_CHECKS = 200  # folders that are checked for project markers


class Group(NamedTuple):
    """Files that go into one folder."""

    folder: str
    files: int
    bytes: int
    is_new: bool
    examples: list[str]


class Stay(NamedTuple):
    """Entries that are left in place, and why."""

    reason: str
    entries: int
    examples: list[str]


class SortingPlan(NamedTuple):
    """The planned changes; `moves` holds (old name, new name, identity), relative to the folder."""

    folder: Place
    groups: list[Group]
    stays: list[Stay]
    moves: list[tuple[str, str, str]]
    renamed: list[tuple[str, str]]  # files that get another name because theirs is taken


class DownloadSorter:
    """Plans how to sort a folder, and applies plans."""

    def __init__(self, files: Filesystem, changes: Callable[[], Changes], mutations: Callable[[], Operations]) -> None:
        self._files, self._changes, self._mutations = files, changes, mutations

    def find(self, path: str | None) -> Place:
        """Return the folder at `path`; without one, the first downloads folder that exists."""
        if path is not None:
            place = self._files.locate(path)
            os.close(self._files.open_dir(place))
            return place
        first = self._files.roots[0]
        candidates = ["Downloads", downloads_folder()]
        if os.path.basename(first.path).lower() == b"downloads":
            candidates.append(".")
        for candidate in candidates:
            try:
                place = self._files.locate(candidate)
                os.close(self._files.open_dir(place))
            except LlmcError:
                continue
            return place
        raise NotFound(
            f"there is no folder Downloads in {first.shown}, nor one in your home folder within the roots",
            hint="Name the folder: path='…'. One outside of the roots needs a server with --root on it.",
        )

    def plan(self, place: Place, check: Callable[[], None]) -> SortingPlan:
        """Plan which file goes where."""
        top = self._files.open_dir(place)
        try:
            real = self._files.where(top, place.label)
            _refuse_homes(real)
            return _FolderSurvey(self._files, top, real, place, check).plan()
        finally:
            os.close(top)

    def apply(self, who: Session, place: Place, check: Callable[[], None]) -> tuple[SortingPlan, str | None]:
        """Make a new plan and apply it; return the plan, and the id with which to undo it."""
        plan = self.plan(place, check)

        def plan_it(draft: Draft) -> None:
            nonlocal plan
            plan = self.plan(place, check)
            self._draft(draft, plan)

        for left in reversed(range(_TRIES)):
            if not plan.moves:
                break
            try:
                done = self._changes().make(who, "organize", plan_it, check)
                return plan, done.id
            except (Stale, NotFound, Conflict) as exc:  # since planning, a file disappeared or a name was taken
                if not left or isinstance(exc, ResourceBusy):
                    raise
        return plan, None

    def _draft(self, draft: Draft, plan: SortingPlan) -> None:
        if not plan.moves:
            raise Stale(f"{plan.folder.label}: nothing is left to move")
        branches = draft.hold(Branches(self._files.open_dir(plan.folder)))
        folder = self._files.where(branches.top, plan.folder.label).real
        for group in plan.groups:
            self._files.refuse_change(self._files.locate(f"{folder}/{group.folder}"))
            if group.is_new:
                target = draft.hold(targets.find_new(self._files, f"{folder}/{group.folder}"))
                self._mutations().make_folders(draft, target)
                if not any(step.record.path == target.path for step in draft.steps):
                    draft.steps.append(Make(target, MakeRecord(target.path)))
        draft.steps.append(Sort(self._files, branches, SortRecord(folder, plan.moves)))


class _Download(NamedTuple):
    name: bytes
    info: os.stat_result


class _FolderSurvey:
    """One scan of a folder."""

    def __init__(self, files: Filesystem, top: int, real: Place, place: Place, check: Callable[[], None]) -> None:
        self._files, self._top, self._real, self._place, self._check = files, top, real, place, check
        self._device = os.fstat(top).st_dev
        self._stays: dict[str, list[bytes]] = {}
        self._taken: dict[str, set[bytes]] = {}
        self._folders: dict[str, tuple[str, bool]] = {}

    def plan(self) -> SortingPlan:
        present = self._scan()
        by_kind: dict[str, list[_Download]] = {}
        for file in self._movable(present):
            by_kind.setdefault(_KIND_OF.get(_ending(file.name), _OTHER), []).append(file)
        groups: list[Group] = []
        moves: list[tuple[str, str, str]] = []
        renamed: list[tuple[str, str]] = []
        for wanted, files in _split_by_year(by_kind):
            folder, is_new = self._folder(wanted)
            groups.append(Group(folder, len(files), sum(f.info.st_size for f in files), is_new, _examples(files)))
            for file in files:
                name = self._free_name(folder, file.name)
                shown, target = names.show(file.name), f"{folder}/{names.show(name)}"
                moves.append((shown, target, targets.identity(file.info)))
                if name != file.name:
                    renamed.append((shown, target))
        stays = [
            Stay(reason, len(entries), [names.show(name) for name in sorted(entries)[:_EXAMPLES]])
            for reason, entries in sorted(self._stays.items(), key=lambda row: -len(row[1]))
        ]
        return SortingPlan(self._place, groups, stays, moves, renamed)

    def _scan(self) -> dict[bytes, os.stat_result]:
        present: dict[bytes, os.stat_result] = {}
        with os.scandir(self._top) as entries:
            for number, entry in enumerate(entries):
                if not number % 512:
                    self._check()
                try:
                    present[os.fsencode(entry.name)] = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
        if any(os.fsencode(marker) in present for marker in _PROJECT):
            raise InvalidArgument(
                f"{self._place.label}: looks like a project, whose files belong together",
                hint="Name a folder of loose files.",
            )
        return present

    def _movable(self, present: dict[bytes, os.stat_result]) -> Iterator[_Download]:
        """Yield the files in name order; record why anything else stays."""
        count = checked = 0
        for name in sorted(present):
            info = present[name]
            reason = self._reason(name, info, present)
            if reason == "folder" and checked < _MAX_PROJECT_CHECKS:
                checked += 1
                reason = "project folder" if self._is_project(name) else reason
            if reason is None and count >= _MOST_MOVES:
                reason = f"beyond {_MOST_MOVES:,} files, the limit for one change: run it again"
            if reason is not None:
                self._stays.setdefault(reason, []).append(name)
                continue
            count += 1
            yield _Download(name, info)

    def _reason(self, name: bytes, info: os.stat_result, present: dict[bytes, os.stat_result]) -> str | None:
        kind = kind_of(info.st_mode)
        if name.startswith(b"."):
            return "hidden"
        if kind != "file":
            return {"dir": "folder", "symlink": "link"}.get(kind, "not a regular file")
        if _UNFINISHED.search(name) or any(
            name + ending in present for ending in (b".part", b".aria2", b".crdownload")
        ):
            return "download under way"
        path = f"{self._real.real}/{names.show(name)}"
        if self._files.is_secret(path):
            return "its name says it holds a secret"
        if self._files.is_protected(path):
            return "protected"
        return "on another file system" if info.st_dev != self._device else None

    def _is_project(self, name: bytes) -> bool:
        for marker in _PROJECT:
            try:
                os.stat(os.path.join(name, os.fsencode(marker)), dir_fd=self._top, follow_symlinks=False)
            except OSError:
                continue
            return True
        return False

    def _folder(self, wanted: str) -> tuple[str, bool]:
        """Return the folder to use for `wanted`, and whether it is new: `Images-2` where `Images` is a file."""
        if wanted in self._folders:
            return self._folders[wanted]
        above, slash, last = wanted.rpartition("/")
        parent, _ = self._folder(above) if above else ("", True)
        number = 1
        while True:
            name = f"{parent}{slash}{last}" + (f"-{number}" if number > 1 else "")
            is_new = self._usable(name)
            if is_new is not None:
                self._folders[wanted] = (name, is_new)
                return name, is_new
            number += 1

    def _usable(self, name: str) -> bool | None:
        """Return True for a free name, False for an existing folder that can be used, None for anything else."""
        try:
            info = os.stat(name, dir_fd=self._top, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return True
        if kind_of(info.st_mode) != "dir" or info.st_dev != self._device:
            return None
        return False if os.access(name, os.W_OK | os.X_OK, dir_fd=self._top, follow_symlinks=False) else None

    def _free_name(self, folder: str, name: bytes) -> bytes:
        """Return the name, or `name (2).ext` if the folder or another file of this plan already has that name."""
        if folder not in self._taken:
            self._taken[folder] = self._names_in(folder)
        taken = self._taken[folder]
        stem, ending = _parts(name)
        free, number = name, 1
        while free in taken:
            number += 1
            mark = b" (%d)" % number
            free = stem[: names.MAX_NAME_BYTES - len(mark) - len(ending)] + mark + ending
        taken.add(free)
        return free

    def _names_in(self, folder: str) -> set[bytes]:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(folder, flags, dir_fd=self._top)
        except OSError:
            return set()
        try:
            return {os.fsencode(name) for name in os.listdir(fd)}
        finally:
            os.close(fd)


def downloads_folder() -> str:
    """Return the user's downloads folder: the desktop's own setting, which may be localized, else ~/Downloads."""
    settings = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    try:
        with open(os.path.join(settings, "user-dirs.dirs"), encoding="utf-8", errors="replace") as file:
            match = re.search(r'^XDG_DOWNLOAD_DIR="(\$HOME/|/)([^"\n]+)"', file.read(1 << 16), re.MULTILINE)
    except OSError:
        match = None
    if match is None:
        return os.path.expanduser("~/Downloads")
    return os.path.join(os.path.expanduser("~") if match[1] != "/" else "/", match[2])


def _split_by_year(by_kind: dict[str, list[_Download]]) -> Iterator[tuple[str, list[_Download]]]:
    for kind in (*_KINDS, _OTHER):
        files = by_kind.get(kind, [])
        years: dict[str, list[_Download]] = {}
        for file in files:
            years.setdefault(time.strftime("%Y", time.localtime(file.info.st_mtime)), []).append(file)
        if len(files) >= _BY_YEAR_FROM and len(years) > 1:
            yield from ((f"{kind}/{year}", years[year]) for year in sorted(years))
        elif files:
            yield kind, files


def _ending(name: bytes) -> bytes:
    return os.path.splitext(name)[1][1:].lower()


def _parts(name: bytes) -> tuple[bytes, bytes]:
    """Split a name into stem and extension; `.tar.gz` is one extension."""
    stem, ending = os.path.splitext(name)
    if stem.lower().endswith(b".tar"):
        return stem[:-4], stem[-4:] + ending
    return (stem, ending) if len(ending) <= 20 else (name, b"")


def _examples(files: list[_Download]) -> list[str]:
    return [names.show(file.name) for file in files[:_EXAMPLES]]


def _refuse_homes(real: Place) -> None:
    path = os.path.join(real.root.real, real.below) if real.below != b"." else real.root.real
    if path in (b"/", os.fsencode(os.path.realpath(os.path.expanduser("~")))):
        raise InvalidArgument(
            f"{real.label}: not a folder of downloads; programs look for their files there",
            hint="Name a folder of loose files.",
        )
