"""F01 to F20: attacks on rules and approvals. Nothing gets through that a person did not agree to."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llmc_mcp.config.load import Flags, load
from llmc_mcp.config.schema import RISKS, Config, PolicyRule
from llmc_mcp.errors import ApprovalRequired, Conflict, Declined, LlmcError, NotFound
from llmc_mcp.gate.dispatch import Gate
from llmc_mcp.gate.log import correlation_id
from llmc_mcp.permissions.approvals import LASTS_S, Approvals
from llmc_mcp.session import Session
from llmc_mcp.store.sqlite import SqliteStore
from llmc_mcp.visible import visible
from llmc_mcp.web.auth import open_table

from ..support.asking import ACCEPT, ASKS, StdioTalk, outcome, stateless
from ..support.asking import call as params_of
from ..support.client import PATIENCE, Client
from ..support.gates import gate_on
from ..support.http_server import OPEN_HANDED, HttpServer
from ..support.workspace import Workspace

WHO = Session("uid:0", "s")
DELETE: dict[str, Any] = {"path": "tree", "recursive": True}


@pytest.fixture
def gate(workspace: Workspace) -> Iterator[Gate]:
    workspace.file("tree/leaf.txt", "leaf")
    workspace.file("other/leaf.txt", "leaf")
    with gate_on(workspace.root) as made:
        yield made


def attempt(gate: Gate, tool: str, arguments: dict[str, Any], who: Session = WHO) -> str:
    """The code that a call ends with; empty if it was let through."""
    try:
        gate.call(gate.context(who, correlation_id()), tool, arguments)
    except LlmcError as exc:
        return exc.code
    return ""


def asked(gate: Gate, tool: str = "linux_fs_delete", arguments: dict[str, Any] = DELETE, who: Session = WHO) -> str:
    """The id of the approval that a refused call names."""
    with pytest.raises(ApprovalRequired) as refused:
        gate.call(gate.context(who, correlation_id()), tool, arguments)
    return refused.value.approval_id


def approved(gate: Gate, **more: Any) -> str:
    number = asked(gate, **more)
    gate.app.approvals.answer(number, True, "test")
    return number


# --- approvals -------------------------------------------------------------------------------------------------------


def test_f01_an_approval_is_not_used_twice(gate: Gate, workspace: Workspace) -> None:
    approved(gate)
    assert attempt(gate, "linux_fs_delete", DELETE) == ""
    workspace.file("tree/leaf.txt", "leaf")
    assert attempt(gate, "linux_fs_delete", DELETE) == "APPROVAL_REQUIRED"
    assert (workspace.root / "tree/leaf.txt").exists()


@pytest.mark.parametrize("forged", ["A_00000000", "", "%", "' OR 1=1 --", "A_" + "0" * 5000])
def test_f02_an_approval_cannot_be_made_up(gate: Gate, forged: str) -> None:
    asked(gate)
    with pytest.raises(NotFound):
        gate.app.approvals.answer(forged, True, "agent")
    assert attempt(gate, "linux_fs_delete", {**DELETE, "approval_id": forged}) == "BAD_ARGS"
    assert attempt(gate, "linux_fs_delete", DELETE) == "APPROVAL_REQUIRED"


@pytest.mark.parametrize(
    "changed", [{**DELETE, "path": "other"}, {**DELETE, "path": "./tree"}, {**DELETE, "allow_unjournaled": True}]
)
def test_f03_an_approval_is_of_no_use_with_other_arguments(gate: Gate, changed: dict[str, Any]) -> None:
    approved(gate)
    assert attempt(gate, "linux_fs_delete", changed) == "APPROVAL_REQUIRED"


def test_f04_of_two_answers_at_once_one_counts(gate: Gate) -> None:
    number = asked(gate)
    outcomes: list[str] = []
    start = threading.Barrier(6)

    def answer(yes: bool) -> None:
        store = SqliteStore(gate.app.data_dir)
        start.wait()
        try:
            outcomes.append(Approvals(lambda: store).answer(number, yes, "test").state)
        except Conflict:
            outcomes.append("too late")
        finally:
            store.close()

    threads = [threading.Thread(target=answer, args=(bool(turn % 2),)) for turn in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("too late") == 5
    state = next(row.state for row in gate.app.approvals.recent() if row.id == number)
    assert state in outcomes


FORGE = (
    "import sqlite3; c = sqlite3.connect({db!r}); "
    'c.execute("UPDATE approvals SET state=\'approved\'"); c.commit(); print("approved")'
)


def test_f05_an_agent_does_not_approve_itself_by_a_command(workspace: Workspace, tmp_path_factory: Any) -> None:
    workspace.file("tree/leaf.txt", "leaf")
    data = tmp_path_factory.mktemp("data")
    with Client("--root", str(workspace.root), env={"LLMC_DATA_DIR": str(data)}) as client:
        number = client.call("linux_fs_delete", **DELETE).meta["approval_id"]
        database = str(data / "llmc.db")
        script = (
            f"import sys; sys.path[:0] = {sys.path!r}; sys.argv = ['llmc', 'approve', {number!r}]\n"
            "from llmc_mcp.cli.main import main; main()"
        )
        attacks: list[str | list[str]] = [
            f"LLMC_DATA_DIR={data} {sys.executable} -c 'from llmc_mcp.cli.main import main; main()' approve {number}",
            ["env", f"LLMC_DATA_DIR={data}", "LLMC_COMMAND=", "python3", "-c", script],
            ["python3", "-c", FORGE.format(db=database)],
            f"sqlite3 {database} \"UPDATE approvals SET state='approved'\"",
            f"cp {database} here.db; ls {data}",
            f"ln -s {data} link && cat link/llmc.db",
        ]
        for attack in attacks:
            reply = client.call("run_cmd", command=attack)
            assert reply.is_error or "approved" not in reply.text.replace("state='approved'", ""), reply.text
            assert client.call("linux_fs_delete", **DELETE).code == "APPROVAL_REQUIRED", attack
    assert (workspace.root / "tree/leaf.txt").exists()


def test_f06_an_agent_does_not_approve_itself_by_code_or_a_file_tool(
    workspace: Workspace, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    workspace.file("tree/leaf.txt", "leaf")
    inside = workspace.root / "state"  # a data directory in the very root
    for data in (tmp_path_factory.mktemp("data"), inside):
        with Client("--root", str(workspace.root), env={"LLMC_DATA_DIR": str(data)}) as client:
            assert client.call("linux_fs_delete", **DELETE).code == "APPROVAL_REQUIRED"
            database = str(data / "llmc.db")
            for code in (
                f"open({database!r}, 'wb').write(b'')",
                f"linux_fs_write(path={database!r}, content='')",
                f"linux_fs_delete(path={database!r})",
                f"linux_fs_move(source={database!r}, target='here.db')",
                f"read_file(path={database!r})",
                f"run_cmd(command=['python3', '-c', {FORGE.format(db=database)!r}])['data']['stdout'].index('appr')",
                "linux_fs_delete(path='tree', recursive=True)",
                "call_tool(name='linux_fs_delete', args={'path': 'tree', 'recursive': True})",
            ):
                assert "error" in client.call("execute_code", code=code).text, code
            assert client.call("linux_fs_delete", **DELETE).code == "APPROVAL_REQUIRED"
    assert (workspace.root / "tree/leaf.txt").exists()


def test_f07_an_approval_expires(gate: Gate) -> None:
    number = approved(gate)
    with gate.app.store.transaction() as connection:
        connection.execute("UPDATE approvals SET expires_at=expires_at-? WHERE id=?", (LASTS_S + 1, number))
    assert attempt(gate, "linux_fs_delete", DELETE) == "APPROVAL_REQUIRED"
    late = asked(gate)
    with gate.app.store.transaction() as connection:
        connection.execute("UPDATE approvals SET expires_at=0 WHERE id=?", (late,))
    with pytest.raises(Conflict, match="expired"):
        gate.app.approvals.answer(late, True, "test")


def test_f08_an_approval_is_of_no_use_to_another_session(gate: Gate) -> None:
    approved(gate)
    other = msgspec.structs.replace(WHO, session_id="another")
    assert attempt(gate, "linux_fs_delete", DELETE, other) == "APPROVAL_REQUIRED"


def test_f09_an_approval_is_of_no_use_to_another_token(workspace: Workspace, tmp_path: Path) -> None:
    workspace.file("tree/leaf.txt", "leaf")
    table = open_table(str(tmp_path))
    one, other = (table.create(name, ("read", "write")) for name in ("one", "other"))
    store = SqliteStore(str(tmp_path))
    body = {"session_id": "S", "name": "linux_fs_delete", "args": DELETE}
    with (
        HttpServer(workspace.root, *OPEN_HANDED, env={"LLMC_DATA_DIR": str(tmp_path)}) as server,
        server.client(one) as first,
        server.client(other) as second,
    ):
        number = first.post("/tool", json=body).json()["approval_id"]
        Approvals(lambda: store).answer(number, True, "test")
        assert second.post("/tool", json=body).json()["code"] == "APPROVAL_REQUIRED"
        assert first.post("/tool", json=body).status_code == 200


def policed(*rules: PolicyRule) -> Config:
    config = Config()
    config.policy.rules = rules
    return config


def test_f10_a_later_rule_does_not_widen_an_earlier_one(workspace: Workspace) -> None:
    workspace.file("a.txt", "a")
    rules = (PolicyRule("deny", path="a.txt"), PolicyRule("allow", path="a.txt"), PolicyRule("allow"))
    with gate_on(workspace.root, policed(*rules)) as gate:
        assert attempt(gate, "read_file", {"path": "a.txt"}) == "PERMISSION_DENIED"


def test_f11_no_spelling_of_a_path_brings_a_call_past_a_rule(workspace: Workspace) -> None:
    root = workspace.root
    workspace.file("secret/key.txt", "the key")
    workspace.file("open/a.txt", "a")
    (root / "open/link").symlink_to("../secret")
    (root / "open/absolute").symlink_to(root / "secret/key.txt")
    (root / "open/chain").symlink_to("link")
    spellings = [
        *("secret/key.txt", "./secret/key.txt", "secret//key.txt", "secret/./key.txt", "open/../secret/key.txt"),
        *(
            "open/link/key.txt",
            "open/absolute",
            "open/chain/key.txt",
            f"{root}/secret/key.txt",
            f"{root}/./secret/key.txt",
        ),
        *(f"{root}/open/link/../secret/key.txt", "secret/key.txt/", f"{os.path.realpath(root)}/secret/key.txt"),
    ]
    for rules in (
        (PolicyRule("deny", path="secret"),),
        (PolicyRule("deny", path="secret/**"),),
        (PolicyRule("deny", path="**/key.txt"),),
        (PolicyRule("deny", path=f"{root}/secret"),),
        (PolicyRule("allow", path="open/**"), PolicyRule("deny")),
    ):
        with gate_on(root, policed(*rules)) as gate:
            for spelled in spellings:
                for tool, more in (("read_file", {}), ("linux_fs_edit", {"old_text": "the", "new_text": "a"})):
                    assert attempt(gate, tool, {"path": spelled, **more}), (rules, spelled)
    assert (root / "secret/key.txt").read_text() == "the key"


def test_f12_a_workspace_file_allows_nothing_and_takes_no_question_back(tmp_path: Path) -> None:
    text = '[[mcp.policy.rules]]\ndo = "allow"\n[mcp.policy]\nask = []\n[mcp.oauth]\nissuer = "https://evil.test"\n'
    (tmp_path / "llmc.toml").write_text(text)
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "none"), "LLMC_DATA_DIR": str(tmp_path / "data")}
    loaded = load(Flags(), environ=environ, directory=str(tmp_path))
    assert loaded.config.policy.rules == ()
    assert loaded.config.policy.ask == RISKS
    assert loaded.config.oauth.issuer == ""
    assert len(loaded.ignored) == 3


def test_f13_no_harmless_part_of_a_call_speaks_for_the_rest(workspace: Workspace) -> None:
    workspace.file("a.txt", "a")
    workspace.file("b.txt", "b")
    rules = (
        *(PolicyRule("allow", path="a.txt"), PolicyRule("deny", path="b.txt")),
        *(PolicyRule("allow", program="true"), PolicyRule("deny", tool="run_cmd")),
    )
    with gate_on(workspace.root, policed(*rules)) as gate:
        assert attempt(gate, "linux_fs_read_many", {"paths": ["a.txt", "b.txt"]}) == "PERMISSION_DENIED"
        assert attempt(gate, "linux_fs_move", {"source": "b.txt", "target": "a.txt"}) == "PERMISSION_DENIED"
        assert attempt(gate, "linux_fs_move", {"source": "a.txt", "target": "b.txt", "overwrite": True})
        for line in (
            "true; id",
            "true && id",
            "true | id",
            "true $(id)",
            "true `id`",
            "C=id; true; $C",
            "eval id",
            ". x",
        ):
            assert attempt(gate, "run_cmd", {"command": line}) == "PERMISSION_DENIED", line


def test_f14_calls_made_by_calls_are_judged_too(workspace: Workspace) -> None:
    workspace.file("a.txt", "the content")
    config = policed(PolicyRule("deny", tool="read_file"))
    config.tools.dynamic_tools = True
    with gate_on(workspace.root, config) as gate:
        for tool, arguments in (
            ("execute_code", {"code": "print(read_file(path='a.txt'))"}),
            ("execute_code", {"code": "print(call_tool(name='read_file', args={'path': 'a.txt'}))"}),
        ):
            assert "the content" not in gate.reply(gate.context(WHO, correlation_id()), tool, arguments).text
        assert attempt(gate, "call_tool", {"name": "read_file", "args": {"path": "a.txt"}}) == "PERMISSION_DENIED"


def test_f15_an_approval_does_not_follow_a_link_to_elsewhere(workspace: Workspace) -> None:
    workspace.file("one/a.txt", "1")
    workspace.file("two/a.txt", "2")
    link = workspace.root / "link"
    link.symlink_to("one")
    with gate_on(workspace.root, policed(PolicyRule("ask", path="*/a.txt"))) as gate:
        number = asked(gate, "read_file", {"path": "link/a.txt"})
        gate.app.approvals.answer(number, True, "test")
        link.unlink()
        link.symlink_to("two")
        assert attempt(gate, "read_file", {"path": "link/a.txt"}) == "APPROVAL_REQUIRED"


def test_f16_a_flood_of_questions_is_cut_off(gate: Gate) -> None:
    flooder = msgspec.structs.replace(WHO, principal="flooder")
    codes = {attempt(gate, "run_cmd", {"command": f"git push {number}"}, flooder) for number in range(60)}
    assert codes == {"APPROVAL_REQUIRED", "RATE_LIMITED"}
    assert sum(row.principal == "flooder" for row in gate.app.approvals.pending()) == 50
    assert attempt(gate, "linux_fs_delete", DELETE) == "APPROVAL_REQUIRED"


def test_f17_an_answer_that_nobody_asked_for_counts_for_nothing(server: Client, workspace: Workspace) -> None:
    workspace.file("tree/leaf.txt", "leaf")
    talk = StdioTalk(server)
    call = {**params_of("linux_fs_delete", **DELETE), "_meta": stateless(ASKS)}
    for key in ("consent", "consent-", "consent-0000000000000000", "*"):
        reply = talk.request("tools/call", {**call, "inputResponses": {key: ACCEPT}})
        assert reply["result"]["resultType"] == "input_required"
    without = {**params_of("linux_fs_delete", **DELETE), "_meta": stateless()}
    assert outcome(talk.request("tools/call", {**without, "inputResponses": {"consent": ACCEPT}})).code
    assert (workspace.root / "tree/leaf.txt").exists()


def test_f18_what_a_person_reads_is_what_is_asked(gate: Gate) -> None:
    tricky = "git push origin \x1b[2K\r# harmless \u202e dne"
    number = asked(gate, "run_cmd", {"command": tricky + " x" * 5000})
    environment = {**os.environ, "LLMC_DATA_DIR": gate.app.data_dir}
    command = [sys.executable, "-c", "from llmc_mcp.cli.main import main; main()", "approvals"]
    shown = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE
    ).stdout
    assert number in shown
    assert "\x1b" not in shown
    assert "\r" not in shown
    assert "\u202e" not in shown
    assert "characters …" in shown  # that something is left out is said
    assert visible("\x1b") in shown


def test_f19_a_denied_call_is_not_asked_about_until_somebody_tires(gate: Gate) -> None:
    who = msgspec.structs.replace(WHO, principal="nagging")
    gate.app.approvals.answer(asked(gate, who=who), False, "test")
    for _ in range(5):
        with pytest.raises(Declined):
            gate.call(gate.context(who, correlation_id()), "linux_fs_delete", DELETE)
    assert not [row for row in gate.app.approvals.pending() if row.principal == "nagging"]


@pytest.mark.parametrize("name", ["linux_fs_mkdirs", "linux_fs_mkdir", "linux.fs_mkdirs", "linux.fs_mkdir"])
@pytest.mark.parametrize("named", ["linux_fs_mkdirs", "linux_fs_mkdir", "linux_fs_mk*"])
def test_f20_no_other_name_of_a_tool_brings_a_call_past_a_rule(workspace: Workspace, name: str, named: str) -> None:
    with gate_on(workspace.root, policed(PolicyRule("deny", tool=named))) as gate:
        assert attempt(gate, name, {"path": "x"}) == "PERMISSION_DENIED"
        assert json.dumps(gate.visible(WHO)).count('"linux_fs_mkdirs"') == 0
