"""Folders that are only followed as a whole (git's objects), where a command has moved or deleted them.

One that has another path now is moved back by an undo. Under a name that means nothing to git its content was found as
new files: these go with the folder.
"""

import os
from collections.abc import Mapping, Sequence

from ..kernel import syscalls
from ..tracking.entries import Difference, EntryLook, whole
from ..tracking.tree import RootTree

Found = dict[tuple[int, str], Difference]  # by number of the root and path


def with_moves(found: Mapping[tuple[int, str], Difference], trees: Sequence[RootTree]) -> tuple[Found, set[bytes]]:
    """The differences, with each moved folder as one that goes and one that comes; and the sources of these folders."""
    merged, moved = dict(found), set[bytes]()
    for (number, path), one in found.items():
        if one.before is None or not one.before.is_whole or (one.after and one.after.source == one.before.source):
            continue
        source = one.before.source
        for target in [where for (tree, where), other in found.items() if tree == number and _came(other, one.before)]:
            look = found[number, target].after
            if look is not None and _source_of(trees[number], target, look) == source:
                moved.add(source)
                arrived = EntryLook(look.ctime_ns, look.ino, look.mode, look.size, look.mtime_ns, source)
                merged[number, target] = merged[number, target]._replace(after=arrived)
                for other in [key for key in merged if key[0] == number and key[1].startswith(f"{target}/")]:
                    del merged[other]
        merged[number, path] = one
    return merged, moved


def _came(one: Difference, look: EntryLook) -> bool:
    return one.after is not None and one.after.is_folder and one.after.ino == look.ino


def _source_of(tree: RootTree, path: str, look: EntryLook) -> bytes:
    """What tells a folder from another one that has its inode now."""
    if look.is_whole:
        return look.source
    try:
        return whole(look.ino, syscalls.birth_ns(tree.root.fd, os.fsencode(path)))
    except OSError:
        return b""
