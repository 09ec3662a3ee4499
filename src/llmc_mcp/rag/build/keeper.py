"""The process that builds one index, follows the changes of its root and answers requests.

It reads hostile files with grammars written in C, so it runs confined: it can read the root and write the folder of the
index, nothing else. The server that starts it writes its setup to its stdin, and keeps that open: it exits when stdin
closes, but finishes a build that is under way. Requests come over a Unix socket, from all servers that use this index:
lines of JSON, as the reports are. Searches go to a process that it forks (ranker.py), so that they need not wait
while the index is written. Index updates are debounced, and flushed before a query.
"""

import os
import select
import socket
import sys
import time
from collections.abc import Callable, Sequence

import msgspec

from ..store import embed, received
from ..store.index import IndexDamaged, IndexWriter, is_readable
from ..store.layout import Home
from .commit_plan import CommitPlan
from .keeper_lines import KeeperLines
from .messages import KeeperRequest, News, Setup
from .parser_pool import ParserPool
from .parser_worker import READ_LATER, READ_NOW, Job
from .ranker import Ranker
from .walk import Walk, WalkedFile
from .watch import Watch

LISTENER, RANKER = 3, 4  # the descriptors of the sockets that servers connect to
_QUIET_S, _LONGEST_S = 0.5, 2.0  # debounce: after the last change, and at the latest
_WALK_EVERY_S = 60.0  # a watched root is still walked: a folder of ignored files alone has no watch
_WALK_UNWATCHED_S = 3.0
_WALK_SHARE = 20  # the interval between walks, in durations of a walk
_TELL_S = 0.1
_NICE = 5
_MANY, _TURN = 200, 100  # changed files: of more, what the graph needs comes later, in turns of so many
_MOST_FORMER = 20_000  # changed files: of each, a kilobyte is kept in memory until it is parsed
_ALONE = 3  # up to this many files, one worker is enough
_CLOCK_NS = 20_000_000  # how far the modification time of a folder may lag
_REMEMBERED = 10_000  # names of ignored files


class _BuildCancelled(Exception):
    """The request was cancelled."""


class Keeper:
    """The main loop."""

    def __init__(self, setup: Setup, listener: socket.socket, ranker: socket.socket) -> None:
        self._setup, self._home = setup, Home(setup.home)
        self._folder = self._home.identity()
        self._lines = KeeperLines(listener)
        root = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._walk = Walk(root, setup.rules, setup.ripgrep, setup.home)
        self._watch = Watch()
        self._walk.begin()  # ripgrep runs while the vectors are loaded
        self._embedding = embed.load(setup.embedding)
        self._workers = ParserPool(self._walk, self._embedding)
        self._ranker = Ranker(ranker, self._home, self._embedding)
        self._requests: list[KeeperRequest] = []
        self._now = News()
        self._reported_at = 0.0
        self._last_request = time.monotonic()
        self._walked, self._walk_took = 0.0, 0.0
        self._closed = False
        self._walk_wanted = False  # a change that only a walk can resolve
        self._unsure: set[bytes] = set()  # new names since the last walk, which decides whether they are ignored
        self._ignored: set[bytes] = set()  # changed files that a walk did not list: no reason for another walk
        self._waiting: list[KeeperRequest] = []  # pings that wait for the changes being indexed
        self._noticed: set[bytes] = set()  # files that changed since, and are not indexed yet
        self._unread = False  # whether files of the index lack their references
        self._reads_references = False  # at the moment: searches need not wait for that

    def run(self) -> None:
        """Serve until stdin closes, the folder of the index is gone, or no request has come for a long time."""
        self._ranker.fork()  # before it is nice: somebody waits for an answer
        os.nice(_NICE)
        while not self._closed:
            watched = [self._watch.fd] if self._watch.fd >= 0 else []
            ready = self._hear(self._patience(), self._ranker.fd, *watched)
            self._ranker.attend(ready)
            now = time.monotonic()
            if self._home.identity() != self._folder:
                break  # it may only write to the old one: whoever asks again starts another process
            if self._requests:
                self._last_request = now
                self._answer(self._requests.pop(0))
            elif now - self._last_request > self._setup.idle_s:
                break  # whoever asks next has the files compared with the index again
            elif self._watch.fd in ready or self._noticed:
                self._follow()
            elif self._walk_due(now):
                self._do(self._idle(), lambda: self._update(None))
            elif self._unread:
                self._do(self._idle(), self._read_references)
        self._ranker.close()
        self._workers.close()

    # --- the servers -----------------------------------------------------------------------------

    def _tell(self, news: News) -> None:
        self._now, self._reported_at = news, time.monotonic()
        self._lines.tell(news)

    def _hear(self, seconds: float, *others: int) -> set[int]:
        """Wait for requests, or for something else to be readable, and read the requests; returns what is readable."""
        poll = select.poll()
        for fd in (0, *self._lines.fds(), *others):
            poll.register(fd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(seconds * 1000)}
        self._closed |= 0 in ready  # nothing follows the setup
        self._requests += self._lines.hear(ready)
        return ready

    def _cancelled(self, number: int) -> bool:
        """Whether this request was cancelled; other requests stay queued."""
        stops = [request for request in self._requests if request.do == "stop" and request.id == number]
        for request in stops:
            self._requests.remove(request)
        return bool(stops and number)

    def _tick(self) -> None:
        """Called often during long work: read requests, report progress, stop if cancelled."""
        self._hear(0.0)
        if self._reads_references:
            self._answer_pings()
        if self._home.identity() != self._folder:  # it was deleted: nobody wants what is being made
            self._closed = True
            raise _BuildCancelled
        if self._cancelled(self._now.id) or (self._closed and not self._now.building):
            raise _BuildCancelled
        if time.monotonic() - self._reported_at > _TELL_S:
            self._note(files_listed=self._walk.listed)
            self._tell(self._now)

    def _patience(self) -> float:
        now = time.monotonic()
        ends = [self._last_request + self._setup.idle_s, self._next_walk()]
        return 0.0 if self._requests or self._noticed or self._unread else max(min(ends) - now, 0.0) + 0.001

    def _next_walk(self) -> float:
        if not self._walked:
            return float("inf")
        every = 0.0 if self._walk_wanted else _WALK_UNWATCHED_S if self._watch.reason else _WALK_EVERY_S
        return self._walked + max(every, _WALK_SHARE * self._walk_took)

    def _walk_due(self, now: float) -> bool:
        return now >= self._next_walk()

    # --- requests --------------------------------------------------------------------------------

    def _answer(self, request: KeeperRequest) -> None:
        if self._is_ping(request):
            self._catch_up(request)
            return
        if request.do == "stop":  # the request has ended
            return
        start = msgspec.structs.replace(self._idle(), id=request.id)
        if self._cancelled(request.id):
            self._tell(msgspec.structs.replace(start, done=True, failed="stopped"))
            return
        if request.full:
            self._do(start, lambda: self._build(request.why))
        else:
            self._do(start, lambda: self._update(request.paths or None, sure=True))

    def _is_ping(self, request: KeeperRequest) -> bool:
        joins = request.do == "join" and self._walked and self._home.current() is not None
        return request.do == "ping" or bool(joins)

    def _answer_pings(self) -> None:
        """Answer those that searches wait for, if all changes are in the index, whatever else goes on."""
        pings = [request for request in self._requests if self._is_ping(request) and not request.references]
        if not pings or not self._walked or self._watch.reason:
            return
        self._noticed = self._changes(0.0)
        if self._noticed or self._walk_wanted or self._watch.written:
            return
        self._requests = [request for request in self._requests if request not in pings]
        for ping in pings:
            self._lines.tell(msgspec.structs.replace(self._idle(), id=ping.id, done=True))

    def _attend(self) -> None:
        """Called while the writer merges what it has written."""
        self._hear(0.0)
        self._answer_pings()

    def _do(self, start: News, work: Callable[[], None]) -> None:
        """Run something under the lock of the index, and report how it ended."""
        self._tell(msgspec.structs.replace(start, busy=True))
        try:
            with self._home.writing(self._tick):
                try:
                    work()
                except IndexDamaged as exc:
                    self._build(f"it was damaged ({exc})")
            end = {"busy": False, "done": True}
            lost = False
        except _BuildCancelled:
            lost = not self._now.building  # a first build goes on when somebody searches again
            end = {"busy": False, "done": True, "building": False, "failed": "stopped"}
        except (OSError, ValueError) as exc:  # a full disk, most likely
            if self._home.identity() != self._folder:
                self._closed = True
                return
            why = f"{type(exc).__name__}: {exc}"[:300]
            end = {"busy": False, "done": True, "building": False, "failed": why}
            lost = True
        self._walk_wanted |= lost  # only a walk finds again what was not indexed
        self._workers.keep(self._setup.workers if self._unread else 1)
        self._tell(msgspec.structs.replace(self._now, **end))

    def _catch_up(self, ping: KeeperRequest) -> None:
        """Index all changes so far, then answer every ping; one of the graph when no references are missing."""
        pings = [request for request in self._requests if request.do == "ping" and not request.references]
        self._requests = [request for request in self._requests if request not in pings]
        self._waiting = pings if ping.references else [ping, *pings]
        failed = self._flush()
        self._tell_waiting(failed)
        if not ping.references:
            return
        if self._unread:
            self._do(self._idle(), self._read_references)
            self._requests.append(ping)  # other requests come first
        else:
            self._waiting = [ping]
            self._tell_waiting(failed)

    def _flush(self) -> str:
        """Index all changes so far; returns why that was not possible."""
        if not self._walked:  # nothing is watched before the first walk
            return "not compared with the files yet"
        paths = self._changes(0.0) | self._watch.written
        if self._watch.reason and not self._walk_wanted:
            ago = time.monotonic() - self._walked
            self._walk_wanted = self._may_walk(time.monotonic())
            if not self._walk_wanted:
                return f"files are walked now and then, the last time {ago:.0f} s ago"
        if paths or self._walk_wanted:
            whole = self._walk_wanted
            self._unsure |= paths if whole else set()
            self._do(self._idle(), lambda: self._update(None if whole else sorted(paths), sure=True))
        return self._now.failed

    def _tell_waiting(self, failed: str) -> None:
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            self._tell(msgspec.structs.replace(self._idle(), id=request.id, done=True, failed=failed))

    def _idle(self) -> News:
        """The report while nothing is being done."""
        walk = self._walk
        return News(walks=self._watch.reason, past_limit=walk.past_limit, ignore_files=walk.ignore_files)

    def _follow(self) -> None:
        """Index what changed, debounced."""
        self._tell(msgspec.structs.replace(self._idle(), busy=True))
        paths = self._changes(_QUIET_S)
        walk = self._walk_wanted and self._may_walk(time.monotonic())
        self._unsure |= paths if walk else set()
        if paths or walk:
            self._do(self._idle(), lambda: self._update(None if walk else sorted(paths)))
        else:
            self._tell(self._idle())

    def _changes(self, quiet: float) -> set[bytes]:
        """Files that changed, once `quiet` seconds pass without another change, or a request comes."""
        paths, self._noticed = self._noticed, set[bytes]()
        until = time.monotonic() + _LONGEST_S
        heard = [self._watch.fd, 0, *self._lines.fds()] if quiet else [self._watch.fd]
        while self._watch.fd >= 0:
            ready = select.select(heard, [], [], quiet)[0]
            if self._watch.fd in ready:
                more, walk = self._watch.changes()
                paths |= more
                self._walk_wanted |= walk
            if set(ready) != {self._watch.fd} or time.monotonic() > until:
                break
        return paths

    def _may_walk(self, now: float) -> bool:
        """Whether enough time has passed since the last walk to afford another."""
        return now >= self._walked + _WALK_SHARE * self._walk_took

    # --- the work --------------------------------------------------------------------------------

    def _files(self) -> list[WalkedFile]:
        started = time.monotonic()
        self._walk_wanted = False
        seen = self._walk.files(self._tick)
        self._walk_wanted |= self._watch.follow((file.path for file in seen), self._walk.began_ns - _CLOCK_NS)
        self._walked = time.monotonic()
        self._walk_took = self._walked - started
        walk = self._walk
        self._note(past_limit=walk.past_limit, ignore_files=walk.ignore_files, walks=self._watch.reason)
        return seen

    def _note(self, **what: object) -> None:
        self._now = msgspec.structs.replace(self._now, **what)

    def _update(self, paths: Sequence[bytes] | None, *, sure: bool = False) -> None:
        """Bring the index up to date, wholly or for some files; `sure` does not wait for the next walk."""
        if not self._walked:
            paths = None
        build = self._home.current() or self._home.seed()
        if build is None:
            self._build("")
            return
        paths = None if self._home.current() is None else paths
        if received.is_received(build):
            received.take_over(build, self._setup.kind(), self._tick)
        writer = IndexWriter(build)
        self._note(building=not writer.complete)
        if writer.embedding != (self._embedding.name if self._embedding else ""):
            writer.close()
            self._build("it was made for another embedding")
            return
        try:
            again, gone = writer.behind()
            jobs, dropped, is_all = list[Job](), list[int](), False
            if paths is not None and not again and writer.complete:
                jobs, dropped, is_all = self._some(paths, writer, sure)
            if not is_all:
                if jobs or dropped:
                    self._announce(writer, jobs, dropped)  # a walk takes a while
                jobs, dropped = self._all(again, writer)
            self._write(writer, jobs, dropped, gone)
            self._unread = bool(writer.unread(1))
            if self._home.current() is None:
                self._home.put_in_force(build)
            self._tell(msgspec.structs.replace(self._now, busy=False, done=True))  # the rest is cleaning up
            self._tell_waiting("")
        except BaseException:
            writer.close()
            raise
        writer.close(self._attend)

    def _some(self, paths: Sequence[bytes], writer: IndexWriter, sure: bool) -> tuple[list[Job], list[int], bool]:
        """What to parse and what to drop, of some files; False if a walk has to decide now what else is ignored."""
        known = writer.known(paths)
        jobs: list[Job] = []
        dropped: list[int] = []
        for path in paths:
            file, old = self._walk.look(path), known.get(path)
            if file is None and old is not None:
                dropped.append(old.id)
            elif file is not None and old is not None:
                jobs.append(Job(old.id, path, file.size, old.sha256))
            elif file is not None and path not in self._ignored:
                self._unsure.add(path)
        if self._unsure:
            self._walk_wanted = True
            # Of many changes, what is new would wait for all others.
            if sure or len(paths) > _MANY or self._may_walk(time.monotonic()):
                return jobs, dropped, False
        return jobs, dropped, True

    def _all(self, again: set[bytes], writer: IndexWriter) -> tuple[list[Job], list[int]]:
        """The same for the whole root."""
        files, known = self._files(), writer.known()
        there = {file.path for file in files}
        self._ignored = (self._ignored | self._unsure) - there
        self._unsure = set()
        if len(self._ignored) > _REMEMBERED:
            self._ignored = set()
        jobs: list[Job] = []
        for file in files:
            old = known.get(file.path)
            if old is None:
                jobs.append(Job(writer.new_id(), file.path, file.size))
            elif file.path in again:
                jobs.append(Job(old.id, file.path, file.size))
            elif (file.size, file.mtime_ns) != (old.size, old.mtime_ns):
                jobs.append(Job(old.id, file.path, file.size, old.sha256))
        return jobs, [old.id for path, old in known.items() if path not in there]

    def _build(self, why: str) -> None:
        """A new index beside an old one, put in its place when it is complete; at once where none can be read."""
        self._note(building=True, rebuilt=why)
        replaces = is_readable(self._home.current())
        folder = self._home.new_build()
        embedding = self._embedding.name if self._embedding else ""
        writer = IndexWriter(folder, fresh=True, embedding=embedding, rules=self._setup.kind())
        try:
            if not replaces:
                self._home.put_in_force(folder)
            self._write(writer, *self._all(set(), writer))
        except BaseException:
            writer.close()
            if replaces:
                self._home.discard(folder)
            raise
        writer.close()
        if replaces:
            self._home.put_in_force(folder)

    def _announce(self, writer: IndexWriter, jobs: list[Job], dropped: list[int]) -> None:
        """Have searches read files as text that wait to be indexed; of a few that changed, they wait for that."""
        if self._home.current() == writer.build and (not writer.complete or len(jobs) + len(dropped) > _MANY):
            writer.announce([(job.path, 0 if writer.is_new(job.id) else job.id) for job in jobs], dropped)

    def _write(self, writer: IndexWriter, jobs: list[Job], dropped: list[int], gone: Sequence[int] = ()) -> None:
        """Parse and drop files, and commit as it goes: what is there can be searched, and outlives this process."""
        self._announce(writer, jobs, dropped)
        for file in gone:
            writer.forget_text(file)
        for file in dropped:
            writer.drop(file)
        if writer.complete:
            jobs = _with_earlier(jobs, writer)
            if self._home.current() is not None:  # of another root's index, nearly all files are as they were
                jobs = _with_former(jobs, writer)
        if not writer.complete or CommitPlan.is_large(len(jobs)):
            writer.expect_many()
        if writer.complete and len(jobs) > _MANY:  # what can be searched comes first, references follow
            jobs = [msgspec.structs.replace(job, references=READ_LATER) for job in jobs]
        before = writer.count() - sum(not writer.is_new(job.id) for job in jobs) if self._now.building else 0
        self._note(files_done=before, files_total=before + len(jobs), removed=len(dropped))
        count = 1 if len(jobs) <= _ALONE else self._setup.workers
        plan = CommitPlan(before, is_update=writer.complete)
        try:
            for done, looked in enumerate(self._workers.look_at(jobs, count, self._tick), 1 + before):
                writer.put(looked)
                self._note(files_done=done)
                if done < self._now.files_total and plan.is_due(done):
                    writer.commit()
                    plan.committed(done)
        except _BuildCancelled:
            writer.commit()
            raise
        writer.finish()
        writer.commit()
        if not self._walk_wanted:  # else there may be more
            writer.settle()
        self._note(building=False, changed=len(jobs))

    def _read_references(self) -> None:
        """Read some of the references that are missing."""
        build, self._unread = self._home.current(), False
        if build is None:
            return
        writer = IndexWriter(build)
        self._reads_references = True
        try:
            rows = writer.unread(_TURN)
            jobs = [Job(file, path, size, known, references=READ_NOW) for file, path, size, known in rows]
            for looked in self._workers.look_at(jobs, self._setup.workers, self._tick):
                writer.put(looked)
            writer.commit()
            self._unread = bool(writer.unread(1))
        finally:
            self._reads_references = False
            writer.close(self._attend)


def _with_earlier(jobs: list[Job], writer: IndexWriter) -> list[Job]:
    """The jobs with what is known of earlier contents of each file: it may be again what it was."""
    paths = {job.path for job in jobs}
    ids, earlier = writer.base_ids(paths), writer.earlier_of(paths)
    return [
        msgspec.structs.replace(job, id=ids.get(job.path, job.id), earlier=earlier[job.path])
        if job.path in earlier
        else job
        for job in jobs
    ]


def _with_former(jobs: list[Job], writer: IndexWriter) -> list[Job]:
    """The jobs with what is known of the chunks of each file; of a file that tantivy lacks, no hash is known."""
    if len(jobs) > _MOST_FORMER:
        return jobs
    former = writer.former([job.id for job in jobs if job.known])
    return [msgspec.structs.replace(job, former=former[job.id]) if job.id in former else job for job in jobs]


def main() -> None:
    """Read the setup, then serve."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 1)
        if not piece:
            sys.exit(0)
        line += piece
    Keeper(msgspec.json.decode(line, type=Setup), socket.socket(fileno=LISTENER), socket.socket(fileno=RANKER)).run()


if __name__ == "__main__":
    main()
