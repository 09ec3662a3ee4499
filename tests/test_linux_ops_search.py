"""Search: what matches, what is shown around it, what is counted, and what is left alone."""

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from llmc_mcp.config.schema import Config, Limits, Server
from llmc_mcp.errors import InvalidArgument, LlmcError
from llmc_mcp.files.revisions import revision_of
from llmc_mcp.files.ripgrep import Query
from llmc_mcp.gate.dispatch import Gate
from llmc_mcp.kernel import syscalls

from .support.client import Client
from .support.gates import context, gate_on, text_of
from .support.workspace import SECRET, Workspace, require

Search = Callable[..., dict[str, Any]]


@pytest.fixture
def gate(workspace: Workspace) -> Iterator[Gate]:
    require(syscalls.landlock_abi() > 0, "a kernel with Landlock")
    with gate_on(workspace.root, Config(server=Server(result_format="json"))) as gate:
        yield gate


@pytest.fixture
def search(gate: Gate) -> Search:
    def run(pattern: str, root: str = ".", context_lines: int = 0, **arguments: Any) -> dict[str, Any]:
        return json.loads(
            text_of(gate, "linux_search_content", root=root, pattern=pattern, context_lines=context_lines, **arguments)
        )

    return run


def places(workspace: Workspace, reply: dict[str, Any]) -> list[tuple[str, int]]:
    return [(hit["path"].removeprefix(f"{workspace.root}/"), hit["line"]) for hit in reply["hits"]]


# --- what matches ------------------------------------------------------------------------------------------


def test_a_hit_has_path_line_and_text(workspace: Workspace, search: Search) -> None:
    path = workspace.file("sub/a.txt", "one\ntwo needle\nthree\n")
    reply = search("needle")
    rev = revision_of(path.read_bytes())
    assert reply["hits"] == [{"path": str(path), "line": 2, "snippet": "two needle", "rev": rev}]
    assert (reply["total_hits"], reply["truncated"]) == (1, False)


@pytest.mark.parametrize("context_lines", [0, 2])
def test_much_output_is_taken_apart_as_a_whole(workspace: Workspace, gate: Gate, context_lines: int) -> None:
    """More than is read at once, so that lines and paths are read in two halves somewhere."""
    for name in ("a.txt", "b.txt", "c/d.txt"):
        workspace.file(name, "".join(f"needle {number} {'x' * 90}\nother\n\n\n\n\n\n" for number in range(3000)))
    workspace.file(".env", "needle\n" * 50)
    query = Query("needle", context_lines=context_lines, include_ignored=True)
    found = gate.app.search.content(gate.app.files.locate("."), query, 100, lambda: None)
    assert (found.total, found.exact) == (9000, True)
    assert [(hit.path.removeprefix(f"{workspace.root}/"), hit.line) for hit in found.hits] == [
        (name, 1 + 7 * number) for name in ("a.txt", "b.txt", "c/d.txt") for number in range(3000)
    ]


def test_a_pattern_is_a_regex_unless_it_is_literal(workspace: Workspace, search: Search) -> None:
    workspace.file("a.txt", "a.c\nabc\na+c\n")
    assert places(workspace, search("a.c")) == [("a.txt", 1), ("a.txt", 2), ("a.txt", 3)]
    assert places(workspace, search("a.c", literal=True)) == [("a.txt", 1)]
    assert places(workspace, search(r"a\+c")) == [("a.txt", 3)]
    assert places(workspace, search("(", literal=True)) == []


def test_case_is_ignored_unless_asked_for(workspace: Workspace, search: Search) -> None:
    workspace.file("a.txt", "Needle\nneedle\nNEEDLE\nÜber\n")
    assert search("needle")["total_hits"] == 3
    assert places(workspace, search("needle", ignore_case=False)) == [("a.txt", 2)]
    assert places(workspace, search("über")) == [("a.txt", 4)]


def test_a_glob_narrows_the_files(workspace: Workspace, search: Search) -> None:
    for name in ("a.py", "b.txt", "sub/c.py"):
        workspace.file(name, "needle\n")
    assert places(workspace, search("needle", file_glob="*.py")) == [("a.py", 1), ("sub/c.py", 1)]
    assert places(workspace, search("needle", file_glob="!*.py")) == [("b.txt", 1)]
    assert places(workspace, search("needle", file_glob="sub/**")) == [("sub/c.py", 1)]


def test_a_single_file_can_be_searched(workspace: Workspace, search: Search) -> None:
    workspace.file("sub/a.txt", "x\nneedle\n")
    workspace.file("sub/b.txt", "needle\n")
    assert places(workspace, search("needle", root="sub/a.txt")) == [("sub/a.txt", 2)]
    assert places(workspace, search("needle", root=str(workspace.root / "sub/b.txt"))) == [("sub/b.txt", 1)]


def test_a_folder_limits_the_search(workspace: Workspace, search: Search) -> None:
    workspace.file("a/x.txt", "needle\n")
    workspace.file("b/x.txt", "needle\n")
    assert places(workspace, search("needle", root="a")) == [("a/x.txt", 1)]


def test_a_pattern_may_look_like_a_flag(workspace: Workspace, search: Search) -> None:
    workspace.file("a.txt", "--files\n-e\n")
    assert places(workspace, search("--files")) == [("a.txt", 1)]
    assert places(workspace, search("-e", literal=True)) == [("a.txt", 2)]


def test_a_pattern_spans_lines_only_when_told(workspace: Workspace, search: Search, gate: Gate) -> None:
    workspace.file("a.txt", "begin\nend\n")
    with pytest.raises(InvalidArgument, match="multiline"):
        gate.call(context(gate), "linux_search_content", {"root": ".", "pattern": r"begin\nend"})
    assert search(r"begin\nend", multiline=True)["total_hits"] > 0


def test_other_encodings_are_searched_too(workspace: Workspace, search: Search) -> None:
    workspace.file("wide.txt", "a wide needle\n".encode("utf-16"))
    workspace.file("latin.txt", b"caf\xe9 needle\n")
    reply = search("needle")
    assert places(workspace, reply) == [("latin.txt", 1), ("wide.txt", 1)]
    assert reply["hits"][1]["snippet"] == "a wide needle"


def test_line_ends_of_windows_are_not_part_of_a_snippet(workspace: Workspace, search: Search) -> None:
    workspace.file("a.txt", "before\r\nneedle\r\nafter\r\n")
    assert search("needle", context_lines=1)["hits"][0]["snippet"] == "before\nneedle\nafter"


# --- what is left alone --------------------------------------------------------------------------------------


def test_ignored_hidden_and_binary_files_are_left_alone(workspace: Workspace, search: Search) -> None:
    (workspace.root / ".git").mkdir()
    workspace.file(".gitignore", "build/\n*.log\n")
    for name in ("build/a.txt", "x.log", ".hidden", "seen.txt"):
        workspace.file(name, "needle\n")
    workspace.file("image.bin", b"\x00\x01needle\n")
    assert places(workspace, search("needle")) == [("seen.txt", 1)]
    found = places(workspace, search("needle", include_ignored=True))
    assert {path for path, _ in found} == {"build/a.txt", "x.log", ".hidden", "seen.txt"}


def test_nothing_outside_is_searched(workspace: Workspace, gate: Gate, search: Search) -> None:
    (workspace.root / "link").symlink_to(workspace.outside)
    (workspace.root / "file").symlink_to(workspace.outside / "secret.txt")
    assert search(SECRET)["hits"] == []
    assert search(SECRET, include_ignored=True)["hits"] == []
    for root in ("link", "file", str(workspace.outside), "../outside"):
        with pytest.raises(LlmcError) as caught:
            gate.call(context(gate), "linux_search_content", {"root": root, "pattern": SECRET})
        assert caught.value.code == "INVALID_PATH"


def test_the_users_ripgrep_settings_do_not_count(workspace: Workspace) -> None:
    workspace.file("a.txt", "needle\n")
    settings = workspace.outside / "ripgreprc"
    settings.write_text("--invert-match\n")
    with Client("--root", str(workspace.root), env={"RIPGREP_CONFIG_PATH": str(settings)}) as server:
        assert server.call("linux_search_content", root=".", pattern="needle").body.split("\n")[1:] == ["1:needle"]


# --- what is shown around --------------------------------------------------------------------------------------


def test_context_shows_the_lines_around_a_hit(workspace: Workspace, search: Search) -> None:
    workspace.file("a.txt", "".join(f"{number}\n" for number in range(1, 21)))
    (hit,) = search("^10$", context_lines=2)["hits"]
    assert hit == {"path": hit["path"], "line": 10, "snippet": "8\n9\n10\n11\n12", "start": 8, "rev": hit["rev"]}
    (first,) = search("^1$", context_lines=2)["hits"]
    assert (first["snippet"], first.get("start", 1)) == ("1\n2\n3", 1)
    (last,) = search("^20$", context_lines=3)["hits"]
    assert (last["snippet"], last["start"]) == ("17\n18\n19\n20", 17)


@pytest.mark.parametrize("context_lines", [0, 1, 2, 3, 10])
def test_a_line_is_shown_once_however_close_the_hits(workspace: Workspace, search: Search, context_lines: int) -> None:
    hits_at = [3, 4, 6, 9, 15, 30]
    workspace.file("a.txt", "".join(f"{'needle' if n in hits_at else 'other'} {n}\n" for n in range(1, 41)))
    reply = search("needle", context_lines=context_lines)
    assert [hit["line"] for hit in reply["hits"]] == hits_at
    shown: list[int] = []
    for hit in reply["hits"]:
        lines = hit["snippet"].split("\n")
        first = hit.get("start") or hit["line"]
        numbers = list(range(first, first + len(lines)))
        assert [int(line.split()[1]) for line in lines] == numbers
        assert hit["line"] in numbers
        shown += numbers
    wanted = {n for at in hits_at for n in range(at - context_lines, at + context_lines + 1) if 1 <= n <= 40}
    assert len(shown) == len(set(shown))
    assert set(shown) == wanted


def test_lean_text_marks_the_matching_line(workspace: Workspace, server: Client) -> None:
    workspace.file("sub/a.txt", "one\nneedle\nthree\n")
    workspace.file("sub/b.txt", "needle\n")
    reply = server.call("linux_search_content", root=".", pattern="needle", context_lines=1)
    revs = revision_of(b"one\nneedle\nthree\n"), revision_of(b"needle\n")
    first, second = (f"sub/{name}.txt rev={rev}" for name, rev in zip("ab", revs, strict=True))
    assert reply.body == f"{first}\n1-one\n2:needle\n3-three\n{second}\n1:needle"
    assert reply.meta["total_hits"] == 2


def test_a_very_long_line_is_shortened(workspace: Workspace, search: Search) -> None:
    workspace.file("min.js", "x" * 100_000 + "needle" + "y" * 100_000 + "\n")
    (hit,) = search("needle")["hits"]
    assert len(hit["snippet"]) < 1_000


def test_odd_names_are_shown_so_that_they_can_be_read(workspace: Workspace, search: Search, gate: Gate) -> None:
    with open(os.path.join(os.fsencode(workspace.root), b"caf\xe9:1:x.txt"), "wb") as file:
        file.write(b"needle\n")
    (hit,) = search("needle")["hits"]
    assert hit["path"].endswith("/caf\\xe9:1:x.txt")
    assert json.loads(text_of(gate, "read_file", path=hit["path"]))["data"] == "needle\n"


# --- what is counted -----------------------------------------------------------------------------------------


def test_the_total_is_the_real_one_whatever_is_shown(workspace: Workspace, search: Search) -> None:
    for number in range(30):
        workspace.file(f"{number:02}.txt", "needle\n" * 100)
    reply = search("needle", max_results=7)
    assert len(reply["hits"]) == 7
    assert (reply["total_hits"], reply["truncated"], reply["shown"]) == (3_000, True, 7)
    assert "total_is_exact" not in reply


def test_past_the_cap_the_total_is_a_lower_bound_and_says_so(workspace: Workspace) -> None:
    for number in range(20):
        workspace.file(f"{number:02}.txt", "needle\n" * 100)
    for cap, expected, exact in ((500, 500, False), (2_001, 2_000, None)):
        config = Config(server=Server(result_format="json"), limits=Limits(search_count_cap=cap))
        with gate_on(workspace.root, config) as gate:
            text = text_of(gate, "linux_search_content", root=".", pattern="needle", max_results=3)
        reply = json.loads(text)
        assert (reply["total_hits"], reply.get("total_is_exact"), reply["truncated"]) == (expected, exact, True)
        assert len(reply["hits"]) == 3


def test_the_order_is_by_path_and_line_every_time(workspace: Workspace, search: Search) -> None:
    for number in range(200):
        workspace.file(f"{number % 7}/{number:03}.txt", "needle\n" * 20)
    expected = sorted((f"{number % 7}/{number:03}.txt", line) for number in range(200) for line in range(1, 21))
    for _ in range(8):
        assert places(workspace, search("needle", max_results=50)) == expected[:50]


def test_no_hit_is_an_empty_answer(workspace: Workspace, search: Search) -> None:
    workspace.file("a.txt", "x\n")
    reply = search("needle")
    assert (reply["hits"], reply["total_hits"], reply["truncated"]) == ([], 0, False)


# --- what is refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ({"pattern": "("}, "INVALID_ARGUMENT", "unclosed group"),
        ({"pattern": "[a"}, "INVALID_ARGUMENT", "unclosed character class"),
        ({"pattern": r"(\w{1000}){1000}"}, "INVALID_ARGUMENT", "size limit"),
        ({"pattern": "x", "file_glob": "["}, "INVALID_ARGUMENT", "glob"),
        ({"pattern": ""}, "BAD_ARGS", "pattern"),
        ({"pattern": "a\0"}, "BAD_ARGS", "NUL"),
        ({"pattern": "x" * 200_000}, "BAD_ARGS", "too long"),
        ({"pattern": "x", "context_lines": 11}, "BAD_ARGS", "context_lines"),
        ({"pattern": "x", "max_results": 0}, "BAD_ARGS", "max_results"),
        ({"pattern": "x", "max_results": 1001}, "BAD_ARGS", "max_results"),
        ({"pattern": "x", "root": "missing"}, "NOT_FOUND", "missing"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_makes_no_sense_is_refused_with_the_reason(
    gate: Gate, arguments: dict[str, Any], code: str, words: str
) -> None:
    with pytest.raises(LlmcError) as caught:
        gate.call(context(gate), "linux_search_content", {"root": ".", **arguments})
    assert caught.value.code == code
    assert words in caught.value.message


def test_a_fifo_in_the_way_does_not_hold_the_search(workspace: Workspace, gate: Gate, search: Search) -> None:
    os.mkfifo(workspace.root / "fifo")
    workspace.file("a.txt", "needle\n")
    assert places(workspace, search("needle")) == [("a.txt", 1)]
    with pytest.raises(LlmcError) as caught:
        gate.call(context(gate), "linux_search_content", {"root": "fifo", "pattern": "x"})
    assert caught.value.code == "NOT_A_FILE"


# --- by name -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("app", ["app.py", "src/app.py", "src/App_test.py", "src/myapp.txt"]),
        ("*.py", ["app.py", "src/app.py", "src/App_test.py"]),
        ("src/app", ["src/app.py", "src/App_test.py"]),
        ("nothing", []),
    ],
)
def test_files_are_found_by_name_best_first(
    workspace: Workspace, gate: Gate, pattern: str, expected: list[str]
) -> None:
    for name in ("src/myapp.txt", "src/App_test.py", "src/app.py", "app.py", ".app_hidden", "other.txt"):
        workspace.file(name)
    reply = json.loads(text_of(gate, "linux_search_files", root=".", pattern=pattern))
    assert [hit["path"].removeprefix(f"{workspace.root}/") for hit in reply["hits"]] == expected
    assert (reply["total_hits"], reply["truncated"]) == (len(expected), False)


def test_found_files_are_cut_and_counted(workspace: Workspace, gate: Gate) -> None:
    for number in range(30):
        workspace.file(f"file{number}.txt")
    reply = json.loads(text_of(gate, "linux_search_files", root=".", pattern="file", max_results=4))
    assert (len(reply["hits"]), reply["total_hits"], reply["truncated"]) == (4, 30, True)
    assert reply["handle"]
