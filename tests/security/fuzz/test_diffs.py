"""Diffs: applied or refused with a code; all of it or nothing, and nothing outside the root."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc_mcp.changes import diff, diff_parse
from llmc_mcp.errors import LlmcError

from ...support.client import Client
from ...support.workspace import Workspace
from . import examples

OLD = "one\ntwo\nthree\nfour\nfive\n"
PATHS = st.sampled_from(
    [
        "a.txt",
        "sub/b.txt",
        "new.txt",
        "../outside/secret.txt",
        "/etc/hosts",
        "door/x",
        ".git/config",
        "a b",
        "",
        "\x00",
        "a.txt/x",
        "x/" * 50,
        "..",
        ".",
        "é",
        '"q"',
        "a.txt\t2026-01-01 00:00:00",
    ]
)
COUNTS = st.sampled_from(["0,0", "1", "1,2", "1,3", "2,1", "5,1", "6,0", "999999999", "1,999999999", "0,1", "-1", "x"])
MARKED = st.tuples(
    st.sampled_from([" ", "-", "+", "\\", "", "\t"]), st.sampled_from([*OLD.split("\n"), "new", "\r", "é"])
)
LINES = st.one_of(
    st.tuples(PATHS, PATHS).map(lambda two: f"diff --git a/{two[0]} b/{two[1]}"),
    PATHS.map(lambda path: f"--- a/{path}"),
    PATHS.map(lambda path: f"+++ b/{path}"),
    st.tuples(PATHS, PATHS).map(lambda two: f"--- a/{two[0]}\n+++ b/{two[1]}"),
    st.tuples(COUNTS, COUNTS).map(lambda two: f"@@ -{two[0]} +{two[1]} @@"),
    MARKED.map("".join),
    st.sampled_from(
        ["new file mode 100644", "deleted file mode 100755", "old mode 120000", "new mode 100755", "index a..b"]
    )
    | st.sampled_from(["rename from a.txt", "rename to ../x", "copy from a.txt", "--- /dev/null", "+++ /dev/null"])
    | st.sampled_from(
        ["GIT binary patch", "Binary files a and b differ", "\\ No newline at end of file", "-- ", "***"]
    ),
    st.text(max_size=10),
)
JUNK = st.lists(LINES, max_size=14).map("\n".join)
GOOD = "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"
MANY = GOOD + "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+x\n--- a/sub/b.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n"


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A diff that was right, with some lines lost, doubled, swapped or made up."""
    lines = MANY.split("\n")
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(lines) - 1))
        match draw(st.integers(0, 3)):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, lines[at])
            case 2:
                lines[at] = draw(LINES)
            case _:
                other = draw(st.integers(0, len(lines) - 1))
                lines[at], lines[other] = lines[other], lines[at]
        lines = lines or [""]
    return "\n".join(lines)


DIFFS = mutated() | JUNK


@examples(2_000, a_second=1_000)
@given(text=DIFFS, before=st.sampled_from([OLD, "", OLD.replace("\n", "\r\n"), "one\n" * 50]))
def test_a36_any_text_is_a_diff_or_refused(text: str, before: str) -> None:
    try:
        for patch in diff_parse.parse(text):
            diff.apply(patch, None if patch.kind == "create" else before.encode())
    except LlmcError as exc:
        assert exc.message  # noqa: PT017 - some apply


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Workspace]]:
    workspace = Workspace(tmp_path_factory.mktemp("diffs"))
    with Client("--root", str(workspace.root), "--mode", "classic", "--log-level", "error") as client:
        client.request("tools/list")
        yield client, workspace


def state(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in sorted(folder.rglob("*"))
    }


@examples(120, a_second=30)
@given(text=DIFFS)
def test_a36_a_diff_changes_all_that_it_says_or_nothing_and_nothing_outside(
    served: tuple[Client, Workspace], text: str
) -> None:
    client, workspace = served
    workspace.file("a.txt", OLD)
    workspace.file("sub/b.txt", "b\n")
    if not (workspace.root / "door").is_symlink():
        (workspace.root / "door").symlink_to("../outside")
    before, outside = state(workspace.root), state(workspace.outside)
    reply = client.call("linux_fs_apply_diff", diff_text=text)
    after = state(workspace.root)
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    if reply.is_error:
        assert reply.code != "INTERNAL", text
        assert changed == set(), text
    else:
        files = {path for path in changed if "folder" not in (before.get(path), after.get(path))}
        named = {str(path) for kind in ("modified", "created", "deleted") for path in reply.meta[f"files_{kind}"]}
        assert {str(workspace.root / path) for path in files} <= named, text  # a mode may change alone
    assert state(workspace.outside) == outside
    for path in changed & after.keys():
        if after[path] != "folder" and path not in before:
            (workspace.root / path).unlink()
