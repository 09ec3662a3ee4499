"""The HTTP side: latency, throughput, the rate limiter against a reference, what recording costs, crowds.

All load goes to a server of our own on loopback and is bounded in time and number.
"""

import asyncio
import json
import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from . import procfs
from .report import median, number, percentile, provenance, table, verdict

TOKEN = "benchmark-token-0123456789"
OPEN = ("limits.rate_limit_rps=1000000", "limits.rate_limit_burst=1000000", "limits.concurrency_per_token=64")
SILENT = ("observability.enabled=false", "observability.metrics_enabled=false", "observability.audit_enabled=false")
QUIET = ("observability.log_level=warning",)
_IDLE, _SLOW = 1_000, 200


class Server:
    """A server process on a free port, ours or another that says where it listens."""

    def __init__(self, work: Path, *arguments: str) -> None:
        environment = {**os.environ, "LLMC_MCP_TOKEN": TOKEN, "LLMC_DATA_DIR": str(work / ".data")}
        self.log = work / f"log-{time.monotonic_ns()}"
        self._file = self.log.open("w")
        self.process = subprocess.Popen([sys.executable, "-m", *arguments], stderr=self._file, env=environment)
        self.port = self._port()

    def _port(self) -> int:
        give_up = time.monotonic() + 30
        while time.monotonic() < give_up:
            if found := re.search(r"listening on http://[^:]+:(\d+)", self.log.read_text()):
                return int(found[1])
            time.sleep(0.05)
        raise RuntimeError(f"the server does not listen:\n{self.log.read_text()}")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)
        self._file.close()


def serving(work: Path, *settings: str) -> AbstractContextManager[Server]:
    flags = [part for setting in settings for part in ("--set", setting)]
    return running(work, "llmc_mcp.server", "--transport", "http", "--port", "0", "--root", str(work), *flags)


@contextmanager
def running(work: Path, *arguments: str) -> Generator[Server]:
    server = Server(work, *arguments)
    try:
        yield server
    finally:
        server.stop()


def request(path: str, body: object = None, headers: str = "") -> bytes:
    method, content = ("GET", b"") if body is None else ("POST", json.dumps(body).encode())
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost:80\r\nX-LLMC-Token: {TOKEN}\r\n{headers}"
    if body is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
    return f"{head}\r\n".encode() + content


HEALTH = request("/health")
STAT = request("/tool", {"name": "stat", "args": {"path": "a.txt"}})
READ = request("/tool", {"name": "read_file", "args": {"path": "a.txt"}})


def mcp_stat(meta: dict[str, Any], headers: str) -> bytes:
    """A tools/call as clients send it: they accept a stream, and ask for no progress."""
    params = {"name": "stat", "arguments": {"path": "a.txt"}, **({"_meta": meta} if meta else {})}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return request("/mcp", message, f"Accept: application/json, text/event-stream\r\n{headers}")


HANDSHAKE = mcp_stat({}, "MCP-Protocol-Version: 2025-11-25\r\n")
STATELESS = mcp_stat(
    {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "benchmarks", "version": "1"},
    },
    "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: stat\r\n",
)


class Connection:
    """A keep-alive connection; as little client as possible, for the server to be what is measured."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> "Connection":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, message: bytes) -> int:
        """Send a request, read the whole reply; returns its status."""
        self._writer.write(message)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        await self._reader.readexactly(int(length[1]) if length else 0)
        return int(head[9:12])

    def close(self) -> None:
        self._writer.close()


async def paced(port: int, message: bytes, count: int, rate: float) -> list[float]:
    """Latencies in ms of requests that come at a steady rate."""
    connection = await Connection.open(port)
    await connection.ask(message)
    times: list[float] = []
    start = time.perf_counter()
    for turn in range(count):
        await asyncio.sleep(max(start + turn / rate - time.perf_counter(), 0))
        begun = time.perf_counter()
        status = await connection.ask(message)
        times.append((time.perf_counter() - begun) * 1000)
        if status != 200:
            raise RuntimeError(f"status {status}")
    connection.close()
    return times


async def hammer(port: int, message: bytes, seconds: float, connections: int = 8) -> tuple[int, int]:
    """Requests answered, and those answered with an error, on connections that never pause."""
    until = time.perf_counter() + seconds

    async def one() -> tuple[int, int]:
        connection, done, failed = await Connection.open(port), 0, 0
        while time.perf_counter() < until:
            failed += await connection.ask(message) != 200
            done += 1
        connection.close()
        return done, failed

    counts = await asyncio.gather(*(one() for _ in range(connections)))
    return sum(done for done, _ in counts), sum(failed for _, failed in counts)


async def arrivals(port: int, count: int, seed: int) -> list[int]:
    """Statuses of requests at random moments, in bursts and pauses."""
    dice = random.Random(seed)
    connections = [await Connection.open(port) for _ in range(4)]
    statuses: list[int] = []
    for turn in range(count):
        statuses.append(await connections[turn % 4].ask(STAT))
        await asyncio.sleep(dice.choice([0, 0, 0.01, 0.02, 0.05, 0.3]))
    for connection in connections:
        connection.close()
    return statuses


def reference(moments: list[float], rps: float, burst: int) -> list[bool]:
    """Another token bucket, written differently on purpose: when is the bucket full again (GCRA)?"""
    full_at, admitted = float("-inf"), list[bool]()
    for now in moments:
        begins = max(full_at, now)
        admitted.append(begins + 1 / rps - now <= burst / rps + 1e-9)
        if admitted[-1]:
            full_at = begins + 1 / rps
    return admitted


def _latency(work: Path, quick: bool) -> list[list[str]]:
    count = 30 if quick else 200
    with serving(work, *OPEN, *QUIET) as server:
        noop = asyncio.run(paced(server.port, HEALTH, count, 10))
        read = asyncio.run(paced(server.port, READ, count, 10))
    rows: list[list[str]] = []
    for name, times, bar in (("no-op (GET /health)", noop, 5.0), ("read_file (POST /tool)", read, 10.0)):
        worst = percentile(times, 0.95)
        rows.append([f"{name}, 10 r/s, p50 / p95 ms", f"{number(median(times))} / {number(worst)}", f"≤ {bar:g}"])
        rows[-1].append(verdict(worst, bar))
    return rows


def _throughput(work: Path, quick: bool) -> list[list[str]]:
    with serving(work, *OPEN, *QUIET) as server:
        asyncio.run(hammer(server.port, STAT, 1))
        seconds = 2.0 if quick else 10.0
        before = procfs.cpu_ms(server.process.pid)
        done, failed = asyncio.run(hammer(server.port, STAT, seconds))
        spent = (procfs.cpu_ms(server.process.pid) - before) / done
    rate = done / seconds
    return [
        [
            f"stat (POST /tool), 8 connections, calls/s ({failed} errors, {number(spent)} ms CPU each)",
            number(rate),
            "≥ 800",
            verdict(-rate, -800.0) if failed == 0 else "missed",
        ]
    ]


def _beside_noops(work: Path, quick: bool) -> list[list[str]]:
    """Calls of `stat` as a share of what the stack itself manages when it does nothing, in turns."""
    with (
        serving(work, *OPEN, *QUIET) as ours,
        running(work, "benchmarks.noop_http", "fastapi") as fastapi,
        running(work, "benchmarks.noop_http", "sdk") as sdk,
    ):
        return [
            _share("stat by REST / a threaded FastAPI no-op", STAT, ours, fastapi, 0.6, quick),
            _share("stat by MCP, handshake era / the SDK's no-op", HANDSHAKE, ours, sdk, 0.9, quick),
            _share("stat by MCP, stateless era / the SDK's no-op", STATELESS, ours, sdk, 0.9, quick),
        ]


def _share(name: str, message: bytes, ours: Server, noop: Server, bar: float, quick: bool) -> list[str]:
    rates: dict[Server, list[float]] = {ours: [], noop: []}
    spent: dict[Server, list[float]] = {ours: [], noop: []}
    for server in rates:
        asyncio.run(hammer(server.port, message, 0.5))
    seconds = 1.0 if quick else 2.0
    for _ in range(3 if quick else 7):
        for server in rates:
            before = procfs.cpu_ms(server.process.pid)
            done, failed = asyncio.run(hammer(server.port, message, seconds))
            if failed:
                raise RuntimeError(f"{name}: {failed} of {done} requests failed")
            rates[server].append(done / seconds)
            spent[server].append((procfs.cpu_ms(server.process.pid) - before) / done)
    per_second = [median(rates[server]) for server in rates]
    cpu = [median(spent[server]) for server in rates]
    share = per_second[0] / per_second[1]
    shown = f"{number(per_second[0])} / {number(per_second[1])} = {share:.2f}"
    spelled = f"{name}, requests/s ({number(cpu[0])} / {number(cpu[1])} ms CPU each)"
    return [spelled, shown, f"≥ {bar:g}", verdict(-share, -bar)]


def _limiter(work: Path, quick: bool) -> list[list[str]]:
    with serving(work, "observability.log_level=debug") as server:
        statuses = asyncio.run(arrivals(server.port, 100 if quick else 400, seed=7))
    events: list[dict[str, Any]] = [
        json.loads(line) for line in server.log.read_text().splitlines() if '"event":"rate"' in line
    ]
    expected = reference([event["at"] for event in events], 10, 20)
    differ = sum(event["admitted"] != admitted for event, admitted in zip(events, expected, strict=True))
    wrong = differ + abs(statuses.count(429) - expected.count(False)) + abs(len(statuses) - len(events))
    name = f"429s of {len(statuses)} arrivals at 10 r/s, burst 20: ours / reference"
    return [[name, f"{statuses.count(429)} / {expected.count(False)}", "equal", verdict(wrong, 0)]]


def _recording(work: Path, quick: bool) -> list[list[str]]:
    """Time of a call, and CPU time of the server for it, with and without all recording, in turns."""
    spent: dict[str, list[float]] = {"with": [], "without": []}
    times: dict[str, list[float]] = {"with": [], "without": []}
    with serving(work, *OPEN, *QUIET) as loud, serving(work, *OPEN, *SILENT) as silent:
        for server in (loud, silent):
            asyncio.run(hammer(server.port, READ, 1, 2))
        for _ in range(2 if quick else 8):
            for name, server in (("with", loud), ("without", silent)):
                before = procfs.cpu_ms(server.process.pid)
                done, _ = asyncio.run(hammer(server.port, READ, 1.5, 2))
                spent[name].append((procfs.cpu_ms(server.process.pid) - before) / done)
                times[name] += asyncio.run(paced(server.port, READ, 100 if quick else 400, 1e6))
    rows: list[list[str]] = []
    for name, found, bar in (("time", times, 5.0), ("server CPU, recorded in the background", spent, 0.0)):
        loud_ms, silent_ms = median(found["with"]), median(found["without"])
        share = (loud_ms - silent_ms) / loud_ms * 100
        shown = f"{number(loud_ms)} / {number(silent_ms)} ({share:+.1f} %)"
        rows.append([f"recording: {name} of a read_file, with / without, ms", shown, "≤ 5 %" if bar else "", ""])
        rows[-1][-1] = verdict(share, bar) if bar else ""
    return rows


def _crowd(work: Path, quick: bool) -> list[list[str]]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8_192), hard))
    crowd: list[socket.socket] = []
    with serving(work, *OPEN, *QUIET) as server:
        try:
            crowd += [socket.create_connection(("127.0.0.1", server.port)) for _ in range(_IDLE + _SLOW)]
            stop = asyncio.Event()

            async def loris() -> None:
                while not stop.is_set():
                    for connection in crowd[_IDLE:]:
                        try:
                            connection.send(b"G" if random.random() < 0.5 else b"E")
                        except OSError:
                            pass
                    await asyncio.sleep(0.5)

            async def main() -> list[float]:
                for connection in crowd[_IDLE:]:
                    connection.send(b"GET /health HTTP/1.1\r\nX-Slow: ")
                slow = asyncio.ensure_future(loris())
                times = await paced(server.port, READ, 30 if quick else 150, 10)
                stop.set()
                await slow
                return times

            times = asyncio.run(main())
        finally:
            for connection in crowd:
                connection.close()
    worst = percentile(times, 0.95)
    return [
        [
            f"read_file beside {_IDLE:,} idle and {_SLOW} slow connections, p95 ms",
            number(worst),
            "< 100",
            verdict(worst, 100.0),
        ]
    ]


def run(work: Path, quick: bool) -> str:
    """A row for each bar."""
    (work / "a.txt").write_text("".join(f"line {line} of a small file\n" for line in range(100)))
    rows = [
        *_latency(work, quick),
        *_throughput(work, quick),
        *_beside_noops(work, quick),
        *_limiter(work, quick),
        *_recording(work, quick),
        *_crowd(work, quick),
    ]
    busy = f"load average {os.getloadavg()[0]:.1f}"
    return f"{table(['', 'measured', 'bar', ''], rows)}\n\n{provenance(busy)}"
