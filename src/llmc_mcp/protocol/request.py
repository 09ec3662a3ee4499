"""One request, with what the transport and the handshake know of its client."""

from collections.abc import Callable
from typing import NamedTuple, cast

import msgspec

from ..context import ELICIT, LIST_ROOTS, SAMPLE, Ask, Context
from ..session import Session
from .jsonrpc import Params

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
TASKS = "io.modelcontextprotocol/tasks"  # the extension of the stateless era
LONGEST_URI = 2_048  # characters
TASKS_VERSION = "2025-11-25"  # the handshake-era version whose core has tasks


_OTHERS = {"roots": LIST_ROOTS, "sampling": SAMPLE}


class Peer(msgspec.Struct, frozen=True):
    """What the handshake settled with a client; the stateless era says it with every request instead."""

    version: str = ""
    asks_users: bool = False
    lists_roots: bool = False

    @property
    def answers(self) -> frozenset[str]:
        """The methods by which the client can be asked."""
        return frozenset([ELICIT] * self.asks_users + [LIST_ROOTS] * self.lists_roots)


class Request(msgspec.Struct):
    """One request with what the transport knows of it."""

    method: str
    params: Params
    session: Session
    progress: Callable[[Params], None]
    attach: Callable[[Context], None]  # hands the running call to the transport, for cancellation
    correlation_id: str = ""  # empty: a call gets one of its own
    peer: Peer = Peer()
    ask: Ask | None = None  # sends a question of the handshake era to the client and waits
    notify: Callable[[str, Params], None] | None = None  # sends a notification, also after the reply

    @property
    def meta(self) -> Params:
        return as_object(self.params.get("_meta"))


class Abilities(NamedTuple):
    """What a client can do besides waiting for a reply: `answers` are the methods by which it can be asked."""

    answers: frozenset[str]
    has_tasks: bool

    @property
    def asks_users(self) -> bool:
        return ELICIT in self.answers


def abilities(request: Request) -> Abilities:
    """What the client of a request can do: by the request's own `_meta`, or by the handshake."""
    if VERSION_KEY not in request.meta:
        return Abilities(request.peer.answers, request.peer.version == TASKS_VERSION)
    capabilities = as_object(request.meta.get(CAPABILITIES_KEY))
    answers = [ELICIT] * asks_users(capabilities)
    answers += [method for name, method in _OTHERS.items() if isinstance(capabilities.get(name), dict)]
    return Abilities(frozenset(answers), TASKS in as_object(capabilities.get("extensions")))


def asks_users(capabilities: object) -> bool:
    """Whether a client's capabilities say that it shows forms; an empty declaration means forms."""
    declared: object = as_object(capabilities).get("elicitation")
    return isinstance(declared, dict) and ("form" in declared or "url" not in declared)


def as_object(value: object) -> Params:
    """A JSON object; anything else is an empty one."""
    return cast(Params, value) if isinstance(value, dict) else {}
