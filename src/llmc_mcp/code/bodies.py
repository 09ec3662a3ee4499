"""Replace, delete or insert beside a definition, found by its qualified name in the file as it is now."""

from collections.abc import Callable
from typing import Literal, NamedTuple

from ..errors import InvalidArgument, NotFound
from ..rag.parse.detect import language_of
from ..rag.parse.languages import PARSED
from ..rag.parse.name_types import Outline, OutlinedDefinition
from .parser import CodeParser

BodyAction = Literal["replace_body", "insert_before", "insert_after", "delete"]

_FUNCTIONS = frozenset({"function", "method", "constructor", "macro"})
_SHOWN = 12


class BodyEdit(NamedTuple):
    """A file with one definition changed."""

    after: bytes
    qualname: str
    line: int
    signature: str  # before; "" of what is no function
    new_signature: str  # "" if the definition is gone


def edit(
    path: str,
    data: bytes,
    qualname: str,
    action: BodyAction,
    text: str,
    parser: CodeParser,
    check: Callable[[], None],
) -> BodyEdit:
    """Change the definition that a name means in a file with this content."""
    language = language_of(path, data[:4096])
    if language not in PARSED:
        raise InvalidArgument(f"{path}: its language is not known", hint="linux_fs_edit changes any text.")
    outline = parser.outline(language, data, check)
    if not outline.complete:
        raise InvalidArgument(f"{path}: it could not be parsed", hint="linux_fs_edit changes any text.")
    place = _find(path, outline, qualname, action)
    one = outline.definitions[place]
    _check_end(path, data, one, outline.error_lines)
    ends = "\r\n" if data.count(b"\r\n") * 2 > data.count(b"\n") else "\n"
    indentation = _indentation(data, one.start)
    if action == "delete":
        after = _without(data, one)
    else:
        fitted = parser.outline(language, text.encode(), check)
        lines = _indented(text, indentation, fitted)
        if action == "replace_body":
            after = _replaced(data, one, lines, fitted, ends)
        else:
            after = _inserted(data, outline, place, lines, ends, before=action == "insert_before")
    signature = one.signature if one.kind in _FUNCTIONS else ""
    changed = parser.outline(language, after, check) if signature else Outline([], [])
    same = [other.signature for other in changed.definitions if other.qualname == one.qualname]
    new = signature if signature in same else next(iter(same), "")
    return BodyEdit(after, one.qualname, one.line, signature, new)


def _find(path: str, outline: Outline, qualname: str, action: BodyAction) -> int:
    """The definition with a qualified name, or whose qualified name ends with it."""
    wanted = qualname.replace("::", ".").replace("#", ".").strip().removesuffix("()")
    found = [place for place, one in enumerate(outline.definitions) if one.qualname == wanted]
    found = found or [place for place, one in enumerate(outline.definitions) if one.qualname.endswith(f".{wanted}")]
    real = [place for place in found if outline.definitions[place].kind not in ("prototype", "impl")] or found
    if not real:
        names = ", ".join(one.qualname for one in outline.definitions[:_SHOWN])
        raise NotFound(f"{path} defines no {qualname}", hint=f"It defines {names or 'nothing'}.")
    if len(real) > 1:
        where = ", ".join(f"{path}:{outline.definitions[place].line}" for place in real[:_SHOWN])
        raise InvalidArgument(
            f"{qualname} is defined {len(real)} times: {where}",
            hint=f"For {action} of one of them, use linux_fs_edit with its lines.",
        )
    return real[0]


def _check_end(path: str, data: bytes, one: OutlinedDefinition, error_lines: list[int]) -> None:
    """Refuse a definition into which a syntax error, such as an unclosed bracket, has drawn what follows it."""
    lines = data[one.head : one.end].split(b"\n")
    error = next((line for line in error_lines if 0 <= line - one.line < len(lines)), 0)
    margin = len(_indentation(data, one.head))
    if error and any(_begins_at(line, margin) for line in lines[1:]):
        raise InvalidArgument(
            f"{path}: a syntax error at line {error} hides where {one.qualname} ends",
            hint="Correct it with linux_fs_edit, or undo the change that made it.",
        )


def _begins_at(line: bytes, margin: int) -> bool:
    """Whether something begins at a margin or left of it: a word or a decorator, no bracket."""
    text = line.lstrip()
    return len(line) - len(text) <= margin and (text[:1].isalpha() or text[:1] in (b"_", b"@"))


def _indentation(data: bytes, at: int) -> str:
    start = data.rfind(b"\n", 0, at) + 1
    before = data[start:at]
    return before.decode(errors="replace") if not before.strip() else ""


def _indented(text: str, indentation: str, fitted: Outline) -> list[str]:
    """The lines of a text, indented unless they are already; lines inside a string stay as they are."""
    lines = text.replace("\r\n", "\n").strip("\n").split("\n")
    offset = len(text.replace("\r\n", "\n")) - len(text.replace("\r\n", "\n").lstrip("\n"))
    if not indentation or lines[0].startswith((" ", "\t")):
        return lines
    inside = {row - offset for row in fitted.in_strings}
    return [indentation + line if line.strip() and row not in inside else line for row, line in enumerate(lines)]


def _replaced(data: bytes, one: OutlinedDefinition, lines: list[str], fitted: Outline, ends: str) -> bytes:
    """What stands above the definition stays, unless the text has comments or decorators of its own."""
    brings_its_own = any(new.start < new.head for new in fitted.definitions[:1])
    start = one.start if brings_its_own else one.head
    start -= len(_indentation(data, start).encode())
    end = one.end - (data[one.end - 1 : one.end] == b"\n")
    return data[:start] + ends.join(lines).encode() + data[end:]


def _line_range(data: bytes, one: OutlinedDefinition) -> tuple[int, int]:
    """The whole lines of a definition, if it has them for itself."""
    start = data.rfind(b"\n", 0, one.start) + 1
    if data[start : one.start].strip():
        start = one.start
    end = data.find(b"\n", max(one.end - 1, one.start))
    end = len(data) if end < 0 else end + 1
    return start, end if not data[one.end : end].strip(b" \t\r\n;,") else one.end


def _without(data: bytes, one: OutlinedDefinition) -> bytes:
    start, end = _line_range(data, one)
    before, after = data[:start], data[end:]
    blank_before = len(before) - len(before.rstrip())
    blank_after = len(after) - len(after.lstrip(b"\r\n"))
    if before.endswith(b"\n") and blank_before >= blank_after:
        after = after.lstrip(b"\r\n")  # the gap above stays
        if not after.strip():
            return before.rstrip() + b"\n" if before.strip() else b""
    return before + after


def _inserted(data: bytes, outline: Outline, place: int, lines: list[str], ends: str, *, before: bool) -> bytes:
    one = outline.definitions[place]
    start, end = _line_range(data, one)
    gap = ends * (_blank_lines(data, outline, place, lines) + 1)
    text = ends.join(lines)
    if before:
        return data[:start] + (text + gap).encode() + data[start:]
    head = data[:end]
    head = head if head.endswith(b"\n") else head + ends.encode()
    return head + (gap[len(ends) :] + text + ends).encode() + data[end:]


def _blank_lines(data: bytes, outline: Outline, place: int, lines: list[str]) -> int:
    """As many as around the definition; next to nothing, what is usual between functions."""
    one = outline.definitions[place]
    siblings = [other for other in outline.definitions if other.parent == one.parent]
    at = siblings.index(one)
    for first, second in ((at, at + 1), (at - 1, at)):
        if first >= 0 and second < len(siblings):
            end = len(data[: siblings[first].end].rstrip(b"\r\n"))  # some grammars count the line's end in
            between = data[end : siblings[second].start]
            if not between.strip(b" \t\r\n;,"):
                return max(between.count(b"\n") - 1, 0)
    if len(lines) == 1 and b"\n" not in data[one.start : one.end]:
        return 0
    return 2 if one.parent < 0 and data[one.head : one.head + 4] in (b"def ", b"clas", b"asyn") else 1
