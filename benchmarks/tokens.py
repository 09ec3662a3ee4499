"""Tokens as models of the o200k family count them; the vocabulary ships in the wheel."""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Protocol, cast


class _Encoding(Protocol):
    def encode_ordinary(self, text: str) -> list[int]: ...


@cache
def _encoding() -> _Encoding:
    # The wheel carries no types, hence not an import statement.
    return cast(_Encoding, import_module("bpe_openai").get_encoding("o200k_base"))


def count(text: str) -> int:
    return len(_encoding().encode_ordinary(text))


def count_tool(tool: Mapping[str, Any]) -> int:
    """What a client must show a model of one tool: name, description and input schema, as compact JSON."""
    shown = {key: tool.get(key) for key in ("name", "description", "inputSchema")}
    return count(json.dumps(shown, separators=(",", ":"), ensure_ascii=False))


def count_tools(tools: Iterable[Mapping[str, Any]]) -> int:
    return sum(count_tool(tool) for tool in tools)
