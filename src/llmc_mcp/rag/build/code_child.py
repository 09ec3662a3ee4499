"""The process that reads code for edits: where definitions and names are, and what a pattern matches.

It sees texts, never files. Frames as in syntax_child.py; each answer is an object of the kind that was asked for.
"""

import select

import msgspec

from ..parse.name_types import NamePlaces, NameQuery, Outline, OutlineQuery
from ..parse.patterns import RewriteQuery, Rewritten
from .syntax_child import IDLE_S, receive, send


def main() -> None:
    """Serve until stdin closes."""
    from ..parse import names, patterns  # only here: the server never parses

    decoder = msgspec.msgpack.Decoder(NameQuery | OutlineQuery | RewriteQuery)
    while select.select([0], [], [], IDLE_S)[0] and (frame := receive(0)) is not None:
        query = decoder.decode(frame)
        answer: NamePlaces | Outline | Rewritten
        if isinstance(query, NameQuery):
            answer = names.find_names(query)
        elif isinstance(query, OutlineQuery):
            answer = names.outline_of(query)
        else:
            answer = patterns.rewrite(query)
        send(1, msgspec.msgpack.encode(answer))
