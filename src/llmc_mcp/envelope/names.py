"""Names in commands and outputs: what a session is after, and what the left-out part of a text contains."""

import re
from collections.abc import Iterable

PATTERN = r"[A-Za-z_][A-Za-z0-9_]+"  # identifiers and words, of two letters or more
_NAME = re.compile(PATTERN.encode())
_MOST = 400  # names of a session that are looked for
_LONGEST_LINE = 4_000  # bytes of a recent command; here-documents are long and say little about what comes next

Interest = frozenset[bytes]
NOTHING: Interest = frozenset()


def names_in(text: bytes) -> dict[bytes, None]:
    """The names of a text, each once, in their order."""
    return dict.fromkeys(_NAME.findall(text))


def interest_of(lines: Iterable[str]) -> Interest:
    """The names in recent commands, the latest first; bounded."""
    found: dict[bytes, None] = {}
    for line in lines:
        found |= names_in(line[:_LONGEST_LINE].encode("utf-8", "replace"))
        if len(found) >= _MOST:
            break
    return frozenset(list(found)[:_MOST])
