"""Servers with data directories of their own, on one PostgreSQL: what one has parsed, the next does not parse again."""

import hashlib
import json
import os
import shutil
import sqlite3
import zlib
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from llmc_mcp.config.schema import Config
from llmc_mcp.kernel import syscalls
from llmc_mcp.rag.build.share import share_of
from llmc_mcp.rag.store.layout import home_of
from llmc_mcp.rag.store.tables import IndexTables

from ..support.library import Library, library_on, never
from ..support.postgres import Cluster
from ..support.replicas import rows
from ..support.talk import eventually
from ..support.workspace import require

ANIMALS = ("zebra", "lion", "otter", "heron", "badger", "weasel", "falcon", "marmot")


@pytest.fixture(autouse=True)
def landlock() -> None:
    require(syscalls.landlock_abi() > 0, "Landlock")


@pytest.fixture
def url(postgres: Cluster) -> str:
    return postgres.fresh()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    for name in ANIMALS:
        path = folder / f"zoo/{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"def feed_the_{name}(food):\n    return give({name!r}, food)\n" * 3)
    (folder / "zoo/photo.dat").write_bytes(b"\0\1")
    return folder


@contextmanager
def server(root: Path, url: str, data: Path, share_max_mb: int = 1, ttl: float = 0.9) -> Generator[Library]:
    """A server; it looks three times in the life of a lease whether there is something to share."""
    config = Config()
    config.store.url = url
    config.store.workspaces = {str(root): "zoo"}
    config.limits.lease_ttl_sec = ttl
    config.rag.share_max_mb = share_max_mb
    with library_on(root, data, config) as library:
        yield library


def stored(url: str) -> set[str]:
    """The files of indexes that are in the database."""
    return {name for (name,) in rows(url, "SELECT DISTINCT name FROM blobs WHERE name LIKE 'shared-index/%'")}


def named(url: str) -> list[set[str]]:
    """The files that each shared index consists of, as they are stored."""
    found = rows(url, "SELECT folder, files FROM shared_indexes")
    return [{f"shared-index/{folder}/{one[2]}.z" for one in json.loads(files)} for folder, files in found]


def execute(url: str, statement: str, *parameters: object) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode(), parameters or None)


def generations(library: Library) -> dict[str, int]:
    """When each file was parsed, in commits of whichever server did it."""
    tables = IndexTables(str(library.build))
    try:
        return {path.decode(): parsed for path, parsed in tables.rows("SELECT path, generation FROM files")}
    finally:
        tables.close()


def under_way(data: Path) -> list[Path]:
    """What a server keeps on disk only while it shares an index."""
    return [path for path in (data / "shared-index").iterdir() if path.is_dir()]


def found(library: Library, text: str) -> list[tuple[bytes, str, float]]:
    return [(hit.path, hit.text, hit.score) for hit in library.ask(text).hits]


@pytest.fixture
def shared(root: Path, url: str, tmp_path: Path) -> dict[str, int]:
    """When the first server, which shares its index, parsed each file: no server that builds one does the same."""
    with server(root, url, tmp_path / "one", share_max_mb=0) as first:
        first.refresh()
        (root / "zoo/zebra.py").write_text("def feed_the_zebra(hay):\n    return give('zebra', hay)\n")
        first.refresh()
        made = generations(first)
        assert set(made.values()) == {1, 2}
        assert named(url) == []
    with server(root, url, tmp_path / "one") as first:
        first.refresh()
        assert eventually(lambda: len(named(url)) == 1)
    assert named(url) == [stored(url)]
    assert under_way(tmp_path / "one") == []
    return made


def test_the_next_server_parses_only_what_differs_and_finds_the_same(
    shared: dict[str, int], root: Path, url: str, tmp_path: Path
) -> None:
    elsewhere = Path(shutil.copytree(root, tmp_path / "mounted/elsewhere", copy_function=shutil.copyfile))
    (elsewhere / "zoo/lion.py").write_text("def brush_the_mane():\n    return 1\n")
    (elsewhere / "zoo/otter.py").unlink()
    before = named(url)
    with server(root, url, tmp_path / "one") as first, server(root, url, tmp_path / "two") as second:
        assert found(second, "feed the zebra") == found(first, "feed the zebra")
        assert generations(second) == shared
        assert (second.stats().totals, second.stats().notes) == (first.stats().totals, [])
        assert not list(second.build.glob("received-*"))
        assert under_way(tmp_path / "two") == []
        (root / "zoo/heron.py").write_text("def wade_through_water():\n    return 1\n")
        second.refresh()  # it is an index as any other
        assert second.found("wade through water")[0] == "zoo/heron.py"
    with server(elsewhere, url, tmp_path / "three") as third:
        assert third.found("brush the mane")[0] == "zoo/lion.py"
        parsed = dict.fromkeys(("zoo/lion.py",), 3)
        assert generations(third) == {path: at for path, at in (shared | parsed).items() if path != "zoo/otter.py"}
        assert "zoo/otter.py" not in third.found("feed the otter")
    assert named(url) == before  # who began with it has nothing to add


def test_what_is_not_as_its_row_says_is_left_alone_and_the_index_built(
    shared: dict[str, int], root: Path, url: str, tmp_path: Path
) -> None:
    ((good,),) = rows(url, "SELECT files FROM shared_indexes")
    some = "SELECT {}(name) FROM blobs WHERE name LIKE 'shared-index/%'"
    flip = f"UPDATE blobs SET data=set_byte(data, 9, get_byte(data, 9) # 255) WHERE name IN ({some.format('max')})"
    breakages = {
        "more than mcp.rag.share_max_mb": f"UPDATE shared_indexes SET files=replace('{good}', '\",', '\",9999999')",
        "no description": "UPDATE shared_indexes SET files=replace(files, 'text/meta.json', '../../../meta.json')",
        "another content": flip,
        "not stored": f"DELETE FROM blobs WHERE name IN ({some.format('min')})",
        "Expected `str`": "UPDATE shared_indexes SET files='[[1'",
    }
    for number, (why, breakage) in enumerate(breakages.items()):
        execute(url, f"UPDATE shared_indexes SET files='{good}'")
        execute(url, breakage)
        with server(root, url, tmp_path / f"next{number}", ttl=60) as second:
            assert second.found("feed the zebra")[0] == "zoo/zebra.py"
            assert set(generations(second).values()) == {1}
            (note,) = second.stats().notes
            assert why in note
    with server(root, url, tmp_path / "next0") as second:  # who had to build an index shares it
        second.refresh()
        assert eventually(lambda: named_or_broken(url) == [stored(url)])
        assert eventually(lambda: second.stats().notes == [])


def named_or_broken(url: str) -> list[set[str]]:
    try:
        return named(url)
    except ValueError:
        return []


def forge(url: str, change: Callable[[bytes], bytes]) -> None:
    """Have the copy hold another index.db, and its row agree with that."""
    ((folder, files),) = rows(url, "SELECT folder, files FROM shared_indexes")
    described = json.loads(files)
    for one in (one for one in described if one[0] == "index.db"):
        parts = f"SELECT data FROM blobs WHERE name='shared-index/{folder}/{one[2]}.z' ORDER BY part"
        plain = change(zlib.decompress(b"".join(data for (data,) in rows(url, parts))))
        packed = zlib.compress(plain)
        one[1:] = [len(plain), hashlib.sha256(packed).hexdigest(), len(packed)]
        execute(url, "INSERT INTO blobs VALUES (%s, 0, %s)", f"shared-index/{folder}/{one[2]}.z", packed)
    execute(url, "UPDATE shared_indexes SET files=%s", json.dumps(described))


def test_a_copy_that_lies_within_its_hashes_is_compared_with_the_files_by_the_confined_process(
    shared: dict[str, int], root: Path, url: str, tmp_path: Path
) -> None:
    lion = root / "zoo/lion.py"
    lion.write_text("def brush_the_mane():\n    return 1\n")

    def as_if_seen(plain: bytes) -> bytes:
        with closing(sqlite3.connect(":memory:")) as database:
            database.deserialize(plain[:18] + b"\1\1" + plain[20:])  # WAL mode needs a file
            seen = lion.stat()
            claim = "UPDATE files SET size=?, mtime_ns=? WHERE path=?"
            database.execute(claim, (seen.st_size, seen.st_mtime_ns, b"zoo/lion.py"))
            database.execute(
                "INSERT INTO files SELECT 99, x'2e2e2f6f7574', language, size, mtime_ns, sha256, generation,"
                " state, broken_line, chunk_count FROM files WHERE id=1"
            )
            database.commit()
            return database.serialize()

    forge(url, as_if_seen)
    with server(root, url, tmp_path / "two", ttl=60) as second:
        assert second.found("brush the mane")[0] == "zoo/lion.py"
        assert generations(second) == shared | {"zoo/lion.py": 3}  # and nothing of ../out
    forge(url, lambda plain: plain[:100] + os.urandom(len(plain) - 100))
    with server(root, url, tmp_path / "three", ttl=60) as third:
        assert "damaged" in third.refresh().rebuilt
        assert third.found("feed the zebra")[0] == "zoo/zebra.py"
        assert set(generations(third).values()) == {1}
        assert third.stats().notes == []


def test_a_copy_that_a_process_ended_over_is_not_tried_again(
    shared: dict[str, int], root: Path, url: str, tmp_path: Path
) -> None:
    with server(root, url, tmp_path / "two", ttl=60) as second:
        (at,) = second.app.files.roots
        home, kind = home_of(second.app.data_dir, at.real), rows(url, "SELECT kind FROM shared_indexes")[0][0]
        home.prepare(at.shown)
        share = share_of(second.app.store, at, home, kind, 1 << 20)
        assert share is not None
        assert share.receive(never)
        assert home.current() is None  # nobody can search it yet
        assert home.seed() is not None
        second.refresh()
        assert set(generations(second).values()) == {1}


def test_a_later_build_takes_the_place_of_the_copy_and_of_its_files(
    shared: dict[str, int], root: Path, url: str, tmp_path: Path
) -> None:
    (old,) = named(url)
    with server(root, url, tmp_path / "one") as first:
        (root / "zoo/okapi.py").write_text("def feed_the_okapi(leaves): ...\n")
        first.refresh(full=True)
        assert eventually(lambda: named(url) != [old])
        assert named(url) == [stored(url)]
        assert eventually(lambda: under_way(tmp_path / "one") == [])
    with server(root, url, tmp_path / "two") as second:
        second.refresh()
        assert generations(second)["zoo/okapi.py"] == 1
    assert named(url) == [stored(url)]


def test_much_that_changed_is_stored_again_without_what_never_changes_and_unused_copies_go(
    shared: dict[str, int], root: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "SELECT files FROM shared_indexes WHERE workspace='zoo'"
    before = {one[0]: one[2] for one in json.loads(rows(url, query)[0][0])}
    execute(url, "INSERT INTO shared_indexes VALUES ('gone', 'k', 1, 0, '0123456789abcdef', '[]')")
    execute(url, "INSERT INTO blobs VALUES ('shared-index/0123456789abcdef/x.z', 0, 'x')")
    monkeypatch.setattr("llmc_mcp.rag.build.share._GROWN_BY", -(1 << 40))  # whatever it takes is much
    with server(root, url, tmp_path / "one") as first:
        (root / "zoo/okapi.py").write_text("def feed_the_okapi(leaves): ...\n")
        first.refresh()
        assert eventually(lambda: {one[2] for one in json.loads(rows(url, query)[0][0])} != set(before.values()))
        assert eventually(lambda: named(url) == [stored(url)])
    after = {one[0]: one[2] for one in json.loads(rows(url, query)[0][0])}
    assert after["base.db"] == before["base.db"]
    assert after["index.db"] != before["index.db"]


def test_nothing_is_shared_where_it_is_off_or_rules_differ_or_the_store_is_a_file(
    shared: dict[str, int], root: Path, url: str, tmp_path: Path
) -> None:
    before = named(url)
    with server(root, url, tmp_path / "off", share_max_mb=0) as off:
        off.refresh()
        assert set(generations(off).values()) == {1}
    with server(root, "sqlite", tmp_path / "sqlite") as alone:
        alone.refresh()
        assert set(generations(alone).values()) == {1}
        assert not (tmp_path / "sqlite/shared-index").exists()
    config = Config()
    config.store.url, config.rag.max_file_bytes = url, 1 << 10
    config.store.workspaces = {str(root): "zoo"}
    with library_on(root, tmp_path / "rules", config) as other:
        other.refresh()
        assert set(generations(other).values()) == {1}
    assert named(url) == before
