"""Renames in checkouts of real repositories, judged by compilers, type checkers and pyright's own rename.

A server as clients start it makes the renames of a repository one after the other; its judge runs before the first and
after the last. What it says then and did not say before is counted against the renames whose names it mentions.
"""

import json
import os
import random
import re
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from llmc_mcp.app import App
from llmc_mcp.config.schema import Config
from llmc_mcp.rag.parse.scopes import CLASSES, FUNCTIONS, LOCAL, PART
from llmc_mcp.rag.query import questions
from llmc_mcp.rag.query.resolve import DefinitionPlace
from llmc_mcp.rag.query.search import GraphView, QueryCaller
from llmc_mcp.session import Session

from .. import procfs, servers
from ..client import Client, ClientError
from ..graph.oracle import Pyright
from .judges import Judge, Repository, blame

_SESSION = Session(principal="bench", session_id="bench")
_KINDS = (CLASSES | FUNCTIONS | {"constant"}) - {PART, "prototype", "module", "namespace", "property"}
_SKIPPED = re.compile(r"(?:^|/)(?:tests?|examples?|docs?|vendor|third_party|bench)|test|_$|^__")
_FAMILIES = {"typescript": {"typescript", "tsx"}}
_PATIENCE_S = 900.0


class Renamed(NamedTuple):
    """One rename, and what became of it."""

    symbol: str
    old: str
    new: str
    line: int
    places: int = 0
    files: int = 0
    ms: float = 0.0
    cpu_ms: float = 0.0  # of the server and all its processes, the index included
    likely: int = 0
    refused: str = ""
    wrong: tuple[tuple[str, int], ...] = ()  # lines that pyright's rename leaves alone
    missed: tuple[tuple[str, int], ...] = ()  # lines that only pyright's rename changes
    judged: bool = False  # by pyright's rename


class Scored(NamedTuple):
    """The renames of a repository, and what its judge said of them."""

    repository: Repository
    renamed: list[Renamed]
    blamed: dict[str, list[str]]  # by symbol: what the judge says now and did not say before
    former: int  # findings before the first rename
    rss: float  # of the server, the most, in MB


def score(repository: Repository, checkouts: Path, modules: Path, most: int, seed: int) -> Scored:
    """Rename definitions of a copy of a checkout."""
    with tempfile.TemporaryDirectory(prefix="renames-") as aside:
        folder, scratch = Path(aside, "root", repository.name.partition("/")[2]), Path(aside, "scratch")
        repository.unpack(checkouts.resolve(), folder)
        scratch.mkdir()
        env = {"CHECKOUTS": str(checkouts.resolve()), "NODE_MODULES": str(modules.resolve()), "SCRATCH": str(scratch)}
        judge = Judge(repository, folder, env)
        before = judge.said({})
        chosen = _choose(folder, Path(aside, "data"), repository.language, most, seed)
        by_pyright = _pyright_places(folder, chosen) if repository.language == "python" else {}
        renamed, rss = _rename_all(folder, Path(aside), chosen, by_pyright)
        made = [one for one in renamed if not one.refused]
        new = judge.said({one.new: one.old for one in made}) - before
    return Scored(repository, renamed, blame(new, {one.old: one.symbol for one in made}), before.total(), rss)


def _choose(folder: Path, data: Path, language: str, most: int, seed: int) -> list[Renamed]:
    """Definitions that are used elsewhere, by a fixed seed; of one name only one."""
    family = _FAMILIES.get(language, {language})

    def question(view: GraphView) -> list[Renamed]:
        every: list[tuple[DefinitionPlace, str]] = []
        for file, path, own in view.files.files():
            if own in family and not _SKIPPED.search(path):
                bindings = view.files.record(file).bindings
                for place, one in enumerate(view.graph.symbols(file)):
                    if one.kind in _KINDS and (place, LOCAL) not in bindings and not _SKIPPED.search(one.name):
                        every.append((DefinitionPlace(file, place), f"{path}:{one.qualname}"))
        random.Random(seed).shuffle(every)
        found: dict[str, Renamed] = {}
        for target, symbol in every:
            own = view.graph.symbol(target)
            if own.name not in found and len(own.name) > 3 and len(questions.find(view, symbol)) == 1:
                uses = view.graph.uses([target])
                if any(use.confidence == "exact" for use in uses):
                    found[own.name] = Renamed(symbol, own.name, _new_name(own.name), own.first_line)
            if len(found) == most:
                break
        return list(found.values())

    app = App(Config(), [str(folder)], str(data))
    try:
        (answer, _), *_ = app.rag.ask(question, QueryCaller(_SESSION, time.monotonic() + _PATIENCE_S, lambda: None))
    finally:
        app.close()
    return answer


def _new_name(name: str) -> str:
    return f"{name}_RENAMED" if name.isupper() else f"{name}Renamed"


def _rename_all(
    folder: Path, homes: Path, chosen: list[Renamed], judged: dict[str, set[tuple[str, int]]]
) -> tuple[list[Renamed], float]:
    """All renames, by one server, and how large it became."""
    renamed: list[Renamed] = []
    rss = 0
    with servers.llmc(folder, homes, "classic").start(folder, timeout=_PATIENCE_S) as client:
        client.initialize()
        _wait_for_the_index(client, chosen)
        for one in chosen:
            now = one._replace(symbol=_as_it_is_now(one.symbol, folder, renamed))
            renamed.append(_rename(client, folder, now, judged.get(one.symbol))._replace(symbol=one.symbol))
            rss = max(rss, procfs.status(client.pid)["VmRSS"])
    return renamed, rss * 1024 / 1e6


def _as_it_is_now(symbol: str, folder: Path, renamed: list[Renamed]) -> str:
    """A symbol whose class, and the file that is called like it, may have been renamed."""
    path, _, qualname = symbol.partition(":")
    names = {one.old: one.new for one in renamed if not one.refused}
    *owners, own = qualname.split(".")
    if not (folder / path).exists():
        stem = Path(path).stem
        path = str(Path(path).with_stem(names.get(stem, stem)))
    return f"{path}:{'.'.join([*(names.get(owner, owner) for owner in owners), own])}"


def _wait_for_the_index(client: Client, chosen: list[Renamed]) -> None:
    until = time.monotonic() + _PATIENCE_S
    for one in chosen[:1]:
        while time.monotonic() < until:
            try:
                client.call("code_edit", _rename_of(one, dry_run=True))
                return
            except ClientError as exc:
                if "RESOURCE_BUSY" not in str(exc):
                    return


def _rename_of(one: Renamed, *, dry_run: bool = False) -> dict[str, Any]:
    return {"symbol": one.symbol, "action": "rename", "new_name": one.new, "dry_run": dry_run}


def _rename(client: Client, folder: Path, one: Renamed, judged: set[tuple[str, int]] | None) -> Renamed:
    before = {path: (folder / path).read_bytes() for path, _ in judged or ()}
    began, spent = time.perf_counter(), procfs.cpu_ms(client.pid)
    try:
        done = json.loads(client.call("code_edit", _rename_of(one)))
    except ClientError as exc:
        return one._replace(refused=str(exc)[:200])
    took, spent = (time.perf_counter() - began) * 1000, procfs.cpu_ms(client.pid) - spent
    one = one._replace(places=done["places"], files=len(done["files"]), likely=done.get("likely") or 0)
    one = one._replace(ms=took, cpu_ms=spent)
    if judged is None:
        return one
    changed = _changed_lines(folder, done["files"], before)
    found = re.finditer(r"^(\S+?):(\d+) (?:likely|name_only)", done["detail"], re.M)
    listed = {(one[1], int(one[2])) for one in found}
    return one._replace(
        wrong=tuple(sorted(changed - judged)), missed=tuple(sorted(judged - changed - listed)), judged=True
    )


def _changed_lines(folder: Path, files: list[str], before: dict[str, bytes]) -> set[tuple[str, int]]:
    found: set[tuple[str, int]] = set()
    for name in files:
        path = os.path.relpath(folder / name, folder)
        old = before.get(path)
        new = (folder / path).read_bytes().split(b"\n")
        if old is None:  # a file that pyright does not change at all
            found.add((path, 0))
            continue
        found |= {(path, at) for at, (a, b) in enumerate(zip(old.split(b"\n"), new, strict=False), 1) if a != b}
    return found


def _pyright_places(folder: Path, chosen: list[Renamed]) -> dict[str, set[tuple[str, int]]]:
    """The lines that pyright's rename would change, of each definition."""
    found: dict[str, set[tuple[str, int]]] = {}
    settings = folder / "pyrightconfig.json"
    with Pyright(folder) as server:
        for one in chosen:
            path = one.symbol.partition(":")[0]
            lines = (folder / path).read_text("utf-8", "replace").split("\n")
            for number, line in enumerate(lines[one.line - 1 :], one.line):
                if not line.lstrip().startswith(("@", "#")) and (name := re.search(rf"\b{re.escape(one.old)}\b", line)):
                    if places := server.renamed(path, number, name.start(), one.new):
                        found[one.symbol] = places
                    break
    settings.unlink()
    return found
