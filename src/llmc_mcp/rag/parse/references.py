"""The references of a file (calls, imports, bases, uses) and the bindings of its names."""

import re
from bisect import bisect_right
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from tree_sitter import Node

from .facts import SyntaxFacts
from .languages import traits_of
from .parse import SyntaxTree, grammar
from .queries import BINDERS
from .scan import LITERAL, Mention, scan
from .scopes import CLASSES, FUNCTIONS, PART, ClassScope, Scopes
from .types import Binding, Definition, ReferenceRow

_NOT_KEYWORDS = frozenset({"self", "this", "super", "cls", "base", "Self", "crate", "print", "exec", "match", "case"})
_MEMBER = re.compile(r"<(?:[\w$]+\.)*([\w$]+)>\.\1")  # a class that an import names
_MOST = 40_000  # references of one file; more means generated code


class FileReferences(NamedTuple):
    """What `find` makes of a file."""

    references: list[ReferenceRow]
    bindings: list[Binding]
    imports: list[tuple[str, str]]  # name and path of its source; they are among the references as well


_NOTHING = FileReferences([], [], [])


class LanguageReader(NamedTuple):
    """How references of one language are found."""

    keywords: frozenset[str]
    bind: Callable[[dict[str, list[Node]], Scopes, SyntaxFacts], None] | None
    built_in: frozenset[str]
    class_scope: ClassScope  # who sees the names of a class without a receiver
    definers: bool  # the scan skips the names of functions and classes
    selves: dict[str, str]
    prelude: dict[str, str]  # paths of names that need no import
    destructures: bool  # `const { a } = b` makes a name of b's attribute
    static_imports: bool  # an import names the member of a class: `<a.B>.B.member`
    imports_apart: bool  # patterns of their own tell imports, whatever else the file has
    calls_apart: bool
    fields_apart: bool  # an attribute that is not called is a field, never a method


@lru_cache(maxsize=64)
def _reader_of(language: str) -> LanguageReader:
    tree_language = grammar(language)
    kinds = {tree_language.node_kind_for_id(place) or "" for place in range(tree_language.node_kind_count)}
    keywords = frozenset(kind for kind in kinds if kind.isidentifier()) - _NOT_KEYWORDS
    named = {
        kind
        for place in range(tree_language.node_kind_count)
        if tree_language.node_kind_is_named(place) and (kind := tree_language.node_kind_for_id(place))
    }
    binder = BINDERS.get(language)
    if binder is None:
        return LanguageReader(
            keywords=keywords - named,
            bind=None,
            built_in=frozenset(),
            class_scope="methods",
            definers=False,
            selves={"this": "()", "self": "()"},
            prelude={},
            destructures=False,
            static_imports=False,
            imports_apart=False,
            calls_apart=False,
            fields_apart=False,
        )
    return LanguageReader(
        keywords=keywords - named,
        bind=binder.bind,
        built_in=binder.BUILT_IN,
        class_scope=binder.CLASS_SCOPE,
        definers=bool(traits_of(language).definers),
        selves=getattr(binder, "SELVES", {}),
        prelude=getattr(binder, "PRELUDE", {}),
        destructures=getattr(binder, "DESTRUCTURES", False),
        static_imports=getattr(binder, "STATIC_IMPORTS", False),
        imports_apart=hasattr(binder, "IMPORTS"),
        calls_apart=traits_of(language).calls_apart,
        fields_apart=getattr(binder, "FIELDS_APART", False),
    )


def find(syntax: SyntaxTree, definitions: list[Definition], captures: dict[str, list[Node]]) -> FileReferences:
    """References and bindings of a file, by what a query for references has found.

    There are none in a document, or in a text that could not be parsed in time.
    """
    return located(syntax, definitions, captures, ReferenceBytes())


class ReferenceBytes:
    """Where references are, for an edit that replaces a name."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.places: list[int] = []  # of each reference the byte of its name or, of an import, one of the statement
        self.unsettled: list[int] = []  # where the name stands for an import among other things: no reference

    def skip(self, inside: int, at: int, scopes: Scopes) -> None:
        """Take note of a mention of the name that is no reference."""
        if "<" in str(scopes.meaning(self.name, inside, at)):
            self.unsettled.append(at)


def located(
    syntax: SyntaxTree, definitions: list[Definition], captures: dict[str, list[Node]], where: ReferenceBytes
) -> FileReferences:
    """The same, and where it is in the text."""
    if not syntax.complete or not traits_of(syntax.language).is_code:
        return _NOTHING
    try:
        return _find(syntax, definitions, captures, where)
    except RecursionError:  # nested a thousand deep: the file can still be searched
        return _NOTHING


def imports(
    syntax: SyntaxTree, definitions: list[Definition], captures: dict[str, list[Node]]
) -> list[tuple[str, str]]:
    """What a file imports: a part of what `find` returns, for a fraction of its time; by a query for imports."""
    reader = _reader_of(syntax.language)
    if reader.bind is None or not captures:
        return []
    facts, known = SyntaxFacts(syntax.source), [] if reader.imports_apart else definitions
    scopes = Scopes(known, class_scope=reader.class_scope, selves=reader.selves, prelude=reader.prelude)
    try:
        reader.bind(captures, scopes, facts)
    except RecursionError:
        return []
    return [(name, path) for name, path, _ in facts.imports]


def keywords(language: str) -> frozenset[str]:
    """The words of a language that can't be names."""
    return _reader_of(language).keywords


def _find(
    syntax: SyntaxTree, definitions: list[Definition], captures: dict[str, list[Node]], where: ReferenceBytes
) -> FileReferences:
    reader = _reader_of(syntax.language)
    facts = SyntaxFacts(syntax.source)
    scopes = Scopes(definitions, class_scope=reader.class_scope, selves=reader.selves, prelude=reader.prelude)
    if reader.bind is not None:
        reader.bind(captures, scopes, facts)
    code = _only_code(syntax.source, captures, facts)
    scanned = scan(code, syntax.language, reader.keywords, facts.wanted())
    scopes.bind(facts.bounds, scanned.ends)
    lines = syntax.line_starts
    references: list[ReferenceRow] = [
        (name, path, "import", bisect_right(lines, at), scopes.inside(at)) for name, path, at in facts.imports
    ]
    where.places = [at for *_, at in facts.imports]
    for one, at in facts.taken:
        name, path = scopes.taken(one)
        if path and name.isidentifier():
            references.append((name, path, "use", bisect_right(lines, at), scopes.inside(at)))
            where.places.append(at)
    mentions = [*scanned.mentions[:_MOST], *((name, None, False, at) for name, at in facts.exported)]
    if reader.fields_apart:
        mentions = [one for one in mentions if one[1] is None or one[2] or code[one[3] - 1 : one[3]] != b"."]
    references += _references(mentions, reader, scopes, facts, lines, where)
    return FileReferences(references, scopes.bindings(), [(name, path) for name, path, _ in facts.imports])


def _references(
    mentions: list[Mention],
    reader: LanguageReader,
    scopes: Scopes,
    facts: SyntaxFacts,
    lines: list[int],
    where: ReferenceBytes,
) -> list[ReferenceRow]:
    found: list[ReferenceRow] = []
    add, add_place = found.append, where.places.append
    waiting = _own_names(scopes.definitions, reader.definers)
    bare: dict[tuple[int, str, bool], tuple[str, str, int, int]] = {}  # and the byte range in which they hold
    holders, paths, inherited, built_in = scopes.holders, scopes.paths, facts.inherited, reader.built_in
    reads_in, since, until = -1, 0, 0  # the byte range in which `reads_in` holds
    inside, first, last = -1, 0, 0  # likewise; mentions come in the order of the text, nearly all
    line, line_start, line_end = 0, 0, 0
    for written, receiver, called, at in mentions:
        if not since <= at < until:
            reads_in, since, until = scopes.stretch(at)
        if receiver is None and written not in holders:
            name, path = written, LITERAL if written in built_in else ""
        elif receiver is None:
            key = reads_in, written, called
            meant = bare.get(key)
            if meant is None or not meant[2] <= at < meant[3]:
                refers = _bare(written, reads_in, at, scopes, reader, called=called)
                meant = bare[key] = *refers, *scopes.narrow_range(written, at)
            name, path, _, _ = meant
        else:
            name, known = written, paths.get((reads_in, receiver))
            if known is not None and known[1] <= at < known[2]:
                path = known[0]
            else:
                path = scopes.path(receiver, at, reads_in)
        if path == LITERAL:
            if receiver is None and written == where.name:
                where.skip(reads_in, at, scopes)
            continue
        if not first <= at < last:
            inside, first, last = scopes.inside_stretch(at)
        if written in waiting and _is_definition(waiting[written], scopes.definitions, at, inside):
            continue
        if not line_start <= at < line_end:
            line = bisect_right(lines, at)
            line_start, line_end = lines[line - 1], lines[line] if line < len(lines) else at + 1
        inherits = at + len(written) in inherited
        add((name, path, "inherit" if inherits else "call" if called else "use", line, inside))
        add_place(at)
    return found


def _own_names(definitions: list[Definition], but: bool) -> dict[str, set[int]]:
    """Definitions by name, those whose own name the scan will still encounter."""
    waiting: dict[str, set[int]] = {}
    for place, one in enumerate(definitions):
        if one.kind != PART and (not but or one.kind not in CLASSES | FUNCTIONS):
            waiting.setdefault(one.name, set()).add(place)
    return waiting


def _is_definition(places: set[int], definitions: list[Definition], at: int, inside: int) -> bool:
    """Whether a mention is the definition's own name: the first one in its span."""
    while inside >= 0:
        if inside in places and definitions[inside].span.start <= at:
            places.remove(inside)
            return True
        inside = definitions[inside].parent
    return False


def _bare(name: str, inside: int, at: int, scopes: Scopes, reader: LanguageReader, *, called: bool) -> tuple[str, str]:
    """What a name without a receiver refers to, as name and path; LITERAL for what need not be indexed."""
    found = scopes.meaning(name, inside, at, called if reader.calls_apart else None, only_names=True)
    if isinstance(found, int):
        return name, f"=#{found}"
    if found is None:
        return name, LITERAL if name in reader.built_in else ""
    if found[0] == "<":
        module, _, attribute = found.rpartition(".")
        if module.endswith(">") and attribute.isidentifier():
            return attribute, module
        if reader.static_imports and attribute == name and _MEMBER.fullmatch(module):
            return attribute, module
    if reader.destructures and found.endswith(f".{name}") and found[0] not in "?'":
        return name, found[: -len(name) - 1]
    return name, LITERAL


def _only_code(source: bytes, captures: dict[str, list[Node]], facts: SyntaxFacts) -> bytes:
    """The file with comments blanked and strings turned into quotes; code interpolated into strings is kept."""
    pieces = [
        (node.start_byte, node.end_byte, kind) for kind in ("blank", "text", "code") for node in captures.get(kind, ())
    ]
    pieces += [(start, end, "blank") for start, end in facts.blanks]
    pieces.sort()
    code = bytearray(source)
    for start, end, kind in pieces:
        if kind == "code":
            code[start:end] = source[start:end]
        elif kind == "blank":
            code[start:end] = b" " * (end - start)
        else:
            code[start:end] = b'"' * (end - start)
    return bytes(code)
