"""One suite for both ways to count calls, and what several servers count together."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from llmc_mcp.errors import RateLimited
from llmc_mcp.gate.rate_limit import CallCounts, CallLimits, Limiter, OwnCounts
from llmc_mcp.gate.shared_limits import SharedCounts
from llmc_mcp.session import Session
from llmc_mcp.store import limits as shared
from llmc_mcp.store.postgres import PostgresStore

from ..support.postgres import Cluster
from ..support.talk import eventually

if TYPE_CHECKING:
    from llmc_mcp.store.base import Store

Make = Callable[[CallLimits], Limiter]
SECOND = 1_000_000_000


def limited(name: str) -> Session:
    return Session(name, "s", limited=True)


@pytest.fixture
def stores(postgres: Cluster, tmp_path: Path) -> Iterator[list[PostgresStore]]:
    """Three servers' connections to one store."""
    url = postgres.fresh()
    opened = [PostgresStore(url, str(tmp_path)) for _ in range(3)]
    yield opened
    for store in opened:
        store.close()


@pytest.fixture(params=["own", "shared"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    made: list[CallCounts] = []

    def limiter(limits: CallLimits) -> Limiter:
        if request.param == "own":
            made.append(OwnCounts(limits))
        else:
            store = request.getfixturevalue("stores")[0]
            made.append(SharedCounts(lambda: store, limits))
        return Limiter(made[-1], limits)

    yield limiter
    for counts in made:
        counts.close()


# --- both --------------------------------------------------------------------------------------------------------


def test_principals_do_not_share_a_bucket_and_stdio_has_none(make: Make) -> None:
    limiter = make(CallLimits(rps=0.01, burst=2, concurrency=1, total=100))
    limiter.take(limited("alice"))
    limiter.take(limited("alice"))
    for _ in range(2):
        with pytest.raises(RateLimited) as refused:
            limiter.take(limited("alice"))
        assert 90 < refused.value.retry_after <= 100
    limiter.take(limited("bob"))
    for _ in range(100):
        with limiter.admitted(Session("uid:0", "s")):
            pass
    assert limiter.dropped == {"rate": 2, "concurrency": 0, "total": 0}


@pytest.mark.parametrize("name", ["", "'; DROP TABLE call_rates; --", "sub:" + "ü" * 200, "a\\b\t%s $1 ?1", "a" * 200])
def test_any_name_is_only_a_name(make: Make, name: str) -> None:
    limiter = make(CallLimits(rps=0.01, burst=1, concurrency=1, total=100))
    limiter.take(limited(f"x{name}"))
    with pytest.raises(RateLimited):
        limiter.take(limited(f"x{name}"))
    limiter.take(limited("another"))


def test_so_many_calls_of_a_principal_run_at_once_and_no_more(make: Make) -> None:
    limiter = make(CallLimits(rps=100, burst=100, concurrency=2, total=3))
    alice, bob = limited("alice"), limited("bob")
    with limiter.admitted(alice), limiter.admitted(alice):
        with pytest.raises(RateLimited, match="2 calls of this token"), limiter.admitted(alice):
            pass
        with limiter.admitted(bob):
            assert limiter.under_way() == 3
            with pytest.raises(RateLimited, match="3 calls are under way"), limiter.admitted(bob):
                pass
            with limiter.set_aside(alice), limiter.admitted(bob):
                assert limiter.under_way() == 3
    assert limiter.under_way() == 0
    with limiter.admitted(alice):
        pass


def test_a_call_that_is_given_up_counts_no_longer_and_only_once(make: Make) -> None:
    limiter = make(CallLimits(rps=100, burst=100, concurrency=1, total=3))
    hanging = object()
    with limiter.admitted(limited("alice"), hanging):
        limiter.give_up(hanging)
        with limiter.admitted(limited("alice")):
            assert limiter.under_way() == 1
    assert limiter.under_way() == 0


def test_a_call_that_asks_its_user_two_things_at_once_is_counted_as_before(make: Make) -> None:
    limiter, alice = make(CallLimits(rps=100, burst=100, concurrency=2, total=3)), limited("alice")
    with limiter.admitted(alice):
        with limiter.set_aside(alice), limiter.set_aside(alice), limiter.admitted(alice):
            pass
        assert limiter.under_way() == 1
    assert limiter.under_way() == 0


def test_other_limits_count_from_the_next_call_on(make: Make) -> None:
    limiter = make(CallLimits(rps=0.001, burst=1, concurrency=1, total=3))
    limiter.take(limited("alice"))
    with pytest.raises(RateLimited):
        limiter.take(limited("alice"))
    limiter.reconfigure(CallLimits(rps=1000, burst=1000, concurrency=2, total=3))
    while limiter.counts.take("alice")[0] > 0:  # a millisecond at most: no bucket is emptier than empty
        pass
    with limiter.admitted(limited("bob")), limiter.admitted(limited("bob")):
        pass


def test_many_threads_are_counted_to_the_call(make: Make) -> None:
    limiter = make(CallLimits(rps=0.001, burst=50, concurrency=8, total=100))
    admitted: list[int] = []

    def work() -> None:
        for number in range(20):
            try:
                limiter.take(limited("alice"))
                admitted.append(number)
            except RateLimited:
                pass

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(admitted) == 50
    assert limiter.dropped["rate"] == 50


# --- several servers ---------------------------------------------------------------------------------------------


def reference(decisions: list[tuple[int, bool]], rps: int, burst: int) -> list[bool]:
    """What one bucket admits at these times."""
    period = SECOND // rps
    full_at = 0
    expected: list[bool] = []
    for at, _ in decisions:
        debt = max(full_at - at, 0)
        expected.append(debt <= (burst - 1) * period)
        if expected[-1]:
            full_at = at + debt + period
    return expected


def test_three_servers_admit_what_one_bucket_admits(stores: list[PostgresStore]) -> None:
    rps, burst = 400, 7
    decisions: list[tuple[int, bool]] = []

    def work(store: PostgresStore) -> None:
        for _ in range(100):
            taken = shared.take(store, "alice", rps, burst)
            decisions.append((round(taken.at * 1e6) * 1000, taken.wait == 0))

    threads = [threading.Thread(target=work, args=(store,)) for store in stores for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    decisions.sort()
    assert len({at for at, _ in decisions}) == 600  # decided one after another, so that their order is known
    assert [admitted for _, admitted in decisions] == reference(decisions, rps, burst)


def test_a_client_that_spreads_over_servers_gains_nothing(stores: list[PostgresStore]) -> None:
    limits = CallLimits(rps=0.001, burst=10, concurrency=3, total=100)
    servers = [Limiter(SharedCounts(lambda store=store: store, limits), limits) for store in stores]
    for number in range(10):
        servers[number % 3].take(limited("alice"))
    for number in range(50):
        with pytest.raises(RateLimited) as refused:
            servers[number % 3].take(limited("alice"))
        assert 900 < refused.value.retry_after <= 1000
    unhurried = CallLimits(rps=1e6, burst=1000, concurrency=3, total=100)
    for server in servers:
        server.reconfigure(unhurried)
    one, two, three = servers
    for _ in range(5):  # one after another: what a server keeps for itself is in nobody's way
        for server in servers:
            with server.admitted(limited("bob")):
                pass
    with one.admitted(limited("bob")), two.admitted(limited("bob")), three.admitted(limited("bob")):
        for server in servers:
            with pytest.raises(RateLimited, match="3 calls of this token"), server.admitted(limited("bob")):
                pass
        with two.admitted(limited("carol")):
            pass
    for server in servers:
        server.counts.close()
    assert stores[0].query("SELECT * FROM call_slots") == []


class SlowThread:
    """A store that answers the thread of the limits when `go_on` is set, or late."""

    def __init__(self, store: PostgresStore) -> None:
        self.store, self.asked, self.go_on = store, threading.Event(), threading.Event()

    def execute_alone(self, statement: str, values: tuple[object, ...] = (), wait_s: float = 0.5) -> Any:
        if threading.current_thread().name == "limits":
            self.asked.set()
            self.go_on.wait(0.3)
        else:
            self.go_on.set()
        return self.store.execute_alone(statement, values, wait_s=wait_s)


def test_slots_that_a_server_asks_for_while_it_closes_are_returned_too(stores: list[PostgresStore]) -> None:
    slow, threads = SlowThread(stores[0]), threading.enumerate()
    counts = SharedCounts(lambda: cast("Store", slow), CallLimits(rps=1e6, burst=1000, concurrency=3, total=100))
    assert counts.enter("bob") == ""
    counts.reenter("bob")  # more calls than it has slots for: the thread asks
    slow.asked.wait()
    slow.go_on.clear()
    counts.leave("bob")
    counts.leave("bob")
    counts.close()
    assert eventually(lambda: not [one for one in threading.enumerate() if one.name == "limits" and one not in threads])
    assert stores[1].query("SELECT * FROM call_slots") == []


def test_calls_one_after_another_pass_wherever_they_arrive(stores: list[PostgresStore]) -> None:
    limits = CallLimits(rps=1e6, burst=1000, concurrency=1, total=1)
    servers = [Limiter(SharedCounts(lambda store=store: store, limits), limits) for store in stores]
    for number in range(12):
        with servers[number % 3].admitted(limited("alice")):
            pass


def test_slots_of_a_server_that_died_expire(stores: list[PostgresStore]) -> None:
    assert shared.take_slots(stores[0], "alice", "dead", 0, 5, 10, 0.0) == (5, 5)
    assert shared.take_slots(stores[0], "alice", "other", 0, 8, 10, 60.0) == (5, 5)
    assert shared.take_slots(stores[1], "alice", "third", 0, 8, 10, 60.0) == (2, 3)
    assert shared.take_slots(stores[1], "alice", "third", 2, 0, 1, 60.0) == (2, 0)  # those that run stay
    shared.forget(stores[1])
    assert stores[2].query("SELECT server, held FROM call_slots ORDER BY 1") == [("other", 5), ("third", 2)]


def test_a_clock_that_is_set_back_locks_nobody_out(stores: list[PostgresStore]) -> None:
    shared.take(stores[0], "alice", 10, 5)
    stores[0].execute_alone("UPDATE call_rates SET full_at = full_at + 3600 * 1000000000::bigint")
    taken = shared.take(stores[0], "alice", 10, 5)
    assert 0 < taken.wait <= 0.1


def test_a_principal_that_was_told_to_wait_is_not_asked_about_again(stores: list[PostgresStore]) -> None:
    limits = CallLimits(rps=0.001, burst=1, concurrency=1, total=1)
    counts = SharedCounts(lambda: stores[0], limits)
    decided = [counts.take("alice")[0] > 0 for _ in range(50)]
    assert decided == [False] + [True] * 49
    ((writes,),) = stores[1].query("SELECT at FROM call_rates")
    counts.take("alice")
    assert stores[1].query("SELECT at FROM call_rates") == [(writes,)]


def test_without_the_database_a_server_counts_alone_and_with_it_again_all_together(
    postgres: Cluster, stores: list[PostgresStore]
) -> None:
    limits = CallLimits(rps=0.001, burst=3, concurrency=2, total=9)
    notices: list[str] = []
    counts = SharedCounts(lambda: stores[0], limits, notices.append)
    limiter = Limiter(counts, limits)
    limiter.take(limited("alice"))
    with limiter.admitted(limited("bob")):
        postgres.stop()
        try:
            limiter.take(limited("alice"))
            assert counts.alone
            limiter.take(limited("alice"))  # the third: what was admitted before the database left counts
            with pytest.raises(RateLimited):
                limiter.take(limited("alice"))
            with limiter.admitted(limited("bob")), pytest.raises(RateLimited), limiter.admitted(limited("bob")):
                pass
        finally:
            postgres.start()
        assert eventually(lambda: not counts.alone)
        with limiter.admitted(limited("carol")):
            assert eventually(
                lambda: set(stores[1].query("SELECT scope FROM call_slots")) == {("bob",), ("",), ("carol",)}
            )
    assert [notice.partition(":")[0] for notice in notices] == ["the store is away", "the store is back"]
    counts.close()
