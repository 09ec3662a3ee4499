"""Attacks by timing: a directory becomes a link that leads out, thousands of times, while the tools look.

Every test proves that it raced: the tools met the directory and the link, many times each.
"""

import errno
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from llmc_mcp.errors import LlmcError
from llmc_mcp.files.filesystem import Filesystem
from llmc_mcp.files.ripgrep import Query, Search, find_ripgrep
from llmc_mcp.kernel.launcher import Launcher
from llmc_mcp.rag.build.messages import WalkRules
from llmc_mcp.rag.build.walk import Walk
from llmc_mcp.rag.store.tables import IndexTables

from ..support.client import Client, Reply
from ..support.library import library_on
from ..support.workspace import SECRET, Workspace
from .swapper import Swapper

READS = 10_000
LISTS = 1_000
SEARCHES = 1_000
BUILDS = int(os.environ.get("LLMC_RACED_BUILDS", "2"))  # of each kind
PATIENT_ROUNDS = 20  # a busy machine may run one side alone for a while: so often the test tries again

INSIDE = "common word, inside\n"
OUTSIDE = f"common word, {SECRET}\n"
INSIDE_HASH = hashlib.sha256(INSIDE.encode()).digest()


class Rig:
    """`swap` is a directory in the root at one moment and, at the next, a link to a twin of it outside."""

    def __init__(self, workspace: Workspace, link_target: str, *, over_a_link: bool = False) -> None:
        self.workspace = workspace
        self.root = workspace.root
        workspace.file("real/deep/file.txt", INSIDE)
        twin = workspace.outside / "twin"
        (twin / "deep").mkdir(parents=True)
        (twin / "deep" / "file.txt").write_text(OUTSIDE)
        (twin / "deep" / SECRET).write_text(OUTSIDE)
        if over_a_link:
            (self.root / "swap").symlink_to(self.root / "real")
        else:
            (self.root / "real").rename(self.root / "swap")
        (self.root / "other").symlink_to(link_target.format(outside=workspace.outside))
        self._outside_before = self._outside_now()

    def swapping(self) -> Swapper:
        return Swapper(self.root / "swap", self.root / "other")

    def assert_outside_untouched(self) -> None:
        assert self._outside_now() == self._outside_before

    def _outside_now(self) -> dict[str, tuple[bytes | None, int]]:
        found: dict[str, tuple[bytes | None, int]] = {}
        for path in self.workspace.outside.rglob("*"):
            found[str(path)] = (path.read_bytes() if path.is_file() else None, path.stat().st_mtime_ns)
        return found


@pytest.fixture(params=["relative", "absolute", "link-for-link"])
def rig(request: pytest.FixtureRequest, workspace: Workspace) -> Rig:
    """A directory swapped with a relative or absolute link out, or a good absolute link swapped with a bad one."""
    target = "../outside/twin" if request.param == "relative" else "{outside}/twin"
    return Rig(workspace, target, over_a_link=request.param == "link-for-link")


@pytest.fixture
def files(rig: Rig) -> Filesystem:
    return Filesystem([str(rig.root)])


def never_give_up() -> None:
    """The `check` of a call that nobody cancels."""


def outcome_of(action: Callable[[], str]) -> str:
    """What an action returns, or the code of its refusal."""
    try:
        return action()
    except LlmcError as exc:
        return exc.code


def race(rig: Rig, attempt: Callable[[], str], rounds: int, *, at_once: int = 1) -> Counter[str]:
    """What `attempt` gave, by how often; goes on past `rounds` until more than one outcome was met."""
    seen: Counter[str] = Counter()
    with rig.swapping(), ThreadPoolExecutor(at_once) as pool:
        for _ in range(PATIENT_ROUNDS):
            seen.update(pool.map(outcome_of, [attempt] * rounds))
            if len(seen) > 1:
                break
    rig.assert_outside_untouched()
    return seen


# --- reading ---------------------------------------------------------------------------------------


def test_a10_ten_thousand_raced_reads_return_no_outside_byte(rig: Rig, files: Filesystem) -> None:
    def read() -> str:
        fd, _ = files.open_file(files.locate("swap/deep/file.txt"))
        try:
            return os.pread(fd, 1000, 0).decode()
        finally:
            os.close(fd)

    seen = race(rig, read, READS)
    assert set(seen) == {INSIDE, "INVALID_PATH"}, seen
    assert seen.total() >= READS


def test_a10_ten_thousand_raced_stats_tell_nothing_of_the_outside(rig: Rig, files: Filesystem) -> None:
    inside = (rig.root / "swap" / "deep" / "file.txt").stat().st_ino

    def look() -> str:
        info, _ = files.stat(files.locate("swap/deep/file.txt"))
        return "inside" if info.st_ino == inside else "outside"

    seen = race(rig, look, READS)
    assert set(seen) == {"inside", "INVALID_PATH"}, seen


def test_a10_ten_thousand_raced_reads_of_a_real_server_return_no_outside_byte(workspace: Workspace) -> None:
    rig = Rig(workspace, "../outside/twin")
    in_flight = 500

    def read_many(client: Client) -> Iterator[str]:
        calls = [client.start_call("read_file", {"path": "swap/deep/file.txt"}) for _ in range(in_flight)]
        for call in calls:
            reply = Reply(client.wait(call)["result"])
            yield reply.code or reply.body

    seen: Counter[str] = Counter()
    with Client("--root", str(workspace.root)) as client, rig.swapping():
        while seen.total() < READS or (len(seen) < 2 and seen.total() < READS * PATIENT_ROUNDS):
            seen.update(read_many(client))
        assert SECRET.encode() not in b"".join(client.raw_lines)
    assert set(seen) == {INSIDE, "INVALID_PATH"}, seen


# --- listing ---------------------------------------------------------------------------------------


def test_a11_raced_listings_show_no_outside_name(rig: Rig, files: Filesystem) -> None:
    def list_it() -> str:
        entries = files.walk(files.locate("swap"), depth=3, include_hidden=True)
        return " ".join(entry.path.decode() for entry in entries)

    seen = race(rig, list_it, LISTS)
    assert set(seen) == {"deep deep/file.txt", "INVALID_PATH"}, seen
    assert seen.total() >= LISTS


def test_a11_raced_listings_from_above_show_no_outside_name(workspace: Workspace) -> None:
    rig = Rig(workspace, "../outside/twin")
    files = Filesystem([str(rig.root)])

    def list_it() -> str:
        entries = files.walk(files.locate("."), depth=3, include_hidden=True)
        return " ".join(entry.path.decode() for entry in entries if entry.depth > 1)

    seen = race(rig, list_it, LISTS)
    assert not any(SECRET in names for names in seen), seen
    assert len(seen) > 1, seen


# --- searching -------------------------------------------------------------------------------------


def test_a11_a_thousand_raced_searches_find_no_outside_byte(workspace: Workspace) -> None:
    rig = Rig(workspace, "../outside/twin")
    files, launcher = Filesystem([str(rig.root)]), Launcher()
    search = Search(files, launcher, count_cap=10_000)
    places = [files.locate(path) for path in (".", "swap", "swap/deep/file.txt")]
    turns = iter(range(SEARCHES * PATIENT_ROUNDS))

    def find() -> str:
        place = places[next(turns) % len(places)]
        found = search.content(place, Query("common", include_ignored=True), 100, never_give_up)
        return f"{place.label}: " + "".join(hit.snippet + "\n" for hit in found.hits)

    seen = race(rig, find, SEARCHES, at_once=2)
    launcher.close()
    assert not any(SECRET in outcome for outcome in seen), seen
    assert seen.total() >= SEARCHES
    met = set(seen)
    assert {f".: {INSIDE}", f"swap: {INSIDE}", f"swap/deep/file.txt: {INSIDE}", "INVALID_PATH"} <= met, seen
    assert met & {".: ", "swap: ", "swap/deep/file.txt: "}, "no search was swapped under way"


# --- the builder of the code index -----------------------------------------------------------------


def test_a11_ten_thousand_raced_reads_of_the_index_builder_return_no_outside_byte(
    workspace: Workspace, tmp_path: Path
) -> None:
    rig = Rig(workspace, "../outside/twin")
    root = os.open(rig.root, os.O_RDONLY | os.O_DIRECTORY)
    walk = Walk(root, WalkRules(), os.fsdecode(find_ripgrep()), str(tmp_path))

    def read() -> str:
        try:
            return walk.read(b"swap/deep/file.txt")[0].decode()
        except OSError as exc:
            return errno.errorcode[exc.errno or 0]

    try:
        seen = race(rig, read, READS)
    finally:
        os.close(root)
    assert set(seen) <= {INSIDE, "ELOOP", "EXDEV", "ENOENT", "EAGAIN"}, seen
    assert len(seen) > 1


def test_a11_an_index_built_while_links_are_swapped_holds_nothing_from_outside(
    workspace: Workspace, tmp_path: Path
) -> None:
    rig = Rig(workspace, "../outside/twin")
    for number in range(40):
        workspace.file(f"swap/deep/more_{number}.txt", INSIDE)
        (workspace.outside / f"twin/deep/more_{number}.txt").write_text(OUTSIDE)
    hashes: set[bytes] = set()
    paths: set[bytes] = set()
    with library_on(rig.root, tmp_path / "data") as library, rig.swapping():
        for number in range(PATIENT_ROUNDS):
            if number >= 2 * BUILDS and INSIDE_HASH in hashes:
                break
            library.refresh(full=number % 2 == 0)
            tables = IndexTables(str(library.build))
            for path, sha256 in tables.rows("SELECT path, sha256 FROM files"):
                paths.add(path)
                hashes.add(sha256)
            tables.close()
            assert all(SECRET not in hit.text for hit in library.ask("common word", scope="both").hits)
    assert hashlib.sha256(OUTSIDE.encode()).digest() not in hashes
    assert os.fsencode(f"swap/deep/{SECRET}") not in paths
    assert INSIDE_HASH in hashes, "no build met the directory"
