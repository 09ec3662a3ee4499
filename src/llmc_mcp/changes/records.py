"""What the journal stores of a step: a plain struct, from which another process can rebuild it."""

import os
from collections.abc import Sequence

import msgspec

from .tree import MANY, TreeRecord

TRASH = "trash:"  # prefix of a path that names an entry of the trash


class ContentImage(msgspec.Struct, omit_defaults=True):
    """A file's content."""

    sha256: str
    size: int
    mode: int


class PutRecord(msgspec.Struct, tag="put", omit_defaults=True):
    """A file gets new content; `before` is None for a new file."""

    path: str
    after: ContentImage
    before: ContentImage | None = None
    mode: int | None = None  # where the change set it
    kept: bool = True  # False: too large for the journal, and the caller allowed that
    added: int | None = None  # lines; None: not counted
    removed: int | None = None
    replaces: str = ""  # the file that it replaces, as `looks_of` says


class MoveRecord(msgspec.Struct, tag="move", omit_defaults=True):
    """An entry gets another name; either may be in the trash. `looks` is its fingerprint, unless it is trashed."""

    path: str
    target: str
    kind: str
    inode: str
    looks: str = ""
    bytes: int = 0
    copied: bool = False  # between mounts


class MakeRecord(msgspec.Struct, tag="mkdir", omit_defaults=True):
    """A directory is made."""

    path: str


class RemoveRecord(msgspec.Struct, tag="rmdir", omit_defaults=True):
    """An empty directory is removed."""

    path: str
    mode: int


class SortRecord(msgspec.Struct, tag="sort"):
    """Many files get other names below one folder: (old name, new name, identity), relative to the folder."""

    path: str
    moves: list[tuple[str, str, str]]


Record = PutRecord | MoveRecord | MakeRecord | RemoveRecord | SortRecord | TreeRecord


def left_behind(record: Record) -> list[str]:
    """The paths that no longer exist after a step."""
    if isinstance(record, SortRecord):
        return [f"{record.path}/{old}" for old, _, _ in record.moves]
    if isinstance(record, TreeRecord):
        return [f"{record.path}/{entry.path}" for entry in record.entries if entry.after is None]
    return [record.path]


def written_by(record: Record) -> list[str]:
    """The files that have content of a step."""
    if isinstance(record, TreeRecord):
        files = [entry.path for entry in record.entries if entry.after is not None and entry.after.kind == "file"]
        return [f"{record.path}/{path}" for path in files if "/.git/" not in f"/{path}"]
    if isinstance(record, MoveRecord):
        return [] if record.target.startswith(TRASH) else [record.target]
    return [record.path] if isinstance(record, PutRecord) else []


def leftovers_of(steps: Sequence[tuple[Record, bytes]]) -> list[str]:
    """What published steps leave to be removed once their change is done: what the journal has no copy of.

    Each step comes with its temporary name. A folder that is removed may have held originals of copies.
    """
    left: list[str] = []
    for record, temporary in steps:
        if isinstance(record, TreeRecord):
            left.append(f"{record.path}/{temporary.decode()}")
            continue
        original = isinstance(record, MoveRecord) and record.copied
        replaced = isinstance(record, PutRecord) and not record.kept
        if original or replaced or (left and isinstance(record, RemoveRecord)):
            folder = TRASH if record.path.startswith(TRASH) else f"{os.path.dirname(record.path)}/"
            left.append(f"{folder}{temporary.decode()}")
    return left


def paths_of(record: Record) -> list[str]:
    """The paths below the roots that a step changes."""
    if isinstance(record, TreeRecord):
        return record.paths()
    both = [record.path, record.target] if isinstance(record, MoveRecord) else [record.path]
    return [path for path in both if not path.startswith(TRASH)]


def locks_all_below(record: Record) -> bool:
    """Whether a step changes what lies below its paths."""
    if isinstance(record, TreeRecord):
        return len(record.entries) > MANY
    return isinstance(record, SortRecord) or (isinstance(record, MoveRecord) and record.kind == "dir")
