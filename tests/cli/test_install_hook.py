"""`llmc install claude-code --hook`: te in Claude Code's settings, beside what is there, and out again."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from llmc_mcp.cli import main

OTHERS: dict[str, Any] = {
    "permissions": {"allow": ["Bash(ls:*)"]},
    "hooks": {
        "PreToolUse": [{"matcher": "Edit", "hooks": [{"type": "command", "command": "check"}]}],
        "Stop": [{"hooks": [{"type": "command", "command": "beep"}]}],
    },
}


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / ".claude"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / ".claude" / "settings.json"


def install(*words: str, client: str = "claude-code") -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["llmc", "install", client, "--hook", *words])
        with pytest.raises(SystemExit) as ended:
            main.main()
    return int(ended.value.code or 0)


def ours(settings: Path) -> list[str]:
    groups = json.loads(settings.read_text())["hooks"]["PreToolUse"]
    return [hook["command"] for group in groups if group["matcher"] == "Bash" for hook in group["hooks"]]


def test_a_new_file_has_the_hook_and_an_answer_to_it(settings: Path) -> None:
    assert install() == 0
    (command,) = ours(settings)
    request = json.dumps({"tool_name": "Bash", "tool_input": {"command": "ls -R"}})
    done = subprocess.run(command, shell=True, input=request, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["hookSpecificOutput"]["updatedInput"]["command"].endswith(" -c 'ls -R'")


def test_what_is_there_stays_and_a_second_run_changes_nothing(settings: Path) -> None:
    settings.parent.mkdir()
    settings.write_text(json.dumps(OTHERS, indent=2))
    assert install() == 0
    text = settings.read_text()
    found = json.loads(text)
    assert found["hooks"]["PreToolUse"][0] == OTHERS["hooks"]["PreToolUse"][0]
    assert (found["hooks"]["Stop"], found["permissions"]) == (OTHERS["hooks"]["Stop"], OTHERS["permissions"])
    assert install() == 0
    assert settings.read_text() == text
    assert install("--uninstall") == 0
    assert json.loads(settings.read_text()) == OTHERS


def test_a_hook_from_another_place_is_replaced(settings: Path) -> None:
    settings.parent.mkdir()
    old = {"matcher": "Bash", "hooks": [{"type": "command", "command": "/old/bin/te --hook"}]}
    settings.write_text(json.dumps({"hooks": {"PreToolUse": [old]}}))
    assert install() == 0
    assert len(ours(settings)) == 1
    assert ours(settings) != ["/old/bin/te --hook"]
    assert install("--uninstall") == 0
    assert json.loads(settings.read_text()) == {}


def test_a_dry_run_and_a_broken_file_change_nothing(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert install("--dry-run") == 0
    assert not settings.exists()
    assert "te --hook" in capsys.readouterr().out
    for broken in ('{"hooks": []}', '{"hooks": {"PreToolUse": {}}}', "{", "[]"):
        settings.parent.mkdir(exist_ok=True)
        settings.write_text(broken)
        assert install() == 2
        assert settings.read_text() == broken


def test_clients_without_such_a_hook_say_why(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert install(client="codex") == 2
    assert "only if the hook approves it" in capsys.readouterr().err
    assert not settings.exists()


def test_a_file_that_was_made_for_the_hook_goes_with_it(settings: Path) -> None:
    assert install() == 0
    assert install("--uninstall") == 0
    assert list(settings.parent.iterdir()) == []


@pytest.mark.parametrize("before", ["{}\n", '{"model": "opus"}\n'])
def test_a_file_that_was_there_before_stays(settings: Path, before: str) -> None:
    settings.parent.mkdir()
    settings.write_text(before)
    assert install() == 0
    assert install("--uninstall") == 0
    assert settings.read_text() == before
    assert list(settings.parent.iterdir()) == [settings]


def test_a_link_to_the_file_stays_whole(settings: Path, tmp_path: Path) -> None:
    settings.parent.mkdir()
    settings.symlink_to(tmp_path / "shared.json")
    assert install() == 0
    assert install("--uninstall") == 0
    assert json.loads(settings.read_text()) == {}


def test_what_was_added_meanwhile_stays(settings: Path) -> None:
    assert install() == 0
    found = json.loads(settings.read_text())
    settings.write_text(json.dumps({**found, "model": "opus"}))
    assert install("--uninstall") == 0
    assert json.loads(settings.read_text()) == {"model": "opus"}


def test_who_takes_the_server_out_is_told_that_the_hook_stays(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert install() == 0
    monkeypatch.setattr("sys.argv", ["llmc", "install", "claude-code", "--uninstall"])
    for hook_stays in (True, False):
        with pytest.raises(SystemExit):
            main.main()
        assert ("--hook --uninstall removes it" in capsys.readouterr().err) is hook_stays
        assert install("--uninstall") == 0
        capsys.readouterr()
