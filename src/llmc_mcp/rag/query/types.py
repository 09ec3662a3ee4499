"""What callers of the index pass in and get back."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...files.filesystem import Root
from ...session import Session
from ..build.messages import News
from ..store.tables import Totals
from ..store.types import Scope

if TYPE_CHECKING:
    from .graph import Graph
    from .graph_index import IndexedFiles


PARTIAL = "partial: "  # how the note of an answer begins while the first build goes on


class CodeQuery(NamedTuple):
    """A query, and how large its result may be."""

    text: str
    scope: Scope = "repo"
    limit: int = 3
    budget: int = 600  # tokens
    path_glob: str | None = None
    lines: int = 0  # most lines of a snippet; 0 for as many as the budget allows
    repos: Sequence[str] = ()  # indexed repositories to search instead of the roots: names, paths, or * for all


class QueryCaller(NamedTuple):
    """The session that asks, its deadline, and its cancellation check."""

    who: Session
    until: float  # by the monotonic clock
    check: Callable[[], None]  # raises once the call is cancelled
    tell: Callable[[News], None] = lambda _: None  # receives progress while the call waits for the index
    compare: float = 5.0  # seconds that it waits for an index that nobody has followed to be compared with the files
    patience: float = 2.0  # seconds that a search waits for a first build before it answers from what is there


class RankedDefinition(NamedTuple):
    """A function or type of a file that was found."""

    name: str  # qualified
    kind: str
    first_line: int
    last_line: int
    score: float  # comparable within one result


class RankedSnippet(NamedTuple):
    """One snippet of a search result."""

    text: str
    path: bytes
    root: Root
    numbers: list[int]  # of the lines that the text shows
    score: float
    symbol: str | None
    kind: str | None
    definitions: Sequence[RankedDefinition] = ()  # of its file, best first
    revision: str = ""  # of its file


class SearchResult(NamedTuple):
    """The snippets that fit the budget, and how current they are."""

    hits: list[RankedSnippet]
    freshness: str
    candidates: int
    hint: str = ""  # why there is nothing, or nothing good


class Stats(NamedTuple):
    """Size and state of one root's index."""

    root: Root
    totals: Totals | None
    bytes: int
    updated: float
    changing: int  # files that changed and are not indexed yet
    notes: list[str]
    embedding: str = ""


class GraphView(NamedTuple):
    """The graph of one root, for one question."""

    root: Root
    graph: "Graph"
    files: "IndexedFiles"
    read: Callable[[int], bytes | None]  # a file; None if it is not as indexed, and the question is asked again
