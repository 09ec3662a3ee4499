"""Convert between a terminal's byte streams and text: strip from output what only a screen needs, and encode input.

No program is recognized by its prompt. Output is filtered as a stream: an incomplete character or escape sequence is
held back until the rest arrives.
"""

import ast
import codecs
import re

_LONGEST_SEQUENCE = 4096  # characters; anything longer is not an escape sequence
_SEQUENCE = re.compile(
    r"""\x1b(?:
        \[ [0-?]*+ [ -/]*+ [@-~]  # CSI: colours, cursor, modes
      | [\]PX^_]                  # OSC, DCS, SOS, PM, APC begin a string: titles, clipboard, queries
      | [ -/]++ [0-~]             # character sets
      | [0-Z\\`-~]                # single functions, such as the end of a string
    )""",
    re.VERBOSE,
)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*+[ -/]*+|[ -/]*+)\Z")
_END_OF_STRING = re.compile("[\x07\x18\x1a\x1b\x9c]")
_CURSOR_TO = re.compile(r"\x1b\[[\d;]*[Hf]\Z")
_CURSOR_RIGHT = re.compile(r"\x1b\[(\d*)C\Z")
_CURSOR_DOWN = re.compile(r"\x1b\[\d*[BE]\Z")
_WIDEST_GAP = 80
# Text, backspaces, carriage returns, a newline, and control characters to drop.
_PIECE = re.compile(
    "([^\x00-\x08\x0a-\x1f\x7f-\x9f]+)|(\x08+)|(\r+)|(\n)|[\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]+"
)

CONTROL_NAMES = {f"^{letter}": chr(ord(letter) & 0x1F) for letter in "CDZ\\"}


class Screen:
    """Converts what a program prints to plain text.

    Every character is processed once, and the state between calls is bounded. Where a program moves back in its line,
    what it writes next replaces what was there, unless that has already been returned.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._lines: list[str] = []
        self._line: list[str] = []  # characters of the current line
        self._restart()

    def _restart(self) -> None:
        self._held = ""  # an incomplete escape sequence
        self._string: int | None = None  # inside a string: characters skipped so far
        self._returned = False  # a carriage return came: a newline completes it, other text replaces the line

    def take(self, data: bytes, *, final: bool = False) -> str:
        """Return the text that these bytes complete."""
        self.feed(data, final=final)
        text = "".join((*self._lines, *self._line))
        self._lines, self._line = [], []
        return text

    def feed(self, data: bytes, *, final: bool = False) -> None:
        """Process bytes, and keep their text for `take`."""
        text = self._held + self._decoder.decode(data, final)
        self._held = ""
        at = 0
        while at < len(text):
            if self._string is not None:
                at = self._in_string(text, at, self._string)
            elif text[at] == "\x1b":
                at = self._escape(text, at, final)
            else:
                at = self._write(text, at)

    def lost(self) -> None:
        """Discard incomplete characters and sequences: the bytes that would complete them are lost."""
        self._decoder.reset()
        self._restart()

    def _write(self, text: str, at: int) -> int:
        found = _PIECE.match(text, at)
        assert found is not None  # noqa: S101 - the pieces and the escape character cover all characters
        letters, backspaces, returned, ended = found.groups()
        if letters:
            self._put(letters)
        elif backspaces and not self._returned:
            del self._line[max(len(self._line) - len(backspaces), 0) :]
        elif returned:
            self._returned = True
        elif ended:
            self._end_line()
        return found.end()

    def _put(self, letters: str) -> None:
        if self._returned:
            self._line, self._returned = [], False
        self._line.extend(letters)

    def _end_line(self) -> None:
        self._lines.append("".join((*self._line, "\n")))
        self._line, self._returned = [], False

    def _escape(self, text: str, at: int, final: bool) -> int:
        """Drop a complete sequence; one that moves the cursor becomes a newline or spaces, to keep words apart."""
        found = _SEQUENCE.match(text, at)
        if found is None or found.end() - at > _LONGEST_SEQUENCE:
            if not final and len(text) - at <= _LONGEST_SEQUENCE and _UNFINISHED.match(text, at):
                self._held = text[at:]
                return len(text)
            return at + 1
        sequence = found[0]
        if sequence[1] in "]PX^_":
            self._string = 0
        elif _CURSOR_TO.match(sequence) or _CURSOR_DOWN.match(sequence):
            self._end_line()
        elif right := _CURSOR_RIGHT.match(sequence):
            self._put(" " * min(int(right[1] or 1), _WIDEST_GAP))
        return found.end()

    def _in_string(self, text: str, at: int, passed: int) -> int:
        """Skip a string up to its terminator; one that grows too long may not be a string, and ends with its line."""
        found = _END_OF_STRING.search(text, at)
        end = found.start() if found else len(text)
        too_long = at + max(_LONGEST_SEQUENCE - passed, 0)
        if (line_end := text.find("\n", too_long, end)) >= 0:
            self._string = None
            return line_end
        self._string = None if found else passed + end - at
        return end if found is None or found[0] == "\x1b" else found.end()


# --- typing ------------------------------------------------------------------------------------------


def keystrokes(text: str) -> str:
    """Return what to type: a line ends with a newline, a control character stays as it is (`^C` stands for one)."""
    if text in CONTROL_NAMES:
        return CONTROL_NAMES[text]
    if text.startswith("\x1b") or (text and all(ord(letter) < 0x20 or letter == "\x7f" for letter in text)):
        return text
    return text if text.endswith("\n") else text + "\n"


def python_block(text: str) -> str:
    """Format lines for Python's interactive mode.

    An empty line ends a block there, so each block is followed by one and contains none. A tab would trigger
    completion, so spaces indent.
    """
    try:
        statements = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _closed(text)
    lines = text.split("\n")
    in_strings = _lines_in_strings(statements)
    typed: list[str] = []
    done = 0
    for statement in statements:
        first, last = _extent(statement)
        for number in range(max(first, done + 1), last + 1):  # several statements may share a line
            line = lines[number - 1]
            if number in in_strings:
                typed.append(line)
            elif line.strip():
                typed.append(_indented_by_spaces(line))
        done = last
        if isinstance(statement, _COMPOUND):
            typed.append("")
    return "\n".join(typed) + "\n" if typed else text


def _indented_by_spaces(line: str) -> str:
    code = line.lstrip(" \t")
    return line[: len(line) - len(code)].expandtabs() + code


_COMPOUND = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.For, ast.AsyncFor, ast.While, ast.If, ast.With,
    ast.AsyncWith, ast.Try, ast.TryStar, ast.Match,
)  # fmt: skip


def _extent(statement: ast.stmt) -> tuple[int, int]:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(decorator.lineno for decorator in decorators)])
    return first, statement.end_lineno or statement.lineno


def _lines_in_strings(statements: list[ast.stmt]) -> set[int]:
    """Return the lines that begin inside a string, where an empty line is part of the string."""
    lines: set[int] = set()
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Constant | ast.JoinedStr):
                lines.update(range(node.lineno + 1, (node.end_lineno or node.lineno) + 1))
    return lines


def _closed(text: str) -> str:
    """Return text that this version of Python can't parse as it is, but end a block that it leaves open.

    A single line may be part of a block that is typed line by line; the user ends that one.
    """
    *others, last = text.rstrip("\n").split("\n")
    if not others or not last[:1].isspace() or text.endswith("\n\n"):
        return text
    return f"{text.rstrip()}\n\n"
