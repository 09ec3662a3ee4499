"""The server's end of the line to the process that keeps an index: starts it, asks, and knows what it told last."""

import os
import resource
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from ..errors import FeatureUnavailable, LlmcError
from ..maasl import CRIT_DB, Key, Leases
from ..session import Session
from ..te import kernel
from ..te.filesystem import Root
from ..te.launcher import ConfinementError, Launcher, Started
from ..te.search import find_ripgrep, needed_to_run
from . import confine
from .build import News, Request, Setup
from .grammars import CACHE, unpack
from .store import home_of
from .walk import Rules

_POLL_S = 0.05
_FOREVER_S = 1e9
_LAST_WORDS = 2_000
_PING_EVERY_S = 60.0


class Wanted(NamedTuple):
    """What an index should hold."""

    rules: Rules
    embedding: str


class Builder:
    """One index's keeper; safe from any thread. The first request starts its process, and the first after its end."""

    def __init__(self, launcher: Launcher, root: Root, data_dir: str, wanted: Wanted, leases: Leases) -> None:
        self._launcher, self._root, self._data_dir, self._leases = launcher, root, data_dir, leases
        self._home = home = home_of(data_dir, root.real)
        self._setup = Setup(home.folder, wanted.rules, os.fsdecode(find_ripgrep()), wanted.embedding)
        self._changed = threading.Condition()
        self._child: Started | None = None
        self._stdin = -1
        self._last_id = 0
        self._whole = 0  # the id of the request for the whole index that is under way
        self._pending: dict[int, Started] = {}  # whom a request was handed to
        self._outcomes: dict[int, News] = {}
        self._news = News()
        self._pinged = 0.0
        self._closed = False
        self._leading: list[threading.Thread] = []

    @property
    def news(self) -> News:
        """What it told last."""
        return self._news

    @property
    def running(self) -> bool:
        """Whether it watches the root right now."""
        return self._child is not None

    # --- asking ----------------------------------------------------------------------------------

    def refresh(self, who: Session, *, full: bool = False, why: str = "") -> int:
        """Ask for the whole index to be brought up to date, or to be built anew; returns what to wait for."""
        with self._changed:
            if self._whole and not full:
                return self._whole
            self._last_id += 1
            request = Request(self._last_id, "refresh", full, why=why)
            self._whole = request.id
            leader = threading.Thread(target=self._lead, args=(request, who), name="index", daemon=True)
            self._leading = [thread for thread in self._leading if thread.is_alive()]
            self._leading.append(leader)
            leader.start()
            return request.id

    def look_at(self, paths: Sequence[bytes]) -> int:
        """Ask for some files to be looked at again."""
        with self._changed:
            self._last_id += 1
            self._send(Request(self._last_id, "refresh", paths=list(paths)))
            return self._last_id

    def stop(self) -> None:
        """Give up what is under way; the index stays as it was."""
        with self._changed:
            if self._child is not None:
                self._last_id += 1
                self._send(Request(self._last_id, "stop"))

    def ping(self) -> None:
        """Somebody uses the index: it should be kept."""
        now = time.monotonic()
        if now - self._pinged > _PING_EVERY_S and self._child is not None:
            self._pinged = now
            with self._changed:
                self._send(Request(0, "ping"))

    def wait(self, ticket: int, until: float, check: Callable[[], None]) -> News | None:
        """What came of a request; None while it is under way and time is up."""
        with self._changed:
            while ticket not in self._outcomes:
                left = min(until - time.monotonic(), _POLL_S)
                if left <= 0:
                    return None
                self._changed.wait(left)
                check()
            return self._outcomes[ticket]

    def wait_until_quiet(self, until: float) -> bool:
        """Whether all changes that were noticed are in the index by then; a build takes too long to be waited for."""
        with self._changed:
            while self._news.busy and not self._news.building and self._child is not None:
                left = until - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
            return not self._news.busy

    def close(self) -> None:
        """Let it end."""
        with self._changed:
            self._closed = True
            self._hang_up()
            leading = self._leading
        for thread in leading:
            thread.join(2.0)

    # --- a request for the whole index holds a lease ------------------------------------------------

    def _lead(self, request: Request, who: Session) -> None:
        key = Key(f"index:{self._root.shown}")
        try:
            with self._leases.held(CRIT_DB, [key], who, wait_s=_FOREVER_S, check=self._still_wanted) as tokens:
                self._see_through(request, tokens)
        except LlmcError as exc:
            self._settle(request.id, News(id=request.id, done=True, failed=exc.message, hint=exc.hint or ""))

    def _see_through(self, request: Request, tokens: Sequence[int]) -> None:
        with self._changed:
            self._send(request)
            renewed = time.monotonic()
            while request.id not in self._outcomes and not self._closed:
                self._changed.wait(_POLL_S)
                if time.monotonic() - renewed > self._leases.ttl_s / 3:
                    renewed = time.monotonic()
                    self._leases.renew(tokens)

    def _still_wanted(self) -> None:
        if self._closed:
            raise FeatureUnavailable("the server is closing")

    def _settle(self, ticket: int, news: News) -> None:
        with self._changed:
            self._outcomes[ticket] = news
            self._pending.pop(ticket, None)
            if ticket == self._whole:
                self._whole = 0
            for old in sorted(self._outcomes)[:-100]:
                del self._outcomes[old]
            self._changed.notify_all()

    # --- the line --------------------------------------------------------------------------------

    def _send(self, request: Request) -> None:
        """Hand over a request, to a new process where the old one has ended."""
        line = msgspec.json.encode(request) + b"\n"
        for _ in range(2):
            if self._child is None:
                self._start()
            try:
                os.write(self._stdin, line)
                if request.id and self._child is not None:
                    self._pending[request.id] = self._child
                return
            except BrokenPipeError:
                self._hang_up()

    def _start(self) -> None:
        self._still_wanted()
        try:
            self._home.prepare(self._root.shown)
            grammars = os.fsencode(unpack(self._data_dir))
            log = os.open(
                os.path.join(self._home.folder, "log"), os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600
            )
        except OSError as exc:
            raise _unavailable(self._home.folder, exc) from None
        in_read, in_write = os.pipe2(os.O_CLOEXEC)
        out_read, out_write = os.pipe2(os.O_CLOEXEC)
        ruleset = self._confinement(grammars)
        try:
            self._child = self._launcher.start(
                confine.command("llmc_mcp.rag.build"),
                {os.fsencode(CACHE): grammars},
                [self._root.fd, in_read, out_write, log, ruleset],
                {"ruleset": 4, "limits": [(resource.RLIMIT_CORE, 0)]},
            )
        except OSError as exc:
            os.close(in_write)
            os.close(out_read)
            reason = "it could not be confined" if isinstance(exc, ConfinementError) else exc.strerror
            raise FeatureUnavailable(f"the indexing process did not start: {reason}") from None
        finally:
            for fd in (in_read, out_write, log, ruleset):
                os.close(fd)
        self._stdin = in_write
        os.write(in_write, msgspec.json.encode(self._setup) + b"\n")
        self._news = News(busy=True)
        threading.Thread(target=self._listen, args=(out_read, self._child), name="index-news", daemon=True).start()

    def _listen(self, fd: int, child: Started) -> None:
        decoder = msgspec.json.Decoder(News)
        with os.fdopen(fd, "rb") as lines:
            for line in lines:
                news = decoder.decode(line)
                with self._changed:
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
        if kernel.landlock_abi() == 0:
            raise FeatureUnavailable(
                "the code index needs Landlock, which this kernel lacks or has switched off",
                hint="Linux 5.13+ with landlock in the lsm= list; linux_fs_list and read_file work without.",
            )
        allowed = [(os.fsencode(self._home.folder), kernel.EVERYTHING), *confine.needed(grammars)]
        try:
            return confine.ruleset(
                [*allowed, *needed_to_run(find_ripgrep())], [(self._root.fd, kernel.READ_ONLY, True)]
            )
        except OSError as exc:
            raise _unavailable(self._home.folder, exc) from None


def _unavailable(folder: str, exc: OSError) -> FeatureUnavailable:
    return FeatureUnavailable(
        f"the code index can't be kept in {folder}: {exc.strerror}",
        hint="Make it writable, or set LLMC_DATA_DIR to another folder.",
    )
