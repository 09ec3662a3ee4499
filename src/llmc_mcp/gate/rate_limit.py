"""Limits of one HTTP principal: a token bucket for the rate, a count for concurrent calls.

A bucket holds `burst` tokens and regains `rps` of them a second; a call takes one. A call that
finds it empty is refused with the time until the next token. A caller on stdio is a single process of the same user: it
has no limits here.
"""

import math
import threading
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from ..errors import RateLimited
from ..session import Session

_UNLIMITED = nullcontext()


class Bucket:
    """One principal's rate. Not safe from several threads: its owner holds a lock."""

    def __init__(self, rps: float, burst: int, now: float) -> None:
        self._rps, self._burst = rps, burst
        self._tokens, self._at = float(burst), now

    def take(self, now: float) -> float:
        """Take a token; returns 0, or the seconds until there will be one."""
        self._tokens = min(self._tokens + max(now - self._at, 0) * self._rps, self._burst)
        self._at = max(now, self._at)
        if self._tokens < 1:
            return (1 - self._tokens) / self._rps
        self._tokens -= 1
        return 0.0


class Limiter:
    """Admits calls of limited principals; everybody else passes."""

    def __init__(
        self,
        *,
        rps: float,
        burst: int,
        concurrency: int,
        total: int,
        decided: Callable[[str, float, bool], None] | None = None,
    ) -> None:
        self._rps, self._burst, self._concurrency, self._total = rps, burst, concurrency, total
        self._decided = decided
        self._lock = threading.Lock()
        self._buckets: dict[str, Bucket] = {}
        self._under_way: dict[str, int] = {}
        self._holders: dict[object, str] = {}  # the calls under way that count, and whose they are
        self.dropped = {"rate": 0, "concurrency": 0, "total": 0}

    def reconfigure(self, *, rps: float, burst: int, concurrency: int, total: int) -> None:
        """Other limits from now on; everybody starts with a full bucket."""
        with self._lock:
            self._rps, self._burst, self._concurrency, self._total = rps, burst, concurrency, total
            self._buckets.clear()

    def admitted(self, session: Session, call: object | None = None) -> AbstractContextManager[None]:
        """Around a call that came from outside; what it calls itself is not counted again. `call` can be given up."""
        return self._counted(session, object() if call is None else call) if session.limited else _UNLIMITED

    @contextmanager
    def _counted(self, session: Session, holder: object) -> Generator[None]:
        self.take(session)
        self._enter(session.principal, holder)
        try:
            yield
        finally:
            self.give_up(holder)

    def give_up(self, call: object) -> None:
        """Stop counting a call that may never end; one that is over, or never counted, is no matter."""
        with self._lock:
            principal = self._holders.pop(call, None)
            if principal is not None:
                self._under_way[principal] -= 1

    @contextmanager
    def set_aside(self, session: Session) -> Generator[None]:
        """Around the time in which an admitted call does nothing but wait for its user: others may run instead."""
        if not session.limited:
            yield
            return
        with self._lock:
            self._under_way[session.principal] -= 1
        try:
            yield
        finally:
            with self._lock:
                self._under_way[session.principal] += 1

    def take(self, session: Session) -> None:
        """Count a request against its principal's rate, or refuse it."""
        if not session.limited:
            return
        with self._lock:
            now = time.monotonic()
            bucket = self._buckets.get(session.principal)
            if bucket is None:
                bucket = self._buckets[session.principal] = Bucket(self._rps, self._burst, now)
            wait = bucket.take(now)
            self.dropped["rate"] += wait > 0
            if self._decided is not None:
                self._decided(session.principal, now, wait == 0)
        if wait > 0:
            raise RateLimited(
                f"more than {self._rps:g} calls a second (bursts up to {self._burst})",
                hint=f"Wait {_shown(wait)} s, or raise mcp.limits.rate_limit_rps and rate_limit_burst.",
                retry_after=wait,
            )

    def _enter(self, principal: str, holder: object) -> None:
        with self._lock:
            own, everybody = self._under_way.get(principal, 0), sum(self._under_way.values())
            crowded = "concurrency" if own >= self._concurrency else "total" if everybody >= self._total else ""
            if crowded:
                self.dropped[crowded] += 1
            else:
                self._under_way[principal] = own + 1
                self._holders[holder] = principal
        if crowded == "concurrency":
            raise RateLimited(
                f"{own} calls of this token are under way already",
                hint="Wait for one of them, or raise mcp.limits.concurrency_per_token.",
            )
        if crowded:
            raise RateLimited(f"{everybody} calls are under way", hint="Wait for some of them to end.")

    def under_way(self) -> int:
        """Calls of limited principals that run now."""
        with self._lock:
            return sum(self._under_way.values())


def _shown(seconds: float) -> str:
    return f"{math.ceil(seconds * 100) / 100:g}"
