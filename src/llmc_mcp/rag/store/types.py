"""What a search of an index asks for and gets, without the engines that answer it."""

from typing import Literal

import msgspec

Scope = Literal["repo", "docs", "both"]


class ScoredChunk(msgspec.Struct, frozen=True):
    """A candidate chunk, by its file and its index in the file's list of chunks."""

    file: int
    chunk: int
    score: float  # only comparable within one result


class RankedChunks(msgspec.Struct, frozen=True):
    """The chunks of a result, best first: one of each file, then each file's second, and so on."""

    chunks: list[ScoredChunk]
    candidates: int
