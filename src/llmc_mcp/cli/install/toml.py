"""Edit TOML as text: set or remove one table and keep every other byte.

Only the plain form is supported: a header on a line of its own, followed by keys. The caller compares the parsed text
before and after an edit, so that a form that is not supported here is refused, never damaged.
"""

import json
import re
import tomllib
from collections.abc import Sequence
from typing import Any, cast

from .jsonc import Unreadable

_WHERE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")
_HEADER = re.compile(r"^[ \t]*\[")
_KEY = re.compile(r"""^[ \t]*(?:([A-Za-z0-9_-]+)|"([^"\\]*)"|'([^']*)')[ \t]*=""")


def parse(text: str) -> dict[str, Any]:
    """Parse a document."""
    try:
        return tomllib.loads(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as exc:
        found = _WHERE.search(str(exc))
        line = int(found.group(1)) if found and found.group(1) else text.count("\n") + 1
        raise Unreadable(line, _WHERE.sub("", str(exc)).lower()) from None


def rendered(value: object) -> str:
    """Format a string, a number, or a list of them."""
    if isinstance(value, list):
        return f"[{', '.join(map(rendered, cast('list[object]', value)))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def put(text: str, path: Sequence[str], values: dict[str, object]) -> str:
    """Set keys of a table; a missing table is appended."""
    lines, newline = text.splitlines(keepends=True), "\r\n" if "\r\n" in text else "\n"
    header = next((at for at, line in enumerate(lines) if _is_header(line, path, below=False)), None)
    if header is None:
        table = [f"[{'.'.join(path)}]", *(f"{name} = {rendered(value)}" for name, value in values.items())]
        blank = newline if text.strip("\ufeff \t\r\n") else ""
        end = "" if not text or text.endswith("\n") else newline
        return text + end + blank + "".join(line + newline for line in table)
    for name, value in values.items():
        first, last = _key(lines, header, name)
        lines[first:last] = [f"{name} = {rendered(value)}{newline}"]
    return "".join(lines)


def cut(text: str, path: Sequence[str]) -> str:
    """Remove a table and its subtables; comments above the next table stay."""
    lines = text.splitlines(keepends=True)
    while (
        header := next((at for at, line in enumerate(lines) if _is_header(line, path, below=True)), None)
    ) is not None:
        end = _last_key(lines, header) + 1
        while header and not lines[header - 1].strip() and (end == len(lines) or not lines[end].strip()):
            header -= 1  # also remove the blank lines that separated the table
        del lines[header:end]
    return "".join(lines)


def _is_header(line: str, path: Sequence[str], *, below: bool) -> bool:
    if not _HEADER.match(line) or line.lstrip().startswith("[["):
        return False
    try:
        found: object = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return False
    for name in path:
        if not isinstance(found, dict) or name not in found:
            return False
        found = cast("dict[str, object]", found)[name]
    return below or found == {}


def _table_end(lines: Sequence[str], header: int) -> int:
    at = header + 1
    while at < len(lines) and not _HEADER.match(lines[at]):
        at = max(_value_end(lines, at), at + 1)
    return at


def _last_key(lines: Sequence[str], header: int) -> int:
    """The index of the line on which the last key of a table ends; that of the header if it has no keys."""
    at, last = header + 1, header
    while at < _table_end(lines, header):
        if _KEY.match(lines[at]):
            last = _value_end(lines, at) - 1
            at = last
        at += 1
    return last


def _key(lines: Sequence[str], header: int, name: str) -> tuple[int, int]:
    """The range of lines of a key; if it is missing, an empty range after the last key of the table."""
    at = header + 1
    while at < _table_end(lines, header):
        found = _KEY.match(lines[at])
        end = _value_end(lines, at)
        if found and name in found.groups():
            return at, end
        at = end
    below = _last_key(lines, header) + 1
    return below, below


def _value_end(lines: Sequence[str], at: int) -> int:
    """The index after the last line of the value that starts here: a list or a string may span several lines."""
    if _KEY.match(lines[at]):
        for end in range(at + 1, len(lines) + 1):
            try:
                tomllib.loads("".join(lines[at:end]).replace("\r\n", "\n"))
            except tomllib.TOMLDecodeError:
                continue
            return end
    return at + 1
