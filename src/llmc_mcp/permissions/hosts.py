"""Hosts that a person lets the commands of one session reach, for ten minutes each."""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from ..errors import LlmcError
from ..session import Session
from .approvals import LASTS_S, AskedCall

if TYPE_CHECKING:
    from .approvals import Approvals

NETWORK = "network"  # what stands in the place of a tool


class GrantedHosts:
    """What was approved, by session; safe from any thread."""

    def __init__(self, approvals: "Callable[[], Approvals]") -> None:
        self._approvals = approvals
        self._lock = threading.Lock()
        self._until: dict[tuple[str, str], dict[str, float]] = {}

    def of(self, principal: str, session_id: str) -> tuple[str, ...]:
        """The hosts that a session may reach now besides those on the list."""
        now = time.monotonic()
        try:
            fresh = self._approvals().use_all(NETWORK, principal, session_id)
        except LlmcError:
            fresh = []  # without a store nothing is approved
        with self._lock:
            hosts = self._until.setdefault((principal, session_id), {})
            for row in fresh:
                hosts[str(msgspec.json.decode(row.arguments)["host"])] = now + LASTS_S
            kept = {host: until for host, until in hosts.items() if until > now}
            self._until[principal, session_id] = kept
            if not kept:
                del self._until[principal, session_id]
            return tuple(sorted(kept))


def asked_host(session: Session, host: str, rule: str, roots: str) -> AskedCall:
    """The question about a host that commands were denied."""
    deed = f"let commands of this session reach {host} for ten minutes"
    return AskedCall(session, NETWORK, {"host": host}, deed, rule, roots)
