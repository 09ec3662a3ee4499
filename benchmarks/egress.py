"""What the network allowlist costs: a command in time, the proxy in memory, and how much passes through it.

The proxy is the real process, confined as always; its listener and the server behind it lie on the loopback of this
machine, the server's address being listed. Server and clients are processes of their own, and share the cores.
"""

import concurrent.futures
import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from llmc_mcp.app import App
from llmc_mcp.config.schema import Config
from llmc_mcp.context import Context
from llmc_mcp.egress.client import Egress
from llmc_mcp.gate.log import correlation_id
from llmc_mcp.kernel.launcher import Launcher
from llmc_mcp.session import Session
from llmc_mcp.tools.exec import run_cmd

from . import report

_RUNS, _QUICK_RUNS = 200, 30
_DOWNLOADS, _EACH = 200, 4 << 20
_CONNECTIONS = 10_000
_BAR_MS, _BAR_MB_S, _BAR_RSS_MB = 3.0, 200.0, 40.0
_BLOCK = 1 << 20


class Proxied(NamedTuple):
    """A proxy, how to reach it, and the port of the server behind it."""

    egress: Egress
    listener: socket.socket
    port: int

    def cpu_s(self) -> float:
        """The CPU time of the proxy so far."""
        fields = Path(f"/proc/{self.egress.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mb(self, field: str = "VmRSS") -> float:
        """The memory of the proxy."""
        for line in Path(f"/proc/{self.egress.pid}/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) / 1024
        raise LookupError(field)


def run(work: Path, quick: bool) -> str:
    off, listed = _command_times(work, _QUICK_RUNS if quick else _RUNS)
    added = report.median(listed) - report.median(off)
    rows = [_row("a command, network off, ms", report.median(off)), _row("with the allowlist", report.median(listed))]
    rows.append(_row("added, ms", added, _BAR_MS))
    with _proxied() as proxied:
        rows.append(_row("of that, asking the server's end of the proxy, ms", _asking_ms(proxied)))
        started = proxied.rss_mb()
        size = (256 if quick else 2048) * _BLOCK
        direct, before = _rate(None, proxied, size), proxied.cpu_s()
        through = _rate(proxied.listener, proxied, size)
        rows.append(_row("one download without the proxy, MB/s", direct))
        rows.append(_row("through the proxy, MB/s", through, _BAR_MB_S, at_least=True))
        rows.append(_row("CPU of the proxy for a gigabyte, s", (proxied.cpu_s() - before) * 1e9 / size))
        seconds = _download_all(proxied)
        rows.append(_row(f"{_DOWNLOADS} downloads of {_EACH >> 20} MB at a time, s", seconds))
        rows.append(_row("together, MB/s", _DOWNLOADS * _EACH / 1e6 / seconds))
        rows.append(_row("memory of the proxy at the start, MB", started))
        _connect_often(proxied, 1_000 if quick else _CONNECTIONS)
        name = f"highest, after those and {1_000 if quick else _CONNECTIONS:,} connections, MB"
        rows.append(_row(name, proxied.rss_mb("VmHWM"), _BAR_RSS_MB))
    return f"{report.table(['', 'measured', 'bar', ''], rows)}\n\n{report.provenance()}"


def _row(name: str, value: float, bar: float | None = None, *, at_least: bool = False) -> list[str]:
    if bar is None:
        return [name, report.number(value), "", ""]
    verdict = report.verdict(-value, -bar) if at_least else report.verdict(value, bar)
    return [name, report.number(value), f"{'≥' if at_least else '≤'} {bar:g}", verdict]


# --- commands ----------------------------------------------------------------------------------------


def _command_times(work: Path, runs: int) -> tuple[list[float], list[float]]:
    """The same command with the network off and with the allowlist, one after the other."""
    apps: list[App] = []
    for name, entries in (("off", ()), ("listed", ("python", "git"))):
        config = Config()
        config.sandbox.level = "workspace"
        config.tools.network_allow = entries
        root = work / name
        root.mkdir()
        apps.append(App(config, [str(root)], str(work / f"data-{name}")))
    session = Session(principal="bench", session_id="bench")

    def command(app: App) -> None:
        run_cmd(Context(app, session, correlation_id=correlation_id()), ["true"])

    times: tuple[list[float], list[float]] = ([], [])
    try:
        for app in apps:
            command(app)
        pairs = list(zip(apps, times, strict=True))
        for number in range(runs):
            for app, into in pairs[:: -1 if number % 2 else 1]:  # what ends late slows whatever comes next
                into.append(report.milliseconds(lambda app=app: command(app)))
    finally:
        for app in apps:
            app.close()
    return times


def _asking_ms(proxied: Proxied) -> float:
    """What a command does besides: see that the proxy serves its session, and take what it denied."""
    entries = (f"127.0.0.1:{proxied.port}",)

    def ask() -> None:
        proxied.egress.serve(proxied.listener.fileno(), "bench", entries)
        proxied.egress.take_denials("bench")

    return report.median([report.milliseconds(ask) for _ in range(1_000)])


# --- the proxy ---------------------------------------------------------------------------------------


@contextmanager
def _proxied() -> Generator[Proxied]:
    server = socket.create_server(("127.0.0.1", 0), backlog=512)
    process = multiprocessing.Process(target=_serve, args=(server,), daemon=True)
    process.start()
    port = server.getsockname()[1]
    launcher = Launcher()
    with socket.socket() as listener, server:
        listener.bind(("127.0.0.1", 0))
        egress = Egress(launcher)
        egress.serve(listener.fileno(), "bench", (f"127.0.0.1:{port}",))
        try:
            with _tunnel(listener.getsockname(), port) as first:  # it has started when this is answered
                first.sendall((0).to_bytes(8, "big"))
            yield Proxied(egress, listener, port)
        finally:
            egress.close()
            launcher.close()
            process.terminate()
            process.join()


def _serve(server: socket.socket) -> None:
    """Send as many bytes as a client asks for."""

    def answer(client: socket.socket) -> None:
        block = memoryview(bytes(_BLOCK))
        with client:
            left = int.from_bytes(client.recv(8), "big")
            while left:
                left -= client.send(block[: min(left, _BLOCK)])

    while True:
        threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()


def _tunnel(proxy: tuple[str, int], port: int) -> socket.socket:
    client = socket.create_connection(proxy, 60)
    client.sendall(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode())
    answer = client.recv(1000)
    if b" 200 " not in answer:
        raise OSError(f"no tunnel: {answer!r}")
    return client


def _rate(proxy: socket.socket | None, proxied: Proxied, size: int) -> float:
    """Megabytes per second of one download."""
    port = proxied.port
    client = socket.create_connection(("127.0.0.1", port)) if proxy is None else _tunnel(proxy.getsockname(), port)
    with closing(client):
        started = time.perf_counter()
        _download(client, size)
        return size / 1e6 / (time.perf_counter() - started)


def _download(client: socket.socket, size: int) -> None:
    client.sendall(size.to_bytes(8, "big"))
    buffer = bytearray(_BLOCK)
    while size:
        got = client.recv_into(buffer)
        if not got:
            raise OSError("the download was cut off")
        size -= got


def _download_all(proxied: Proxied) -> float:
    clients = [_tunnel(proxied.listener.getsockname(), proxied.port) for _ in range(_DOWNLOADS)]
    started = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(_DOWNLOADS) as pool:
        for done in [pool.submit(_download, client, _EACH) for client in clients]:
            done.result()
    seconds = time.perf_counter() - started
    for client in clients:
        client.close()
    return seconds


def _connect_often(proxied: Proxied, count: int) -> None:
    """Open connections that ask for nothing, the oldest closed when there are many."""
    kept: list[socket.socket] = []
    for _ in range(count):
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(proxied.listener.getsockname())
        kept.append(client)
        if len(kept) > 600:
            kept.pop(0).close()
    for client in kept:
        client.close()
    with _tunnel(proxied.listener.getsockname(), proxied.port) as last:  # all before it have been accepted by now
        last.sendall((0).to_bytes(8, "big"))
