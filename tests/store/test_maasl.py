"""Leases: who may change what, among threads, processes and the dead."""

import hashlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmc_mcp.app import App
from llmc_mcp.changes import steps
from llmc_mcp.config.schema import Config
from llmc_mcp.errors import ResourceBusy
from llmc_mcp.session import Session
from llmc_mcp.store import leases as maasl
from llmc_mcp.store.base import Store
from llmc_mcp.store.leases import CRIT_CODE, CRIT_DB, Lease, LeaseKey, Leases
from llmc_mcp.store.opening import open_store

from ..support.changes import never
from ..support.client import Client
from ..support.workspace import Workspace

WHO = Session("uid:0", "session-1", agent_id="alice")
OTHER = Session("uid:0", "session-2", agent_id="bob")


@pytest.fixture
def store(tmp_path: Path, store_url: str) -> Iterator[Store]:
    it = open_store(store_url, str(tmp_path / "data"))
    yield it
    it.close()


@pytest.fixture
def leases(store: Store) -> Leases:
    return Leases(store, 30)


def take(
    store: Store, leases: Leases, *keys: LeaseKey | str, who: Session = WHO, purpose: str = ""
) -> list[int] | Lease:
    wanted = [LeaseKey(key) if isinstance(key, str) else key for key in keys]
    with store.transaction() as connection:
        return leases.take(connection, CRIT_CODE, wanted, who, purpose)


def tokens(taken: list[int] | Lease) -> list[int]:
    assert isinstance(taken, list), taken
    return taken


def in_the_way(taken: list[int] | Lease) -> Lease:
    assert isinstance(taken, Lease), taken
    return taken


def test_a_held_key_stands_in_the_way_and_tells_its_holder(store: Store, leases: Leases) -> None:
    tokens(take(store, leases, "code:/a"))
    lease = in_the_way(take(store, leases, "code:/a", who=OTHER))
    assert (lease.kind, lease.key, lease.agent_id, lease.session_id) == (CRIT_CODE, "code:/a", "alice", "session-1")
    assert not lease.over(time.time())


def test_leases_that_were_claimed_in_vain_do_not_hold_up_the_next_transaction(store: Store, leases: Leases) -> None:
    claimed: list[object] = []

    def claim_in_vain() -> None:
        with store.transaction() as connection:
            claimed.append(leases.claim(connection, CRIT_CODE, [LeaseKey("code:/a"), LeaseKey("code:/b")], WHO))
            raise ValueError("out of date")

    with pytest.raises(ValueError, match="out of date"):
        claim_in_vain()
    tokens(take(store, leases, "code:/a", who=OTHER))
    assert [lease.key for lease in leases.all()] == ["code:/a"]


def test_all_keys_are_taken_or_none(store: Store, leases: Leases) -> None:
    tokens(take(store, leases, "code:/b"))
    in_the_way(take(store, leases, "code:/a", "code:/b", "code:/c", who=OTHER))
    assert [lease.key for lease in leases.all()] == ["code:/b"]


@pytest.mark.parametrize(
    ("held", "wanted", "free"),
    [
        (LeaseKey("code:/a", tree=True), LeaseKey("code:/a/b/c"), False),
        (LeaseKey("code:/a"), LeaseKey("code:/a/b"), True),
        (LeaseKey("code:/a/b/c"), LeaseKey("code:/a", tree=True), False),
        (LeaseKey("code:/a/b"), LeaseKey("code:/a"), True),
        (LeaseKey("code:/ab"), LeaseKey("code:/a", tree=True), True),
        (LeaseKey("code:/a", tree=True), LeaseKey("code:/ab"), True),
    ],
)
def test_a_tree_covers_what_is_below_it(
    store: Store, leases: Leases, held: LeaseKey, wanted: LeaseKey, free: bool
) -> None:
    tokens(take(store, leases, held))
    assert isinstance(take(store, leases, wanted, who=OTHER), list) is free


def test_tokens_only_ever_grow(store: Store, leases: Leases) -> None:
    seen: list[int] = []
    for _ in range(5):
        seen += tokens(take(store, leases, "code:/a"))
        with store.transaction() as connection:
            leases.release(connection, seen[-1:])
    assert seen == sorted(set(seen))


def test_an_expired_lease_is_taken_over_and_its_holder_is_told(store: Store) -> None:
    short, leases = Leases(store, -1), Leases(store, 30)
    old = tokens(take(store, short, "code:/a"))
    new = tokens(take(store, leases, "code:/a", who=OTHER))
    with store.transaction() as connection:
        assert not leases.holds(connection, old)
        assert leases.holds(connection, new)
        leases.release(connection, old)  # no longer his to give back
        assert leases.holds(connection, new)


def test_a_lease_whose_time_is_up_is_not_held_even_if_nobody_took_it(store: Store) -> None:
    short = Leases(store, -1)
    old = tokens(take(store, short, "code:/a"))
    with store.transaction() as connection:
        assert not short.holds(connection, old)


def test_the_lease_of_a_dead_process_is_over_at_once(store: Store, store_url: str, leases: Leases) -> None:
    code = (
        "import os, sys\nfrom llmc_mcp.store.leases import LeaseKey, Leases\nfrom llmc_mcp.session import Session\n"
        "from llmc_mcp.store.opening import open_store\nstore = open_store(*sys.argv[1:])\n"
        "with store.transaction() as c:\n"
        "    Leases(store, 3600).take(c, 'CRIT_CODE', [LeaseKey('code:/a')], Session('p', 's'))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code, store_url, store.data_dir], check=False)
    assert [lease.over(time.time()) for lease in leases.all()] == [True]
    tokens(take(store, leases, "code:/a"))


def test_only_this_machine_can_say_that_a_process_is_dead() -> None:
    machine, pid, started = maasl.own_process().rsplit("/", 2)
    assert maasl.alive(f"{machine}/{pid}/{started}")
    assert not maasl.alive(f"{machine}/{pid}/{int(started) + 1}")  # the pid of another, earlier process
    assert maasl.alive(f"another-boot/1/{pid}/{started}")


def test_what_was_meant_under_an_expired_lease_is_settled_before_its_key_is_free(store: Store) -> None:
    short, leases = Leases(store, -1), Leases(store, 30)
    tokens(take(store, short, "code:/a", purpose="U_x"))
    assert in_the_way(take(store, leases, "code:/a")).purpose == "U_x"


def test_held_waits_for_its_turn_and_gives_up_with_the_holder(store: Store, leases: Leases) -> None:
    with (
        leases.held(CRIT_DB, [LeaseKey("db:index")], WHO, wait_s=0, check=never),
        pytest.raises(ResourceBusy, match=r"db:index is held by agent alice, session session-1; waited \d+ ms"),
        leases.held(CRIT_DB, [LeaseKey("db:index")], OTHER, wait_s=0.05, check=never),
    ):
        pytest.fail("it was held twice")
    with leases.held(CRIT_DB, [LeaseKey("db:index")], OTHER, wait_s=0, check=never):
        pass
    assert leases.all() == []


def test_renewing_gives_more_time_but_never_brings_back_what_was_lost(store: Store) -> None:
    leases = Leases(store, 30)
    old = tokens(take(store, Leases(store, -1), "code:/a"))
    leases.renew(old)
    with store.transaction() as connection:
        assert leases.holds(connection, old)
        leases.release(connection, old)
    leases.renew(old)
    assert leases.all() == []


# --- in changes ------------------------------------------------------------------------------------


def app_on(workspace: Workspace, tmp_path: Path, *, wait: float = 0.05, ttl: float = 30) -> App:
    config = Config()
    config.limits.lease_wait_sec, config.limits.lease_ttl_sec = wait, ttl
    return App(config, [str(workspace.root)], str(tmp_path / "data"))


def test_a_file_that_another_agent_is_changing_is_busy(workspace: Workspace, tmp_path: Path) -> None:
    app = app_on(workspace, tmp_path)
    path = workspace.file("a.txt", "old")
    with app.changes.leases.held(CRIT_CODE, [LeaseKey(f"code:{path}")], OTHER, wait_s=0, check=never):
        with pytest.raises(ResourceBusy, match="bob"):
            app.mutations.write(WHO, "a.txt", "new", never)
        with pytest.raises(ResourceBusy):
            app.mutations.move(WHO, "a.txt", "b.txt", False, never)
        app.mutations.write(WHO, "other.txt", "x", never)
    assert path.read_text() == "old"
    app.mutations.write(WHO, "a.txt", "new", never)
    app.close()


def test_a_folder_is_not_taken_away_from_under_a_change(workspace: Workspace, tmp_path: Path) -> None:
    app = app_on(workspace, tmp_path)
    path = workspace.file("dir/deep/a.txt", "old")
    with app.changes.leases.held(CRIT_CODE, [LeaseKey(f"code:{path}")], OTHER, wait_s=0, check=never):
        with pytest.raises(ResourceBusy):
            app.mutations.delete(WHO, "dir", never, recursive=True)
        with pytest.raises(ResourceBusy):
            app.mutations.move(WHO, "dir", "elsewhere", False, never)
    assert path.read_text() == "old"
    app.close()


def test_a_holder_who_slept_past_his_lease_changes_nothing(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, quick = app_on(workspace, tmp_path, ttl=0.001), app_on(workspace, tmp_path)
    path = workspace.file("a.txt", "old")
    real = steps.Put.prepare

    def overtaken(step: steps.Put, tick: Callable[[], None], /) -> None:
        real(step, tick)
        monkeypatch.setattr(steps.Put, "prepare", real)
        quick.mutations.write(OTHER, "a.txt", "by the quick one", never)

    monkeypatch.setattr(steps.Put, "prepare", overtaken)
    with pytest.raises(ResourceBusy, match="took over"):
        slow.mutations.write(WHO, "a.txt", "by the slow one", never)
    assert path.read_text() == "by the quick one"
    assert [entry.name for entry in workspace.root.iterdir()] == ["a.txt"]
    assert [change.session_id for change in quick.changes.journal.history(None, None, 10)] == ["session-2"]
    slow.close()
    quick.close()


def test_two_servers_with_hashes_lose_no_update(workspace: Workspace, tmp_path: Path) -> None:
    path = workspace.file("count.txt", "0\n")
    arguments, env = ("--root", str(workspace.root), "--mode", "classic"), {"LLMC_DATA_DIR": str(tmp_path / "data")}
    won = 0
    with Client(*arguments, env=env) as one, Client(*arguments, env=env) as two:
        while won < 60:
            text = path.read_text()
            expected = hashlib.sha256(text.encode()).hexdigest()
            new = f"{int(text) + 1}\n"
            calls = [
                (
                    it,
                    it.start_call("linux_fs_write", {"path": "count.txt", "content": new, "expected_sha256": expected}),
                )
                for it in (one, two)
            ]
            results = [it.wait(call)["result"] for it, call in calls]
            winners = [result for result in results if not result.get("isError")]
            losers = [result["content"][0]["text"] for result in results if result.get("isError")]
            assert len(winners) == 1
            assert all("SHA_MISMATCH" in loser for loser in losers)
            won += 1
            assert path.read_text() == f"{won}\n"


def test_two_servers_without_hashes_never_tear_a_file(workspace: Workspace, tmp_path: Path) -> None:
    path = workspace.file("a.txt", "1" * 5000)
    arguments, env = ("--root", str(workspace.root), "--mode", "classic"), {"LLMC_DATA_DIR": str(tmp_path / "data")}
    with Client(*arguments, env=env) as one, Client(*arguments, env=env) as two:
        calls = [
            (it, it.start_call("linux_fs_write", {"path": "a.txt", "content": digit * 5000}))
            for _ in range(15)
            for it, digit in ((one, "2"), (two, "3"))
        ]
        for it, call in calls:
            assert not it.wait(call)["result"].get("isError")
            assert path.read_text() in ("1" * 5000, "2" * 5000, "3" * 5000)
    assert [entry.name for entry in workspace.root.iterdir()] == ["a.txt"]
