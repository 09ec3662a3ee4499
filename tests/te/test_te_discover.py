"""`te discover`: made-up transcripts in the forms of Claude Code and Codex, and hostile ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from ..support.envelope import Te

LONG = "".join(f"def function_{n}(value):\n    return value + {n}\n\n\n" for n in range(150))


@pytest.fixture
def te(tmp_path: Path) -> Te:
    folder = tmp_path / "work"
    folder.mkdir()
    return Te(folder, tmp_path / "data")


def claude(call: str, command: str, output: Any) -> list[dict[str, Any]]:
    use = {"type": "tool_use", "id": call, "name": "Bash", "input": {"command": command, "description": "x"}}
    result = {"type": "tool_result", "tool_use_id": call, "content": output, "is_error": False}
    return [
        {"type": "assistant", "sessionId": "s", "message": {"role": "assistant", "content": [use]}},
        {"type": "user", "sessionId": "s", "message": {"role": "user", "content": [result]}},
    ]


def codex(call: str, arguments: dict[str, Any], output: str) -> list[dict[str, Any]]:
    made = {"type": "function_call", "name": "shell", "arguments": json.dumps(arguments), "call_id": call}
    done = {"type": "function_call_output", "call_id": call, "output": output}
    return [{"type": "response_item", "payload": made}, {"type": "response_item", "payload": done}]


def write(te: Te, name: str, records: list[Any]) -> None:
    path = te.data / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(one if isinstance(one, str) else json.dumps(one) + "\n" for one in records))


def commands(te: Te) -> dict[str, dict[str, Any]]:
    return {row["command"]: row for row in json.loads(te("discover", "--json").out)["commands"]}


def test_it_tells_what_te_would_have_saved_by_command(te: Te) -> None:
    write(te, ".claude/projects/-home-x/a.jsonl", [
        {"type": "summary", "summary": "about"},
        *claude("1", "cat long.py", LONG),
        *claude("2", "sed -i 's/function_77/renamed/' long.py", ""),
        *claude("3", "git status", [{"type": "text", "text": "On branch main"}]),
    ])  # fmt: skip
    write(te, ".codex/sessions/2026/01/02/rollout-x.jsonl", [
        {"type": "session_meta", "payload": {"id": "x"}},
        *codex("1", {"command": ["bash", "-lc", "cat long.py"]}, json.dumps({"output": LONG, "metadata": {}})),
        *codex("2", {"cmd": "ls"}, "Exit code: 0\nWall time: 0.1 seconds\nOutput:\na\nb\n"),
    ])  # fmt: skip
    found = commands(te)
    assert {name: row["runs"] for name, row in found.items()} == {
        "cat": 2,
        "git status": 1,
        "ls": 1,
        "(silent lines)": 1,
        "all": 5,
    }
    assert found["cat"]["saved_percent"] > 30
    assert (found["cat"]["facts"], found["cat"]["lost"]) == (1, 0)
    text = te("discover").out.decode()
    assert text.startswith("1 sessions of Claude Code, 1 sessions of Codex\n")


def test_lines_that_are_not_understood_are_skipped(te: Te) -> None:
    hostile: list[Any] = [
        *("not json\n", "[" * 50_000 + "\n", "null\n", '{"message": {"content": 7}}\n', '{"payload": []}\n', "\n"),
        {"message": {"content": [{"type": "tool_use", "id": 3, "name": "Bash", "input": {"command": "ls"}}]}},
        {"message": {"content": [{"type": "tool_result", "tool_use_id": "none", "content": "x"}]}},
        {"payload": {"type": "function_call", "arguments": "{", "call_id": "c"}},
        {"payload": {"type": "function_call", "arguments": '{"command": [1]}', "call_id": "c"}},
        *claude("9", "cat '\x1b]0;evil\x07'", "\x1b[2Jtext"),
    ]
    write(te, ".claude/projects/p/a.jsonl", hostile)
    (te.data / ".claude/projects/p/b.jsonl").mkdir()
    done = te("discover", "--lost")
    assert done.code == 0
    assert b"\x1b" not in done.out
    assert commands(te)["all"]["runs"] == 1


def test_without_transcripts_it_says_so(te: Te) -> None:
    assert te("discover").out == b"te: no transcripts of Claude Code or Codex with shell commands were found\n"
