"""Rules about calls: the first match decides, and neither links nor harmless parts of a call bring it past one."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from llmc_mcp.config.load import Flags, GivenSetting, load
from llmc_mcp.config.schema import Config, PolicyRule, WorkspaceRule
from llmc_mcp.errors import ApprovalRequired, Declined, LlmcError, PermissionDenied
from llmc_mcp.gate.dispatch import Gate
from llmc_mcp.gate.log import correlation_id
from llmc_mcp.permissions.globs import name_regex, path_regex
from llmc_mcp.permissions.rules import CallShape, RuleTable, Subject
from llmc_mcp.session import Session

from ..support.gates import gate_on
from ..support.workspace import Workspace

READ = CallShape(("linux_fs_read",), "uid:0", False)
WRITE = CallShape(("linux_fs_write",), "uid:0", True)
UNREADABLE = ": '" + "<" * 4_000 + "'; "  # the parser gives up on so many


def action(rules: list[PolicyRule], shape: CallShape = READ, *subjects: Subject, risk: str = "") -> str:
    return RuleTable(rules, ("push",), ["/w"]).decide(shape, subjects, risk).action


def path(*paths: str) -> list[Subject]:
    return [Subject(one) for one in paths]


def test_the_first_rule_that_matches_decides() -> None:
    rules = [PolicyRule("allow", path="a/b"), PolicyRule("deny", path="a/*"), PolicyRule("ask", when="changes")]
    assert action(rules, READ, *path("/w/a/b")) == "allow"
    assert action(rules, READ, *path("/w/a/c")) == "deny"
    assert action(rules, READ, *path("/w/c")) == "allow"
    assert action(rules, WRITE, *path("/w/c")) == "ask"


def test_the_strictest_part_of_a_call_counts() -> None:
    rules = [PolicyRule("allow", path="a/**"), PolicyRule("deny", path="b/**")]
    assert action(rules, READ, *path("/w/a/x", "/w/b/x")) == "deny"
    by_program = [PolicyRule("allow", program="git"), PolicyRule("deny", tool="run_cmd")]
    shape = CallShape(("run_cmd",), "uid:0", True)
    assert action(by_program, shape, Subject(program="git")) == "allow"
    assert action(by_program, shape, Subject(program="git"), Subject(program="?")) == "deny"


def test_a_workspaces_rules_only_make_it_stricter() -> None:
    own = [PolicyRule("deny", path="secret"), PolicyRule("allow")]
    added = [WorkspaceRule("ask", path="secret"), WorkspaceRule("ask", path="docs")]
    for rules in (own + added, added + own):
        assert action(rules, READ, *path("/w/secret/x")) == "deny"
        assert action(rules, READ, *path("/w/docs/x")) == "ask"
        assert action(rules, READ, *path("/w/src/x")) == "allow"


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("secrets", ["/w/secrets", "/w/secrets/a/b", "/w/x/secrets/y"], ["/w/secretsx", "/w/xsecrets"]),
        ("*.pem", ["/w/a.pem", "/w/x/y/a.pem", "/w/a.pem/x"], ["/w/a.pemx", "/w/pem"]),
        ("src/*.py", ["/w/src/a.py"], ["/w/src/x/a.py", "/v/src/a.py"]),
        ("src/**/*.py", ["/w/src/a.py", "/w/src/x/y/a.py"], ["/w/other/a.py"]),
        ("/etc/**", ["/etc/passwd"], ["/w/etc/passwd"]),
        ("a/[bc].txt", ["/w/a/b.txt"], ["/w/a/d.txt"]),
        ("a/[!b].txt", ["/w/a/c.txt"], ["/w/a/b.txt", "/w/a//.txt"]),
        ("a/b?.txt", ["/w/a/bx.txt"], ["/w/a/b.txt", "/w/a/b/.txt"]),
        ("a.b", ["/w/a.b"], ["/w/aXb"]),
        ("src/../secret/x", ["/w/secret/x"], ["/w/src/secret/x"]),
        ("./k*", ["/w/key"], ["/w/x/key"]),
        ("/w/longer/../k*", ["/w/key"], ["/w/longer/key"]),
    ],
)
def test_a_path_glob_means_what_it_names_and_all_below(pattern: str, matching: list[str], others: list[str]) -> None:
    rules = [PolicyRule("deny", path=pattern)]
    assert [one for one in matching if action(rules, READ, *path(one)) != "deny"] == []
    assert [one for one in others if action(rules, READ, *path(one)) != "allow"] == []


def test_rules_name_tools_tokens_and_subjects() -> None:
    rules = [
        PolicyRule("deny", token="ci-*"),
        PolicyRule("deny", subject="bob"),
        PolicyRule("deny", tool="linux_fs_w*"),
    ]
    assert action(rules, READ._replace(principal="ci-1")) == "deny"
    assert action(rules, READ._replace(principal="sub:bob")) == "deny"
    assert action(rules, READ._replace(principal="bob")) == "allow"
    assert action(rules, READ._replace(principal="sub:ci-1")) == "allow"
    assert action(rules, WRITE) == "deny"


def test_without_a_rule_a_risk_asks_and_a_rule_may_allow_it() -> None:
    assert action([], WRITE, risk="push") == "ask"
    assert action([], WRITE, risk="unjournaled") == "allow"  # not in this table's list
    assert action([PolicyRule("allow", risk="push")], WRITE, risk="push") == "allow"
    assert action([PolicyRule("deny", risk="push")], WRITE, risk="push") == "deny"


# --- through the gate ------------------------------------------------------------------------------------------------


def policed(*rules: PolicyRule) -> Config:
    config = Config()
    config.policy.rules = rules
    return config


def code_of(gate: Gate, tool: str, /, session: Session | None = None, **arguments: Any) -> str:
    ctx = gate.context(session or Session("uid:0", "s"), correlation_id())
    try:
        gate.call(ctx, tool, arguments)
    except LlmcError as exc:
        return exc.code
    return ""


def test_a_link_or_dots_bring_no_call_past_a_rule(workspace: Workspace) -> None:
    workspace.file("secret/key.txt", "s")
    workspace.file("open/a.txt", "a")
    (workspace.root / "open/link").symlink_to("../secret/key.txt")
    (workspace.root / "open/dir").symlink_to(workspace.root / "secret")
    with gate_on(workspace.root, policed(PolicyRule("allow", path="open/**"), PolicyRule("deny"))) as gate:
        assert code_of(gate, "read_file", path="open/a.txt") == ""
        for spelled in (
            "secret/key.txt",
            "open/link",
            "open/dir/key.txt",
            "open/../secret/key.txt",
            "./secret/key.txt",
        ):
            assert code_of(gate, "read_file", path=spelled) == "PERMISSION_DENIED", spelled
        assert code_of(gate, "linux_fs_write", path="open/dir/new.txt", content="x") == "PERMISSION_DENIED"
        assert code_of(gate, "linux_fs_read_many", paths=["open/a.txt", "secret/key.txt"]) == "PERMISSION_DENIED"
        assert code_of(gate, "linux_fs_move", source="open/a.txt", target="secret/a.txt") == "PERMISSION_DENIED"


def test_a_diff_and_a_whole_tree_are_judged_by_what_they_touch(workspace: Workspace) -> None:
    workspace.file("secret/key.txt", "s\n")
    workspace.file("open/a.txt", "a\n")
    diff = "--- a/secret/key.txt\n+++ b/secret/key.txt\n@@ -1 +1 @@\n-s\n+t\n"
    with gate_on(workspace.root, policed(PolicyRule("deny", path="secret/**"))) as gate:
        assert code_of(gate, "linux_fs_apply_diff", diff_text=diff) == "PERMISSION_DENIED"
        assert code_of(gate, "linux_search_content", root=".", pattern="s") == "PERMISSION_DENIED"
        assert code_of(gate, "linux_search_content", root="open", pattern="a") == ""
        assert code_of(gate, "linux_fs_move", source=".", target="x") == "PERMISSION_DENIED"
        assert code_of(gate, "linux_fs_delete", path="open/a.txt") == ""


def test_edits_and_checks_of_code_are_judged_by_what_they_touch(workspace: Workspace) -> None:
    workspace.file("secret/key.py", "def key():\n    return 1\n")
    workspace.file("open/a.py", "def opened():\n    return key()\n")
    (workspace.root / "open/link.py").symlink_to("../secret/key.py")
    body: dict[str, Any] = {"action": "replace_body", "text": "def key():\n    return 2\n"}
    pattern: dict[str, Any] = {"pattern": "return $A", "rewrite": "return ($A, 0)", "language": "python"}
    with gate_on(workspace.root, policed(PolicyRule("deny", path="secret/**"))) as gate:
        for symbol in ("secret/key.py:key", f"{workspace.root}/secret/key.py:key", "open/link.py:key", "key"):
            assert code_of(gate, "code_edit", symbol=symbol, **body) == "PERMISSION_DENIED", symbol
        for symbol in ("open/a.py:opened", "opened"):
            asked: dict[str, Any] = {"symbol": symbol, "action": "rename", "new_name": "other"}
            assert code_of(gate, "code_edit", **asked) == "PERMISSION_DENIED", symbol
        for paths in (None, ["."], ["open", "secret"], ["secret/key.py"]):
            assert code_of(gate, "code_rewrite", paths=paths, **pattern) == "PERMISSION_DENIED", paths
            assert code_of(gate, "code_check", paths=paths) == "PERMISSION_DENIED", paths
        assert (workspace.root / "secret/key.py").read_text() == "def key():\n    return 1\n"
        text = "def opened():\n    return 3\n"
        assert code_of(gate, "code_edit", symbol="open/a.py:opened", action="replace_body", text=text) == ""
        assert code_of(gate, "code_rewrite", paths=["open"], **pattern) == ""
        assert (workspace.root / "open/a.py").read_text() == "def opened():\n    return (3, 0)\n"


def test_a_client_that_narrows_the_roots_moves_no_rule(workspace: Workspace) -> None:
    workspace.file("secret/key.txt", "s\n")
    workspace.file("sub/secret/key.txt", "s\n")
    with gate_on(workspace.root, policed(PolicyRule("deny", path="secret/**"))) as gate:
        for folder, path in (("secret", "key.txt"), ("sub", "secret/key.txt")):
            gate.use_roots([str(workspace.root / folder)]).close()
            assert code_of(gate, "read_file", path=path) == "PERMISSION_DENIED", folder


def test_programs_of_a_line_are_judged_one_by_one(workspace: Workspace) -> None:
    config = policed(
        PolicyRule("allow", program="echo"), PolicyRule("allow", program="cat"), PolicyRule("deny", tool="run_cmd")
    )
    with gate_on(workspace.root, config) as gate:
        assert code_of(gate, "run_cmd", command="echo hi | cat") == ""
        lines: list[str | list[str]] = [
            *("echo hi; ls", "echo $(ls)", "X=ls; $X", "cat <(ls)", "timeout 5 ls", "echo a | xargs ls"),
            *(["bash", "-c", "ls"], ["env", "ls"], "/bin/ls", "./cat"),
        ]
        for line in lines:
            assert code_of(gate, "run_cmd", command=line) == "PERMISSION_DENIED", line


@pytest.mark.parametrize(
    "spelled", ["/usr//bin/id", "/bin/../usr/bin/id", "/proc/self/root/usr/bin/id", "./id", "bin/id"]
)
def test_no_spelling_of_a_program_brings_a_call_past_a_rule(workspace: Workspace, spelled: str) -> None:
    with gate_on(workspace.root, policed(PolicyRule("deny", program="id"))) as gate:
        assert code_of(gate, "run_cmd", command=[spelled]) == "PERMISSION_DENIED"
        assert code_of(gate, "run_cmd", command=f"true && {spelled}") == "PERMISSION_DENIED"


def test_a_line_that_can_not_be_read_names_a_program_that_nobody_knows(workspace: Workspace) -> None:
    with gate_on(workspace.root, policed(PolicyRule("allow", program="echo"), PolicyRule("deny", program="*"))) as gate:
        assert code_of(gate, "run_cmd", command=["echo", "hi"]) == ""
        assert code_of(gate, "run_cmd", command=["bash", "-c", UNREADABLE + "id"]) == "PERMISSION_DENIED"
        assert code_of(gate, "run_cmd", command="echo;" * 2_000 + "id") == "PERMISSION_DENIED"
    shells = [PolicyRule("allow", program=name) for name in ("echo", "bash", "eval", "env")]
    with gate_on(workspace.root, policed(*shells, PolicyRule("deny", program="*"))) as gate:
        for line in (
            'X=id; bash -c "$X"',
            'X=id; eval "$X"',
            "bash -eo pipefail -c id",
            "bash +e -c -e id",
            "env -S id",
        ):
            assert code_of(gate, "run_cmd", command=line) == "PERMISSION_DENIED", line
    with gate_on(workspace.root) as gate:
        assert code_of(gate, "run_cmd", command=["bash", "-c", UNREADABLE + "git push"]) == "APPROVAL_REQUIRED"


def test_calls_inside_code_are_judged_too(workspace: Workspace) -> None:
    workspace.file("secret.txt", "the content")
    with gate_on(workspace.root, policed(PolicyRule("deny", path="secret.txt"))) as gate:
        ctx = gate.context(Session("uid:0", "s"), correlation_id())
        text = gate.reply(ctx, "execute_code", {"code": "print(read_file(path='secret.txt'))"}).text
        assert "PERMISSION_DENIED" in text
        assert "the content" not in text


def test_what_is_never_allowed_is_not_listed_and_the_list_stays(workspace: Workspace) -> None:
    config = policed(PolicyRule("deny", tool="run_cmd", token="ci"), PolicyRule("deny", tool="read_file", path="x"))
    with gate_on(workspace.root, config) as gate:
        listed = {entry["name"] for entry in gate.visible(Session("ci", "s"))}
        assert "run_cmd" not in listed
        assert "read_file" in listed
        assert "run_cmd" in {entry["name"] for entry in gate.visible(Session("uid:0", "s"))}
        gate.app.config.policy.rules = (PolicyRule("deny", tool="read_file"),)
        assert listed == {entry["name"] for entry in gate.visible(Session("ci", "s"))}
        assert "read_file" not in {entry["name"] for entry in gate.visible(Session("ci", "s2"))}
        assert code_of(gate, "read_file", Session("ci", "s"), path="a") == "PERMISSION_DENIED"


def test_an_approved_call_is_let_through_once_and_a_denied_one_stays_refused(workspace: Workspace) -> None:
    workspace.file("a.txt", "a")
    with gate_on(workspace.root, policed(PolicyRule("ask", path="a.txt"))) as gate:
        who = Session("uid:0", "s")

        def read() -> None:
            gate.call(gate.context(who, correlation_id()), "read_file", {"path": "a.txt"})

        with pytest.raises(ApprovalRequired) as refused:
            read()
        assert refused.value.envelope("c")["approval_id"] == refused.value.approval_id
        gate.app.approvals.answer(refused.value.approval_id, True, "test")
        read()
        with pytest.raises(ApprovalRequired) as refused:
            read()
        gate.app.approvals.answer(refused.value.approval_id, False, "test")
        with pytest.raises(Declined):
            read()


@pytest.mark.parametrize(
    ("line", "asks"),
    [
        ("git push origin main", True),
        ("git -C . push", True),
        ("bash -c 'git push'", True),
        ("cd x && git push -f", True),
        ("git 'pu'sh", True),
        ("git log --grep push", False),
        ("echo git push", False),
        ("rm -rf build", False),
        ("rm -r ./*", True),
        ("rm -rf .", True),
        ("rm -rf $X", True),
        ("rm -rf .git", True),
        ("rm -fr -- /", True),
        ("rm -rf ~", True),
        ("rm a.txt", False),
        ("cd x && rm -rf y", False),
    ],
)
def test_only_commands_that_matter_ask(workspace: Workspace, line: str, asks: bool) -> None:
    with gate_on(workspace.root) as gate:
        ctx = gate.context(Session("uid:0", "s"), correlation_id())
        tool = gate.catalog.find("run_cmd")
        decision, _ = gate.permits.decide(ctx, tool, tool.parse({"command": line}))
        assert decision.action == ("ask" if asks else "allow")


# --- configuration ---------------------------------------------------------------------------------------------------


def loaded(tmp_path: Path, own: str, workspace: str = "") -> Config:
    own_file = tmp_path / "home/llmc/llmc.toml"
    own_file.parent.mkdir(parents=True)
    own_file.write_text(own)
    folder = tmp_path / "w"
    folder.mkdir()
    (folder / "llmc.toml").write_text(workspace)
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "home"), "LLMC_DATA_DIR": str(tmp_path / "data")}
    return load(Flags(), environ=environ, directory=str(folder)).config


def test_rules_are_written_as_tables_in_either_spelling(tmp_path: Path) -> None:
    config = loaded(tmp_path, '[[mcp.policy]]\ntool = "run_cmd"\ndo = "ask"\n[[mcp.policy]]\npath = "x"\ndo = "deny"\n')
    assert config.policy.rules == (PolicyRule("ask", tool="run_cmd"), PolicyRule("deny", path="x"))


def test_a_workspace_file_adds_asks_and_denials_only(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        '[[mcp.policy.rules]]\ndo = "deny"\npath = "x"\n[mcp.policy]\ncross_mounts = false\n',
        '[[mcp.policy]]\ndo = "allow"\n[[mcp.policy]]\ndo = "ask"\ntool = "run_cmd"\n',
    )
    assert config.policy.rules == (PolicyRule("deny", path="x"), WorkspaceRule("ask", tool="run_cmd"))
    assert isinstance(config.policy.rules[1], WorkspaceRule)
    assert not config.policy.cross_mounts


def test_a_person_who_runs_llmc_is_not_asked(workspace: Workspace) -> None:
    from llmc_mcp.cli.person import gate_on as persons_gate

    workspace.file("tree/leaf.txt", "x")
    before = os.getcwd()
    os.chdir(workspace.root)
    try:
        gate = persons_gate(str(workspace.root))
        try:
            assert code_of(gate, "linux_fs_delete", path="tree", recursive=True) == ""
        finally:
            gate.close()
    finally:
        os.chdir(before)


def test_a_denied_call_says_which_rule(workspace: Workspace) -> None:
    workspace.file("a.txt", "a")
    with gate_on(workspace.root, policed(PolicyRule("deny", path="*.txt"))) as gate:
        ctx = gate.context(Session("uid:0", "s"), correlation_id())
        with pytest.raises(PermissionDenied, match=r"rule 1 \(path=\*\.txt → deny\)"):
            gate.call(ctx, "read_file", {"path": "a.txt"})


def test_changed_rules_count_from_the_next_call_on(workspace: Workspace) -> None:
    workspace.file("a.txt", "a")
    with gate_on(workspace.root, policed(PolicyRule("deny", path="a.txt"))) as gate:
        for turn in range(20):  # whatever address the next table of rules is at
            gate.app.config.policy.rules = (PolicyRule("deny" if turn % 2 else "allow", path="a.txt"),)
            assert code_of(gate, "read_file", path="a.txt") == ("PERMISSION_DENIED" if turn % 2 else "")


def test_the_operator_chooses_which_risks_ask(workspace: Workspace) -> None:
    workspace.file("tree/leaf.txt", "x")
    config = Config()
    config.policy.ask = ("push",)
    with gate_on(workspace.root, config) as gate:
        assert code_of(gate, "run_cmd", command="git push") == "APPROVAL_REQUIRED"
        assert code_of(gate, "linux_fs_delete", path="tree", recursive=True) == ""


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*a*a*a*b", "/r/xaxaxab", True),
        ("*a*a*a*b", "/r/xaxaxa", False),
        ("src/*.py", "/r/src/a.py.py", True),
        ("src/*.py", "/r/src/deep/a.py", False),
        ("src/*x*/end", "/r/src/axbx/end", True),
        ("src/**/x*y/z", "/r/src/x1/a/x2y/z", True),  # the first x is not the one
        ("src/*[!a]*.c", "/r/src/aab.c", True),
        ("src/*", "/r/src/any/thing", True),
        ("src/?", "/r/src/ab", False),
    ],
)
def test_a_glob_of_paths_means_what_it_says(pattern: str, path: str, matches: bool) -> None:
    assert bool(re.fullmatch(path_regex(pattern, ["/r"]), path)) is matches


def test_a_glob_that_could_match_in_many_ways_is_quick() -> None:
    stars, name = "*a" * 40 + "b", "a" * 4_000
    assert not re.fullmatch(path_regex(stars, ["/r"]), f"/r/{name}")
    assert not re.fullmatch(name_regex(stars), name)


def test_a_rule_holds_few_wildcards_that_cross_folders() -> None:
    text = '[{"do": "deny", "path": "a/**/b/**/c/**/d"}]'
    with pytest.raises(LlmcError, match=r"more than 2 \*\*"):
        load(Flags(settings=[GivenSetting("policy.rules", text, "--set policy.rules", spelled=True)]))
