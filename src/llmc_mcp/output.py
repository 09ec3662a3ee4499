"""From a typed result to what is sent: the one renderer, and the one place where a reply is cut to size.

JSON replies are the result object. Lean replies are one line of compact JSON, everything but the body, with the
body's length in it, then the body as it is: unescaped text costs a model about a third less than the same text
inside JSON, and the stated length keeps a file's content from posing as anything else.
"""

import re
from collections.abc import Iterable
from typing import Any, cast

import msgspec

from .tool import Image, Result, Row

_SAID_BY_BODY_BYTES = "length"
_UNWRAPPED = frozenset({"data", "meta"})  # objects that only group fields
_PATH_FIELDS = frozenset({"path", "root", "source", "target", "file"})
_WIDEST = 6  # bytes that one character can take, in UTF-8 or escaped in JSON
_ROOM_FOR_META = 600  # what is kept free for everything but the body

# Escape sequences and other controls could repaint a person's terminal or hide text from a reader.
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class Rendered(msgspec.Struct):
    """What a surface sends: text, and maybe an image."""

    text: str
    image: Image | None = None


def fit(result: Result, limit: int, *, lean: bool, first_root: str) -> None:
    """Cut the body of `result` in place so that its rendering stays within `limit` bytes."""
    if not result.body:
        return
    room = limit - min(_ROOM_FOR_META, limit // 2)
    body: object = getattr(result, result.body)
    if isinstance(body, str):
        if len(body) * _WIDEST <= room:
            return
        pieces: list[object] = [f"{line}\n" for line in body.split("\n")]
        pieces[-1] = body.rsplit("\n", 1)[-1]  # what follows the last newline has none of its own
        kept = _how_many_fit((len(_encoded(cast(str, piece), lean)) for piece in pieces), room)
    else:
        pieces = cast(list[object], body)
        kept = _how_many_fit((len(_row_text(row, lean, first_root)) + 1 for row in pieces), room)
    if kept == len(pieces):
        return
    if isinstance(body, str):
        text = "".join(cast(list[str], pieces[: max(kept, 1)]))
        setattr(result, result.body, text if kept else _shorten(text, room, lean))
    else:
        setattr(result, result.body, pieces[: max(kept, 1)])
    result.cut(max(kept, 1))  # one piece always goes out: a reply that shows nothing helps nobody


def _how_many_fit(sizes: Iterable[int], room: int) -> int:
    kept = 0
    for size in sizes:
        room -= size
        if room < 0:
            break
        kept += 1
    return kept


def _shorten(line: str, room: int, lean: bool) -> str:
    """The head of a single line that alone is too long."""
    while len(_encoded(line, lean)) > room:
        line = line[: len(line) * room // len(_encoded(line, lean)) - 1]
    return line


def _encoded(text: str, lean: bool) -> bytes:
    return text.encode("utf-8", "replace") if lean else msgspec.json.encode(text)[1:-1]


def _row_text(row: object, lean: bool, first_root: str) -> bytes:
    if lean:
        return _lean_row(row, first_root, heading=True).encode("utf-8", "replace")
    return msgspec.json.encode(row)


def render(result: object, *, lean: bool, first_root: str) -> Rendered:
    """The reply for a result that `fit` has seen."""
    image: object = getattr(result, "image", None)
    shown_image = image if isinstance(image, Image) else None
    if not lean:
        return Rendered(msgspec.json.encode(result).decode(), shown_image)
    fields = _fields(result)
    body_name = result.body if isinstance(result, Result) else ""
    body: object = fields.pop(body_name, "")
    fields.pop("image", None)
    meta: dict[str, object] = {}
    for name, value in fields.items():
        meta |= _fields(value) if name in _UNWRAPPED and value is not None else {name: value}
    meta = {key: _lean_value(key, value, first_root) for key, value in meta.items() if _worth_saying(value)}
    meta.pop(_SAID_BY_BODY_BYTES, None)
    if not body_name:
        return Rendered(msgspec.json.encode(meta).decode(), shown_image)
    text = _CONTROLS.sub(_visible, _lean_body(body, first_root))
    meta["body_bytes"] = len(text.encode("utf-8", "replace"))
    return Rendered(f"{msgspec.json.encode(meta).decode()}\n{text}", shown_image)


def _fields(value: object) -> dict[str, Any]:
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    return dict(cast(dict[str, Any], value))


def _worth_saying(value: object) -> bool:
    return value is not None and value is not False and value != {} and value != []


def _lean_value(name: str, value: object, first_root: str) -> object:
    if name in _PATH_FIELDS and isinstance(value, str):
        return relative(value, first_root)
    return value


def relative(path: str, first_root: str) -> str:
    """A path as lean text shows it: relative to the first root, absolute elsewhere."""
    if path == first_root:
        return "."
    prefix = first_root.rstrip("/") + "/"
    return path[len(prefix) :] if path.startswith(prefix) else path


def _lean_body(body: object, first_root: str) -> str:
    if isinstance(body, str):
        return body
    lines: list[str] = []
    group: object = None
    for row in cast(list[object], body):
        group_by = row.group_by if isinstance(row, Row) else ""
        heading = bool(group_by) and getattr(row, group_by) != group
        group = getattr(row, group_by) if group_by else None
        lines.append(_lean_row(row, first_root, heading=heading))
    return "\n".join(lines)


def _lean_row(row: object, first_root: str, *, heading: bool) -> str:
    if not isinstance(row, Row):
        return str(row)
    fields = {name: _lean_value(name, value, first_root) for name, value in _fields(row).items()}
    line = _numbered(row, fields) if row.numbered_from else row.line_format.format(**fields)
    return f"{fields[row.group_by]}\n{line}" if heading and row.group_by else line


def _numbered(row: Row, fields: dict[str, Any]) -> str:
    """The lines of a row's snippet with their numbers: `:` behind the one that matched, `-` behind the others."""
    own: int = fields["line"]
    first: int = fields[row.numbered_from] or own
    lines = cast(str, fields["snippet"]).split("\n")
    return "\n".join(f"{n}{':' if n == own else '-'}{text}" for n, text in enumerate(lines, first))


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"\\u{code:04x}"
