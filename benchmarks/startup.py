"""What a conversation pays before it starts and on every call: time, memory, CPU and tokens, side by side."""

import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from . import procfs, report, tokens
from .client import Client
from .servers import Server, all_servers, node

_BLOCK = 50  # calls to one server before it is the next one's turn
_PAUSE = 0.3  # seconds; an agent thinks between calls, and spaced calls can be much faster


@dataclass
class Figures:
    """What was measured of one server; lists hold milliseconds."""

    start: list[float] = field(default_factory=list[float])
    ping: list[float] = field(default_factory=list[float])
    noop: list[float] = field(default_factory=list[float])
    paced: list[float] = field(default_factory=list[float])
    ping_cpu: float = 0
    noop_cpu: float = 0
    memory: procfs.Memory | None = None
    tools: int = 0
    tool_tokens: int = 0
    instruction_tokens: int = 0
    version: str = ""


def run(work: Path, quick: bool) -> str:
    root = work / "root"
    root.mkdir()
    servers = all_servers(root, work)
    figures = [_describe(server, root) for server in servers]
    timed = [(server, taken) for server, taken in zip(servers, figures, strict=True) if server.timed]
    for _ in range(4 if quick else 15):
        for server, taken in timed:
            taken.start.append(_start(server, root))
    _calls(timed, root, 100 if quick else 500)
    versions = [f"{server.name} {taken.version}" for server, taken in timed]
    node_version = subprocess.run([node(), "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return f"{_table(servers, figures)}\n\n{report.provenance(*versions, f'Node {node_version}')}"


def _describe(server: Server, root: Path) -> Figures:
    """Everything that no clock is needed for; also the warm-up of disk caches."""
    with server.start(root) as client:
        hello = client.initialize()
        tools = client.list_tools()
    return Figures(
        tools=len(tools),
        tool_tokens=tokens.count_tools(tools),
        instruction_tokens=tokens.count(hello.get("instructions") or ""),
        version=server.version or hello["serverInfo"]["version"],
    )


def _start(server: Server, root: Path) -> float:
    """Milliseconds from spawn to the tools/list answer."""
    begin = time.perf_counter()
    with server.start(root) as client:
        client.initialize()
        client.list_tools()
        return (time.perf_counter() - begin) * 1000


def _calls(timed: Sequence[tuple[Server, Figures]], root: Path, count: int) -> None:
    """Memory when idle, then sequential calls in turns, all servers alive at the same time."""
    with ExitStack() as stack:
        clients = [stack.enter_context(server.start(root)) for server, _ in timed]
        for client in clients:
            client.initialize()
            client.list_tools()
        time.sleep(1)  # lets what starts in the background come to rest
        for client, (_, taken) in zip(clients, timed, strict=True):
            taken.memory = procfs.memory(client.pid)
        for _ in range(count // _BLOCK):
            for client, (server, taken) in zip(clients, timed, strict=True):
                taken.ping_cpu += _block(client, client.ping, taken.ping) / count
                taken.noop_cpu += _block(client, _cheapest(client, server), taken.noop) / count
        for _ in range(count // 20):
            time.sleep(_PAUSE)
            for client, (server, taken) in zip(clients, timed, strict=True):
                taken.paced.append(report.milliseconds(_cheapest(client, server)))


def _cheapest(client: Client, server: Server) -> Callable[[], object]:
    return lambda: client.call(server.cheapest, {})


def _block(client: Client, action: Callable[[], object], times: list[float]) -> float:
    """One turn of calls; returns the server's CPU milliseconds."""
    before = procfs.cpu_ms(client.pid)
    times += [report.milliseconds(action) for _ in range(_BLOCK)]
    return procfs.cpu_ms(client.pid) - before


_ROWS: list[tuple[str, bool, Callable[[Figures], float]]] = [
    ("spawn → tools/list, median ms", True, lambda f: report.median(f.start)),
    ("spawn → tools/list, best ms", True, lambda f: min(f.start)),
    ("idle RSS, MB", True, lambda f: f.memory.rss if f.memory else 0),
    ("idle PSS, MB", True, lambda f: f.memory.pss if f.memory else 0),
    ("ping p50, ms", True, lambda f: report.median(f.ping)),
    ("ping p95, ms", True, lambda f: report.percentile(f.ping, 0.95)),
    ("ping, server CPU ms", True, lambda f: f.ping_cpu),
    ("cheapest tool p50, ms", True, lambda f: report.median(f.noop)),
    ("cheapest tool p95, ms", True, lambda f: report.percentile(f.noop, 0.95)),
    ("cheapest tool, server CPU ms", True, lambda f: f.noop_cpu),
    ("cheapest tool after a pause p50, ms", True, lambda f: report.median(f.paced)),
    ("tools", False, lambda f: f.tools),
    ("tool list, tokens", False, lambda f: f.tool_tokens),
    ("tokens per tool", False, lambda f: f.tool_tokens / f.tools),
    ("instructions, tokens", False, lambda f: f.instruction_tokens),
]


def _table(servers: Sequence[Server], figures: Sequence[Figures]) -> str:
    """One row a measure, one column a server, then how often ours fits into each peer's."""
    peers = [at for at, server in enumerate(servers) if at and server.timed]
    head = ["", *(server.name for server in servers), *(f"{servers[at].name} ÷ {servers[0].name}" for at in peers)]
    rows: list[list[str]] = []
    for label, needs_time, value in _ROWS:
        values = [
            value(taken) if server.timed or not needs_time else None
            for server, taken in zip(servers, figures, strict=True)
        ]
        cells = ["" if one is None else report.number(one) for one in values]
        rows.append([label, *cells, *(_ratio(values[at], values[0]) for at in peers)])
    return report.table(head, rows)


def _ratio(peer: float | None, ours: float | None) -> str:
    return f"{report.number(peer / ours)}x" if peer and ours else ""
