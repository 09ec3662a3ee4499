"""What a path says about a file: how well its name fits a question, and whether it is a test, an aside or a listing."""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

from ..parse import words
from ..parse.languages import DOCUMENT_ENDINGS, traits_of

_DEEP = 8
_REMEMBERED, _FOLDERS = 16_000, 8_000  # paths that were candidates lately, and folders of them
_COMMON = 1.0  # rarity of a word that says little: a file named by nothing else fits a question by less than half

_TEST = re.compile(
    r"/((\w+[_-])?tests?|__tests__|specs?|testing|testdata|fixtures?)/"
    r"|/(test_[^/]*\.(py|rb|c|cc|cpp|lua|exs?|js|ts|php)|tests?\.|conftest)|(_|-|\.)(tests?|spec)\.\w+$"
)
_TEST_CLASS = re.compile(r"[a-z0-9](Tests?|Spec|Suite|TestCase)\.\w+$")
_ASIDE = re.compile(
    r"/(_?examples?|samples?|demos?|docs?|docs?_src|(asv_)?bench(marks?)?|_?vendor(ed)?|third_party|c?extern(als?)?"
    r"|_?legacy|_?compat|deprecat\w*|generated|tutorials?|galler(y|ies))/|/[^/]+/packages/"
)
_STEP = re.compile(r"\d{4}_")  # of a folder of migrations
_LISTING = re.compile(
    r"/(sources\.txt|record|manifest(\.in)?|requirements[^/]*\.txt|package-lock\.json|npm-shrinkwrap\.json"
    r"|go\.(sum|mod)|cargo\.toml|package\.json|pom\.xml|codeowners|authors|contributors(\.\w+)?)$"
    r"|[./-]lock(\.\w+)?$|\.(po|pot|sum|map|svg|snap|csv|tsv)$|\.min\.\w+$"
)


def scope_of(path: str, language: str) -> Literal["repo", "docs"]:
    """Whether a file is documentation."""
    is_document = traits_of(language).is_document or path.rpartition(".")[2].lower() in DOCUMENT_ENDINGS
    return "docs" if is_document else "repo"


PathMatch = tuple[float, float, float]  # what a file's name holds of a question, and conversely; what its folder's does


def path_match(path: str, idf: Mapping[str, float], total: float, rarity: Callable[[str], float]) -> PathMatch:
    """Compare a path with the words of a question, weighted by their rarity."""
    _, stem, folder = _parts_of(path)
    wanted = idf.keys()
    if wanted.isdisjoint(stem) and wanted.isdisjoint(folder):
        return 0.0, 0.0, 0.0
    return (
        sum([idf[word] for word in stem if word in idf]) / total,
        _precision(stem, idf, rarity),
        sum([idf[word] for word in folder if word in idf and word not in stem]) / total,
    )


def stem_precision(path: str, wanted: Mapping[str, float], rarity: Callable[[str], float]) -> float:
    """How much of a file's name some words hold; a name that is a common word fits many questions by chance."""
    return _precision(_parts_of(path)[1], wanted, rarity)


def _precision(stem: frozenset[str], wanted: Mapping[str, float], rarity: Callable[[str], float]) -> float:
    shared = sum([rarity(word) for word in stem if word in wanted])
    return shared / (_COMMON + sum(map(rarity, stem))) if shared else 0.0


class PathKind(NamedTuple):
    """What a path alone says about a file."""

    test: float
    aside: float
    barrel: float
    listing: float
    depth: float


def path_kind(path: str) -> PathKind:
    """Whether a path is that of a test, an aside or a barrel, and its depth."""
    return _parts_of(path)[0]


@lru_cache(_REMEMBERED)
def _parts_of(path: str) -> tuple[PathKind, frozenset[str], frozenset[str]]:
    """The kind of a path, and the words of the file's own name and of its folder's."""
    above, _, name = path.rpartition("/")
    folder, own = _folder_kind(above), _name_kind(name)
    kind = PathKind(
        test=folder.test or own.test,
        aside=folder.aside or own.aside or float(folder.migrates and own.is_step),
        barrel=own.barrel,
        listing=own.listing,
        depth=min(path.count("/"), _DEEP) / _DEEP,
    )
    return kind, frozenset(words.terms(name.partition(".")[0] or name).split()), _folder_words(above)


class _FolderKind(NamedTuple):
    """What a folder says about the files in it: there are fewer of them than files."""

    test: float
    aside: float
    migrates: bool


@lru_cache(_FOLDERS)
def _folder_kind(folder: str) -> _FolderKind:
    low = f"/{folder.lower()}/" if folder else "/"
    return _FolderKind(
        float(bool(_TEST.search(low))), float(bool(_ASIDE.search(low))), migrates=low.endswith("/migrations/")
    )


class _NameKind(NamedTuple):
    """What its own name says about a file."""

    test: float
    aside: float
    barrel: float
    listing: float
    is_step: bool


def _name_kind(name: str) -> _NameKind:
    low = f"/{name.lower()}"
    may_be_test = "test" in low or "spec" in low or "suite" in low  # most names are none, and that is known at once
    return _NameKind(
        test=float(may_be_test and bool(_TEST.search(low) or _TEST_CLASS.search(name))),
        aside=float(low.endswith((".d.ts", ".pyi"))),
        barrel=float(low[1:].partition(".")[0] in words.MODULES),
        listing=float(bool(_LISTING.search(low))),
        is_step=bool(_STEP.match(name)),
    )


@lru_cache(_FOLDERS)
def _folder_words(folder: str) -> frozenset[str]:
    """The words of the folder that a file lies in."""
    return frozenset(words.terms(folder.rpartition("/")[2]).split())
