"""What a path says about a file: how well its name fits a question, and whether it is a test, an aside or a listing."""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from ..parse import words

_DEEP = 8
_COMMON = 1.0  # rarity of a word that says little: a file named by nothing else fits a question by less than half

_TEST = re.compile(
    r"/((\w+[_-])?tests?|__tests__|specs?|testing|testdata|fixtures?)/"
    r"|/(test_[^/]*\.(py|rb|c|cc|cpp|lua|exs?|js|ts|php)|tests?\.|conftest)|(_|-|\.)(tests?|spec)\.\w+$"
)
_TEST_CLASS = re.compile(r"[a-z0-9](Tests?|Spec|Suite|TestCase)\.\w+$")
_ASIDE = re.compile(
    r"/(_?examples?|samples?|demos?|docs?|docs?_src|(asv_)?bench(marks?)?|_?vendor(ed)?|third_party|c?extern(als?)?"
    r"|_?legacy|_?compat|deprecat\w*|generated|tutorials?|galler(y|ies))/|/[^/]+/packages/|/migrations/\d{4}_"
)
_LISTING = re.compile(
    r"/(sources\.txt|record|manifest(\.in)?|requirements[^/]*\.txt|package-lock\.json|npm-shrinkwrap\.json"
    r"|go\.(sum|mod)|cargo\.toml|package\.json|pom\.xml|codeowners|authors|contributors(\.\w+)?)$"
    r"|[./-]lock(\.\w+)?$|\.(po|pot|sum|map|svg|snap|csv|tsv)$|\.min\.\w+$"
)


class PathMatch(NamedTuple):
    """How well a file's name and its folder's fit a question."""

    stem_recall: float
    stem_precision: float
    folder_recall: float


def path_match(path: str, idf: Mapping[str, float], total: float, rarity: Callable[[str], float]) -> PathMatch:
    """Compare a path with the words of a question, weighted by their rarity."""
    stem, folder = _path_words(path)
    return PathMatch(
        stem_recall=sum(idf.get(word, 0.0) for word in stem) / total,
        stem_precision=stem_precision(path, idf, rarity),
        folder_recall=sum(idf.get(word, 0.0) for word in folder - stem) / total,
    )


def stem_precision(path: str, wanted: Mapping[str, float], rarity: Callable[[str], float]) -> float:
    """How much of a file's name some words hold; a name that is a common word fits many questions by chance."""
    stem = _path_words(path)[0]
    shared = sum(rarity(word) for word in stem if word in wanted)
    return shared / (_COMMON + sum(map(rarity, stem))) if shared else 0.0


class PathKind(NamedTuple):
    """What a path alone says about a file."""

    test: float
    aside: float
    barrel: float
    listing: float
    depth: float


@lru_cache(50_000)
def path_kind(path: str) -> PathKind:
    """Whether a path is that of a test, an aside or a barrel, and its depth."""
    low = "/" + path.lower()
    stem = low.rpartition("/")[2].partition(".")[0]
    return PathKind(
        test=float(bool(_TEST.search(low) or _TEST_CLASS.search(path))),
        aside=float(bool(_ASIDE.search(low)) or low.endswith((".d.ts", ".pyi"))),
        barrel=float(stem in words.MODULES),
        listing=float(bool(_LISTING.search(low))),
        depth=min(path.count("/"), _DEEP) / _DEEP,
    )


@lru_cache(50_000)
def _path_words(path: str) -> tuple[frozenset[str], frozenset[str]]:
    """The words of a file's own name and those of the folder it lies in."""
    folder, _, name = path.rpartition("/")
    stem = name.partition(".")[0] or name
    return frozenset(words.terms(stem).split()), frozenset(words.terms(folder.rpartition("/")[2]).split())
