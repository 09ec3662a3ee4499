"""The names that a file mentions, each with what stands before its dot: one pass over its tokens.

The tree says what is no code (strings, comments, names of arguments): that is blanked out. What is left is read
token by token with a stack of brackets, which is the same for every language and several times faster than asking
the tree for each name: `Foo(a).bar[0].baz(` mentions Foo, a, `Foo().bar` and `Foo().bar[].baz`, the last as a call.
"""

import re
from functools import lru_cache
from typing import NamedTuple

UNKNOWN = "?"  # a value that cannot be told
LITERAL = "'"  # a value of the language itself: text, a number, a list; nothing that a project defines

_IDENTIFIER = rb"[A-Za-z_$\x80-\xff][\w$\x80-\xff]*"
_SEPARATORS = {
    "python": rb"\.",
    "go": rb"\.",
    "c": rb"\.|->",
    "cpp": rb"\.|->|::",
    "objc": rb"\.|->",
    "php": rb"\?->|->|::",
    "rust": rb"\??\.|::",
    "lua": rb"\.|:",
    "ruby": rb"&\.|\.|::",
}
_OTHERWISE = rb"\?\.|\.|::"
_TYPE_ARGUMENTS = rb"(?=(?:::)?<[\w\s,.&?\[\]:<>|]*>\()"  # of a call: they are read as names of their own
_WITH_TYPE_ARGUMENTS = frozenset({"typescript", "tsx", "java", "cpp", "rust", "csharp", "kotlin", "swift", "scala"})
_OTHER_SUPER = re.compile(rb"\(\s*([A-Za-z_]\w*)\s*,")  # super(Class, self)
_NONE: frozenset[str] = frozenset()
_DEFINERS = {"python": frozenset({"def", "class"})}


class Mention(NamedTuple):
    """A name in the code, as it stands there."""

    name: str
    receiver: str | None  # what is before its dot; None where there is no dot
    called: bool
    at: int  # its first byte


class Scanned(NamedTuple):
    """What the tokens of a file say."""

    mentions: list[Mention]
    ends: dict[int, tuple[int, str]]  # where an expression ends that was asked for → its start and what it is


@lru_cache(maxsize=64)
def _tokens(language: str) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    separator = rb"\s*(?:" + _SEPARATORS.get(language, _OTHERWISE) + rb")\s*"
    called = rb"[ \t]*[(\[]|" + _TYPE_ARGUMENTS if language in _WITH_TYPE_ARGUMENTS else rb"[ \t]*[(\[]"
    macro = rb"!?" if language == "rust" else b""
    name = _IDENTIFIER
    dot = rb"(?:" + _SEPARATORS.get(language, _OTHERWISE) + rb")\s*"
    chain = rb"(" + dot + rb")?(" + name + rb"(?:" + separator + name + rb")*)" + macro + rb"(" + called + rb")?"
    return re.compile(chain + rb"|([(\[{])|([)\]}])"), re.compile(separator)


def scan(code: bytes, language: str, keywords: frozenset[str], wanted: set[int]) -> Scanned:
    """Every name in `code` but those right behind a word that defines one, in order.

    `wanted` are ends of expressions of which the caller wants to know more.
    """
    token, separator = _tokens(language)
    mentions: list[Mention] = []
    ends: dict[int, tuple[int, str]] = {}
    brackets: list[tuple[str | None, int]] = []  # what each open one belongs to, and where that starts
    closed, closed_at, closed_start = UNKNOWN, -1, 0  # the value before the bracket that was closed last
    definers, defining = _DEFINERS.get(language, _NONE), False
    for found in token.finditer(code):
        dot, chain, opener, opened, closer = found.groups()
        here = found.start()
        if chain is not None:
            start, end = found.span(2)
            value: str | None = None
            at = start
            if dot is not None and code[here - 1 : here] != b".":  # `...names` spreads, `1..n` counts
                while code[here - 1 : here].isspace():
                    here -= 1
                quoted = code[here - 1 : here] in (b'"', b"'")
                value, start = (closed, closed_start) if closed_at == here else (LITERAL if quoted else UNKNOWN, here)
            names = [chain.decode("utf-8", "replace")] if chain.isalnum() else _split(chain, separator)
            if value is None and len(names) == 1 and names[0] in keywords:
                defining = names[0] in definers
                if opener:
                    brackets.append((None, start))
                continue
            if defining:
                defining = False
                if opener:
                    brackets.append((None, start))
                continue
            for name in names[:-1]:
                mentions.append(Mention(name, value, False, at))
                value = name if value is None else f"{value}.{name}"
            name = names[-1]
            if len(names) > 1:
                at = end - len(name.encode())
            mentions.append(Mention(name, value, opener is not None and not opener.endswith(b"["), at))
            whole = name if value is None else f"{value}.{name}"
            if whole == "super" and (other := _OTHER_SUPER.match(code, end)):
                whole = f"super:{other[1].decode('utf-8', 'replace')}"
            if end in wanted:
                ends[end] = (start, whole)
            if opener:
                brackets.append((whole, start))
        elif opened is not None:
            owner = closed if here == closed_at and opened != b"{" else None  # f(1)(2), f(1)[2]
            brackets.append((owner, closed_start if owner is not None else here))
        else:
            owner, closed_start = brackets.pop() if brackets else (None, here)
            closed = UNKNOWN if owner is None else f"{owner}()" if closer == b")" else f"{owner}[]"
            closed_at = found.end()
            if owner is not None and closed_at in wanted:
                ends[closed_at] = (closed_start, closed)
    return Scanned(mentions, ends)


def _split(chain: bytes, separator: re.Pattern[bytes]) -> list[str]:
    return [name.decode("utf-8", "replace") for name in separator.split(chain)]
