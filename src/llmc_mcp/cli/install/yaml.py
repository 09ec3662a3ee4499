"""Edit YAML as text: set or remove one entry below a top-level key and keep every other byte.

Only the plain form is read: top-level keys at the start of a line, entries on lines of their own below. Anything else
is refused, never damaged. Our entry is written as one line of JSON, which is YAML too.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from .jsonc import Unreadable

_TOP = re.compile(r"""^(?:(\w[\w .-]*+)|"([^"]*)"[ ]*|'([^']*)'[ ]*):(?:[ ]++(.*))?$""")
_EMPTY = ("", "{}", "null", "~")
_INDENT = "  "


class _Block(NamedTuple):
    """A key with its value: the lines from `start` up to `end`, and what follows the colon on the first."""

    start: int
    end: int
    inline: str


def parse(text: str) -> dict[str, Any]:
    """The top-level keys; their values are objects of entries where they are read, else text."""
    lines = _lines(text)
    found = dict[str, Any]()
    for name, block in _blocks(lines, 0, len(lines), "").items():
        children = _children(lines, block)
        if children is None:
            found[name] = "\n".join(lines[block.start : block.end]).rstrip()
        else:
            found[name] = {child: _value(lines, below) for child, below in children.items()}
    return found


def put(text: str, path: Sequence[str], values: dict[str, object]) -> str:
    """Set an entry; a missing key above it is appended."""
    table, name = path
    lines = _lines(text)
    top = _blocks(lines, 0, len(lines), "").get(table)
    shown = f"{name}: {json.dumps(values, ensure_ascii=False)}"
    if top is None:
        end = "" if not text or text.endswith("\n") else "\n"
        return f"{text}{end}{table}:\n{_INDENT}{shown}\n"
    children = _children(lines, top)
    if children is None:
        raise Unreadable(top.start + 1, f"{table} is written in a form that is not touched")
    indent = _indent_of(lines[next(iter(children.values())).start]) if children else _INDENT
    there = children.get(name)
    if there is not None:
        lines[there.start : there.end] = [indent + shown]
    else:
        last = max((one.end for one in children.values()), default=top.start + 1)
        lines[last:last] = [indent + shown]
        lines[top.start] = lines[top.start] if top.inline == "" or children else f"{table}:"
    return "\n".join(lines) + "\n" * text.endswith("\n")


def cut(text: str, path: Sequence[str]) -> str:
    """Remove an entry; a key that holds nothing else goes with it."""
    table, name = path
    lines = _lines(text)
    top = _blocks(lines, 0, len(lines), "").get(table)
    children = _children(lines, top) if top else None
    if top is None or not children or name not in children:
        return text
    there = children[name] if len(children) > 1 else top
    del lines[there.start : there.end]
    return "\n".join(lines) + "\n" * (text.endswith("\n") and bool(lines))


def _lines(text: str) -> list[str]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("\t") or line.rstrip().endswith("\r"):
            raise Unreadable(number, "tabs and carriage returns are not touched")
    return text.removesuffix("\n").split("\n") if text else []


def _indent_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" "))]


def _is_filler(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _blocks(lines: Sequence[str], start: int, end: int, indent: str) -> dict[str, _Block]:
    """The keys at an indentation; comments and blank lines before a key are not of the block above."""
    found: dict[str, _Block] = {}
    name = ""
    for at in range(start, end):
        line = lines[at]
        if _is_filler(line) or line in ("---", "..."):
            continue
        if _indent_of(line) == indent and not line[len(indent) :].startswith("- "):
            key = _TOP.match(line[len(indent) :])
            if not key:
                raise Unreadable(at + 1, "this line is in a form that is not touched")
            name = next(part for part in key.groups()[:3] if part is not None).rstrip()
            if name in found:
                raise Unreadable(at + 1, f"{name} is there twice")
            found[name] = _Block(at, at + 1, re.sub(r"(^|\s)#.*", "", key[4] or "").strip())
        elif not name:
            raise Unreadable(at + 1, "this line is in a form that is not touched")
        else:
            found[name] = found[name]._replace(end=at + 1)
    return found


def _children(lines: Sequence[str], block: _Block) -> dict[str, _Block] | None:
    """The entries of a block, or None if it is no object of entries on lines of their own."""
    inner = [line for line in lines[block.start + 1 : block.end] if not _is_filler(line)]
    if block.inline not in _EMPTY or (inner and block.inline):
        return None
    if not inner:
        return {}
    indent = _indent_of(inner[0])
    if len(indent) <= len(_indent_of(lines[block.start])) or inner[0].lstrip().startswith("- "):
        return None
    try:
        return _blocks(lines, block.start + 1, block.end, indent)
    except Unreadable:
        return None


def _value(lines: Sequence[str], block: _Block) -> Any:
    """An entry: JSON on one line, or plain keys below; else its text."""
    if block.inline.startswith("{"):
        try:
            return json.loads(block.inline)
        except ValueError:
            return block.inline
    children = _children(lines, block)
    if not children:
        return "\n".join(lines[block.start : block.end])
    return {name: _scalar(lines, below) for name, below in children.items()}


def _scalar(lines: Sequence[str], block: _Block) -> Any:
    inner = [line.strip() for line in lines[block.start + 1 : block.end] if not _is_filler(line)]
    if not block.inline and inner and all(line.startswith("- ") for line in inner):
        return [_plain(line[2:].strip()) for line in inner]
    return _plain(block.inline) if not inner else "\n".join([block.inline, *inner])


def _plain(word: str) -> Any:
    try:
        return json.loads(word)
    except ValueError:
        return word.strip("'")
