"""The limits of principals over all servers of a team, counted in their common PostgreSQL.

A call costs one statement, for its rate. Slots for calls that run are taken a few at a time and kept for a moment, so
that most calls ask for none; a thread returns those that nobody uses and renews the others. A principal that was told
to wait is not asked about until then: a flood costs the database nothing.

Without the database the server goes on with the buckets that it has kept up to date in memory all along, and counts its
own calls alone: limits must not turn off a server that can still read. The thread looks for the database; calls don't
wait for it.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import FeatureUnavailable, ResourceBusy
from ..store import limits as shared
from .rate_limit import CallLimits, OwnCounts

if TYPE_CHECKING:
    from ..store.base import Store

_ALL = ""  # the scope of all principals together; no principal has this name
_LASTS_S = 15.0  # how long slots outlive a server that died
_IDLE_S = 0.1  # how long slots are kept that nobody uses
_PATIENCE_S = 0.4  # how long a call waits for slots that other servers keep: longer than they keep idle ones
_RETRY_S = 0.05
_AWAY_S = 1.0  # between two looks for the database
_FORGET_EVERY_S = 600.0
_CHUNKS = 8  # into which a limit is divided
_MOST_TOLD = 10_000  # principals that were told to wait
_UNREACHABLE = (FeatureUnavailable, ResourceBusy)


class _Scope:
    """The calls of one principal, or of all: how many run here, how many slots this server holds for them."""

    def __init__(self) -> None:
        self.running = self.held = 0
        self.spare = 1  # slots that no server had taken when we last asked
        self.until = 0.0  # when the slots expire, and
        self.used_at = 0.0  # when one was last used, on the monotonic clock


class SharedCounts:
    """The calls of all servers of a store; `server` names this one."""

    def __init__(
        self,
        store: "Callable[[], Store]",
        limits: CallLimits,
        notice: Callable[[str], None] = lambda _: None,
        server: str = "",
    ) -> None:
        self._store, self._limits, self._notice = store, limits, notice
        self._server = server or os.urandom(8).hex()
        self._own = OwnCounts(limits)  # its buckets follow, for the time without the database
        self._lock = threading.Lock()
        self._asking = threading.Lock()  # for slots; taken before the other one
        self._scopes: dict[str, _Scope] = {}
        self._told: dict[str, float] = {}  # until when principals have to wait, on the monotonic clock
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._forget_at = time.monotonic() + _FORGET_EVERY_S
        self.alone = False

    def configure(self, limits: CallLimits) -> None:
        """Other limits from now on; buckets that hold less than nothing by them are empty ones."""
        with self._lock:
            self._limits = limits
            self._told.clear()
        self._own.configure(limits)

    # --- the rate --------------------------------------------------------------------------------

    def take(self, principal: str) -> tuple[float, float]:
        asked_at = time.monotonic()
        told = self._told.get(principal, 0.0)
        if told > asked_at:
            return told - asked_at, time.time()
        if self.alone:
            return self._own.take(principal)
        try:
            taken = shared.take(self._store(), principal, self._limits.rps, self._limits.burst)
        except _UNREACHABLE:
            self._lose()
            return self._own.take(principal)
        if taken.wait > 0:
            self._tell(principal, asked_at + taken.wait)  # from before the decision: never longer than it says
        else:
            self._own.take(principal)
        return taken

    def _tell(self, principal: str, until: float) -> None:
        with self._lock:
            if len(self._told) >= _MOST_TOLD:
                now = time.monotonic()
                self._told = {name: at for name, at in self._told.items() if at > now}
            self._told[principal] = until

    # --- calls that run --------------------------------------------------------------------------

    def enter(self, principal: str) -> str:
        for scope, most, reason in (
            (principal, self._limits.concurrency, "concurrency"),
            (_ALL, self._limits.total, "total"),
        ):
            if not self._occupy(scope, most):
                if scope == _ALL:
                    self._vacate(principal)
                return reason
        return ""

    def reenter(self, principal: str) -> None:
        with self._lock:
            for scope in (principal, _ALL):
                self._scope(scope).running += 1  # more than are held, perhaps: the thread asks for them
        self._wake.set()

    def leave(self, principal: str) -> None:
        self._vacate(principal)
        self._vacate(_ALL)

    def _vacate(self, name: str) -> None:
        with self._lock:
            scope = self._scope(name)
            scope.running -= 1
            scope.used_at = time.monotonic()
            if not scope.spare:  # another server may be waiting for it
                scope.used_at = 0.0
                self._wake.set()

    def _occupy(self, name: str, most: int) -> bool:
        """Count a call in, within the slots held or with new ones; False where all are taken."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            with self._lock:
                scope = self._scope(name)
                if scope.running >= most:
                    return False
                if self._fits(scope):
                    scope.running += 1
                    scope.used_at = time.monotonic()
                    return True
            with self._asking:
                with self._lock:
                    fits, running = self._fits(scope), scope.running
                if not fits:
                    self._ask(name, scope, running, max(most // _CHUNKS, 1), most)
            with self._lock:
                if self._fits(scope):
                    continue
            if time.monotonic() >= deadline:
                return False
            time.sleep(_RETRY_S)

    def _fits(self, scope: _Scope) -> bool:
        return self.alone or (scope.running < scope.held and time.monotonic() < scope.until)

    def _ask(self, name: str, scope: _Scope, running: int, more: int, most: int) -> None:
        """Hold slots for the calls that run and some more; `_asking` is held."""
        asked_at = time.monotonic()
        try:
            slots = shared.take_slots(self._store(), name, self._server, running, more, most, _LASTS_S)
        except _UNREACHABLE:
            self._lose()
            return
        with self._lock:
            scope.held, scope.spare, scope.until = slots.held, slots.spare, asked_at + _LASTS_S
            scope.used_at = time.monotonic() if more else scope.used_at
        self._start()

    def _scope(self, name: str) -> _Scope:
        found = self._scopes.get(name)
        if found is None:
            found = self._scopes[name] = _Scope()
        return found

    def under_way(self) -> int:
        with self._lock:
            return self._scope(_ALL).running

    # --- the thread ------------------------------------------------------------------------------

    def _start(self) -> None:
        with self._lock:
            if self._thread is not None or self._closing:
                return
            self._thread = threading.Thread(target=self._run, name="limits", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # none to be had now: the next call that asks for slots tries again
                self._thread = None

    def _lose(self) -> None:
        """The database is away: count alone until it is back."""
        with self._lock:
            was_alone, self.alone = self.alone, True
            for scope in self._scopes.values():
                scope.until = 0.0
        if not was_alone:
            self._notice("the store is away: rate and concurrency limits are those of this server alone")
        self._start()

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(self._pause())
            self._wake.clear()
            if self._closing:
                break
            try:
                if self.alone:
                    self._find()
                self._settle()
            except _UNREACHABLE:
                self._lose()

    def _pause(self) -> float | None:
        if self.alone:
            return _AWAY_S
        with self._lock:
            return _IDLE_S if any(scope.held for scope in self._scopes.values()) else _FORGET_EVERY_S

    def _find(self) -> None:
        """See whether the database is back; it is told of the calls that run before new ones count on it."""
        self._store().execute_alone("SELECT 1")
        with self._lock:
            self.alone = False
        self._notice("the store is back: limits are those of all servers together")

    def _settle(self) -> None:
        """Return the slots that nobody uses, renew the others, and drop what no longer counts."""
        now = time.monotonic()
        with self._lock:
            names = [name for name, scope in self._scopes.items() if self._is_due(scope, now)]
        for name in names:
            most = self._limits.total if name == _ALL else self._limits.concurrency
            with self._asking:
                with self._lock:
                    if self._closing:
                        return
                    scope = self._scopes[name]
                    scope.held = running = scope.running  # from here on nobody takes one that is being returned
                self._ask(name, scope, running, 0, most)
            with self._lock:
                if not (scope.running or scope.held):
                    del self._scopes[name]
        if now >= self._forget_at:
            self._forget_at = now + _FORGET_EVERY_S
            shared.forget(self._store())

    @staticmethod
    def _is_due(scope: _Scope, now: float) -> bool:
        if scope.held > scope.running:
            return now >= scope.used_at + _IDLE_S
        return scope.held < scope.running or (scope.held > 0 and scope.until - now < _LASTS_S / 2)

    def close(self) -> None:
        """Return all slots; those of calls that still run are not counted any more."""
        with self._lock:
            self._closing = True
        self._wake.set()
        with self._asking:  # what the thread asks for has been answered, and it asks for nothing more
            with self._lock:
                held = [] if self.alone else [name for name, scope in self._scopes.items() if scope.held]
            try:
                for name in held:
                    shared.take_slots(self._store(), name, self._server, 0, 0, 1, _LASTS_S)
            except _UNREACHABLE:
                pass  # they expire
