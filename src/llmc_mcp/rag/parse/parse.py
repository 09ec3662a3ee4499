"""From a text to its syntax tree and its syntax errors.

Grammars come with the `semble-grammars` wheel and never from the network. A grammar is unpacked once, on first use,
into `grammars/` of the data directory (SEMBLE_GRAMMARS_CACHE_DIR overrides it); if that is not writable, into a
temporary folder that is removed when the process exits.
"""

import atexit
import functools
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from importlib.metadata import version
from itertools import islice

import semble_grammars  # pyright: ignore[reportMissingTypeStubs]
from tree_sitter import Language, Node, Parser, Tree

from ...store.data_dir import data_directory
from .types import SyntaxProblem, line_starts

PARSE_SECONDS = 1.0  # of this thread's processor time: real files need 0.1 to 0.5 s a megabyte
_SLICE = 1024  # bytes per read: the parser can only be stopped when it asks for more
_NAME = 64  # … for a query that compares the text of a node with something
_NESTED_GENERICS = 3_000  # `a<a<a<…`: the time some grammars take is quadratic in it, and no clock stops them
_RUBBLE = 10_000
_CACHE = "SEMBLE_GRAMMARS_CACHE_DIR"


class _Slices(threading.local):
    """What the parser of a thread reads at the moment, always in the same place.

    tree-sitter (0.26.0) never releases what its parser is given to read: with bytes of their own, a process would keep
    all texts that it has ever parsed. Its queries do, and crash unless they get bytes.
    """

    def __init__(self) -> None:
        self.buffer = bytearray()


_slices = _Slices()


class SyntaxTree:
    """The tree of one text, shared by all that need it, so that it is parsed once."""

    __slots__ = ("_line_starts", "complete", "language", "root", "source", "tree")

    def __init__(self, language: str, source: bytes, tree: Tree, complete: bool) -> None:
        self.language = language
        self.source = source
        self.tree = tree
        self.root: Node = tree.root_node
        self.complete = complete  # False: parsing took too long, and the tree must not be used
        self._line_starts: list[int] | None = None

    @property
    def line_starts(self) -> list[int]:
        """The first byte of each line of the source, and one past the end of the last."""
        if self._line_starts is None:
            self._line_starts = line_starts(self.source)
        return self._line_starts

    def text(self, node: Node) -> str:
        """The source of a node. `Node.text` is not used: it calls back for texts that are read in slices."""
        return self.source[node.start_byte : node.end_byte].decode(errors="replace")


def syntax(language: str, source: bytes) -> SyntaxTree:
    """Parse a text. Takes about PARSE_SECONDS at most; its tree is `complete` if that was enough."""
    if source.count(b"<") - source.count(b">") > _NESTED_GENERICS:
        return SyntaxTree(language, source, Parser(grammar(language)).parse(b""), complete=False)
    started, deadline = time.monotonic(), time.thread_time() + PARSE_SECONDS
    in_time, is_parsed, slice_ = True, False, _slices.buffer

    def read(offset: int, _: object) -> bytes | bytearray:
        nonlocal in_time
        if is_parsed:
            return source[offset : offset + _NAME]
        # The thread's own time costs a system call, and can't be up before that much time has passed.
        if in_time and time.monotonic() - started > PARSE_SECONDS and time.thread_time() > deadline:
            in_time = False
        # Past its time the parser sees blanks: a text that ends earlier than it once did crashes tree-sitter.
        slice_[:] = source[offset : offset + _SLICE] if in_time else b" " * min(_SLICE, max(0, len(source) - offset))
        return slice_

    tree = Parser(grammar(language)).parse(read)
    is_parsed = True
    return SyntaxTree(language, source, tree, complete=in_time and not _is_rubble(tree.root_node))


def first_error(syntax: SyntaxTree) -> int:
    """The line of the first syntax error, 0 for none. Some grammars report one in valid code: compare two texts."""
    found = errors(syntax, most=1)
    return found[0].line if found else 0


def errors(syntax: SyntaxTree, most: int = 50) -> list[SyntaxProblem] | None:
    """The first syntax errors, in order; None if the text could not be parsed in time."""
    if not syntax.complete:
        return None
    found = islice(_broken(syntax.root), most)
    return [SyntaxProblem(node.start_point[0] + 1, node.type if node.is_missing else "") for node in found]


def _broken(root: Node) -> Iterator[Node]:
    open_nodes = [root]
    while open_nodes:
        node = open_nodes.pop()
        if node.is_missing or node.is_error:
            yield node
        elif node.has_error:
            open_nodes += reversed(node.children)


def _is_rubble(root: Node) -> bool:
    """Whether the parser gave up on a long stretch: queries on it take quadratic time and find nothing."""
    return root.has_error and any(node.child_count > _RUBBLE for node in _broken(root))


@functools.cache
def grammar(language: str) -> Language:
    """A language's grammar: 150 ms the first time on a machine, then 1 ms a process."""
    if _CACHE not in os.environ:
        os.environ[_CACHE] = _where_grammars_go()
    return semble_grammars.get_language(language)


def _where_grammars_go() -> str:
    place = os.path.join(data_directory(), "grammars", version("semble-grammars"))
    try:
        os.makedirs(place, mode=0o700, exist_ok=True)
    except OSError:
        place = ""
    if place and os.access(place, os.W_OK):
        return place
    place = tempfile.mkdtemp(prefix="llmc-grammars-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return place
