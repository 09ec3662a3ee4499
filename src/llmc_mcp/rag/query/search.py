"""Search and the symbol graph over all indexed folders (folders.py): the facade that the tools call.

Each folder has an index of its own (root_index.py); a query goes to all of them, and their results are merged. A folder
whose index can't be used is left out, and the result says so.
"""

import os
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from ...config.schema import Config
from ...errors import FeatureUnavailable, Internal, InvalidArgument, LlmcError, ResourceBusy
from ...files.filesystem import Filesystem, Root
from ...files.ripgrep import Search
from ...kernel.launcher import Launcher
from ...policy import is_below, is_below_any
from ...store.leases import Leases
from ..build.keeper_client import Builder, IndexSpec
from ..build.messages import News, WalkRules
from ..parse.question import question as parse_question
from ..store.layout import home_of
from ..store.types import Scope
from . import hints, snippets
from .folders import HOW_TO_INDEX, is_inside, nothing_indexed, refuse_broad, root_at
from .globs import Glob
from .repositories import FoundIn, Repositories
from .root_index import RootIndex, busy, busy_words
from .types import PARTIAL, CodeQuery, GraphView, QueryCaller, RankedSnippet, SearchResult, Stats

__all__ = [
    "CodeQuery",
    "CodeSearch",
    "GraphView",
    "QueryCaller",
    "RankedSnippet",
    "Scope",
    "SearchResult",
    "Stats",
    "busy_words",
    "check_query",
    "wanted_from",
]

_SNIPPET_OVERHEAD = 24  # tokens that a snippet costs besides its text: its path and its name

Answer = TypeVar("Answer")


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
    return IndexSpec(rules, rag.embedding, config.limits.helper_idle_sec, rag.share_max_mb << 20)


def check_query(text: str) -> None:
    """Reject an empty query."""
    if not text.strip():
        raise InvalidArgument("the query is empty", hint="Ask for what the code does, or for a name in it.")


class CodeSearch:
    """The indexes of all folders that are indexed; made once per server."""

    def __init__(
        self,
        files: Filesystem,
        roots: list[Root],
        launcher: Launcher,
        leases: Leases,
        data_dir: str,
        spec: IndexSpec,
        text_search: Callable[[], Search],
    ) -> None:
        self._files = files
        hidden = tuple(tuple(map(os.fsencode, places)) for places in files.hidden_places)
        rules = msgspec.structs.replace(spec.rules, hidden=hidden)

        def index_of(root: Root) -> RootIndex:
            builder = Builder(launcher, root, data_dir, spec._replace(rules=rules), leases)
            return RootIndex(files, root, home_of(data_dir, root.real), builder, spec, text_search)

        self._index_of = index_of
        self._repositories = Repositories(files, launcher, data_dir, spec.embedding)
        self._adding = threading.Lock()
        self._indexes = [index_of(root) for root in roots]

    def search(self, query: CodeQuery, caller: QueryCaller) -> SearchResult:
        """The best snippets of all roots, or of the repositories that the query names."""
        check_query(query.text)
        if query.path_glob is not None:
            Glob(query.path_glob)  # reject an invalid glob before anything is built
        question = parse_question(query.text)
        if query.repos:
            results, missing = self._repositories.search(query, question, query.repos, caller)
        else:
            searched = self._all()
            results, missing = _from_each(
                searched, lambda index: FoundIn(index.root, *index.search(query, question, caller))
            )
        notes = [*(found.note for found in results), *missing]
        if not query.repos and not any(found.hits for found in results):
            notes.append(self._not_indexed())
        order = sorted(
            ((hit, found.root) for found in results for hit in found.hits), key=lambda row: (row[0].nth, -row[0].score)
        )[: query.limit]
        shown = snippets.fit([hit.piece for hit, _ in order], question, query.budget, _SNIPPET_OVERHEAD, query.lines)
        terms = [found.ranked.terms for found in results]
        return SearchResult(
            hits=[
                RankedSnippet(
                    text=text,
                    path=hit.path,
                    root=root,
                    numbers=numbers,
                    score=hit.score,
                    symbol=hit.symbol,
                    kind=hit.kind,
                    definitions=hit.definitions,
                    revision=hit.revision,
                )
                for (hit, root), (text, numbers) in zip(order, shown, strict=False)
                if text
            ],
            freshness="; ".join(dict.fromkeys(note for note in notes if note)) or "fresh",
            candidates=sum(found.ranked.candidates for found in results),
            hint=hints.on_result(query.text, question, terms, [hit for hit, _ in order]),
        )

    def ask(
        self, question: "Callable[[GraphView], Answer]", caller: QueryCaller, root: Root | None = None
    ) -> "list[tuple[Answer, str]]":
        """The answer of each root's graph, or of one, with a note on its freshness."""
        indexes = [index for index in self._all() if root is None or index.root == root]
        answers, missing = _from_each(indexes, lambda index: index.ask(question, caller))
        return [(answer, "; ".join(filter(None, [note, *missing]))) for answer, note in answers]

    def refresh(self, path: str | None, full: bool, caller: QueryCaller) -> list[News | None]:
        """Bring indexes up to date, or build them anew; None for one that continues past the deadline."""
        return [index.refresh(full, caller) for index in self._indexes_for(path)]

    def _all(self) -> list[RootIndex]:
        if not self._indexes:
            raise nothing_indexed(self._files)
        return self._indexes

    def _indexes_for(self, path: str | None) -> list[RootIndex]:
        """The index that a path belongs to, a new one if there is none; all of them without a path."""
        if path is None:
            return self._all()
        place = self._files.locate(path)
        fd = self._files.open_dir(place)
        real = os.readlink(f"/proc/self/fd/{fd}")
        os.close(fd)
        with self._adding:
            known = [index for index in self._indexes if is_below(real, os.fsdecode(index.root.real))]
            if known:
                return known
            folder = root_at(self._files, place)
            refuse_broad(folder)
            within = [index for index in self._indexes if is_inside(index.root, folder)]
            added = self._index_of(folder)
            self._indexes = [*(index for index in self._indexes if index not in within), added]
        for index in within:
            index.close()
        return [added]

    def refuse_partial(self, notes: Iterable[str]) -> None:
        """Raise RESOURCE_BUSY if answers with these notes lack what is found while a first build goes on."""
        for note in notes:
            if note.startswith(PARTIAL):
                state = note.removeprefix(PARTIAL).partition(";")[0]
                raise busy(f"not found so far: the code index is {state}")

    def is_covered(self, path: str) -> bool:
        """Whether a real path lies in a folder that is indexed."""
        return is_below_any(path, (os.fsdecode(index.root.real) for index in self._indexes))

    def _not_indexed(self) -> str:
        """A note on what no search covers; empty where all roots are indexed."""
        if all(self.is_covered(os.fsdecode(root.real)) for root in self._files.roots):
            return ""
        return f"only {', '.join(index.root.shown for index in self._indexes)} is searched: {HOW_TO_INDEX}"

    def stats(self, path: str | None = None) -> list[Stats]:
        """Size and state of each index, or of the one that a path belongs to; nothing is built."""
        return [index.stats() for index in (self._indexes if path is None else self._indexes_for(path))]

    def state(self) -> str:
        """The state of all indexes in a few words."""
        return "; ".join(index.state() for index in self._indexes) or f"no folder is indexed: {HOW_TO_INDEX}"

    def release_idle(self, idle_s: float) -> bool:
        """Close the indexes that no query came for in a while; whether there were any."""
        released = [*(index.release_idle(idle_s) for index in self._indexes), self._repositories.release_idle(idle_s)]
        return any(released)

    def close(self) -> None:
        """End the indexing processes."""
        for index in self._indexes:
            index.close()
        self._repositories.close()


def _from_each(indexes: list[RootIndex], ask: "Callable[[RootIndex], Answer]") -> tuple[list["Answer"], list[str]]:
    """The answers of all usable indexes, and a note for each of the others; raises if none is usable."""
    answers: list[Answer] = []
    errors: list[LlmcError] = []
    missing: list[str] = []
    for index in indexes:
        try:
            answers.append(ask(index))
        except (FeatureUnavailable, ResourceBusy, Internal) as exc:
            errors.append(exc)
            missing.append(f"{index.root.shown} is left out: {exc.message}")
    if errors and not answers:
        raise errors[0]
    return answers, missing
