"""grep with context: true counts, whole groups, whatever the file is called and whoever runs it."""

import os
import subprocess
from pathlib import Path

import pytest

from llmc_mcp.envelope.families import CondensedOutput, Envelope, recognise
from llmc_mcp.envelope.family import Budget
from llmc_mcp.envelope.recognition import recognise_line
from llmc_mcp.files.ripgrep import find_ripgrep

from .test_condensing import condensed

RG = os.fsdecode(find_ripgrep())
FILES, HITS, BETWEEN = 12, 30, 20  # hits in each file, and lines between them


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files whose names and lines look like grep's own marks."""
    for number in range(FILES):
        path = tmp_path / "src" / f"part-{number}-x.py"
        path.parent.mkdir(exist_ok=True)
        lines: list[str] = []
        for hit in range(HITS):
            lines += [f"filler {hit} {line}: part-{number}-x.py:7:nothing" for line in range(BETWEEN)]
            lines += [f"# before {number} {hit}", f"needle_{number}_{hit} = call()", f"-after {number} {hit}"]
        path.write_text("\n".join(lines) + "\n")
    return tmp_path


def searched(folder: Path, line: str) -> CondensedOutput:
    done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, check=True)
    return condensed(recognise_line(line), done.stdout)


@pytest.mark.parametrize(
    "line",
    [
        "grep -rn -A1 -B1 needle_ src",
        "grep -rnC1 needle_ src | cat",
        f"{RG} -n -C 1 needle_ src",
        "cd src && grep -n --context=1 needle_ *.py",
    ],
)
def test_counts_are_true_and_groups_stay_whole(folder: Path, line: str) -> None:
    done = searched(folder, line)
    assert done.shown.cut
    assert done.shown.counts == {"matches": FILES * HITS, "files": FILES}
    lines = done.shown.lines
    hits = [at for at, text in enumerate(lines) if b"needle_" in text]
    assert len(hits) > 20
    for at in hits:
        name = lines[at].split(b"needle_")[1].split(b" ")[0].replace(b"_", b" ")
        assert lines[at - 1].endswith(b"# before " + name)
        assert lines[at + 1].endswith(b"-after " + name)
        number = int(lines[at].split(b":")[0])
        assert lines[at - 1].startswith(b"%d-" % (number - 1))
    shown = sum(b"needle_" in text for text in lines)
    assert done.shown.crumbs[0].startswith(f"{FILES * HITS - shown:,} more in ")


def test_one_file_needs_no_name_and_a_short_result_stays_as_it_is(folder: Path) -> None:
    assert searched(folder, "grep -n -A1 needle_3_1 src/part-3-x.py").unchanged is not None
    done = searched(folder, "grep -n -C4 needle_ src/part-3-x.py")
    assert done.shown.cut
    assert done.shown.counts == {"matches": HITS, "files": 1}


def test_without_numbers_hits_are_not_told_from_context_and_nothing_is_claimed(folder: Path) -> None:
    done = searched(folder, "grep -r -C4 needle_ src")
    assert done.shown.cut
    assert done.shown.counts == {"groups": FILES * HITS, "lines": FILES * (HITS * 9 - 3)}  # the last has one after it
    left = [text for text in done.shown.lines if b"left out" in text]
    assert len(left) == 1
    groups = b"\n".join(done.shown.lines).split(b"\n--\n")
    assert all(group.count(b"needle_") == 1 for group in groups if b"left out" not in group)


def test_te_in_front_of_grep_itself_keeps_groups_as_well(folder: Path) -> None:
    plan = recognise(["grep", "-rn", "-C1", "needle_", "src"])
    assert plan
    output = subprocess.run(plan.argv, cwd=folder, capture_output=True, check=True).stdout
    done = condensed(plan, output)
    assert done.shown.counts == {"matches": FILES * HITS, "files": FILES}
    hit = next(at for at, text in enumerate(done.shown.lines) if b"needle_" in text)
    assert b"# before" in done.shown.lines[hit - 1]
    assert b"-after" in done.shown.lines[hit + 1]


@pytest.mark.parametrize(("files", "line"), [(FILES, "grep -n needle_ src/*.py"), (FILES, "grep needle_ src/*-x.py")])
def test_a_wildcard_stands_for_as_many_files_as_the_shell_finds(folder: Path, files: int, line: str) -> None:
    assert searched(folder, line).shown.counts == {"matches": files * HITS, "files": files}
    for path in sorted((folder / "src").iterdir())[1:]:
        path.unlink()
    (left,) = (folder / "src").iterdir()
    left.write_text(left.read_text() * 9)
    assert searched(folder, line).shown.counts == {"matches": 9 * HITS, "files": 1}


def test_lines_that_are_no_hits_are_passed_on_or_told_and_never_dropped() -> None:
    remarks = b"".join(b"grep: file %d: Permission denied\n" % number for number in range(300))
    hits = b"".join(b"src/a.py:%d:value of the needle %d\n" % (number, number) for number in range(1, 501))
    plan = recognise_line("grep -rn needle src")
    done = condensed(plan, b"grep: src/a: Permission denied\n" + hits + remarks)
    assert done.shown.cut
    assert done.shown.counts["matches"] == 500
    assert "281 lines that are no matches left out" in done.shown.crumbs
    plan = recognise_line("grep -rn needle src")
    assert plan
    envelope = Envelope(plan, lambda: None, unchanged_tokens=400)
    envelope.feed(remarks)
    assert envelope.finish(Budget(2_500)) is None
    assert isinstance(envelope.failure, ValueError)


@pytest.mark.parametrize(
    "line", ["grep -r needle_ {}", "grep -rn needle_ {}", "grep -rn -C1 needle_ {}", f"{RG} needle_ {{}}"]
)
def test_a_recursive_search_of_one_file_has_no_names(folder: Path, line: str) -> None:
    (folder / "one.py").write_text(
        "".join(f"needle_{n} = {{'a': {n}}}\nlast: line {n} of it\n\n\n" for n in range(400))
    )
    assert searched(folder, line.format("one.py")).shown.counts == {"matches": 400, "files": 1}
    for operand in ("src", "src/", "./src", "."):
        done = searched(folder, line.format(operand))
        assert done.shown.counts == {
            "matches": FILES * HITS + 400 * (operand == "."),
            "files": FILES + (operand == "."),
        }
