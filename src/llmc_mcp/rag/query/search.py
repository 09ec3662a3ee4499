"""Search and the symbol graph over all roots: the facade that the tools call.

Each root has an index of its own (root_index.py); a query goes to all of them, and their results are merged. A root
whose index can't be used is left out, and the result says so.
"""

import os
from collections.abc import Callable
from typing import TypeVar

import msgspec

from ...config.schema import Config
from ...errors import FeatureUnavailable, Internal, InvalidArgument, LlmcError, ResourceBusy
from ...files.filesystem import Filesystem, Root
from ...kernel.launcher import Launcher
from ...store.leases import Leases
from ..build.keeper_client import Builder, IndexSpec
from ..build.messages import News, WalkRules
from ..parse import words
from ..store.layout import home_of
from ..store.types import Scope
from . import snippets
from .globs import Glob
from .root_index import RootIndex, busy_words
from .types import CodeQuery, GraphView, QueryCaller, RankedSnippet, SearchResult, Stats

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
    return IndexSpec(rules, rag.embedding, config.limits.helper_idle_sec)


def check_query(text: str) -> None:
    """Reject an empty query, and one so long that it is not a question: every word costs time."""
    if not text.strip():
        raise InvalidArgument("the query is empty", hint="Ask for what the code does, or for a name in it.")
    if len(text) > words.LONGEST_QUERY:
        raise InvalidArgument(
            f"the query has {len(text):,} characters, {words.LONGEST_QUERY:,} are allowed",
            hint="Ask for what the code does in a sentence, or for a name in it.",
        )


class CodeSearch:
    """The indexes of all roots; made once per server."""

    def __init__(self, files: Filesystem, launcher: Launcher, leases: Leases, data_dir: str, spec: IndexSpec) -> None:
        self._files = files
        hidden = tuple(tuple(map(os.fsencode, places)) for places in files.hidden_places)
        rules = msgspec.structs.replace(spec.rules, hidden=hidden)

        def index_of(root: Root) -> RootIndex:
            builder = Builder(launcher, root, data_dir, spec._replace(rules=rules), leases)
            return RootIndex(files, root, home_of(data_dir, root.real), builder, spec.embedding)

        outermost = [root for root in files.roots if not any(_inside(root, other) for other in files.roots)]
        self._indexes = [index_of(root) for root in outermost]

    def search(self, query: CodeQuery, caller: QueryCaller) -> SearchResult:
        """The best snippets of all roots."""
        check_query(query.text)
        if query.path_glob is not None:
            Glob(query.path_glob)  # reject an invalid glob before anything is built
        question = words.question(query.text)
        results, missing = _from_each(self._indexes, lambda index: (index, *index.search(query, question, caller)))
        notes = [*(note for _, _, note, _ in results), *missing]
        order = sorted(
            ((hit, index) for index, hits, _, _ in results for hit in hits), key=lambda row: (row[0].nth, -row[0].score)
        )[: query.limit]
        shown = snippets.fit([hit.piece for hit, _ in order], question, query.budget, _SNIPPET_OVERHEAD)
        return SearchResult(
            hits=[
                RankedSnippet(
                    text=text,
                    path=hit.path,
                    root=index.root,
                    numbers=numbers,
                    score=hit.score,
                    symbol=hit.symbol,
                    kind=hit.kind,
                )
                for (hit, index), (text, numbers) in zip(order, shown, strict=False)
                if text
            ],
            freshness="; ".join(dict.fromkeys(note for note in notes if note)) or "fresh",
            candidates=sum(count for *_, count in results),
        )

    def ask(
        self, question: "Callable[[GraphView], Answer]", caller: QueryCaller, root: Root | None = None
    ) -> "list[tuple[Answer, str]]":
        """The answer of each root's graph, or of one, with a note on its freshness."""
        indexes = [index for index in self._indexes if root is None or index.root == root]
        answers, missing = _from_each(indexes, lambda index: index.ask(question, caller))
        return [(answer, "; ".join(filter(None, [note, *missing]))) for answer, note in answers]

    def refresh(self, path: str | None, full: bool, caller: QueryCaller) -> list[News | None]:
        """Bring indexes up to date, or build them anew; None for one that continues past the deadline."""
        return [index.refresh(full, caller) for index in self._indexes_for(path)]

    def _indexes_for(self, path: str | None) -> list[RootIndex]:
        """The index that a path belongs to; all of them without one."""
        if path is None:
            return self._indexes
        place = self._files.locate(path)
        os.close(self._files.open_dir(place))
        indexes = [index for index in self._indexes if index.root == place.root or _inside(place.root, index.root)]
        if not indexes:
            raise Internal(f"{path}: no index is responsible for it")
        return indexes

    def stats(self) -> list[Stats]:
        """Size and state of each index, without building anything."""
        return [index.stats() for index in self._indexes]

    def state(self) -> str:
        """The state of all indexes in a few words."""
        return "; ".join(index.state() for index in self._indexes)

    def release_idle(self, idle_s: float) -> bool:
        """Close the indexes that no query came for in a while; whether there were any."""
        released = [index.release_idle(idle_s) for index in self._indexes]
        return any(released)

    def close(self) -> None:
        """End the indexing processes."""
        for index in self._indexes:
            index.close()


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


def _inside(root: Root, other: Root) -> bool:
    return root.real != other.real and root.real.startswith(other.real.rstrip(b"/") + b"/")
