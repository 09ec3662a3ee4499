"""Edit JSON and JSON with comments as text: set or remove single members and keep every other byte.

Parsing and serializing would lose the comments, order and indentation of hand-written settings. Instead, a tree of
values with their positions tells where to insert or remove text.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

_WHITE = re.compile(r"[ \t\r\n]*")
_LITERAL = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_INDENTED = re.compile(r"^([ \t]+)\S", re.MULTILINE)
_DEEPEST = 200
_DEFAULT_INDENT = "  "


class Unreadable(Exception):
    """The text cannot be parsed or edited; `line` counts from 1."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}")
        self.line = line
        self.problem = problem


class Node(NamedTuple):
    """A value and the position of its text."""

    start: int
    end: int
    value: Any
    members: "tuple[Member, ...]" = ()  # of an object, in textual order

    def member(self, name: str) -> "Member | None":
        """The member of that name; of duplicates the last, as in every JSON parser."""
        return next((member for member in reversed(self.members) if member.name == name), None)


class Member(NamedTuple):
    """A name and value of an object; `comma` is the position of the comma after it, or None."""

    name: str
    start: int
    node: Node
    comma: int | None


class _Reader:
    """A recursive descent parser."""

    def __init__(self, text: str, comments: bool) -> None:
        self._text = text
        self._comments = comments  # parsers that allow comments allow trailing commas, too
        self._at = 0

    def document(self) -> Node:
        self._skip()
        node = self._value(0)
        self._skip()
        if self._at < len(self._text):
            raise self._unreadable("unexpected text after the end of the value")
        return node

    def _unreadable(self, problem: str, at: int | None = None) -> Unreadable:
        return Unreadable(self._text.count("\n", 0, self._at if at is None else at) + 1, problem)

    def _skip(self) -> None:
        """Skip white space and comments."""
        text = self._text
        while True:
            self._at = cast("re.Match[str]", _WHITE.match(text, self._at)).end()
            if not text.startswith(("//", "/*"), self._at):
                return
            if not self._comments:
                raise self._unreadable("comments are not allowed in this file")
            if text.startswith("//", self._at):
                newline = text.find("\n", self._at)
                self._at = len(text) if newline < 0 else newline
            else:
                closed = text.find("*/", self._at + 2)
                if closed < 0:
                    raise self._unreadable("unterminated comment")
                self._at = closed + 2

    def _value(self, depth: int) -> Node:
        start, first = self._at, self._text[self._at : self._at + 1]
        if depth > _DEEPEST:
            raise self._unreadable("nested too deeply")
        if first == "{":
            return self._object(depth)
        if first == "[":
            return self._list(depth)
        if first == '"':
            return self._string()
        literal = _LITERAL.match(self._text, start)
        if not literal:
            raise self._unreadable(f"expected a value, found {first!r}" if first else "unexpected end of the text")
        self._at = literal.end()
        return Node(start, self._at, json.loads(literal.group()))

    def _string(self) -> Node:
        start, found = self._at, _STRING.match(self._text, self._at)
        if not found:
            raise self._unreadable("unterminated string, or a character in it that must be escaped")
        self._at = found.end()
        return Node(start, self._at, json.loads(found.group()))

    def _ends(self, closing: str, after_comma: bool) -> bool:
        self._skip()
        if not self._text.startswith(closing, self._at):
            return False
        if after_comma and not self._comments:
            raise self._unreadable(f"trailing comma before {closing}")
        self._at += 1
        return True

    def _comma(self, closing: str) -> int | None:
        """The position of the comma after an element, or None before the closing bracket."""
        self._skip()
        if self._text.startswith(",", self._at):
            self._at += 1
            return self._at - 1
        if not self._text.startswith(closing, self._at):
            raise self._unreadable(f"expected a comma or {closing}")
        return None

    def _list(self, depth: int) -> Node:
        start, values, comma = self._at, list[Any](), None
        self._at += 1
        while not self._ends("]", comma is not None):
            values.append(self._value(depth + 1).value)
            comma = self._comma("]")
        return Node(start, self._at, values)

    def _object(self, depth: int) -> Node:
        start, members = self._at, list[Member]()
        self._at += 1
        while not self._ends("}", bool(members) and members[-1].comma is not None):
            if not self._text.startswith('"', self._at):
                raise self._unreadable("expected a name in double quotes")
            name = self._string()
            self._skip()
            if not self._text.startswith(":", self._at):
                raise self._unreadable("expected a colon")
            self._at += 1
            self._skip()
            node = self._value(depth + 1)
            members.append(Member(name.value, name.start, node, self._comma("}")))
        value = {member.name: member.node.value for member in members}
        return Node(start, self._at, value, tuple(members))


def parse(text: str, *, comments: bool) -> Node:
    """Parse a document; an empty text counts as an empty object."""
    if not text.strip("\ufeff \t\r\n"):
        return Node(len(text), len(text), {})
    start = len(text) - len(text.removeprefix("\ufeff"))
    reader = _Reader(text[:start].replace("\ufeff", " ") + text[start:], comments)
    return reader.document()


def put(text: str, path: Sequence[str], value: object, *, comments: bool) -> str:
    """Set the value at a path. Creates missing objects on the way and leaves other members alone."""
    node = parse(text, comments=comments)
    if node.start == node.end:
        return f"{text.rstrip()}{_rendered(_nested(path, value), '', _DEFAULT_INDENT)}\n"
    for depth, name in enumerate(path):
        _demand_object(text, node, path[:depth])
        member = node.member(name)
        if member is None:
            return _with_member(text, node, name, _nested(path[depth + 1 :], value))
        node = member.node
    newline = _newline(text)
    shown = _rendered(value, _indent_at(text, node.start), _unit(text), newline)
    return text[: node.start] + shown + text[node.end :]


def cut(text: str, path: Sequence[str], *, comments: bool) -> str:
    """Remove the member at a path."""
    node = parse(text, comments=comments)
    for name in path[:-1]:
        member = node.member(name)
        if member is None:
            return text
        node = member.node
    for index in reversed(range(len(node.members))):  # from the end, so that the positions stay valid
        if node.members[index].name == path[-1]:
            text = _without_member(text, node, index)
            node = _at(parse(text, comments=comments), path[:-1])
    return text


def _at(node: Node, path: Sequence[str]) -> Node:
    for name in path:
        member = node.member(name)
        node = member.node if member else node
    return node


def _nested(path: Sequence[str], value: object) -> object:
    for name in reversed(path):
        value = {name: value}
    return value


def _demand_object(text: str, node: Node, path: Sequence[str]) -> None:
    if not isinstance(node.value, dict):
        where = ".".join(path) or "the document"
        raise Unreadable(text.count("\n", 0, node.start) + 1, f"{where} is not an object")


def _with_member(text: str, node: Node, name: str, value: object) -> str:
    """Append a member, formatted like the existing ones."""
    newline, unit, closing = _newline(text), _unit(text), node.end - 1
    outer = _indent_at(text, node.start)
    if not node.members:
        indent = outer + unit
        kept = text[node.start + 1 : closing].rstrip()
        shown = f"{newline}{indent}{json.dumps(name)}: {_rendered(value, indent, unit, newline)}{newline}{outer}"
        return text[: node.start + 1] + kept + shown + text[closing:]
    last = node.members[-1]
    comma = "" if last.comma is not None else ","
    between = text[last.node.end : closing]
    if "\n" not in between and "\n" not in text[node.start : last.start]:
        spaces = " " if ", " in text[node.start : closing] or between.endswith(" ") or len(node.members) == 1 else ""
        shown = f"{comma}{spaces}{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}"
        at = last.node.end if last.comma is None else last.comma + 1
        return text[:at] + shown + text[at:]
    indent = _indent_at(text, last.start)
    shown = f"{newline}{indent}{json.dumps(name)}: {_rendered(value, indent, unit, newline)}"
    behind = "," if last.comma is not None else ""
    return text[: last.node.end] + comma + between.rstrip() + shown + behind + f"{newline}{outer}" + text[closing:]


def _without_member(text: str, node: Node, index: int) -> str:
    member = node.members[index]
    start = len(text[: member.start].rstrip(" \t\r\n"))
    if len(node.members) == 1:
        end = member.node.end if member.comma is None else member.comma + 1
        rest = text[end : node.end - 1]
        return text[:start] + (rest if rest.strip() else "") + text[node.end - 1 :]
    if member.comma is not None:
        return text[:start] + text[member.comma + 1 :]
    before = node.members[index - 1].comma
    if before is None:  # unreachable: only the last member may lack a comma
        return text
    return text[:before] + text[before + 1 : start] + text[member.node.end :]


def _rendered(value: object, indent: str, unit: str, newline: str = "\n") -> str:
    """Format a value: objects on several lines, everything else on one."""
    return newline.join(_lines(value, indent, unit))


def _lines(value: object, indent: str, unit: str) -> Iterator[str]:
    if not isinstance(value, dict) or not value:
        yield json.dumps(value, ensure_ascii=False)
        return
    members = cast("dict[str, object]", value)
    yield "{"
    for position, (name, below) in enumerate(members.items(), 1):
        inner = indent + unit
        first, *others = _lines(below, inner, unit)
        comma = "," if position < len(members) else ""
        lines = [f"{inner}{json.dumps(name, ensure_ascii=False)}: {first}", *others]
        yield from lines[:-1]
        yield lines[-1] + comma
    yield indent + "}"


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _unit(text: str) -> str:
    """The indentation of this file: that of its first indented line."""
    found = _INDENTED.search(text)
    return found.group(1) if found else _DEFAULT_INDENT


def _indent_at(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]
