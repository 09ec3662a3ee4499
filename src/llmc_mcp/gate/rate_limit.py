"""Limits of one HTTP principal: a token bucket for the rate, a count for concurrent calls.

A bucket holds `burst` tokens and regains `rps` of them a second; a call takes one. A call that
finds it empty is refused with the time until the next token. A caller on stdio is a single process of the same user: it
has no limits here.

`Limiter` holds the rules: what counts, and how a refusal is worded. It counts with `OwnCounts`, in the memory of this
process, or `shared_limits.SharedCounts`, with all servers of a team.
"""

import math
import threading
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..errors import RateLimited
from ..session import Session

if TYPE_CHECKING:
    from ..config.schema import Config

_UNLIMITED = nullcontext()
_MOST_BUCKETS = 10_000  # of principals; above it, those that are full are dropped


class CallLimits(NamedTuple):
    """Calls a second and in one burst, those at once of one principal, and of all together."""

    rps: float
    burst: int
    concurrency: int
    total: int


class CallCounts(Protocol):
    """The calls of principals, counted; safe from any thread."""

    @property
    def alone(self) -> bool:
        """Whether other servers should be counted with, and can't be now."""
        ...

    def configure(self, limits: CallLimits) -> None:
        """Other limits from now on."""
        ...

    def take(self, principal: str) -> tuple[float, float]:
        """Count a call against a rate: the seconds that it must wait, 0 if it is admitted, and the time of that."""
        ...

    def enter(self, principal: str) -> str:
        """A call begins: nothing, or which limit is reached, `concurrency` or `total`."""
        ...

    def reenter(self, principal: str) -> None:
        """A call goes on that had been admitted before: it counts, whatever the limits are."""
        ...

    def leave(self, principal: str) -> None:
        """A call is over, or waits."""
        ...

    def under_way(self) -> int:
        """Calls that run now in this process."""
        ...

    def close(self) -> None:
        """Return what is held."""
        ...


def limits_of(config: "Config") -> CallLimits:
    """The limits that a configuration sets."""
    limits = config.limits
    return CallLimits(
        limits.rate_limit_rps, limits.rate_limit_burst, limits.concurrency_per_token, limits.max_queued_calls
    )


class Bucket:
    """One principal's rate. Not safe from several threads: its owner holds a lock."""

    def __init__(self, rps: float, burst: int, now: float) -> None:
        self._rps, self._burst = rps, burst
        self._tokens, self._at = float(burst), now

    def take(self, now: float) -> float:
        """Take a token; returns 0, or the seconds until there will be one."""
        self._refill(now)
        if self._tokens < 1:
            return (1 - self._tokens) / self._rps
        self._tokens -= 1
        return 0.0

    def is_full(self, now: float) -> bool:
        """Whether it is as good as a new one."""
        self._refill(now)
        return self._tokens >= self._burst

    def _refill(self, now: float) -> None:
        self._tokens = min(self._tokens + max(now - self._at, 0) * self._rps, self._burst)
        self._at = max(now, self._at)


class OwnCounts:
    """The calls of this process, in memory."""

    alone = False

    def __init__(self, limits: CallLimits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._buckets: dict[str, Bucket] = {}
        self._under_way: dict[str, int] = {}

    def configure(self, limits: CallLimits) -> None:
        """Other limits from now on; everybody starts with a full bucket."""
        with self._lock:
            self._limits = limits
            self._buckets.clear()

    def take(self, principal: str) -> tuple[float, float]:
        with self._lock:
            now = time.monotonic()
            bucket = self._buckets.get(principal)
            if bucket is None:
                bucket = self._buckets[principal] = self._new_bucket(now)
            return bucket.take(now), now

    def _new_bucket(self, now: float) -> Bucket:
        if len(self._buckets) >= _MOST_BUCKETS:
            self._buckets = {name: kept for name, kept in self._buckets.items() if not kept.is_full(now)}
        return Bucket(self._limits.rps, self._limits.burst, now)

    def enter(self, principal: str) -> str:
        with self._lock:
            own, everybody = self._under_way.get(principal, 0), sum(self._under_way.values())
            if own >= self._limits.concurrency:
                return "concurrency"
            if everybody >= self._limits.total:
                return "total"
            self._under_way[principal] = own + 1
            return ""

    def reenter(self, principal: str) -> None:
        self._add(principal, 1)

    def leave(self, principal: str) -> None:
        self._add(principal, -1)

    def _add(self, principal: str, change: int) -> None:
        """May count below none for a while: one call asks its user two things at a time."""
        with self._lock:
            self._under_way[principal] = self._under_way.get(principal, 0) + change
            if not self._under_way[principal]:
                del self._under_way[principal]

    def under_way(self) -> int:
        with self._lock:
            return sum(self._under_way.values())

    def close(self) -> None:
        """There is nothing to return."""


class Limiter:
    """Admits calls of limited principals; everybody else passes."""

    def __init__(
        self, counts: CallCounts, limits: CallLimits, decided: Callable[[str, float, bool], None] | None = None
    ) -> None:
        self.counts, self._limits, self._decided = counts, limits, decided
        self._lock = threading.Lock()
        self._holders: dict[object, str] = {}  # the calls under way that count, and whose they are
        self.dropped = {"rate": 0, "concurrency": 0, "total": 0}

    def reconfigure(self, limits: CallLimits) -> None:
        """Other limits from now on."""
        self._limits = limits
        self.counts.configure(limits)

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
            self.counts.leave(principal)

    @contextmanager
    def set_aside(self, session: Session) -> Generator[None]:
        """Around the time in which an admitted call does nothing but wait for its user: others may run instead."""
        if not session.limited:
            yield
            return
        self.counts.leave(session.principal)
        try:
            yield
        finally:
            self.counts.reenter(session.principal)

    def take(self, session: Session) -> None:
        """Count a request against its principal's rate, or refuse it."""
        if not session.limited:
            return
        wait, at = self.counts.take(session.principal)
        if self._decided is not None:
            self._decided(session.principal, at, wait == 0)
        if wait > 0:
            self._drop("rate")
            raise RateLimited(
                f"more than {self._limits.rps:g} calls a second (bursts up to {self._limits.burst})",
                hint=f"Wait {_shown(wait)} s, or raise mcp.limits.rate_limit_rps and rate_limit_burst.",
                retry_after=wait,
            )

    def _enter(self, principal: str, holder: object) -> None:
        crowded = self.counts.enter(principal)
        if not crowded:
            with self._lock:
                self._holders[holder] = principal
            return
        self._drop(crowded)
        if crowded == "concurrency":
            raise RateLimited(
                f"{self._limits.concurrency} calls of this token are under way already",
                hint="Wait for one of them, or raise mcp.limits.concurrency_per_token.",
            )
        raise RateLimited(f"{self._limits.total} calls are under way", hint="Wait for some of them to end.")

    def _drop(self, reason: str) -> None:
        with self._lock:
            self.dropped[reason] += 1

    def under_way(self) -> int:
        """Calls of limited principals that run now."""
        return self.counts.under_way()


def _shown(seconds: float) -> str:
    return f"{math.ceil(seconds * 100) / 100:g}"
