"""`te --hook`: what Claude Code asks before it runs a Bash command.

The hook puts te in front of a line whose output a family understands. It approves nothing: the command that results
goes through the permissions of the user as any other does. Whatever it can't read it leaves as it is, without a word.

What changes the shell itself (cd, export, source …) stays outside of te, in front; a line that does so later, or that
depends on the shell's variables, functions or jobs, is left alone.
"""

import json
import os
import re
import shlex
import shutil
import sys
from typing import Any, cast

from ..envelope.lines import NotSimple, leading, speaking
from ..envelope.recognition import recognise_line

_STATE = frozenset(
    (
        *("cd", "pushd", "popd", "export", "unset", "source", ".", "alias", "unalias", "set", "shopt", "umask"),
        *("trap", "eval", "exec", "read", "wait", "jobs", "fg", "bg", "disown", "history", "fc", "declare", "typeset"),
        *("local", "readonly", "getopts", "hash", "enable", "conda", "nvm", "deactivate", "exit", "return", "ulimit"),
        "te",
    )
)
_IN_FRONT = frozenset(("cd", "pushd", "popd", "export", "unset", "source", ".", "umask", "ulimit"))
_OF_THE_SHELL = re.compile(r"\$(?:[?!_$-]|\{[?!_$-])|(?<!\S)!\S|&\s*(?:$|\n|;)")


def answer_hook(request: bytes) -> str:
    """The answer to a hook's request, as JSON; empty where the command stays as it is."""
    try:
        asked = cast("dict[str, Any]", json.loads(request))
        given = cast("dict[str, Any]", asked["tool_input"])
        command = given["command"]
        if asked.get("tool_name") != "Bash" or given.get("run_in_background") or not isinstance(command, str):
            return ""
        wrapped = wrapped_line(command, own_program())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""
    if wrapped is None:
        return ""
    changed = {"hookEventName": "PreToolUse", "updatedInput": {**given, "command": wrapped}}
    return json.dumps({"hookSpecificOutput": changed})


def own_program() -> str:
    """How to call te from any folder."""
    beside = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "te")
    found = beside if os.access(beside, os.X_OK) else shutil.which("te")
    return found or "te"


def wrapped_line(line: str, program: str) -> str | None:
    """The line with te in front of it; None where it should stay as it is."""
    try:
        front, rest = leading(line.strip(), _IN_FRONT)
        if not rest.strip() or _OF_THE_SHELL.search(rest) or _changes_state(rest) or recognise_line(rest) is None:
            return None
    except NotSimple:
        return None
    space = "" if not front or front[-1].isspace() else " "
    return f"{front}{space}TE_AGENT_ID=claude-code {shlex.quote(program)} -c {shlex.quote(rest.strip())}"


def _changes_state(line: str) -> bool:
    """Whether a line does something to the shell that would be lost in another one."""
    from ..envelope.lines import pipelines

    spoken = speaking(line)
    return not spoken or any(
        not command.argv or command.argv[0] in _STATE for pipeline in pipelines(line) for command in pipeline
    )
