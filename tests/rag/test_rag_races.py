"""What an index does while others write: links put in the place of files, a held lock, a folder that was moved."""

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llmc_mcp.kernel import syscalls
from llmc_mcp.rag.build.keeper_client import Builder
from llmc_mcp.rag.query.search import CodeQuery
from llmc_mcp.rag.store import tables
from llmc_mcp.rag.store.index import IndexReader
from llmc_mcp.rag.store.layout import Home

from ..support.client import PATIENCE
from ..support.library import Library, library_on, never
from ..support.talk import eventually
from ..support.workspace import Workspace, require

ZEBRA = "def paint_zebra(stripes):\n    return stripes\n"
SECRET = "def xylographer_password():\n    return 'xylographer'\n"
BUILDS = 4


@pytest.fixture(autouse=True)
def landlock() -> None:
    require(syscalls.landlock_abi() > 0, "Landlock")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def root(workspace: Workspace) -> Path:
    workspace.file("zoo/zebra.py", ZEBRA)
    return workspace.root


@contextmanager
def swapped(root: Path, outside: Path) -> Generator[list[int]]:
    """Put links in the place of a file and of a folder, and these back, again and again."""
    turns, over = [0], threading.Event()
    (root / "other").mkdir()
    (root / "other/lion.py").write_text("def roar_loudly(): ...\n")

    def swap() -> None:
        while not over.is_set():
            (root / "link").symlink_to(outside / "secret.py")
            os.replace(root / "link", root / "zoo/raced.py")
            os.rename(root / "other", root / ".aside")
            (root / "other").symlink_to(outside)
            (root / "link").symlink_to("../.env")  # inside, but nothing that is indexed
            os.replace(root / "link", root / "zoo/raced.py")
            os.unlink(root / "other")
            os.rename(root / ".aside", root / "other")
            (root / "fresh").write_text(ZEBRA)
            os.replace(root / "fresh", root / "zoo/raced.py")
            turns[0] += 1

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield turns
    finally:
        over.set()
        thread.join()


def test_links_that_race_the_builder_lead_it_nowhere(workspace: Workspace, data: Path, tmp_path: Path) -> None:
    workspace.file("zoo/zebra.py", ZEBRA)
    workspace.file(".env", SECRET)
    outside = tmp_path / "beyond"
    outside.mkdir()
    for name in ("secret.py", "lion.py"):
        (outside / name).write_text(SECRET)
    with library_on(workspace.root, data) as library:
        with swapped(workspace.root, outside) as turns:
            for _ in range(BUILDS):
                before = turns[0]
                library.refresh(full=True)
                assert eventually(lambda before=before: turns[0] > before)
        library.refresh()
        assert library.found("paint zebra")
        reader = IndexReader(str(library.build))
        counts = reader.counts(["zebra", "xylograph"], ["xylographerpassword"])
        reader.close()
    assert counts.holding["zebra"] > 0
    assert (counts.holding["xylograph"], counts.defining["xylographerpassword"]) == (0, 0)


@contextmanager
def held(library: Library) -> Generator[None]:
    """Nobody can write to an index meanwhile, so no comparison comes to an end."""
    with Home(str(library.home)).writing(never):
        yield


def test_a_large_index_answers_before_its_files_are_compared(
    root: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with library_on(root, data) as library:
        library.refresh()
    monkeypatch.setattr(tables, "_MANY_FILES", 0)
    with library_on(root, data) as library, held(library):
        answer = library.rag.search(CodeQuery("paint zebra"), library.caller()._replace(compare=PATIENCE))
        assert answer.freshness == "not compared with the files yet"
        assert answer.hits[0].path == b"zoo/zebra.py"


def test_only_the_first_search_waits_for_work_that_takes_long(
    root: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with library_on(root, data) as library:
        library.refresh()
        with held(library):
            (root / "emu.py").write_text("def run_like_an_emu(): ...\n")
            assert library.ask("paint zebra").freshness != "fresh"
            monkeypatch.setattr(Builder, "ping", None)  # whoever asks would have to wait for the answer
            assert library.ask("paint zebra").freshness != "fresh"
        monkeypatch.undo()
        assert eventually(lambda: library.ask("run like an emu").freshness == "fresh")
        assert library.found("run like an emu")[:1] == ["emu.py"]


def test_a_data_directory_that_was_moved_is_used_where_it_is_now(root: Path, data: Path, tmp_path: Path) -> None:
    with library_on(root, data) as library:
        library.refresh()
        build = library.build.name
    moved = tmp_path / "elsewhere"
    os.rename(data, moved)
    with library_on(root, moved) as library:
        news = library.refresh()
        assert (news.rebuilt, news.changed) == ("", 0)
        assert library.build.name == build
        assert library.found("paint zebra") == ["zoo/zebra.py"]
    assert not data.exists()
