"""The index of another worktree or clone begins with that of its sibling, and then is its own."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmc_mcp.config.schema import Config
from llmc_mcp.kernel import syscalls
from llmc_mcp.rag.build.seed import seed
from llmc_mcp.rag.store.layout import Home
from llmc_mcp.rag.store.tables import IndexTables

from ..support.library import Library, library_on
from ..support.workspace import require

ANIMALS = ("zebra", "lion", "otter", "heron", "badger", "weasel", "falcon", "marmot")


@pytest.fixture(autouse=True)
def landlock() -> None:
    require(syscalls.landlock_abi() > 0, "Landlock")


@pytest.fixture
def first(tmp_path: Path) -> Iterator[Library]:
    """A complete index of a few files."""
    root = tmp_path / "first"
    for name in ANIMALS:
        path = root / f"zoo/{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"def feed_the_{name}(food):\n    return give({name!r}, food)\n" * 3)
    (root / "zoo/photo.dat").write_bytes(b"\0\1")
    with library_on(root, tmp_path / "data") as library:
        library.refresh()
        yield library


def clone(first: Library, name: str = "second") -> Path:
    """A copy of the files, with times of its own, as a checkout has."""
    return Path(shutil.copytree(first.root, first.root.parent / name, copy_function=shutil.copyfile))


def generations(library: Library) -> dict[bytes, int]:
    """When each file was parsed."""
    tables = IndexTables(str(library.build))
    try:
        return dict(tables.rows("SELECT path, generation FROM files"))
    finally:
        tables.close()


def defined(library: Library, name: str) -> list[str]:
    """The files that define a name, once the index has been compared with them."""
    library.ask(name)
    tables = IndexTables(str(library.build))
    try:
        return sorted(tables.paths([file for file, _ in tables.defining(name)]).values())
    finally:
        tables.close()


def inodes(library: Library) -> set[int]:
    return {path.stat().st_ino for path in library.build.rglob("*") if path.is_file()}


def test_a_clone_is_not_parsed_again_and_shares_what_never_changes(first: Library, tmp_path: Path) -> None:
    with library_on(clone(first), tmp_path / "data") as second:
        assert second.found("feed the zebra")[0] == "zoo/zebra.py"
        assert set(generations(second).values()) == {1}
        assert inodes(second) & inodes(first)
        assert second.stats().totals == first.stats().totals
        assert (second.build / "base.db").stat().st_ino == (first.build / "base.db").stat().st_ino


def test_what_differs_is_parsed_and_what_is_gone_is_forgotten(first: Library, tmp_path: Path) -> None:
    root = clone(first)
    (root / "zoo/lion.py").write_text("def brush_the_mane():\n    return 1\n")
    (root / "zoo/otter.py").unlink()
    (root / "zoo/gnu.py").write_text("def groom_the_gnu():\n    return 1\n")
    with library_on(root, tmp_path / "data") as second:
        assert second.found("brush the mane")[0] == "zoo/lion.py"
        assert defined(second, "groom_the_gnu") == ["zoo/gnu.py"]
        assert defined(second, "feed_the_otter") == []
        assert defined(second, "feed_the_lion") == []
        assert sorted(path for path, parsed in generations(second).items() if parsed > 1) == [
            b"zoo/gnu.py",
            b"zoo/lion.py",
        ]
    assert set(defined(first, "feed_the_lion")) == {"zoo/lion.py"}
    assert defined(first, "brush_the_mane") == []


def test_a_file_of_the_same_size_and_time_is_compared_by_its_content(first: Library, tmp_path: Path) -> None:
    root = Path(shutil.copytree(first.root, first.root.parent / "second"))
    path = root / "zoo/heron.py"
    times = path.stat()
    path.write_text(path.read_text().replace("heron", "crane"))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with library_on(root, tmp_path / "data") as second:
        assert defined(second, "feed_the_crane") == ["zoo/heron.py"]


def test_nothing_of_the_sibling_can_be_searched_before_it_was_compared(first: Library, tmp_path: Path) -> None:
    home = Home(str(tmp_path / "data/index/other"))
    home.prepare("other")
    root = os.open(clone(first), os.O_RDONLY | os.O_DIRECTORY)
    tables = IndexTables(str(first.build))
    ((rules,),) = tables.rows("SELECT value FROM meta WHERE key='rules'")
    tables.close()
    try:
        assert seed(home, root, rules)
        assert (home.current(), home.seed() is None) == (None, False)
        assert not seed(Home(str(tmp_path / "data/index/none")), root, "other rules")
    finally:
        os.close(root)


def test_either_goes_its_own_way_from_then_on(first: Library, tmp_path: Path) -> None:
    with library_on(clone(first), tmp_path / "data") as second:
        second.refresh()
        (first.root / "zoo/zebra.py").write_text("def count_the_stripes(): ...\n")
        (second.root / "zoo/zebra.py").write_text("def polish_the_hooves(): ...\n")
        for library, word, other in (
            (first, "count_the_stripes", "polish_the_hooves"),
            (second, "polish_the_hooves", "count_the_stripes"),
        ):
            library.refresh()
            assert defined(library, word) == ["zoo/zebra.py"]
            assert defined(library, other) == []
            assert defined(library, "feed_the_zebra") == []
        first.refresh(full=True)
        assert second.found("feed_the_badger")[0] == "zoo/badger.py"


def test_a_file_that_becomes_what_it_was_is_not_parsed_again(first: Library) -> None:
    before = {name: (first.root / f"zoo/{name}.py").read_text() for name in ANIMALS[:3]}
    changed, dropped, _ = before
    (first.root / f"zoo/{changed}.py").write_text("def count_the_stripes(): ...\n")
    (first.root / f"zoo/{dropped}.py").unlink()
    first.refresh()
    assert defined(first, "feed_the_zebra") == defined(first, "feed_the_lion") == []
    assert parsed_later(first) == {f"zoo/{changed}.py"}
    for name, text in before.items():
        (first.root / f"zoo/{name}.py").write_text(text)
    first.refresh()
    assert parsed_later(first) == set()
    for name in before:
        assert set(defined(first, f"feed_the_{name}")) == {f"zoo/{name}.py"}
        assert first.found(f"feed_the_{name}")[0] == f"zoo/{name}.py"
    assert defined(first, "count_the_stripes") == []


def parsed_later(library: Library) -> set[str]:
    """The files whose content was derived after the first build."""
    tables = IndexTables(str(library.build))
    try:
        return {os.fsdecode(path) for (path,) in tables.rows("SELECT path FROM files JOIN main.contents ON file=id")}
    finally:
        tables.close()


def test_other_files_or_other_rules_are_no_sibling(first: Library, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "alone.py").write_text("def stand_alone(): ...\n")
    with library_on(elsewhere, tmp_path / "data") as other:
        assert other.found("stand alone") == ["alone.py"]
        assert not inodes(other) & inodes(first)
        assert defined(other, "feed_the_zebra") == []
    strict = Config()
    strict.rag.max_file_bytes = 1_000
    with library_on(clone(first), tmp_path / "data", strict) as second:
        assert second.found("feed the zebra")[0] == "zoo/zebra.py"
        assert not inodes(second) & inodes(first)
