"""Shell commands and their output in the transcripts of Claude Code and Codex: JSON, a message a line.

What is not understood is skipped: other programs write these files, and their form changes.
"""

import glob
import json
import os
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

from ..envelope.facts import RecordedStep

_FILES = 200  # the latest transcripts of each client
_LONGEST_FILE = 256 << 20
_LONGEST_LINE = 16 << 20
_OUTPUT = "Output:\n"  # what precedes the output in Codex's plain form


class Transcript(NamedTuple):
    """One session of a client."""

    client: str
    path: str
    steps: list[RecordedStep]


def transcripts() -> Iterator[Transcript]:
    """The latest sessions on this machine that ran shell commands."""
    claude = os.environ.get("CLAUDE_CONFIG_DIR") or os.path.expanduser("~/.claude")
    codex = os.environ.get("CODEX_HOME") or os.path.expanduser("~/.codex")
    places = (
        ("Claude Code", os.path.join(glob.escape(claude), "projects", "*", "*.jsonl")),
        ("Codex", os.path.join(glob.escape(codex), "sessions", "**", "*.jsonl")),
    )
    for client, pattern in places:
        paths = [path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path)]
        for path in sorted(paths, key=os.path.getmtime)[-_FILES:]:
            steps = list(_steps(path))
            if steps:
                yield Transcript(client, path, steps)


def _steps(path: str) -> Iterator[RecordedStep]:
    waiting: dict[str, str] = {}  # commands without output yet, by the call's id
    for record in _records(path):
        for call, command in _calls(record):
            waiting[call] = command
        for call, output in _outputs(record):
            if call in waiting:
                yield RecordedStep(waiting.pop(call), output)


def _records(path: str) -> Iterator[dict[str, Any]]:
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size > _LONGEST_FILE:
                return
            while line := file.readline(_LONGEST_LINE):
                try:
                    record: Any = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(record, dict):
                    yield cast("dict[str, Any]", record)
    except OSError:
        return


def _parts(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts of a message of Claude Code, or the one item of a line of Codex."""
    message: Any = record.get("message")
    content: Any = cast("dict[str, Any]", message).get("content") if isinstance(message, dict) else None
    parts = cast("list[Any]", content) if isinstance(content, list) else [record.get("payload")]
    return [cast("dict[str, Any]", part) for part in parts if isinstance(part, dict)]


def _calls(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for part in _parts(record):
        kind, call = part.get("type"), part.get("id") if part.get("type") == "tool_use" else part.get("call_id")
        given: Any = None
        if kind == "tool_use" and part.get("name") == "Bash":
            given = part.get("input")
        elif kind == "function_call":
            given = _decoded(part.get("arguments"))
        elif kind == "local_shell_call":
            given = part.get("action")
        command = _command(cast("dict[str, Any]", given)) if isinstance(given, dict) else ""
        if isinstance(call, str) and command:
            yield call, command


def _command(given: dict[str, Any]) -> str:
    """The line that a call gives to a shell; words are joined unless they are a shell with a line."""
    found: Any = given.get("command", given.get("cmd"))
    if isinstance(found, str):
        return found
    if not isinstance(found, list) or not all(isinstance(word, str) for word in cast("list[Any]", found)):
        return ""
    words = cast("list[str]", found)
    if len(words) == 3 and words[1] in ("-c", "-lc"):
        return words[2]
    import shlex

    return shlex.join(words)


def _outputs(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for part in _parts(record):
        if part.get("type") == "tool_result":
            call, output = part.get("tool_use_id"), _text(part.get("content"))
        elif part.get("type") in ("function_call_output", "local_shell_call_output"):
            call, output = part.get("call_id"), _codex_output(part.get("output"))
        else:
            continue
        if isinstance(call, str) and output is not None:
            yield call, output


def _text(content: Any) -> str | None:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    texts = [cast("dict[str, Any]", part).get("text") for part in cast("list[Any]", content) if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))


def _codex_output(output: Any) -> str | None:
    """An object with the output, that object as text, or text with a few lines before the output."""
    decoded = _decoded(output) if isinstance(output, str) else output
    if isinstance(decoded, dict):
        found: Any = cast("dict[str, Any]", decoded).get("output", cast("dict[str, Any]", decoded).get("content"))
        return _text(found)
    if not isinstance(output, str):
        return _text(output)
    return output.partition(_OUTPUT)[2] if _OUTPUT in output[:400] else output


def _decoded(text: Any) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        return None
