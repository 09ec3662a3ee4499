"""te_run: a command in the sandbox, its output as `te` would show it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmc_mcp.config.schema import Config
from llmc_mcp.errors import Internal

from ..envelope.test_te_answers import Broken
from ..support.client import Client
from ..support.gates import gate_on, text_of
from ..support.workspace import SECRET, Workspace, hand_over, run_as_at


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def server(workspace: Workspace, data: Path, *flags: str) -> Client:
    return Client("--root", str(workspace.root), *flags, env={"LLMC_DATA_DIR": str(data)})


@pytest.fixture
def shell(workspace: Workspace, data: Path) -> Iterator[Client]:
    with server(workspace, data) as client:
        yield client


def many_hits(workspace: Workspace) -> None:
    for number in range(60):
        workspace.file(f"src/m{number}.py", "".join(f"call(thing, {n})  # a use of it\n" for n in range(40)))
    workspace.file("src/core.py", "def call(what, times):\n    return what\n")


def test_it_is_there_but_only_classic_mode_lists_it(workspace: Workspace, data: Path, shell: Client) -> None:
    assert "te_run" not in {tool["name"] for tool in shell.tools()}
    with server(workspace, data, "--mode", "classic") as client:
        assert "te_run" in {tool["name"] for tool in client.tools()}


def test_json_has_the_shape_of_the_contract(workspace: Workspace, data: Path) -> None:
    many_hits(workspace)
    with server(workspace, data, "--mode", "classic") as client:
        answer: dict[str, Any] = client.call("te_run", command="grep -rn call src").meta
    assert answer.keys() == {
        *("success", "mode", "command", "stdout", "stderr", "exit_code", "enrichment", "telemetry"),
    }
    assert (answer["success"], answer["mode"], answer["exit_code"]) == (True, "enriched", 0)
    assert answer["command"] == "grep -rn call src"
    assert answer["stdout"].startswith("src/core.py\n1:def call(what, times):\n")
    assert answer["enrichment"]["match_count"] == 60 * 40 + 1
    assert answer["enrichment"]["truncated"] is True
    assert answer["telemetry"].keys() == {"latency_ms", "agent_id", "budget_remaining"}


def test_the_reply_is_short_and_the_handle_has_all(workspace: Workspace, shell: Client) -> None:
    many_hits(workspace)
    reply = shell.call("te_run", command=["grep", "-rn", "call", "src"])
    assert len(reply.text.encode()) <= 10_000
    handle = reply.meta["enrichment"]["handle"]
    page = shell.call("linux_handle_read", handle=handle, offset=0, limit=5000)
    assert page.meta["total"] == 60 * 40 + 1
    assert shell.call("read_file", path=handle).body.count("\n") > 50


@pytest.mark.usefixtures("sqlite_store")
def test_a_shell_of_the_same_user_reads_the_same_handle(workspace: Workspace, data: Path, shell: Client) -> None:
    from ..support.envelope import Te

    many_hits(workspace)
    handle = shell.call("te_run", command="grep -rn call src").meta["enrichment"]["handle"]
    te = Te(workspace.root, data)
    assert te("--handle", handle, "--grep", "def call").lines[0].endswith("src/core.py:1:def call(what, times):")
    mine = te("grep", "-rn", "call", "src").meta["handle"]
    assert shell.call("read_file", path=mine).body


def test_what_is_not_understood_passes_through(shell: Client) -> None:
    reply = shell.call("te_run", args=["bash", "-c", "echo out; echo err >&2; exit 3"])
    assert (reply.meta["mode"], reply.meta["success"], reply.meta["exit_code"]) == ("passthrough", False, 3)
    assert (reply.body, reply.meta["stderr"]) == ("out\n", "err\n")


def test_the_command_knows_whom_it_runs_for(workspace: Workspace, data: Path) -> None:
    flags = ["--set", "session.default_agent_id=ada", "--set", "session.default_model=gpt"]
    with server(workspace, data, *flags) as client:
        reply = client.call("te_run", command=["sh", "-c", "echo $TE_AGENT_ID,$TE_SESSION_ID,$TE_MODEL"])
    agent, session, model = reply.body.strip().split(",")
    assert session
    assert agent == reply.meta["telemetry"]["agent_id"]
    assert model


def test_the_command_is_in_the_sandbox(workspace: Workspace, shell: Client) -> None:
    secret = workspace.outside / "secret.txt"
    for command in (["cat", str(secret)], ["grep", "-r", "SECRET", str(workspace.outside)]):
        reply = shell.call("te_run", command=command)
        assert SECRET not in reply.text
        assert reply.is_error or reply.meta["exit_code"] != 0


def test_the_list_of_programs_holds(shell: Client) -> None:
    assert shell.call("te_run", command="curl http://localhost").code in ("COMMAND_NOT_ALLOWED", "NOT_FOUND")
    assert shell.call("te_run", command="te grep x").code in ("COMMAND_NOT_ALLOWED", "NOT_FOUND")


@pytest.mark.parametrize("arguments", [{}, {"command": "ls", "args": ["ls"]}, {"command": ""}, {"args": []}])
def test_exactly_one_command_is_wanted(shell: Client, arguments: dict[str, Any]) -> None:
    assert shell.call("te_run", **arguments).code == "BAD_ARGS"


def test_binary_output_is_given_as_it_is(workspace: Workspace, shell: Client) -> None:
    workspace.file("image.bin", b"PNG\0\1\2" * 50)
    reply = shell.call("te_run", command="cat image.bin")
    assert reply.meta["mode"] == "passthrough"
    assert "PNG" in reply.body


@pytest.mark.usefixtures("sqlite_store")
def test_te_run_leaves_a_row_of_its_command(workspace: Workspace, data: Path, shell: Client) -> None:
    from ..support.envelope import Te

    shell.call("te_run", command="ls")
    commands = Te(workspace.root, data).stats()["commands"]
    assert [(row["command"], row["runs"]) for row in commands] == [("ls", 1)]
    usage = json.loads(shell.call("linux_mcp_usage_stats").text)["tools"]
    assert "te_run" in usage  # its latency, among the tools'
    assert "te ls" not in usage  # not twice


# --- te through run_cmd ------------------------------------------------------------------------------------


def test_run_cmd_answers_for_te(workspace: Workspace, shell: Client) -> None:
    many_hits(workspace)
    reply = shell.call("run_cmd", command="te grep -rn call src")
    assert "# TE_BEGIN_META" in reply.text
    assert "1:def call(what, times):" in reply.text
    assert "te --handle H_cmd_" in reply.text
    short = shell.call("run_cmd", command=["te", "cat", "src/core.py"])
    assert short.body == "def call(what, times):\n    return what\n"
    raw = shell.call("run_cmd", command="te --raw grep -n return src/core.py")
    assert raw.body == "2:    return what\n"
    told = json.loads(shell.call("run_cmd", command="te --json grep -c x src/core.py").body)
    assert (told["mode"], told["stdout"], told["exit_code"]) == ("passthrough", "0\n", 1)
    fed = shell.call("run_cmd", command="te grep two", stdin="one\ntwo\n")
    assert fed.body == "two\n"


def test_run_cmd_reads_what_te_kept(workspace: Workspace, shell: Client) -> None:
    many_hits(workspace)
    meta = shell.call("te_run", command="grep -rn call src").meta["enrichment"]
    handle = meta["handle"]
    assert meta["total_matches"] == 60 * 40 + 1
    assert meta["hint"] == f"te --handle {handle} [--chunk N | --grep PATTERN] has all of it"
    whole = shell.call("run_cmd", command=f"te --handle {handle}").text
    assert "src/core.py:1:def call" in whole or '"lines":2401' in whole
    first = shell.call("run_cmd", command=f"te --handle {handle} --chunk 0").text
    assert '"chunk":1,"chunks":25,"lines":2401' in first
    found = shell.call("run_cmd", command=["te", "--handle", handle, "--grep", "core.py.*def call"]).text
    assert '"matches":1' in found
    assert "src/core.py:1:def call(what, times):" in found
    nothing = shell.call("run_cmd", command=["te", "--handle", handle, "--grep", "nowhere to be found"])
    assert '"matches":0' in nothing.text
    assert handle in shell.call("run_cmd", command="te --list-handles").text
    assert shell.call("run_cmd", command=["te", "--handle", handle, "--grep", "\\(", "--chunk", "1"]).is_error
    assert shell.call("run_cmd", command=["te", "--handle", handle, "--grep", "\\("]).code == "BAD_ARGS"


def test_a_chunk_of_long_lines_says_which_did_not_fit(workspace: Workspace, shell: Client) -> None:
    workspace.file("wide.txt", "".join(f"{number} {'word ' * 100}\n" for number in range(300)))
    handle = shell.call("te_run", command="cat wide.txt").meta["enrichment"]["handle"]
    page = shell.call("run_cmd", command=f"te --handle {handle} --chunk 2").body
    assert page.splitlines()[3].startswith("100 word ")
    left = next(line for line in page.splitlines() if "lines of this chunk" in line).split()[2]
    offset = int(page.partition("from offset ")[2].split()[0])
    assert offset == 200 - int(left)
    assert shell.call("linux_handle_read", handle=handle, offset=offset, limit=1).body.startswith(f"{offset} word ")


@pytest.mark.parametrize("level", ["workspace", "landlock"])
def test_what_is_kept_is_searched_at_every_level(workspace: Workspace, data: Path, level: str) -> None:
    """The sandbox has no path to the handle's file: grep reads it from an open descriptor."""
    workspace.file("long.txt", "".join(f"line {number} of a long text\n" for number in range(3_000)))
    flags = ["--set", f"sandbox.level={level}"]
    if user := run_as_at(level):
        hand_over(workspace.root)
        flags += ["--set", f"sandbox.run_as={user}"]
    with server(workspace, data, *flags) as client:
        handle = client.call("te_run", command="cat long.txt").meta["enrichment"]["handle"]
        reply = client.call("run_cmd", command=["te", "--handle", handle, "--grep", "^line 271. "])
    assert reply.meta["sandbox"] == level
    assert '"matches":10,"lines":3000' in reply.body
    assert "2711:line 2710 of a long text\n" in reply.body


def test_run_cmd_reads_no_handle_of_another_project(workspace: Workspace, data: Path, shell: Client) -> None:
    from ..support.envelope import Te

    (workspace.outside / "long.txt").write_text("some words of another project\n" * 9_000)
    theirs = Te(workspace.outside, data)("cat", "long.txt").meta["handle"]
    forged = "H_cmd_20260101T000000Z_aaaaaaaaaaaaaaaa"
    for handle in (theirs, forged, "../../etc/passwd"):
        reply = shell.call("run_cmd", command=["te", "--handle", handle])
        assert reply.code == "HANDLE_NOT_FOUND"
        assert "another project" not in reply.text
    assert theirs not in shell.call("run_cmd", command="te --list-handles").text


def test_the_list_of_programs_holds_behind_te(shell: Client) -> None:
    assert shell.call("run_cmd", command="te curl http://localhost").code in ("COMMAND_NOT_ALLOWED", "NOT_FOUND")
    assert shell.call("run_cmd", command="te --raw curl http://localhost").code in ("COMMAND_NOT_ALLOWED", "NOT_FOUND")


@pytest.mark.parametrize(
    "command", ["te", "te --raw", "te init bash", "te --bogus", "te --handle", "te --json", "te --handle --help"]
)
def test_what_te_does_not_do_here_is_said(shell: Client, command: str) -> None:
    assert shell.call("run_cmd", command=command).is_error


@pytest.mark.parametrize("command", ["te grep call src | head", ["bash", "-c", "te grep call src"]])
def test_in_a_shell_line_te_is_missing_and_that_is_explained(shell: Client, command: str | list[str]) -> None:
    assert "te is answered by the server" in shell.call("run_cmd", command=command).text


def test_te_run_hints_at_a_folder_that_grep_does_not_search(workspace: Workspace, shell: Client) -> None:
    workspace.file("src/a.py", "needle\n")
    enrichment = shell.call("te_run", command="grep needle src/").meta["enrichment"]
    assert enrichment["hint"] == "src/ is a folder: grep -r searches it"


# --- settings ----------------------------------------------------------------------------------------------


def run(workspace: Workspace, config: Config, command: str, *, unchanged: int = 0) -> dict[str, Any]:
    config.mode, config.te.unchanged_tokens = "classic", unchanged
    with gate_on(workspace.root, config) as gate:
        return json.loads(text_of(gate, "te_run", command=command))


def test_te_run_runs_commands_as_they_are_where_te_is_switched_off(workspace: Workspace) -> None:
    workspace.file("a.txt", "one\n")
    config = Config()
    assert run(workspace, config, "grep -n one a.txt")["stdout"] == "a.txt\n1:one\n"
    config.te.enabled = False
    off = run(workspace, config, "grep -n one a.txt")
    assert (off["mode"], off["stdout"]) == ("passthrough", "1:one\n")


def test_a_short_output_is_the_commands_own(workspace: Workspace) -> None:
    workspace.file("a.txt", "one")
    workspace.file("b.txt", "one\n")
    config = Config()
    short = run(workspace, config, "cat a.txt", unchanged=400)
    assert (short["mode"], short["stdout"]) == ("passthrough", "one")
    assert run(workspace, config, "grep -r one b.txt", unchanged=400)["stdout"] == "one\n"
    config.te.json_mode = False
    assert run(workspace, config, "cat a.txt", unchanged=400)["stdout"] == "one"


def test_te_run_answers_as_text_where_that_is_wanted(workspace: Workspace) -> None:
    workspace.file("a.txt", "one\n")
    config = Config()
    config.te.json_mode = False
    answer = run(workspace, config, "cat a.txt")
    assert answer["stdout"].startswith("# TE_BEGIN_META\n")
    assert "enrichment" not in answer


def test_te_run_takes_no_longer_than_configured(workspace: Workspace) -> None:
    config = Config()
    config.te.timeout = 0.2
    with gate_on(workspace.root, config) as gate:
        with pytest.raises(Exception, match=r"longer than 0\.2 s"):
            text_of(gate, "te_run", command="sleep 60")
        assert not list(Path(gate.app.data_dir, "handles").glob("spool.*"))


def test_a_mistake_in_enriching_is_an_error_only_where_that_is_wanted(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(landmark: object, *, numbered: bool, ends: str, start: int | None) -> Broken:
        return Broken()

    monkeypatch.setattr("llmc_mcp.envelope.text.Text", broken)
    workspace.file("a.txt", "one\n")
    config = Config()
    answer = run(workspace, config, "cat a.txt")
    assert (answer["mode"], answer["stdout"]) == ("passthrough", "one\n")
    config.te.passthrough_on_failure = False
    with pytest.raises(Internal, match="could not be enriched"):
        run(workspace, config, "cat a.txt")


def test_a_hard_budget_that_is_used_up_leaves_counts(workspace: Workspace) -> None:
    many_hits(workspace)
    config = Config()
    config.te.default_budget, config.te.hard_budget, config.mode = 300, True, "classic"
    with gate_on(workspace.root, config) as gate:
        for _ in range(4):
            text_of(gate, "te_run", command="grep -rn call src")
        answer = json.loads(text_of(gate, "te_run", command="grep -rn call src"))
    assert (answer["enrichment"]["match_count"], answer["enrichment"]["level"]) == (2_401, "counts")
    assert answer["stdout"].startswith("# TE: the session's budget of tokens is used up")
    assert answer["stdout"].count("\n") == 1


def test_budgets_are_by_agent(workspace: Workspace) -> None:
    config = Config()
    config.te.default_budget = 7_000
    assert run(workspace, config, "true")["telemetry"]["budget_remaining"] <= 7_000
    config.te.budgets = {"unknown": 180_000}
    assert run(workspace, config, "true")["telemetry"]["budget_remaining"] > 100_000
