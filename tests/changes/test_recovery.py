"""What becomes of changes that a power cut, a reboot, a container's end or a full store interrupts."""

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from llmc_mcp.app import App
from llmc_mcp.changes import steps
from llmc_mcp.changes.journal import Journal
from llmc_mcp.config.schema import Config
from llmc_mcp.errors import FeatureUnavailable, Stale
from llmc_mcp.session import Session

from ..support import crashes
from ..support.changes import litter, never
from ..support.workspace import Workspace

WHO = Session("uid:0", "recovery")
EARLIER_BOOT = "5d1f5c5e-0000-4000-8000-000000000000/4026531836/4711/12345"
OTHER_CONTAINER = "{boot}/1/4711/12345"


def app_on(workspace: Workspace, tmp_path: Path, config: Config | None = None) -> App:
    return App(config or Config(), [str(workspace.root)], str(tmp_path / "data"))


def files_in(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def half_done(workspace: Workspace, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A diff of four files whose process ended after it had published the first; the store, to rewrite history in."""
    for name, text in crashes.BEFORE.items():
        workspace.file(name, text)
    pid = os.fork()
    if pid == 0:
        published = iter(range(100))
        real = steps.Put.publish

        def die_at_the_second(self: steps.Put) -> None:
            if next(published):
                os._exit(9)
            real(self)

        steps.Put.publish = die_at_the_second
        app_on(workspace, tmp_path).patching.apply(WHO, crashes.DIFF, False, never)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    assert (workspace.root / "one.txt").read_text() == "eins\n" + "end\n"
    assert (workspace.root / "two.txt").read_text() == crashes.BEFORE["two.txt"]
    connection = sqlite3.connect(tmp_path / "data/llmc.db", isolation_level=None)
    yield connection
    connection.close()


def pretend(connection: sqlite3.Connection, process: str, *, expired: bool) -> None:
    """The change was made by another process, and its leases are over or not."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    for table in ("changes", "leases"):
        connection.execute(f"UPDATE {table} SET process=?", (process.format(boot=boot),))
    connection.execute("UPDATE leases SET expires_at=?", (0 if expired else 1e12,))


@pytest.mark.parametrize("process", [EARLIER_BOOT, OTHER_CONTAINER])
def test_after_a_reboot_or_restart_a_half_done_change_is_taken_back_before_the_first_read(
    workspace: Workspace, tmp_path: Path, half_done: sqlite3.Connection, process: str
) -> None:
    pretend(half_done, process, expired=True)
    app = app_on(workspace, tmp_path)
    app.reader  # noqa: B018 - whoever reads first settles first
    assert files_in(workspace.root) == crashes.BEFORE
    assert litter(workspace.root) == []
    assert app.changes.journal.pending() == []
    assert app.changes.leases.all() == []
    app.close()


def test_a_server_that_runs_already_settles_it_as_soon_as_its_leases_are_over(
    workspace: Workspace, tmp_path: Path, half_done: sqlite3.Connection
) -> None:
    pretend(half_done, EARLIER_BOOT, expired=False)
    app = app_on(workspace, tmp_path)
    app.mutations.write(WHO, "unrelated.txt", "x", never)
    assert len(app.changes.journal.pending()) == 1  # its process may be alive elsewhere
    pretend(half_done, EARLIER_BOOT, expired=True)
    app.mutations.write(WHO, "unrelated.txt", "y", never)
    assert files_in(workspace.root) == {**crashes.BEFORE, "unrelated.txt": "y"}
    assert app.changes.journal.pending() == []
    app.close()


def test_a_change_is_on_the_disk_as_done_before_it_is_reported(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = app_on(workspace, tmp_path)
    app.mutations.write(WHO, "earlier.txt", "x", never)
    store = sqlite3.connect(tmp_path / "data/llmc.db", check_same_thread=False)
    synced: list[tuple[str, str]] = []  # what, and the state of the change at that time

    def watched(real: Callable[[int], None], fd: int) -> None:
        state = store.execute("SELECT state FROM changes WHERE seq>1").fetchone()
        real(fd)
        synced.append((os.path.basename(os.readlink(f"/proc/self/fd/{fd}")), state[0] if state else "unknown"))

    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, partial(watched, getattr(os, name)))
    app.mutations.write(WHO, "a.txt", "x", never)
    log, folder = "llmc.db-wal", workspace.root.name
    assert synced[-3:] == [(log, "pending"), (folder, "pending"), (log, "done")]  # the intent, its rename, its end
    store.close()
    app.close()


def test_a_change_that_fails_to_be_journaled_costs_no_earlier_one_its_undo(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config()
    config.limits.journal_max_total_bytes = 300_000
    app = app_on(workspace, tmp_path, config)
    first = os.urandom(200_000).hex()
    path = workspace.file("a.txt", first)
    change = app.mutations.write(WHO, "a.txt", os.urandom(200_000).hex(), never).id
    real = Journal.intend

    def full_disk(journal: Journal, *arguments: Any, **named: Any) -> bool:
        real(journal, *arguments, **named)  # makes room for this one by dropping the first
        raise FeatureUnavailable("database or disk is full")

    monkeypatch.setattr(Journal, "intend", full_disk)
    with pytest.raises(FeatureUnavailable):
        app.mutations.write(WHO, "a.txt", "third", never)
    monkeypatch.setattr(Journal, "intend", real)
    app.undoing.undo(WHO, app.changes.journal.find(change, None), False, never)
    assert path.read_text() == first
    app.close()


def images(data: Path) -> Sequence[Path]:
    return list((data / "journal").iterdir())


def test_an_undo_whose_earlier_content_is_lost_is_stale_and_says_why(workspace: Workspace, tmp_path: Path) -> None:
    app = app_on(workspace, tmp_path)
    path = workspace.file("a.txt", os.urandom(200_000).hex())
    change = app.mutations.write(WHO, "a.txt", "new", never).id
    (image,) = images(tmp_path / "data")
    image.unlink()
    with pytest.raises(Stale, match="earlier content can't be read from the journal"):
        app.undoing.undo(WHO, app.changes.journal.find(change, None), False, never)
    assert path.read_text() == "new"
    app.close()
