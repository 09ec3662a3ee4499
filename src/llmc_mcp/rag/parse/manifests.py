"""What the manifests of packages say about names: Cargo.toml, go.mod, package.json and tsconfig.json as bindings.

The names of bindings are `package` (its name), `entry` (the file that an import of it means), `target` (another file
that is a program of its own), `dependency x` (what x is called at home), `export ./x` and `path x/*` (where imports of
that form lead), and `base` (the folder from which absolute imports start). Paths are relative to the manifest.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, cast

from .types import Binding

_NAMES = re.compile(r"Cargo\.toml|go\.mod|package\.json|[jt]sconfig(?:\.\w+)?\.json")
_LARGEST = 1 << 20  # bytes
_MOST = 2_000  # bindings of one manifest
_TARGETS = ("bin", "test", "example", "bench")
_ENTRIES = ("source", "types", "typings", "module", "main", "browser")
_CONDITIONS = ("source", "development", "types", "import", "module", "default", "require", "node", "browser")
_MODULE = re.compile(r'^module\s+"?([^\s"]+)', re.M)
_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?(?:\*/|\Z)', re.S)
_LAST_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])')

Table = dict[str, Any]


def manifest(path: str, source: bytes) -> list[Binding]:
    """What a manifest says; nothing if it is damaged."""
    name = path.rpartition("/")[2]
    if _NAMES.fullmatch(name) is None or len(source) > _LARGEST:
        return []
    text = source.decode("utf-8", "replace")
    found: Iterable[tuple[str, str]]
    try:
        if name == "Cargo.toml":
            found = _cargo(text)
        elif name == "go.mod":
            found = [("package", module[1]) for module in _MODULE.finditer(text)][:1]
        elif name == "package.json":
            found = _package(_object(json.loads(text)))
        else:
            found = _tsconfig(_object(json.loads(_strict(text))))
        said = [(-1, key, value) for key, value in found if "\n" not in key + value]
    except (ValueError, RecursionError):
        return []
    return said[:_MOST]


def _object(value: object) -> Table:
    return cast("Table", value) if isinstance(value, dict) else {}


def _texts(value: object) -> list[str]:
    """The strings of a list."""
    return [one for one in cast("list[object]", value) if isinstance(one, str)] if isinstance(value, list) else []


def _strict(text: str) -> str:
    """JSON without the comments and last commas that tsconfig.json may have."""
    return _LAST_COMMA.sub(lambda found: found[1] or "", _COMMENT.sub(lambda found: found[1] or "", text))


# --- Rust ------------------------------------------------------------------------------------------


def _cargo(text: str) -> Iterator[tuple[str, str]]:
    import tomllib  # most parser workers never see a manifest

    table = _object(tomllib.loads(text))
    package, library = _object(table.get("package")), _object(table.get("lib"))
    name = library.get("name") or package.get("name")
    if isinstance(name, str):
        yield "package", _crate(name)
    if isinstance(where := library.get("path"), str):
        yield "entry", where
    for kind in _TARGETS:
        listed = table.get(kind)
        for target in cast("list[object]", listed) if isinstance(listed, list) else ():
            if isinstance(where := _object(target).get("path"), str):
                yield "target", where
    for dependencies in _dependencies(table):
        for alias, how in dependencies.items():
            real = _object(how).get("package")
            yield f"dependency {_crate(alias)}", _crate(real if isinstance(real, str) else alias)


def _dependencies(table: Table) -> Iterator[Table]:
    holders = [table, _object(table.get("workspace")), *(_object(one) for one in _object(table.get("target")).values())]
    for holder in holders:
        for kind in ("dependencies", "dev-dependencies", "build-dependencies"):
            yield _object(holder.get(kind))


def _crate(name: str) -> str:
    """A package's name as code writes it."""
    return name.replace("-", "_")


# --- JavaScript and TypeScript ---------------------------------------------------------------------


def _package(table: Table) -> Iterator[tuple[str, str]]:
    if isinstance(name := table.get("name"), str):
        yield "package", name
    for key in _ENTRIES:
        if isinstance(where := table.get(key), str):
            yield "entry", where
    exports = table.get("exports")
    if isinstance(exports, str):
        yield "entry", exports
    for key, value in _object(exports).items():
        for where in _leaves(value) if key.startswith(".") else ():
            yield ("entry" if key == "." else f"export {key}"), where


def _leaves(value: object) -> Iterator[str]:
    """The files of an entry of `exports`, whatever the condition."""
    if isinstance(value, str):
        yield value
    conditions = _object(value)
    for key in (*_CONDITIONS, *(one for one in conditions if one not in _CONDITIONS)):
        if key in conditions:
            yield from _leaves(conditions[key])


def _tsconfig(table: Table) -> Iterator[tuple[str, str]]:
    options = _object(table.get("compilerOptions"))
    base = options.get("baseUrl")
    if isinstance(base, str):
        yield "base", base
    for pattern, places in _object(options.get("paths")).items():
        for place in _texts(places):
            yield f"path {pattern}", f"{base}/{place}" if isinstance(base, str) else place
