"""Our calls beside the least that they can cost: a bare loop, `open().read()`. For ripgrep see search."""

import sys
from pathlib import Path

from . import procfs, report
from .client import Client
from .servers import Server, llmc

_LINES = 200
_BLOCK = 50  # calls to one server before it is the other one's turn

# A server in a dozen lines: it parses the call, opens the file if it is told to, and answers. Nothing is checked.
_BARE = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    text = ""
    if message["method"] == "tools/call" and message["params"]["arguments"]:
        with open(message["params"]["arguments"]["path"]) as file:
            text = "".join(file.read().splitlines(keepends=True)[:200])
    result = {"content": [{"type": "text", "text": text}], "tools": [], "serverInfo": {"version": "0"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def run(work: Path, quick: bool) -> str:
    root = work / "root"
    root.mkdir()
    (root / "file.py").write_text("".join(f"value_{number} = {number}  # line\n" for number in range(_LINES)))
    bare = Server("bare loop", (sys.executable, "-c", _BARE), work, "nothing")
    blocks = 4 if quick else 20
    with llmc(root, work).start(root) as ours, bare.start(root) as floor:
        ours.initialize()
        floor.initialize()
        rows = [
            _row("cheapest call (`health`)", ours, floor, "health", {}, blocks),
            _row("`stat`", ours, floor, "stat", {"path": "file.py"}, blocks),
            _row(f"`read_file` of {_LINES} lines", ours, floor, "read_file", {"path": "file.py"}, blocks),
        ]
    head = ["call", "llmc p5, ms", "p50", "p95", "CPU", "bare loop p5, ms", "p50", "p95", "CPU", "over the floor, ms"]
    return f"{report.table(head, rows)}\n\n{report.provenance()}"


def _row(name: str, ours: Client, floor: Client, tool: str, arguments: dict[str, str], blocks: int) -> list[str]:
    taken: dict[Client, list[float]] = {ours: [], floor: []}
    spent: dict[Client, float] = {ours: 0, floor: 0}
    for _ in range(blocks):
        for client, values in taken.items():
            before = procfs.cpu_ms(client.pid)
            values.extend(_block(client, tool, arguments))
            spent[client] += procfs.cpu_ms(client.pid) - before
    cells: list[float] = []
    for client, values in taken.items():
        cells += [report.percentile(values, 0.05), report.median(values), report.percentile(values, 0.95)]
        cells.append(spent[client] / len(values))
    return [name, *[report.number(cell) for cell in cells], report.number(cells[1] - cells[5])]


def _block(client: Client, tool: str, arguments: dict[str, str]) -> list[float]:
    return [report.milliseconds(lambda: client.call(tool, arguments)) for _ in range(_BLOCK)]
