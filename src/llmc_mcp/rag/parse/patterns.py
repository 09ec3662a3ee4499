"""Rewriting by pattern, by ast-grep: `foo($A, $$$REST)` matches code, whatever its layout.

ast-grep replaces text as it is given; the metavariables of the replacement are filled in here.
"""

import re
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from ast_grep_py import Pattern, SgNode

_METAVARIABLE = re.compile(r"\$\$\$([A-Z_][A-Z0-9_]*)|\$([A-Z_][A-Z0-9_]*)")
# Its names of languages, where they differ from ours.
NAMES = {"c_sharp": "csharp"}
LANGUAGES = frozenset(
    {"bash", "c", "cpp", "csharp", "css", "elixir", "go", "haskell", "html", "java", "javascript", "json", "kotlin"}
    | {"lua", "nix", "php", "python", "ruby", "rust", "scala", "solidity", "swift", "tsx", "typescript", "yaml"}
)
# On its own, a call reads as a declaration or a conversion in these languages.
_AROUND_CALLS = {"go": "func _() {{ {} }}", "c": "void _() {{ {}; }}", "cpp": "void _() {{ {}; }}"}
_CALL = re.compile(r"\s*[\w$.:>-]+\(.*\)\s*", re.S)


class RewriteQuery(msgspec.Struct, frozen=True, array_like=True, tag="rewrite"):
    """A text, a pattern, and what to put in place of each match."""

    language: str
    text: str
    pattern: str
    replacement: str


class Rewritten(msgspec.Struct, frozen=True, array_like=True):
    """The new text, and the lines of the matches in the old one."""

    text: str
    lines: list[int]
    problem: str = ""


def rewrite(query: RewriteQuery) -> Rewritten:
    """Replace every match; of matches inside each other, the outermost."""
    from ast_grep_py import SgRoot  # 10 ms, and 45 MB of grammars on the disk

    language = NAMES.get(query.language, query.language)
    root = SgRoot(query.text, language).root()
    unbound = metavariables(query.replacement) - metavariables(query.pattern)
    if unbound:
        return Rewritten(query.text, [], f"the pattern does not bind {', '.join(sorted(unbound))}")
    pieces: list[str] = []
    lines: list[int] = []
    position = 0
    for node in _matches(root, language, query.pattern):
        span = node.range()
        if span.start.index < position:
            continue  # inside the match before
        pieces += [query.text[position : span.start.index], _filled(query, node)]
        lines.append(span.start.line + 1)
        position = span.end.index
    return Rewritten("".join([*pieces, query.text[position:]]), lines)


def _matches(root: "SgNode", language: str, pattern: str) -> "list[SgNode]":
    around = _AROUND_CALLS.get(language)
    if around is not None and _CALL.fullmatch(pattern):
        inside: Pattern = {"context": around.format(pattern), "selector": "call_expression", "strictness": "smart"}
        return root.find_all(pattern=inside)
    return root.find_all(pattern=pattern)


def metavariables(text: str) -> set[str]:
    """The metavariables that a pattern or a replacement names, `$_` aside."""
    return {found[0] for found in _METAVARIABLE.finditer(text) if found[1] or not found[2].startswith("_")}


def _filled(query: RewriteQuery, node: "SgNode") -> str:
    def value(found: re.Match[str]) -> str:
        if found[1]:
            several = node.get_multiple_matches(found[1])
            if not several:
                return ""
            return query.text[several[0].range().start.index : several[-1].range().end.index]
        one = node.get_match(found[2])
        return one.text() if one is not None else found[0]

    return _METAVARIABLE.sub(value, query.replacement)
