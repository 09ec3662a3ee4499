"""git's index and objects, read as git itself reads them."""

import os
import random
from pathlib import Path

import pytest

from llmc_mcp.tracking import git_index
from llmc_mcp.tracking.git_objects import GitObjects, blob_name

from ..support.commands import git


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Some commits of files that resemble each other, so that packs hold deltas."""
    git(tmp_path, "init", "-q")
    chance, lines = random.Random(3), [f"line {number}\n" for number in range(3_000)]
    for commit in range(6):
        for name in ("a.txt", "deep/b.txt", "with a space", "ünïcode"):
            lines[chance.randrange(len(lines))] = f"{commit} {name}\n"
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text("".join(lines))
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-qm", str(commit))
    return tmp_path


@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_an_index_has_the_entries_that_git_lists(repository: Path, version: str) -> None:
    git(repository, "update-index", f"--index-version={version}")
    if version == "3":
        (repository / "later").write_text("")
        git(repository, "add", "-N", "later")  # needs the flags of version 3
    listed = git(repository, "ls-files", "-s", "-z").split("\0")[:-1]
    entries = git_index.parse((repository / ".git" / "index").read_bytes())
    found = [f"{one.mode:o} {one.oid.hex()} {one.stage}\t{os.fsdecode(path)}" for path, one in entries.items()]
    assert found == listed


def test_a_damaged_index_has_no_entries(repository: Path) -> None:
    data = (repository / ".git" / "index").read_bytes()
    assert git_index.parse(data[:100]) == {}
    assert git_index.parse(b"DIRC" + data[4:5]) == {}
    assert git_index.parse(b"") == {}


def test_the_times_in_an_index_do_not_change_its_meaning(repository: Path) -> None:
    index = repository / ".git" / "index"
    before = index.read_bytes()
    os.utime(repository / "a.txt", (1, 1))
    git(repository, "update-index", "--refresh")
    assert index.read_bytes() != before
    assert git_index.meaning_of(index.read_bytes()) == git_index.meaning_of(before)
    (repository / "a.txt").write_text("staged")
    git(repository, "add", "a.txt")
    assert git_index.meaning_of(index.read_bytes()) != git_index.meaning_of(before)


@pytest.mark.parametrize("packed", [False, True], ids=["loose", "packed"])
def test_objects_have_the_content_that_git_shows(repository: Path, packed: bool) -> None:
    if packed:
        git(repository, "gc", "-q")
    names = git(repository, "cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectname)").splitlines()
    root = os.open(repository, os.O_RDONLY | os.O_DIRECTORY)
    objects = GitObjects(root, ".git/objects")
    blobs = [name for kind, name in (line.split() for line in names) if kind == "blob"]
    assert len(blobs) == 24
    for name in blobs:
        data = git(repository, "cat-file", "blob", name).encode()
        assert objects.read(bytes.fromhex(name), b"blob", len(data)) == data
        assert objects.size(bytes.fromhex(name)) == len(data)
        assert objects.read(bytes.fromhex(name), b"blob", len(data) - 1) is None
        assert objects.read(bytes.fromhex(name), b"tree", len(data)) is None
    objects.close()
    os.close(root)


def test_an_object_is_found_after_git_packed_it_and_in_a_pack_that_is_gone(repository: Path) -> None:
    root = os.open(repository, os.O_RDONLY | os.O_DIRECTORY)
    objects = GitObjects(root, ".git/objects")
    data = (repository / "a.txt").read_bytes()
    git(repository, "gc", "-q")
    assert objects.read(blob_name(data), b"blob", len(data)) == data
    for pack in (repository / ".git" / "objects" / "pack").iterdir():
        pack.unlink()
    assert objects.read(blob_name(data), b"blob", len(data)) == data
    objects.close()
    os.close(root)


def test_an_object_whose_content_has_another_name_is_refused(repository: Path) -> None:
    root = os.open(repository, os.O_RDONLY | os.O_DIRECTORY)
    wanted, other = blob_name((repository / "a.txt").read_bytes()), blob_name((repository / "deep/b.txt").read_bytes())
    folder = repository / ".git" / "objects"
    loose = folder / wanted.hex()[:2] / wanted.hex()[2:]
    loose.unlink()
    loose.write_bytes((folder / other.hex()[:2] / other.hex()[2:]).read_bytes())
    objects = GitObjects(root, ".git/objects")
    assert objects.read(wanted, b"blob", 1 << 20) is None
    os.close(root)
