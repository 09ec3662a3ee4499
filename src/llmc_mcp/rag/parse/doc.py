"""The documentation of a definition, extracted from its text without a parser.

Files may be crafted to attack a parser, so only confined children parse, and the server does not. Here a definition's
text is matched with patterns that take linear time, and no more of it than a docstring needs.
"""

import re

from .languages import traits_of

_DOC = 600  # characters of a docstring
_MOST = 20_000  # characters of a definition that are searched
_MOST_COMMENT = 4_000
_TAGS = re.compile(r"</?(?:summary|para|p|remarks|c|code|see\w*)\b[^<>\n]*>")
_ORNAMENT = re.compile(r"\W*")
_PARAMETER = re.compile(r"\{?@(?!doc\b)\w|:(?:param|return)")
_QUOTES = re.compile(r"""^[rRuUbBfF]{0,2}('''|\"""|'|")|('''|\"""|'|")$""")
_COMMENT_MARKS = re.compile(
    r"^[ \t]*(?:///?!?|//!|/\*\*?!?|\*+/|\*(?= |$)|#+!?|--+(?:\[=*\[| ?[|^])?|\{-\|?|;+|%+)[ \t]?"
    r"|^[ \t]*(?:@doc +(?:~\w)?\"{1,3}|\"+$)"
    r"|\*{1,80}/[ \t]*$|-\}[ \t]*$|\]=*\][ \t]*$",
    re.MULTILINE,
)
_HEAD = re.compile(r"^[ \t]*(?:async[ \t]+)?(?:def|class)\b", re.M)
_PIECE = re.compile(  # an unterminated string extends to the end, so no text is scanned twice
    r"""\#[^\n]*|\"""[\s\S]*?(?:\"""|\Z)|'''[\s\S]*?(?:'''|\Z)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|[][(){}:]"""
)
_SPACE = re.compile(r"(?:\s|#[^\n]*\n)*")
_STRING = re.compile(
    r"""([rRuUbBfF]{0,2}(?:\"""[\s\S]*?(?:\"""|\Z)|'''[\s\S]*?(?:'''|\Z)|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))"""
    r"[ \t]*(?:[;#\r\n]|\Z)"
)
_BLOCKS = (("/*", "*/"), ("{-", "-}"), ("--[[", "]]"), ("--[=[", "]=]"), ("@doc", '"""'))


def doc_of(language: str, text: str) -> str:
    """The first paragraph of a definition's docstring, or of the comment that its text begins with."""
    text = text[:_MOST]
    return (_docstring(text) if traits_of(language).docstring else "") or comment_text(_comments(language, text))


def _docstring(text: str) -> str:
    """The string right after the head of a Python definition."""
    head = _HEAD.search(text)
    depth = 0
    for piece in _PIECE.finditer(text, head.end()) if head is not None else ():
        mark = piece[0]
        if mark in "([{":
            depth += 1
        elif mark in ")]}":
            depth -= 1
        elif mark == ":" and depth <= 0:
            space = _SPACE.match(text, piece.end())
            string = _STRING.match(text, space.end() if space is not None else piece.end())
            return first_paragraph(unquoted(string[1])) if string is not None else ""
    return ""


def _comments(language: str, text: str) -> str:
    """The comments that a text begins with; attributes and decorators may come between them and the code."""
    marks = ("//", traits_of(language).line_comment or "//")
    found: list[str] = []
    until = ""
    for line in text[:_MOST_COMMENT].split("\n"):
        bare = line.strip()
        if until:
            found.append(line)
            until = "" if until in bare else until
        elif opened := next((pair for pair in _BLOCKS if bare.startswith(pair[0])), None):
            found.append(line)
            begun = bare.removeprefix(opened[0])
            if opened[0] == "@doc":
                until = opened[1] if begun.count(opened[1]) == 1 else ""
            else:
                until = "" if opened[1] in begun else opened[1]
        elif bare.startswith(marks):
            found.append(line)
        elif bare and not bare.startswith(("@", "[", "#[")):
            break
    return "\n".join(found)


def unquoted(string: str) -> str:
    """A string literal without its quotes."""
    return _QUOTES.sub("", string)


def comment_text(comment: str) -> str:
    """The first paragraph of a comment, without its marks."""
    return first_paragraph(_TAGS.sub("", _COMMENT_MARKS.sub("", comment))) if comment else ""


def first_paragraph(text: str) -> str:
    """A text up to its first empty line, ornament or parameter."""
    lines: list[str] = []
    for line in (line.strip() for line in text.splitlines()):
        if _ORNAMENT.fullmatch(line) and not lines:
            continue
        if _ORNAMENT.fullmatch(line) or _PARAMETER.match(line):
            break
        lines.append(line)
    return " ".join(lines)[:_DOC]
