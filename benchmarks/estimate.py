"""How far the token estimate is from o200k, on replies of our own tools to files that it was not fitted to."""

import random
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llmc_mcp.config.schema import Config
from llmc_mcp.errors import LlmcError
from llmc_mcp.server import build
from llmc_mcp.session import Session
from llmc_mcp.tokens import estimate

from .report import median, percentile, provenance, table
from .search import django
from .tokens import count

_SOURCES = (".py", ".md", ".toml", ".json", ".txt", ".html", ".js", ".css")
_WORDS = ("def ", "import", "TODO", "return self", "error", "assert", "[0-9]{4}", "path", "class ", "width", "name")

Call = tuple[str, str, dict[str, Any]]  # what it stands for, the tool, its arguments


def _held_out(path: Path) -> bool:
    """Half of the files; the weights were fitted to the other half, and to this project's own files."""
    language = path.parent.parent
    name = (
        f"{language.parent.name}{language.name}-{path.name}" if path.suffix == ".po" else path.parent.name + path.name
    )
    return zlib.crc32(name.encode()) % 2 == 1


def _calls(tree: Path, quick: bool) -> Iterator[Call]:
    dice = random.Random(3)
    files = sorted(path for path in tree.rglob("*") if path.is_file() and path.stat().st_size > 500)
    sources = [path for path in files if path.suffix in _SOURCES and _held_out(path)]
    translations = [path for path in files if path.suffix == ".po" and _held_out(path)]
    folders = sorted({str(path.parent) for path in sources})
    share = 5 if quick else 1
    for path in dice.sample(sources, 200 // share):
        yield "source and prose", "read_file", {"path": str(path), "max_lines": dice.choice([20, 100, 400])}
    for path in dice.sample(translations, 60 // share):
        yield "translations, 100 languages", "read_file", {"path": str(path), "max_lines": dice.choice([20, 100, 400])}
    for folder in dice.sample(folders, 25 // share):
        yield "listings", "linux_fs_list", {"path": folder}
    for word in _WORDS:
        for folder in dice.sample(folders, 4):
            yield "searches", "linux_search_content", {"root": folder, "pattern": word, "max_results": 50}


def run(work: Path, quick: bool) -> str:
    """Errors by what the reply holds, over both formats of replies."""
    tree, found = django(), dict[str, list[tuple[int, int]]]()
    for mode in ("hybrid", "classic"):
        config = Config(mode=mode)
        config.observability.enabled = False
        gate = build(config, [str(tree)], str(work))
        for kind, name, arguments in _calls(tree, quick):
            context = gate.context(Session("bench", "bench"), "bench")
            try:
                text = gate.reply(context, name, arguments).text
            except LlmcError:
                continue
            for group in (kind, "all"):
                found.setdefault(group, []).append((count(text), estimate(text)))
        gate.close()
    head = ["replies", "count", "median error %", "mean %", "p95 %", "within 10 %, % of them", "error of the sum %"]
    return f"{table(head, [_row(kind, pairs) for kind, pairs in sorted(found.items())])}\n\n{provenance()}"


def _row(kind: str, pairs: list[tuple[int, int]]) -> list[str]:
    errors = [abs(guess - truth) / truth * 100 for truth, guess in pairs]
    within = sum(error <= 10 for error in errors) / len(errors) * 100
    total = (sum(guess for _, guess in pairs) / sum(truth for truth, _ in pairs) - 1) * 100
    shown = (median(errors), sum(errors) / len(errors), percentile(errors, 0.95), within)
    return [kind, str(len(pairs)), *(f"{value:.1f}" for value in shown), f"{total:+.1f}"]
