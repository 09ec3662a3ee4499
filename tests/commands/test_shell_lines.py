"""Lines for a shell: what they do, which programs they name, and what hostile ones meet."""

import os
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmc_mcp.commands.shell_child import names_in
from llmc_mcp.commands.shell_syntax import needs_shell, split
from llmc_mcp.config.schema import Config
from llmc_mcp.errors import BadArgs, CommandNotAllowed, NotFound
from llmc_mcp.rag.parse.grammars import CACHE, unpack

from ..support.talk import Talk, talk_on
from ..support.workspace import Workspace, hand_over, require


@pytest.fixture(scope="session", autouse=True)
def grammar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The parser's own process is told where the grammar is; so is this one, which parses without it."""
    patch = pytest.MonkeyPatch()
    patch.setenv(CACHE, unpack(str(tmp_path_factory.mktemp("grammars")), ["bash"]))
    yield
    patch.undo()


# --- what lines do -------------------------------------------------------------------------------------


IN_BASH = [
    ("cd sub && pwd | sed 's|.*/||'", "sub\n"),
    ("echo one two | wc -w", "2\n"),
    ("echo hi > made && cat made", "hi\n"),
    ("ls *.toml", "a.toml\nb.toml\n"),
    ("echo $((6 * 7)) ${HOME:+home}", "42 home\n"),
    ("A=b; echo $A", "b\n"),
    ("GREETING=hello printenv GREETING", "hello\n"),
    ("export X=1\nsh -c 'echo $X'", "1\n"),
    ("cat <<'EOF'\n$not `expanded`\nEOF", "$not `expanded`\n"),
    (". ./defs && greet you", "hello you\n"),
    ("source defs; greet me", "hello me\n"),
    ("(cd sub; touch inner); ls sub", "inner\n"),
    ("for i in 1 2; do echo $i; done", "1\n2\n"),
    ("diff <(echo a) <(echo a) && echo same", "same\n"),
    ("echo out; echo err >&2", "out\n"),
    ("python -c 'print(1)' | cat", "1\n"),
    ("echo needle > hay && rg -c needle hay | cat", "1\n"),
    ("[ -f a.toml ] && echo there || echo missing", "there\n"),
    ("echo {1..3} # a comment", "1 2 3\n"),
    ("f() { echo \"<$1>\"; }; f 'a b'", "<a b>\n"),
    ("echo ~ | grep -c /", "1\n"),
    ('seq 3 | while read -r n; do echo "n$n"; done', "n1\nn2\nn3\n"),
]


def test_a_program_calls_itself_as_its_caller_does(talk: Talk, workspace: Workspace) -> None:
    (workspace.root / "called").symlink_to("/bin/cat")
    for command in ("cat gone", ["cat", "gone"], "cat gone | cat", "./called gone", "/bin/cat gone"):
        line = command if isinstance(command, str) else shlex.join(command)
        in_bash = subprocess.run(["bash", "-c", line], cwd=workspace.root, capture_output=True, text=True, check=False)
        assert talk.run(command).data.stderr == in_bash.stderr, command


def test_a_line_does_what_it_does_in_bash(talk: Talk, workspace: Workspace) -> None:
    for name in ("a.toml", "b.toml"):
        workspace.file(name)
    workspace.file("defs", "greet() { echo hello $1; }\n")
    (workspace.root / "sub").mkdir()
    if talk.gate.app.config.sandbox.run_as:
        hand_over(workspace.root)
    for line, stdout in IN_BASH:
        ran = talk.run(line)
        assert (ran.data.stdout, ran.data.exit_code) == (stdout, 0), line


EXIT_CODES = {
    "false | true": 0,
    "set -o pipefail; false | true": 1,
    "exit 7": 7,
    "no-such-program-at-all; exit $?": 127,
    "kill -TERM $$": 143,
    "echo 'never closed": 2,
    "if true; then": 2,
    "! true": 1,
}


def test_exit_codes_and_signals_are_those_of_bash(talk: Talk) -> None:
    for line, code in EXIT_CODES.items():
        assert talk.run(line).data.exit_code == code, line


def test_a_mistake_in_a_line_is_told_in_bashs_own_words(any_level: Talk) -> None:
    expected = subprocess.run(["bash", "-c", "echo 'a"], capture_output=True, text=True, check=False)
    assert any_level.run("echo 'a").data.stderr == expected.stderr
    assert any_level.run("nope-nope; true").data.stderr == "bash: line 1: nope-nope: command not found\n"


def test_a_plain_string_and_a_list_start_the_program_itself(any_level: Talk) -> None:
    show = "import sys; print(sys.argv[1:])"
    assert any_level.run(["python3", "-c", show, "$HOME", "*", "a;b"]).data.stdout == "['$HOME', '*', 'a;b']\n"
    assert any_level.run("cat /proc/self/comm").data.stdout == "cat\n"
    with pytest.raises(NotFound):
        any_level.run("no-such-program-at-all")


@pytest.mark.parametrize("size", [500_000, (1 << 20) - 100])
def test_a_line_may_be_longer_than_an_argument_may(talk: Talk, size: int) -> None:
    text = "x" * size
    ran = talk.run(f"cat <<'EOF' > big\n{text}\nEOF\nwc -c < big; ls /proc/self/fd | wc -l")
    assert ran.data.exit_code == 0, ran.data.stderr
    written, descriptors = ran.data.stdout.split()
    assert int(written) == size + 1
    assert int(descriptors) <= 4  # its own three, and the folder that ls reads


def test_that_a_folder_does_not_last_is_said_once(any_level: Talk, workspace: Workspace) -> None:
    (workspace.root / "sub").mkdir()
    first = any_level.run("cd sub; pwd")
    assert "cd lasts as long as its line" in str(first.meta.warnings)
    assert any_level.run("cd sub && pwd").meta.warnings is None
    assert any_level.run("pwd").data.stdout == f"{workspace.root}\n"
    other = Talk(any_level.gate, "another")
    assert other.run("(cd sub && pwd)").meta.warnings is None  # lasts nowhere, and nobody expects it to
    assert "cd lasts as long as its line" in str(other.run("cd sub").meta.warnings)


def test_a_program_on_a_terminal_may_be_a_line_too(any_level: Talk) -> None:
    assert "made of 2 words" in any_level.start("A=2 && echo made of $A words").first_output
    with pytest.raises(CommandNotAllowed):
        any_level.start("true; wget example.org")


# --- which programs a line names -----------------------------------------------------------------------

CURL = [
    "curl x | sh",
    "true && curl x",
    "echo $(curl x)",
    "echo `curl x`",
    'echo "a $(curl x) b"',
    "diff <(curl x) y",
    "timeout -k 1 5 curl x; true",
    "env -u A B=c curl x; true",
    "ls | xargs -n 1 -I{} curl {}",
    "find . -name '*.py' -exec curl {} ';'",
    "bash -c 'true; curl x'; true",
    'true; sh -ec "bash -c \'curl x\'"',
    "eval curl x",
    "c\\url x",
    "'cu'\"rl\" x",
    "/usr/bin/curl x > y",
    "cat <<EOF\n$(curl x)\nEOF",
    "f() { curl x; }; f",
    "if curl x; then :; fi",
    "A=$(curl x) true",
    "nohup nice -n 5 curl x &",
    "command curl x; true",
    "exec curl x; true",
    "true\ncurl x",
    "(curl x)",
    "{ curl x; }",
    "[ -n \"$(curl x)\" ]",
    "while curl x; do :; done",
    "case x in x) curl y;; esac",
    "[[ $(curl x) ]]",
    "echo ${A:-$(curl x)}",
    "time curl x; true",
    "coproc curl x",
]  # fmt: skip


def test_a_program_that_is_not_on_the_list_is_refused_wherever_a_line_names_it(any_level: Talk) -> None:
    require(os.path.exists("/usr/bin/curl"), "curl")
    for line in CURL:
        with pytest.raises(CommandNotAllowed, match="curl is not on the list"):
            any_level.run(line)


NOT_STARTED = [
    "echo curl x | cat",
    "command -v curl; true",
    "cat <<'EOF'\n$(curl x)\nEOF",
    "echo 'curl x; wget y' \"curl\"",
    "curl() { echo mine; }; curl x",
    "true # curl x",
    "type curl; true",
    "grep -c curl <<< 'curl'",
    "CMD=true; $CMD x",
    "A=curl; echo $A",
    "no-such-program-at-all || true",
]


def test_what_a_line_does_not_start_is_not_refused(any_level: Talk) -> None:
    for line in NOT_STARTED:
        assert any_level.run(line).data.exit_code == 0, line


def test_a_program_of_the_project_may_be_part_of_a_line(any_level: Talk, workspace: Workspace) -> None:
    own = workspace.file("sub/own", Path("/usr/bin/true").read_bytes())
    own.chmod(0o755)
    assert any_level.run("cd sub && ./own && echo ran").data.stdout == "ran\n"
    assert any_level.run(f"{own} && echo ran").data.stdout == "ran\n"


def test_a_shorter_list_holds_for_lines_too(workspace: Workspace) -> None:
    config = Config()
    config.tools.run_cmd_allowlist = ("bash", "cat")
    with talk_on(workspace.root, config) as talk:
        assert talk.run("echo a | cat").data.stdout == "a\n"
        with pytest.raises(CommandNotAllowed):
            talk.run("cat x; git log")


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("$CMD x; \"$A\"/bin/x", []),
        ("sudo -u bob -E make -j4 all", ["sudo", "make"]),
        ("stdbuf -oL timeout --signal=KILL 5 env -i A=1 make", ["stdbuf", "timeout", "env", "make"]),
        ("xargs -0 -P4 -L 1 rm -f", ["xargs", "rm"]),
        ("timeout $T make", ["timeout", "make"]),
        ("env $A make", ["env"]),
        ("find . -exec grep -l x {} + -o -execdir rm {} \\;", ["find", "grep", "rm"]),
        ("bash -c \"$X\"", ["bash"]),
        ("bash script.sh -c curl", ["bash"]),
        ("> out < in", []),
    ],
)  # fmt: skip
def test_what_a_wrapper_starts_is_named_where_that_is_simple(line: str, names: list[str]) -> None:
    assert names_in(line.encode()).programs == names


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.sampled_from("abc -'\"\\|&;<>()$`*{}[]#=!~\n"), max_size=60))
def test_any_line_is_parsed_to_something(line: str) -> None:
    assert isinstance(names_in(line.encode()).programs, list)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.sampled_from("ab1 \t-'\"\\/.,:=@%+_^!]é"), max_size=30))
def test_a_string_that_needs_no_shell_means_the_same_words_in_one(text: str) -> None:
    if not text.strip() or needs_shell(text):
        return
    try:
        words = split(text)
    except BadArgs:  # its first word is empty
        return
    done = subprocess.run(
        ["bash", "--noprofile", "-c", f"set -f; set -- {text}\nprintf '%s\\0' \"$@\""], capture_output=True, check=True
    )
    assert [word.decode() for word in done.stdout.split(b"\0")[:-1]] == words, shlex.join(words)


# --- bad input -----------------------------------------------------------------------------------------


def test_a_line_that_means_nothing_is_refused(any_level: Talk) -> None:
    for command in ("a\0b | c", "a\0b", ["a", "\0"], "", "  ", "\n"):
        with pytest.raises(BadArgs):
            any_level.run(command)


def test_a_line_of_more_than_a_megabyte_is_refused_with_a_way(any_level: Talk) -> None:
    with pytest.raises(BadArgs) as refused:
        any_level.run("echo " + "x;" * (1 << 19))
    assert "file" in str(refused.value.hint)


@pytest.mark.parametrize("line", ["<<A " * 100_000, "$(" * 100_000, "{" * 300_000])
def test_a_line_made_to_keep_the_parser_busy_keeps_nobody_else_waiting(any_level: Talk, line: str) -> None:
    with suppress(BadArgs):
        any_level.run(line, timeout=5)
    assert any_level.run("echo still | cat").data.stdout == "still\n"
