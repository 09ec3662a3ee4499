"""How far the token estimate is from o200k, on replies of our own tools to real files."""

import random
from collections.abc import Iterator
from pathlib import Path

from llmc_mcp.app import Context
from llmc_mcp.config import Config
from llmc_mcp.errors import LlmcError
from llmc_mcp.server import build
from llmc_mcp.session import Session
from llmc_mcp.tokens import estimate

from .report import median, percentile, provenance, table
from .search import django
from .tokens import count

_KINDS = (".py", ".md", ".toml", ".json", ".txt", ".html", ".js", ".css", ".po")
_WORDS = ("def ", "import", "TODO", "return self", "error", "assert", "[0-9]{4}", "path")


def replies(root: Path, mode: str, work: Path, files: int) -> Iterator[str]:
    """Reads of many files, searches and listings, as a client would get them."""
    config = Config(mode=mode)
    config.observability.enabled = False
    gate = build(config, [str(root)], str(work))
    dice = random.Random(1)
    paths = sorted(str(path) for path in root.rglob("*") if path.suffix in _KINDS and path.stat().st_size > 500)
    calls: list[tuple[str, dict[str, object]]] = [
        ("read_file", {"path": path, "max_lines": dice.choice([20, 100, 400])}) for path in dice.sample(paths, files)
    ]
    calls += [("linux_search_content", {"root": ".", "pattern": word, "max_results": 50}) for word in _WORDS]
    calls += [("linux_search_files", {"root": ".", "pattern": word}) for word in ("form", "test", "*.po")]
    calls += [("linux_fs_list", {"path": "."}), ("list_dir", {"path": ".", "depth": 3}), ("00_INIT", {})]
    try:
        for name, arguments in calls:
            context = Context(gate.app, Session("bench", "bench"), correlation_id="bench")
            try:
                yield gate.reply(context, name, arguments).text
            except LlmcError:
                continue
    finally:
        gate.close()


def run(work: Path, quick: bool) -> str:
    """Errors by mode."""
    rows: list[list[str]] = []
    for mode in ("hybrid", "classic"):
        texts = [text for text in replies(django(), mode, work, 40 if quick else 300) if len(text) > 40]
        real, guessed = [count(text) for text in texts], [estimate(text) for text in texts]
        errors = [abs(guess - truth) / truth * 100 for guess, truth in zip(guessed, real, strict=True)]
        within = sum(error <= 10 for error in errors) / len(errors) * 100
        shown = (median(errors), sum(errors) / len(errors), percentile(errors, 0.95), within)
        total = (sum(guessed) / sum(real) - 1) * 100
        rows.append([mode, str(len(texts)), *(f"{value:.1f}" for value in shown), f"{total:+.1f}"])
    head = ["replies", "count", "median error %", "mean %", "p95 %", "within 10 %, % of them", "error of the sum %"]
    return f"{table(head, rows)}\n\n{provenance()}"
