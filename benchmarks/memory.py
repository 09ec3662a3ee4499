"""Memory of conversations: several servers on one root and data directory, each used with everything, then left alone.

PSS counts a page that several processes share in parts, so the sum over all processes is what the machine has given.
"""

import dataclasses
import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from . import procfs, report
from .client import Client, ClientError
from .servers import HERE, Server, llmc

_MANY = 20
_BAR_MANY, _BAR_ONE = 400, 40  # MB when idle
_IDLE_S, _QUICK_IDLE_S = 60.0, 5.0
_PATIENCE_S = 120.0  # for the first build of the index
_SAMPLE = "def answer(question):\n    return 42\n"


class Figures(NamedTuple):
    """Megabytes of all processes of all servers, and how many processes there are."""

    started: float
    used: float
    idle: float
    processes: int
    idle_processes: int


def run(work: Path, quick: bool) -> str:
    root = work / "root"
    shutil.copytree(HERE.parent / "src", root, ignore=shutil.ignore_patterns("__pycache__"))
    idle_s = _QUICK_IDLE_S if quick else _IDLE_S
    server = dataclasses.replace(llmc(root, work), extra_env={"LLMC_MCP_LIMITS_HELPER_IDLE_SEC": f"{idle_s:g}"})
    rows = [
        _row(f"{count} conversation{'s' if count > 1 else ''}", _measure(server, root, count, idle_s), bar)
        for count, bar in ((1, _BAR_ONE), (_MANY, _BAR_MANY))
    ]
    head = ["PSS, MB", "started", "all used everything", "processes", f"idle {2 * idle_s:g} s", "processes", "bar", ""]
    return f"{report.table(head, rows)}\n\n{report.provenance()}"


def _measure(server: Server, root: Path, count: int, idle_s: float) -> Figures:
    with ExitStack() as stack:
        clients = [stack.enter_context(server.start(root)) for _ in range(count)]
        for client in clients:
            client.initialize()
            client.list_tools()
        started = _megabytes(clients)
        for number, client in enumerate(clients):
            _use(client, f"sample_{number}.py")
        used, processes = _megabytes(clients), _processes(clients)
        time.sleep(2 * idle_s)
        return Figures(started, used, _megabytes(clients), processes, _processes(clients))


def _use(client: Client, sample: str) -> None:
    """One call of each kind: files, an edit with its syntax check, ripgrep, code, a command, the index, the graph."""
    client.call("linux_fs_write", {"path": sample, "content": _SAMPLE})
    client.call("linux_fs_edit", {"path": sample, "old_text": "42", "new_text": "43"})
    client.call("linux_search_content", {"root": ".", "pattern": "def answer"})
    client.call("execute_code", {"code": "len(list_dir('.'))"})
    client.call("run_cmd", {"command": "echo hello"})
    _patiently(client, "rag_search", {"query": "where is a file opened below the root"})
    _patiently(client, "rag_where_used", {"symbol": "Launcher"})


def _patiently(client: Client, tool: str, arguments: dict[str, object]) -> None:
    """A call that may find the index being built."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            client.call(tool, arguments)
            return
        except ClientError as exc:
            if "RESOURCE_BUSY" not in str(exc) or time.monotonic() > until:
                raise
            time.sleep(0.5)


def _megabytes(clients: Sequence[Client]) -> float:
    return sum(procfs.memory(client.pid).pss for client in clients)


def _processes(clients: Sequence[Client]) -> int:
    return sum(len(procfs.tree(client.pid)) for client in clients)


def _row(label: str, seen: Figures, bar: int) -> list[str]:
    cells = [report.number(seen.started), report.number(seen.used), str(seen.processes), report.number(seen.idle)]
    return [label, *cells, str(seen.idle_processes), f"≤ {bar}", report.verdict(seen.idle, bar)]
