"""What a command is about to do that a person had better agree to: a push, or deleting a whole root.

What a command deletes below a root can be undone, so `rm -r build` asks nobody. It asks where undo does not reach, or
where hardly anybody means it: a root itself, what is above it, a repository's .git, or a folder that is known only when
the line runs. A program may do all of this unseen; the sandbox is what confines it.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..context import Context
from ..errors import LlmcError
from ..policy import is_below
from ..tool import Risk

_QUOTING = str.maketrans("", "", "\\'\"")
_WORTH_PARSING = re.compile(r"\brm\b|\bpush\b")
_LONGEST_SHOWN = 300


def consent_to_run(ctx: Context, arguments: Mapping[str, Any]) -> Risk | None:
    """The risk of a tool that takes a command."""
    given: str | list[str] | None = arguments["command"] if arguments.get("command") else arguments.get("args")
    if not given:
        return None
    line = given if isinstance(given, str) else " ".join(given)
    if not _WORTH_PARSING.search(line.translate(_QUOTING)):
        return None
    try:
        names = ctx.app.shell_lines.names(given)
    except LlmcError:
        return _risk_unseen(ctx, given, line)
    shown = _shortened(line)
    if names.pushes:
        return Risk("push", f"push to another repository: {shown}")
    roots = [os.fsdecode(root.real) for root in ctx.app.files.roots]
    start = None if names.changes_folder else os.path.join(roots[0], arguments.get("cwd") or ".")
    if any(is_sweeping(target, start, roots) for target in names.deletes):
        return Risk("recursive_delete", f"delete a whole root, a repository, or what nobody knows yet: {shown}")
    return None


def _risk_unseen(ctx: Context, given: str | list[str], line: str) -> Risk | None:
    """The risk of a line that can't be read, if it would run; its words tell what it may be about."""
    try:
        ctx.app.shell_lines.read(given)
    except LlmcError:
        return None  # the tool itself refuses the line
    kind = "push" if re.search(r"\bpush\b", line.translate(_QUOTING)) else "recursive_delete"
    return Risk(kind, f"run what can't be read beforehand, and may push or delete: {_shortened(line)}")


def _shortened(line: str) -> str:
    return line if len(line) <= _LONGEST_SHOWN else f"{line[:_LONGEST_SHOWN]}…"


def is_sweeping(target: str, start: str | None, roots: Sequence[str]) -> bool:
    """Whether deleting this from a folder, or from one that is not known, deletes a root or a repository."""
    if target == "?":
        return True
    path = os.path.expanduser(target.rstrip("/") or "/")
    last = path.rpartition("/")[2]
    if last == ".git" or "/.git/" in f"{path}/":
        return True
    if last in ("*", ".*"):
        path = path[: -len(last)] or "."
    if start is None and not os.path.isabs(path):
        return os.path.normpath(path) in (".", "..") or os.path.normpath(path).startswith("../")
    whole = os.path.realpath(os.path.join(start or "/", path))
    return any(is_below(root, whole) for root in roots) or is_below(os.path.realpath(os.path.expanduser("~")), whole)
