"""What a path that leads nowhere may have meant: names like its first missing part, in the folder that lacks it."""

import os
from collections.abc import Callable, Iterator
from itertools import islice

from . import names

_LOOKED_AT = 1_000  # names of a folder
_OFFERED = 3


def near_paths(
    label: str, below: bytes, open_folder: Callable[[bytes], int], shows: Callable[[int, bytes], bool]
) -> str:
    """A sentence with the nearest paths, spelled as the caller spelled `label`; empty where nothing is near.

    `open_folder` opens a folder below the root of `below`; `shows` tells whether a name in it may be shown.
    """
    parts = below.split(b"/")
    for depth in range(len(parts) - 1, -1, -1):
        try:
            folder = open_folder(b"/".join(parts[:depth]) or b".")
        except OSError:
            continue
        try:
            found = [names.show(name) for name in _near(parts[depth], folder) if shows(folder, name)]
        finally:
            os.close(folder)
        above = label.rstrip("/").split("/")[: depth - len(parts)]
        paths = ["/".join([*above, name]) for name in found[:_OFFERED]]
        return f"Nearest: {', '.join(paths)}." if paths else ""
    return ""


def _near(wanted: bytes, folder: int) -> Iterator[bytes]:
    """Names like the wanted one, the nearest first; hidden ones only where one was wanted."""
    import difflib

    by_key: dict[str, list[bytes]] = {}
    with os.scandir(folder) as entries:
        for entry in islice(entries, _LOOKED_AT):
            if wanted.startswith(b".") or not entry.name.startswith("."):
                by_key.setdefault(entry.name.lower(), []).append(os.fsencode(entry.name))
    for key in difflib.get_close_matches(os.fsdecode(wanted).lower(), by_key, _OFFERED * 2):
        yield from by_key[key]
