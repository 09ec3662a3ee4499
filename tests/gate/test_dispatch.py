"""The one way to a handler: what it lets through, what it makes of failure, and every tool through a real server."""

import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llmc_mcp.app import App
from llmc_mcp.config.schema import Config, Features, LinuxOps, Tools
from llmc_mcp.context import Context, Progress
from llmc_mcp.errors import BadArgs, Cancelled, FeatureDisabled, Internal, LlmcError, Timeout, UnknownTool
from llmc_mcp.gate.catalog import MODES, Catalog
from llmc_mcp.gate.dispatch import Gate
from llmc_mcp.gate.log import Log
from llmc_mcp.tool import Result, ToolDef, registered

from ..support.client import PATIENCE, UNASKED, Client, Reply
from ..support.gates import context, gate_on, text_of
from ..support.workspace import Workspace


class Word(Result):
    """A result of one word."""

    word: str


Install = Callable[[Callable[..., object]], str]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Make a function a tool for the length of a test."""

    def add(fn: Callable[..., object]) -> str:
        definition = ToolDef(fn, "For one test", name=fn.__name__, read_only=True)
        Catalog(Config())
        monkeypatch.setitem(registered, definition.name, definition)
        return definition.name

    return add


# --- in this process -----------------------------------------------------------------------------------


def test_a_call_reaches_its_handler_with_typed_arguments(tmp_path: Path, install: Install) -> None:
    def repeat_word(ctx: Context, word: str, times: int = 2) -> Word:
        return Word(word * times)

    name = install(repeat_word)
    with gate_on(tmp_path) as gate:
        assert gate.call(context(gate), name, {"word": "ab"}) == Word("abab")
        assert gate.call(context(gate), name, {"word": "ab", "times": 3}) == Word("ababab")


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"path": "x", "colour": 1}, "colour"),
        ({"path": "x", "max_lines": "ten"}, "max_lines"),
        ({"path": "x", "max_lines": 0}, "max_lines"),
        ({"path": "x", "max_lines": 2001}, "max_lines"),
        ({}, "path"),
    ],
)
def test_wrong_arguments_are_refused_by_the_name_of_the_field(
    tmp_path: Path, arguments: dict[str, object], field: str
) -> None:
    with gate_on(tmp_path) as gate, pytest.raises(BadArgs) as caught:
        gate.call(context(gate), "read_file", arguments)
    assert f"`{field}`" in caught.value.message


def test_an_unknown_tool_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with gate_on(tmp_path) as gate, pytest.raises(UnknownTool) as caught:
        gate.call(context(gate), "list_dri", {"path": "."})
    assert "list_dir" in (caught.value.hint or "")


def test_a_tool_of_a_feature_that_is_off_is_refused(tmp_path: Path) -> None:
    config = Config(linux_ops=LinuxOps(features=Features(fs_enabled=False)))
    with gate_on(tmp_path, config) as gate:
        with pytest.raises(FeatureDisabled):
            gate.call(context(gate), "read_file", {"path": "x"})
        assert gate.call(context(gate), "health", {})


def logged_gate(root: Path, log_fd: int) -> Gate:
    config = Config()
    log = Log(enabled=True, level="info", log_format="json", fd=log_fd)
    return Gate(App(config, [str(root)]), Catalog(config), log)


def test_a_handler_that_fails_is_internal_and_only_the_log_has_its_traceback(tmp_path: Path, install: Install) -> None:
    def broken_tool(ctx: Context) -> Word:
        raise RuntimeError("secret detail of the implementation")

    name = install(broken_tool)
    log_fd = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    gate = logged_gate(tmp_path, log_fd)
    ctx = context(gate)
    with pytest.raises(Internal) as caught:
        gate.call(ctx, name, {})
    envelope = caught.value.envelope(ctx.correlation_id)
    gate.log.close()
    os.close(log_fd)

    assert (envelope["code"], envelope["correlation_id"]) == ("INTERNAL", ctx.correlation_id)
    assert "secret detail" not in json.dumps(envelope)
    assert "Traceback" not in json.dumps(envelope)
    failure, summary = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert "secret detail" in failure["traceback"]
    assert failure["cid"] == summary["cid"] == ctx.correlation_id
    assert (failure["level"], summary["status"]) == ("error", "INTERNAL")


def test_after_a_failure_the_gate_goes_on(tmp_path: Path, install: Install) -> None:
    def broken_tool(ctx: Context) -> Word:
        raise RuntimeError

    name = install(broken_tool)
    with gate_on(tmp_path) as gate:
        for _ in range(3):
            with pytest.raises(Internal):
                gate.call(context(gate), name, {})
        assert json.loads(text_of(gate, "health"))["ok"] is True


def test_every_call_leaves_one_line_in_the_log_without_contents_and_secrets(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    log_fd = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    gate = logged_gate(tmp_path / "root", log_fd)
    gate.call(context(gate), "list_dir", {"path": "."})
    with pytest.raises(LlmcError):
        gate.call(context(gate), "read_file", {"path": "no-such.txt"})
    gate.call(context(gate), "linux_fs_write", {"path": "a.txt", "content": "private words\n"})
    with pytest.raises(LlmcError):
        gate.call(context(gate), "linux_proc_kill", {"pid": 1, "signal": "HUP"})
    gate.call(context(gate), "linux_proc_list", {"max_results": 5})
    gate.call(context(gate), "linux_search_content", {"root": ".", "pattern": "private"})
    gate.call(context(gate), "run_cmd", {"command": ["true", "--password=hunter2"]})
    gate.log.close()
    os.close(log_fd)
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    by_tool = {line["tool"]: line for line in lines}
    assert len(by_tool) == len(lines)
    assert (by_tool["list_dir"]["status"], by_tool["read_file"]["status"]) == ("ok", "NOT_FOUND")
    assert by_tool["read_file"]["args"] == "path=no-such.txt"
    assert by_tool["linux_proc_kill"]["args"] == "pid=1 signal=HUP"
    assert by_tool["linux_proc_kill"]["status"] == "KILL_FORBIDDEN"
    assert by_tool["linux_proc_list"]["total_processes"] > 0
    assert by_tool["linux_search_content"]["total_hits"] == 1
    assert {"duration_ms", "truncated", "tokens"} <= by_tool["list_dir"].keys()
    text = (tmp_path / "log").read_text()
    assert "private words" not in text
    assert "hunter2" not in text


def test_a_call_past_its_deadline_is_a_timeout(tmp_path: Path, install: Install) -> None:
    def endless(ctx: Context) -> Word:
        while True:
            ctx.check()

    name = install(endless)
    with gate_on(tmp_path, Config(tools=Tools(read_timeout=0.01))) as gate, pytest.raises(Timeout):
        gate.call(context(gate), name, {})


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_file", {"path": "big.txt"}),
        ("linux_search_content", {"root": ".", "pattern": "x"}),
        ("stat", {"path": "big.txt"}),
    ],
)
def test_the_engines_notice_that_time_is_up(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, tool: str, arguments: dict[str, object]
) -> None:
    workspace.file("big.txt", "x\n" * 100_000)
    calls = 0

    def late(ctx: Context) -> None:  # in time for the gate, too late for the engine
        nonlocal calls
        calls += 1
        if calls > 1:
            raise Timeout("the call took too long")

    with gate_on(workspace.root) as gate:
        monkeypatch.setattr(Context, "check", late)
        with pytest.raises(Timeout):
            gate.call(context(gate), tool, arguments)


def test_a_call_that_is_taken_back_ends_as_cancelled(tmp_path: Path, install: Install) -> None:
    running = threading.Event()

    def endless(ctx: Context) -> Word:
        while True:
            running.set()
            ctx.check()

    name = install(endless)
    with gate_on(tmp_path) as gate:
        ctx = context(gate)
        canceller = threading.Thread(target=lambda: running.wait(PATIENCE) and ctx.cancel())
        canceller.start()
        with pytest.raises(Cancelled):
            gate.call(ctx, name, {})
        canceller.join()


def test_a_call_cancelled_before_it_starts_never_reaches_its_handler(tmp_path: Path, install: Install) -> None:
    def never(ctx: Context) -> Word:
        raise AssertionError("the handler ran")

    name = install(never)
    with gate_on(tmp_path) as gate:
        ctx = context(gate)
        ctx.cancel()
        with pytest.raises(Cancelled):
            gate.call(ctx, name, {})


def test_progress_is_told_at_intervals_in_seconds_or_steps_and_always_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("llmc_mcp.context.time.monotonic", lambda: now)
    told: list[Progress] = []
    with gate_on(tmp_path) as gate:
        ctx = Context(gate.app, context(gate).session, correlation_id="c", progress=told.append)
        for now in (100.1, 100.4, 100.6, 100.7, 101.0, 101.2):  # noqa: B007 - the clock of the context reads it
            ctx.check()
        ctx.doing = "reading"
        for now, steps in ((102.0, (0, 50)), (103.0, (20, 50)), (104.0, (20, 50)), (105.0, (3, 7))):  # noqa: B007 - the clock of the context reads it
            ctx.steps = steps
            ctx.check()
    assert told == [
        *((0.6, None, "working"), (1.2, None, "working")),
        *((1.21, 50, "reading"), (20.0, 50, "reading"), (20.01, 50, "reading"), (20.02, None, "reading")),
    ]


# --- every tool, in every mode, through a server ---------------------------------------------------------

Arguments = Callable[[Client], dict[str, Any]]


def a_handle(client: Client) -> dict[str, Any]:
    text = client.call("linux_fs_read", path="big.txt", max_lines=2).text
    return {"handle": json.loads(text.split("\n", 1)[0])["handle"]}


fresh = (f"fresh-{number}" for number in itertools.count())


def a_new_file(client: Client) -> str:
    path = next(fresh)
    assert client.call("linux_fs_write", path=path, content="old\n").is_error is False
    return path


def a_change(client: Client) -> dict[str, Any]:
    a_new_file(client)
    return {}


def a_program(client: Client, **more: Any) -> dict[str, Any]:
    started = client.call("linux_proc_start", command="cat", wait_ms=200)
    return {"proc_id": started.meta["proc_id"], **more}


def a_process(_: Client) -> dict[str, Any]:
    with subprocess.Popen(["sh", "-c", "sleep 1000 & echo $!"], stdout=subprocess.PIPE) as shell:
        assert shell.stdout
        return {"pid": int(shell.stdout.readline()), "signal": "KILL"}


SAMPLES: dict[str, dict[str, Any] | Arguments] = {
    "00_INIT": {},
    "code_check": {"since": "session"},
    "code_edit": {"symbol": "test_true", "action": "rename", "new_name": "test_truth", "dry_run": True},
    "code_rewrite": {"pattern": "no_such($A)", "rewrite": "other($A)", "language": "python"},
    "execute_code": {"code": "1 + 1"},
    "get_metrics": {},
    "health": {},
    "linux_mcp_recent_calls": {},
    "linux_mcp_run_onboarding": {"flow_name": "explain_repo"},
    "linux_mcp_usage_stats": {},
    "linux_fs_apply_diff": lambda _: {"diff_text": f"--- /dev/null\n+++ b/{next(fresh)}\n@@ -0,0 +1 @@\n+new\n"},
    "linux_fs_changes": a_change,
    "linux_fs_delete": lambda client: {"path": a_new_file(client)},
    "linux_fs_edit": lambda client: {"path": a_new_file(client), "old_text": "old", "new_text": "new"},
    "linux_fs_list": {"path": "."},
    "linux_fs_mkdirs": lambda _: {"path": next(fresh)},
    "linux_fs_move": lambda client: {"source": a_new_file(client), "target": next(fresh)},
    "linux_fs_read": {"path": "notes.txt"},
    "linux_fs_read_many": {"paths": ["notes.txt", "sub/deep.txt"]},
    "linux_fs_undo": a_change,
    "linux_fs_write": lambda _: {"path": next(fresh), "content": "new\n"},
    "linux_handle_read": a_handle,
    "linux_proc_kill": a_process,
    "linux_proc_list": {"max_results": 5},
    "linux_proc_read": lambda client: a_program(client, timeout_ms=0),
    "linux_proc_send": lambda client: a_program(client, input="x"),
    "linux_proc_sessions": {},
    "linux_proc_start": {"command": "true"},
    "linux_proc_stop": a_program,
    "linux_proc_tree": {},
    "linux_search_content": {"root": ".", "pattern": "needle"},
    "linux_search_files": {"root": ".", "pattern": "deep"},
    "linux_sys_services": {},
    "linux_sys_snapshot": {},
    "list_dir": {"path": "."},
    "inspect": {"symbol": "test_true"},
    "rag_bootload": {"session_id": "S", "task_id": "find-the-needle"},
    "rag_index": {},
    "rag_lineage": {"symbol": "test_true"},
    "rag_plan": {"query": "find the needle"},
    "rag_search": {"query": "needle", "scope": "both"},
    "rag_search_enriched": {"query": "needle", "scope": "both"},
    "rag_stats": {},
    "rag_where_used": {"symbol": "test_true"},
    "read_file": {"path": "notes.txt"},
    "repo_read": {"root": ".", "path": "notes.txt"},
    "run_cmd": {"command": "echo hello"},
    "te_run": {"command": "echo hello"},
    "run_pytest": {"path": "sub/test_sample.py"},
    "stat": {"path": "notes.txt"},
}
EVERY_TOOL = [(mode, tool.name) for mode in MODES for tool in Catalog(Config(mode=mode)).listed]


def own_pytest(root: Path) -> None:
    """A virtual environment below the root with a copy of the pytest that runs these tests."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root / ".venv"], check=True)
    (target,) = root.glob(".venv/lib/python3*/site-packages")
    installed = Path(pytest.__file__).parent.parent
    for name in ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        shutil.copytree(installed / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(installed / "py.py", target)
    for info in installed.glob("pytest-*.dist-info"):
        shutil.copytree(info, target / info.name)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Client]]:
    """A running server for each mode, all on one folder."""
    root = tmp_path_factory.mktemp("modes")
    (root / "notes.txt").write_text("one\nneedle two\nthree\n")
    (root / "big.txt").write_text("line\n" * 5_000)
    (root / "sub").mkdir()
    (root / "sub" / "deep.txt").write_text("another needle\n")
    (root / "sub" / "test_sample.py").write_text("def test_true():\n    assert True\n")
    own_pytest(root)
    clients = {mode: Client("--root", str(root), "--mode", mode, *UNASKED) for mode in MODES}
    yield clients
    for client in clients.values():
        client.close()


def sample_call(client: Client, tool: str) -> Reply:
    sample = SAMPLES[tool]
    return client.call(tool, **(sample(client) if callable(sample) else sample))


@pytest.mark.parametrize(("mode", "tool"), EVERY_TOOL)
def test_every_listed_tool_works(servers: dict[str, Client], mode: str, tool: str) -> None:
    assert tool in SAMPLES, f"{tool} is new: give it sample arguments"
    reply = sample_call(servers[mode], tool)
    if tool == "linux_sys_services" and not Path("/run/systemd/system").is_dir():
        assert reply.code == "FEATURE_UNAVAILABLE"
        return
    assert reply.is_error is False, reply.text
    if mode == "classic":
        assert isinstance(json.loads(reply.text), dict)
    else:
        meta = reply.meta
        if "body_bytes" in meta:
            assert meta["body_bytes"] == len(reply.body.encode())
        else:
            assert reply.body == ""


@pytest.mark.parametrize("mode", MODES)
def test_the_list_of_a_running_server_is_the_one_these_tests_cover(servers: dict[str, Client], mode: str) -> None:
    assert [(mode, entry["name"]) for entry in servers[mode].tools()] == [row for row in EVERY_TOOL if row[0] == mode]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("read_file", {"path": "missing.txt"}, "NOT_FOUND"),
        ("read_file", {}, "BAD_ARGS"),
        ("read_file", {"path": "/etc/passwd"}, "INVALID_PATH"),
        ("read_file", {"path": "sub"}, "NOT_A_FILE"),
        ("list_dir", {"path": "notes.txt"}, "NOT_A_DIRECTORY"),
        ("no_such_tool", {}, "UNKNOWN_TOOL"),
        ("linux_search_content", {"root": ".", "pattern": "("}, "INVALID_ARGUMENT"),
    ],
)
def test_an_error_is_one_envelope_in_every_mode(
    servers: dict[str, Client], mode: str, tool: str, arguments: dict[str, object], code: str
) -> None:
    reply = servers[mode].call(tool, **arguments)
    assert reply.is_error is True
    envelope = json.loads(reply.text)
    assert envelope["code"] == code
    assert set(envelope) <= {"code", "message", "hint", "correlation_id"}
    assert len(envelope["correlation_id"]) == 36
    assert envelope["correlation_id"] != servers[mode].call(tool, **arguments).meta["correlation_id"]
