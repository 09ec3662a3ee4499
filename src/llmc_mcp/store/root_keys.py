"""The key of a root set: the form in which a row says which roots it was made under. `te` starts with this."""

from collections.abc import Iterable
from functools import lru_cache


def key_of(paths: Iterable[str]) -> str:
    """The key of some roots; empty for none."""
    ordered = sorted(set(paths))
    return list_of(ordered) if ordered else ""


def list_of(texts: Iterable[str]) -> str:
    """A JSON array of strings."""
    return f"[{','.join(map(_quoted, texts))}]"


@lru_cache(maxsize=4096)
def paths_of(key: str) -> tuple[str, ...]:
    """The roots that a row was made under; none for a row older than root sets, or an invalid key."""
    import msgspec

    try:
        return tuple(msgspec.json.decode(key, type=list[str])) if key else ()
    except msgspec.DecodeError:
        return ()


def _quoted(text: str) -> str:
    """A JSON string. Shown paths have no control characters, and `te` starts without a JSON library."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
