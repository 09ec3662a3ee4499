"""From a typed result to what is sent: the one renderer, and the one place where a reply is cut to size.

JSON replies are the result object. Lean replies are one line of compact JSON, everything but the body, with the
body's length in it, then the body as it is: unescaped text costs a model about a third less than the same text
inside JSON, and the stated length keeps a file's content from posing as anything else.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, cast

import msgspec

from ..tool import Gap, Image, Result, Row, Streams

_SAID_BY_BODY_BYTES = "length"
_SAID_ONLY_IF_TRUE = frozenset({"truncated", "stale"})
_UNWRAPPED = frozenset({"data", "meta"})  # objects that only group fields
_PATH_FIELDS = frozenset({"path", "root", "source", "target", "file"})
_WIDEST = 6  # bytes that one character can take, in UTF-8 or escaped in JSON
_ROOM_FOR_CUT = 120  # what saying that a reply was cut may add to it
_CUT_MARK = " …[cut]"
_LINE_NUMBER = 12  # what stands before a line, and its end

# Escape sequences and other controls could repaint a person's terminal or hide text from a reader.
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class RenderedReply(msgspec.Struct):
    """What a surface sends: text, and maybe an image."""

    text: str
    image: Image | None = None


def fit(result: Result, limit: int, *, lean: bool, first_root: str) -> None:
    """Cut the body of `result` in place so that its rendering stays within `limit` bytes."""
    if not result.body:
        return
    body: object = getattr(result, result.body)
    if isinstance(body, Streams):
        _fit_streams(result, body, limit, lean, first_root)
        return
    setattr(result, result.body, "" if isinstance(body, str) else [])
    around = len(render(result, lean=lean, first_root=first_root).text.encode("utf-8", "replace"))
    setattr(result, result.body, body)
    room = max(limit - around - _ROOM_FOR_CUT, limit // 4)
    if isinstance(body, str):
        if len(body) * _WIDEST <= room:
            return
        pieces: list[object] = [f"{line}\n" for line in body.split("\n")]
        pieces[-1] = body.rsplit("\n", 1)[-1]  # what follows the last newline has none of its own
        kept = _how_many_fit((len(_encoded(cast(str, piece), lean)) for piece in pieces), room)
    else:
        pieces = cast(list[object], body)
        texts = _lean_rows(pieces, first_root) if lean else map(_json, pieces)
        kept = _how_many_fit((len(neutral(text).encode("utf-8", "replace")) + 1 for text in texts), room)
    if kept == len(pieces):
        return
    if kept == 0:  # one piece always goes out: a reply that shows nothing helps nobody
        first = pieces[0]
        pieces = [
            _head(first, room, lean)
            if isinstance(first, str) and isinstance(body, str)
            else _shortened(first, room, lean)
        ]
        kept = 1
    setattr(result, result.body, "".join(cast(list[str], pieces[:kept])) if isinstance(body, str) else pieces[:kept])
    result.cut(kept)


def _fit_streams(result: Result, body: Streams, limit: int, lean: bool, first_root: str) -> None:
    """Errors come first: stderr may take half of the room, stdout gets what it leaves.

    What does not fit is shown by its ends, in half the room: the middle of a flood is read from its handle or not at
    all, and more of its ends costs every reader without telling much.
    """
    out, err = body.stdout, body.stderr
    body.stdout = body.stderr = ""
    around = len(render(result, lean=lean, first_root=first_root).text.encode("utf-8", "replace"))
    room = max(limit - around - _ROOM_FOR_CUT, limit // 4)
    out_size, err_size = len(_encoded(out, lean)), len(_encoded(err, lean))
    if out_size + err_size > room:
        result.cut(0)
        room //= 2
    err_room = min(err_size, max(room // 2, room - out_size))
    body.stderr = _both_ends(err, err_room, lean, body.gaps.get("stderr"))
    body.stdout = _both_ends(out, room - err_room, lean, body.gaps.get("stdout"))


def _both_ends(text: str, room: int, lean: bool, gap: Gap | None) -> str:
    """A text that fits: whole, or its first and last lines; the last ones matter more."""
    if len(_encoded(text, lean)) <= room:
        return text
    lines = text.splitlines(keepends=True)
    room -= len(f"… [{len(lines)} lines left out] …\n".encode()) + 2 * _LINE_NUMBER
    sizes = [len(_encoded(line, lean)) for line in lines]
    head = _how_many_fit(sizes, room * 2 // 5)
    tail = _how_many_fit(reversed(sizes[head:]), room - sum(sizes[:head]))
    if tail == 0:  # the last line alone is too long for what is left
        room -= sum(sizes[:head])
        return "".join(lines[:head]) + f"… [{_count(lines[head:], gap)} lines cut] …\n" + _end_of(text, room, lean)
    left_out = _count(lines[head : len(lines) - tail], gap)
    return "".join([*lines[:head], f"… [{left_out} lines left out] …\n", *lines[len(lines) - tail :]])


def _count(dropped: list[str], gap: Gap | None) -> int:
    """How many lines of a command's output these are, with those that were missing among them."""
    if gap is None or f"{gap.mark}\n" not in dropped:
        return len(dropped)
    return len(dropped) + gap.lines - 2  # the mark is no line of the output, and breaks the one before it


def _end_of(text: str, room: int, lean: bool) -> str:
    text = text[-room:]
    while text and (size := len(_encoded(text, lean))) > room:
        text = text[len(text) - max(len(text) * room // size - 1, 0) :]
    return text


def _how_many_fit(sizes: Iterable[int], room: int) -> int:
    kept = 0
    for size in sizes:
        room -= size
        if room < 0:
            break
        kept += 1
    return kept


def _shortened(row: object, room: int, lean: bool) -> object:
    """A row that alone is too long, with every line of its snippet cut; a name is never cut."""
    if not isinstance(row, Row) or not row.numbered_from:
        return row
    fields = _fields(row)
    lines = cast(str, fields["snippet"]).split("\n")
    others = len(_json(row)) - len(_json(fields["snippet"]))
    share = max(room - others, room // 4) // len(lines)
    return type(row)(**{**fields, "snippet": "\n".join(_head(line, share, lean) for line in lines)})


def _head(line: str, room: int, lean: bool) -> str:
    """As much of the start of a line as fits, with a mark where it was cut."""
    if len(_encoded(line, lean)) + _LINE_NUMBER <= room:
        return line
    end = "\n" if line.endswith("\n") else ""
    room -= len(_CUT_MARK.encode()) + _LINE_NUMBER
    while line and (size := len(_encoded(line, lean))) > room:
        line = line[: max(len(line) * room // size - 1, 0)]
    return line + _CUT_MARK + end


def _encoded(text: str, lean: bool) -> bytes:
    return (neutral(text) if lean else _json(text)[1:-1]).encode("utf-8", "replace")


def _json(value: object) -> str:
    """JSON in which no control character is left; a reader gets every one of them back."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", msgspec.json.encode(value).decode())


def neutral(text: str) -> str:
    """Text in which control characters are seen instead of obeyed."""
    return _CONTROLS.sub(_visible, text)


def render(result: object, *, lean: bool, first_root: str) -> RenderedReply:
    """The reply for a result that `fit` has seen."""
    image: object = getattr(result, "image", None)
    shown_image = image if isinstance(image, Image) else None
    if not lean:
        return RenderedReply(_json(_without_image(result)), shown_image)
    fields = _fields(result)
    body_name = result.body if isinstance(result, Result) else ""
    body: object = fields.pop(body_name, "")
    for name in ("image", *(result.lean_leaves_out if isinstance(result, Result) else ())):
        fields.pop(name, None)
    meta: dict[str, object] = {}
    for name, value in fields.items():
        if name in _UNWRAPPED and value is not None:
            meta |= _fields(value)
        elif value is not None:
            meta[name] = value
    meta = {key: _lean_value(key, value, first_root) for key, value in meta.items() if _worth_saying(key, value)}
    meta.pop(_SAID_BY_BODY_BYTES, None)
    if not body_name:
        return RenderedReply(_json(meta), shown_image)
    if isinstance(body, Streams):
        meta = {"exit_code": body.exit_code, **meta} if body.exit_code is not None else meta
        lines = [_lean_streams(body)]
        if body.stderr:  # what stdout says about a stderr is not believed
            meta["stderr_bytes"] = len(_encoded(body.stderr, lean))
    else:
        lines = [body] if isinstance(body, str) else _lean_rows(cast(list[object], body), first_root)
    text = neutral("\n".join(lines))
    meta["body_bytes"] = len(text.encode("utf-8", "replace"))
    return RenderedReply(f"{_json(meta)}\n{text}", shown_image)


def _lean_streams(body: Streams) -> str:
    if not body.stderr:
        return body.stdout
    gap = "" if not body.stdout or body.stdout.endswith("\n") else "\n"
    return f"{body.stdout}{gap}--- stderr\n{body.stderr}"


def _without_image(result: object) -> object:
    """The image is sent as image content, not a second time inside the text."""
    if isinstance(result, Result) and getattr(result, "image", None) is not None:
        return msgspec.structs.replace(result, image=None)
    return result


def _fields(value: object) -> dict[str, Any]:
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    return dict(cast(dict[str, Any], value))


def _worth_saying(name: str, value: object) -> bool:
    if value is False:
        return name not in _SAID_ONLY_IF_TRUE
    return value is not None and value != {} and value != []


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


def _lean_rows(rows: list[object], first_root: str) -> Iterator[str]:
    group: object = None
    for row in rows:
        group_by = row.group_by if isinstance(row, Row) else ""
        heading = bool(group_by) and getattr(row, group_by) != group
        group = getattr(row, group_by) if group_by else None
        yield _lean_row(row, first_root, heading=heading)


def _lean_row(row: object, first_root: str, *, heading: bool) -> str:
    if not isinstance(row, Row):
        return str(row)
    fields = {
        name: "" if value is None else _listed(_lean_value(name, value, first_root))
        for name, value in _fields(row).items()
    }
    line = _numbered(row, fields) if row.numbered_from else row.line_format.format(**fields)
    if not heading:
        return line
    rev = f" rev={fields['rev']}" if fields.get("rev") else ""
    return f"{fields[row.group_by]}{rev}\n{line}"


def _listed(value: object) -> object:
    """A list as a line shows it; a type of list that is formatted in its own way is left to that."""
    return ", ".join(map(str, cast(list[object], value))) if type(value) is list else value


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
