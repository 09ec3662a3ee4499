"""From a question to snippets: find the chunks, read them from the disk as they are now, show what the budget allows.

The first search builds the index; later ones find it watched. What a hit shows is never taken from the index: its file
is read, and where its content is not what was indexed, the file is indexed again and the question asked again.
"""

import hashlib
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

import msgspec

from ...config.schema import Config
from ...errors import FeatureUnavailable, Internal, InvalidArgument, LlmcError, ResourceBusy
from ...files import names
from ...files.filesystem import Filesystem, Place, Root
from ...kernel.launcher import Launcher
from ...session import Session
from ...store.leases import Leases
from ..build.keeper import News
from ..build.keeper_client import Builder, IndexSpec
from ..build.walk import WalkRules
from ..parse import words
from ..store import embed, rank
from ..store.index import File, IndexDamaged, IndexReader, Totals
from ..store.layout import home_of
from . import snippets
from .globs import Glob

if TYPE_CHECKING:
    from .graph import Graph
    from .graph_index import IndexedFiles

Scope = Literal["repo", "docs", "both"]


_REFRESH_S = 2.0  # how long a search waits for an index that is there to be compared with the files
_QUIET_S = 0.2  # … for changes that are being taken in
_CHANGED_S = 2.0  # … for a file that changed to be indexed again
_TURN_S = 0.05  # how often one who waits for his turn to ask is asked whether he still wants to
_ROUNDS = 3  # how often a question is asked while its files keep changing
_SPARE = 4  # hits beyond those asked for, should some be gone
_CHECK_EVERY = 500  # paths that are compared with a glob before it is asked whether that is still wanted
_AROUND = 24  # tokens that a snippet costs beside its text: where it is from, its name


class RankedSnippet(NamedTuple):
    """One snippet of an answer."""

    text: str
    path: bytes
    root: Root
    numbers: list[int]  # of the lines that the text shows
    score: float
    symbol: str | None
    kind: str | None


class SearchResult(NamedTuple):
    """The snippets that fit, and how far they can be trusted."""

    hits: list[RankedSnippet]
    freshness: str
    candidates: int


class Stats(NamedTuple):
    """What one root's index is like."""

    root: Root
    totals: Totals | None
    bytes: int
    updated: float
    changing: int  # files that changed and are not indexed yet
    notes: list[str]
    embedding: str = ""


class CodeQuery(NamedTuple):
    """A question, and how much of an answer is wanted."""

    text: str
    scope: Scope = "repo"
    limit: int = 3
    budget: int = 600
    path_glob: str | None = None


class GraphView(NamedTuple):
    """What a question to the graph of one root can use."""

    root: Root
    graph: "Graph"
    files: "IndexedFiles"
    read: Callable[[int], bytes | None]  # a file; None, and the question asked again, where it is not what was indexed


Told = TypeVar("Told")


class QueryCaller(NamedTuple):
    """On whose behalf, until when, and whether it is still wanted."""

    who: Session
    until: float
    check: Callable[[], None]
    tell: Callable[[News], None] = lambda _: None  # what the index is doing, while he waits for it


def wanted_from(config: Config) -> IndexSpec:
    """What is indexed, from the configuration."""
    policy, rag = config.policy, config.rag
    rules = WalkRules(
        secret_names=policy.secret_names,
        secret_exceptions=policy.secret_exceptions,
        refuse_foreign_links=policy.hard_links != "allow",
        cross_mounts=policy.cross_mounts,
        max_file_bytes=rag.max_file_bytes,
        max_files=rag.max_files,
    )
    return IndexSpec(rules, rag.embedding)


def check_query(text: str) -> None:
    """Refuse what is no question: every word of it costs time, and a page of them finds nothing in particular."""
    if not text.strip():
        raise InvalidArgument("the query is empty", hint="Ask for what the code does, or for a name in it.")
    if len(text) > words.LONGEST_QUERY:
        raise InvalidArgument(
            f"the query has {len(text):,} characters, {words.LONGEST_QUERY:,} are allowed",
            hint="Ask for what the code does in a sentence, or for a name in it.",
        )


class CodeSearch:
    """The indexes of all roots; made once per server."""

    def __init__(self, files: Filesystem, launcher: Launcher, leases: Leases, data_dir: str, wanted: IndexSpec) -> None:
        self._files = files
        roots = [root for root in files.roots if not any(_inside(root, other) for other in files.roots)]
        self._shelves = [_Shelf(files, launcher, leases, data_dir, wanted, root) for root in roots]

    def search(self, asked: CodeQuery, caller: QueryCaller) -> SearchResult:
        """The best snippets of all roots."""
        check_query(asked.text)
        if asked.path_glob is not None:
            Glob(asked.path_glob)  # one that is refused is refused before anything is built
        found, missing = _of_those_that_can(self._shelves, lambda shelf: (shelf, *shelf.search(asked, caller)))
        notes = [*(note for _, _, note, _ in found), *missing]
        order = sorted(
            ((hit, shelf) for shelf, hits, _, _ in found for hit in hits), key=lambda row: (row[0].nth, -row[0].score)
        )[: asked.limit]
        question = words.question(asked.text)
        shown = snippets.fit([hit.piece for hit, _ in order], question, asked.budget, _AROUND)
        return SearchResult(
            [
                RankedSnippet(text, hit.path, shelf.root, numbers, hit.score, hit.symbol, hit.kind)
                for (hit, shelf), (text, numbers) in zip(order, shown, strict=False)
                if text
            ],
            "; ".join(dict.fromkeys(note for note in notes if note)) or "fresh",
            sum(count for *_, count in found),
        )

    def ask(
        self, question: "Callable[[GraphView], Told]", caller: QueryCaller, root: Root | None = None
    ) -> "list[tuple[Told, str]]":
        """What the graph of each root, or of one, says to a question, and how fresh that is."""
        asked = [shelf for shelf in self._shelves if root is None or shelf.root == root]
        told, missing = _of_those_that_can(asked, lambda shelf: shelf.ask(question, caller))
        return [(one, "; ".join(filter(None, [note, *missing]))) for one, note in told]

    def shelf_of(self, path: str | None) -> "list[_Shelf]":
        """The index that a path belongs to; all of them without one."""
        if path is None:
            return self._shelves
        place = self._files.locate(path)
        os.close(self._files.open_dir(place))
        inner = [shelf for shelf in self._shelves if shelf.root == place.root or _inside(place.root, shelf.root)]
        if not inner:
            raise Internal(f"{path}: no index is responsible for it")
        return inner

    def refresh(self, path: str | None, full: bool, caller: QueryCaller) -> list[News | None]:
        """Bring indexes up to date, or build them anew; None for one that is still under way when time is up."""
        return [shelf.refresh(full, caller) for shelf in self.shelf_of(path)]

    def stats(self) -> list[Stats]:
        """What there is, without building anything."""
        return [shelf.stats() for shelf in self._shelves]

    def state(self) -> str:
        """What there is, in a few words."""
        return "; ".join(shelf.state() for shelf in self._shelves)

    def close(self) -> None:
        """Let the indexing processes end."""
        for shelf in self._shelves:
            shelf.close()


def _of_those_that_can(shelves: "list[_Shelf]", answer: "Callable[[_Shelf], Told]") -> tuple[list["Told"], list[str]]:
    """The answers of all that have an index, and what to say about the others; raises where none has."""
    told: list[Told] = []
    failed: list[LlmcError] = []
    missing: list[str] = []
    for shelf in shelves:
        try:
            told.append(answer(shelf))
        except (FeatureUnavailable, ResourceBusy, Internal) as exc:
            failed.append(exc)
            missing.append(f"{shelf.root.shown} is left out: {exc.message}")
    if failed and not told:
        raise failed[0]
    return told, missing


def _below(root: Root, folder: str) -> str:
    """Where the server's own folder lies below a root; empty where it does not."""
    real, top = os.path.realpath(folder), os.fsdecode(root.real).rstrip("/") + "/"
    return real.removeprefix(top) if real.startswith(top) else ""


def _inside(root: Root, other: Root) -> bool:
    return root.real != other.real and root.real.startswith(other.real.rstrip(b"/") + b"/")


class _LoadedHit(NamedTuple):
    """A hit whose text has been read; `nth` counts the hits of one file."""

    path: bytes
    score: float
    nth: int
    piece: snippets.Piece
    symbol: str | None
    kind: str | None


class _Shelf:
    """One root and its index."""

    def __init__(
        self, files: Filesystem, launcher: Launcher, leases: Leases, data_dir: str, wanted: IndexSpec, root: Root
    ) -> None:
        self._files, self.root = files, root
        self._home = home_of(data_dir, root.real)
        rules = msgspec.structs.replace(wanted.rules, leave_out=_below(root, data_dir))
        self._builder = Builder(launcher, root, data_dir, wanted._replace(rules=rules), leases)
        self._embedding = wanted.embedding
        self._opening = threading.Lock()
        self._reader: IndexReader | None = None
        self._graph: tuple[IndexReader, int, Graph, IndexedFiles] | None = None
        self._asking = threading.Lock()  # a graph remembers what it found out: one question at a time
        self._rebuilt = ""  # why the index was built anew, until somebody was told

    # --- having an index -------------------------------------------------------------------------

    def refresh(self, full: bool, caller: QueryCaller) -> News | None:
        """Bring the index up to date; None when that is still under way and time is up."""
        ticket = self._builder.refresh(caller.who, full=full, why="it was asked for" if full else "")
        try:
            news = self._wait(ticket, caller.until, caller)
        except LlmcError:
            self._builder.stop(ticket)  # whoever asked took it back
            raise
        if news is not None and news.failed:
            raise _failure(news)
        return news

    def _wait(self, ticket: int, until: float, caller: QueryCaller) -> News | None:
        def check() -> None:
            caller.tell(self._builder.news)
            caller.check()

        return self._builder.wait(ticket, until, check)

    def _ready(self, caller: QueryCaller) -> tuple[IndexReader, str]:
        """An index to search, and what there is to say about how fresh it is."""
        note = ""
        if not self._builder.running:
            ticket = self._builder.refresh(caller.who)
            there = self._home.current() is not None
            until = min(caller.until, time.monotonic() + _REFRESH_S) if there else caller.until
            news = self._wait(ticket, until, caller)
            note = self._told(news, there)
        elif self._home.current() is None:
            news = self._wait(self._builder.refresh(caller.who), caller.until, caller)
            note = self._told(news, False)
        note = note or self._behind(caller)
        try:
            return self._current(), note
        except IndexDamaged as exc:
            return self._repaired(str(exc), caller)

    def _behind(self, caller: QueryCaller) -> str:
        """Let all changes until now be taken in, if that is quick; else what to say about it."""
        if self._builder.news.building:
            return busy_words(self._builder.news)
        ticket = self._builder.ping()
        if not ticket:
            return "not compared with the files: nobody watches them"
        news = self._wait(ticket, min(caller.until, time.monotonic() + _QUIET_S), caller)
        if news is None:
            return busy_words(self._builder.news)
        return f"not updated: {news.failed}" if news.failed else ""

    def _told(self, news: News | None, there: bool) -> str:
        if news is None:
            if there:
                return "not compared with the files yet"
            raise ResourceBusy(
                f"the code index is {busy_words(self._builder.news)}",
                hint="It goes on by itself: ask again in a moment. linux_search_content searches text meanwhile.",
            )
        if news.failed:
            if there:
                return f"not updated: {news.failed}"
            raise _failure(news)
        if news.rebuilt:
            return f"rebuilt: {news.rebuilt}"
        changes = news.changed + news.removed
        return _files("updated", changes) if changes and there else ""

    def _repaired(self, why: str, caller: QueryCaller) -> tuple[IndexReader, str]:
        """A damaged index is built anew, and that is said."""
        why = f"it was damaged ({why})"
        ticket = self._builder.refresh(caller.who, full=True, why=why)
        note = self._told(self._wait(ticket, caller.until, caller), False)
        try:
            return self._current(), note
        except IndexDamaged as exc:
            raise Internal(f"the code index can't be read although it was built anew: {exc}") from None

    def _current(self) -> IndexReader:
        """The build in force, as it is now."""
        while True:
            build = self._home.current()
            if build is None:
                raise IndexDamaged("there is none")
            try:
                reader = self._opened(build)
                reader.catch_up()
                return reader
            except IndexDamaged:
                if self._home.current() == build:
                    raise  # else it was replaced, and removed, while it was being opened

    def _opened(self, build: str) -> IndexReader:
        """A reader that all share; an old one ends when the last who uses it has left."""
        with self._opening:
            reader = self._reader
            if reader is None or reader.build != build:
                self._reader = self._graph = None
                reader = self._reader = IndexReader(build)
            return reader

    def _newest(self, caller: QueryCaller, note: str) -> tuple[IndexReader, str]:
        try:
            return self._current(), note
        except IndexDamaged as exc:
            return self._repaired(str(exc), caller)

    # --- searching -------------------------------------------------------------------------------

    def search(self, asked: CodeQuery, caller: QueryCaller) -> tuple[list[_LoadedHit], str, int]:
        """Hits with their text, what to say about freshness, and how many candidates there were."""
        embed.load(self._embedding)  # one that there is not is said before anything is built for it
        reader, note = self._ready(caller)
        patience, whole = _ROUNDS, True
        while True:
            try:
                seen = reader.searched
                found = self._query(reader, asked, caller.check)
                hits, changed = self._read(reader, found, asked.limit, seen)
            except IndexDamaged as exc:
                if self._home.current() != reader.build:  # that one is no longer in force
                    reader, note = self._newest(caller, note)
                    continue
                if not whole:  # it has just been built anew
                    raise Internal(f"the code index can't be read: {exc}") from None
                whole = False
                reader, note = self._repaired(str(exc), caller)
                continue
            if not changed:
                return hits, note, found.candidates
            if not patience:
                return hits, _left_out(note, len(changed)), found.candidates
            ticket = self._builder.look_at(changed)
            until = min(caller.until, time.monotonic() + _CHANGED_S)
            taken_in = self._wait(ticket, until, caller) is not None
            patience = patience - 1 if taken_in else 0
            updated = _files("updated", len(changed)) if taken_in else ""
            reader, note = self._newest(caller, note or updated)

    def _query(self, reader: IndexReader, asked: CodeQuery, check: Callable[[], None]) -> rank.RankedChunks:
        files = self._matching(reader, asked.path_glob, check)
        embedding = embed.load(self._embedding)
        return reader.search(asked.text, asked.scope, files, asked.limit + _SPARE, embedding)

    def ask(self, question: "Callable[[GraphView], Told]", caller: QueryCaller) -> "tuple[Told, str]":
        """Ask the graph; where a file that the answer was read from has changed, index it and ask again."""
        reader, note = self._ready(caller)
        for round_ in range(_ROUNDS):
            changed: list[bytes] = []
            try:
                told = self._asked(
                    lambda reader=reader, changed=changed: question(self._known(reader, changed)), caller
                )
            except IndexDamaged as exc:
                if round_ == _ROUNDS - 1:
                    raise Internal(f"the code index can't be read: {exc}") from None
                replaced = self._home.current() != reader.build
                reader, note = self._newest(caller, note) if replaced else self._repaired(str(exc), caller)
                continue
            if not changed:
                return told, note
            until = min(caller.until, time.monotonic() + _CHANGED_S)
            if round_ == _ROUNDS - 1 or self._wait(self._builder.look_at(changed), until, caller) is None:
                return told, "some files changed and are not indexed yet: what they say is left out"
            reader, note = self._newest(caller, note or _files("updated", len(changed)))
        raise Internal("unreachable")

    def _asked(self, question: "Callable[[], Told]", caller: QueryCaller) -> "Told":
        """Ask when nobody else does; whoever waits may give up."""
        while not self._asking.acquire(timeout=_TURN_S):
            caller.check()
        try:
            return question()
        finally:
            self._asking.release()

    def _known(self, reader: IndexReader, changed: list[bytes]) -> "GraphView":
        from .graph_index import graph_of

        graph = self._graph
        if graph is None or graph[:2] != (reader, reader.generation):
            graph = self._graph = (reader, reader.generation, *graph_of(reader))

        def read(file: int) -> bytes | None:
            there = self._source(reader, file, changed)
            return there[1] if there is not None else None

        return GraphView(self.root, graph[2], graph[3], read)

    def _matching(self, reader: IndexReader, glob: str | None, check: Callable[[], None]) -> list[int] | None:
        if glob is None:
            return None
        wanted = Glob(glob)
        found: list[int] = []
        for number, (file, path) in enumerate(reader.all_paths()):
            if number % _CHECK_EVERY == 0:
                check()
            if wanted.fits(os.fsdecode(path)):
                found.append(file)
        return found

    def _read(
        self, reader: IndexReader, found: rank.RankedChunks, limit: int, seen: int
    ) -> tuple[list[_LoadedHit], list[bytes]]:
        """The texts of hits, as they are on the disk now; and the files where that is not what was indexed."""
        sources: dict[int, tuple[File, bytes] | None] = {}
        hits: list[_LoadedHit] = []
        changed: list[bytes] = []
        nth: dict[int, int] = {}
        for one in found.chunks:
            if len(hits) >= limit:
                break
            if one.file not in sources:
                sources[one.file] = self._source(reader, one.file, changed, seen)
            there = sources[one.file]
            if there is None or one.chunk >= len(there[0].chunks):
                continue
            file, source = there
            chunk = file.chunks[one.chunk]
            symbol, kind = reader.definition(file.id, chunk.definition) if chunk.definition >= 0 else ("", "")
            piece = snippets.piece_of(source, chunk.span.start, chunk.span.end, chunk.span.first_line)
            nth[file.id] = nth.get(file.id, -1) + 1
            hits.append(
                _LoadedHit(
                    file.path,
                    one.score,
                    nth[file.id],
                    piece,
                    symbol or None,
                    kind or None,
                )
            )
        return hits, changed

    def _source(
        self, reader: IndexReader, file: int, changed: list[bytes], seen: int | None = None
    ) -> tuple[File, bytes] | None:
        """A file that is on the disk what it is in the index; any other is added to `changed`.

        So is one that was indexed again after the generation which a search has `seen`: its chunks are others.
        """
        known = reader.file(file)
        if known is None:
            return None
        if seen is not None and known.generation > seen:
            changed.append(known.path)
            return None
        try:
            fd, info = self._files.open_file(Place(self.root, known.path, names.show(known.path)))
        except LlmcError:
            changed.append(known.path)
            return None
        with os.fdopen(fd, "rb", buffering=0) as opened:
            # One of another size is not read: it may be huge by now, and nobody limits what the server reads here.
            source = (opened.read(known.size + 1) or b"") if info.st_size == known.size else None
        if source is None or hashlib.sha256(source).digest() != known.sha256:
            changed.append(known.path)
            return None
        return known, source

    # --- telling ---------------------------------------------------------------------------------

    def stats(self) -> Stats:
        notes: list[str] = []
        news = self._builder.news
        if news.walks:
            notes.append(f"changes are found by walking: {news.walks}")
        if news.failed:
            notes.append(f"not updated: {news.failed}")
        if news.past_limit:
            notes.append(f"{news.past_limit:,} files are left out: more than mcp.rag.max_files")
        if news.ignore_files:
            notes.append(news.ignore_files)
        if news.busy:
            notes.append(busy_words(news))
        build = self._home.current()
        if build is None:
            return Stats(self.root, None, 0, 0.0, 0, [*notes, "not built yet: the first search builds it"])
        try:
            reader = self._current()
            totals = reader.totals()
        except IndexDamaged as exc:
            return Stats(
                self.root, None, self._home.size(), 0.0, 0, [*notes, f"damaged ({exc}): the next search builds it anew"]
            )
        changing = news.files_total - news.files_done if news.busy else 0
        return Stats(self.root, totals, self._home.size(), reader.updated(), changing, notes, reader.embedding)

    def state(self) -> str:
        news = self._builder.news
        if news.busy:
            return busy_words(news)
        if self._home.current() is None:
            return "not built yet: the first search builds it"
        return "watched" if self._builder.running and not news.walks else "there, compared with the files on use"

    def close(self) -> None:
        self._builder.close()
        with self._opening:
            self._reader = self._graph = None


def _failure(news: News) -> FeatureUnavailable:
    hint = news.hint or "linux_search_content searches text."
    return FeatureUnavailable(f"the code index could not be built: {news.failed}", hint=hint)


def _files(verb: str, count: int) -> str:
    return f"{verb} {count:,} file{'s' if count != 1 else ''}"


def _left_out(note: str, files: int) -> str:
    """What is said where files are not on the disk what they are in the index, however often they are indexed."""
    said = f"{_files('', files).strip()} changed again or can't be read: hits there are left out"
    return f"{note}; {said}" if note and not note.startswith("updated") else said


def busy_words(news: News) -> str:
    if not news.files_total:
        return "being compared with the files"
    verb = "being built" if news.building else "being updated"
    return f"{verb}: {news.files_done:,} of {news.files_total:,} files"
