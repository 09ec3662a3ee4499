"""Renames in checkouts of real repositories, judged by compilers, type checkers and pyright's own rename.

The renames of a repository are made one after the other; its judge runs before the first and after the last. What it
says then and did not say before is counted against the renames whose names it mentions.
"""

import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from llmc_mcp.app import App
from llmc_mcp.config.schema import Config
from llmc_mcp.context import Context
from llmc_mcp.errors import LlmcError
from llmc_mcp.gate.log import correlation_id
from llmc_mcp.rag.parse.scopes import CLASSES, FUNCTIONS, LOCAL, PART
from llmc_mcp.rag.query import questions
from llmc_mcp.rag.query.resolve import DefinitionPlace
from llmc_mcp.rag.query.search import GraphView, QueryCaller
from llmc_mcp.session import Session
from llmc_mcp.tools.code_edit import CodeEdit, code_edit

from ..graph.oracle import Pyright

_SESSION = Session(principal="bench", session_id="bench")
_KINDS = (CLASSES | FUNCTIONS | {"constant"}) - {PART, "prototype", "module", "namespace", "property"}
_PLACE = re.compile(r"[^\s:(]+[:(]\d+[^a-zA-Z]*")
_SAID = re.compile(r"^(?!\d+ errors).*(?:error|warning|undefined|undeclared)")
_SKIPPED = re.compile(r"(?:^|/)(?:tests?|examples?|docs?|vendor|third_party|bench)|test|_$|^__")


class Renamed(NamedTuple):
    """One rename, and what became of it."""

    symbol: str
    old: str
    new: str
    places: int = 0
    files: int = 0
    ms: float = 0.0
    likely: int = 0
    refused: str = ""
    wrong: int = 0  # places that pyright's rename leaves alone
    missed: int = 0  # places that only pyright's rename changes


class Scored(NamedTuple):
    """The renames of a repository, and what its judge said of them."""

    repository: str
    language: str
    judge: str
    renamed: list[Renamed]
    blamed: dict[str, list[str]]  # by symbol: what the judge says now and did not say before


def score(folder: Path, language: str, judge: list[str], most: int, seed: int) -> Scored:
    """Rename definitions of a checkout, which is changed by it."""
    with tempfile.TemporaryDirectory() as data:
        app = App(Config(), [str(folder)], data)
        try:
            before = said(folder, judge)
            chosen = _choose(app, language, most, seed)
            by_pyright = _pyright_places(folder, chosen) if language == "python" else {}
            renamed = [_rename(app, folder, one, by_pyright.get(one.symbol)) for one in chosen]
        finally:
            app.close()
    new = said(folder, judge) - before
    return Scored(folder.name, language, judge[0] if judge else "none", renamed, _blame(new, renamed))


def said(folder: Path, judge: list[str]) -> Counter[str]:
    """What a judge reports, without the places, which move."""
    if not judge:
        return Counter()
    done = subprocess.run(judge, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
    lines = (line for line in (done.stdout + done.stderr).splitlines() if _SAID.search(line))
    return Counter(_PLACE.sub("", line, count=1).strip() for line in lines)


def _blame(new: Counter[str], renamed: list[Renamed]) -> dict[str, list[str]]:
    blamed: dict[str, list[str]] = {}
    for line in new:
        words = set(re.findall(r"\w+", line))
        guilty = [one for one in renamed if not one.refused and words & {one.old, one.new}]
        for one in guilty or [Renamed("?", "", "")]:
            blamed.setdefault(one.symbol, []).append(line)
    return blamed


def _context(app: App) -> Context:
    return Context(app, _SESSION, correlation_id=correlation_id())


def _choose(app: App, language: str, most: int, seed: int) -> list[Renamed]:
    """Definitions that are used elsewhere, by a fixed seed; of one name only one."""

    def question(view: GraphView) -> list[Renamed]:
        every: list[tuple[DefinitionPlace, str]] = []
        for file, path, own in view.files.files():
            if own == language and not _SKIPPED.search(path):
                bindings = view.files.record(file).bindings
                for place, one in enumerate(view.graph.symbols(file)):
                    if one.kind in _KINDS and (place, LOCAL) not in bindings and not _SKIPPED.search(one.name):
                        every.append((DefinitionPlace(file, place), f"{path}:{one.qualname}"))
        random.Random(seed).shuffle(every)
        found: dict[str, Renamed] = {}
        for target, symbol in every:
            name = view.graph.symbol(target).name
            if name not in found and len(name) > 3 and len(questions.find(view, symbol)) == 1:
                uses = view.graph.uses([target])
                if any(use.confidence == "exact" for use in uses):
                    found[name] = Renamed(symbol, name, _new_name(name))
            if len(found) == most:
                break
        return list(found.values())

    until = time.monotonic() + 900
    (answer, _), *_ = app.rag.ask(question, QueryCaller(_SESSION, until, lambda: None))
    return answer


def _new_name(name: str) -> str:
    return f"{name}_RENAMED" if name.isupper() else f"{name}Renamed"


def _rename(app: App, folder: Path, one: Renamed, judged: set[tuple[str, int]] | None) -> Renamed:
    before = {path: (folder / path).read_bytes() for path, _ in judged or ()}
    began = time.perf_counter()
    try:
        done = code_edit(_context(app), one.symbol, "rename", new_name=one.new)
    except LlmcError as exc:
        return one._replace(refused=f"{exc.code}: {exc.message}"[:150])
    spent = (time.perf_counter() - began) * 1000
    one = one._replace(places=done.places, files=len(done.files), ms=spent, likely=done.likely or 0)
    if judged is None:
        return one
    changed = _changed_lines(folder, done, before)
    listed = {
        (found[1], int(found[2])) for found in re.finditer(r"^(\S+?):(\d+) (?:likely|name_only)", done.detail, re.M)
    }
    return one._replace(wrong=len(changed - judged), missed=len(judged - changed - listed))


def _changed_lines(folder: Path, done: CodeEdit, before: dict[str, bytes]) -> set[tuple[str, int]]:
    found: set[tuple[str, int]] = set()
    for name in done.files:
        path = os.path.relpath(name, folder)
        old = before.get(path)
        new = (folder / path).read_bytes().split(b"\n")
        if old is None:  # a file that pyright does not change at all
            found.add((path, 0))
            continue
        found |= {(path, at) for at, (a, b) in enumerate(zip(old.split(b"\n"), new, strict=False), 1) if a != b}
    return found


def _pyright_places(folder: Path, chosen: list[Renamed]) -> dict[str, set[tuple[str, int]]]:
    """The lines that pyright's rename would change."""
    found: dict[str, set[tuple[str, int]]] = {}
    with Pyright(folder) as server:
        for one in chosen:
            path = one.symbol.partition(":")[0]
            for number, line in enumerate((folder / path).read_text("utf-8", "replace").split("\n"), 1):
                head = re.match(rf"\s*(?:async def|def|class)?\s*(?<![\w.]){re.escape(one.old)}(?!\w)", line)
                if head is not None and ("def " in head[0] or "class " in head[0] or not line[:1].isspace()):
                    places = server.renamed(path, number, head.end() - len(one.old), one.new)
                    if places:
                        found[one.symbol] = places
                    break
    return found


def judges(language: str, tsc: str, go: str) -> list[str]:
    """The command that checks a checkout in a language, if there is one here."""
    if language == "python":
        return [str(Path(sys.executable).with_name("pyright")), "."]
    if language == "typescript" and tsc:
        return ["node", tsc, "--noEmit", "--pretty", "false", "-p", "."]
    if language == "go" and go:
        return [go, "vet", "./..."]
    if language == "java" and shutil.which("javac"):
        found = '$(find . -path "*src/main/java*" -name "*.java" -not -name module-info.java)'
        script = f'javac -proc:none -Xmaxerrs 10000 -nowarn -d "$(mktemp -d)" {found}'
        return ["sh", "-c", script]
    if language in ("c", "cpp") and shutil.which("gcc"):
        compiler, ending = ("gcc", "c") if language == "c" else ("g++ -std=c++17", "cc")
        found = f'find . -name "*.{ending}" -not -path "*test*" -not -path "*benchmark*" -not -path "*/win/*" | sort'
        return ["sh", "-c", f"for f in $({found}); do {compiler} -fsyntax-only -w -Iinclude -Isrc -I. $f; done"]
    return []
