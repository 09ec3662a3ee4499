"""Words of code and of questions: identifiers whole and in parts, stemmed alike on both sides of a search."""

import re
from functools import lru_cache

_WORD = re.compile(r"\d+(?:\.\d+)+(?![\w.])|[^\W_][\w]*|_\w+")
_WORD_CHARACTERS, _DECIMALS = re.compile(r"\w+"), re.compile(r"\.\d")
_BLANKED = "".join(chr(code) if _WORD_CHARACTERS.match(chr(code)) else " " for code in range(128))  # of ASCII
# Letters of Latin scripts, numbers, and runs of other letters, which have no words within words.
_PART = re.compile(
    r"[A-ZÀ-ÖØ-Þ]+(?![a-zß-öø-ÿ\u0100-\u024f])|[A-ZÀ-ÖØ-Þ]?[a-zß-öø-ÿ\u0100-\u024f]+|[0-9]+"
    r"|[^\W\d_A-Za-zÀ-ÖØ-öø-\u024f]+"
)
_SPACE = re.compile(r"\s")
_LONGEST = 64  # letters; anything longer is data, not a word
_LONGEST_NUMBER = 4  # digits: a year, a status code
_DEEPEST_PLACE = 6  # folders of a path that name a file
# Files that are named by their folder.
MODULES = frozenset({"__init__", "index", "mod", "lib", "package-info", "exports", "doc"})

# Stop words: they tell nothing about code.
STOP = frozenset(
    """
    a about all an and any are as at be been being but by can could did do does done for from get gets got had has have
    how i if in into is it its me my no not of on or our should so such than that the their them then there these they
    this those to up us use used uses using via was we were what when where which while who whom whose why will with
    within without would you your
    """.split()  # noqa: SIM905 - a list of quoted words reads no better
)


def split(identifier: str) -> list[str]:
    """The parts of an identifier in lower case: HTTPServer2_fooBar is http, server, 2, foo, bar."""
    return [part.lower() for part in _PART.findall(identifier)]


class _Stems(dict[str, str]):
    """The stems of each word's parts, joined by spaces; computed once, and forgotten together when they are many.

    Every word of every file is looked up here, so it is a dictionary that fills itself: a cached function would take
    twice the time. `wholes` holds the word as one term where it has several parts.
    """

    _MOST = 100_000

    def __init__(self) -> None:
        super().__init__()
        self.wholes: dict[str, str] = {}

    def __missing__(self, word: str) -> str:
        if len(self) >= self._MOST:
            self.clear()
            self.wholes.clear()
        stems, whole = _parts(word)
        if whole:
            self.wholes[word] = whole
        self[word] = stems
        return stems


def _parts(word: str) -> tuple[str, str]:
    """The stems of a word's parts, joined by spaces; and the whole word as one term if it has several."""
    if len(word) > _LONGEST or word.lower() in STOP:
        return "", ""
    if "." in word:
        return "", word  # a version, or a number with decimals
    parts = split(word)
    telling = [stem(part) for part in parts if len(part) > 1 and not (len(part) > _LONGEST_NUMBER and part.isdigit())]
    return " ".join(telling), "".join(parts) if len(parts) > 1 else ""


_stems = _Stems()


def take_apart(text: str) -> tuple[str, str]:
    """A text as it is indexed: the stems of its words and of its identifiers' parts; and whole identifiers.

    They are kept apart so that adjacent parts of the text stay neighbours, however they are written:
    `type adapter`, `typeAdapter` and `type_adapter` are one phrase. Single letters and stop words are left out.
    """
    # Unless there may be numbers with decimals, words are runs of word characters; a lone `_` has no parts.
    if _DECIMALS.search(text):
        found = _WORD.findall(text)
    else:
        found = text.translate(_BLANKED).split() if text.isascii() else _WORD_CHARACTERS.findall(text)
    stems = " ".join(filter(None, map(_stems.__getitem__, found)))
    return stems, " ".join(filter(None, map(_stems.wholes.get, found)))


def terms(text: str) -> str:
    """All terms of a text, joined by spaces."""
    return " ".join(part for part in take_apart(text) if part)


@lru_cache(50_000)
def name_term(name: str) -> str:
    """An identifier as one term, however it is written: send_file, sendFile and SendFile are one."""
    return "".join(split(name))


def definition_terms(name: str, qualname: str, *, is_type: bool) -> list[str]:
    """The terms by which a definition is found: its name however it is written, exactly as written, with its owner."""
    term = name_term(name)
    if not term:
        return []
    owner = qualname.removesuffix(f".{name}").rpartition(".")[2] if qualname != name else ""
    terms = [term, f"={name}"] if len(name) <= _LONGEST and not _SPACE.search(name) else [term]
    if is_type:
        terms.append(f"^{term}")
    if owner and (owner_term := name_term(owner)):
        terms.append(f"{owner_term}.{term}")
    return terms


def places(path: str) -> list[str]:
    """The ways to name a file by its path: each end of it, with and without the ending, and a module by its folder.

    `a/b/__init__.py` is also `a/b`, so that the module a.b leads to it.
    """
    low = _SPACE.sub("_", path.lower()).encode("utf-8", "replace").decode()  # a name need not be text
    folder, _, name = low.rpartition("/")
    bare = name.partition(".")[0] or name
    ways = [low, f"{folder}/{bare}" if folder else bare]
    if bare in MODULES and folder:
        ways.append(folder)
    found: dict[str, None] = {}
    for way in ways:
        parts = way.split("/")
        for at in range(max(len(parts) - _DEEPEST_PLACE, 0), len(parts)):
            found["/".join(parts[at:])] = None
    return list(found)


def all_words(text: str) -> list[str]:
    """The words and identifiers of a text, as written."""
    return _WORD.findall(text)


_DOUBLE = re.compile(r"([bdfgmnprt])\1$")
# The first suffix that matches is removed if enough of the word remains.
_SUFFIXES = (
    ("ization", "", 3), ("isation", "", 3), ("izing", "", 3), ("ising", "", 3), ("izer", "", 3), ("iser", "", 3),
    ("ize", "", 3), ("ise", "", 4), ("ations", "", 4), ("ation", "", 4), ("ating", "", 4), ("ator", "", 4),
    ("ated", "", 4), ("ate", "", 4), ("ition", "", 4), ("ively", "", 4), ("ments", "", 4), ("ment", "", 4),
    ("ness", "", 4), ("able", "", 4), ("ible", "", 4), ("ance", "", 4), ("ence", "", 4), ("ency", "", 4),
    ("tion", "t", 3), ("sion", "s", 3), ("ical", "", 4), ("ally", "", 4), ("ity", "", 4), ("ive", "", 4),
    ("ing", "", 3), ("ers", "", 3), ("ors", "", 4), ("er", "", 3), ("or", "", 4), ("ed", "", 3), ("al", "", 4),
    ("ly", "", 4), ("ic", "", 4), ("es", "", 3), ("s", "", 3),
)  # fmt: skip


@lru_cache(50_000)
def stem(word: str) -> str:
    """The stem of an English word in lower case; parser, parses, parsed and parsing have one."""
    if len(word) < 4 or not word.isascii() or word[0].isdigit():
        return word
    if word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith("s"):
        word = word[:-1]
    for suffix, put, least in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= least:
            word = word[: -len(suffix)] + put
            break
    word = _DOUBLE.sub(r"\1", word)
    if len(word) > 3 and word[-1] == "e":
        word = word[:-1]
    if len(word) > 3 and word[-1] == "y":
        word = word[:-1] + "i"
    return word
