"""What a query asks for: a name, a question, or a task with several parts.

A task is an issue, a traceback or a mail, pasted as it is. Its first line says most; the rest is prose, code and
output, and both mention names, paths and the frames of a traceback. Each part is searched on its own, because a word
in quoted output says less than one in the title. Versions in a task describe somebody's machine, so they are left out.
"""

import re
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

import msgspec

from . import words
from .detect import language_of
from .languages import DOCUMENT_ENDINGS

LONGEST = 20_000  # characters that are read
_LONGEST_QUESTION = 240  # characters of one line; a longer one is a task
_MOST_NAMES, _MOST_PLACES, _MOST_FRAMES = 40, 24, 12
_MOST_TERMS = 400  # of one part; the rarest of them are searched
_SHORTEST_NAME = 3

_NAME = re.compile(r"[^\W\d]\w*(?:(?:\.|::|->|#|\\|/)[^\W\d]\w*[!?]?)*")
_SEPARATOR = re.compile(r"\.|::|->|#|\\|/")
_MARKED = re.compile(r"\.|::|->|#|\\|/|_|(?<=.)[^\W\d_a-z]")  # other scripts have capitals too, and some have none
_VERSION = re.compile(r"\bv?\d+(?:\.\d+)+[\w.+-]*")
_URL = re.compile(r"\b[a-z]{2,8}://[^\s<>\"')\]]+")
_FENCE = re.compile(r"^ {0,3}(?:```|~~~)")
_TICKS = re.compile(r"`([^`\n]{1,120})`")
_TOKEN = re.compile(r"[^\s\"'`()<>,;=\[\]{}|*]{3,300}")
_PATH = re.compile(r"[\w.@~+:/\\-]+")
_LINE = re.compile(r":\d+(?::\d+)?$")
_ENDING = re.compile(r"[\w-]\.[A-Za-z][A-Za-z0-9_]{0,7}$")
_FRAMES = (
    re.compile(r'File "([^"\n]{1,300})", line (\d+)(?:, in ([\w.<>]{1,80}))?'),  # Python
    # JavaScript
    re.compile(r"^[ \t]*at (?:(?:async )?([\w.$<>\[\] ]{1,120}) )?\(?([^()\s:]{1,300}):(\d+)(?::\d+)?\)?", re.M),
    re.compile(r"^[ \t]*at ([\w.$<>]{1,200})\(([\w.]{1,100}):(\d+)\)", re.M),  # Java
    re.compile(r"^[ \t]*(?:from )?([\w./-]{1,300}\.\w{1,5}):(\d+):in [`']?([\w.<>#?! ]{1,80})", re.M),  # Ruby
    re.compile(r"^[ \t]*([\w./-]{1,300}\.\w{1,5}):(\d+)\b", re.M),  # Go, Rust, compilers
)
_CODE_START = re.compile(
    r"^\s*(?:>>>|\.\.\. |\$ |#include\b|@\w|from [\w.]+ import |import [\w.{]|def \w+\(|class \w+[(:{]|return\b"
    r"|raise \w|(?:if|for|while|with|elif|else|try|except|async|public|private|const|let|var|func|fn|pub)\b.*[:{;]\s*$)"
)
_CODE_MARKS = re.compile(r"[=(){}\[\];]|->|::")
_ASKS_TESTS = re.compile(
    r"\b(?:(?:unit|regression|integration|add|write|missing) tests?|(?:which|where|the|flaky) tests"
    r"|tests? (?:for|of|cover\w*|cases?)|test suite|specs? for)\b",
    re.I,
)
_ASKS_ASIDE = re.compile(
    r"\b(?:(?:in|fix|update|the|improve|add) (?:docs|documentation|readme|tutorials?|examples?)"
    r"|examples? (?:of|for)|benchmarks?)\b",
    re.I,
)


class Question(msgspec.Struct, frozen=True):
    """A parsed query. `words` to `names` are of its title: the first line of a task, else all of it."""

    words: tuple[str, ...]  # terms: stems of its words and of its identifiers' parts, and whole identifiers, each once
    stems: tuple[str, ...]  # only the stems, in their order
    wholes: tuple[str, ...]  # only the whole identifiers, each once
    pairs: tuple[tuple[str, str], ...]  # adjacent stems, stop words left out
    names: tuple[str, ...]  # words written like identifiers: HTTPAdapter, send_file, Plug.Router
    symbol: bool  # whether it is a single name
    is_task: bool = False
    prose: tuple[tuple[str, int], ...] = ()  # stems of the rest, and how often each occurs
    code: tuple[tuple[str, int], ...] = ()  # … of code and output in the rest
    prose_names: tuple[str, ...] = ()
    code_names: tuple[str, ...] = ()
    places: tuple[str, ...] = ()  # paths and modules anywhere in it, in lower case, with slashes
    frames: tuple[tuple[str, str], ...] = ()  # of tracebacks: path and function, the innermost first
    plain: tuple[str, ...] = ()  # words of a question as written, in lower case: one may be two, or two one
    wants_tests: bool = False
    wants_aside: bool = False  # documentation, examples
    is_path: bool = False  # whether it is a single path

    def everything(self) -> list[tuple[str, int]]:
        """The terms of all parts of a task, and how often each occurs."""
        if not self.is_task:
            return []
        counts = Counter([*self.stems, *self.wholes])
        for term, count in (*self.prose, *self.code):
            counts[term] += count
        return list(counts.items())


def question(text: str) -> Question:
    """Parse a query."""
    text = text.strip()[:LONGEST]
    if "\n" in text or len(text) > _LONGEST_QUESTION:
        return _task(text)
    return _titled(text, _TaskParts())


class _TaskParts(msgspec.Struct):
    """What follows the title of a task."""

    prose: str = ""
    code: str = ""
    frames: tuple[tuple[str, str], ...] = ()


def _task(text: str) -> Question:
    text = _URL.sub(" ", text)
    title, rest = _title_of(text)
    frames = _frames(rest)
    prose, code = _split(rest)
    title, prose = _VERSION.sub(" ", title), _VERSION.sub(" ", prose)
    return _titled(title, _TaskParts(prose, _VERSION.sub(" ", code), frames), is_task=True)


def _titled(title: str, rest: _TaskParts, *, is_task: bool = False) -> Question:
    found: list[str] = _NAME.findall(title)
    is_path = not is_task and _is_path(title)
    alone = not is_path and len(found) == 1 and found[0] == title.strip("`'\"()?.") and len(title) <= 64
    titled, prose_names, code_names = _names(title), _names(rest.prose), _names(rest.code)
    names = [name for name in titled if "/" not in name]
    if alone and not names:
        names = found
    kept = [word for word in words.all_words(title) if alone or word.lower() not in words.STOP]
    parts, wholes = words.take_apart(" ".join(kept))
    stems = parts.split()
    return Question(
        words=tuple(dict.fromkeys([*stems, *wholes.split()])),
        stems=tuple(stems),
        wholes=tuple(dict.fromkeys(wholes.split())),
        pairs=tuple(dict.fromkeys(pair for pair in pairwise(stems) if pair[0] != pair[1])),
        names=tuple(dict.fromkeys(names)),
        symbol=alone,
        is_task=is_task,
        prose=_counted(rest.prose),
        code=_counted(rest.code),
        prose_names=prose_names[:_MOST_NAMES],
        code_names=code_names[:_MOST_NAMES],
        places=(_place(title),)
        if is_path
        else _places((title, titled), (rest.prose, prose_names), (rest.code, code_names)),
        frames=rest.frames,
        plain=() if is_task else tuple(word.lower() for word in kept if word.isalpha()),
        wants_tests=bool(_ASKS_TESTS.search(title)),
        wants_aside=bool(_ASKS_ASIDE.search(title)),
        is_path=is_path,
    )


def _is_path(title: str) -> bool:
    if not _PATH.fullmatch(title):
        return False
    if "/" in title:
        return bool(_ENDING.search(title))
    return bool(language_of(title, b"")) or title.rpartition(".")[2].lower() in DOCUMENT_ENDINGS


def _title_of(text: str) -> tuple[str, str]:
    """The first line, or the first sentence of a long one; and the rest."""
    first, _, rest = text.partition("\n")
    if len(first) <= _LONGEST_QUESTION:
        return first, rest
    sentence = re.match(r".{40,240}?[.!?:](?=\s)|.{1,240}(?=\s)", first)
    end = sentence.end() if sentence else _LONGEST_QUESTION
    return first[:end], f"{first[end:]}\n{rest}"


def _split(text: str) -> tuple[str, str]:
    """Prose, and code or output: what is fenced, prompted, indented like code or full of brackets."""
    prose: list[str] = []
    code: list[str] = []
    fenced = False
    for line in text.split("\n"):
        if _FENCE.match(line):
            fenced = not fenced
            continue
        (code if fenced or _like_code(line) else prose).append(line)
    return "\n".join(prose), "\n".join(code)


def _like_code(line: str) -> bool:
    if _CODE_START.match(line):
        return True
    bare = line.strip()
    if len(bare) < 4:
        return False
    marks = len(_CODE_MARKS.findall(bare))
    plain = len(re.findall(r"(?<!\S)[A-Za-z',-]+[.,:]?(?!\S)", bare))
    return marks >= 2 and marks >= plain


def _counted(text: str) -> tuple[tuple[str, int], ...]:
    parts, wholes = words.take_apart(text)
    return tuple(Counter([*parts.split(), *wholes.split()]).most_common(_MOST_TERMS))


def _names(text: str) -> tuple[str, ...]:
    """Words written like identifiers, and what stands between backticks, each once; the most frequent first."""
    quoted = [name for piece in _TICKS.findall(text) for name in _NAME.findall(piece) if len(name) >= _SHORTEST_NAME]
    counts = Counter(_NAME.findall(text))
    counts.update(quoted)
    wanted = set(quoted)
    return tuple(name for name, _ in counts.most_common() if name in wanted or _like_an_identifier(name))


def _like_an_identifier(name: str) -> bool:
    """Whether a word of a query is written like a name in code and unlike English."""
    return bool(_MARKED.search(name)) and not name.isupper()


def _places(*parts: tuple[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Paths and dotted names as paths, in the order of the parts: each a text and its names."""
    found: dict[str, None] = {}
    for text, names in parts:
        for token in _TOKEN.findall(text):
            path = token.rstrip(".:?!")
            like_one = "/" in path or "\\" in path or ("." in path and _ENDING.search(path))
            if like_one and _PATH.fullmatch(path):
                found[_place(path)] = None
        for name in names:
            if "/" not in name and len(pieces := _SEPARATOR.split(name)) > 1:
                found["/".join(pieces).lower()] = None
    return tuple(found)[:_MOST_PLACES]


def _place(path: str) -> str:
    return _LINE.sub("", path.replace("\\", "/").lower().lstrip("./~"))


def _frames(text: str) -> tuple[tuple[str, str], ...]:
    """The frames of tracebacks, the innermost first."""
    python, javascript, java, ruby, others = _FRAMES
    if rows := python.findall(text):
        return _each_once((path, function) for path, _, function in reversed(rows))
    if rows := java.findall(text):
        return _each_once((_java_place(function, file), function.rpartition(".")[2]) for function, file, _ in rows)
    if rows := javascript.findall(text):
        return _each_once((path, function.rpartition(".")[2]) for function, path, _ in rows)
    if rows := ruby.findall(text):
        return _each_once((path, function) for path, _, function in rows)
    return _each_once((path, "") for path, _ in others.findall(text))


def _java_place(function: str, file: str) -> str:
    package = function.split(".")[:-2]
    return "/".join([*package, file])


def _each_once(frames: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple(dict.fromkeys((_place(path), function) for path, function in frames))[:_MOST_FRAMES]


def last_name(name: str) -> str:
    """The last part of a qualified name: Router for Plug.Router."""
    return _SEPARATOR.split(name)[-1]


def owner_name(name: str) -> str:
    """The part before the last one: Plug for Plug.Router; empty for a plain name."""
    parts = _SEPARATOR.split(name)
    return parts[-2] if len(parts) > 1 else ""
