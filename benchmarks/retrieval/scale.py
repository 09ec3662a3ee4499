"""The index at the size of a company: several repositories below one root, many indexes of one user, many small files.

Sources are folders or git repositories, bare ones too, in the folder that `--sources` names. What is measured is
the real engine, as a server uses it: no part is run alone. Memory is of all processes that build or serve.
"""

import os
import random
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from llmc_mcp.app import App
from llmc_mcp.config.schema import Config
from llmc_mcp.rag.query.search import CodeQuery, QueryCaller
from llmc_mcp.rag.store.layout import home_of
from llmc_mcp.rag.store.tables import IndexTables
from llmc_mcp.session import Session

from .. import procfs
from ..report import median, number, percentile, verdict

_WHO = Session(principal="uid:0", session_id="benchmark", agent_id="benchmark")
_BYTES_A_CHUNK = 1_250
_QUESTIONS = 200
_CHANGED = 2_000
_MANY = 100
_SAMPLE_S = 0.2
_BARS = {
    "warm p95, ms": 40.0,
    "first answer after a restart, ms": 400.0,
    "serving, MB": 250.0,
    "building, MB": 700.0,
    "2,000 changed files searchable, s": 3.0,
    "1,000,000 chunks built, s": 480.0,
    "searchable from, s": 60.0,
    "C++ built, s": 5.0,
    "100 repositories p95, ms": 80.0,
    "clone indexed, s": 0.5,
    "clone, % of the disk": 10.0,
}


class Peak:
    """The most memory that the processes of a server had, in MB: their own, and with mapped files."""

    def __init__(self) -> None:
        self.own, self.rss = 0.0, 0.0

    def look(self) -> None:
        own = rss = 0.0
        for pid in procfs.tree(os.getpid()):
            status = procfs.status(pid)
            own += status.get("RssAnon", 0) / 1e3
            rss += status.get("VmRSS", 0) / 1e3
        self.own, self.rss = max(self.own, own), max(self.rss, rss)


@contextmanager
def _watched() -> Generator[Peak]:
    """The peak of a block."""
    peak, over = Peak(), threading.Event()

    def watch() -> None:
        while not over.wait(_SAMPLE_S):
            peak.look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


def _caller(patience: float = 3_600.0) -> QueryCaller:
    return QueryCaller(_WHO, time.monotonic() + 3_600, lambda: None, compare=0.25, patience=patience)


@contextmanager
def _server(root: Path, data: Path, **rag: object) -> Generator[App]:
    data.mkdir(exist_ok=True)
    config = Config()
    for name, value in rag.items():
        setattr(config.rag, name, value)
    app = App(config, [str(root)], str(data))
    try:
        yield app
    finally:
        app.close()


def gather(sources: Path, root: Path, chunks: int) -> int:
    """Unpack repositories below one root until they are about so many chunks; returns how many repositories."""
    wanted, count, again = chunks * _BYTES_A_CHUNK, 0, 1
    while wanted > 0:
        before = wanted
        for source in sorted(sources.iterdir()):
            if wanted <= 0:
                break
            target = root / (source.name if again == 1 else f"{source.name}-{again}")
            wanted -= _unpack(source, target, again)
            count += 1
        if wanted == before:
            raise SystemExit(f"no sources in {sources}")
        again += 1
    return count


def _unpack(source: Path, target: Path, again: int) -> int:
    """One repository; the second time round every name has another ending, so that words do not repeat themselves."""
    git = next((place for place in (source, source / "repo") if (place / "HEAD").exists()), None)
    if git is None and (source / ".git").exists():
        git = source / ".git"
    target.mkdir(parents=True)
    if git is not None:
        command = ["git", "--git-dir", git, "archive", "HEAD", "--", ".", *_absent(git)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as archive:
            subprocess.run(["tar", "x", "-C", target], stdin=archive.stdout, check=False)
    elif source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    size = 0
    for path in target.rglob("*"):
        if path.is_symlink() or not path.is_file():
            continue
        data = path.read_bytes()
        if b"\0" in data or len(data) > 1 << 20:
            continue
        size += len(data)
        if again > 1:
            path.write_bytes(re.sub(rb"[A-Za-z]{7,}", lambda word: word[0] + b"x" * again, data))
    return size


def _absent(git: Path) -> list[str]:
    """Pathspecs that leave out what a partial clone lacks: an archive would end there."""
    listing = ["git", "--git-dir", git, "ls-tree", "-r", "--format=%(objectname) %(path)", "HEAD"]
    rows = [row.split(" ", 1) for row in subprocess.check_output(listing, text=True).splitlines()]
    check = ["git", "--git-dir", git, "cat-file", "--batch-check"]
    names = "".join(f"{name}\n" for name, _ in rows)
    answers = subprocess.run(check, input=names, capture_output=True, text=True, check=True).stdout.splitlines()
    missing = {answer.split()[0] for answer in answers if answer.endswith(" missing")}
    return [f":(exclude,literal){path}" for name, path in rows if name in missing]


def _questions(build: str) -> list[str]:
    """Names of definitions, one half as they are and one half in words."""
    tables = IndexTables(build)
    rows = tables.rows("SELECT name FROM symbols WHERE length(name)>10 ORDER BY name")
    tables.close()
    names = random.Random(7).sample([row[0] for row in rows], min(_QUESTIONS, len(rows)))
    parts = [" ".join(re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)) for name in names]
    return [
        name if number % 2 else words or name for number, (name, words) in enumerate(zip(names, parts, strict=True))
    ]


def _ms(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return (time.perf_counter() - started) * 1000


class Figures(NamedTuple):
    """What was seen, by name."""

    rows: dict[str, float]

    def table(self) -> list[list[str]]:
        return [
            [name, number(value), number(_BARS[name]) if name in _BARS else "", _judged(name, value)]
            for name, value in self.rows.items()
        ]


def _judged(name: str, value: float) -> str:
    return verdict(value, _BARS[name]) if name in _BARS else ""


def large(work: Path, sources: Path, chunks: int) -> Figures:
    """One root of several repositories."""
    root, data = work / "root", work / "data"
    seen: dict[str, float] = {"repositories": gather(sources, root, chunks)}
    with _server(root, data) as app, _watched() as peak:
        before, started = _cpu(), time.perf_counter()
        first = app.rag.search(CodeQuery("where is the configuration read"), _caller(patience=2.0))
        seen["first answer of a cold build, s"] = time.perf_counter() - started
        seen["its hits"] = len(first.hits)
        while not ((now := app.rag.stats()[0]).totals and now.totals.chunks):
            time.sleep(_SAMPLE_S)
        seen["searchable from, s"] = time.perf_counter() - started
        app.rag.refresh(None, False, _caller())
        seen["built, s"], seen["built, s CPU"] = time.perf_counter() - started, _cpu() - before
        seen["building, MB"], seen["building with mapped files, MB"] = peak.own, peak.rss
        (stats,) = app.rag.stats()
        assert stats.totals is not None
        seen |= {"files": stats.totals.files, "chunks": stats.totals.chunks, "index, MB": stats.bytes / 1e6}
        seen["index ÷ source"] = stats.bytes / stats.totals.source_bytes
        seen |= _by_size(seen)
    home = home_of(str(data), str(root).encode())
    questions = _questions(home.current() or "")
    with _server(root, data) as app, _watched() as peak:
        seen["first answer after a restart, ms"] = _ms(lambda: app.rag.search(CodeQuery(questions[0]), _caller()))
        app.rag.refresh(None, False, _caller())
        for text in questions[:20]:
            app.rag.search(CodeQuery(text), _caller())
        warm = [_ms(lambda text=text: app.rag.search(CodeQuery(text), _caller())) for text in questions]
        seen |= {"warm p50, ms": median(warm), "warm p95, ms": percentile(warm, 0.95)}
        seen["serving, MB"], seen["serving with mapped files, MB"] = peak.own, peak.rss
        seen |= _checkouts(app, root)
    return Figures(seen)


def _by_size(seen: Mapping[str, float]) -> dict[str, float]:
    """What 100,000 chunks take: compare runs of different sizes to see whether that grows."""
    share = 100_000 / seen["chunks"]
    rows = {
        "100,000 chunks, s": share * seen["built, s"],
        "100,000 chunks, s CPU": share * seen["built, s CPU"],
        "100,000 chunks, MB": share * seen["index, MB"],
    }
    if seen["chunks"] >= 900_000:
        rows["1,000,000 chunks built, s"] = 10 * rows["100,000 chunks, s"]
    return rows


def _cpu() -> float:
    """The CPU time of all processes so far, in seconds."""
    return procfs.cpu_ms(os.getpid()) / 1000


def _checkouts(app: App, root: Path) -> dict[str, float]:
    """Change many files at once, as a checkout does, and go back and forth."""
    code = [path for path in sorted(root.rglob("*.py")) if path.is_file() and not path.is_symlink()][:_CHANGED]
    one = {path: path.read_bytes() for path in code}
    other = {
        path: data + f"\n\ndef quagga_zebroid_{place}():\n    return {place}\n".encode()
        for place, (path, data) in enumerate(one.items())
    }
    seen: dict[str, float] = {}
    checkouts = {"2,000 changed files": other, "… back to the first build": one, "… and to the change again": other}
    for name, contents in checkouts.items():
        for path, data in contents.items():
            path.write_bytes(data)
        before, started = _cpu(), time.perf_counter()
        while app.rag.search(CodeQuery("quagga zebroid"), _caller()).freshness != "fresh":
            time.sleep(_SAMPLE_S)
        seen |= {f"{name} searchable, s": time.perf_counter() - started, f"{name}, s CPU": _cpu() - before}
        app.rag.ask(lambda view: len(view.graph.find("main")), _caller())
        seen[f"{name} in the graph, s"] = time.perf_counter() - started
    return seen


def cpp(work: Path, sources: Path) -> Figures:
    """One repository of C++, the one among the sources that has most of it."""
    roots: list[Path] = []
    for source in sorted(sources.iterdir()):
        _unpack(source, work / source.name, 1)
        roots.append(work / source.name)
    root = max(roots, key=lambda one: sum(path.suffix in (".cc", ".h") for path in one.rglob("*")) / _files(one))
    with _server(root, work / "cpp-data") as app:
        before = _cpu()
        built = _ms(lambda: app.rag.refresh(None, False, _caller())) / 1000
        (stats,) = app.rag.stats()
        assert stats.totals is not None
        return Figures({"C++ files": stats.totals.files, "C++ built, s": built, "C++, s CPU": _cpu() - before})


def _files(root: Path) -> int:
    return max(sum(path.is_file() for path in root.rglob("*")), 1)


def clones(work: Path, sources: Path) -> Figures:
    """A second clone of the first repository."""
    one, other, data = work / "one", work / "other", work / "clones"
    _unpack(sorted(sources.iterdir())[0], one, 1)
    with _server(one, data) as app:
        built = _ms(lambda: app.rag.refresh(None, False, _caller())) / 1000
    shutil.copytree(one, other, symlinks=True, copy_function=shutil.copyfile)
    before = _disk(data)
    with _server(other, data) as app:
        seeded = _ms(lambda: app.rag.refresh(None, False, _caller())) / 1000
    share = 100 * (_disk(data) - before) / before
    return Figures({"first indexed, s": built, "clone indexed, s": seeded, "clone, % of the disk": share})


def _disk(folder: Path) -> float:
    listed = subprocess.run(["du", "-sk", folder / "index"], capture_output=True, text=True, check=True)
    return float(listed.stdout.split()[0])


def many(work: Path, sources: Path) -> Figures:
    """A hundred repositories of one user, searched at once."""
    data, projects = work / "many", work / "projects"
    folders = _parts(sources, projects)
    for folder in folders:
        with _server(folder, data) as app:
            app.rag.refresh(None, False, _caller())
    build = home_of(str(data), str(folders[0]).encode()).current() or ""
    questions = _questions(build)
    with _server(projects, data, roots=(str(folders[0]),)) as app:

        def ask(text: str) -> object:
            return app.rag.search(CodeQuery(text, repos=("*",)), _caller())

        first = _ms(lambda: ask(questions[0]))
        for text in questions[:10]:
            ask(text)
        warm = [_ms(lambda text=text: ask(text)) for text in questions]
    return Figures(
        {
            "repositories": len(folders),
            "first answer, ms": first,
            "100 repositories p50, ms": median(warm),
            "100 repositories p95, ms": percentile(warm, 0.95),
        }
    )


def _parts(sources: Path, projects: Path) -> Sequence[Path]:
    """A hundred folders with code in them, as repositories of their own."""
    made: list[Path] = []
    whole = projects / ".whole"
    for source in sorted(sources.iterdir()):
        _unpack(source, whole / source.name, 1)
        for folder in sorted(path for path in (whole / source.name).rglob("*") if path.is_dir()):
            if len(made) == _MANY:
                return made
            if sum(path.is_file() for path in folder.iterdir()) >= 3 and not folder.is_symlink():
                target = projects / f"{source.name}-{len(made)}"
                shutil.copytree(folder, target, symlinks=True)
                made.append(target)
    return made


def small(work: Path, files: int) -> Figures:
    """Very many small files."""
    root, data = work / "small", work / "small-data"
    for place in range(files):
        path = root / f"part_{place // 1_000}" / f"module_{place}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"def compute_{place}(value):\n    return value + {place}\n")
    with _server(root, data) as app, _watched() as peak:
        built = _ms(lambda: app.rag.refresh(None, False, _caller())) / 1000
        (stats,) = app.rag.stats()
        assert stats.totals is not None
    return Figures(
        {
            "small files": stats.totals.files,
            "built, s": built,
            "index, MB": stats.bytes / 1e6,
            "building, MB": peak.own,
            "building with mapped files, MB": peak.rss,
        }
    )
