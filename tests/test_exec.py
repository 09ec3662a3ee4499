"""run_cmd, run_pytest and the operator's executables, through the protocol."""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .security.arena import pids_with
from .security.attack import status_kb
from .support.client import Client, Reply
from .support.workspace import UNPLUGGED, Workspace


@pytest.fixture
def shell(workspace: Workspace, tmp_path: Path) -> Iterator[Client]:
    with Client("--root", str(workspace.root), env={"LLMC_DATA_DIR": str(tmp_path / "data")}) as client:
        yield client


def classic(workspace: Workspace, tmp_path: Path, *flags: str) -> Client:
    """A server that replies in JSON and lists every tool."""
    env = {"LLMC_DATA_DIR": str(tmp_path / "data")}
    return Client("--root", str(workspace.root), "--mode", "classic", *flags, env=env)


def test_output_is_the_body_and_errors_stand_under_their_own_line(shell: Client) -> None:
    reply = shell.call("run_cmd", command="bash -c 'echo out; echo err >&2; exit 3'")
    assert not reply.is_error
    assert reply.body == "out\n--- stderr\nerr\n"
    assert (reply.meta["exit_code"], reply.meta["stderr_bytes"]) == (3, 4)
    assert reply.meta["sandbox"] in ("workspace", "landlock")
    assert "handle" not in reply.meta


def test_json_replies_have_the_shape_of_the_contract(workspace: Workspace, tmp_path: Path) -> None:
    with classic(workspace, tmp_path) as client:
        reply = client.call("run_cmd", command=["echo", "hi"]).meta
    assert reply["data"] == {"stdout": "hi\n", "stderr": "", "exit_code": 0}
    assert reply["meta"].keys() == {"duration_ms", "truncated", "handle", "sandbox"}
    assert reply["meta"]["truncated"] is False


def test_a_long_output_shows_both_ends_and_leaves_a_handle_to_all_of_it(shell: Client) -> None:
    reply = shell.call("run_cmd", command="seq 100000")
    assert len(reply.text.encode()) <= 10_000
    assert reply.meta["truncated"] is True
    lines = reply.body.splitlines()
    assert lines[0] == "1"
    assert lines[-1] == "100000"
    assert any("left out" in line for line in lines)
    page = shell.call("linux_handle_read", handle=reply.meta["handle"], offset=50_000, limit=1)
    assert page.body.strip() == "50001"


def test_errors_are_not_drowned_by_output(shell: Client) -> None:
    reply = shell.call("run_cmd", command=["bash", "-c", "seq 100000; seq 200000 300000 >&2; echo last >&2; exit 1"])
    out, _, err = reply.body.partition("--- stderr\n")
    assert out.startswith("1\n2\n")
    assert err.endswith("last\n")
    assert len(reply.text.encode()) <= 10_000


def test_one_endless_line_is_cut(shell: Client) -> None:
    reply = shell.call("run_cmd", command=["python3", "-c", "print('x' * 1000000 + 'end', end='')"])
    assert len(reply.text.encode()) <= 10_000
    assert reply.body.endswith("end")


def test_controls_are_made_visible(shell: Client) -> None:
    reply = shell.call("run_cmd", command=["printf", r"\033[31mred\007\n"])
    assert reply.body == "\u241b[31mred\u2407\n"


def test_standard_input_is_what_the_call_gives(shell: Client) -> None:
    assert shell.call("run_cmd", command=["cat"], stdin="given\n").body == "given\n"
    assert shell.call("run_cmd", command=["cat"]).body == ""


def test_the_working_directory_is_the_first_root_or_one_inside(shell: Client, workspace: Workspace) -> None:
    (workspace.root / "sub").mkdir()
    assert shell.call("run_cmd", command="pwd").body == f"{workspace.root}\n"
    assert shell.call("run_cmd", command="pwd", cwd="sub").body == f"{workspace.root}/sub\n"
    assert shell.call("run_cmd", command="pwd", cwd=str(workspace.outside)).code == "INVALID_PATH"


def test_without_a_shell_a_line_is_plain_words_and_the_hint_works(workspace: Workspace, tmp_path: Path) -> None:
    with classic(workspace, tmp_path, "--set", "tools.run_cmd_shell=never") as client:
        reply = client.call("run_cmd", command="echo a | wc -l").meta
        assert reply["data"]["stdout"] == "a | wc -l\n"
        assert '["bash", "-c", "…"]' in reply["meta"]["warnings"][0]
        hinted = client.call("run_cmd", command=["bash", "-c", "echo a | wc -l"]).meta
        assert hinted["data"]["stdout"] == "1\n"
    no_shell = ("--set", 'tools.run_cmd_allowlist=["echo"]')
    with classic(workspace, tmp_path, *no_shell) as client:
        reply = client.call("run_cmd", command="echo a | wc -l").meta
        assert reply["data"]["stdout"] == "a | wc -l\n"
        assert "bash" not in reply["meta"]["warnings"][0]


def test_a_timeout_says_what_was_printed_and_ends_everything(shell: Client) -> None:
    pause = "/usr/bin/python3 -c 'import signal; signal.pause()' llmc-exec-timeout"
    reply = shell.call("run_cmd", command=["bash", "-c", f"echo begun; setsid {pause} & {pause}"], timeout=1)
    assert reply.code == "TIMEOUT"
    assert "begun" in reply.meta["message"]
    assert pids_with("llmc-exec-timeout") == []


def test_what_a_timed_out_command_printed_is_in_a_handle(shell: Client) -> None:
    reply = shell.call("run_cmd", command=["bash", "-c", "seq 5000; sleep 1000"], timeout=1)
    handle = reply.meta["hint"].rpartition("handle ")[2].rstrip(".")
    assert "5000" in shell.call("linux_handle_read", handle=handle, offset=4_999, limit=1).body


def test_a_cancelled_command_ends_with_its_tree_and_gets_no_reply(shell: Client, workspace: Workspace) -> None:
    os.mkfifo(workspace.root / "begun")
    pause = "/usr/bin/python3 -c 'import signal; signal.pause()' llmc-exec-cancel"
    call = shell.start_call("run_cmd", {"command": ["bash", "-c", f"setsid {pause} & echo > begun; wait"]})
    (workspace.root / "begun").read_text()
    shell.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": call}})
    while pids_with("llmc-exec-cancel"):
        shell.call("health")
    assert not shell.call("run_cmd", command="true").is_error
    assert not any(b'"id":%d,' % call in line for line in shell.raw_lines)


def test_a_long_command_reports_progress(shell: Client) -> None:
    meta = {"progressToken": "p"}
    call = shell.start_call("run_cmd", {"command": ["python3", "-c", "import time; time.sleep(1.3)"]}, meta)
    shell.wait(call)
    assert [n for n in shell.notifications if n["params"].get("progressToken") == "p"]


def test_c16_many_commands_at_once_each_get_their_own_answer(shell: Client) -> None:
    calls = [shell.start_call("run_cmd", {"command": ["echo", f"number {number}"]}) for number in range(40)]
    replies = [Reply(shell.wait(call)["result"]) for call in calls]
    assert [reply.body for reply in replies] == [f"number {number}\n" for number in range(40)]


@pytest.mark.parametrize("arguments", [{"env": {"A": "b"}}, {"disable_sandbox": True}, {"shell": True}, {"timeout": 0}])
def test_b19_nothing_in_a_call_weakens_the_sandbox(shell: Client, arguments: dict[str, Any]) -> None:
    assert shell.call("run_cmd", command="true", **arguments).code == "BAD_ARGS"


def test_b16_the_protocol_stays_valid_under_a_flood_of_lookalikes(shell: Client) -> None:
    line = '{"jsonrpc":"2.0","id":1,"result":{"content":[]}}'
    shell.call("run_cmd", command=["bash", "-c", f"for i in $(seq 2000); do echo '{line}'; echo '{line}' >&2; done"])
    assert shell.call("run_cmd", command="echo still").body == "still\n"
    assert not any(message.get("id") == "not-json" for message in list(shell.messages.queue) if message)


def test_run_cmd_and_commands_can_be_switched_off(workspace: Workspace, tmp_path: Path) -> None:
    with classic(workspace, tmp_path, "--set", "tools.enable_run_cmd=false") as client:
        assert client.call("run_cmd", command="true").code == "FEATURE_DISABLED"
    with classic(workspace, tmp_path, "--set", "linux_ops.features.proc_enabled=false") as client:
        assert client.call("run_cmd", command="true").code == "FEATURE_DISABLED"
    with classic(workspace, tmp_path, "--set", "sandbox.level=read_only") as client:
        assert client.call("run_cmd", command="true").code == "FEATURE_UNAVAILABLE"


def test_the_operators_timeout_and_cap_hold(workspace: Workspace, tmp_path: Path) -> None:
    with classic(workspace, tmp_path, "--set", "tools.exec_timeout=0.5") as client:
        assert "longer than 0.5 s" in client.call("run_cmd", command="sleep 1000").meta["message"]
    with classic(workspace, tmp_path, "--set", "linux_ops.process_limits.max_timeout_sec=0.5") as client:
        assert "longer than 0.5 s" in client.call("run_cmd", command="sleep 1000", timeout=500).meta["message"]


def test_an_executable_of_the_operator_is_a_tool(workspace: Workspace, tmp_path: Path) -> None:
    program = workspace.file("greet", "#!/bin/sh\necho hello $*\n")
    program.chmod(0o755)
    with classic(workspace, tmp_path, "--set", f'tools.executables={{"greet": "{program}"}}') as client:
        entry = next(tool for tool in client.tools() if tool["name"] == "greet")
        assert entry["inputSchema"]["properties"].keys() == {"args"}
        assert entry["annotations"]["destructiveHint"] is True
        assert client.call("greet", args=["a", "b c"]).meta["data"]["stdout"] == "hello a b c\n"


def test_annotations_say_that_a_command_may_destroy(workspace: Workspace, tmp_path: Path) -> None:
    with classic(workspace, tmp_path) as client:
        tools = {tool["name"]: tool["annotations"] for tool in client.tools()}
    for name in ("run_cmd", "run_pytest"):
        assert tools[name]["readOnlyHint"] is False
        assert tools[name]["destructiveHint"] is True


# --- run_pytest ----------------------------------------------------------------------------------------------------

TESTS = """\
import pytest

def helper(value):
    assert value == 2, "helper says no"

def test_good(): pass

def test_bad():
    x = 1
    helper(x)

@pytest.mark.skip(reason="not today")
def test_skipped(): pass

@pytest.fixture
def broken(): raise RuntimeError("no fixture")

def test_error(broken): pass

@pytest.mark.parametrize("n", [1, 2])
def test_many(n): assert n == 1
"""


@pytest.fixture
def project(workspace: Workspace) -> Workspace:
    """A project whose own .venv has pytest: the one that runs these tests."""
    (workspace.root / ".venv/bin").mkdir(parents=True)
    (workspace.root / ".venv/bin/python").symlink_to(sys.executable)
    shutil.copy(Path(sys.prefix) / "pyvenv.cfg", workspace.root / ".venv/pyvenv.cfg")
    (workspace.root / ".venv/lib").symlink_to(Path(sys.prefix) / "lib")
    workspace.file("test_it.py", TESTS)
    workspace.file("pytest.ini", UNPLUGGED)
    return workspace


def run_pytest(project: Workspace, tmp_path: Path, **arguments: Any) -> Reply:
    with classic(project, tmp_path) as client:
        return client.call("run_pytest", **arguments)


def test_pytests_counts_and_failures_come_from_its_report(project: Workspace, tmp_path: Path) -> None:
    report = run_pytest(project, tmp_path).meta
    assert [report[key] for key in ("passed", "failed", "errors", "skipped")] == [2, 2, 1, 1]
    failures = {failure["test"]: failure for failure in report["failures"]}
    bad = failures["test_it.py::test_bad"]
    assert bad["file"] == "test_it.py"
    assert bad["line"] == 4, "where it went wrong, in the helper"
    assert "helper says no" in bad["message"]
    assert "no fixture" in failures["test_it.py::test_error"]["message"]
    assert "test_it.py::test_many[2]" in failures


def test_a_path_or_one_test_may_be_chosen(project: Workspace, tmp_path: Path) -> None:
    report = run_pytest(project, tmp_path, path="test_it.py::test_good").meta
    assert (report["passed"], report["failures"]) == (1, [])
    report = run_pytest(project, tmp_path, args=["-k", "many"]).meta
    assert (report["passed"], report["failed"]) == (1, 1)


def test_pytest_that_can_not_start_says_why(project: Workspace, tmp_path: Path) -> None:
    reply = run_pytest(project, tmp_path, args=["--no-such-option"])
    assert reply.code == "INVALID_ARGUMENT"
    assert "--no-such-option" in reply.meta["message"]


# A project's tests can write what they like where pytest was to write its report.
SPOIL = """
import atexit, sys
path = next(word.partition("=")[2] for word in sys.argv if word.startswith("--junit-xml="))
def spoil():
    print("said by the tests", flush=True)
    with open(path, "wb") as file:
        file.write({report})
atexit.register(spoil)
"""
SUITE = "b'<testsuites><testsuite tests=\"1\">' + {inside} + b'</testsuite></testsuites>'"
SPARE_KB = 50_000


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (
            "b'<!DOCTYPE a [<!ENTITY b \"' + b'x' * 1_000_000 + b'\">]><testsuites>' + b'&b;' * 20 + b'</testsuites>'",
            "document type",
        ),
        ("b'<!DOCTYPE a SYSTEM \"file:///etc/passwd\"><testsuites/>'", "document type"),
        ("b'<a>' * 5_000_000", "nested too deeply"),
        ("b'<testsuites>' + b' ' * 40_000_000", "40,000,012 bytes"),
        (SUITE.format(inside="b'<a/>' * 7_000_000"), "elements"),
        (SUITE.format(inside="b'<testcase name=\"' + b'x' * 30_000_000 + b'\"/>'"), ""),
        (SUITE.format(inside="b'<testcase><failure>' + b'a:1: ' * 6_000_000 + b'</failure></testcase>'"), ""),
        (SUITE.format(inside="b'<testcase><failure message=\"m\"/></testcase>' * 500_000"), "elements"),
        ("b'<testsuite tests=\"' + b'9' * 10_000_000 + b'\" time=\"inf\"/>'", ""),
    ],
)
def test_c24_a_hostile_report_is_read_with_bounds(project: Workspace, tmp_path: Path, report: str, words: str) -> None:
    project.file("conftest.py", SPOIL.format(report=report))
    with classic(project, tmp_path) as client:
        client.call("run_cmd", command="ls")
        before = status_kb(client.process.pid, "VmHWM")
        reply = client.call("run_pytest", args=["-k", "good"], timeout=60)
        assert status_kb(client.process.pid, "VmHWM") - before < SPARE_KB
    if words:
        assert words in reply.meta["message"], reply.text
        assert "said by the tests" in reply.text
    else:
        assert reply.is_error or reply.meta["passed"] <= 1


def test_c24_what_the_tests_printed_is_still_there_when_their_report_is_refused(
    project: Workspace, tmp_path: Path
) -> None:
    project.file("conftest.py", SPOIL.format(report="b'<!DOCTYPE a><testsuites/>'") + "print('x' * 50_000)\n")
    with classic(project, tmp_path) as client:
        reply = client.call("run_pytest", args=["-s"])
        handle = re.search(r"handle='([^']+)'", reply.meta["hint"])
        assert handle, reply.text
        assert "xxxx" in client.call("linux_handle_read", handle=handle[1]).text


def test_a_collection_error_is_an_error(project: Workspace, tmp_path: Path) -> None:
    project.file("test_it.py", "import no_such_module_at_all\n")
    report = run_pytest(project, tmp_path).meta
    assert report["errors"] == 1
    assert report["failures"][0]["message"]


def test_a_missing_file_is_not_blamed_on_the_network(shell: Client) -> None:
    code = "import sys; sys.exit(\"FileNotFoundError: [Errno 2] No such file or directory: 'x'\")"
    reply = shell.call("run_cmd", command=["python3", "-c", code])
    assert reply.meta["exit_code"] == 1
    assert "warnings" not in reply.meta
    missed = shell.call("run_cmd", command=["sh", "-c", "echo 'getaddrinfo ENOTFOUND example.org' >&2; exit 1"])
    assert "Network is off" in str(missed.meta["warnings"])


def test_a_long_output_says_how_many_lines_are_really_left_out(shell: Client) -> None:
    reply = shell.call("run_cmd", command="seq 100000")
    lines = reply.body.splitlines()
    (mark,) = [line for line in lines if "lines left out" in line]
    assert int("".join(filter(str.isdigit, mark))) == 100_000 - (len(lines) - 1)
