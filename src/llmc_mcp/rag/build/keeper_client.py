"""A server's end of the connection to the process that keeps an index: requests, and its latest report."""

import os
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

import msgspec

from ...errors import Cancelled, FeatureUnavailable, LlmcError
from ...files.filesystem import Root
from ...files.ripgrep import find_ripgrep
from ...kernel.launcher import Launcher
from ...session import Session
from ...store.leases import Leases
from ..store.layout import home_of
from .keeper_host import KeeperHost
from .messages import KeeperRequest, News, RankReply, RankRequest, Setup, WalkRules
from .share import share_of

_POLL_S = 0.05
_READ = 1 << 16
_LONGEST_LINE = 1 << 20
_KEPT = 100  # outcomes kept for waiters that come late
_DEAF_S = 5.0  # give up on a process that does not read a full connection for this long
_SILENT_S = 300.0  # … and on one that is busy and reports nothing for this long
_TRIES = 3  # for a request whose process ends, as it does with the server that runs it


def never() -> bool:
    """Of a caller that waits until its time is up."""
    return False


class IndexSpec(NamedTuple):
    """What to index, with which embedding, and how long nobody has to ask before nobody follows the files."""

    rules: WalkRules
    embedding: str
    idle_s: float = 60.0
    share_bytes: int = 0  # the largest index that servers with other data directories share; 0: none


class Builder:
    """The index of one root as its process sees it; safe from any thread. A request starts the process if need be."""

    def __init__(self, launcher: Launcher, root: Root, data_dir: str, wanted: IndexSpec, leases: Leases) -> None:
        home = home_of(data_dir, root.real)
        ripgrep = os.fsdecode(find_ripgrep())
        setup = Setup(home.folder, wanted.rules, ripgrep, wanted.embedding, idle_s=wanted.idle_s)
        share = share_of(leases.store, root, home, setup.kind(), wanted.share_bytes)
        self._host = KeeperHost(launcher, root, data_dir, home, setup, leases, share)
        self._changed = threading.Condition()
        self._line: socket.socket | None = None
        self._last_id = 0
        self._whole = 0  # id of the running request for the whole index,
        self._whole_compares = False  # … and whether it compares all files whatever is known of them
        self._led: set[int] = set()  # requests with a thread that sees them through
        self._joins: set[int] = set()  # … that nobody made explicitly: they survive a process that was killed
        self._waiters: dict[int, int] = {}  # by request: how many threads wait for its outcome
        self._goes_on: set[int] = set()  # requests that continue although their waiter has timed out
        self._stopped: set[int] = set()  # cancelled requests
        self._pending: dict[int, socket.socket] = {}  # by request: the connection that it went out on
        self._outcomes: dict[int, News] = {}
        self._news = News()
        self._why_ended = ""  # the last process that failed
        self._heard = 0.0
        self._closed = False
        self._leading: list[threading.Thread] = []
        self._listener: threading.Thread | None = None

    @property
    def news(self) -> News:
        """The latest report."""
        return self._news

    @property
    def problem(self) -> str:
        """Why the index is not shared with servers that have other data directories; empty if all is well."""
        return self._host.problem

    @property
    def is_behind(self) -> bool:
        """Whether the process still does what somebody has given up waiting for; it answers nothing before that."""
        with self._changed:
            return not self._goes_on.isdisjoint(self._pending)

    @property
    def running(self) -> bool:
        """Whether there is a process that this server is connected to."""
        return self._line is not None

    # --- requests --------------------------------------------------------------------------------

    def join(self, who: Session) -> int:
        """Have the process keep the index, and all changes so far in it; returns a ticket to wait for, once."""
        with self._changed:
            return self._join(self._whole) if self._whole else self._lead_off("join", who)

    def refresh(self, who: Session, *, full: bool = False, why: str = "") -> int:
        """Bring the whole index up to date, or build it anew; returns a ticket to wait for, once."""
        with self._changed:
            if self._whole and self._whole_compares and not full:
                return self._join(self._whole)
            return self._lead_off("refresh", who, full=full, why=why)

    def look_at(self, paths: Sequence[bytes]) -> int:
        """Index some files again; returns a ticket, 0 if the process is not running."""
        return self._ask(lambda number: KeeperRequest(number, "refresh", paths=list(paths)))

    def ping(self, *, references: bool = False) -> int:
        """Flush all changes so far into the index, for searches or, with references, for the graph as well.

        Returns a ticket, 0 if the process is not running.
        """
        return self._ask(lambda number: KeeperRequest(number, "ping", references=references))

    def rank(self, request: RankRequest, check: Callable[[], None]) -> RankReply | None:
        """Search the index; None if the process that does it has ended."""
        line = self._host.connect_to_ranker()
        if line is None:
            return None
        with line:
            try:
                _send_all(line, msgspec.json.encode(request) + b"\n")
                answer = bytearray()
                while not answer.endswith(b"\n"):
                    while not select.select([line], [], [], _POLL_S)[0]:
                        check()
                    piece = line.recv(_READ)
                    if not piece or len(answer) > _LONGEST_LINE:
                        return None
                    answer += piece
                return msgspec.json.decode(answer, type=RankReply)
            except (OSError, msgspec.MsgspecError):
                return None

    def _ask(self, request: Callable[[int], KeeperRequest]) -> int:
        with self._changed:
            if self._line is None:
                return 0
            self._last_id += 1
            try:
                self._write(request(self._last_id), self._line)
            except BrokenPipeError:  # the listening thread will notice, too
                self._hang_up()
                return 0
            return self._join(self._last_id)

    def stop(self, ticket: int, *, left: bool = False) -> None:
        """Cancel a request unless others wait for it; the index stays as it was.

        One that somebody no longer waits for goes on, unless that is who stops it: `left`.
        """
        with self._changed:
            goes_on = ticket in self._goes_on and not left
            if self._waiters.get(ticket) or goes_on or ticket in self._outcomes:
                return
            self._stopped.add(ticket)
            if ticket == self._whole:  # the next caller starts a new one
                self._whole = 0
            line = self._pending.get(ticket)
            if line is not None and line is self._line:
                try:
                    self._write(KeeperRequest(ticket, "stop"), line)
                except BrokenPipeError:
                    self._hang_up()
            self._changed.notify_all()

    def wait(
        self, ticket: int, until: float, check: Callable[[], None], gives_up: Callable[[], bool] = never
    ) -> News | None:
        """The outcome of a request; None if time is up first, or the caller gives up: the request continues."""
        with self._changed:
            try:
                while ticket not in self._outcomes:
                    left = min(until - time.monotonic(), _POLL_S)
                    if left <= 0 or gives_up():
                        self._goes_on.add(ticket)
                        return None
                    self._changed.wait(left)
                    check()
                return self._outcomes[ticket]
            finally:
                self._leave(ticket)

    def _join(self, ticket: int) -> int:
        self._waiters[ticket] = self._waiters.get(ticket, 0) + 1
        return ticket

    def _leave(self, ticket: int) -> None:
        self._waiters[ticket] = self._waiters.get(ticket, 1) - 1
        if not self._waiters[ticket]:
            del self._waiters[ticket]

    def close(self) -> None:
        """Leave; the process ends if it is this server's, after a build that is under way."""
        with self._changed:
            self._closed = True
            finishes = self._news.building
            self._hang_up()
            threads = [*self._leading, *([self._listener] if self._listener is not None else [])]
        self._host.close(finishes=finishes)
        for thread in threads:
            thread.join(2.0)

    # --- a request for the whole index has a thread that sees it through --------------------------

    def _lead_off(self, do: Literal["join", "refresh"], who: Session, *, full: bool = False, why: str = "") -> int:
        self._last_id += 1
        request = KeeperRequest(self._last_id, do, full, why=why)
        leader = threading.Thread(target=self._lead, args=(request, who), name="index", daemon=True)
        leader.start()  # it waits for the lock
        self._leading = [thread for thread in self._leading if thread.is_alive()]
        self._leading.append(leader)
        self._whole, self._whole_compares = request.id, do == "refresh"
        self._led.add(request.id)
        if do == "join":
            self._joins.add(request.id)
        return self._join(request.id)

    def _lead(self, request: KeeperRequest, who: Session) -> None:
        def check() -> None:
            if self._closed:
                raise FeatureUnavailable("the server is closing")
            if request.id in self._stopped:
                raise Cancelled("stopped")

        try:
            for _ in range(_TRIES):
                self._see_through(request, self._connected(who, check), check)
                if request.id not in self._led:
                    return
            why = self._why_ended or f"the indexing process ended {_TRIES} times before it answered"
            raise FeatureUnavailable(why)
        except LlmcError as exc:
            self._settle(request.id, News(id=request.id, done=True, failed=exc.message, hint=exc.hint or ""))
        except Exception as exc:  # noqa: BLE001 - whatever it is, a caller waits for this request
            why = f"{type(exc).__name__}: {exc}"[:300]
            self._settle(request.id, News(id=request.id, done=True, failed=why))

    def _see_through(self, request: KeeperRequest, line: socket.socket, check: Callable[[], None]) -> None:
        """Send a request and wait until it has an outcome, or can get none on this connection."""
        with self._changed:
            check()
            try:
                self._write(request, line)
            except BrokenPipeError:
                self._hang_up()
                return
        self._heard = time.monotonic()
        while not self._over(request.id):
            if time.monotonic() - self._heard > _SILENT_S:
                self._host.kill()
                with self._changed:
                    self._hang_up()
                raise FeatureUnavailable(f"the indexing process said nothing for {_SILENT_S:.0f} s and was ended")

    def _over(self, ticket: int) -> bool:
        """Whether a request has an outcome, or can get none any more; waits a moment."""
        with self._changed:
            if ticket in self._pending and not self._closed:
                self._changed.wait(_POLL_S)
            return ticket not in self._pending or self._closed

    def _settle(self, ticket: int, news: News) -> None:
        with self._changed:
            self._outcomes[ticket] = news
            self._pending.pop(ticket, None)
            self._led.discard(ticket)
            self._joins.discard(ticket)
            if ticket == self._whole:
                self._whole = 0
            self._goes_on.discard(ticket)
            self._stopped.discard(ticket)
            for old in [old for old in sorted(self._outcomes)[:-_KEPT] if old not in self._waiters]:
                del self._outcomes[old]
            self._changed.notify_all()

    # --- the connection --------------------------------------------------------------------------

    def _connected(self, who: Session, check: Callable[[], None]) -> socket.socket:
        """The connection to the process; a new one if there is none."""
        with self._changed:
            if self._line is not None:
                return self._line
        line = self._host.connect(who, check)
        with self._changed:
            if self._line is not None or self._closed:
                line.close()
                check()
                return self._connected(who, check)
            listener = threading.Thread(target=self._listen, args=(line,), name="index-news", daemon=True)
            listener.start()
            self._listener = listener  # only now: whoever closes the line joins it
            self._line, self._news = line, News(busy=True)
            return line

    def _write(self, request: KeeperRequest, line: socket.socket) -> None:
        """Write one line; BrokenPipeError if the process does not read it."""
        _send_all(line, msgspec.json.encode(request) + b"\n")
        if request.do != "stop":
            self._pending[request.id] = line

    def _listen(self, line: socket.socket) -> None:
        decoder = msgspec.json.Decoder(News)
        rest = b""
        try:
            while (piece := line.recv(_READ)) and len(rest) < _LONGEST_LINE:
                *lines, rest = (rest + piece).split(b"\n")
                for one in lines:
                    self._report(decoder.decode(one), line)
            if rest:
                raise ValueError("a line without an end")
        except OSError:
            pass  # reset by a process that was killed
        except ValueError:  # it parses hostile files: do not trust one that sends garbage
            self._host.kill()
        with self._changed:
            if self._line is line:
                self._hang_up()
            line.close()
        why = self._host.why_ended()
        with self._changed:
            self._lose(line, why)

    def _report(self, news: News, line: socket.socket) -> None:
        with self._changed:
            self._heard = time.monotonic()
            self._news = news
            if news.done and self._pending.get(news.id) is line:
                self._settle(news.id, news)
            self._changed.notify_all()

    def _lose(self, line: socket.socket, why: str) -> None:
        """The process has ended: because of a failure, or with the server that ran it. Another can take over."""
        self._why_ended = why
        for ticket in [ticket for ticket, whose in self._pending.items() if whose is line]:
            if ticket not in self._led or (why and ticket not in self._joins):
                failed = why or "the indexing process ended"
                self._settle(ticket, News(id=ticket, done=True, failed=failed, lost=not why))
            else:
                del self._pending[ticket]  # whoever leads it sends it again
        if self._line is None:
            self._news = News(failed=why)
        self._changed.notify_all()

    def _hang_up(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)  # wakes the listening thread, which closes it


def _send_all(line: socket.socket, data: bytes) -> None:
    """Send without waiting for long; BrokenPipeError if the other end has gone, or does not read."""
    until = time.monotonic() + _DEAF_S
    while data:
        try:
            data = data[line.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL) :]
        except BlockingIOError:
            left = until - time.monotonic()
            if left <= 0:
                raise BrokenPipeError("nobody reads it") from None
            select.select([], [line], [], left)
        except OSError as exc:
            raise BrokenPipeError(str(exc)) from None
