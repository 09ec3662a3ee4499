"""What a session should know before it starts on a task: the repository's own rules, and the places that the task
concerns.

AGENTS.md and CONTRACTS.md are written for this. Without them, the README tells what the project is, and its build
files tell how it is tested.
"""

import re
from collections.abc import Callable
from typing import Literal, NamedTuple

from ...tokens import estimate

Scope = Literal["repo", "docs", "both"]
Read = Callable[[str], str | None]  # reads a file of the first root by its path; None if there is none

_FOLDERS = ("", "docs/", "DOCS/", "doc/", ".github/")
_RULES = ("AGENTS.md", "CONTRACTS.md")
_READMES = ("README.md", "README.rst", "README.txt", "README")
_NOTES_TOKENS = 500
_RULE_LINES = 14  # taken from one document
_LONGEST = 220
_MOST_WORDS = 40  # of a task that are used
_WORD = re.compile(r"[A-Za-z]{3,}")
_RULE = re.compile(
    r"\b(?:must|never|always|don't|do not|only|before|after|run|use|test|lint|required?|should|keep)\b", re.I
)
_DOCUMENTS = frozenset({"doc", "docs", "documentation", "readme", "changelog", "document", "guide", "tutorial"})
_COMMAND = re.compile(
    r"^\s*(?:\$ )?((?:make|pytest|python3? -m|tox|npm|pnpm|yarn|cargo|go|uv|hatch|nox|\./)\S*(?: .*)?)$"
)


class RepositoryRules(NamedTuple):
    """The rules that a repository documents."""

    notes: list[str]
    sources: list[str]  # the documents that they come from
    commands: list[str]  # how it is built and tested


def task_words(task_id: str) -> str:
    """The words in a task's name: `fix-login_timeout#12` is about a fix, a login, a timeout."""
    spread = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", task_id)
    return " ".join(_WORD.findall(spread)[:_MOST_WORDS])


def scope_of(words: str) -> Scope:
    """The scope in which to search for a task."""
    task_words = set(words.lower().split())
    about_docs = task_words & _DOCUMENTS
    return "repo" if not about_docs else "docs" if len(task_words) - len(about_docs) <= 2 else "both"


def rules(read: Read, words: str) -> RepositoryRules:
    """The rules of a repository, those about the task first; without any, what its README and build files tell."""
    notes: list[str] = []
    sources: list[str] = []
    commands: list[str] = []
    for name in _RULES:
        path, text = _first(read, [folder + name for folder in _FOLDERS])
        if text is not None:
            sources.append(path)
            notes += [f"{name}: {line}" for line in _rule_lines(text, words)]
            commands += _commands(text)
    if not sources:
        path, text = _first(read, list(_READMES))
        if text is not None:
            sources.append(path)
            notes += [f"{path}: {line}" for line in _opening(text)]
            commands += _commands(text)
    commands += _build_files(read)
    return RepositoryRules(_within(notes, _NOTES_TOKENS), sources, list(dict.fromkeys(commands))[:8])


def _first(read: Read, paths: list[str]) -> tuple[str, str | None]:
    for path in paths:
        text = read(path)
        if text is not None:
            return path, text
    return "", None


def _rule_lines(text: str, words: str) -> list[str]:
    """Instructions in a document, with their heading; those about the task come first."""
    wanted = {word.lower() for word in words.split()}
    heading, fenced = "", False
    scored: list[tuple[int, int, str]] = []
    for number, line in enumerate(_joined(text)):
        if line.startswith("```"):
            fenced = not fenced
        if fenced or not line or line.startswith("```"):
            continue
        if line.startswith("#"):
            heading = line.strip("# ")
            continue
        line_words = {word.lower() for word in _WORD.findall(f"{heading} {line}")}
        score = 3 * len(line_words & wanted) + 2 * bool(_RULE.search(line)) + line.startswith(("- ", "* ", "1."))
        if score:
            cut = line.lstrip("-* ")
            scored.append((-score, number, cut if len(cut) <= _LONGEST else cut[: _LONGEST - 1] + "…"))
    kept = sorted(sorted(scored)[:_RULE_LINES], key=lambda one: (one[0] > -3, one[1]))
    return [line for _, _, line in kept]


def _joined(text: str) -> list[str]:
    """The lines of a Markdown text; a list item that spans several lines becomes one."""
    lines: list[str] = []
    for line in text.splitlines():
        if lines and line.startswith("  ") and lines[-1].startswith(("- ", "* ")) and line.strip():
            lines[-1] += " " + line.strip()
        else:
            lines.append(line.strip())
    return lines


def _opening(text: str) -> list[str]:
    """The title and the first sentences of a README; badges and images are skipped."""
    opening: list[str] = []
    for block in re.split(r"\n\s*\n", text):
        line = " ".join(block.split())
        if line and not line.startswith(("[![", "![", "<", "```", "|", "..", "===", "---")):
            opening.append(line.strip("# =") if len(line) <= _LONGEST else line.strip("# =")[: _LONGEST - 1] + "…")
        if len(opening) >= 3:
            break
    return opening


def _commands(text: str) -> list[str]:
    """Commands in the code blocks of a document, without comments."""
    found: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            inside = not inside
        elif inside and (match := _COMMAND.match(line)):
            found.append(match[1].split("#")[0].strip())
    return found[:6]


def _build_files(read: Read) -> list[str]:
    """How a project of this kind is tested."""
    makefile = read("Makefile") or ""
    found = [f"make {name}" for name in ("test", "check", "lint") if re.search(rf"^{name}\s*:", makefile, re.M)]
    package = read("package.json") or ""
    if re.search(r'"test"\s*:', package):
        found.append("npm test")
    for name, command in (("Cargo.toml", "cargo test"), ("go.mod", "go test ./..."), ("tox.ini", "tox")):
        if read(name) is not None:
            found.append(command)
    project = read("pyproject.toml") or ""
    if not found and "pytest" in project:
        found.append("python -m pytest")
    return found


def _within(notes: list[str], budget: int) -> list[str]:
    kept: list[str] = []
    for note in notes:
        budget -= estimate(note) + 2
        if budget < 0:
            break
        kept.append(note)
    return kept
