"""The globs of rules, as regular expressions.

In a path `*` and `?` stay within one name and `**` crosses folders. A pattern means what it names and all that lies
below it. One without a slash is about a name at any depth, one that is not absolute starts at each root.
"""

import fnmatch
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
    return fnmatch.translate(pattern.replace("[^", "[!"))


def path_regex(pattern: str, roots: Sequence[str]) -> str:
    """A glob about absolute paths, as one regular expression."""
    alternatives = "|".join(map(_translate, _absolute(pattern, roots)))
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


def _translate(pattern: str) -> str:
    """A glob of paths. What follows a `*` is taken where it comes first, and never looked for again: a workspace's
    rules must not be able to make a match take long. Only `**` has several ways, and a rule may hold few of them.
    """
    made = ""
    for wild, literal in _split(pattern):
        if wild == "*":
            made += f"(?>[^/]*?{literal})" if literal else "[^/]*"
        else:
            made += {"": "", "**": ".*", "**/": "(?:.*/)?"}[wild] + literal
    return made


def _split(pattern: str) -> list[tuple[str, str]]:
    """A pattern as wildcards, each with the regular expression of what follows it up to the next one."""
    parts: list[tuple[str, str]] = [("", "")]
    at = 0
    while at < len(pattern):
        wild = next((one for one in ("**/", "**", "*") if pattern.startswith(one, at)), "")
        if wild:
            parts.append((wild, ""))
            at += len(wild)
            continue
        text, at = _letter(pattern, at)
        parts[-1] = (parts[-1][0], parts[-1][1] + text)
    last_star = max((place for place, (wild, _) in enumerate(parts) if wild == "*"), default=-1)
    if last_star == len(parts) - 1 and parts[-1][1]:  # it must reach the end, not stop where its text comes first
        parts[-1:] = [("*", ""), ("", parts[-1][1])]
    return parts


def _letter(pattern: str, at: int) -> tuple[str, int]:
    """The regular expression of what is at a place, and where it ends."""
    if pattern[at] == "?":
        return "[^/]", at + 1
    if pattern[at] == "[" and (end := pattern.find("]", at + 2)) > 0:
        inside = pattern[at + 1 : end]
        negated = inside[0] in "!^"
        letters = re.escape(inside[negated:]).replace(r"\-", "-")
        return f"(?!/)[{'^' if negated else ''}{letters}]", end + 1
    return re.escape(pattern[at]), at + 1
