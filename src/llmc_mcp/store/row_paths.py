"""Where rows carry paths, and how to give them others: in a copy of the store, or when a workspace gets a new name."""

import zlib
from base64 import b85decode, b85encode
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ..errors import Conflict
from ..policy import is_below
from .base import Store
from .root_keys import key_of, paths_of

_PLAIN_BYTES = 16 << 10  # of effects that are stored as they are
_COMPRESSED = "z"  # which no JSON begins with

Translate = Callable[[str], str]


def pack(text: bytes) -> str:
    """JSON as a row has it: compressed where it is long."""
    return text.decode() if len(text) <= _PLAIN_BYTES else _COMPRESSED + b85encode(zlib.compress(text)).decode()


def unpack(text: str) -> bytes:
    """The JSON of such a column."""
    return zlib.decompress(b85decode(text[len(_COMPRESSED) :])) if text.startswith(_COMPRESSED) else text.encode()


def _key(text: str, translate: Translate) -> str:
    return key_of(map(translate, paths_of(text)))


def _named(text: str, translate: Translate) -> str:
    """A path after a prefix, as that of a lease or of an entry of the trash; a plain name has no path."""
    prefix, colon, name = text.rpartition(":")
    return f"{prefix}{colon}{translate(name)}" if "/" in name else text


def _meta(text: str, translate: Translate) -> str:
    meta: dict[str, Any] = msgspec.json.decode(text)
    if "path" in meta:
        meta["path"] = translate(str(meta["path"]))
    return msgspec.json.encode(meta).decode()


def _effects(text: str, translate: Translate) -> str:
    effects: list[dict[str, Any]] = msgspec.json.decode(unpack(text))
    for effect in effects:
        effect.update({end: _named(effect[end], translate) for end in ("path", "target") if end in effect})
    return pack(msgspec.json.encode(effects))


# Of each table with paths: what tells its rows apart, and how each column with paths is translated.
_COLUMNS: dict[str, tuple[str, dict[str, Callable[[str, Translate], str]]]] = {
    "root_sets": ("roots", {"roots": _key}),
    "handles": ("id", {"roots": _key, "meta": _meta}),
    "calls": ("id", {"roots": _key}),
    "changes": ("seq", {"roots": _key, "effects": _effects}),
    "trash": ("entry", {"entry": _named, "path": lambda path, translate: translate(path)}),
    "leftovers": ("path", {"path": _named, "roots": _key}),
    "leases": ("token", {"key": _named}),
    "shared_indexes": ("workspace", {"workspace": lambda name, translate: translate(name)}),
}


def translated(table: str, columns: Sequence[str], row: tuple[object, ...], translate: Translate) -> tuple[object, ...]:
    """A row with other paths."""
    if table not in _COLUMNS:
        return row
    with_paths = _COLUMNS[table][1]
    pairs = zip(columns, row, strict=True)
    return tuple(with_paths[name](str(value), translate) if name in with_paths else value for name, value in pairs)


def rename_workspace(store: Store, old: str, new: str) -> int:
    """Give a workspace another name in all rows; returns how many rows had it. No server may run on it."""

    def translate(name: str) -> str:
        return f"{new}{name[len(old) :]}" if is_below(name, old) else name

    changed = 0
    with store.transaction(durable=True, wait_s=60) as connection:
        if connection.execute("SELECT 1 FROM leases LIMIT 1").fetchone() is not None:
            raise Conflict("servers are at work", hint="Stop them; `llmc locks` lists what they hold.")
        for table, (identity, with_paths) in _COLUMNS.items():
            columns = (identity, *(name for name in with_paths if name != identity))
            setting = ", ".join(f"{name}=?" for name in columns)
            for row in store.query(f"SELECT {', '.join(columns)} FROM {table}"):  # noqa: S608 - own names
                fresh = translated(table, columns, row, translate)
                if fresh != row:
                    connection.execute(f"UPDATE {table} SET {setting} WHERE {identity}=?", (*fresh, row[0]))  # noqa: S608 - own names
                    changed += 1
        for place, name in store.query("SELECT place, name FROM workspaces"):
            if translate(str(name)) != name:
                connection.execute("UPDATE workspaces SET name=? WHERE place=?", (translate(str(name)), place))
                changed += 1
    return changed
