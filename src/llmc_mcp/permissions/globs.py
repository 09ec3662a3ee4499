"""The globs of rules, as regular expressions.

In a path `*` and `?` stay within one name and `**` crosses folders. A pattern means what it names and all that lies
below it. One without a slash is about a name at any depth, one that is not absolute starts at each root.
"""

import os
import re
from collections.abc import Sequence

_WILD = re.compile(r"[*?\[]")
_PARTS = re.compile(r"\[.[^\]]*\]|[*?\[/]+")


def is_wild(pattern: str) -> bool:
    """Whether a pattern means more than one thing."""
    return _WILD.search(pattern) is not None


def longest_literal(pattern: str) -> str:
    """The longest part without a wildcard: whatever a pattern means contains it."""
    parts = _PARTS.split(os.path.normpath(pattern.removeprefix("~").strip("/")))
    return max((part for part in parts if part not in (".", "..")), key=len, default="")


def name_regex(pattern: str) -> str:
    """A glob about a name: of a tool, a token, a program, a host."""
    return _translate(pattern, any_name=".*", any_letter=".")


def path_regex(pattern: str, roots: Sequence[str]) -> str:
    """A glob about absolute paths, as one regular expression."""
    alternatives = "|".join(_translate(one, any_name="[^/]*", any_letter="[^/]") for one in _absolute(pattern, roots))
    return f"(?:{alternatives})(?:/.*)?"


def path_prefixes(pattern: str, roots: Sequence[str]) -> list[str]:
    """The folders that everything which a glob means lies in: up to its first wildcard."""
    found: list[str] = []
    for one in _absolute(pattern, roots):
        wild = _WILD.search(one)
        found.append(one if wild is None else one[: wild.start()].rpartition("/")[0] or "/")
    return found


def _absolute(pattern: str, roots: Sequence[str]) -> list[str]:
    pattern = pattern.rstrip("/") or "/"
    if pattern == "~" or pattern.startswith("~/"):
        pattern = os.path.expanduser("~") + pattern[1:]
    if pattern.startswith("/"):
        return [os.path.normpath(pattern)]
    if "/" not in pattern:
        return [f"/**/{pattern}"]
    return [os.path.normpath(f"{root.rstrip('/')}/{pattern}") for root in roots]


def _translate(pattern: str, *, any_name: str, any_letter: str) -> str:
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        if pattern.startswith("**/", at):
            parts.append("(?:.*/)?")
            at += 3
        elif pattern.startswith("**", at):
            parts.append(".*")
            at += 2
        elif pattern[at] == "*":
            parts.append(any_name)
            at += 1
        elif pattern[at] == "?":
            parts.append(any_letter)
            at += 1
        elif pattern[at] == "[" and (end := pattern.find("]", at + 2)) > 0:
            inside = pattern[at + 1 : end]
            negated = inside[0] in "!^"
            letters = re.escape(inside[negated:]).replace(r"\-", "-")
            parts.append(f"(?!/)[{'^' if negated else ''}{letters}]")
            at = end + 1
        else:
            parts.append(re.escape(pattern[at]))
            at += 1
    return "".join(parts)
