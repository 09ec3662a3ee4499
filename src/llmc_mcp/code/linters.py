"""Linters, type checkers and compilers that check a project: which it has, how each is run, what it prints.

One that reads a single file's text from stdin judges the former text the same way. The others check a project as it
lies on the disk, so the former state is unpacked into a folder of its own for them.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

_PYTHON = frozenset({"python"})
_SCRIPT = frozenset({"javascript", "typescript", "tsx"})
_PROJECT_BINS = (".venv/bin", "venv/bin", "node_modules/.bin")
# path:line:col: text, path(line,col): text, and pyright's `path:line:col - text`
_PLACE = re.compile(
    r"\s*(?P<path>[^\s:(][^:(]*?)(?::(?P<line>\d+)(?::\d+)?|\((?P<at>\d+),\d+\))\s*(?::|-)\s+(?P<text>.+)"
)

Exists = Callable[[str], bool]  # whether the project has a file of this name
Locate = Callable[[str], str | None]  # the path of a program that commands can see


class CodeFinding(NamedTuple):
    """What a checker says about a line."""

    checker: str
    path: str  # below the project
    line: int
    text: str


class CodeChecker(NamedTuple):
    """A program that checks code."""

    name: str
    languages: frozenset[str]
    arguments: tuple[str, ...]
    needs: tuple[str, ...] = ()  # one of these files; none: whatever the project has
    by_text: tuple[str, ...] = ()  # arguments to judge a text from stdin; {} is the file's name
    takes_files: bool = True  # False: it checks the project as a whole
    group: str = ""  # of several in a group, the first that there is

    def command(self, program: str, files: Sequence[str]) -> list[str]:
        """What to run for these files."""
        return [program, *self.arguments, *(files if self.takes_files else ())]

    def command_for_text(self, program: str, file: str) -> list[str]:
        """What to run for a text that stands for a file."""
        return [program, *(word.format(file) for word in self.by_text)]


CHECKERS = (
    CodeChecker(
        "ruff",
        _PYTHON,
        ("check", "--output-format=concise", "--no-cache", "--force-exclude", "--"),
        by_text=("check", "--output-format=concise", "--no-cache", "--force-exclude", "--stdin-filename={}", "-"),
    ),
    CodeChecker("ty", _PYTHON, ("check", "--output-format=concise"), ("ty.toml", "pyproject.toml"), group="types"),
    CodeChecker("pyrefly", _PYTHON, ("check", "--output-format=min-text"), ("pyrefly.toml",), group="types"),
    CodeChecker("pyright", _PYTHON, (), ("pyrightconfig.json", "pyproject.toml"), group="types"),
    CodeChecker("tsc", _SCRIPT, ("--noEmit", "--pretty", "false"), ("tsconfig.json",), takes_files=False),
    CodeChecker(
        "eslint",
        _SCRIPT,
        ("--no-color", "--format=stylish", "--"),
        tuple(f"eslint.config.{ending}" for ending in ("js", "mjs", "cjs", "ts"))
        + tuple(f".eslintrc{ending}" for ending in (".json", ".js", ".cjs", ".yml", "")),
        by_text=("--no-color", "--format=stylish", "--stdin", "--stdin-filename={}"),
    ),
    CodeChecker("go", frozenset({"go"}), ("vet", "./..."), ("go.mod",), takes_files=False),
    CodeChecker(
        "cargo",
        frozenset({"rust"}),
        ("check", "--offline", "--quiet", "--message-format=short"),
        ("Cargo.toml",),
        takes_files=False,
    ),
)


def available(languages: set[str], exists: Exists, locate: Locate) -> dict[CodeChecker, str]:
    """The checkers for these languages that the project or the machine has, with their programs."""
    found: dict[CodeChecker, str] = {}
    groups: set[str] = set()
    for one in CHECKERS:
        if not one.languages & languages or one.group in groups:
            continue
        if one.needs and not any(exists(name) for name in one.needs):
            continue
        own = next((f"{folder}/{one.name}" for folder in _PROJECT_BINS if exists(f"{folder}/{one.name}")), None)
        program = f"./{own}" if own is not None else locate(one.name)
        if program is not None:
            found[one] = program
            groups |= {one.group} - {""}
    return found


def findings(checker: str, printed: str, roots: Sequence[str]) -> list[CodeFinding]:
    """The findings in what a checker printed; paths below one of `roots` become relative to it."""
    if checker == "eslint":
        return _under_their_files(printed, roots)
    found: list[CodeFinding] = []
    for line in printed.splitlines():
        place = _PLACE.match(line)
        if place is not None:
            number = int(place["line"] or place["at"])
            found.append(CodeFinding(checker, _relative(place["path"], roots), number, place["text"].strip()))
    return found


def _under_their_files(printed: str, roots: Sequence[str]) -> list[CodeFinding]:
    found: list[CodeFinding] = []
    path = ""
    for line in printed.splitlines():
        place = re.match(r"\s+(\d+):\d+\s+(error|warning)\s+(.+)", line)
        if place is not None and path:
            text = re.sub(r"\s{2,}", " ", place[3])
            found.append(CodeFinding("eslint", path, int(place[1]), f"{place[2]} {text}"))
        elif line and not line.startswith(" "):
            path = _relative(line.strip(), roots)
    return found


def _relative(path: str, roots: Sequence[str]) -> str:
    for root in roots:
        if path.startswith(f"{root.rstrip('/')}/"):
            path = path[len(root.rstrip("/")) + 1 :]
    return path.removeprefix("./")
