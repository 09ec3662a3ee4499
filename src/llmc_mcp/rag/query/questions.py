"""The tools' queries to a repository's graph: where a symbol is used, what leads to it, what it is."""

import itertools
import os
import re
from collections.abc import Callable
from typing import Literal, NamedTuple

from ..parse import words
from ..parse.doc import doc_of
from ..parse.scopes import CLASSES, FUNCTIONS
from ..parse.types import Confidence, ReferenceKind
from .graph import Use
from .resolve import DefinitionPlace, Symbol
from .search import GraphView

Direction = Literal["callers", "callees", "upstream", "downstream"]

TESTS = re.compile(r"(?:^|/)(?:tests?|__tests__|spec|testing)/|(?:^|/)(?:test_[^/]*|conftest\.py$)|[._]test\.|\.spec\.")
_OPENING_QUOTE = re.compile(r"""[rR]?(?:\"\"\"|''')""")
_END_OF_DOC = re.compile(r"""\"\"\"|'''|\n[ \t\r]*\n""")
_OPENING_COMMENT = re.compile(r"[ \t]*(?:#|//|\*|/\*)")
_COMMENT_MARK = re.compile(r"^[ \t]*(?:#+|//+|/?\*+/?)", re.M)
_HEAD = 20_000  # characters of a file that are searched for its opening comment
_COPIED = re.compile(r"(?:^|/)(?:vendor|vendored|_vendor|third_party|node_modules|dist|site-packages)/|\.min\.")
_LINE = 160  # characters of a line that are shown
_WIDEST = 300  # definitions that one step of a lineage continues from
_CHOICES = 12  # definitions of one name that one answer covers
_NEAREST = 6
_CALLS: frozenset[ReferenceKind] = frozenset({"call"})
_ALL: frozenset[ReferenceKind] = frozenset({"call", "inherit", "use", "import"})


class Site(NamedTuple):
    """A place in the code that an answer names."""

    path: bytes  # relative to the root
    line: int
    snippet: str
    confidence: Confidence
    kind: str
    inside: str  # the enclosing definition, or the one that it is
    of: str  # which definition it is about, where there are several
    depth: int = 0  # steps of a lineage


class LocatedDefinition(NamedTuple):
    """A definition: its path relative to the root, and its description."""

    path: bytes
    what: str


class GraphAnswer(NamedTuple):
    """The answer for one root."""

    symbol: str
    definitions: list[LocatedDefinition]
    sites: list[Site]
    total: int
    counts: dict[str, int]


def choices(view: GraphView, targets: list[DefinitionPlace], most: int = _CHOICES) -> list[LocatedDefinition]:
    """Definitions with their locations, to choose from."""
    found: list[LocatedDefinition] = []
    for one in targets[:most]:
        symbol = view.graph.symbol(one)
        what = f"{symbol.qualname} ({symbol.kind}, line {symbol.first_line})"
        found.append(LocatedDefinition(os.fsencode(view.graph.path(one.file)), what))
    return found


def find(view: GraphView, symbol: str) -> list[DefinitionPlace]:
    """The definitions that a symbol means, including declarations of what is defined elsewhere."""
    found = view.graph.find(symbol)
    return sorted(
        found, key=lambda one: (_is_vendored(view.graph.path(one.file)), view.graph.path(one.file), one.place)
    )


def _is_vendored(path: str) -> bool:
    """Whether a file is vendored; the repository's own files come first."""
    return _COPIED.search(path) is not None


def defined_in(view: GraphView, path: str, first: int, last: int, qualname: str | None) -> list[DefinitionPlace]:
    """The functions and classes of a file with a qualified name or, without one, within a range of lines."""
    file = next((number for number, own, _ in view.files.files() if own == path), None)
    if file is None:
        return []
    found: list[DefinitionPlace] = []
    for place, one in enumerate(view.graph.symbols(file)):
        fits = one.qualname == qualname if qualname else first <= one.first_line and one.last_line <= last
        if fits and one.kind in CLASSES | FUNCTIONS:
            found.append(DefinitionPlace(file, place))
    return found


def too_many(view: GraphView, targets: list[DefinitionPlace]) -> bool:
    """Whether so many definitions share the name that an answer about all of them would be useless."""
    real = [one for one in targets if view.graph.symbol(one).kind != "prototype"]
    return len(real) > _CHOICES


def nearest(view: GraphView, symbol: str) -> list[str]:
    """Similar names, for a hint."""
    import difflib

    last = symbol.replace("::", ".").rpartition(":")[2].rpartition(".")[2].removesuffix("()")
    every = view.files.names_beginning("")
    low = last.lower()
    same = [name for name in every if name.lower() == low]
    parts = [name for name in every if low and low in name.lower() and name not in same]
    close = difflib.get_close_matches(last, [name for name in every if name[:1].lower() == low[:1]], _NEAREST, 0.75)
    return list(dict.fromkeys([*same, *close, *sorted(parts, key=len)]))[:_NEAREST]


# --- where used ------------------------------------------------------------------------------------


def where_used(
    view: GraphView, symbol: str, targets: list[DefinitionPlace], limit: int, check: Callable[[], None]
) -> GraphAnswer:
    """Every use of these definitions, most certain first; calls before imports of the same grade and file."""
    uses = view.graph.uses(targets, check)
    counts: dict[str, int] = {}
    for use in uses:
        counts[use.confidence] = counts.get(use.confidence, 0) + 1
    several = len({view.graph.symbol(one).qualname for one in targets}) > 1
    sites = sites_of(view, uses[:limit], several)
    return GraphAnswer(_name(view, symbol, targets), _places(view, targets), sites, len(uses), counts)


def _name(view: GraphView, symbol: str, targets: list[DefinitionPlace]) -> str:
    names_of = {view.graph.symbol(one).qualname for one in targets}
    return names_of.pop() if len(names_of) == 1 else symbol


def _places(view: GraphView, targets: list[DefinitionPlace]) -> list[LocatedDefinition]:
    found: list[LocatedDefinition] = []
    for one in targets:
        symbol = view.graph.symbol(one)
        found.append(
            LocatedDefinition(os.fsencode(view.graph.path(one.file)), f"{symbol.first_line} {symbol.qualname}")
        )
    return found


def sites_of(view: GraphView, uses: list[Use], several: bool) -> list[Site]:
    """Uses with their lines; without those whose file is not as it was indexed."""
    lines = _Lines(view)
    sites: list[Site] = []
    for use in uses:
        text = lines.at(use.file, use.line)
        if text is not None:
            inside = view.graph.symbol(DefinitionPlace(use.file, use.inside)).qualname if use.inside >= 0 else ""
            of = view.graph.symbol(use.of).qualname if several and use.of is not None else ""
            path = lines.path(use.file)
            sites.append(
                Site(
                    path=path,
                    line=use.line,
                    snippet=text,
                    confidence=use.confidence,
                    kind=use.kind,
                    inside=inside,
                    of=of,
                )
            )
    return sites


class _Lines:
    """Lines of files, each read once."""

    def __init__(self, view: GraphView) -> None:
        self._view = view
        self._files: dict[int, list[str] | None] = {}

    def of(self, file: int) -> list[str] | None:
        if file not in self._files:
            source = self._view.read(file)
            self._files[file] = source.decode("utf-8", "replace").split("\n") if source is not None else None
        return self._files[file]

    def at(self, file: int, line: int) -> str | None:
        """A line; None if the file is not as it was indexed."""
        lines = self.of(file)
        if lines is None or not 0 < line <= len(lines):
            return None
        text = lines[line - 1].strip()
        return text if len(text) <= _LINE else text[: _LINE - 1] + "…"

    def path(self, file: int) -> bytes:
        return os.fsencode(self._view.graph.path(file))

    def head(self, target: DefinitionPlace) -> tuple[int, str]:
        """The line that names a definition, below its comments and decorators."""
        symbol = self._view.graph.symbol(target)
        lines = self.of(target.file) or []
        name = re.compile(rf"(?<![\w$]){re.escape(symbol.name)}(?![\w$])")
        for number in range(symbol.first_line, min(symbol.last_line, len(lines)) + 1):
            text = lines[number - 1].strip()
            if name.search(text) and not text.startswith(("#", "//", "*", "/*", "@")):
                return number, text if len(text) <= _LINE else text[: _LINE - 1] + "…"
        return symbol.first_line, symbol.signature[:_LINE]


# --- lineage ---------------------------------------------------------------------------------------


def lineage(
    view: GraphView,
    symbol: str,
    targets: list[DefinitionPlace],
    direction: Direction,
    depth: int,
    check: Callable[[], None],
) -> GraphAnswer:
    """What leads to these definitions, or where they lead to, step by step.

    callers and callees follow calls; upstream and downstream follow every kind of use.
    """
    back = direction in ("callers", "upstream")
    kinds = _CALLS if direction in ("callers", "callees") else _ALL
    step = _users if back else _used
    lines = _Lines(view)
    seen, front = set(targets), list(targets)
    sites: list[Site] = []
    for level in range(1, depth + 1):
        found: list[DefinitionPlace] = []
        for site, target in step(view, front, kinds, level, lines, check):
            sites.append(site)
            if target is not None and target not in seen:
                seen.add(target)
                found.append(target)
        front = found[:_WIDEST]
    counts: dict[str, int] = {}
    for site in sites:
        counts[site.confidence] = counts.get(site.confidence, 0) + 1
    return GraphAnswer(_name(view, symbol, targets), _places(view, targets), sites, len(sites), counts)


def _users(
    view: GraphView,
    front: list[DefinitionPlace],
    kinds: frozenset[str],
    level: int,
    lines: _Lines,
    check: Callable[[], None],
) -> list[tuple[Site, DefinitionPlace | None]]:
    found: list[tuple[Site, DefinitionPlace | None]] = []
    listed: set[tuple[int, int, DefinitionPlace]] = set()
    for target in front:
        for use in view.graph.uses([target], check):
            if use.kind not in kinds or (level > 1 and use.confidence == "name_only"):
                continue  # do not guess on top of a guess
            key = (use.file, use.inside if use.inside >= 0 else -use.line, target)
            text = lines.at(use.file, use.line) if key not in listed else None
            if text is None:
                continue
            listed.add(key)
            inside = DefinitionPlace(use.file, use.inside) if use.inside >= 0 else None
            name = view.graph.symbol(inside).qualname if inside is not None else ""
            of = view.graph.symbol(target).qualname
            sure = use.confidence != "name_only"
            site = Site(
                path=lines.path(use.file),
                line=use.line,
                snippet=text,
                confidence=use.confidence,
                kind=use.kind,
                inside=name,
                of=of,
                depth=level,
            )
            found.append((site, inside if sure else None))
    return found


def _used(
    view: GraphView,
    front: list[DefinitionPlace],
    kinds: frozenset[str],
    level: int,
    lines: _Lines,
    check: Callable[[], None],
) -> list[tuple[Site, DefinitionPlace | None]]:
    found: list[tuple[Site, DefinitionPlace | None]] = []
    for target in front:
        of = view.graph.symbol(target).qualname
        places = view.graph.on_call(target) if level > 1 else None
        for edge in view.graph.edges(target, check, places):
            if edge.kind in kinds and lines.of(edge.target.file) is not None:
                line, text = lines.head(edge.target)
                name = view.graph.symbol(edge.target).qualname
                site = Site(
                    path=lines.path(edge.target.file),
                    line=line,
                    snippet=text,
                    confidence=edge.confidence,
                    kind=edge.kind,
                    inside=name,
                    of=of,
                    depth=level,
                )
                found.append((site, edge.target if edge.confidence != "name_only" else None))
    return found


def most_like(view: GraphView, targets: list[DefinitionPlace], query: str) -> list[DefinitionPlace]:
    """Those that a query names or, if none, all, sorted by the words that their names share with it."""
    query_words = set(re.findall(r"[a-z0-9]+", query.lower()))
    named = [one for one in targets if view.graph.symbol(one).name in query]
    if named:
        return named

    def shared(one: DefinitionPlace) -> int:
        return len(query_words & {part.lower() for part in words.split(view.graph.symbol(one).name)})

    return sorted(targets, key=lambda one: -shared(one))


def most_used(view: GraphView, targets: list[DefinitionPlace], check: Callable[[], None]) -> DefinitionPlace:
    """Of several definitions, the one with the most exact uses; the first of equals."""
    if len(targets) == 1:
        return targets[0]
    counts: dict[DefinitionPlace, int] = dict.fromkeys(targets, 0)
    for use in view.graph.uses(targets, check):
        if use.of is not None and use.confidence == "exact":
            counts[use.of] = counts.get(use.of, 0) + 1
    return max(targets, key=lambda one: counts[one])


# --- portraits -------------------------------------------------------------------------------------


class Portrait(NamedTuple):
    """Everything about one definition, or one file."""

    path: bytes
    first_line: int
    last_line: int
    kind: str
    qualname: str
    signature: str
    docstring: str
    source: str
    defined: list[str]
    incoming: list[Site]
    outgoing: list[Site]
    tests: list[Site]
    incoming_total: int


def portrait(view: GraphView, target: DefinitionPlace, most: int, check: Callable[[], None]) -> Portrait | None:
    """What a definition is, what uses it, what it uses; None if its file is not as it was indexed."""
    lines = _Lines(view)
    source = view.read(target.file)
    if source is None:
        return None
    symbol = view.graph.symbol(target)
    uses = [use for use in view.graph.uses([target], check) if use.kind != "import"]
    tests = [use for use in uses if TESTS.search(view.graph.path(use.file))]
    others = [use for use in uses if not TESTS.search(view.graph.path(use.file))]
    sure = [use for use in others if use.confidence != "name_only"] or others
    outgoing = [site for site, _ in _used(view, [target], _CALLS | {"inherit"}, 1, lines, check)]
    text = "\n".join(source.decode("utf-8", "replace").split("\n")[symbol.first_line - 1 : symbol.last_line])
    return Portrait(
        path=lines.path(target.file),
        first_line=symbol.first_line,
        last_line=symbol.last_line,
        kind=symbol.kind,
        qualname=symbol.qualname,
        signature=symbol.signature,
        docstring=doc_of(view.graph.modules.language(target.file), text),
        source=text,
        defined=_members(view, target),
        incoming=sites_of(view, sure[:most], several=False),
        outgoing=outgoing[:most],
        tests=sites_of(view, tests[:most], several=False),
        incoming_total=len(others),
    )


def _members(view: GraphView, target: DefinitionPlace) -> list[str]:
    symbols = view.graph.symbols(target.file)
    own = [one for place, one in enumerate(symbols) if one.parent == target.place and place != target.place]
    return [_member(one) for one in own if one.kind in CLASSES | FUNCTIONS] if own else []


def _member(symbol: Symbol) -> str:
    return f"{symbol.first_line} {symbol.kind} {symbol.qualname}"


def portrait_of_file(view: GraphView, path: str, most: int, check: Callable[[], None]) -> Portrait | None:
    """What a file defines, what imports it, what it imports."""
    file = next((number for number, own, _ in view.files.files() if own == path), None)
    source = view.read(file) if file is not None else None
    if file is None or source is None:
        return None
    lines = _Lines(view)
    symbols = view.graph.symbols(file)
    importers = view.graph.importers(file, check)
    text = source.decode("utf-8", "replace")
    outside = [one for one in symbols if one.parent < 0 or symbols[one.parent].kind in CLASSES]
    tests = [use for use in importers if TESTS.search(view.graph.path(use.file))]
    others = [use for use in importers if use not in tests]
    return Portrait(
        path=lines.path(file),
        first_line=1,
        last_line=text.count("\n") + (not text.endswith("\n")),
        kind="file",
        qualname=path,
        signature="",
        docstring=_head_of_file(text),
        source=text,
        defined=[_member(one) for one in outside],
        incoming=sites_of(view, others[:most], several=False),
        outgoing=_imported(view, file, lines, most),
        tests=sites_of(view, tests[:most], several=False),
        incoming_total=len(others),
    )


def _head_of_file(text: str) -> str:
    """The docstring of a file, or the comment that it begins with."""
    text = text.lstrip()
    if text.startswith("#!"):
        text = text.partition("\n")[2].lstrip()
    if quote := _OPENING_QUOTE.match(text):
        end = _END_OF_DOC.search(text, quote.end())
        head = text[quote.end() : end.start()] if end else ""
    else:
        head = "\n".join(itertools.takewhile(_OPENING_COMMENT.match, text[:_HEAD].split("\n")))
    return " ".join(_COMMENT_MARK.sub("", head).split())[:600]


def _imported(view: GraphView, file: int, lines: _Lines, most: int) -> list[Site]:
    found: dict[DefinitionPlace, Site] = {}
    for reference in view.files.record(file).all():
        if reference.kind == "import":
            for edge in view.graph.edge(file, reference):
                if edge.target not in found and edge.target.file != file and lines.of(edge.target.file) is not None:
                    line, text = lines.head(edge.target)
                    name = view.graph.symbol(edge.target).qualname
                    found[edge.target] = Site(
                        path=lines.path(edge.target.file),
                        line=line,
                        snippet=text,
                        confidence=edge.confidence,
                        kind="import",
                        inside=name,
                        of="",
                    )
        if len(found) >= most:
            break
    return list(found.values())
