"""JSON that is too long: all keys, the first rows of lists and how many there are, the start of long strings."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

from .family import Budget, Room

_LARGEST = 4 << 20  # bytes that are parsed
_DEEPEST = 24


class Detail(NamedTuple):
    """How much is shown of lists, strings and objects, and how deep."""

    rows: int
    letters: int
    keys: int
    depth: int


_DETAILS = (
    *(Detail(6, 400, 200, _DEEPEST), Detail(5, 200, 80, _DEEPEST), Detail(4, 120, 60, 10), Detail(3, 80, 40, 6)),
    *(Detail(2, 60, 40, 5), Detail(1, 60, 40, 4), Detail(1, 40, 30, 3), Detail(1, 40, 20, 2)),
)


def condense_json(held: bytes, budget: Budget) -> list[bytes] | None:
    """The most detailed view that fits; None if the text is not JSON, or no view fits."""
    if len(held) > _LARGEST or held.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        value = json.loads(held)
    except (ValueError, RecursionError):
        return None
    for detail in _DETAILS:
        lines = [line.encode("utf-8", "backslashreplace") for line in _view(value, detail, "", 0)]
        if Room(budget).fill(lines) == lines:
            return lines
    return None


def _view(value: Any, detail: Detail, name: str, depth: int) -> Iterator[str]:
    indent = " " * depth
    if isinstance(value, dict) and value:
        members = cast("dict[str, Any]", value)
        if depth >= detail.depth:
            yield f"{indent}{name}{{… {len(members):,} keys left out: {' '.join(members)[: detail.letters]} …}}"
            return
        yield f"{indent}{name}{{"
        for key in list(members)[: detail.keys]:
            yield from _view(members[key], detail, f"{json.dumps(key, ensure_ascii=False)}: ", depth + 1)
        if len(members) > detail.keys:
            rest = " ".join(list(members)[detail.keys :])
            left = f"{len(members) - detail.keys:,} of {len(members):,} keys left out"
            yield f"{indent} … {left}: {rest[: detail.letters * 4]}{' …' * (len(rest) > detail.letters * 4)}"
        yield f"{indent}}}"
    elif isinstance(value, list) and value:
        yield from _list_view(cast("list[Any]", value), detail, name, depth)
    else:
        yield f"{indent}{name}{_scalar(value, detail)}"


def _list_view(rows: list[Any], detail: Detail, name: str, depth: int) -> Iterator[str]:
    indent = " " * depth
    shown = rows[: detail.rows] if depth < detail.depth else []
    if all(not isinstance(row, dict | list) for row in rows):
        left = f", … {len(rows) - len(shown):,} of {len(rows):,} left out" if len(shown) < len(rows) else ""
        yield f"{indent}{name}[{', '.join(_scalar(row, detail) for row in shown)}{left}]"
        return
    yield f"{indent}{name}["
    for row in shown:
        yield from _view(row, detail, "", depth + 1)
    if len(shown) < len(rows):
        yield f"{indent} … {len(rows) - len(shown):,} of {len(rows):,} left out"
    yield f"{indent}]"


def _scalar(value: Any, detail: Detail) -> str:
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= detail.letters:
        return text
    return f'{text[: detail.letters]}…" ({len(text):,} characters)'
