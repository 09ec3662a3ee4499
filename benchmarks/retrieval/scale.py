"""The index at the size of a company: several repositories below one root, many indexes of one user, many small files.

Sources are folders or git repositories, bare ones too, in the folder that `--sources` names. What is measured is a
real server over stdio, in a process of its own. Memory is of all its processes, those that build and those that
search: their own pages, one that several share counted once, and those of mapped files, which the kernel takes back.
"""

import json
import random
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from llmc_mcp.files.ripgrep import find_ripgrep
from llmc_mcp.rag.store.layout import home_of
from llmc_mcp.rag.store.tables import IndexTables

from .. import procfs
from ..client import Client, ClientError
from ..report import median, milliseconds, number, percentile, verdict
from ..servers import llmc
from .baselines import semble_cost

_BYTES_A_CHUNK = 1_250
_QUESTIONS = 200
_CHANGED = 2_000
_MANY = 100
_SAMPLE_S = 0.25
_LONGEST_S = 3_600.0
_RIPGREP = 20  # of the questions: each reads all files
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
    """The most memory that the processes of a server had, in MB."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.own, self.mapped = 0.0, 0.0

    def look(self) -> None:
        """Add up what all of them have now."""
        memory = procfs.memory(self._pid)
        self.own, self.mapped = max(self.own, memory.own), max(self.mapped, memory.pss)


class Served:
    """A server that is asked for what the benchmark needs."""

    def __init__(self, client: Client) -> None:
        self._client, self.pid = client, client.pid

    def search(self, text: str, **how: object) -> dict[str, Any]:
        return json.loads(self._client.call("rag_search", {"query": text, **how}))

    def graph(self, name: str) -> None:
        """A question that waits for the references of all files; too many definitions may have the name."""
        with suppress(ClientError):
            self._client.call("rag_where_used", {"symbol": name, "limit": 1})

    def index(self) -> None:
        """Bring the index up to date, however long that takes."""
        while json.loads(self._client.call("rag_index", {}))["state"] != "up to date":
            pass

    def is_fresh(self) -> bool:
        """Whether all changed code can be found by the index; to ask for documents takes no time from that."""
        return self.search("quagga", scope="docs")["freshness"] == "fresh"

    def stats(self) -> dict[str, Any]:
        return json.loads(self._client.call("rag_stats", {}))

    def cpu(self) -> float:
        """The CPU time of all its processes so far, in seconds."""
        return procfs.cpu_ms(self.pid) / 1000

    @contextmanager
    def watched(self) -> Generator[Peak]:
        """The peak of a block."""
        peak, over = Peak(self.pid), threading.Event()

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


@contextmanager
def _server(root: Path, data: Path, **rag: object) -> Generator[Served]:
    data.mkdir(exist_ok=True)
    settings = {"max_files": 1_000_000, **rag}
    options = [word for name, value in settings.items() for word in ("--set", f"rag.{name}={json.dumps(value)}")]
    server = llmc(root, data, "classic")
    server = replace(server, command=(*server.command, *options), extra_env={"LLMC_DATA_DIR": str(data)})
    with server.start(root, timeout=_LONGEST_S) as client:
        client.initialize()
        yield Served(client)


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
    with _server(root, data) as server:
        seen |= _first_build(server)
    questions = _questions(home_of(str(data), str(root).encode()).current() or "")
    with _server(root, data) as server:
        seen["first answer after a restart, ms"] = milliseconds(lambda: server.search(questions[0]))
        server.index()
        with server.watched() as peak:
            seen |= _answers("warm", server.search, questions)
        seen["serving, MB"], seen["serving with mapped files, MB"] = peak.own, peak.mapped
        seen |= _checkouts(server, root)
    return Figures(seen | _beside(root, questions))


def _first_build(server: Served) -> dict[str, float]:
    seen: dict[str, float] = {}
    with server.watched() as peak:
        before, started = server.cpu(), time.perf_counter()
        first = server.search("where is the configuration read")
        seen["first answer of a cold build, s"] = time.perf_counter() - started
        seen["its hits"] = len(first["snippets"])
        while not server.stats()["chunks"]:
            time.sleep(_SAMPLE_S)
        seen["searchable from, s"] = time.perf_counter() - started
        server.index()
        seen["built, s"], seen["built, s CPU"] = time.perf_counter() - started, server.cpu() - before
    seen["building, MB"], seen["building with mapped files, MB"] = peak.own, peak.mapped
    stats = server.stats()
    seen |= {"files": stats["files"], "chunks": stats["chunks"], "index, MB": stats["index_bytes"] / 1e6}
    seen["index ÷ source"] = stats["index_bytes"] / stats["source_bytes"]
    return seen | _by_size(seen)


def _answers(name: str, ask: Callable[[str], object], questions: Sequence[str]) -> dict[str, float]:
    for text in questions[: _QUESTIONS // 10]:
        ask(text)
    took = [milliseconds(lambda text=text: ask(text)) for text in questions]
    return {f"{name} p50, ms": median(took), f"{name} p95, ms": percentile(took, 0.95)}


def _beside(root: Path, questions: Sequence[str]) -> dict[str, float]:
    """The same root and questions with ripgrep, which ranks nothing, and with semble where it is installed."""

    def scan(text: str) -> None:
        command = [find_ripgrep(), "--files-with-matches", "--fixed-strings", "-e", text, "."]
        subprocess.run(command, cwd=root, stdout=subprocess.DEVNULL, check=False)

    took = [milliseconds(lambda text=text: scan(text)) for text in questions[:_RIPGREP]]
    seen = {"ripgrep p50, ms": median(took), "ripgrep p95, ms": percentile(took, 0.95)}
    theirs = semble_cost(root, questions)
    if theirs is not None:
        seen |= {"semble built, s": theirs.built, "semble, MB": theirs.megabytes}
        seen |= {"semble p50, ms": median(theirs.took), "semble p95, ms": percentile(theirs.took, 0.95)}
    return seen


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


def _checkouts(server: Served, root: Path) -> dict[str, float]:
    """Change many files at once, as a checkout does, and go back and forth."""
    code = [path for path in sorted(root.rglob("*.py")) if path.is_file() and not path.is_symlink()][:_CHANGED]
    one = {path: path.read_bytes() for path in code}
    other = {
        path: data + f"\n\ndef quagga_zebroid_{place}():\n    return {place}\n".encode()
        for place, (path, data) in enumerate(one.items())
    }
    name = f"quagga_zebroid_{len(code) - 1}"  # in the file that is changed last
    seen: dict[str, float] = {}
    checkouts = {"2,000 changed files": other, "… back to the first build": one, "… and to the change again": other}
    for label, contents in checkouts.items():
        for path, data in contents.items():
            path.write_bytes(data)
        before, started = server.cpu(), time.perf_counter()
        while _is_found(server, name) != (contents is other):
            time.sleep(_SAMPLE_S / 2)
        seen[f"{label} found, s"] = time.perf_counter() - started
        while not server.is_fresh():
            time.sleep(_SAMPLE_S / 2)
        seen |= {f"{label} searchable, s": time.perf_counter() - started, f"{label}, s CPU": server.cpu() - before}
        server.graph("main")
        seen[f"{label} in the graph, s"] = time.perf_counter() - started
    return seen


def _is_found(server: Served, name: str) -> bool:
    """Whether a search shows the definition of a name first, by text or by the index."""
    return any(f"def {name}(" in row["text"] for row in server.search(name)["snippets"][:1])


def cpp(work: Path, sources: Path) -> Figures:
    """One repository of C++, the one among the sources that has most of it."""
    roots: list[Path] = []
    for source in sorted(sources.iterdir()):
        _unpack(source, work / source.name, 1)
        roots.append(work / source.name)
    root = max(roots, key=lambda one: sum(path.suffix in (".cc", ".h") for path in one.rglob("*")) / _files(one))
    data = work / "cpp-data"
    _unpack_grammars(work / "one-file", data)
    with _server(root, data) as server:
        before = server.cpu()
        built = milliseconds(server.index) / 1000
        files = server.stats()["files"]
        return Figures({"C++ files": files, "C++ built, s": built, "C++, s CPU": server.cpu() - before})


def _unpack_grammars(root: Path, data: Path) -> None:
    """Index one file: the first index of a machine unpacks all grammars, which takes 0.2 s, and is not C++."""
    root.mkdir()
    (root / "one.cc").write_text("int one() { return 1; }\n")
    with _server(root, data) as server:
        server.index()


def _files(root: Path) -> int:
    return max(sum(path.is_file() for path in root.rglob("*")), 1)


def clones(work: Path, sources: Path) -> Figures:
    """A second clone of the first repository."""
    one, other, data = work / "one", work / "other", work / "clones"
    _unpack(sorted(sources.iterdir())[0], one, 1)
    with _server(one, data) as server:
        built = milliseconds(server.index) / 1000
    shutil.copytree(one, other, symlinks=True, copy_function=shutil.copyfile)
    before = _disk(data)
    with _server(other, data) as server:
        seeded = milliseconds(server.index) / 1000
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
        with _server(folder, data) as server:
            server.index()
    questions = _questions(home_of(str(data), str(folders[0]).encode()).current() or "")
    with _server(projects, data, roots=[str(folders[0])]) as server:

        def ask(text: str) -> object:
            return server.search(text, repos=["*"])

        first = milliseconds(lambda: ask(questions[0]))
        seen = _answers("100 repositories", ask, questions)
    return Figures({"repositories": len(folders), "first answer, ms": first, **seen})


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
    with _server(root, data) as server, server.watched() as peak:
        built = milliseconds(server.index) / 1000
        stats = server.stats()
    return Figures(
        {
            "small files": stats["files"],
            "built, s": built,
            "index, MB": stats["index_bytes"] / 1e6,
            "building, MB": peak.own,
            "building with mapped files, MB": peak.mapped,
        }
    )
