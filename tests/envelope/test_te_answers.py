"""What te answers around a command's output: within its budget, as JSON, behind a handle, and when things go wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from llmc_mcp.envelope.families import Envelope, recognise
from llmc_mcp.envelope.family import Budget, FamilyPlan
from llmc_mcp.envelope.text import Ends
from llmc_mcp.tokens import estimate

from ..support.envelope import Te
from ..support.forked import llmc


@pytest.fixture
def te(tmp_path: Path) -> Te:
    folder = tmp_path / "work"
    folder.mkdir()
    return Te(folder, tmp_path / "data", unchanged=False)


# --- budgets -------------------------------------------------------------------------------------------


def flood(te: Te) -> None:
    for number in range(40):
        te.file(f"src/m{number}.py", "".join(f"call(thing, {n})\n" for n in range(50)))


@pytest.mark.parametrize(("budget", "level"), [(1_000_000, "grouped"), (8_000, "grouped"), (1_500, "counts")])
def test_the_smaller_the_budget_the_shorter_the_answer(te: Te, budget: int, level: str) -> None:
    flood(te)
    te.file("llmc.toml", "[mcp]\nmode='hybrid'\n")
    (te.data / ".config/llmc").mkdir(parents=True)
    (te.data / ".config/llmc/llmc.toml").write_text(
        f"[mcp]\nmode = 'hybrid'\n[mcp.te]\nbudgets = {{tester = {budget}}}\n"
    )
    done = te("grep", "-rn", "call", "src", XDG_CONFIG_HOME=str(te.data / ".config"))
    assert done.meta["level"] == level
    assert done.meta["matches"] == 2_000
    assert done.meta["handle"]
    assert estimate(done.out) <= max(min(budget // 10, 2_500), 200) * 1.1 + 60


def test_a_session_that_reads_on_gets_shorter_answers(te: Te) -> None:
    flood(te)
    sizes: list[int] = []
    left: list[int] = []
    answer: dict[str, Any] = {}
    for _ in range(60):
        answer = te.json("grep", "-rn", "call", "src", TE_SESSION_ID="one", LLMC_MCP_TE_DEFAULT_BUDGET="5000")
        sizes.append(answer["enrichment"]["tokens_estimate"])
        left.append(answer["telemetry"]["budget_remaining"])
        if answer["enrichment"]["level"] == "counts":
            break
    assert answer["enrichment"]["level"] == "counts"
    assert sizes[-1] < sizes[0]
    assert left == sorted(left, reverse=True)
    fresh = te.json("grep", "-rn", "call", "src", TE_SESSION_ID="two", LLMC_MCP_TE_DEFAULT_BUDGET="5000")
    assert fresh["telemetry"]["budget_remaining"] == left[0]


def test_an_agent_that_is_not_named_gets_the_default_budget(te: Te) -> None:
    te.file("a.txt", "one\n")
    environ = {"LLMC_MCP_TE_BUDGETS": '{"rich": 180000}', "LLMC_MCP_TE_DEFAULT_BUDGET": "7000"}
    assert te.json("cat", "a.txt", **environ)["telemetry"]["budget_remaining"] < 7_000
    assert te.json("cat", "a.txt", TE_AGENT_ID="rich", **environ)["telemetry"]["budget_remaining"] > 170_000


def test_no_answer_costs_more_than_configured(te: Te) -> None:
    flood(te)
    long = te("grep", "-rn", "call", "src")
    short = te("grep", "-rn", "call", "src", LLMC_MCP_TE_REPLY_TOKENS="600")
    assert estimate(short.out) <= 700 < estimate(long.out)


def test_a_configuration_with_a_mistake_does_not_stop_a_command(te: Te) -> None:
    te.file("llmc.toml", "[mcp.te]\nenabeld = false\n")
    te.file("a.txt", "one\n")
    done = te("cat", "a.txt")
    assert (done.out, done.code) == (b"one\n", 0)  # the defaults hold: a short output as it is
    assert b"enabeld" in done.err


def test_te_can_be_switched_off(te: Te) -> None:
    te.file("a.txt", "one\n")
    assert te("cat", "a.txt", LLMC_MCP_TE_ENABLED="false").out == b"one\n"
    assert te.json("cat", "a.txt", LLMC_MCP_TE_ENABLED="false")["mode"] == "passthrough"


class Broken(Ends):
    """A family with a mistake in it."""

    def take(self, lines: list[bytes]) -> None:
        raise RuntimeError("a mistake")


def test_a_mistake_of_ours_does_not_cost_the_output() -> None:
    envelope = Envelope(FamilyPlan(["x"], Broken()), lambda: None)
    envelope.feed(b"one\ntwo\n")
    assert envelope.finish(Budget(1_000)) is None
    assert envelope.held == b"one\ntwo\n"
    assert envelope.as_it_is(Budget(1_000)).shown.lines == [b"one", b"two"]


# --- JSON ------------------------------------------------------------------------------------------------


def test_json_has_the_promised_shape(te: Te) -> None:
    te.file("a.txt", "one\ntwo\n")
    answer = te.json("grep", "-n", "one", "a.txt", TE_AGENT_ID="ada")
    latency = answer["telemetry"].pop("latency_ms")
    assert isinstance(latency, float)
    assert answer["telemetry"].pop("budget_remaining") < 50_000
    assert answer == {
        "success": True,
        "mode": "enriched",
        "command": "grep -n one a.txt",
        "stdout": "a.txt\n1:one\n",
        "stderr": "",
        "exit_code": 0,
        "enrichment": {
            "match_count": 1,
            "truncated": False,
            "handle": None,
            "tokens_estimate": estimate("a.txt\n1:one\n"),
        },
        "telemetry": {"agent_id": "ada"},
    }


def test_json_of_what_is_not_understood_keeps_both_ends(te: Te) -> None:
    answer = te.json("sh", "-c", "seq 1 100000; echo oops >&2; exit 5")
    assert (answer["success"], answer["mode"], answer["exit_code"]) == (False, "passthrough", 5)
    assert answer["stderr"] == "oops\n"
    lines = answer["stdout"].splitlines()
    assert (lines[0], lines[-1]) == ("1", "100000")
    assert answer["enrichment"]["truncated"] is True
    assert te("--handle", answer["enrichment"]["handle"], "--chunk", "500").lines[0] == "49901"


def test_json_of_binary_output_is_json(te: Te) -> None:
    answer = te.json("head", "-c", "3000", "/dev/urandom")
    assert (answer["mode"], answer["exit_code"]) == ("passthrough", 0)


# --- handles ---------------------------------------------------------------------------------------------


def test_a_handle_is_read_in_chunks_and_searched(te: Te) -> None:
    te.file("long.txt", "".join(f"line number {number} of a long text\n" for number in range(1, 2_501)))
    handle = te("cat", "long.txt").meta["handle"]
    first, last = te("--handle", handle, "--chunk", "1"), te("--handle", handle, "--chunk", "25")
    assert (first.meta["chunk"], first.meta["chunks"], first.meta["lines"]) == (1, 25, 2_500)
    assert (first.lines[0], len(first.lines)) == ("line number 1 of a long text", 100)
    assert first.crumbs == [f"chunk 2: te --handle {handle} --chunk 2"]
    assert (last.lines[-1], last.crumbs) == ("line number 2500 of a long text", [])
    found = te("--handle", handle, "--grep", "number 77[12] ")
    assert (found.code, found.lines) == (
        0,
        ["771:line number 771 of a long text", "772:line number 772 of a long text"],
    )
    many = te("--handle", handle, "--grep", "line")
    assert many.meta["matches"] == 2_500
    assert many.crumbs == [f"{2_500 - len(many.lines):,} more lines match"]
    assert te("--handle", handle, "--grep", "nowhere").code == 1


def test_a_handle_without_more_gives_all_as_far_as_the_budget_goes(te: Te) -> None:
    te.file("long.txt", "".join(f"line number {number} of a long text\n" for number in range(1, 2_501)))
    handle = te("cat", "long.txt").meta["handle"]
    done = te("--handle", handle)
    shown = len(done.lines)
    assert done.meta["lines"] == 2_500
    assert shown >= 200
    assert shown % 100 == 0
    assert (done.lines[0], done.lines[-1]) == ("line number 1 of a long text", f"line number {shown} of a long text")
    pointer = f"te --handle {handle} --chunk {shown // 100 + 1}"
    assert done.crumbs == [f"{2_500 - shown:,} more lines: {pointer} or --grep PATTERN"]
    assert te(*pointer.split()[1:]).lines[0] == f"line number {shown + 1} of a long text"
    rich = {"LLMC_MCP_TE_REPLY_TOKENS": "100000", "LLMC_MCP_TE_DEFAULT_BUDGET": "1000000"}
    whole = te("--handle", handle, **rich)
    assert (len(whole.lines), whole.crumbs) == (2_500, [])
    assert te("--handle", handle, LLMC_MCP_TE_REPLY_TOKENS="300").crumbs == [
        f"these and the lines after them: te --handle {handle} --chunk 1"
    ]


def test_chunk_0_is_the_first(te: Te) -> None:
    te.file("long.txt", "".join(f"line number {number} of a long text\n" for number in range(1, 2_501)))
    handle = te("cat", "long.txt").meta["handle"]
    assert te("--handle", handle, "--chunk", "0").out == te("--handle", handle, "--chunk", "1").out != b""


# --- a hard budget -----------------------------------------------------------------------------------------


def test_a_session_that_used_up_a_hard_budget_gets_counts_and_a_sentence(te: Te) -> None:
    flood(te)
    te.file("a.txt", "one\n")
    te.file("image.bin", b"PNG\0" * 100)
    environ = {"TE_SESSION_ID": "one", "LLMC_MCP_TE_DEFAULT_BUDGET": "300", "LLMC_MCP_TE_HARD_BUDGET": "true"}
    environ["LLMC_MCP_TE_UNCHANGED_TOKENS"] = "400"
    handle = te("grep", "-rn", "call", "src", **environ).meta["handle"]
    for _ in range(3):
        te("grep", "-rn", "call", "src", **environ)
    done = te("grep", "-rn", "call", "src", **environ)
    assert (done.meta["matches"], done.meta["level"], done.meta["truncated"]) == (2_000, "counts", True)
    assert done.lines == []
    assert done.crumbs[0].startswith("the session's budget of tokens is used up")
    for words in (["cat", "a.txt"], ["cat", "image.bin"], ["--handle", handle], ["--handle", handle, "--grep", "call"]):
        done = te(*words, **environ)
        assert (done.lines, "used up" in done.crumbs[0]) == ([], True)
    answer = te.json("sh", "-c", "seq 1 500", **environ)
    assert (answer["enrichment"]["match_count"], answer["enrichment"]["level"]) == (500, "counts")
    assert answer["stdout"].startswith("# TE: the session's budget")
    assert te("cat", "a.txt", **{**environ, "LLMC_MCP_TE_HARD_BUDGET": "false"}).out == b"one\n"
    assert te("cat", "a.txt", **{**environ, "TE_SESSION_ID": "two"}).out == b"one\n"


def test_handles_are_listed_and_a_forged_one_is_not_there(te: Te) -> None:
    te.file("long.txt", "some words in a line\n" * 9_000)
    handle = te("cat", "long.txt").meta["handle"]
    assert handle in te("--list-handles").out.decode()
    assert json.loads(te("--list-handles", "--json").out)["source"] == "cat"
    for wrong in ("H_cmd_20260101T000000Z_aaaaaaaaaaaaaaaa", "../../etc/passwd", ""):
        done = te("--handle", wrong)
        assert (done.code, done.out) == (1, b"")
        assert b"there is no handle" in done.err
    done = te("--handle", handle, "--chunk", "91")
    assert (done.code, done.err) == (1, f"te: {handle} has 90 chunks\n".encode())


def test_reading_a_handle_counts_towards_the_budget(te: Te) -> None:
    te.file("long.txt", "some words in a line\n" * 9_000)
    environ = {"TE_SESSION_ID": "s"}
    handle = te("cat", "long.txt", **environ).meta["handle"]
    before = te.json("true", **environ)["telemetry"]["budget_remaining"]
    te("--handle", handle, **environ)
    assert te.json("true", **environ)["telemetry"]["budget_remaining"] < before - 300


# --- what may go wrong ---------------------------------------------------------------------------------------

BREAK = (
    "import llmc_mcp.envelope.text as text\n"
    "class Broken(text.Ends):\n"
    "    def show(self, held, budget):\n"
    "        raise RuntimeError('a mistake')\n"
    "text.Text = lambda *_, **__: Broken()\n"
    "from llmc_mcp.te.main import main\n"
    "main()\n"
)


@pytest.mark.parametrize("lines", [10, 100_000])
def test_a_mistake_of_ours_gives_the_output_as_it_is(te: Te, lines: int) -> None:
    content = te.file("a.txt", "".join(f"line number {number} of it\n" for number in range(lines))).read_bytes()
    broken = [sys.executable, "-c", BREAK, "cat", "a.txt"]
    done = subprocess.run(broken, env=te.env, cwd=te.folder, capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (content, b"")
    env = {**te.env, "LLMC_MCP_TE_PASSTHROUGH_ON_FAILURE": "false"}
    done = subprocess.run(broken, env=env, cwd=te.folder, capture_output=True, check=True)
    assert done.stdout == b""
    assert b"could not be enriched" in done.stderr
    handle = done.stderr.decode().split()[-1]
    assert te("--handle", handle).lines[0] == "line number 0 of it"


def test_an_identity_may_be_any_bytes(te: Te) -> None:
    te.file("a.txt", "one\n")
    for agent in (os.fsdecode(b"\xff\xfe"), "x" * 5_000, "ad\na"):
        assert te("cat", "a.txt", TE_AGENT_ID=agent, TE_SESSION_ID=agent, TE_MODEL=agent).lines == ["one"]
        assert te.json("cat", "a.txt", TE_AGENT_ID=agent)["stdout"] == "one\n"
    assert sum(row["runs"] for row in te.stats()["agents"]) == 6


def test_json_of_a_raw_command_says_so(te: Te) -> None:
    te.file("a.txt", "one\n")
    answer = te.json("--raw", "grep", "-n", "one", "a.txt")
    assert (answer["mode"], answer["stdout"]) == ("raw", "1:one\n")


def test_a_closed_output_is_the_commands_business(te: Te) -> None:
    script = f"{sys.executable} -c 'from llmc_mcp.te.main import main; main()' sh -c 'echo x 2>/dev/null; exit 6' >&-"
    done = subprocess.run(["bash", "-c", script], env=te.env, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (6, b"")


def test_what_came_after_too_much_is_said(te: Te, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmc_mcp.envelope.families._LOOKED_AT", 1_000)
    plan = recognise(["grep", "-r", "x"])
    assert plan
    envelope = Envelope(plan, lambda: None)
    for _ in range(20):
        envelope.feed(b"a.py\x001:x y z\n" * 10)
    done = envelope.finish(Budget(2_000))
    assert done
    assert (done.shown.counts["matches"], done.shown.cut) == (70, True)
    assert done.shown.crumbs[-1] == "130 lines after the first 0 MB were not looked at"


def test_statistics_of_te_are_in_those_for_people(te: Te) -> None:
    te("sh", "-c", "seq 1 1000")
    shown = llmc("stats", "--json", env=te.env)
    assert [(row["tool"], row["calls"]) for row in json.loads(shown.stdout)] == [("te sh", 1)]
