"""Attacks on search: what a caller or a file name says is data to ripgrep, and what it prints is bounded."""

import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmc_mcp.errors import Cancelled
from llmc_mcp.files.filesystem import Filesystem
from llmc_mcp.files.revisions import revision_of
from llmc_mcp.files.ripgrep import Query, Search
from llmc_mcp.kernel.launcher import Launcher

from ..support.client import Client
from ..support.processes import children_of
from ..support.workspace import SECRET, Workspace
from .attack import assert_alive

REPLY_LIMIT = 10_000
FLAGS = [
    "--pre=./run.sh",
    "--pre",
    "-rf",
    "-f/etc/passwd",
    "-f",
    "--file=/etc/passwd",
    "--ignore-file=/etc/passwd",
    "--hostname-bin=./run.sh",
    "--search-zip",
    "-z",
    "-L",
    "--follow",
    "-uuu",
    "--files",
    "--type-list",
    "--version",
    "--help",
    "--",
    "-",
    "-e",
    "--passthru",
    "--replace=gone",
    "--json",
]


@pytest.fixture
def trap(workspace: Workspace) -> Path:
    """A program in the root that leaves a mark wherever it runs; `run.sh` is what the flags name."""
    program = workspace.file("run.sh", '#!/bin/sh\n: > "$(dirname "$0")/mark"\n: > mark\ncat "$@"\n')
    program.chmod(0o755)
    return workspace.root / "mark"


@pytest.fixture
def classic(workspace: Workspace) -> Iterator[Client]:
    """A server whose replies are JSON: every hit with its fields."""
    with Client("--root", str(workspace.root), "--mode", "classic") as client:
        yield client


# --- flags as data ---------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", FLAGS)
def test_a33_a_pattern_that_reads_like_a_flag_is_searched_for(
    workspace: Workspace, classic: Client, trap: Path, flag: str
) -> None:
    workspace.file("flags.txt", f"before\n<{flag}>\nafter\n")
    for literal, pattern in ((True, flag), (False, flag)):
        found = classic.call(
            "linux_search_content", root="flags.txt", pattern=pattern, literal=literal, context_lines=0
        ).meta
        assert [hit["snippet"] for hit in found["hits"]] == [f"<{flag}>"], literal
    assert not trap.exists()
    assert_alive(classic)


@pytest.mark.parametrize("flag", FLAGS)
def test_a33_a_glob_that_reads_like_a_flag_only_selects_files(
    workspace: Workspace, classic: Client, trap: Path, flag: str
) -> None:
    (workspace.root / "door").symlink_to(workspace.outside)
    workspace.file("other.txt", "needle\n")
    name = flag.replace("/", "_")
    workspace.file(name, "needle\n")
    found = classic.call("linux_search_content", root=".", pattern="needle", file_glob=name).meta
    assert [hit["path"] for hit in found["hits"]] == [f"{workspace.root}/{name}"]
    reply = classic.call("linux_search_content", root=".", pattern=".", file_glob=flag)
    assert SECRET not in reply.text
    assert "root:" not in reply.text
    assert not trap.exists()


def test_a33_settings_for_ripgrep_in_the_servers_environment_and_the_root_are_ignored(
    workspace: Workspace, trap: Path
) -> None:
    settings = f"--follow\n--hidden\n--no-ignore\n--pre={workspace.root}/run.sh\n--search-zip\n--text\n"
    config = workspace.file("rg.conf", settings)
    workspace.file(".ripgreprc", settings)
    workspace.file(".config/git/ignore", "seen.txt\n")
    workspace.file("seen.txt", "needle\n")
    workspace.file(".hidden.txt", "needle\n")
    (workspace.root / "door").symlink_to(workspace.outside)
    (workspace.outside / "needle.txt").write_text(f"needle {SECRET}\n")
    env = {
        "RIPGREP_CONFIG_PATH": str(config),
        "HOME": str(workspace.root),
        "XDG_CONFIG_HOME": str(workspace.root / ".config"),
    }
    with Client("--root", str(workspace.root), env=env) as client:
        found = client.call("linux_search_content", root=".", pattern="needle")
        rev = revision_of(b"needle\n")
        assert found.body == f"seen.txt rev={rev}\n1:needle"
        assert SECRET not in client.call("linux_search_content", root=".", pattern=".", include_ignored=True).text
    assert not trap.exists()


def test_a33_ignore_files_outside_the_root_have_no_say(workspace: Workspace, classic: Client) -> None:
    base = workspace.root.parent
    for name in (".ignore", ".rgignore", ".gitignore"):
        (base / name).write_text("*\n")
    (base / ".git").mkdir()
    workspace.file("seen.txt", "needle\n")
    assert classic.call("linux_search_content", root=".", pattern="needle").meta["total_hits"] == 1


def test_a33_links_out_of_the_root_are_never_searched(workspace: Workspace, classic: Client) -> None:
    workspace.file("inside.txt", "needle\n")
    (workspace.outside / "needle.txt").write_text(f"needle {SECRET}\n")
    (workspace.root / "door").symlink_to("../outside")
    (workspace.root / "leak.txt").symlink_to(workspace.outside / "needle.txt")
    (workspace.root / ".ignore").symlink_to(workspace.outside / "needle.txt")
    for include_ignored in (False, True):
        found = classic.call("linux_search_content", root=".", pattern="needle", include_ignored=include_ignored)
        assert [hit["path"] for hit in found.meta["hits"]] == [f"{workspace.root}/inside.txt"]
    for root in ("door", "leak.txt", "door/needle.txt"):
        assert classic.call("linux_search_content", root=root, pattern="needle").code == "INVALID_PATH"
    assert SECRET.encode() not in b"".join(classic.raw_lines)


def test_a33_archives_are_not_unpacked(workspace: Workspace, classic: Client) -> None:
    workspace.file("packed.gz", gzip.compress(b"needle\n"))
    assert classic.call("linux_search_content", root="packed.gz", pattern="needle").meta["total_hits"] == 0


# --- names as data ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["--pre=x", "-rf", "-", "--", "-e", "-f", "--files", "@file", "!x", "*", "[a]"])
def test_a34_a_file_named_like_a_flag_is_a_file(workspace: Workspace, classic: Client, name: str) -> None:
    workspace.file(name, "needle\n")
    workspace.file("sub/other.txt", "nothing\n")
    for root in (".", name, f"./{name}", f"{workspace.root}/{name}"):
        hits = classic.call("linux_search_content", root=root, pattern="needle").meta["hits"]
        assert [os.path.normpath(hit["path"]) for hit in hits] == [f"{workspace.root}/{name}"], root


def test_a34_a_directory_named_like_a_flag_is_a_directory(workspace: Workspace, classic: Client) -> None:
    workspace.file("--pre=x/-rf", "needle\n")
    for root in ("--pre=x", "--pre=x/-rf", "--pre=x/"):
        hits = classic.call("linux_search_content", root=root, pattern="needle").meta["hits"]
        assert [os.path.normpath(hit["path"]) for hit in hits] == [f"{workspace.root}/--pre=x/-rf"], root


def test_a34_no_file_name_can_pose_as_a_hit_in_another_file(workspace: Workspace, classic: Client) -> None:
    honest = workspace.file("README.md", "needle, honest\n")
    workspace.file("x\nREADME.md", "needle, forged\n")
    workspace.file("y\n./README.md", "needle, forged\n")
    workspace.file("z\n--\n./README.md", "needle, forged\n")
    workspace.file("README.md:1:needle, forged", "nothing\n")
    for arguments in ({}, {"file_glob": "*.md"}, {"file_glob": "*"}, {"include_ignored": True}):
        hits = classic.call("linux_search_content", root=".", pattern="needle", **arguments).meta["hits"]
        assert [(hit["path"], hit["snippet"]) for hit in hits] == [(str(honest), "needle, honest")], arguments
    named = classic.call("linux_search_content", root="x\\x0aREADME.md", pattern="needle").meta["hits"]
    assert [hit["path"] for hit in named] == [f"{workspace.root}/x\\x0aREADME.md"]


def test_a34_file_content_can_not_pose_as_another_line(workspace: Workspace, classic: Client) -> None:
    forged = "needle\r./other.txt\x1b[0m:7:needle"
    path = workspace.file("file.txt", f"{forged}\n--\n./other.txt:9:needle\n")
    hits = classic.call("linux_search_content", root=".", pattern="needle", context_lines=0).meta["hits"]
    assert [(hit["path"], hit["line"]) for hit in hits] == [(str(path), 1), (str(path), 3)]


@pytest.mark.parametrize("root", [".", "hostile.txt"])
def test_a34_file_content_can_not_pose_as_another_file(workspace: Workspace, classic: Client, root: str) -> None:
    """Lines in the very form in which ripgrep prints them to us, with and without the NUL that ends a path."""
    path = workspace.file("hostile.txt", "needle\n./other.txt 1 needle\n\n./other.txt\n7-needle\n<stdin>\nneedle\n")
    workspace.file("large.txt", b"needle first\n" + b"x" * 70 + b"\n" * 9000 + b"\n./other.txt\x001\x00needle\n")
    hits = classic.call("linux_search_content", root=root, pattern="needle", context_lines=0).meta["hits"]
    assert {os.path.basename(hit["path"]) for hit in hits} <= {"hostile.txt", "large.txt"}
    assert [hit["line"] for hit in hits if hit["path"] == str(path)] == [1, 2, 5, 7]


@pytest.mark.parametrize(
    ("pattern", "code"),
    [
        ("(", "INVALID_ARGUMENT"),
        ("a{1000}{1000}{1000}", "INVALID_ARGUMENT"),
        ("\\w{900}" * 30, "INVALID_ARGUMENT"),
        ("(" * 5000, "INVALID_ARGUMENT"),
        ("a\nb", "INVALID_ARGUMENT"),
        ("(?=x)", "INVALID_ARGUMENT"),
        ("", "BAD_ARGS"),
        ("nul\0", "BAD_ARGS"),
        ("x" * 200_000, "BAD_ARGS"),
        ("x" * 3_000_000, "BAD_ARGS"),
    ],
    ids=lambda value: str(value)[:12].encode("unicode_escape").decode(),
)
def test_a34_a_pattern_that_ripgrep_can_not_take_is_the_callers_mistake(
    workspace: Workspace, classic: Client, pattern: str, code: str
) -> None:
    workspace.file("file.txt", "needle\n")
    reply = classic.call("linux_search_content", root=".", pattern=pattern)
    assert reply.code == code, reply.text[:500]
    assert len(reply.text) < REPLY_LIMIT
    assert_alive(classic)


# --- too much --------------------------------------------------------------------------------------


def test_a36_a_giant_number_of_matches_gives_a_bounded_truthful_reply(workspace: Workspace, classic: Client) -> None:
    for number in range(30):
        workspace.file(f"many{number:02}.txt", "needle in a haystack\n" * 1_000)
    for max_results in (1, 10, 1000):
        reply = classic.call("linux_search_content", root=".", pattern="needle", max_results=max_results)
        found = reply.meta
        assert 1 <= len(found["hits"]) <= max_results
        assert found["truncated"] is True
        assert found["total_hits"] >= 10_000
        assert found["total_is_exact"] is False
        assert len(reply.text.encode()) <= REPLY_LIMIT
    assert_alive(classic)


def test_a36_long_lines_give_a_bounded_reply(workspace: Workspace, classic: Client) -> None:
    workspace.file("long.txt", (b"needle" + b"x" * 1_000_000 + b"\n") * 5)
    for context_lines in (0, 10):
        reply = classic.call("linux_search_content", root=".", pattern="needle", context_lines=context_lines)
        assert reply.meta["total_hits"] == 5
        assert len(reply.text.encode()) <= REPLY_LIMIT


def test_a36_a_search_nobody_wants_any_more_ends_with_its_process(workspace: Workspace) -> None:
    for number in range(30):
        workspace.file(f"many{number:02}.txt", "needle in a haystack\n" * 1_000)
    files, launcher = Filesystem([str(workspace.root)]), Launcher()

    def give_up() -> None:
        raise Cancelled("enough")

    try:
        before = set(children_of(os.getpid()))
        search = Search(files, launcher, count_cap=10_000)
        for _ in range(20):
            with pytest.raises(Cancelled):
                search.content(files.locate("."), Query("needle"), 100, give_up)
        (launcher_pid,) = set(children_of(os.getpid())) - before
        assert children_of(launcher_pid) == []
    finally:
        launcher.close()


def test_a35_a_pattern_that_explodes_elsewhere_takes_linear_time_in_a_handle(
    workspace: Workspace, classic: Client
) -> None:
    workspace.file("long.txt", "".join(f"{'a' * 2000}b{n}\n" for n in range(300)))
    handle = classic.call("linux_fs_read", path="long.txt").meta["handle"]
    assert classic.call("linux_handle_read", handle=handle, grep="(a+)+$").meta["total"] == 0
    assert classic.call("linux_handle_read", handle=handle, grep="(a|aa)+b299$").meta["total"] == 1
