"""Diffs: what GNU patch makes of them, we make of them, or refuse."""

import inspect
import random
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmc_mcp import errors
from llmc_mcp.changes import diff, diff_parse

from ..support.workspace import require

TIMEOUT = 30
REAL = inspect.getsource(diff_parse).splitlines(keepends=True)


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT, check=False)


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    for tool in ("patch", "diff", "git"):
        require(shutil.which(tool) is not None, tool)


class Bench:
    """A folder in which diffs are made by other programs and applied by patch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.target, self.patch_file = folder / "target", folder / "p.diff"

    def made(self, maker: str, old: bytes, new: bytes) -> str:
        """A diff of one file called `f`."""
        if maker == "ours":
            return diff.unified(old, new, "f")
        for side, data in (("a", old), ("b", new)):
            (self.folder / side).mkdir(exist_ok=True)
            (self.folder / side / "f").write_bytes(data)
        command = ["git", "diff", "--no-index", "--no-prefix", "--no-color"] if maker == "git" else ["diff", maker]
        return run(*command, "a/f", "b/f", cwd=self.folder).stdout.decode()

    def patched(self, text: str, data: bytes) -> bytes | None:
        """What patch makes of a file; None when it refuses. -N: never ask, never reverse."""
        self.target.write_bytes(data)
        self.patch_file.write_bytes(text.encode())
        done = run("patch", "-s", "-N", "-r", "-", "--no-backup-if-mismatch", "target", "p.diff", cwd=self.folder)
        return self.target.read_bytes() if done.returncode == 0 else None


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def ours(text: str, data: bytes) -> bytes | errors.LlmcError | None:
    try:
        (patch,) = diff.parse(text)
        return diff.apply(patch, data)
    except errors.LlmcError as exc:
        return exc


def random_lines(chance: random.Random) -> list[str]:
    """Few different lines, so that hunks fit at more than one place; or real ones."""
    if chance.random() < 0.4:
        start = chance.randrange(len(REAL) - 60)
        return REAL[start : start + chance.randint(5, 60)]
    words = ["alpha", "beta", "", "}", "    return x", "\tif y:", "é ü", "gamma"][: chance.randint(2, 8)]
    return [f"{chance.choice(words)}\n" for _ in range(chance.randint(1, 50))]


def edited(chance: random.Random, lines: list[str], changes: int) -> list[str]:
    lines = list(lines)
    for number in range(changes):
        at = chance.randint(0, len(lines))
        kind = chance.random()
        if kind < 0.4:
            lines[at:at] = [f"new {number}\n" for _ in range(chance.randint(1, 3))]
        elif kind < 0.7:
            del lines[at : at + chance.randint(1, 3)]
        else:
            lines[at : at + 1] = [f"changed {number}\n"]
    return lines


def encoded(chance: random.Random, lines: list[str]) -> bytes:
    text = "".join(lines)
    return (text.removesuffix("\n") if chance.random() < 0.2 else text).encode()


def targets(chance: random.Random, lines: list[str]) -> dict[str, list[str]]:
    """What a diff meets in real life: the file it was made from, a shifted one, one with other lines."""
    at = chance.randint(0, len(lines))
    return {
        "same": lines,
        "shifted down": [f"top {i}\n" for i in range(chance.randint(1, 9))] + lines,
        "shifted up": lines[chance.randint(1, 4) :],
        "shifted within": [*lines[:at], "inserted\n", "inserted\n", *lines[at:]],
        "damaged": [line if chance.random() > 0.08 else f"damaged {line}" for line in lines],
        "both": ["top\n", *[line if chance.random() > 0.06 else f"x {line}" for line in lines]],
        "twice": lines + lines,
    }


@pytest.mark.parametrize("seed", range(48))
def test_a_diff_gives_what_gnu_patch_gives_or_is_refused_as_patch_refuses_it(bench: Bench, seed: int) -> None:
    chance = random.Random(seed)
    lines = random_lines(chance)
    old = encoded(chance, lines)
    new = encoded(chance, edited(chance, lines, chance.randint(1, 5)))
    maker = ["-u", "-U0", "-U1", "git", "ours"][seed % 5]
    text = bench.made(maker, old, new)
    if not text:
        return
    assert ours(text, old) == new
    for name, target in targets(chance, lines).items():
        data = encoded(chance, target)
        theirs, mine = bench.patched(text, data), ours(text, data)
        if theirs is None:
            assert isinstance(mine, errors.PatchFailed), (name, mine)
        elif isinstance(mine, errors.LlmcError):
            # The one thing that is stricter: lines are never added behind the end of the file.
            assert "adds lines at line" in mine.message, (name, mine.message)
        else:
            assert mine == theirs, name


@pytest.mark.parametrize("seed", range(12))
def test_line_ends_survive_a_diff_made_without_carriage_returns(bench: Bench, seed: int) -> None:
    chance = random.Random(seed)
    lines = random_lines(chance)
    new_lines = edited(chance, lines, 3)
    old, new = "".join(lines).encode(), "".join(new_lines).encode()
    text = bench.made("-u", old, new)
    if not text:
        return
    crlf_old, crlf_new = old.replace(b"\n", b"\r\n"), new.replace(b"\n", b"\r\n")
    assert ours(text, crlf_old) == crlf_new
    assert ours(text.replace("\n", "\r\n"), crlf_old) == crlf_new
    assert ours(text.replace("\n", "\r\n"), old) == bench.patched(text.replace("\n", "\r\n"), old) == new
    exact = bench.made("-u", crlf_old, crlf_new)  # LF in the headers, CRLF in the lines
    assert ours(exact, crlf_old) == bench.patched(exact, crlf_old) == crlf_new


def test_only_changed_lines_get_new_line_ends_when_they_are_mixed() -> None:
    text = "--- f\n+++ f\n@@ -1,4 +1,5 @@\n one\n two\n-three\n+3\n+3b\n four\n"
    assert ours(text, b"one\r\ntwo\nthree\r\nfour\n") == b"one\r\ntwo\n3\r\n3b\r\nfour\n"


def test_a_diff_that_changes_line_ends_changes_them() -> None:
    assert ours("--- f\n+++ f\n@@ -1,2 +1,2 @@\n-a\r\n+a\n b\r\n", b"a\r\nb\r\n") == b"a\nb\r\n"


Tree = Mapping[str, bytes]


def applied(text: str, tree: Tree) -> dict[str, bytes]:
    """A whole diff on files in memory."""
    files = dict(tree)
    for patch in diff.parse(text):
        result = diff.apply(patch, files.get(patch.old_path) if patch.old_path else None)
        if patch.old_path and patch.kind in ("delete", "rename"):
            del files[patch.old_path]
        if result is not None:
            assert patch.new_path is not None
            files[patch.new_path] = result
    return files


def write(folder: Path, tree: Tree) -> Path:
    for name, data in tree.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def read(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def random_tree(chance: random.Random) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Files that stay, change, come and go, with names that need quotes."""
    names = ["one.txt", "dir/two.txt", "dir/deep/three", "with space.txt", "tüb.txt", 'quote".txt', "four"]
    old: dict[str, bytes] = {}
    new: dict[str, bytes] = {}
    for name in names:
        lines = [*random_lines(chance), f"only in {name}\n"]
        fate = chance.random()
        if fate > 0.2:
            old[name] = encoded(chance, lines)
        if fate <= 0.2 or fate > 0.4:
            new[name] = encoded(chance, edited(chance, lines, chance.randint(0, 3)))
    return {**old, "keep": b"kept\n"}, {**new, "keep": b"kept\n"}


def git_diff(folder: Path, old: Tree, new: Tree, *flags: str) -> str:
    write(folder, old)
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@x", "-c", "core.autocrlf=false")
    assert run("git", "init", "-q", cwd=folder).returncode == 0
    run(*git, "add", "-A", cwd=folder)
    run(*git, "commit", "-q", "-m", "old", cwd=folder)
    for name in old:
        (folder / name).unlink()
    write(folder, new)
    run(*git, "add", "-A", cwd=folder)
    return run(*git, "diff", "--cached", "--no-color", *flags, cwd=folder).stdout.decode()


@pytest.mark.parametrize("seed", range(10))
def test_a_git_diff_of_several_files_gives_what_git_and_patch_give(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    old, new = random_tree(chance)
    (tmp_path / "repo").mkdir()
    text = git_diff(tmp_path / "repo", old, new, *([] if seed % 2 else ["-M20%"]))
    assert applied(text, old) == new
    target = write(tmp_path / "target", old)
    (tmp_path / "p.diff").write_text(text)
    done = run("patch", "-s", "-N", "-p1", "-i", "../p.diff", cwd=target)
    assert (done.returncode, read(target)) == (0, new), done.stdout


@pytest.mark.parametrize("seed", range(10))
def test_a_recursive_diff_gives_what_patch_gives(tmp_path: Path, seed: int) -> None:
    old, new = random_tree(random.Random(seed))
    write(tmp_path / "old", old)
    write(tmp_path / "new", new)
    text = run("diff", "-ruN", "old", "new", cwd=tmp_path).stdout.decode()
    assert applied(text, old) == new
    target = write(tmp_path / "target", old)
    (tmp_path / "p.diff").write_text(text)
    done = run("patch", "-s", "-N", "-p1", "-i", "../p.diff", cwd=target)
    assert (done.returncode, read(target)) == (0, new), done.stdout


@pytest.mark.parametrize("flags", [("--no-prefix",), ("--src-prefix=i/", "--dst-prefix=w/"), ("--full-index", "-U0")])
def test_git_diffs_with_other_prefixes_name_the_same_files(tmp_path: Path, flags: tuple[str, ...]) -> None:
    old = {"a/x": b"1\n2\n", "b c/y": b"1\n2\n", "gone": b"bye\n", "empty": b""}
    new = {"a/x": b"1\n3\n", "b c/y": b"1\n", "came": b"hello", "fresh": b""}
    assert applied(git_diff(tmp_path, old, new, "--no-renames", *flags), old) == new


def test_a_rename_carries_its_names_modes_and_changes(tmp_path: Path) -> None:
    body = b"".join(b"line %d\n" % i for i in range(30))
    text = git_diff(tmp_path, {"tüb a": body}, {"dir/new name": body + b"more\n"}, "-M")
    (patch,) = diff.parse(text)
    assert (patch.kind, patch.old_path, patch.new_path) == ("rename", "tüb a", "dir/new name")
    assert diff.apply(patch, body) == body + b"more\n"


def test_a_change_of_mode_is_read_without_a_hunk() -> None:
    (patch,) = diff.parse("diff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n")
    assert patch == diff.FilePatch("run.sh", "run.sh", "modify", 0o644, 0o755, ())
    assert diff.apply(patch, b"x\n") == b"x\n"


def test_new_and_deleted_files_say_their_modes() -> None:
    created, deleted = diff.parse(
        "diff --git a/new b/new\nnew file mode 100755\nindex 000..111\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+x\n"
        "diff --git a/e b/e\ndeleted file mode 100644\nindex e69de29..0000000\n"
    )
    assert (created.kind, created.old_path, created.new_path, created.new_mode) == ("create", None, "new", 0o755)
    assert (deleted.kind, deleted.old_path, deleted.new_path, deleted.old_mode) == ("delete", "e", None, 0o644)
    assert diff.apply(created, None) == b"x\n"
    assert diff.apply(deleted, b"") is None


def test_quoted_names_are_read_as_bytes() -> None:
    (patch,) = diff.parse('--- "a/t\\303\\244b\\t\\"x\\""\n+++ "b/t\\303\\244b\\t\\"x\\""\n@@ -1 +1 @@\n-a\n+b\n')
    assert patch.path == 'täb\t"x"'


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("a/src/x.py", "b/src/x.py", "src/x.py"),
        ("src/x.py", "src/x.py", "src/x.py"),
        ("proj-1.0/x.py", "proj-1.1/x.py", "x.py"),
        ("x.py.orig", "x.py", "x.py"),
        ("a/x y.py\t2024-01-01 00:00:00.0 +0000", "b/x y.py\t2024-01-01 00:00:00.0 +0000", "x y.py"),
        ("x.py 2024-01-01 00:00:00.000000000 +0100", "x.py 2024-01-01 00:00:01.000000000 +0100", "x.py"),
    ],
)
def test_a_plain_diff_names_the_file_it_means(old: str, new: str, path: str) -> None:
    (patch,) = diff.parse(f"--- {old}\n+++ {new}\n@@ -1 +1 @@\n-a\n+b\n")
    assert (patch.old_path, patch.new_path, patch.kind) == (path, path, "modify")


def test_prose_around_and_between_files_is_skipped() -> None:
    text = (
        "From abc Mon Sep 17\nSubject: [PATCH] x\n\n--- not a header\n---\n f | 2 +-\n\n"
        "--- a/f\n+++ b/f\n@@ -1 +1 @@ def section():\n-a\n+b\n\n```\nand then\n"
        "--- a/g\n+++ b/g\n@@ -1 +1 @@\n-a\n+b\n-- \n2.39.5\n"
    )
    assert [patch.path for patch in diff.parse(text)] == ["f", "g"]


def test_lines_that_lost_their_leading_space_count_as_context() -> None:
    assert ours("--- f\n+++ f\n@@ -1,5 +1,5 @@\n a\n\n-b\n+c\n\n d", b"a\n\nb\n\nd\n") == b"a\n\nc\n\nd\n"
    assert ours("--- f\n+++ f\n@@ -1,4 +1,4 @@\n-a\n+b\n c\n", b"a\nc\n\n\n") == b"b\nc\n\n\n"


def test_a_diff_that_starts_from_nothing_fits_a_missing_and_an_empty_file() -> None:
    (patch,) = diff.parse("--- a/f\n+++ b/f\n@@ -0,0 +1,2 @@\n+x\n+y\n")
    assert patch.may_create
    assert diff.apply(patch, None) == diff.apply(patch, b"") == b"x\ny\n"


HEAD = "--- a/f\n+++ b/f\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no diff"),
        ("just words\n", "no diff"),
        ("@@ -1 +1 @@\n-a\n+b\n", "line 1 of the diff: a hunk without a file"),
        (HEAD, "line 1 of the diff: a file without a hunk"),
        (HEAD + "@@ ... @@\n-a\n+b\n", "line 3 of the diff: a hunk needs line numbers"),
        (HEAD + "@@ -1,3 +1,3 @@\n a\n-b\n+c\nwrong\n", "line 7 of the diff: hunk 1 (@@ -1,3 +1,3 @@) is not complete"),
        (HEAD + "@@ -1,9 +1,9 @@\n a\n-b\n+c\n", "the diff ends"),
        (HEAD + "@@ -1 +1 @@\n-b\n+c\n+d\n", "line 6 of the diff: hunk 1 has more lines"),
        (HEAD + "@@ -1 +1 @@\n a\n", "hunk 1 changes nothing"),
        (
            HEAD + "@@ -1,2 +1,2 @@\n-b\n\\ No newline\n-c\n+c\n+d\n",
            "line 5 of the diff: hunk 1 continues after the end",
        ),
        ("*** f\n--- f\n***************\n*** 1 ****\n", "context diffs"),
        ("*** Update File: f\n-a\n+b\n", "begins with `*** Begin Patch`"),
        ("diff --git a/f b/f\nindex 1..2 100644\nGIT binary patch\nliteral 3\n", "line 3 of the diff: binary"),
        ("diff --git a/f b/f\nindex 1..2 100644\nBinary files a/f and b/f differ\n", "binary patches"),
        ("diff --git a/f b/g\nsimilarity index 100%\ncopy from f\ncopy to g\n", "copies are not supported"),
        ("diff --git a/f b/f\nnew file mode 120000\n--- /dev/null\n+++ b/f\n", "symbolic links"),
        ("diff --git a/f b/f\nold mode 100x44\nnew mode 100644\n", "not a file mode"),
        ("diff --git a/f b/f\nindex 1..2 100644\n", "nothing else to do"),
        ("diff --git a/f b/g\n--- a/f\n+++ b/g\n@@ -1 +1 @@\n-a\n+b\n", "two names, f and g"),
        ("--- /dev/null\n+++ /dev/null\n@@ -0,0 +1 @@\n+x\n", "both names"),
        ("--- \n+++ b\n@@ -1 +1 @@\n-a\n+b\n", "no file name"),
    ],
)
def test_a_malformed_diff_is_refused_with_its_line(text: str, words: str) -> None:
    with pytest.raises(errors.InvalidArgument) as caught:
        diff.parse(text)
    assert words in caught.value.message


def test_half_a_character_is_refused() -> None:
    with pytest.raises(errors.BadArgs, match="lone surrogate"):
        diff.parse(HEAD + "@@ -1 +1 @@\n-a\n+\ud800\n")


@pytest.mark.parametrize("second", ["@@ -3,2 +3,2 @@", "@@ -1,2 +1,2 @@"])
def test_hunks_that_overlap_or_run_backwards_are_refused(second: str) -> None:
    with pytest.raises(errors.PatchFailed, match="line 8 of the diff: hunk 2"):
        diff.parse(HEAD + f"@@ -2,3 +2,3 @@\n b\n-c\n+C\n d\n{second}\n-c\n+C\n d\n")


def failure(text: str, data: bytes | None) -> errors.LlmcError:
    with pytest.raises(errors.LlmcError) as caught:
        diff.apply(diff.parse(text)[0], data)
    return caught.value


CHANGE = HEAD + "@@ -1,2 +1,2 @@\n a\n-b\n+c\n@@ -9,3 +9,3 @@\n x\n-y\n+Y\n z\n"


def test_a_hunk_that_fits_nowhere_is_named_with_what_is_there_instead() -> None:
    error = failure(CHANGE, b"a\nb\n3\n4\n5\n6\n7\n8\nx\nother \nz\n")
    assert isinstance(error, errors.PatchFailed)
    assert "f: hunk 2 of 2 (@@ -9,3 +9,3 @@)" in error.message
    assert "diff 10: y" in error.message
    assert "file 10: other·" in error.message


def test_a_diff_that_was_applied_before_says_so() -> None:
    before = b"a\nb\n3\n4\n5\n6\n7\n8\nx\ny\nz\n"
    after = ours(CHANGE, before)
    assert isinstance(after, bytes)
    assert "applied before" in (failure(CHANGE, after).hint or "")
    created = "--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+x\n"
    assert "applied before" in (failure(created, b"x\n").hint or "")
    assert "applied before" not in (failure(created, b"y\n").hint or "")


def test_files_that_should_not_or_should_exist_are_refused() -> None:
    assert "exists already" in failure("--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+x\n", b"y\n").message
    assert "no such file" in failure(CHANGE, None).message
    deletion = "--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
    assert diff.apply(diff.parse(deletion)[0], b"x\n") is None
    assert "not deleted" in failure(deletion, b"x\nmore\n").message
    assert isinstance(failure(CHANGE, b"\x00\x01\x02binary\xff"), errors.InvalidArgument)


def test_lines_are_never_added_behind_the_end_of_the_file() -> None:
    assert "has 2 lines" in failure(HEAD + "@@ -9,0 +10 @@\n+x\n", b"a\nb\n").message


def test_a_hunk_is_not_bent_behind_a_last_line_without_a_newline(bench: Bench) -> None:
    text = HEAD + "@@ -1,2 +1,3 @@\n a\n+new\n b\n"
    assert bench.patched(text, b"last") == b"lastnew\n"  # two lines glued together
    assert "does not fit" in failure(text, b"last").message


def test_a_hunk_after_the_end_of_the_file_is_refused() -> None:
    with pytest.raises(errors.InvalidArgument, match="hunk 2 follows one that reached the end"):
        diff.parse(HEAD + "@@ -1 +1 @@\n-a\n+b\n\\ No newline at end of file\n@@ -5 +5 @@\n-c\n+d\n")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_encoding_byte_order_mark_and_line_ends_are_kept(encoding: str, end: str) -> None:
    old, new = (f"é{end}b{end}{last}{end}d" for last in ("c", "ü"))
    text = HEAD + "@@ -1,4 +1,4 @@\n é\n b\n-c\n+ü\n d\n\\ No newline at end of file\n"
    assert ours(text, old.encode(encoding)) == new.encode(encoding)


# Making diffs

any_line = st.sampled_from(["a", "b", "", "é", "\t", "}", "x y", "-- a", "++ b", "\r", "@@ -1 +1 @@", "\\ No"])


def joined(lines: list[str], end: str) -> str:
    return "\n".join(lines) + end


any_text = st.builds(joined, st.lists(any_line, max_size=25), st.sampled_from(["\n", ""]))


@settings(deadline=None)
@given(any_text, any_text, st.integers(0, 4), st.sampled_from(["utf-8", "utf-16", "utf-8-sig"]))
def test_applying_the_diff_of_two_texts_to_one_gives_the_other(a: str, b: str, context: int, encoding: str) -> None:
    old, new = a.encode(encoding), b.encode(encoding)
    text = diff.unified(old, new, "f", context)
    if old == new:
        assert text == ""
    else:
        assert ours(text, old) == new


@settings(deadline=None)
@given(any_text, any_text)
def test_the_lines_counted_are_the_lines_shown(a: str, b: str) -> None:
    shown = diff.unified(a.encode(), b.encode(), "f").split("\n")[2:]
    in_hunks = [line for line in shown if not line.startswith(("@@", "\\"))]
    marks = "".join(line[:1] for line in in_hunks)
    assert diff.count_changes(a.encode(), b.encode()) == (marks.count("+"), marks.count("-"))


@settings(deadline=None)
@given(st.lists(st.sampled_from("abc"), max_size=12), st.lists(st.sampled_from("abc"), max_size=12))
def test_a_short_diff_is_as_short_as_it_can_be(a: list[str], b: list[str]) -> None:
    added, removed = diff.count_changes("".join(f"{x}\n" for x in a).encode(), "".join(f"{x}\n" for x in b).encode())
    longest = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            longest[i + 1][j + 1] = longest[i][j] + 1 if x == y else max(longest[i][j + 1], longest[i + 1][j])
    common, size = longest[-1][-1], len(a)
    while a and b and a[0] == b[0]:  # what is the same at both ends is kept first
        a, b = a[1:], b[1:]
    while a and b and a[-1] == b[-1]:
        a, b = a[:-1], b[:-1]
    common -= size - len(a)
    unique = {x for x in a if a.count(x) == b.count(x) == 1}
    if not unique:  # a line that is unique on both sides is kept even where another way would be shorter
        assert (added, removed) == (len(b) - common, len(a) - common)


def test_a_long_text_of_repeated_lines_still_makes_a_right_diff() -> None:
    old, new = b"{\n}\n" * 2_000, b"{\n}\n}\n" * 1_500
    assert ours(diff.unified(old, new, "f"), old) == new


def test_a_file_that_comes_or_goes_is_shown_with_dev_null() -> None:
    assert diff.unified(None, b"x\n", "d/f") == "--- /dev/null\n+++ b/d/f\n@@ -0,0 +1 @@\n+x\n"
    assert diff.unified(b"x", None, "f") == "--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n\\ No newline at end of file\n"
    for old, new in ((None, b""), (b"", None), (None, b"x"), (b"x\n", None)):
        assert applied(diff.unified(old, new, "f"), {} if old is None else {"f": old}) == (
            {} if new is None else {"f": new}
        )


@pytest.mark.parametrize("name", ["f", "with space", 'quote"d', "tab\there", "täb"])
def test_names_in_a_diff_are_read_back(name: str) -> None:
    assert diff.parse(diff.unified(b"a\n", b"b\n", name))[0].path == name
    assert diff.parse(diff.unified(None, b"", name))[0].path == name


def test_binary_files_only_differ() -> None:
    assert diff.unified(b"\x00\x01\xff", b"\x00\x02\xff", "f") == "Binary files a/f and b/f differ\n"
    assert diff.count_changes(b"\x00\x01\xff", b"text\n") == (0, 0)
