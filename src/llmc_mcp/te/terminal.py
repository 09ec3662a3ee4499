"""A terminal's two directions as text: what a program prints, without what only a screen needs; what is typed.

Nothing here knows a program by its prompt. Output is filtered as a stream: a character or an escape sequence that
is only half there stays behind until the rest comes.
"""

import ast
import codecs
import re

_LONGEST_SEQUENCE = 4096  # an escape sequence that has not ended by then is none
_ESCAPES = re.compile(
    r"""\x1b(?:
        \[ [0-?]* [ -/]* [@-~]                  # CSI: colours, cursor, modes
      | [\]PX^_] .*? (?: \x1b\\ | \x07 | \x9c ) # OSC, DCS, SOS, PM, APC: titles, clipboard, queries
      | [ -/]+ [0-~]                            # character sets
      | [0-Z\\`-~]                              # single functions
    )""",
    re.DOTALL | re.VERBOSE,
)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x9c]*|[ -/]*)\Z", re.DOTALL)
_CURSOR_TO = re.compile(r"\x1b\[[\d;]*[Hf]\Z")
_CURSOR_RIGHT = re.compile(r"\x1b\[(\d*)C\Z")
_CURSOR_DOWN = re.compile(r"\x1b\[\d*[BE]\Z")
_WIDEST_GAP = 80
_NOT_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f]")
_STRUCK_OVER = re.compile("[^\n\b]\b")

CONTROL_NAMES = {f"^{letter}": chr(ord(letter) & 0x1F) for letter in "CDZ\\"}


class Screen:
    """What a program prints, as plain text."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def take(self, data: bytes, *, final: bool = False) -> str:
        """The text that these bytes complete."""
        text = self._held + self._decoder.decode(data, final)
        self._held = ""
        if not final:
            text = self._hold_back(text)
        return _plain(text)

    def lost(self) -> None:
        """Bytes are missing here: what was half there will never be whole."""
        self._decoder.reset()
        self._held = ""

    def _hold_back(self, text: str) -> str:
        """Keep an unfinished sequence, and a carriage return, which may be half of a line's end."""
        found = _UNFINISHED.search(text)
        if found and len(text) - found.start() <= _LONGEST_SEQUENCE:
            self._held = text[found.start() :]
        elif text.endswith("\r"):
            self._held = "\r"
        return text[: len(text) - len(self._held)]


def _plain(text: str) -> str:
    text = _ESCAPES.sub(_replacement, text)
    text = text.replace("\r\n", "\n")
    while "\b" in text:
        shorter = _STRUCK_OVER.sub("", text)
        if shorter == text:
            break
        text = shorter
    if "\r" in text:  # what a line is overwritten with is what a reader would see of it
        text = "\n".join(_overwritten(line) for line in text.split("\n"))
    return _NOT_TEXT.sub("", text)


def _replacement(found: re.Match[str]) -> str:
    """Most sequences leave nothing; one that moves the cursor keeps words apart."""
    sequence = found[0]
    if _CURSOR_TO.match(sequence) or _CURSOR_DOWN.match(sequence):
        return "\n"
    if right := _CURSOR_RIGHT.match(sequence):
        return " " * min(int(right[1] or 1), _WIDEST_GAP)
    return ""


def _overwritten(line: str) -> str:
    parts = [part for part in line.split("\r") if part]
    return parts[-1] if parts else ""


# --- typing ------------------------------------------------------------------------------------------


def keystrokes(text: str) -> str:
    """What is typed for an input: a line ends with a newline, a control character is itself (`^C` stands for one)."""
    if text in CONTROL_NAMES:
        return CONTROL_NAMES[text]
    if text.startswith("\x1b") or (text and all(ord(letter) < 0x20 or letter == "\x7f" for letter in text)):
        return text
    return text if text.endswith("\n") else text + "\n"


def python_block(text: str) -> str:
    """Lines as Python's interactive mode takes them: an empty line ends a block, so there is one after each block
    and none inside; and a tab would ask for completions, so that spaces indent."""
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
    """Lines that begin inside a string: an empty one there belongs to it."""
    found: set[int] = set()
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Constant | ast.JoinedStr):
                found.update(range(node.lineno + 1, (node.end_lineno or node.lineno) + 1))
    return found


def _closed(text: str) -> str:
    """Not Python that this version knows: typed as it is, and a block that it leaves open is ended.

    A single line may be one of a block that is typed line by line; that one its user ends.
    """
    *others, last = text.rstrip("\n").split("\n")
    if not others or not last[:1].isspace() or text.endswith("\n\n"):
        return text
    return f"{text.rstrip()}\n\n"
