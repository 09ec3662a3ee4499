"""Approvals: a person's answers to calls that a rule lets happen only if somebody agrees.

An approval belongs to one call: its tool, its arguments, what it is about to do, its session and its principal, all in
one hash. It serves once, and for ten minutes. Several processes share the table: the server that asks, the terminal
and the page that answer. Every change of a row is one UPDATE that names the state it expects, so that of two answers,
or two uses, at once exactly one counts.
"""

import hashlib
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import msgspec

from ..errors import Conflict, NotFound, RateLimited
from ..session import Session
from ..store.schema import insert_into

if TYPE_CHECKING:
    from ..store.sqlite import Store

State = Literal["pending", "approved", "denied", "used"]

LASTS_S = 600.0
_MOST_PENDING = 50  # of a principal: an agent must not bury one question under a thousand others
_KEPT_S = 24 * 3600.0  # how long a row is there to be looked at
_LONGEST_SHOWN = 4_000  # characters of arguments
_COLUMNS = (
    *("id", "call", "tool", "arguments", "deed", "rule", "principal", "session_id", "agent_id"),
    *("asked_at", "expires_at", "state", "answered_by", "answered_at"),
)
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM approvals"  # noqa: S608 - own names


class Approval(NamedTuple):
    """One row."""

    id: str
    call: str
    tool: str
    arguments: str
    deed: str
    rule: str
    principal: str
    session_id: str
    agent_id: str
    asked_at: float
    expires_at: float
    state: State
    answered_by: str
    answered_at: float


class AskedCall(NamedTuple):
    """A call that needs an approval: whose it is, what it says, and what it is about to do."""

    session: Session
    tool: str
    arguments: Mapping[str, Any]
    deed: str
    rule: str
    roots: str
    about: tuple[str, ...] = ()  # the files that its paths lead to: a link may lead elsewhere the next time

    @property
    def hash(self) -> str:
        """What an approval is bound to: another byte anywhere in it is another call."""
        who = self.session
        parts = (self.tool, dict(self.arguments), self.deed, who.principal, who.session_id, self.roots, self.about)
        return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()


class Approvals:
    """The approvals in a store; safe from any thread and any process."""

    def __init__(self, store: "Callable[[], Store]", clock: Callable[[], float] = time.time) -> None:
        self._store, self._clock = store, clock

    # --- for the gate ----------------------------------------------------------------------------

    def use(self, call: AskedCall) -> bool | None:
        """Use up the approval of a call: True. False if it was denied, None if nobody has answered."""
        now, store = self._clock(), self._store()
        found = store.query(
            "SELECT id, state FROM approvals WHERE call=? AND state IN ('approved', 'denied') AND expires_at>?"
            " ORDER BY answered_at DESC LIMIT 1",
            (call.hash, now),
        )
        if not found:
            return None
        ((number, state),) = found
        if state == "denied":
            return False
        with store.transaction(durable=True) as connection:
            used = connection.execute(
                "UPDATE approvals SET state='used' WHERE id=? AND state='approved' AND expires_at>?", (number, now)
            )
            return True if used.rowcount == 1 else None

    def use_all(self, tool: str, principal: str, session_id: str) -> list[Approval]:
        """Use up every approval that a session has for a tool; returns them."""
        now, store = self._clock(), self._store()
        mine = (tool, principal, session_id, now)
        where = "tool=? AND principal=? AND session_id=? AND state='approved' AND expires_at>?"
        if not store.query(f"SELECT 1 FROM approvals WHERE {where} LIMIT 1", mine):  # noqa: S608 - own names
            return []
        with store.transaction(durable=True) as connection:
            rows = connection.execute(f"{_SELECT} WHERE {where}", mine).fetchall()
            connection.execute(f"UPDATE approvals SET state='used' WHERE {where}", mine)  # noqa: S608 - own names
            return [Approval._make(row) for row in rows]

    def request(self, call: AskedCall) -> Approval:
        """The question about a call, for a person to answer; asked again, it is the same one."""
        now = self._clock()
        with self._store().transaction() as connection:
            connection.execute("DELETE FROM approvals WHERE expires_at<?", (now - _KEPT_S,))
            mine = connection.execute(
                f"{_SELECT} WHERE principal=? AND state='pending' AND expires_at>?", (call.session.principal, now)
            ).fetchall()
            for row in map(Approval._make, mine):
                if row.call == call.hash:
                    return row
            if len(mine) >= _MOST_PENDING:
                raise RateLimited(
                    f"{len(mine)} questions of this client wait for a person already",
                    hint="Have some of them answered first: llmc approvals.",
                )
            who = call.session
            fresh = Approval(
                f"A_{os.urandom(4).hex()}",
                call.hash,
                call.tool,
                shown_arguments(call.arguments),
                call.deed,
                call.rule,
                *(who.principal, who.session_id, who.agent_id),
                now,
                now + LASTS_S,
                "pending",
                "",
                0.0,
            )
            connection.execute(insert_into("approvals", _COLUMNS), fresh)
            return fresh

    # --- for people ------------------------------------------------------------------------------

    def pending(self) -> list[Approval]:
        """What waits for an answer, oldest first."""
        rows = self._store().query(
            f"{_SELECT} WHERE state='pending' AND expires_at>? ORDER BY asked_at", (self._clock(),)
        )
        return [_row(row) for row in rows]

    def recent(self, most: int = 50) -> list[Approval]:
        """All of the last day, newest first."""
        return [_row(row) for row in self._store().query(f"{_SELECT} ORDER BY asked_at DESC LIMIT ?", (most,))]

    def answer(self, approval_id: str, yes: bool, by: str) -> Approval:
        """Approve or deny; the first answer counts, and it must come in time."""
        now, store = self._clock(), self._store()
        with store.transaction(durable=True) as connection:
            answered = connection.execute(
                "UPDATE approvals SET state=?, answered_by=?, answered_at=?, expires_at=?"
                " WHERE id=? AND state='pending' AND expires_at>?",
                ("approved" if yes else "denied", by, now, now + LASTS_S, approval_id, now),
            )
            counted = answered.rowcount == 1
        found = store.query(f"{_SELECT} WHERE id=?", (approval_id,))
        if not found:
            raise NotFound(f"there is no approval {approval_id!r}", hint="llmc approvals lists those that wait.")
        row = _row(found[0])
        if not counted:
            why = "has expired" if row.state == "pending" else f"was answered already: {row.state}"
            raise Conflict(f"{approval_id} {why}", hint="The agent may ask again.")
        return row


def shown_arguments(arguments: Mapping[str, Any]) -> str:
    """Arguments as a person reads them; what is left out is said."""
    given = {name: value for name, value in arguments.items() if value not in (None, False)}
    text = msgspec.json.encode(given, order="deterministic").decode("utf-8", "replace")
    if len(text) <= _LONGEST_SHOWN:
        return text
    half = _LONGEST_SHOWN // 2
    return f"{text[:half]} … {len(text) - 2 * half:,} characters … {text[-half:]}"


def _row(row: tuple[object, ...]) -> Approval:
    return Approval._make(cast(Any, row))
