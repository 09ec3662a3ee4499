"""The hook of Claude Code: te in front of what it understands, and nothing else touched."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from llmc_mcp.te.hook import answer_hook, wrapped_line

from ..support.envelope import TE as PROGRAM
from ..support.envelope import Te

TE = "/opt/te"
PYTHON = PROGRAM[0]


@pytest.mark.parametrize(
    ("line", "wrapped"),
    [
        ("pytest -q", f"TE_AGENT_ID=claude-code {TE} -c 'pytest -q'"),
        ("cd a && pytest | tail", f"cd a && TE_AGENT_ID=claude-code {TE} -c 'pytest | tail'"),
        ("export A=1\nls -R", f"export A=1\nTE_AGENT_ID=claude-code {TE} -c 'ls -R'"),
        ("A=1 pytest", f"TE_AGENT_ID=claude-code {TE} -c 'A=1 pytest'"),
    ],
)
def test_te_comes_in_front_of_what_it_understands(line: str, wrapped: str) -> None:
    assert wrapped_line(line, TE) == wrapped


@pytest.mark.parametrize(
    "line",
    [
        *("cd a", "true", "vim x", "te ls", "A=1; pytest $A", "echo $?; ls", "ls &", "ls & wait", "cat x; cd b"),
        *("cd a && ls || ls b", "cd a && ls; ls b", "cd a || ls", "for x in a; do cat $x; done", "f() { ls; }; f"),
        *("eval 'ls -R'", "source x; exec ls", "ls 'unfinished", "$(echo ls) -R", "cat x | python3 -i", ""),
    ],
)
def test_what_would_not_mean_the_same_is_left_alone(line: str) -> None:
    assert wrapped_line(line, TE) is None


@pytest.mark.parametrize(
    "line",
    [
        "cat <<'EOF' > a.py\nprint(\"it's\", '$HOME', `1`)\nEOF\ncat a.py",
        'grep -n "a\'b\\"c" text.txt; echo done $((1 + 2)) "$(pwd)"',
        "cd sub && cat ../text.txt | sort -r | head -n 2",
        "cat text.txt missing.txt",
        "printf '%s\\n' a 'b  c' > out.txt && cat out.txt && false",
    ],
)
def test_the_wrapped_line_does_what_the_line_does(te: Te, line: str) -> None:
    def run(command: str) -> tuple[bytes, bytes, int]:
        done = subprocess.run(["bash", "-c", command], cwd=te.folder, env=te.env, capture_output=True, check=False)
        return done.stdout, done.stderr, done.returncode

    program = te.file("te", f"#!/bin/sh\nexec {PYTHON} -c 'from llmc_mcp.te.main import main; main()' \"$@\"\n")
    program.chmod(0o755)
    wrapped = wrapped_line(line, str(program))
    assert wrapped is not None
    assert run(wrapped) == run(line)


def request(**given: Any) -> bytes:
    return json.dumps({"tool_name": "Bash", "session_id": "s", **given}).encode()


def test_it_changes_the_command_and_approves_nothing() -> None:
    given = {"command": "ls -R", "description": "look", "timeout": 5}
    answer = json.loads(answer_hook(request(tool_input=given)))["hookSpecificOutput"]
    assert answer.keys() == {"hookEventName", "updatedInput"}
    assert answer["updatedInput"] == {**given, "command": answer["updatedInput"]["command"]}
    assert answer["updatedInput"]["command"].endswith(" -c 'ls -R'")


@pytest.mark.parametrize(
    "asked",
    [
        request(tool_input={"command": "ls", "run_in_background": True}),
        request(tool_input={"command": ["ls"]}),
        request(tool_input="ls"),
        request(),
        json.dumps({"tool_name": "Read", "tool_input": {"command": "ls -R"}}).encode(),
        *(b"", b"[]", b"null", b"{", b"\xff", b'{"tool_name":' * 3000, b"[" * 100_000),
    ],
    ids=range(12),
)
def test_anything_else_is_left_as_it_is(asked: bytes) -> None:
    assert answer_hook(asked) == ""


def test_the_program_answers_on_stdout_and_never_fails(te: Te) -> None:
    done = te.fed(request(tool_input={"command": "ls -R"}), "--hook")
    assert (done.code, done.err) == (0, b"")
    assert b"updatedInput" in done.out
    done = te.fed(b"nonsense", "--hook")
    assert (done.code, done.out, done.err) == (0, b"", b"")


@pytest.fixture
def te(tmp_path: Path) -> Te:
    folder = tmp_path / "work"
    folder.mkdir()
    te = Te(folder, tmp_path / "data")
    te.file("text.txt", "one\ntwo a'b\"c\nthree\n")
    te.file("sub/x", "")
    return te
