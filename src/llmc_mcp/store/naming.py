"""How the workspaces of servers that share a store get their names.

A name comes from the configuration. A root without one is named after its folder: the inode and the time when it was
made tell it from any other, whatever its path and wherever its file system is mounted. Names are hierarchical, as
folders are: a root inside a workspace is NAME/rel, so that servers on both exclude each other.

The table `workspaces` has the folders that servers have opened. A root that would get a name of its own although it
lies in one of them, or holds one of them, is refused: its servers and the others would not see each other's leases.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from ..errors import Conflict, InvalidArgument, NotFound
from ..kernel import syscalls
from ..policy import is_below

_SETTING = "mcp.store.workspaces"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9._-]+)*")
_HERE = -100  # AT_FDCWD


class KnownFolder(NamedTuple):
    """A folder that servers know; `above` are the places of the folders that hold it, as JSON."""

    place: str
    name: str
    path: str
    above: str


def place_of(path: str) -> str:
    """What tells a folder from any other; the same by every path and in every container."""
    info = os.stat(path)
    if born := syscalls.birth_ns(_HERE, os.fsencode(path)):
        return f"{info.st_ino:x}.{born:x}"
    return f"{_machine()}.{info.st_dev:x}.{info.st_ino:x}"  # on a file system that doesn't say: only on this machine


def _machine() -> str:
    for path in ("/etc/machine-id", "/proc/sys/kernel/random/boot_id"):
        try:
            with open(path) as file:
                if name := file.read().strip():
                    return name
        except OSError:
            continue
    return ""


def configured(names: Mapping[str, str]) -> dict[str, str]:
    """The names from the configuration, by the real paths of their folders; those that are not here are left out."""
    for folder, name in names.items():
        if not _NAME.fullmatch(name) or ".." in name.split("/"):
            raise InvalidArgument(
                f"{_SETTING}: {name!r} is no name for {folder}", hint="Letters, digits, . _ - and / between parts."
            )
    real = {os.path.realpath(os.path.expanduser(folder)): name for folder, name in names.items()}
    found = {folder: name for folder, name in real.items() if os.path.isdir(folder)}
    for folder, name in found.items():
        if (due := _name_below(folder, found, strictly=True)) and due != name:
            raise InvalidArgument(
                f"{_SETTING}: {folder} is called {name}, and lies in a workspace that makes it {due}",
                hint=f'Call it "{due}".',
            )
    return found


def name_roots(
    roots: Iterable[str], given: Mapping[str, str], known: Iterable[KnownFolder]
) -> tuple[dict[str, str], list[KnownFolder]]:
    """The names of some roots by their paths, and the rows that say so; raises where one is ambiguous."""
    by_place = {row.place: row for row in known}
    names, rows = dict(given), list[KnownFolder]()
    for root in sorted(set(roots)):  # the outer one of nested roots first
        place, above = _place_of_root(root), _above(root)
        holding = next(((path, by_place[at]) for path, at in above if at in by_place), None)
        name, row = _name_below(root, names), by_place.get(place)
        due = row.name if row else f"{holding[1].name}{root[len(holding[0].rstrip('/')) :]}" if holding else ""
        if name and due and name != due:
            raise Conflict(
                f"{root} is {due} for other servers of this store, and {name} here: they would not see each other",
                hint=f'{_SETTING} = {{"{root}" = "{due}"}}; or stop the servers and: llmc store rename {due} {name}',
            )
        name = name or due or f"folder-{hashlib.blake2b(place.encode(), digest_size=6).hexdigest()}"
        _refuse_apart(root, name, place, by_place.values())
        names[root] = name
        rows.append(KnownFolder(place, name, root, msgspec.json.encode([at for _, at in above]).decode()))
        by_place[place] = rows[-1]
    return names, rows


def seen_here(known: Iterable[KnownFolder]) -> dict[str, str]:
    """The names of the known folders that are on this machine, by their paths."""
    found: dict[str, str] = {}
    for row in known:
        try:
            if place_of(row.path) == row.place:
                found[row.path] = row.name
        except OSError:
            continue
    return found


def _place_of_root(root: str) -> str:
    try:
        return place_of(root)
    except OSError as exc:
        raise NotFound(f"the root {root} can't be looked at: {exc.strerror}") from None


def _above(root: str) -> list[tuple[str, str]]:
    """The folders that hold a root, the nearest first, each with its place."""
    found: list[tuple[str, str]] = []
    while root != "/":
        root = os.path.dirname(root)
        found.append((root, place_of(root)))
    return found


def _refuse_apart(root: str, name: str, place: str, known: Iterable[KnownFolder]) -> None:
    """Raise where a root holds a folder that is known by a name which is not below the root's own."""
    for row in known:
        if place in msgspec.json.decode(row.above, type=list[str]) and not is_below(row.name, name):
            raise Conflict(
                f"{root} holds {row.path}, which other servers of this store know as {row.name}:"
                " they would not see what is changed here",
                hint=f"Stop the servers, then: llmc store rename {row.name} {name}/…, with the path of {row.path} in"
                f" {root} in place of …",
            )


def _name_below(path: str, names: Mapping[str, str], *, strictly: bool = False) -> str:
    """The name of a path by those of the folders that hold it; empty if none does."""
    above = [folder for folder in names if is_below(path, folder) and not (strictly and folder == path)]
    if not above:
        return ""
    folder = max(above, key=len)
    return f"{names[folder]}{path[len(folder.rstrip('/')) :]}"
