"""The names that a file mentions, each with its receiver: one pass over its tokens.

The syntax tree marks what is not code (strings, comments, argument names); that is blanked out. The rest is read token
by token with a stack of brackets, which works for every language and is several times faster than querying the tree for
each name: `Foo(a).bar[0].baz(` mentions Foo, a, `Foo().bar` and `Foo().bar[].baz`, the last as a call.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from .languages import traits_of

UNKNOWN = "?"  # an unknown value
LITERAL = "'"  # a value of the language itself: a string, a number, a list; nothing that a project defines

_IDENTIFIER = r"[A-Za-z_$\x80-\xff][A-Za-z0-9_$\x80-\xff]*"
_TYPE_ARGUMENTS = r"(?=(?:::)?<[\w\s,.&?\[\]:<>|]{0,200}>\()"  # of a call: their names are scanned separately
_MADE = re.compile(r"new\(\s*((?:\w+\.)?\w+)\s*\)")
_OTHER_SUPER = re.compile(r"\(\s*([A-Za-z_]\w*)\s*,")  # super(Class, self)


# A name in the code: its text, its receiver (None without a dot), whether it is called, the offset of its first byte.
Mention = tuple[str, str | None, bool, int]


class TokenScan(NamedTuple):
    """The result of scanning the tokens of a file."""

    mentions: list[Mention]
    ends: dict[int, tuple[int, str]]  # end of each wanted expression → its start and its text


class _NameChain(NamedTuple):
    """Names that follow each other: `a.b.c`."""

    links: list[tuple[str, str | None, int]]  # all but the last: its text, its receiver, how far from the start it is
    receiver: str | None  # of the last
    name: str


@lru_cache(maxsize=64)
def _tokens(language: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """A pattern for what precedes a token and the token, and one for what stands between names.

    The first matches anywhere, if need be one character of no use or the end: where a pattern does not match, it is
    tried again at the next character, and most characters of a file begin no token.
    """
    traits = traits_of(language)
    dot = r"(?:" + traits.separator + r")\s*"
    called = r"[ \t]*+[(\[]|" + _TYPE_ARGUMENTS if traits.type_arguments else r"[ \t]*+[(\[]"
    macro = re.escape(traits.macro_mark) + "?" if traits.macro_mark else ""
    name = _IDENTIFIER
    chain = r"(" + dot + r")?(" + name + r"(?:\s*+" + dot + name + r")*)" + macro + r"(" + called + r")?"
    begins_dot = "[" + re.escape("".join(sorted(set(traits.separator) - set(r"\|>")))) + "]"
    no_token = r"[^A-Za-z_$\x80-\xff()\[\]{}" + begins_dot[1:] + "*+"
    token = no_token + r"(?:" + chain + r"|([(\[{])|([)\]}])|" + begins_dot + r"|\Z)"
    return re.compile(token), re.compile(r"\s*" + dot)


def _chain(value: str | None, chain: str, separator: re.Pattern[str], *, paths: bool) -> _NameChain:
    """The names of a chain after a value; `paths`: `a::b` is no attribute of a variable a."""
    *others, name = separator.split(chain)
    links: list[tuple[str, str | None, int]] = []
    within = 0
    for other in others:
        within = chain.index(other, within)  # a chain may span lines
        links.append((other, value, within))
        within += len(other)
        if value is None:
            value = f"::{other}" if paths and chain.startswith("::", within) else other
        else:
            value = f"{value}.{other}"
    return _NameChain(links, value, name)


def scan(  # noqa: C901, PLR0912, PLR0915 - one pass over every token of a file: calls would double its time
    code: bytes, language: str, keywords: frozenset[str], wanted: set[int]
) -> TokenScan:
    """Every name in `code`, in order, except those that directly follow a defining keyword.

    `wanted` holds the ends of the expressions whose start and text the caller needs.
    """
    token, separator = _tokens(language)
    text = code.decode("latin-1")  # one character per byte, so offsets stay valid; names are decoded one by one
    plain = code.isascii()
    mentions: list[Mention] = []
    add = mentions.append
    ends: dict[int, tuple[int, str]] = {}
    brackets: list[tuple[str | None, int]] = []  # the expression before each open one, and its start
    closed, closed_at, closed_start = UNKNOWN, -1, 0  # the value that ends with the last closed bracket
    literals, ended, named = traits_of(language).literals, -1, ("", 0)  # the last chain: its end; its text and start
    paths = language in ("rust", "cpp")  # a::b is no attribute of a variable a
    referring = language == "java"  # A::b is a method, as one that is called
    braced = LITERAL if language == "python" else UNKNOWN  # a dictionary or a set; a block may be a value elsewhere
    definers, defining = traits_of(language).definers, False
    chains: dict[tuple[str | None, str], _NameChain] = {}  # a file has few that differ
    for found in token.finditer(text):
        dot, chain, opener, opened, closer = found.groups()
        if chain is not None:
            start, end = found.span(2)
            if dot is not None and text.startswith(".", start - len(dot) - 1, start - len(dot)):
                dot = None  # `...names` spreads, `1..n` counts
            single = chain.isidentifier()
            if single and dot is None and (defining or chain in keywords):
                defining = not defining and chain in definers
                if opener:
                    brackets.append((None, start))
                continue
            value: str | None = None
            at = start
            if dot is not None:
                value, start = _before_dot(text, start - len(dot), closed, closed_at, closed_start)
            if not plain and not chain.isascii():
                chain = chain.encode("latin-1").decode("utf-8", "replace")
            if single:
                name = chain
            else:
                key = value, chain
                known = chains.get(key)
                if known is None:
                    known = chains[key] = _chain(value, chain, separator, paths=paths)
                links, value, name = known
                for other, before, within in links:
                    add((other, before, False, at + within))
                at = end - (len(name) if plain else len(name.encode()))
            called = opener is not None and not opener.endswith("[")
            add((name, value, called or (referring and text.endswith("::", 0, at)), at))
            if opener or literals or end in wanted:
                whole = name if value is None else f"{value}.{name}"
                if whole == "super" and (other_class := _OTHER_SUPER.match(text, end)):
                    whole = f"super:{other_class[1]}"
                if end in wanted:
                    ends[end] = (start, whole)
                ended, named = end, (whole, start)
                if opener:
                    brackets.append((whole, start))
        elif opened is not None:
            here = found.end() - 1
            if literals and opened == "{" and here == ended:  # Point{1, 2}
                brackets.append(named)
                continue
            owner = closed if here == closed_at and opened != "{" else None  # f(1)(2), f(1)[2]
            brackets.append((owner, closed_start if owner is not None else here))
        elif closer is not None:
            here = found.end()
            owner, began = brackets.pop() if brackets else (None, here - 1)
            if owner == "new" and literals and (made := _MADE.fullmatch(text, began, here)):  # new(Type) of Go
                closed = f"{separator.sub('.', made[1])}()"
            elif owner is not None:
                closed = f"{owner}[]" if closer == "]" else f"{owner}()"
            elif closer != ")":
                closed = braced if closer == "}" else LITERAL
            elif closed_at != here - 1 or closed_start != began + 1:  # (f(1)) is f(1)
                closed = UNKNOWN
            closed_start, closed_at = began, here
            if owner is not None and closed_at in wanted:
                ends[closed_at] = (closed_start, closed)
    return TokenScan(mentions, ends)


def _before_dot(text: str, here: int, closed: str, closed_at: int, closed_start: int) -> tuple[str, int]:
    """What precedes a dot that begins a chain: a bracket that was just closed, a string, or something unknown."""
    while text[here - 1 : here].isspace():
        here -= 1
    if closed_at == here:
        return closed, closed_start
    return (LITERAL if text[here - 1 : here] in ('"', "'") else UNKNOWN), here
