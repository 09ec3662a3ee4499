"""What the journal stores of a step: a plain struct, from which another process can rebuild it."""

from collections.abc import Callable, Sequence

import msgspec

from ..store.workspaces import is_elsewhere
from .tree import MANY, TreeRecord

# The prefix of a path that names an entry of the trash: of the one in the data directory by its name, of one in a
# workspace by its path.
TRASH = "trash:"


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


def renamed(record: Record, translate: Callable[[str], str]) -> Record:
    """The record with other paths: those that rows carry, or those of this server."""
    path = renamed_entry(record.path, translate)
    if isinstance(record, MoveRecord):
        return msgspec.structs.replace(record, path=path, target=renamed_entry(record.target, translate))
    return msgspec.structs.replace(record, path=path)


def renamed_entry(path: str, translate: Callable[[str], str]) -> str:
    """The same of one path, which may name an entry of the trash."""
    if not path.startswith(TRASH):
        return translate(path)
    entry = path[len(TRASH) :]
    return f"{TRASH}{translate(entry)}" if "/" in entry else path


def is_lost(path: str) -> bool:
    """Whether a path, of a file or of an entry of the trash, belongs to a workspace that this server has not."""
    return is_elsewhere(path.removeprefix(TRASH))


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
            folder, slash, _ = record.path.rpartition("/")
            left.append(f"{folder if slash else TRASH}{slash}{temporary.decode()}")
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
