"""The index of one root: built on first use, kept fresh, rebuilt when damaged.

A query flushes pending changes first, for as long as that is quick. A file that turns out not to be as it was indexed
is indexed again, and the query runs again. While the index is built for the first time, or updated after a checkout, a
search answers from what is indexed so far, and from the text of the other files.
"""

import threading
import time
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ...errors import FeatureUnavailable, Internal, LlmcError, NotFound, ResourceBusy
from ...files.filesystem import Filesystem, Root
from ...files.ripgrep import Search
from ..build.keeper_client import Builder, IndexSpec, never
from ..build.messages import News, RankReply, RankRequest
from ..parse.question import Question
from ..store import embed
from ..store.layout import Home
from ..store.tables import IndexDamaged, IndexTables
from ..store.types import RankedChunks
from .changed_files import ChangedFiles, in_turn
from .hits import HitSource, LoadedHit, matching_files
from .types import PARTIAL, CodeQuery, GraphView, QueryCaller, Stats
from .unindexed import UnindexedFiles

if TYPE_CHECKING:
    from .graph import Graph
    from .graph_index import IndexedFiles

_FLUSH_S = 0.4  # the longest that a query waits for pending changes to be indexed
_HEARD_S = 0.02  # … for a process that follows the files of a large index to say that nothing is pending
_REINDEX_S = 2.0  # … for a file that changed to be indexed again
_AS_TEXT = "files not indexed yet were searched as text"
_UNREAD = "the references of"  # how the note of a graph begins that lacks some
_LOCK_POLL_S = 0.05  # cancellation poll while waiting for the lock
_SEARCHES = 20  # how often a search is tried while the process that does it ends
_ROUNDS = 3  # how often a query runs again while its files keep changing
_SOON = 400  # files that a first build reads in a second
_TAKEN_OVER_S = 2.0  # … for another process to go on with a build whose process has ended
_SPARE = 4  # hits beyond the limit, should some files be gone

Answer = TypeVar("Answer")


class RootIndex:
    """One root and its index."""

    def __init__(
        self,
        files: Filesystem,
        root: Root,
        home: Home,
        builder: Builder,
        spec: IndexSpec,
        text_search: Callable[[], Search],
    ) -> None:
        self.root = root
        self._home, self._builder, self._embedding = home, builder, spec.embedding
        self._unindexed = UnindexedFiles(files, root, text_search, spec.rules.max_file_bytes)
        self._hits = HitSource(files, root)
        self._reader_lock = threading.Lock()
        self._reader: IndexTables | None = None
        self._used_at = 0.0
        self._joined = 0  # the ticket of the last build that a query waited for
        self._graph: tuple[IndexTables, int, Graph, IndexedFiles] | None = None
        self._graph_lock = threading.Lock()  # a graph caches as it answers: one question at a time

    def close(self) -> None:
        """End the indexing process."""
        self._builder.close()
        with self._reader_lock:
            self._reader = self._graph = None

    def release_idle(self, idle_s: float) -> bool:
        """Close the index and forget the graph if no query came for a while; whether there was anything to close.

        A query that is under way has its own references to both.
        """
        with self._reader_lock:
            if self._reader is None or time.monotonic() - self._used_at < idle_s:
                return False
            self._reader = self._graph = None
            return True

    # --- queries ---------------------------------------------------------------------------------

    def search(
        self, query: CodeQuery, question: Question, caller: QueryCaller
    ) -> tuple[list[LoadedHit], str, RankedChunks]:
        """Hits with their text, a note on freshness, and what they were chosen from."""
        embed.is_wanted(self._embedding)  # reject an unknown one before building
        with self._interruptible():
            return self._searched(query, question, caller)

    def _searched(
        self, query: CodeQuery, question: Question, caller: QueryCaller
    ) -> tuple[list[LoadedHit], str, RankedChunks]:
        try:
            reader, note = self._ready(caller)
        except ResourceBusy:  # nothing is indexed yet
            hits = self._unindexed.find(query, question, self._unindexed.outside_ignore_files(), caller.check)
            return hits, self._partial_note(), RankedChunks([], len(hits))
        if reader.complete:
            return self._ranked(reader, note, query, question, caller)[:3]
        waiting = _waiting(reader)  # before the index is searched: what is committed meanwhile would be in neither
        try:
            hits, _, ranked, generation = self._ranked(reader, note, query, question, caller)
        except FeatureUnavailable:  # the process has ended; another one goes on with the build
            hits, ranked, generation = list[LoadedHit](), RankedChunks([], 0), 0
        is_new = self._is_new(reader, waiting, generation, {hit.path for hit in hits})
        others = self._unindexed.find(query, question, is_new, caller.check)
        return in_turn(hits, others), self._partial_note(), _without_unknown(ranked, len(others))

    def _is_new(
        self, reader: IndexTables, waiting: Collection[bytes], generation: int, shown: Collection[bytes]
    ) -> Callable[[bytes], bool]:
        """Whether a file waits to be indexed for the first time, and is not shown yet."""
        if waiting:
            return lambda path: path in waiting and path not in shown
        # Files are still being listed; tables may be ahead of the text that was searched.
        known = {path for _, path in reader.all_paths(generation)}
        is_free = self._unindexed.outside_ignore_files()
        return lambda path: path not in known and path not in shown and is_free(path)

    def _ranked(
        self, reader: IndexTables, note: str, query: CodeQuery, question: Question, caller: QueryCaller
    ) -> tuple[list[LoadedHit], str, RankedChunks, int]:
        """The hits in what is indexed, and the generation of the index that they are of."""
        rounds, repaired = _ROUNDS, False
        pending, texts = dict[bytes, int](), None
        while True:
            try:
                before, pending = pending, reader.pending() if reader.complete else {}
                if pending != before:
                    texts = self._changed_files(pending, query, question, caller)
                files = matching_files(reader, query.path_glob, caller.check)
                spare = _SPARE if texts is None else _SPARE + query.limit
                request = RankRequest(reader.build, question, query.scope, files, query.limit + spare)
                reply = self._rank(request, caller)
                ranked = reply.ranked
                hits, changed = self._hits.load(reader, ranked, question, query.limit, reply.generation, texts)
            except IndexDamaged as exc:
                if self._home.current() != reader.build:  # that build has been replaced
                    reader, note = self._newest(caller, note)
                    continue
                if repaired:
                    raise Internal(f"the code index can't be read: {exc}") from None
                repaired = True
                reader, note = self._repair(str(exc), caller)
                continue
            told = note
            if texts is not None:
                count, hits = len(hits), texts.among(hits, query.limit)
                ranked = _without_unknown(ranked, len(hits) - count)
                told = f"{note or self._progress()}; {_AS_TEXT}"
            if not changed:
                return hits, told, ranked, reply.generation
            if not rounds:
                return hits, _left_out(told, len(changed)), ranked, reply.generation
            indexed = self._index_again(changed, caller, read_as_text=True)
            rounds = rounds - 1 if indexed else 0
            updated = _count_files("updated", len(changed)) if indexed else ""
            reader, note = self._newest(caller, note or updated)

    def _changed_files(
        self, pending: Mapping[bytes, int], query: CodeQuery, question: Question, caller: QueryCaller
    ) -> ChangedFiles | None:
        """The files that wait to be indexed again, if they are many, searched as text."""
        if not pending:
            return None
        return self._unindexed.changed(query, question, pending, caller.until, caller.check)

    def _rank(self, request: RankRequest, caller: QueryCaller) -> RankReply:
        """Search the text; the process that does it may end at any moment, and another one takes over."""
        news: News | None = None
        for _ in range(_SEARCHES):
            reply = self._builder.rank(request, caller.check)
            if reply is not None and reply.damaged:
                raise IndexDamaged(reply.damaged)
            if reply is not None:
                return reply
            until = caller.until if self._is_complete() else min(caller.until, time.monotonic() + _TAKEN_OVER_S)
            news = self._wait(self._builder.join(caller.who), until, caller)
            if news is None or news.failed:
                break
        why = news.failed if news is not None and news.failed else "the process that does it ended"
        raise FeatureUnavailable(f"the code index could not be searched: {why}")

    def ask(self, question: "Callable[[GraphView], Answer]", caller: QueryCaller) -> "tuple[Answer, str]":
        """Put a question to the graph; if a file that it reads has changed, index that file and ask again."""
        with self._interruptible():
            reader, note = self._ready(caller._replace(patience=float("inf")))
        if reader.unread() or (reader.complete and reader.has_pending()):
            reader, note = self._read(caller, note)
        try:
            answer, note = self._asked(question, reader, note, caller)
        except NotFound:
            if reader.complete:
                raise
            raise self._busy() from None  # it may be in a file that comes later
        return answer, note if reader.complete else f"{PARTIAL}{self._progress()}; the others are left out"

    def _read(self, caller: QueryCaller, note: str) -> tuple[IndexTables, str]:
        """The index once it has the references of all files, if that is soon; else the note says how many lack them."""
        ticket = self._builder.ping(references=True)
        news = self._wait(ticket, caller.until, caller) if ticket else None
        if news is not None and not news.failed:
            note = ""  # whatever was going on has ended
        reader, note = self._newest(caller, note)
        missing = _count_files("", reader.unread()).strip()
        behind = f"{_UNREAD} {missing} are not read yet: what they use is left out"
        return reader, "; ".join(filter(None, [behind, note])) if reader.unread() else note

    def _asked(
        self, question: "Callable[[GraphView], Answer]", reader: IndexTables, note: str, caller: QueryCaller
    ) -> "tuple[Answer, str]":
        for round_ in range(_ROUNDS):
            changed: list[bytes] = []
            try:
                answer = self._answer(question, reader, changed, caller.check)
            except IndexDamaged as exc:
                if round_ == _ROUNDS - 1:
                    raise Internal(f"the code index can't be read: {exc}") from None
                replaced = self._home.current() != reader.build
                reader, note = self._newest(caller, note) if replaced else self._repair(str(exc), caller)
                continue
            lacking = bool(reader.unread()) and not note.startswith(_UNREAD)  # many files changed in the meantime
            if not changed and not lacking:
                return answer, note
            if lacking and round_ == _ROUNDS - 1:
                return answer, f"{_UNREAD} files that changed are not read yet: what they use is left out"
            if changed and (round_ == _ROUNDS - 1 or not self._index_again(changed, caller)):
                return answer, "some files changed and are not indexed yet: what they say is left out"
            if changed:
                reader, note = self._newest(caller, note or _count_files("updated", len(changed)))
            if reader.unread():
                reader, note = self._read(caller, note)
        raise Internal("unreachable")

    def _answer(
        self,
        question: "Callable[[GraphView], Answer]",
        reader: IndexTables,
        changed: list[bytes],
        check: Callable[[], None],
    ) -> "Answer":
        while not self._graph_lock.acquire(timeout=_LOCK_POLL_S):
            check()
        try:
            return question(self._graph_view(reader, changed))
        finally:
            self._graph_lock.release()

    def _graph_view(self, reader: IndexTables, changed: list[bytes]) -> "GraphView":
        from .graph_index import graph_of

        graph = self._graph
        if graph is None or graph[:2] != (reader, reader.generation):
            graph = self._graph = (reader, reader.generation, *graph_of(reader))

        def read(file: int) -> bytes | None:
            loaded = self._hits.read(reader, file, changed)
            return loaded[1] if loaded is not None else None

        return GraphView(self.root, graph[2], graph[3], read)

    # --- life cycle ------------------------------------------------------------------------------

    def refresh(self, full: bool, caller: QueryCaller) -> News | None:
        """Bring the index up to date, or build it anew; None if that continues past the deadline."""
        ticket = self._builder.refresh(caller.who, full=full, why="it was asked for" if full else "")
        try:
            news = self._wait(ticket, caller.until, caller)
        except (LlmcError, KeyboardInterrupt):
            self._builder.stop(ticket)  # the caller cancelled
            raise
        if news is not None and news.failed:
            raise _failure(news)
        return news

    def _wait(
        self, ticket: int, until: float, caller: QueryCaller, gives_up: Callable[[], bool] = never
    ) -> News | None:
        def check() -> None:
            caller.tell(self._builder.news)
            caller.check()

        return self._builder.wait(ticket, until, check, gives_up)

    def _ready(self, caller: QueryCaller) -> tuple[IndexTables, str]:
        """An index to query, and a note on its freshness."""
        if self._builder.running and self._home.current() is not None:
            note = self._flush(caller)
            if note is not None:
                return self._newest(caller, note)
        ticket = self._joined = self._builder.join(caller.who)
        exists = self._is_complete()
        until = min(caller.until, time.monotonic() + (caller.compare if exists else caller.patience))
        if exists and self._current().is_large:
            # To compare so many files takes longer than that. One whose files are followed already says so at once.
            until = min(until, time.monotonic() + _HEARD_S)
        news = self._wait(ticket, until, caller, never if exists else partial(self._builds_many, caller))
        return self._newest(caller, self._refresh_note(news, exists))

    @contextmanager
    def _interruptible(self) -> Generator[None]:
        """Whoever interrupts a question has no use for the build that it began; what is indexed so far stays."""
        self._joined = 0
        try:
            yield
        except KeyboardInterrupt:  # of a person: a server's threads get none
            if self._joined:
                self._builder.stop(self._joined, left=True)
            raise

    def _builds_many(self, caller: QueryCaller) -> bool:
        """Whether a first build goes on for longer than a search waits for it: what is there answers at once."""
        news = self._builder.news
        return max(news.files_total, news.files_listed) > _SOON * caller.patience

    def _is_complete(self) -> bool:
        try:
            return self._current().complete
        except IndexDamaged:
            return False

    def _partial_note(self) -> str:
        """What an answer rests on while the first build goes on."""
        return f"{PARTIAL}{self._progress()}; {_AS_TEXT}"

    def _progress(self) -> str:
        return busy_words(self._builder.news)

    def _busy(self) -> ResourceBusy:
        return busy(f"the code index is {self._progress()}")

    def _flush(self, caller: QueryCaller) -> str | None:
        """Have all changes so far indexed if that is quick, else a note saying why not; None if there is no process."""
        if self._builder.news.building or self._builder.is_behind:
            return self._progress()
        ticket = self._builder.ping()
        if not ticket:
            return None
        news = self._wait(ticket, min(caller.until, time.monotonic() + _FLUSH_S), caller)
        if news is None:
            return self._progress()
        if news.lost:
            return None
        return f"not updated: {news.failed}" if news.failed else ""

    def _refresh_note(self, news: News | None, exists: bool) -> str:
        """What a refresh changed; raises if it left no index to query."""
        if news is None:
            if exists:
                return "not compared with the files yet"
            if self._home.current() is None:
                raise self._busy()
            return self._progress()
        if news.failed:
            if exists:
                return f"not updated: {news.failed}"
            raise _failure(news)
        if news.rebuilt:
            return f"rebuilt: {news.rebuilt}"
        changes = news.changed + news.removed
        return _count_files("updated", changes) if changes and exists else ""

    def _index_again(self, changed: list[bytes], caller: QueryCaller, *, read_as_text: bool = False) -> bool:
        """Whether files that changed were indexed again in time; or whether they wait with many others, for a search
        that reads those as text."""

        def wait_with_others() -> bool:
            try:
                return read_as_text and self._current().are_pending(changed)
            except IndexDamaged:
                return False

        ticket = self._builder.look_at(changed) or self._builder.join(caller.who)
        until = min(caller.until, time.monotonic() + _REINDEX_S)
        return self._wait(ticket, until, caller, wait_with_others) is not None or wait_with_others()

    def _repair(self, why: str, caller: QueryCaller) -> tuple[IndexTables, str]:
        """Rebuild a damaged index; the note says so."""
        ticket = self._builder.refresh(caller.who, full=True, why=f"it was damaged ({why})")
        until = min(caller.until, time.monotonic() + caller.patience)
        news = self._wait(ticket, until, caller)
        if news is None and not self._is_complete():
            raise self._busy()
        note = self._refresh_note(news, exists=False)
        try:
            return self._current(), note
        except IndexDamaged as exc:
            raise Internal(f"the code index can't be read although it was built anew: {exc}") from None

    def _newest(self, caller: QueryCaller, note: str) -> tuple[IndexTables, str]:
        try:
            return self._current(), note
        except IndexDamaged as exc:
            return self._repair(str(exc), caller)

    def _current(self) -> IndexTables:
        """The build in force, at its latest generation."""
        while True:
            build = self._home.current()
            if build is None:
                raise IndexDamaged("there is none")
            try:
                reader = self._reader_of(build)
                reader.catch_up()
                return reader
            except IndexDamaged:
                if self._home.current() == build:
                    raise  # else it was replaced, and removed, while it was being opened

    def _reader_of(self, build: str) -> IndexTables:
        """The shared reader of a build; an old one is closed when its last user drops it."""
        with self._reader_lock:
            reader, self._used_at = self._reader, time.monotonic()
            if reader is None or reader.build != build:
                self._reader = self._graph = None
                reader = self._reader = IndexTables(build)
            return reader

    # --- reports ---------------------------------------------------------------------------------

    def stats(self) -> Stats:
        """Size and state, without building anything."""
        news = self._builder.news
        notes = [*_stat_notes(news), *filter(None, [self._builder.problem])]
        build = self._home.current()
        if build is None:
            notes.append("not built yet: the first search builds it")
            return Stats(self.root, totals=None, bytes=0, updated=0.0, changing=0, notes=notes)
        try:
            reader = self._current()
            totals = reader.totals()
        except IndexDamaged as exc:
            notes.append(f"damaged ({exc}): the next search builds it anew")
            return Stats(self.root, totals=None, bytes=self._home.size(), updated=0.0, changing=0, notes=notes)
        return Stats(
            self.root,
            totals=totals,
            bytes=self._home.size(),
            updated=reader.updated(),
            changing=news.files_total - news.files_done if news.busy else 0,
            notes=notes,
            embedding=reader.embedding,
        )

    def state(self) -> str:
        """The state in a few words."""
        news = self._builder.news
        if news.busy:
            return busy_words(news)
        if self._home.current() is None:
            return "not built yet: the first search builds it"
        return "watched" if self._builder.running and not news.walks else "there, compared with the files on use"


def _waiting(reader: IndexTables) -> Collection[bytes]:
    """The files that wait to be indexed; a damaged index is mended by whoever searches it."""
    try:
        return reader.pending().keys()
    except IndexDamaged:
        return ()


def _without_unknown(ranked: RankedChunks, more: int) -> RankedChunks:
    """The same without the words that no file holds so far, and with the hits of others."""
    terms = msgspec.structs.replace(ranked.terms, unknown=[])
    return msgspec.structs.replace(ranked, terms=terms, candidates=ranked.candidates + more)


def busy(state: str) -> ResourceBusy:
    """The answer while a first build goes on that may still bring it."""
    hint = "It goes on by itself: ask again in a moment. linux_search_content searches text meanwhile."
    return ResourceBusy(state, hint=hint)


def busy_words(news: News) -> str:
    """What the indexing process is doing."""
    if not news.files_total:
        return "being compared with the files"
    verb = "being built" if news.building else "being updated"
    return f"{verb}: {news.files_done:,} of {news.files_total:,} files"


def _stat_notes(news: News) -> list[str]:
    notes: list[str] = []
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
    return notes


def _failure(news: News) -> FeatureUnavailable:
    hint = news.hint or "linux_search_content searches text."
    return FeatureUnavailable(f"the code index could not be built: {news.failed}", hint=hint)


def _count_files(verb: str, count: int) -> str:
    return f"{verb} {count:,} file{'s' if count != 1 else ''}"


def _left_out(note: str, files: int) -> str:
    """The note when files differ from the index however often they are indexed."""
    missing = f"{_count_files('', files).strip()} changed again or can't be read: hits there are left out"
    return f"{note}; {missing}" if note and not note.startswith("updated") else missing
