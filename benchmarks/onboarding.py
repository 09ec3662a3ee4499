"""The onboarding flows: 5,000 files planned, moved and brought back; Django explained, with an index."""

import json
import os
from collections.abc import Callable
from pathlib import Path

from llmc_mcp.config.schema import Config
from llmc_mcp.gate.dispatch import Gate
from llmc_mcp.server import build
from llmc_mcp.session import Session
from llmc_mcp.tokens import estimate

from .report import median, milliseconds, provenance, table, verdict
from .search import django

_FILES = 5_000
_ENDINGS = ("pdf", "jpg", "png", "mp3", "zip", "deb", "py", "json", "epub", "strange")


def run(work: Path, quick: bool) -> str:
    """The table."""
    rounds = 2 if quick else 5
    plan, apply, undo = _organize(work, rounds)
    first, later, tokens = _explain(work, rounds)
    rows = [
        [f"organize_downloads, {_FILES:,} files: plan", f"{plan:.0f} ms", "1,000 ms", verdict(plan, 1000)],
        ["… apply, one change", f"{apply:.0f} ms", "", ""],
        ["… undo", f"{undo:.0f} ms", "", ""],
        ["explain_repo, Django with an index, first call", f"{first:.0f} ms", "2,000 ms", verdict(first, 2000)],
        ["… later calls", f"{later:.0f} ms", "2,000 ms", verdict(later, 2000)],
        ["… tokens", f"{tokens:,}", "800", verdict(tokens, 800)],
    ]
    return table(["what", "median", "bar", ""], rows) + "\n\n" + provenance("Django==5.2")


def _organize(work: Path, rounds: int) -> tuple[float, float, float]:
    folder = work / "root" / "Downloads"
    folder.mkdir(parents=True)
    for number in range(_FILES):
        path = folder / f"file {number}.{_ENDINGS[number % len(_ENDINGS)]}"
        path.write_bytes(os.urandom(200))
        written = 1_600_000_000 + number * 20_000
        os.utime(path, (written, written))
    gate = _gate(folder.parent, work / "data")
    try:
        plan, apply, undo = zip(*(_there_and_back(gate) for _ in range(rounds)), strict=True)
    finally:
        gate.close()
    return median(plan), median(apply), median(undo)


def _there_and_back(gate: Gate) -> tuple[float, float, float]:
    done: list[str] = []
    plan = milliseconds(lambda: _flow(gate, "organize_downloads"))
    apply = milliseconds(lambda: done.append(_flow(gate, "organize_downloads", apply=True)))
    undo_id = json.loads(done[0].partition("\n")[0])["undo_id"]
    return plan, apply, milliseconds(lambda: _call(gate, "linux_fs_undo", undo_id=undo_id))


def _explain(work: Path, rounds: int) -> tuple[float, float, int]:
    tree = django()
    gate = _gate(tree, work / "index")
    _until_indexed(lambda: _call(gate, "rag_index"))
    gate.close()
    first, later, texts = zip(*(_two_calls(tree, work) for _ in range(rounds)), strict=True)
    return median(first), median(later), estimate(texts[0])


def _two_calls(tree: Path, work: Path) -> tuple[float, float, str]:
    """The first call of a new server, and the second."""
    gate, texts = _gate(tree, work / "index"), list[str]()
    try:
        first, later = (milliseconds(lambda: texts.append(_flow(gate, "explain_repo"))) for _ in range(2))
    finally:
        gate.close()
    return first, later, texts[0]


def _until_indexed(index: Callable[[], str]) -> None:
    while "up to date" not in index():
        pass


def _gate(root: Path, data: Path) -> Gate:
    config = Config()
    config.observability.log_level = "error"
    config.tools.read_timeout = 300.0
    return build(config, [str(root)], str(data))


def _flow(gate: Gate, name: str, **more: object) -> str:
    return _call(gate, "linux_mcp_run_onboarding", flow_name=name, **more)


def _call(gate: Gate, tool: str, **arguments: object) -> str:
    ctx = gate.context(Session("uid:0", "benchmarks"), "benchmark")
    return gate.reply(ctx, tool, arguments).text
