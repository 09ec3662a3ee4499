"""What single calls cost PostgreSQL: two real replicas, real statements, counted by the database itself.

Statements, rows and write-ahead log are those of pg_stat_statements, triggers included; processor time is that of the
database's processes. So nothing here depends on how busy the machine is, but for the seconds of the last table.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2 as httpx
import psycopg

from tests.support.http_server import HttpServer
from tests.support.postgres import Cluster
from tests.support.replicas import replica

_TICKS = os.sysconf("SC_CLK_TCK")
_SETTLE_S = 3.0  # rows of usage are written after a moment
_BEGIN, _DURABLE = "BEGIN", "SET LOCAL synchronous_commit=on"
_COUNTING = re.compile(r"pg_stat_|pg_database_size|CREATE |search_path")
_WRITES = re.compile(r"\s*(?:INSERT INTO|UPDATE|DELETE FROM|COPY)\s+(\w+)")
TABLES = (
    "calls", "handles", "leases", "changes", "images", "change_images", "totals", "root_sets", "blobs", "replicas",
    "owners", "audit", "call_rates", "call_slots",
)  # fmt: skip


class CallCost(NamedTuple):
    """What one call of a kind costs on average."""

    kind: str
    statements: float
    transactions: float  # that write: each holds the lock of its project
    rows: float  # inserted, updated or deleted
    wal_bytes: float
    durable: float  # transactions that wait for the disk
    cpu_ms: float  # of the database
    stored_bytes: float  # by which its files grow
    hottest: str  # table, and its share of the rows written


class _Counts(NamedTuple):
    statements: int
    transactions: int
    wal: int
    durable: int
    cpu_s: float
    size: int
    rows: dict[str, int]


class CountedCluster(Cluster):
    """A database that counts what it does, and waits for its disk."""

    def start(self) -> None:
        options = (
            f"-k {self._sockets} -c listen_addresses= -c max_connections=200 -c fsync=on"
            " -c shared_preload_libraries=pg_stat_statements -c pg_stat_statements.max=10000"
            " -c pg_stat_statements.track=all"  # what triggers do, too
        )
        self._run("pg_ctl", "-D", str(self._data), "-w", "-l", str(self._sockets / "log"), "-o", options, "start")

    def prepare(self) -> str:
        """The address of a store whose statements are counted."""
        url = self.fresh()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements SCHEMA public")
        return url

    def processor_seconds(self) -> float:
        """What all of its processes have used."""
        top = int((self._data / "postmaster.pid").read_text().split()[0])
        return sum(_used(pid) for pid in (top, *_children(top)))


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _used(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12]) + int(fields[13]) + int(fields[14])) / _TICKS  # with ended children


class Fleet:
    """Two replicas on one database, and what they are asked."""

    def __init__(self, cluster: CountedCluster, url: str, one: HttpServer, two: HttpServer) -> None:
        self._cluster, self._url, self.one, self.two = cluster, url, one, two

    def cost(self, kind: str, calls: int, call: Callable[[int], object], idle: CallCost | None = None) -> CallCost:
        """The cost of a call, without what the replicas do by themselves meanwhile."""
        call(0)
        time.sleep(_SETTLE_S)
        before, began = self._counts(), time.monotonic()
        for number in range(1, calls + 1):
            call(number)
        time.sleep(_SETTLE_S)
        spent, after = time.monotonic() - began, self._counts()
        return _cost(kind, before, after, calls, spent, idle)

    def idle(self, seconds: float) -> CallCost:
        """What one replica costs in a second in which nobody calls."""
        before, began = self._counts(), time.monotonic()
        time.sleep(seconds)
        after = self._counts()
        return _cost("an idle replica, each second", before, after, 2 * (time.monotonic() - began), 0.0, None)

    def _counts(self) -> _Counts:
        with psycopg.connect(self._url, autocommit=True, application_name="counting") as connection:
            found = connection.execute("SELECT query, calls, rows, wal_bytes FROM public.pg_stat_statements").fetchall()
            size = connection.execute("SELECT pg_database_size(current_database())").fetchone()
        ours = [one for one in found if not _COUNTING.search(one[0])]
        rows: dict[str, int] = {}
        for query, _, written, _ in ours:
            if match := _WRITES.match(query):
                rows[match[1]] = rows.get(match[1], 0) + int(written)
        return _Counts(
            sum(int(one[1]) for one in ours),
            sum(int(one[1]) for one in ours if one[0].startswith(_BEGIN)),
            sum(int(one[3]) for one in ours),
            sum(int(one[1]) for one in ours if one[0] == _DURABLE),
            self._cluster.processor_seconds(),
            int(size[0]) if size is not None else 0,
            rows,
        )

    def durable_commits(self, seconds: float) -> float:
        """How often the disk lets one connection commit in a second."""
        done, until = 0, time.monotonic() + seconds
        with psycopg.connect(self._url, autocommit=True) as connection:
            while time.monotonic() < until:
                connection.execute("UPDATE totals SET bytes=bytes WHERE name='trash'")
                done += 1
        return done / seconds

    def rate(self, seconds: float, callers: int, call: Callable[[int, int], object]) -> float:
        """Calls a second of several callers; each gets its number, and how many calls it has made."""
        over, done = threading.Event(), [0] * callers

        def run(number: int) -> None:
            while not over.is_set():
                call(number, done[number])
                done[number] += 1

        threads = [threading.Thread(target=run, args=(number,)) for number in range(callers)]
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        over.set()
        for thread in threads:
            thread.join()
        return sum(done) / seconds


def _cost(kind: str, before: _Counts, after: _Counts, calls: float, spent: float, idle: CallCost | None) -> CallCost:
    rows = {name: after.rows.get(name, 0) - before.rows.get(name, 0) for name in TABLES}
    if idle is not None:
        rows["replicas"] = 0  # heartbeats
    hottest = max(rows, key=lambda name: rows[name])
    total = sum(rows.values()) or 1
    measured = (
        after.statements - before.statements,
        after.transactions - before.transactions,
        sum(rows.values()),
        after.wal - before.wal,
        after.durable - before.durable,
        (after.cpu_s - before.cpu_s) * 1000,
        after.size - before.size,
    )
    beside = [0.0] * 7
    if idle is not None:
        by_itself = (idle.statements, idle.transactions, 0.0, idle.wal_bytes, idle.durable, idle.cpu_ms, 0.0)
        beside = [2 * spent * one for one in by_itself]
    each = [max(one - other, 0.0) / calls for one, other in zip(measured, beside, strict=True)]
    statements, transactions, written, wal, durable, cpu, size = each
    share = f"{hottest} ({rows[hottest] / total:.0%})" if sum(rows.values()) else "-"
    return CallCost(kind, statements, transactions, written, wal, durable, cpu, size, share)


@contextmanager
def fleet(folder: Path) -> Generator[Fleet]:
    """Two replicas on a database below a folder that another user may enter."""
    (folder / "pg").mkdir()
    cluster = CountedCluster(folder / "pg")
    try:
        root, url = folder / "root", cluster.prepare()
        root.mkdir()
        with (
            replica(root, url, folder / "one", "--log-level", "warning") as one,
            replica(root, url, folder / "two", "--log-level", "warning") as two,
        ):
            yield Fleet(cluster, url, one, two)
    finally:
        cluster.stop("fast")


class Caller:
    """One client with a connection of its own."""

    def __init__(self, server: HttpServer) -> None:
        self._client = server.client()

    def __call__(self, tool: str, /, session: str = "S", **arguments: Any) -> Any:
        reply: httpx.Response = self._client.post(
            "/tool", json={"session_id": session, "name": tool, "args": arguments}
        )
        if reply.status_code != 200:
            raise RuntimeError(f"{tool}: {reply.text}")
        return reply.json()
