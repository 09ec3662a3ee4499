"""Tokens as models of the o200k family count them; the vocabulary ships in the wheel."""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Protocol, cast

_PIECE = 100_000  # characters


class _Encoding(Protocol):
    def encode_ordinary(self, text: str) -> list[int]: ...


@cache
def _encoding() -> _Encoding:
    # The wheel carries no types, hence not an import statement.
    return cast(_Encoding, import_module("bpe_openai").get_encoding("o200k_base"))


def count(text: str) -> int:
    """Counted piece by piece, each some lines: the encoder refuses very long texts."""
    total, piece, size = 0, list[str](), 0
    for line in text.splitlines(keepends=True):
        for at in range(0, len(line), _PIECE):
            part = line[at : at + _PIECE]
            if size + len(part) > _PIECE:
                total += len(_encoding().encode_ordinary("".join(piece)))
                piece, size = [], 0
            piece.append(part)
            size += len(part)
    return total + len(_encoding().encode_ordinary("".join(piece)))


def count_tool(tool: Mapping[str, Any]) -> int:
    """What a client must show a model of one tool: name, description and input schema, as compact JSON."""
    shown = {key: tool.get(key) for key in ("name", "description", "inputSchema")}
    return count(json.dumps(shown, separators=(",", ":"), ensure_ascii=False))


def count_tools(tools: Iterable[Mapping[str, Any]]) -> int:
    return sum(count_tool(tool) for tool in tools)
