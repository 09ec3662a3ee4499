"""What a search of an index asks for and gets, without the engines that answer it."""

from typing import Literal

import msgspec

from ..parse.question import Question

Scope = Literal["repo", "docs", "both"]


DEFINITION_FEATURES = ("chunk", "text", "name", "titled", "told", "quoted", "frame", "is_type")


class ScoredChunk(msgspec.Struct, frozen=True):
    """A candidate chunk, by its file and its index in the file's list of chunks."""

    file: int
    chunk: int
    score: float  # of its file; only comparable within one result
    best: dict[int, float] = {}  # the best chunks of the file and their own scores; only with the first of a file


class QuestionTerms(msgspec.Struct, frozen=True):
    """What an index knows of a question."""

    weights: dict[str, float] = {}  # its terms by their rarity here; those of a task's title count most
    unknown: list[str] = []  # words that occur nowhere
    definition: list[float] = []  # weights of DEFINITION_FEATURES


class RankedChunks(msgspec.Struct, frozen=True):
    """The chunks of a result, best first: one of each file, then each file's second, and so on."""

    chunks: list[ScoredChunk]
    candidates: int
    terms: QuestionTerms = QuestionTerms()


class ManyRequest(msgspec.Struct, frozen=True, array_like=True):
    """A search of the builds of many indexes."""

    builds: list[str]
    question: Question
    scope: Scope
    limit: int
    embedding: str


class RankedBuild(msgspec.Struct, frozen=True, array_like=True):
    """What one build answers."""

    build: str
    ranked: RankedChunks
    generation: int


class ManyReply(msgspec.Struct, frozen=True, array_like=True):
    """The builds that answer, those that can't be read, and how many files those have that are not complete."""

    found: list[RankedBuild]
    damaged: list[str]
    unfinished: dict[str, int]
