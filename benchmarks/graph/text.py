"""Text search as a judge: every place in the code that writes a name which only one definition has.

It knows no types, so it is asked only about names of several words, and it leaves out files that import the name from
another project or have a variable of it, and a function's name where it is not called: that may be a field or a key.
"""

import re
from collections.abc import Iterable, Mapping

_SLASHES = r"(?P<blank>//[^\n]*|/\*.*?\*/)"
_QUOTED = r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"
_NOT_CODE = {
    "python": re.compile(rf"#[^\n]*|\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''|{_QUOTED}", re.S),
    "go": re.compile(rf"{_SLASHES}|`[^`]*`|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'", re.S),
    "typescript": re.compile(rf"{_SLASHES}|{_QUOTED}", re.S),
    "rust": re.compile(
        rf"{_SLASHES}|b?r(?P<hashes>#*)\".*?\"(?P=hashes)|b?\"(?:\\.|[^\"\\])*\"|'(?:\\.[^']*|[^'\\])'", re.S
    ),
}
_FOREIGN = {
    "rust": r"\buse\s+(?:::)?(?:{outside})::[^;]*\b{name}\b|\b(?:{outside})(?:::\w+)*::{name}\b",
    "typescript": r"import\b[^;'\"]*\b{name}\b[^;'\"]*from\s*['\"](?!\.)",
    "python": r"(?!)",
    "go": r"\b(?:{outside})\.{name}\b",
}
_SEVERAL_WORDS = re.compile(r"[A-Za-z0-9]+_[A-Za-z0-9_]+|[A-Za-z0-9]*[a-z0-9][A-Z][A-Za-z0-9]*")
Place = tuple[str, int]


def is_telling(name: str) -> bool:
    """Whether a name is long enough to mean one thing."""
    return len(name) >= 7 and _SEVERAL_WORDS.fullmatch(name) is not None


def code(text: str, language: str) -> list[str]:
    """The lines of a file with its comments and strings blanked."""
    blanked = _NOT_CODE[language].sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    return blanked.split("\n")


def uses(
    name: str, is_function: bool, language: str, files: Mapping[str, str], outside: Iterable[str], home: str
) -> set[Place]:
    """Where a name is written in the code, its definition included."""
    word = re.escape(name)
    pattern = re.compile(rf"(?<![\w$]){word}(?![\w$])")
    if is_function and language != "python":
        calls = rf"(?<![\w$]){word}\s*(?:(?:::)?<[^()]*>)?\s*\("
        pattern = re.compile(rf"{calls}|::{word}(?![\w$])|\b(?:use|import|export)\b.*(?<![\w$]){word}(?![\w$])")
    foreign = re.compile(
        _FOREIGN[language].format(outside="|".join(map(re.escape, outside)) or "(?!)", name=word), re.S
    )
    variable = re.compile(rf"\b(?:let|const|var)\s+(?:mut\s+)?{word}\b|\b{word}\s*(?:,\s*\w+\s*)?:=")
    found: set[Place] = set()
    for path, text in files.items():
        local = path != home and variable.search(text)
        if name in text and not local and not foreign.search(text):
            lines = code(text, language)
            found |= {(path, number) for number, line in enumerate(lines, 1) if name in line and pattern.search(line)}
    return found
