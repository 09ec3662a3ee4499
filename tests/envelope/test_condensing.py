"""Invariants of every cut: marks where something is missing, true totals, the command's order, no name lost."""

import json
import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmc_mcp.config.schema import Te
from llmc_mcp.envelope.families import CondensedOutput, Envelope, recognise
from llmc_mcp.envelope.family import Budget, FamilyPlan
from llmc_mcp.envelope.lines import NotSimple, speaking
from llmc_mcp.envelope.names import interest_of, names_in
from llmc_mcp.envelope.recognition import recognise_line
from llmc_mcp.envelope.replay import replay
from llmc_mcp.tokens import estimate

MARK = re.compile(rb"\xe2\x80\xa6 lines? (\d+)(?:-(\d+))?(?: of this output)? left out")


def condensed(plan: FamilyPlan | None, output: bytes, tokens: int = 2_500) -> CondensedOutput:
    assert plan
    envelope = Envelope(plan, lambda: None, unchanged_tokens=400)
    for at in range(0, len(output), 70_000):
        envelope.feed(output[at : at + 70_000])
    done = envelope.finish(Budget(tokens))
    assert envelope.failure is None
    assert done
    return done


def source(functions: int) -> bytes:
    return b"".join(b"def function_%d(value):\n    return value * %d\n\n\n" % (n % 40, n) for n in range(functions))


LOG = b"".join(b"10:%02d INFO request %d done\n" % (n % 60, n) for n in range(2_000))
PYTEST = (
    b"============ test session starts ============\n"
    + b"".join(b"tests/test_%d.py ........ [ 10%%]\n" % n for n in range(300))
    + b"================= FAILURES =================\n________ test_broken ________\n\n    def test_broken():\n"
    + b"        value = 3\n" * 80
    + b">       assert value == 4\nE       assert 3 == 4\n\ntests/test_x.py:7: AssertionError\n"
    + b"======= short test summary info =======\nFAILED tests/test_x.py::test_broken\n"
    + b"======= 1 failed, 2400 passed in 2.00s =======\n"
)
OUTPUTS: dict[str, tuple[list[str], bytes]] = {
    "source": (["cat", "a.py"], source(300)),
    "slice": (["sed", "-n", "1001,9000p", "a.py"], source(900)),
    "pytest": (["pytest"], PYTEST),
    "script": (
        ["python3", "x.py"],
        LOG + b'Traceback (most recent call last):\n  File "x.py", line 1\nValueError: bad\n',
    ),
    "log": (["cat", "x.log"], LOG),
    "build": (["make"], b"".join(b"gcc -c file_%d.c\n" % n for n in range(900)) + b"make: *** [all] Error 1\n"),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_lines_and_marks_make_up_the_output_in_its_order(name: str) -> None:
    """Walk through the reply: each line is the next one of the output, each mark skips what it says."""
    words, output = OUTPUTS[name]
    done = condensed(recognise(words), output)
    assert done.shown.cut
    lines, start = output.splitlines(), 1001 if name == "slice" else 1
    at = 0
    for line in done.shown.lines:
        if (mark := MARK.match(line)) is not None:
            assert int(mark[1]) == start + at
            at = int(mark[2] or mark[1]) + 1 - start
        else:
            assert line == lines[at]
            at += 1
    assert at == len(lines)
    assert done.shown.counts["lines"] == len(lines)
    assert estimate(done.body()) <= 2_500


@given(
    st.lists(st.sampled_from([b"def name_%d(x):", b"    call_%d(y)", b"", b"# word_%d", b"class Big%d:"]), max_size=900)
)
@settings(max_examples=25, deadline=None)
def test_no_name_of_a_text_is_lost(lines: list[bytes]) -> None:
    text = b"".join((line % (n // 5) if b"%d" in line else line) + b"\n" for n, line in enumerate(lines))
    done = condensed(recognise(["cat", "a.py"]), text)
    if estimate(b" ".join(names_in(text))) < 700:
        assert names_in(text).keys() <= names_in(done.body()).keys()
    assert done.shown.cut == (MARK.search(done.body()) is not None)


def test_what_shares_names_with_recent_commands_is_whole() -> None:
    text = b"".join(
        b"def step_%d(value):\n    total = value * %d\n    return check_%d(total)\n\n\n" % (n, n, n % 9)
        for n in range(120)
    )
    plan = recognise_line("cat a.py", ["grep -rn step_77 src"])
    body = condensed(plan, text).body()
    assert b"def step_77(value):\n    total = value * 77\n    return check_5(total)\n" in body
    assert b"total = value * 78\n" not in body
    assert interest_of(["a b step_77"]) == {b"step_77"}


@pytest.mark.parametrize(
    "line", ["cat a.py", "ls -R", "pytest", "python3 x.py", "grep -rn x .", "git diff", "mypy .", "cat x.json"]
)
def test_nothing_is_cut_below_1200_tokens_and_nothing_gets_longer(line: str) -> None:
    for count in (10, 60, 120):
        output = b"".join(b"src/file_%d.py:%d: error: a thing [rule]\n" % (n % 3, n) for n in range(count))[:2_800]
        done = replay(line, output, Te())
        assert not done.cut
        assert estimate(done.text) <= estimate(output)


def test_findings_add_up() -> None:
    output = b"".join(
        b'src/m%d.py:%d: error: Name "x%d" is bad  [name-%d]\n' % (n % 7, n, n, n % 4) for n in range(700)
    )
    for tokens in (2_500, 600):
        done = condensed(recognise(["mypy", "."]), output + b"Found 700 errors in 7 files\n", tokens)
        assert (done.shown.counts["findings"], done.shown.counts["files"]) == (700, 7)
        body = done.body().decode()
        shown = len(re.findall(r"^\d+ error", body, re.M))
        left = sum(int(number) for number in re.findall(r"^… (\d+) left out", body, re.M))
        whole = sum(int(number) for number in re.findall(r"^src/m\d.py (\d+): ", body, re.M))
        assert shown + left + whole == 700
        assert "rules: name-0 175, name-1 175" in body
        assert body.rstrip().endswith("Found 700 errors in 7 files")


def test_json_keeps_its_keys_and_counts_its_rows() -> None:
    rows = [{"id": n, "name": f"row {n}", "inner": {"deep": [n] * 50}} for n in range(400)]
    body = condensed(recognise(["cat", "x.json"]), json.dumps({"rows": rows, "total": 400}).encode()).body().decode()
    assert "of 400 left out" in body
    assert all(key in body for key in ('"rows"', '"id"', '"name"', '"deep"', '"total": 400'))


def test_lines_that_differ_in_numbers_are_counted_by_what_they_are_like() -> None:
    body = condensed(recognise(["docker", "logs", "x"]), LOG + b"10:00 ERROR database is locked\n").body().decode()
    assert "10:00 INFO request 0 done" in body
    assert "ERROR database is locked" in body
    counted = [int(number.replace(",", "")) for number in re.findall(r"([\d,]+) like line 1\b", body)]
    assert sum(counted) + body.count("INFO request") == 2_000


@pytest.mark.parametrize(
    ("line", "kind", "asked"),
    [
        ("sed -n '10,20p' a.py", "text", True),
        ("nl -ba a.py | sed -n '10,20p'", "text", True),
        ("awk 'NR>=10 && NR<=20' a.py", "text", True),
        ("head -n 40 a.py | tail -n 10", "text", True),
        ("cat a.py", "text", False),
        ("cd x && cat a.py b.py", "text", False),
        ("cat <<'E' > x.py\nprint('pytest')\nE\npython3 x.py", "scripts", False),
        ("git checkout a.py\npytest -q 2>&1 | tail -20", "tests", False),
        ("find . -name '*.py' | xargs grep -n foo", "grep", False),
        ("./tests/runtests.py admin", "scripts", False),
        ("LANG=C timeout 60 python -m pytest x", "tests", False),
        ("ls -la | head", "paths", False),
    ],
)
def test_a_line_is_of_the_family_of_the_command_that_speaks(line: str, kind: str, asked: bool) -> None:
    plan = recognise_line(line)
    assert plan
    assert (plan.kind, plan.asked) == (kind, asked)


@pytest.mark.parametrize(
    "line",
    [
        *(
            "for f in a b; do cat $f; done",
            "(cat a)",
            "if true; then ls; fi",
            "echo a",
            "cd x",
            "ls > out.txt",
            "vim a",
        ),
        *(
            "cat 'unfinished",
            "sed -i s/a/b/ x",
            "cat $(",
            "tail -f x.log",
            "python3 -i x.py",
            "docker logs -f x",
            "vim",
            "",
        ),
    ],
)
def test_what_is_not_certain_is_nobodys_family(line: str) -> None:
    assert recognise_line(line) is None


def test_reading_any_line_ends() -> None:
    @given(st.text("ab '\"`$()|&;<>\n\\#=1{}-", max_size=60))
    @settings(max_examples=300, deadline=None)
    def read(line: str) -> None:
        try:
            speaking(line)
        except NotSimple:
            pass

    check: Callable[[], None] = read
    check()


def test_a_word_that_is_everywhere_in_a_flood_does_not_hide_a_rare_one() -> None:
    lines = [b"step %d done, error_count=0" % number for number in range(40_000)]
    lines[30_000] = b"PermissionError: /srv/data is not ours"
    lines[35_000] = b"fatal: the disk is full"
    done = condensed(recognise(["python3", "x.py"]), b"\n".join(lines) + b"\n")
    assert b"fatal: the disk is full" in done.shown.lines
    assert done.shown.counts["lines"] == len(lines)
    (note,) = done.shown.crumbs
    assert "'error' " in note
    assert "not in the counts" in note


@pytest.mark.parametrize("words", [["make"], ["cat", "x.log"], ["cat", "x.json"]])
def test_what_went_wrong_in_the_middle_of_a_flood_is_found_with_its_line(words: list[str]) -> None:
    lines = [b'{"row": %d, "name": "ordinary"},' % number for number in range(50_000)]
    lines[25_000] = b"ERROR: row 25000 has no name"
    done = condensed(recognise(words), b"\n".join(lines) + b"\n")
    assert any(b"ERROR: row 25000 has no name" in line for line in done.shown.lines)
    assert done.shown.counts["lines"] == len(lines)


def test_the_verdict_of_a_long_test_run_is_found_behind_its_progress() -> None:
    progress = b"".join(b"tests/test_a.py::test_%d PASSED [ 10%%]\n" % number for number in range(30_000))
    closing = b"E       assert 1 == 2\n===== 1 failed, 29999 passed in 9.00s =====\n" + b"bye\n" * 500
    done = condensed(recognise(["pytest", "-v"]), progress + closing)
    assert done.shown.counts["failed"] == 1
    assert done.shown.counts["passed"] == 29_999
