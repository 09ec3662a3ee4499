"""The code index holds what is on the disk: built once, followed from then on, never half of something."""

import importlib.util
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest
import tantivy

from llmc_mcp.config.schema import Config
from llmc_mcp.errors import Cancelled, FeatureUnavailable, InvalidArgument, LlmcError
from llmc_mcp.files import names
from llmc_mcp.files.ripgrep import find_ripgrep
from llmc_mcp.kernel import confine, syscalls
from llmc_mcp.rag.build import keeper_client, keeper_host
from llmc_mcp.rag.build.commit_plan import CommitPlan
from llmc_mcp.rag.build.keeper import LISTENER, RANKER
from llmc_mcp.rag.build.messages import KeeperRequest, News, Setup, WalkRules
from llmc_mcp.rag.build.parser_pool import ParserPool
from llmc_mcp.rag.build.parser_worker import Job
from llmc_mcp.rag.build.walk import Walk
from llmc_mcp.rag.build.watch import Watch
from llmc_mcp.rag.query import root_index, unindexed
from llmc_mcp.rag.query.search import CodeQuery
from llmc_mcp.rag.store import layout
from llmc_mcp.rag.store.index import FileState, IndexDamaged, IndexWriter
from llmc_mcp.rag.store.tables import IndexTables
from llmc_mcp.store.leases import Leases
from llmc_mcp.tools.enriched_search import combined_freshness

from ..support import processes
from ..support.client import PATIENCE
from ..support.library import Library, keepers, library_on
from ..support.talk import alive, eventually
from ..support.workspace import SECRET, Workspace, require

KEEPER = "from llmc_mcp.rag.build.keeper import main; main()"
ZEBRA = "def paint_zebra(stripes):\n    return [black(stripe) for stripe in stripes]\n"


@pytest.fixture(autouse=True)
def landlock() -> None:
    require(syscalls.landlock_abi() > 0, "Landlock")


@pytest.fixture
def library(workspace: Workspace, tmp_path: Path) -> Iterator[Library]:
    workspace.file("zoo/zebra.py", ZEBRA)
    workspace.file("zoo/lion.py", "def roar_loudly():\n    return 'roar'\n")
    workspace.file("README.md", "# The zoo\n\nA zebra is painted by its stripes.\n")
    with library_on(workspace.root, tmp_path / "data") as made:
        yield made


def children_of(library: Library) -> list[int]:
    """Processes that keep this index."""
    home = os.fsencode(library.home)
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                links = [os.readlink(path) for path in (entry / "fd").iterdir()]
            except OSError:
                continue
            if any(os.fsencode(link) == home + b"/log" for link in links) and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


def kill_children(library: Library) -> None:
    for pid in children_of(library):
        with suppress(ProcessLookupError):  # a worker ends by itself once its keeper is gone
            os.kill(pid, signal.SIGKILL)


# --- building ------------------------------------------------------------------------------------------------------


def test_the_first_search_builds_the_index(library: Library) -> None:
    assert library.stats().totals is None
    answer = library.ask("paint zebra stripes")
    assert (answer.hits[0].path, answer.hits[0].numbers, answer.freshness) == (b"zoo/zebra.py", [1, 2], "fresh")
    assert answer.hits[0].text == ZEBRA.rstrip("\n")
    totals = library.stats().totals
    assert totals is not None
    assert totals.files == 3


def test_a_later_server_finds_the_index_and_only_looks_at_what_changed(library: Library, tmp_path: Path) -> None:
    library.ask("zebra")
    build = library.build
    library.app.close()
    (library.root / "zoo/ape.py").write_text("def swing():\n    pass\n")
    (library.root / "zoo/lion.py").unlink()
    with library_on(library.root, tmp_path / "data") as later:
        answer = later.ask("swing")
        assert (answer.hits[0].path, answer.freshness) == (b"zoo/ape.py", "updated 2 files")
        assert later.build == build
        assert later.found("roar loudly") == []


def test_two_servers_at_once_build_one_index(library: Library, tmp_path: Path) -> None:
    with library_on(library.root, tmp_path / "data") as other:
        answers: list[list[str]] = []

        def ask(one: Library) -> None:
            answers.append(one.found("paint zebra"))

        threads = [threading.Thread(target=ask, args=(one,)) for one in (library, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [paths[0] for paths in answers] == ["zoo/zebra.py"] * 2
        assert [path.name for path in library.home.glob("b-*")] == [library.build.name]
        assert generation(library) == 1
        (library.root / "zoo/emu.py").write_text("def run_like_an_emu(): ...\n")
        for one in (library, other):
            assert eventually(lambda one=one: one.found("run like an emu")[:1] == ["zoo/emu.py"])


def generation(library: Library) -> int:
    connection = layout.connect(str(library.build))
    try:
        return layout.get_meta(connection, "generation")
    finally:
        connection.close()


def test_a_full_build_replaces_the_index_in_one_step(library: Library) -> None:
    library.ask("zebra")
    old = library.build
    news = library.refresh(full=True)
    assert (news.rebuilt, news.changed) == ("it was asked for", 3)
    assert library.build != old
    assert not old.exists()
    assert library.found("paint zebra")[0] == "zoo/zebra.py"


def test_a_killed_build_leaves_the_old_index_and_its_litter_is_swept(library: Library) -> None:
    library.ask("zebra")
    old = library.build
    for number in range(3_000):
        (library.root / f"many_{number}.py").write_text(f"def number_{number}():\n    return {number}\n" * 5)
    outcome: list[Exception] = []

    def build() -> None:
        try:
            library.refresh(full=True)
        except LlmcError as exc:
            outcome.append(exc)

    thread = threading.Thread(target=build)
    thread.start()
    assert eventually(lambda: len(list(library.home.glob("b-*"))) == 2)
    kill_children(library)
    thread.join()
    assert len(outcome) == 1
    assert "ended" in str(outcome[0])
    assert library.build == old
    assert library.found("paint zebra")[0] == "zoo/zebra.py"
    library.refresh(full=True)
    assert list(library.home.glob("b-*")) == [library.build]


def test_whoever_takes_a_build_back_stops_it(library: Library) -> None:
    library.ask("zebra")
    old = library.build
    for number in range(800):
        (library.root / f"many_{number}.py").write_text(f"def number_{number}():\n    return {number}\n")

    def check() -> None:
        if len(list(library.home.glob("b-*"))) == 2:
            raise Cancelled("enough")

    with pytest.raises(Cancelled):
        library.rag.refresh(None, True, library.caller(check))
    assert eventually(lambda: "being" not in library.rag.state())
    assert library.build == old
    assert list(library.home.glob("b-*")) == [old]


def test_a_build_that_others_wait_for_is_not_stopped_by_one_who_gives_up(library: Library) -> None:
    library.ask("zebra")
    for number in range(400):
        (library.root / f"many_{number}.py").write_text(f"def number_{number}():\n    return {number}\n")
    other_waits = threading.Event()
    told: list[News | None] = []

    def wait_too() -> None:
        told.extend(library.rag.refresh(None, False, library.caller(other_waits.set)))

    other = threading.Thread(target=wait_too)

    def check() -> None:
        if other.ident is None:
            other.start()
        if other_waits.is_set():
            raise Cancelled("enough")

    with pytest.raises(Cancelled):
        library.rag.refresh(None, True, library.caller(check))
    other.join()
    (news,) = told
    assert news is not None
    assert (news.failed, news.rebuilt) == ("", "it was asked for")


def test_whatever_goes_wrong_at_the_start_is_said_and_the_next_call_tries_again(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    def torn(_: str) -> str:
        raise tarfile.ReadError("unexpected end of data")

    with monkeypatch.context() as broken:
        broken.setattr(keeper_host, "unpack", torn)
        with pytest.raises(FeatureUnavailable, match="unexpected end of data"):
            library.ask("zebra")
    other = confine.command("llmc_mcp.rag.parse.columns")  # it ends before it reads anything

    def start_other(_: str) -> list[bytes]:
        return other

    with monkeypatch.context() as broken:
        broken.setattr(confine, "command", start_other)
        with pytest.raises(FeatureUnavailable, match="ended"):
            library.ask("zebra")
    assert library.found("paint zebra")[0] == "zoo/zebra.py"


def test_an_indexing_process_that_talks_nonsense_is_ended(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    code = f"import socket, time; line, _ = socket.socket(fileno={LISTENER}).accept(); line.sendall(b'no news\\n')"
    other = [*confine.command("time")[:-1], f"{code}; time.sleep(600)".encode()]

    def start_other(_: str) -> list[bytes]:
        return other

    with monkeypatch.context() as broken:
        broken.setattr(confine, "command", start_other)
        with pytest.raises(FeatureUnavailable, match="ended"):
            library.ask("zebra")
    assert library.found("paint zebra")[0] == "zoo/zebra.py"


def test_an_indexing_process_that_hangs_is_ended_and_its_lease_with_it(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = [*confine.command("time")[:-1], b"import time; time.sleep(600)"]

    def start_other(_: str) -> list[bytes]:
        return other

    with monkeypatch.context() as broken:
        broken.setattr(confine, "command", start_other)
        broken.setattr(keeper_client, "_SILENT_S", 0.5)
        with pytest.raises(FeatureUnavailable, match="said nothing"):
            library.ask("zebra")
    assert library.found("paint zebra")[0] == "zoo/zebra.py"
    (lease,) = Leases(library.app.store, 1.0).all()  # of the process that came after it
    assert lease.token > 1
    library.rag.close()
    assert eventually(lambda: Leases(library.app.store, 1.0).all() == [])


def test_a_search_does_not_wait_for_the_first_build_but_answers_from_the_text(library: Library) -> None:
    answer = library.rag.search(CodeQuery("paint zebra"), library.caller(patience=0.0))
    assert [hit.path for hit in answer.hits][:1] == [b"zoo/zebra.py"]
    assert "def paint_zebra(stripes):" in answer.hits[0].text
    assert answer.freshness.startswith("partial: being ")
    assert eventually(lambda: library.ask("paint zebra").freshness == "fresh")


def test_a_name_is_found_in_the_text_before_the_many_uses_of_its_parts(library: Library) -> None:
    for number in range(30):
        (library.root / f"a_{number}.py").write_text("zebra = paint\nset_of_queries = zebra_stall(paint)\n" * 150)
    (library.root / "zoo/stall.py").write_text("class ZebraStall:\n    pass\n")
    answer = library.rag.search(CodeQuery("ZebraStall"), library.caller(patience=0.0))
    assert answer.hits[0].path == b"zoo/stall.py"
    assert "class ZebraStall" in answer.hits[0].text
    assert answer.hint == ""


def test_a_name_that_is_not_indexed_yet_is_not_said_to_be_missing(library: Library) -> None:
    many_files(library.root, 1_200)
    (library.root / "zz.py").write_text("def quagga():\n    return 1\n")
    library.rag.search(CodeQuery("number_7"), library.caller(patience=0.0))
    assert eventually(lambda: indexed(library)[0] > 0)
    answer = library.rag.search(CodeQuery("quagga"), library.caller(patience=0.0))
    assert "no file holds" not in answer.hint
    assert answer.hits[0].path == b"zz.py"


def test_a_file_that_is_written_to_and_still_open_is_found_as_it_is(library: Library) -> None:
    library.ask("zebra")
    with (library.root / "zoo/lion.py").open("a") as file:
        file.write("\n\ndef purr_softly():\n    return 'purr'\n")
        file.flush()
        assert library.found("purr_softly")[0] == "zoo/lion.py"
        file.write("\n\ndef yawn():\n    return 'aaah'\n")
        file.flush()
        assert library.found("yawn")[0] == "zoo/lion.py"


def test_a_build_ends_when_its_index_is_deleted(library: Library) -> None:
    many_files(library.root, 3_000)
    library.rag.search(CodeQuery("number_7"), library.caller(patience=0.0))
    assert eventually(lambda: indexed(library)[0] > 0)
    (keeper,) = keepers(library.root)
    library.home.rename(library.home.with_name("forgotten"))
    assert eventually(lambda: not alive(keeper))


def test_a_search_goes_on_when_the_process_of_a_first_build_is_killed(library: Library) -> None:
    many_files(library.root, 3_000)
    library.rag.search(CodeQuery("number_7"), library.caller(patience=0.0))
    assert eventually(lambda: indexed(library)[0] > 0)
    (keeper,) = keepers(library.root)
    os.kill(keeper, signal.SIGKILL)
    answer = library.rag.search(CodeQuery("paint_zebra"), library.caller(patience=0.0))
    assert answer.hits[0].path == b"zoo/zebra.py"
    assert eventually(lambda: library.ask("paint_zebra").freshness == "fresh")


def test_what_a_ragignore_may_leave_out_is_not_searched_as_text(library: Library) -> None:
    (library.root / "zoo/.ragignore").write_text("zebra.py\n")
    answer = library.rag.search(CodeQuery("paint zebra"), library.caller(patience=0.0))
    assert b"zoo/zebra.py" not in [hit.path for hit in answer.hits]


def test_hits_with_what_is_around_them_say_once_how_far_a_first_build_is() -> None:
    said = "partial: being built: 5 of 9 files; "
    assert combined_freshness(
        f"{said}files not indexed yet were searched as text", [f"{said}the others are left out"]
    ) == (f"{said}files not indexed yet were searched as text; callers and callees only of what is indexed")
    assert combined_freshness("fresh", ["", "updated 3 files"]) == "updated 3 files"
    assert combined_freshness("fresh", [""]) == "fresh"


def test_only_files_that_will_be_indexed_are_searched_as_text(library: Library) -> None:
    many_files(library.root, 3_000)
    (library.root / ".ragignore").write_text("ragged.py\n")
    (library.root / ".gitignore").write_text("output.py\n")  # it counts outside a repository, too
    for name in ("ragged.py", "output.py", "zz.py"):
        (library.root / name).write_text(f"def quagga():\n    return '{name}'\n")
    with building_suspended(library):
        answer = library.rag.search(CodeQuery("quagga"), library.caller(patience=0.0))
        assert answer.freshness.startswith("partial: being built")
        assert [hit.path for hit in answer.hits if "quagga" in hit.text] == [b"zz.py"]


@contextmanager
def building_suspended(library: Library) -> Generator[None]:
    """A first build that has committed something, and goes no further."""
    library.rag.search(CodeQuery("number_7"), library.caller(patience=0.0))
    assert eventually(lambda: indexed(library)[0] > 0)
    (keeper,) = keepers(library.root)
    parsers = sorted(processes.children_of(keeper))[1:]  # the first child searches
    for parser in parsers:
        os.kill(parser, signal.SIGSTOP)
    try:
        assert not indexed(library)[1]
        yield
    finally:
        for parser in parsers:
            os.kill(parser, signal.SIGCONT)


def test_a_first_build_commits_early_and_then_less_and_less_often() -> None:
    now = 0.0
    plan = CommitPlan(0, is_update=False, clock=lambda: now)
    assert [done for done in range(20_000) if plan.is_due(done) and not plan.committed(done)] == [
        *(500, 1_000, 1_500, 2_250, 3_375, 5_062, 7_593, 11_389, 16_389)
    ]
    slow = CommitPlan(0, is_update=False, clock=lambda: now)
    assert not slow.is_due(7)
    now = 3.1  # seconds for so few files
    assert slow.is_due(7)
    slow.committed(7)
    assert not slow.is_due(8)


def test_an_update_is_committed_at_once_unless_it_is_very_large() -> None:
    plan = CommitPlan(0, is_update=True, clock=lambda: 1e9)
    assert [done for done in range(12_000) if plan.is_due(done) and not plan.committed(done)] == [5_000, 10_000]


def test_a_question_to_the_graph_waits_for_the_first_build_and_says_when_it_can_not(library: Library) -> None:
    with pytest.raises(LlmcError) as caught:
        library.rag.ask(lambda view: view.files.files(), library.caller(seconds=0.0))
    assert caught.value.code == "RESOURCE_BUSY"
    ((files, note),) = library.rag.ask(lambda view: len(view.files.files()), library.caller())
    assert (files, note) == (3, "")


def many_files(root: Path, count: int) -> None:
    for number in range(count):
        (root / f"many_{number}.py").write_text(f"def number_{number}():\n    return {number}\n")


def test_a_search_waits_for_a_first_build_only_if_that_ends_soon(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    many_files(library.root, 2_000)
    monkeypatch.setattr(root_index, "_SOON", 1)
    answer = library.rag.search(CodeQuery("paint zebra"), library.caller())
    assert answer.freshness.startswith("partial: ")
    assert answer.hits[0].path == b"zoo/zebra.py"


def test_files_that_take_long_to_search_as_text_do_not_make_a_search_fail(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    many_files(library.root, 2_000)
    monkeypatch.setattr(root_index, "_SOON", 1)
    monkeypatch.setattr(unindexed, "_LONGEST_S", -1.0)  # its time is up before it begins
    answer = library.rag.search(CodeQuery("paint zebra"), library.caller())
    assert answer.freshness.startswith("partial: ")
    assert library.refresh() is not None
    assert library.found("paint zebra")[0] == "zoo/zebra.py"


def indexed(library: Library) -> tuple[int, bool]:
    """How many files the index in force holds, and whether it is complete."""
    try:
        tables = IndexTables(str(library.build))
    except (OSError, ValueError, IndexDamaged):  # there is none yet
        return 0, False
    try:
        return len(tables.all_paths()), tables.complete
    finally:
        tables.close()


def test_a_first_build_that_is_killed_is_continued_from_what_it_committed(library: Library, tmp_path: Path) -> None:
    many_files(library.root, 2_000)
    library.rag.search(CodeQuery("zebra"), library.caller(patience=0.0))
    assert eventually(lambda: indexed(library)[0] > 500)
    kill_children(library)
    library.app.close()
    with library_on(library.root, tmp_path / "data") as later:
        assert later.refresh().changed <= 1_503  # the first commit was of 500 files, and a second one has begun
        assert indexed(later) == (2_003, True)
        assert later.found("paint zebra")[0] == "zoo/zebra.py"


def test_a_build_that_is_called_off_keeps_what_it_has(library: Library) -> None:
    many_files(library.root, 2_000)

    def check() -> None:
        if indexed(library)[0]:
            raise Cancelled("enough")

    with pytest.raises(Cancelled):
        library.rag.refresh(None, False, library.caller(check))
    assert eventually(lambda: "being" not in library.rag.state())
    assert indexed(library)[0] > 0
    library.refresh()
    assert indexed(library) == (2_003, True)


def test_a_build_outlives_the_server_that_began_it_and_ends_then(library: Library) -> None:
    many_files(library.root, 2_000)
    library.rag.search(CodeQuery("zebra"), library.caller(patience=0.0))
    assert eventually(lambda: library.rag.state().startswith("being built"))
    pids = children_of(library)
    library.app.close()
    assert eventually(lambda: indexed(library) == (2_003, True))
    assert eventually(lambda: not any(alive(pid) for pid in pids))


def test_what_reads_hostile_files_has_the_system_calls_of_a_command_only(library: Library) -> None:
    library.ask("zebra")
    pids = children_of(library)
    assert pids
    for pid in pids:
        assert "\nSeccomp:\t2\n" in Path(f"/proc/{pid}/status").read_text()


def test_nothing_keeps_running_when_the_server_ends(library: Library) -> None:
    library.ask("zebra")
    pids = children_of(library)
    assert pids
    library.app.close()
    assert eventually(lambda: not any(alive(pid) for pid in pids))


def test_an_indexing_process_that_dies_is_started_again(library: Library) -> None:
    library.ask("zebra")
    kill_children(library)
    (library.root / "zoo/gnu.py").write_text("def graze_quietly(): ...\n")
    assert eventually(lambda: library.found("graze quietly")[:1] == ["zoo/gnu.py"])


# --- which files ---------------------------------------------------------------------------------------------------


def test_ignored_hidden_and_secret_files_are_not_indexed(library: Library) -> None:
    root = library.root
    for name in ("kept.py", "ignored.py", "build/made.py", "sub/left_out.py", "sub/deep/left_out.py", "sub/own.py"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"def wombat_{path.stem}(): ...\n")
    (root / ".hidden.py").write_text("def wombat_hidden(): ...\n")
    (root / ".env").write_text("wombat=secret\n")
    (root / "server.pem").write_text("wombat\n")
    (root / ".gitignore").write_text("ignored.py\n")
    (root / ".ragignore").write_text("# generated\n/build/\n")
    (root / "sub/.ragignore").write_text("left_*.py\n!deep/left_out.py\n")
    assert sorted(library.found("wombat", limit=20)) == ["kept.py", "sub/deep/left_out.py", "sub/own.py"]


def test_an_ignore_file_that_changes_changes_the_index(library: Library) -> None:
    assert library.found("paint zebra")[0] == "zoo/zebra.py"
    (library.root / ".ragignore").write_text("zoo/\n")
    assert eventually(lambda: library.found("paint zebra") == ["README.md"])
    (library.root / ".ragignore").unlink()
    assert eventually(lambda: library.found("paint zebra")[0] == "zoo/zebra.py")


def test_what_is_no_text_or_leads_out_is_counted_and_left_out(library: Library, workspace: Workspace) -> None:
    workspace.file("blob.py", b"zebra\0zebra\n" * 10)
    workspace.file("huge.py", "# zebra\n" * 200_000)
    workspace.file("latin.py", "# zebra caf\xe9\ndef latin_zebra(): ...\n".encode("latin-1"))
    workspace.file("broken.py", "def broken_zebra(:\n   (((\n")
    workspace.file("empty.py", "")
    workspace.file("minified.js", "function zebra(){" + "var a=1;" * 20_000 + "}")
    os.symlink(workspace.outside / "secret.txt", workspace.root / "link.txt")
    os.symlink(workspace.outside, workspace.root / "folder")
    os.mkfifo(workspace.root / "pipe.py")
    name = os.fsencode(workspace.root) + b"/\xff\xfezebra.py"
    with open(name, "wb") as file:
        file.write(b"def odd_name_zebra(): ...\n")
    found = set(library.found("zebra", limit=20))
    assert {"latin.py", "broken.py", "\\xff\\xfezebra.py", "minified.js"} <= found
    assert not found & {"blob.py", "huge.py", "pipe.py"}
    assert library.found(SECRET.split("-")[0].lower()) == []
    totals = library.stats().totals
    assert totals is not None
    assert totals.skipped == {"binary": 1, "too large": 1}


def test_an_empty_folder_has_an_empty_index(workspace: Workspace, tmp_path: Path) -> None:
    with library_on(workspace.root, tmp_path / "data") as library:
        answer = library.ask("anything")
        assert (answer.hits, answer.freshness, answer.candidates) == ([], "fresh", 0)
        assert eventually(
            lambda: workspace.file("late.py", "def late(): ...\n").exists() and library.found("late") != []
        )


def test_more_files_than_configured_are_left_out_and_that_is_said(library: Library, tmp_path: Path) -> None:
    library.app.close()
    config = Config()
    config.rag.max_files = 2
    with library_on(library.root, tmp_path / "other", config) as small:
        small.ask("zebra")
        stats = small.stats()
        assert stats.totals is not None
        assert stats.totals.files == 2
        assert any("max_files" in note for note in stats.notes)


def test_files_up_to_the_configured_size_are_indexed(library: Library, tmp_path: Path) -> None:
    library.app.close()
    config = Config()
    config.rag.max_file_bytes = 60
    with library_on(library.root, tmp_path / "other", config) as small:
        assert small.found("zebra") == ["README.md"]


def test_the_embedding_is_the_operators_choice_and_another_one_builds_the_index_anew(
    library: Library, tmp_path: Path
) -> None:
    require(importlib.util.find_spec("numpy") is not None, "numpy")
    library.ask("zebra")
    assert library.stats().embedding.startswith("words")
    library.app.close()
    config = Config()
    config.rag.embedding = "none"
    with library_on(library.root, tmp_path / "data", config) as plain:
        assert plain.ask("paint zebra").freshness == "rebuilt: it was made for another embedding"
        assert plain.stats().embedding == ""
    config.rag.embedding = "another"
    with library_on(library.root, tmp_path / "data", config) as wrong, pytest.raises(InvalidArgument):
        wrong.ask("zebra")


# --- following changes ---------------------------------------------------------------------------------------------


def test_a_hit_shows_the_file_as_it_is_now(library: Library) -> None:
    library.ask("zebra")
    path = library.root / "zoo/zebra.py"
    for shift in range(1, 6):
        path.write_text("# a line\n" * shift + ZEBRA)
        hit = library.ask("paint_zebra").hits[0]
        lines = path.read_text().split("\n")
        assert [lines[number - 1] for number in hit.numbers if number > 0] == hit.text.split("\n")
        assert "def paint_zebra(stripes):" in hit.text


def test_a_file_that_vanished_is_no_hit(library: Library) -> None:
    library.ask("zebra")
    (library.root / "zoo/zebra.py").unlink()
    assert library.found("paint zebra") == ["README.md"]


def test_files_that_come_move_and_go_are_followed(library: Library) -> None:
    library.ask("zebra")
    nest = library.root / "new/nest"
    nest.mkdir(parents=True)
    (nest / "owl.py").write_text("def hoot_at_night(): ...\n")
    assert eventually(lambda: library.found("hoot at night") == ["new/nest/owl.py"])
    os.rename(library.root / "new", library.root / "moved")
    assert eventually(lambda: library.found("hoot at night") == ["moved/nest/owl.py"])
    (nest.parent.parent / "moved/nest/owl.py").unlink()
    assert eventually(lambda: library.found("hoot at night") == [])


def test_an_empty_folder_that_gets_a_file_is_watched_like_any_other(library: Library) -> None:
    for name in ("empty", "zoo/cage", "zoo/deep/down/below"):
        (library.root / name).mkdir(parents=True)
    library.ask("zebra")
    for name in ("empty", "zoo/cage", "zoo/deep/down/below"):
        (library.root / name / "owl.py").write_text("def hoot_at_night(): ...\n")
        assert eventually(lambda path=f"{name}/owl.py": library.found("hoot at night") == [path])
        (library.root / name / "owl.py").unlink()


def test_text_in_utf_16_is_text(library: Library) -> None:
    for encoding in ("utf-16", "utf-16-be"):
        mark = "" if encoding == "utf-16" else "\ufeff"
        (library.root / f"{encoding}.py").write_bytes(f"{mark}# änfang\n\n\n{ZEBRA}".encode(encoding))
    answer = library.ask("paint_zebra", limit=5)
    assert {names.show(hit.path) for hit in answer.hits} == {"zoo/zebra.py", "utf-16.py", "utf-16-be.py"}
    for hit in answer.hits:
        assert hit.text.startswith("def paint_zebra(stripes):\n")
        assert hit.numbers[0] == (1 if hit.path == b"zoo/zebra.py" else 4)


def test_what_a_file_was_is_forgotten_when_it_changes_or_goes(library: Library) -> None:
    library.ask("zebra")
    before = documents(library)
    for number in range(3):
        (library.root / "zoo/zebra.py").write_text(f"# version {number}\n{ZEBRA}")
        library.refresh()
    assert documents(library) == before
    (library.root / "zoo/zebra.py").unlink()
    library.refresh()
    assert documents(library) == before - 2  # its one chunk, and the file


def documents(library: Library) -> int:
    """How many documents tantivy has."""
    return tantivy.Index.open(layout.text_of(str(library.build))).searcher().num_docs


def test_a_touched_file_is_not_parsed_again(library: Library) -> None:
    library.ask("zebra")
    os.utime(library.root / "zoo/zebra.py", ns=(1, 1))
    library.refresh()
    connection = layout.connect(str(library.build))
    rows = dict(connection.execute("SELECT CAST(path AS TEXT), generation FROM files").fetchall())
    times = connection.execute("SELECT mtime_ns FROM files WHERE path=?", (b"zoo/zebra.py",)).fetchone()
    connection.close()
    assert rows["zoo/zebra.py"] == 1
    assert times == (1,)


def test_an_answer_is_called_fresh_only_if_it_knows_of_every_change_before_it(library: Library) -> None:
    library.ask("zebra")
    for number in range(12):
        path = library.root / ("zoo/lion.py" if number % 2 else f"zoo/cub_{number}.py")
        path.write_text(f"def quokka_{number}(): ...\n")
        answer = library.ask(f"quokka_{number}")
        assert answer.freshness != "fresh" or f"def quokka_{number}" in answer.hits[0].text


def test_a_watch_says_when_the_kernel_has_none_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, folder: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(syscalls, "inotify_watch", full)
    watch = Watch()
    watch.follow([b"a/b.py"], since_ns=0)
    assert "max_user_watches" in watch.reason
    os.close(watch.fd)


def test_a_folder_that_changed_before_it_was_watched_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    changed = (tmp_path / "a").stat().st_mtime_ns
    os.utime(tmp_path, ns=(1, 1))
    watch = Watch()
    assert watch.follow([b"a/b.py"], changed)
    assert not watch.follow([b"a/b.py"], changed)  # from now on, the kernel tells
    os.close(watch.fd)


# --- the process itself --------------------------------------------------------------------------------------------


class Child:
    """The process that keeps an index, at the other end of a connection."""

    def __init__(self, line: socket.socket) -> None:
        self.line, self._lines = line, line.makefile("rb")

    def send(self, *requests: KeeperRequest) -> None:
        self.line.sendall(b"".join(msgspec.json.encode(request) + b"\n" for request in requests))

    def hear(self) -> News:
        return msgspec.json.decode(self._lines.readline(), type=News)

    def outcome(self, number: int) -> News:
        while True:
            news = self.hear()
            if news.done and news.id == number:
                return news


def connected_to(place: Path) -> Child:
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(PATIENCE)
    line.connect(str(place))
    return Child(line)


@contextmanager
def child_on(root: Path, home: Path, ripgrep: str) -> Generator[Child]:
    home.mkdir(exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="keeper-"), "socket")  # a short path
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as searches:
        listener.bind(str(place))
        listener.listen()
        searches.bind(f"{place}-searches")
        searches.listen()
        fds = [listener.fileno(), searches.fileno()]
        places = f"os.dup2({fds[0]}, {LISTENER}); os.dup2({fds[1]}, {RANKER})"
        command = [sys.executable, "-c", f"import os; {places}; {KEEPER}"]
        process = subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, pass_fds=fds)
    with process:
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(Setup(str(home), WalkRules(), ripgrep)) + b"\n")
        process.stdin.flush()
        child = connected_to(place)
        try:
            yield child
        finally:
            child.line.close()
            process.stdin.close()
            process.kill()
            shutil.rmtree(place.parent)


def ripgrep_that(tmp_path: Path, script: str) -> str:
    path = tmp_path / "rg"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_only_the_request_that_is_taken_back_is_stopped(workspace: Workspace, tmp_path: Path) -> None:
    workspace.file("a.py", ZEBRA)
    ripgrep = ripgrep_that(
        tmp_path, f'[ -e "{tmp_path}/go" ] || exec sleep 600\nexec {os.fsdecode(find_ripgrep())} "$@"'
    )
    with child_on(workspace.root, tmp_path / "home", ripgrep) as child:
        child.send(KeeperRequest(1, "refresh"), KeeperRequest(2, "refresh"), KeeperRequest(3, "refresh"))
        assert child.hear().id == 1  # it walks, and ripgrep hangs
        (tmp_path / "go").touch()
        child.send(KeeperRequest(1, "stop"), KeeperRequest(3, "stop"))
        assert child.outcome(1).failed == "stopped"
        second = child.outcome(2)
        assert (second.failed, second.changed) == ("", 1)
        assert child.outcome(3).failed == "stopped"


def test_the_process_listens_while_another_one_writes(workspace: Workspace, tmp_path: Path) -> None:
    workspace.file("a.py", ZEBRA)
    home = tmp_path / "home"
    home.mkdir()
    with (
        layout.Home(str(home)).writing(lambda: None),
        child_on(workspace.root, home, os.fsdecode(find_ripgrep())) as child,
    ):
        child.send(KeeperRequest(1, "refresh"))
        assert child.hear().busy
        child.send(KeeperRequest(1, "stop"))
        assert child.outcome(1).failed == "stopped"


def test_a_process_that_has_not_walked_yet_says_so_and_walks_whatever_it_is_asked_for(
    workspace: Workspace, tmp_path: Path
) -> None:
    workspace.file("a.py", ZEBRA)
    home, ripgrep = tmp_path / "home", os.fsdecode(find_ripgrep())
    with child_on(workspace.root, home, ripgrep) as child:
        child.send(KeeperRequest(1, "refresh"))
        child.outcome(1)
    workspace.file("b.py", ZEBRA)
    with child_on(workspace.root, home, ripgrep) as child:
        child.send(KeeperRequest(1, "ping"))
        first = child.outcome(1)
        assert (first.busy, first.failed) == (False, "not compared with the files yet")
        child.send(KeeperRequest(2, "refresh", paths=[b"a.py"]))
        assert child.outcome(2).changed == 1  # b.py
        workspace.file("c.py", ZEBRA)
        child.send(KeeperRequest(3, "ping"))
        assert child.outcome(3).failed == ""
    connection = layout.connect(str(home / os.readlink(home / "current")))
    assert {row[0] for row in connection.execute("SELECT path FROM files")} == {b"a.py", b"b.py", b"c.py"}
    connection.close()


def test_new_names_of_ignored_files_are_not_each_a_reason_to_walk(workspace: Workspace, tmp_path: Path) -> None:
    workspace.file("a.py", ZEBRA)
    workspace.file(".gitignore", "*.o\n")
    log = tmp_path / "walks"
    ripgrep = ripgrep_that(tmp_path, f'echo walk >> {log}\nexec {os.fsdecode(find_ripgrep())} "$@"')
    with child_on(workspace.root, tmp_path / "home", ripgrep) as child:
        child.send(KeeperRequest(1, "refresh"))
        child.outcome(1)
        child.send(KeeperRequest(2, "ping"))
        child.outcome(2)
        before = log.read_text().count("walk")
        for number in range(60):
            workspace.file(f"{number}.o", "")
        child.send(KeeperRequest(3, "ping"))
        child.outcome(3)
        assert log.read_text().count("walk") - before < 60  # a walk asks twice: 120 if each name were a reason


def test_a_walk_keeps_the_first_files_and_is_heard_of_meanwhile(workspace: Workspace, tmp_path: Path) -> None:
    for number in range(600):
        workspace.file(f"f{number:03}.py", "")
    root = os.open(workspace.root, os.O_RDONLY | os.O_DIRECTORY)
    walk = Walk(root, WalkRules(max_files=3), os.fsdecode(find_ripgrep()), str(tmp_path))
    ticks: list[int] = []
    old = os.getcwd()
    os.chdir(workspace.root)
    try:
        seen = walk.files(lambda: ticks.append(1))
    finally:
        os.chdir(old)
        os.close(root)
    assert [file.path for file in seen] == [b"f000.py", b"f001.py", b"f002.py"]
    assert walk.past_limit == 597
    assert ticks


# --- damage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["index.db", "text/meta.json", "text segments", "everything"])
def test_a_damaged_index_is_built_anew_and_that_is_said(library: Library, tmp_path: Path, what: str) -> None:
    library.ask("zebra")
    library.app.close()
    build = library.build
    files = {
        "text segments": [path for path in (build / "text").iterdir() if path.suffix in (".idx", ".term", ".fast")],
        "everything": [path for path in build.rglob("*") if path.is_file()],
    }.get(what, [build / what])
    for path in files:
        path.write_bytes(b"\x00garbage\xff" * 100)
    with library_on(library.root, tmp_path / "data") as later:
        answer = later.ask("paint zebra")
        assert answer.hits[0].path == b"zoo/zebra.py"
        assert answer.freshness.startswith("rebuilt: it was damaged")
        assert later.ask("paint zebra").freshness == "fresh"


def test_an_index_of_another_format_is_built_anew(library: Library, tmp_path: Path) -> None:
    library.ask("zebra")
    library.app.close()
    connection = sqlite3.connect(library.build / "index.db")
    connection.execute("PRAGMA user_version=999")
    connection.close()
    with library_on(library.root, tmp_path / "data") as later:
        answer = later.ask("paint zebra")
        assert (answer.hits[0].path, "format 999" in answer.freshness) == (b"zoo/zebra.py", True)


def test_where_nothing_can_be_kept_there_is_no_index(workspace: Workspace, tmp_path: Path) -> None:
    workspace.file("a.py", ZEBRA)
    (tmp_path / "data").mkdir(exist_ok=True)
    (tmp_path / "data/index").write_text("in the way")
    with library_on(workspace.root, tmp_path / "data") as library, pytest.raises(FeatureUnavailable) as caught:
        library.ask("zebra")
    assert "LLMC_DATA_DIR" in (caught.value.hint or "")


def test_a_crash_between_the_two_commits_is_made_good(library: Library, tmp_path: Path) -> None:
    library.ask("zebra")
    library.app.close()
    writer = IndexWriter(str(library.build))
    known = writer.known()
    writer.drop(known[b"zoo/lion.py"].id)
    old = known[b"zoo/zebra.py"]
    writer.put(FileState(old.id, b"zoo/zebra.py", old.size, old.mtime_ns, old.sha256, "binary"))
    connection = sqlite_of(writer)
    layout.put_meta(connection, "generation", writer.generation)
    connection.execute("COMMIT")
    connection.close()
    del writer  # killed before tantivy's commit
    with library_on(library.root, tmp_path / "data") as later:
        assert later.found("paint zebra")[0] == "zoo/zebra.py"
        assert later.found("roar loudly") == ["zoo/lion.py"]


def sqlite_of(writer: IndexWriter) -> sqlite3.Connection:
    connection = getattr(writer, "_connection")  # noqa: B009 - private on purpose
    assert isinstance(connection, sqlite3.Connection)
    return connection


def test_a_text_index_that_is_ahead_is_no_index(library: Library) -> None:
    library.ask("zebra")
    library.app.close()
    connection = layout.connect(str(library.build), write=True)
    layout.put_meta(connection, "generation", 0)
    connection.close()
    with pytest.raises(IndexDamaged):
        IndexWriter(str(library.build))


# --- workers -------------------------------------------------------------------------------------------------------


class Treacherous(Walk):
    """A walk whose file `bomb` kills whoever reads it, as a crash in a grammar would."""

    def read(self, path: bytes) -> tuple[bytes, os.stat_result]:
        if path == b"bomb.py":
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().read(path)


Pools = Callable[[type[Walk]], ParserPool]


class Noting(Walk):
    """A walk that notes in a file outside what is read."""

    def read(self, path: bytes) -> tuple[bytes, os.stat_result]:
        with open(os.path.join(self.notes, "read"), "ab") as notes:
            notes.write(path + b"\n")
        return super().read(path)

    notes = ""


@pytest.fixture
def parsers(workspace: Workspace, tmp_path: Path) -> Iterator[Pools]:
    """Pools of parsers for a root of 60 files, one of which is called bomb.py."""
    names = ["a.py", "bomb.py", *(f"c{number}.py" for number in range(58))]
    for name in names:
        workspace.file(name, ZEBRA)
    root = os.open(workspace.root, os.O_RDONLY | os.O_DIRECTORY)
    made: list[ParserPool] = []

    def make(kind: type[Walk]) -> ParserPool:
        made.append(ParserPool(kind(root, WalkRules(), os.fsdecode(find_ripgrep()), str(tmp_path))))
        return made[-1]

    yield make
    for pool in made:
        pool.close()
    os.close(root)


def parse_jobs(*names: str) -> list[Job]:
    wanted = names or ("a.py", "bomb.py", *(f"c{number}.py" for number in range(58)))
    return [Job(number, os.fsencode(name), 100) for number, name in enumerate(wanted, 1)]


def test_a_file_that_crashes_its_parser_costs_only_itself(parsers: Pools) -> None:
    workers = parsers(Treacherous)
    looked = {one.path: one.state for one in workers.look_at(parse_jobs("a.py", "bomb.py", "c1.py"), 1, lambda: None)}
    again = [one.state for one in workers.look_at(parse_jobs("a.py"), 1, lambda: None)]
    assert looked == {b"a.py": "", b"bomb.py": "its parser failed", b"c1.py": ""}
    assert again == [""]


def test_parsers_whose_work_was_given_up_are_there_for_the_next(parsers: Pools) -> None:
    workers = parsers(Treacherous)
    for patience in range(8):
        ticks = iter(range(patience))

        def tick(ticks: Iterator[int] = ticks) -> None:
            if next(ticks, None) is None:
                raise Cancelled("enough")

        with suppress(Cancelled):
            list(workers.look_at(parse_jobs(), 2, tick))
    looked = [one.state for one in workers.look_at(parse_jobs(), 2, lambda: None)]
    assert sorted(looked) == [""] * 59 + ["its parser failed"]


def test_parsers_go_on_while_what_they_have_parsed_is_stored(
    parsers: Pools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Noting, "notes", str(tmp_path))
    looked = parsers(Noting).look_at(parse_jobs(), 1, lambda: None)
    next(looked)  # of the first batch, and nobody takes the others
    assert eventually(lambda: (tmp_path / "read").read_bytes().count(b"\n") == 60)
    assert len(list(looked)) == 59
