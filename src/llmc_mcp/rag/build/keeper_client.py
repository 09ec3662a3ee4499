"""The client of the indexing process: starts it, sends requests, and keeps its latest report."""

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from ...errors import Cancelled, FeatureUnavailable, LlmcError
from ...files.filesystem import Root
from ...files.ripgrep import find_ripgrep, needed_to_run
from ...kernel import confine, landlock, syscalls
from ...kernel.launcher import ConfinementError, Launcher, RunningChild
from ...session import Session
from ...store.leases import CRIT_DB, LeaseKey, Leases
from ..parse.grammars import CACHE, unpack
from ..store.layout import home_of
from .keeper import KeeperRequest, News, Setup
from .walk import WalkRules

_POLL_S = 0.05
_FOREVER_S = 1e9
_LAST_WORDS = 2_000
_MEMORY = 4 << 30  # of the process and of each that it starts; workers have less
_KEPT = 100  # outcomes kept for waiters that come late
_DEAF_S = 5.0  # give up on a process that does not read a full pipe for this long
_SILENT_S = 300.0  # … and on one that is busy and reports nothing for this long


class IndexSpec(NamedTuple):
    """What to index, and with which embedding."""

    rules: WalkRules
    embedding: str


class Builder:
    """The indexing process of one root; safe from any thread. A request starts it if it is not running."""

    def __init__(self, launcher: Launcher, root: Root, data_dir: str, wanted: IndexSpec, leases: Leases) -> None:
        self._launcher, self._root, self._data_dir, self._leases = launcher, root, data_dir, leases
        self._home = home = home_of(data_dir, root.real)
        self._setup = Setup(home.folder, wanted.rules, os.fsdecode(find_ripgrep()), wanted.embedding)
        self._changed = threading.Condition()
        self._child: RunningChild | None = None
        self._stdin = -1
        self._last_id = 0
        self._whole = 0  # id of the running request for the whole index
        self._waiters: dict[int, int] = {}  # by request: how many threads wait for its outcome
        self._goes_on: set[int] = set()  # requests that continue although their waiter has timed out
        self._stopped: set[int] = set()  # cancelled requests
        self._pending: dict[int, RunningChild] = {}  # by request: the process that has it
        self._outcomes: dict[int, News] = {}
        self._news = News()
        self._heard = 0.0
        self._closed = False
        self._leading: list[threading.Thread] = []

    @property
    def news(self) -> News:
        """The latest report."""
        return self._news

    @property
    def running(self) -> bool:
        """Whether the process is running."""
        return self._child is not None

    # --- requests --------------------------------------------------------------------------------

    def refresh(self, who: Session, *, full: bool = False, why: str = "") -> int:
        """Bring the whole index up to date, or build it anew; returns a ticket to wait for, once."""
        with self._changed:
            if self._whole and not full:
                return self._join(self._whole)
            self._last_id += 1
            request = KeeperRequest(self._last_id, "refresh", full, why=why)
            self._whole = request.id
            leader = threading.Thread(target=self._lead, args=(request, who), name="index", daemon=True)
            self._leading = [thread for thread in self._leading if thread.is_alive()]
            self._leading.append(leader)
            leader.start()
            return self._join(request.id)

    def look_at(self, paths: Sequence[bytes]) -> int:
        """Index some files again; returns a ticket."""
        with self._changed:
            self._last_id += 1
            self._send(KeeperRequest(self._last_id, "refresh", paths=list(paths)))
            return self._join(self._last_id)

    def ping(self) -> int:
        """Flush all changes so far into the index; returns a ticket, 0 if the process is not running."""
        with self._changed:
            if self._child is None:
                return 0
            self._last_id += 1
            try:
                self._write(KeeperRequest(self._last_id, "ping"), self._child)
            except BrokenPipeError:  # the listening thread will notice, too
                self._hang_up()
                return 0
            return self._join(self._last_id)

    def stop(self, ticket: int) -> None:
        """Cancel a request unless others wait for it; the index stays as it was."""
        with self._changed:
            if self._waiters.get(ticket) or ticket in self._goes_on or ticket in self._outcomes:
                return
            self._stopped.add(ticket)
            if ticket == self._whole:  # the next caller starts a new one
                self._whole = 0
            child = self._pending.get(ticket)
            if child is not None and child is self._child:
                try:
                    self._write(KeeperRequest(ticket, "stop"), child)
                except BrokenPipeError:
                    self._hang_up()
            self._changed.notify_all()

    def wait(self, ticket: int, until: float, check: Callable[[], None]) -> News | None:
        """The outcome of a request; None if time is up first: the request continues."""
        with self._changed:
            try:
                while ticket not in self._outcomes:
                    left = min(until - time.monotonic(), _POLL_S)
                    if left <= 0:
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
        """End the process."""
        with self._changed:
            self._closed = True
            self._hang_up()
            leading = self._leading
        for thread in leading:
            thread.join(2.0)

    # --- a request for the whole index holds a lease ------------------------------------------------

    def _lead(self, request: KeeperRequest, who: Session) -> None:
        key = LeaseKey(f"index:{self._root.shown}")

        def check() -> None:
            self._still_wanted()
            if request.id in self._stopped:
                raise Cancelled("stopped")

        try:
            with self._leases.held(CRIT_DB, [key], who, wait_s=_FOREVER_S, check=check) as tokens:
                self._see_through(request, tokens, check)
        except LlmcError as exc:
            self._settle(request.id, News(id=request.id, done=True, failed=exc.message, hint=exc.hint or ""))
        except Exception as exc:  # noqa: BLE001 - whatever it is, a caller waits for this request
            why = f"{type(exc).__name__}: {exc}"[:300]
            self._settle(request.id, News(id=request.id, done=True, failed=why))

    def _see_through(self, request: KeeperRequest, tokens: Sequence[int], check: Callable[[], None]) -> None:
        grammars = self._prepared()
        with self._changed:
            check()
            self._send(request, grammars)
        renewed = self._heard = time.monotonic()
        while not self._over(request.id):
            now = time.monotonic()
            if now - self._heard > _SILENT_S:
                self._give_up(request.id)
            if now - renewed > self._leases.ttl_s / 3:
                renewed = now
                self._leases.renew(tokens)

    def _over(self, ticket: int) -> bool:
        """Whether a request has an outcome, or can get none any more; waits a moment."""
        with self._changed:
            if ticket in self._pending and not self._closed:
                self._changed.wait(_POLL_S)
            return ticket not in self._pending or self._closed

    def _give_up(self, ticket: int) -> None:
        """Kill a process that hangs."""
        with self._changed:
            child = self._pending.get(ticket)
            if child is not None:
                self._launcher.signal(child, signal.SIGKILL)
            if child is self._child:
                self._hang_up()
        raise FeatureUnavailable(f"the indexing process said nothing for {_SILENT_S:.0f} s and was ended")

    def _still_wanted(self) -> None:
        if self._closed:
            raise FeatureUnavailable("the server is closing")

    def _settle(self, ticket: int, news: News) -> None:
        with self._changed:
            self._outcomes[ticket] = news
            self._pending.pop(ticket, None)
            if ticket == self._whole:
                self._whole = 0
            self._goes_on.discard(ticket)
            self._stopped.discard(ticket)
            for old in [old for old in sorted(self._outcomes)[:-_KEPT] if old not in self._waiters]:
                del self._outcomes[old]
            self._changed.notify_all()

    # --- the pipes -------------------------------------------------------------------------------

    def _send(self, request: KeeperRequest, grammars: bytes | None = None) -> None:
        """Send a request, to a new process if the old one has ended."""
        for _ in range(2):
            try:
                child = self._child or self._start(grammars or self._prepared())
                self._write(request, child)
                return
            except BrokenPipeError:
                self._hang_up()
        raise FeatureUnavailable(f"the indexing process ended at once: {self._last_words()}")

    def _write(self, request: KeeperRequest, child: RunningChild) -> None:
        """Write one line; BrokenPipeError if the process does not read it."""
        _write_all(self._stdin, msgspec.json.encode(request) + b"\n")
        if request.do != "stop":
            self._pending[request.id] = child

    def _prepared(self) -> bytes:
        """Make the folder of the index and unpack the grammars; returns their folder. Slow the first time."""
        self._still_wanted()
        try:
            self._home.prepare(self._root.shown)
            return os.fsencode(unpack(self._data_dir))
        except OSError as exc:
            raise _unavailable(self._home.folder, exc) from None

    def _start(self, grammars: bytes) -> RunningChild:
        self._still_wanted()
        try:
            log = os.open(
                os.path.join(self._home.folder, "log"), os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600
            )
        except OSError as exc:
            raise _unavailable(self._home.folder, exc) from None
        try:
            ruleset = self._confinement(grammars)
        except BaseException:
            os.close(log)
            raise
        in_read, in_write = os.pipe2(os.O_CLOEXEC)
        out_read, out_write = os.pipe2(os.O_CLOEXEC)
        try:
            child = self._launcher.start(
                confine.command("llmc_mcp.rag.build.keeper"),
                {os.fsencode(CACHE): grammars},
                [self._root.fd, in_read, out_write, log, ruleset],
                confine.plan(4, memory=_MEMORY, inotify=True),
            )
        except OSError as exc:
            os.close(in_write)
            os.close(out_read)
            reason = "it could not be confined" if isinstance(exc, ConfinementError) else exc.strerror
            raise FeatureUnavailable(f"the indexing process did not start: {reason}") from None
        finally:
            for fd in (in_read, out_write, log, ruleset):
                os.close(fd)
        os.set_blocking(in_write, False)
        self._stdin, self._child = in_write, child
        self._news = News(busy=True)
        threading.Thread(target=self._listen, args=(out_read, child), name="index-news", daemon=True).start()
        _write_all(in_write, msgspec.json.encode(self._setup) + b"\n")
        return child

    def _listen(self, fd: int, child: RunningChild) -> None:
        decoder = msgspec.json.Decoder(News)
        with os.fdopen(fd, "rb") as lines:
            for line in lines:
                try:
                    news = decoder.decode(line)
                except msgspec.DecodeError:  # it parses hostile files: do not trust one that sends garbage
                    self._launcher.signal(child, signal.SIGKILL)
                    break
                with self._changed:
                    self._heard = time.monotonic()
                    self._news = news
                    if news.done and news.id:
                        self._settle(news.id, news)
                    self._changed.notify_all()
        code = self._launcher.wait(child)
        with self._changed:
            why = f"the indexing process ended (exit {code}): {self._last_words()}"
            for ticket in [ticket for ticket, whose in self._pending.items() if whose is child]:
                self._settle(ticket, News(id=ticket, done=True, failed=why))
            if self._child is child:
                self._hang_up()
                self._news = News(failed=why if code else "")
            self._changed.notify_all()

    def _hang_up(self) -> None:
        if self._stdin >= 0:
            os.close(self._stdin)
        self._stdin, self._child = -1, None

    def _last_words(self) -> str:
        try:
            with open(os.path.join(self._home.folder, "log"), encoding="utf-8", errors="replace") as log:
                return log.read()[-_LAST_WORDS:].strip().rpartition("\n")[2]
        except OSError:
            return ""

    def _confinement(self, grammars: bytes) -> int:
        """Read the root, write the index, run Python and ripgrep: nothing else."""
        if syscalls.landlock_abi() == 0:
            raise FeatureUnavailable(
                "the code index needs Landlock, which this kernel lacks or has switched off",
                hint="Linux 5.13+ with landlock in the lsm= list; linux_fs_list and read_file work without.",
            )
        allowed = [(os.fsencode(self._home.folder), syscalls.EVERYTHING), *confine.needed(grammars)]
        try:
            return landlock.ruleset(
                [*allowed, *needed_to_run(find_ripgrep())], [(self._root.fd, syscalls.READ_ONLY, True)]
            )
        except OSError as exc:
            raise _unavailable(self._home.folder, exc) from None


def _unavailable(folder: str, exc: OSError) -> FeatureUnavailable:
    return FeatureUnavailable(
        f"the code index can't be kept in {folder}: {exc.strerror}",
        hint="Make it writable, or set LLMC_DATA_DIR to another folder.",
    )


def _write_all(fd: int, data: bytes) -> None:
    """Write into a non-blocking pipe; BrokenPipeError also if it stays full."""
    until = time.monotonic() + _DEAF_S
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            left = until - time.monotonic()
            if left <= 0:
                raise BrokenPipeError("nobody reads it") from None
            poll.poll(left * 1000)
