"""What the index costs, with the real engine: the process that builds, SQLite, tantivy, watching."""

import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from llmc_mcp.app import App
from llmc_mcp.config.schema import Config, RagSection
from llmc_mcp.rag.parse.question import question
from llmc_mcp.rag.query.search import CodeQuery, QueryCaller
from llmc_mcp.rag.store import embed
from llmc_mcp.rag.store.index import IndexReader
from llmc_mcp.rag.store.layout import home_of
from llmc_mcp.session import Session

from ..report import median, milliseconds, number, percentile
from . import docstrings

# About 50,000 chunks together.
PACKAGES = ("networkx==3.6.1", "scikit-learn==1.9.1", "sympy==1.14.0", "twisted==26.10.0")
_UPDATES = 15


def _never() -> None:
    """Nobody takes this call back."""


def _unpacked(folder: Path) -> Path:
    for requirement in PACKAGES:
        with zipfile.ZipFile(docstrings.wheel(requirement)) as archive:
            archive.extractall(folder, [name for name in archive.namelist() if name.endswith((".py", ".pyi", ".pyx"))])
    return folder


def rows(work: Path, questions: list[str]) -> list[list[str]]:
    """Rows of the table: without and with vectors."""
    root = _unpacked(work / "tree")
    columns = [_measure(root, work / f"data-{setting}", setting, questions) for setting in ("none", "auto")]
    return [[name, columns[0][name], columns[1][name]] for name in columns[0]]


def _measure(root: Path, data: Path, setting: str, questions: list[str]) -> dict[str, str]:
    data.mkdir()
    app = App(Config(rag=RagSection(embedding=setting)), [str(root)], str(data))
    who = Session(principal="uid:0", session_id="benchmark", agent_id="benchmark")

    def caller() -> QueryCaller:
        return QueryCaller(who, time.monotonic() + 600, _never)

    try:
        build = milliseconds(lambda: app.rag.refresh(None, False, caller())) / 1000
        (stats,) = app.rag.stats()
        assert stats.totals is not None
        totals = stats.totals
        asked = [CodeQuery(text, "repo", 5, 1_200) for text in questions]
        app.rag.search(asked[0], caller())
        whole = [milliseconds(lambda one=one: app.rag.search(one, caller())) for one in asked]
        folder = home_of(str(data), str(root).encode()).current()
        assert folder is not None
        reader, embedding = IndexReader(folder), embed.load(setting)
        warm = [
            milliseconds(lambda text=text: reader.search(question(text), "repo", None, 10, embedding))
            for text in questions
        ]
        reader.close()
        updates = [_update(app, root, caller, nth) for nth in range(_UPDATES)]
    finally:
        app.close()
    return {
        "files": f"{totals.files:,}",
        "chunks": f"{totals.chunks:,}",
        "source, MB": number(totals.source_bytes / 1e6),
        "index built, s": number(build),
        "index ÷ source": f"{stats.bytes / totals.source_bytes:.2f}",
        "ranked answer p50, ms": number(median(warm)),
        "ranked answer p95, ms": number(percentile(warm, 0.95)),
        "answer with snippets p50, ms": number(median(whole)),
        "answer with snippets p95, ms": number(percentile(whole, 0.95)),
        "changed file found p50, ms": number(median(updates)),
        "changed file found p95, ms": number(percentile(updates, 0.95)),
    }


def _update(app: App, root: Path, caller: Callable[[], QueryCaller], nth: int) -> float:
    """From writing a file to the first answer that has what was written."""
    name = f"quagga{'abcdefghijklmnopqrstuvwxyz'[nth]}zebroid"
    path = root / "sympy" / "core" / "add.py"
    started = time.perf_counter()
    path.write_text(path.read_text() + f"\n\ndef {name}():\n    return {nth}\n")
    while True:
        found = app.rag.search(CodeQuery(name, "repo", 1, 400), caller())
        if found.hits and name in found.hits[0].text:
            return (time.perf_counter() - started) * 1000
