"""The files that a file imports, as hashes of the ways to name them by path; ranking follows them by path alone.

The graph resolves imports exactly, but needs all files of a repository for it (modules.py). For ranking it is enough to
know whether one candidate imports another one.
"""

import posixpath
import zlib
from collections.abc import Iterable
from functools import lru_cache

from . import words
from .languages import traits_of

_MOST = 400  # imports of one file
_HERE = ("./", "../")


def imported(path: str, language: str, imports: Iterable[tuple[str, str]]) -> list[int]:
    """The hashes of everything that a file imports, given as names and paths of their sources."""
    kind, folder = traits_of(language).imports, posixpath.dirname(path)
    found: dict[str, None] = {}
    for name, source in imports:
        if source.startswith("<"):
            for place in _places(kind, folder, source[1:].partition(">")[0], name):
                found[place.lower()] = None
    return [_hash(place) for place in list(found)[:_MOST]]


@lru_cache(50_000)
def names_of(path: str) -> frozenset[int]:
    """The hashes by which other files import a file; its bare name is none, unless it lies at the top."""
    places = [place for place in words.places(path) if "/" in place or "/" not in path]
    folder = posixpath.basename(posixpath.dirname(path)).lower()
    if path.endswith(".go"):
        places.append(f"{folder}/")
    return frozenset(map(_hash, places))


def _places(kind: str, folder: str, module: str, name: str) -> list[str]:
    """The paths that an import may mean: a module, and what may be a module in it."""
    if kind == "folder":
        return [f"{posixpath.basename(module)}/"]
    if module.startswith(_HERE) or kind in ("script", "header"):
        path = posixpath.normpath(posixpath.join(folder, module)) if module.startswith(_HERE) else module
        return [path, posixpath.splitext(path)[0]]
    if kind == "rust":
        path = _rust(folder, module)
    elif kind == "python":
        path = _python(folder, module)
    else:
        path = module.replace(".", "/")
    return [path, f"{path}/{name}".lstrip("/")] if name[:1].islower() else [path]


def _python(folder: str, module: str) -> str:
    bare = module.lstrip(".")
    up = len(module) - len(bare)
    if not up:
        return bare.replace(".", "/")
    around = folder.split("/") if folder else []
    return "/".join([*around[: len(around) - up + 1], *filter(None, bare.split("."))])


def _rust(folder: str, module: str) -> str:
    head, _, rest = module.partition("::")
    inner = rest.replace("::", "/")
    if head in ("self", "super"):
        return posixpath.join(folder, inner)
    return inner if head == "crate" else module.replace("::", "/")


def _hash(place: str) -> int:
    return zlib.crc32(place.encode("utf-8", "replace"))
