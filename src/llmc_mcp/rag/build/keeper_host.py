"""Which server runs the process that keeps an index: one among all that use the same root and data directory.

The process listens on a Unix socket in the folder of the index. A server connects to it; if nobody listens, it tries to
get the lease, and with the lease starts the process as its own child. So the process ends with that server, whatever
ends it, and the next server that asks takes over. Only a build that is under way is finished first, so that the next
one need not begin it again. The folder is the user's alone, both ends ask the kernel for the
user at the other end, and no command can reach the socket: its sandbox shows it no such folder or gives it no such
socket.
"""

import hashlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable

import msgspec

from ... import PACKAGE_HOME
from ...errors import FeatureUnavailable, LlmcError, ResourceBusy
from ...files.filesystem import Root
from ...files.ripgrep import find_ripgrep, needed_to_run
from ...kernel import confine, landlock, syscalls
from ...kernel.launcher import ConfinementError, Launcher, RunningChild
from ...session import Session
from ...store.leases import CRIT_DB, LeaseKey, Leases
from ...store.naming import place_of
from ..parse.grammars import CACHE, unpack
from ..store.layout import FORMAT, Home
from .messages import Setup, peer_uid
from .seed import seed
from .share import IndexShare

_LAST_WORDS = 2_000
_MEMORY = 4 << 30  # of the process and of each that it starts; workers have less
_BACKLOG = 64
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.2
_END_S = 2.0  # for the process to end by itself


class KeeperHost:
    """The indexing process of one root, wherever it runs; safe from any thread."""

    def __init__(
        self,
        launcher: Launcher,
        root: Root,
        data_dir: str,
        home: Home,
        setup: Setup,
        leases: Leases,
        share: IndexShare | None,
    ) -> None:
        self._launcher, self._root, self._data_dir, self._leases = launcher, root, data_dir, leases
        self._home, self._setup, self._share = home, setup, share
        kind = _kind(root, setup)
        self._requests, self._searches = f"keeper-{kind}", f"ranker-{kind}"
        # The index is in the data directory, and other machines that share the store have their own.
        self._key = LeaseKey(f"index:{place_of(data_dir)}:{root.shown}#{kind}")
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._failure: LlmcError | None = None
        self._child: RunningChild | None = None
        self._sharing: threading.Thread | None = None
        self._receiving = False
        self._lifeline = -1
        self._ended = ""
        self._closed = False

    def connect(self, who: Session, check: Callable[[], None]) -> socket.socket:
        """A connection to the process, which is started if it does not run anywhere."""
        give_up, pause = time.monotonic() + self._leases.ttl_s + _END_S, _FIRST_PAUSE_S
        while (line := self._call(self._requests)) is None:
            check()
            self._try_to_host(who)
            if self._receiving:
                give_up = time.monotonic() + self._leases.ttl_s + _END_S
            if time.monotonic() > give_up:
                raise ResourceBusy("another server has the code index, and does not answer", hint="Try again.")
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE_S)  # each try asks the store, which others use, too
        return line

    def connect_to_ranker(self) -> socket.socket | None:
        """A connection to the process that searches the index; None if there is none."""
        return self._call(self._searches)

    @property
    def problem(self) -> str:
        """Why the index is not shared with servers that have other data directories; empty if it is, or need not be."""
        return self._share.problem if self._share is not None else ""

    def why_ended(self) -> str:
        """Why the process failed that this server ran, if it did; waits a moment for its end. Empty otherwise."""
        thread = self._thread
        if thread is not None:
            thread.join(_END_S)
        with self._lock:
            why, self._ended = self._ended, ""
            return why

    def kill(self) -> None:
        """End the process if it is this server's."""
        with self._lock:
            if self._child is not None:
                self._launcher.signal(self._child, signal.SIGKILL)

    def close(self, *, finishes: bool = False) -> None:
        """End the process if it is this server's, and start none any more; one that `finishes` a build goes on."""
        with self._lock:
            self._closed = True
            self._hang_up()
            thread, sharing = self._thread, self._sharing
        if self._share is not None and sharing is not None:
            self._share.stop()
            sharing.join(_END_S)
        if thread is not None and not finishes:
            thread.join(_END_S)
            if thread.is_alive():
                self.kill()
                thread.join(_END_S)

    # --- the socket ------------------------------------------------------------------------------

    def _call(self, name: str) -> socket.socket | None:
        """A connection to a socket in the folder of the index; None if nobody listens."""
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            folder = os.open(self._home.folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                line.connect(_at(folder, name))
            finally:
                os.close(folder)
            if peer_uid(line) == os.geteuid():
                return line
        except OSError:
            pass
        line.close()
        return None

    def _listen(self, name: str) -> socket.socket:
        """A socket that the process will accept connections on, in the place of one that is left over."""
        folder = os.open(self._home.folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        fresh = f"{name}.{os.getpid()}"
        try:
            listener.bind(_at(folder, fresh))
            os.chmod(fresh, 0o600, dir_fd=folder)
            listener.listen(_BACKLOG)
            os.rename(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            listener.close()
            raise
        finally:
            os.close(folder)
        return listener

    # --- the process -----------------------------------------------------------------------------

    def _try_to_host(self, who: Session) -> None:
        """Start the process unless another server has the lease; raises what prevented the last try."""
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                return
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            if self._closed:
                raise FeatureUnavailable("the server is closing")
            self._thread = threading.Thread(target=self._host, args=(who,), name="index-host", daemon=True)
            self._thread.start()

    def _host(self, who: Session) -> None:
        """Hold the lease for as long as the process runs."""
        try:
            with self._leases.held(CRIT_DB, [self._key], who, wait_s=0.0, check=lambda: None) as tokens:
                child = self._start(tokens)
                every = self._leases.ttl_s / 3
                while (code := self._launcher.wait(child, every)) is None:
                    if not self._renewed(tokens):
                        self.kill()
                    self._offer()
                with self._lock:
                    self._child = None
                    self._hang_up()
                    if code and not self._closed:
                        self._ended = f"the indexing process ended (exit {code}): {self._last_words()}"
        except ResourceBusy:
            pass  # another server has it
        except LlmcError as exc:
            self._failure = exc
        except Exception as exc:  # noqa: BLE001 - whatever it is, a caller waits for the process
            self._failure = FeatureUnavailable(f"{type(exc).__name__}: {exc}"[:300])

    def _renewed(self, tokens: list[int]) -> bool:
        """Whether the lease is still ours; another server takes it if this one is stopped for too long."""
        try:
            return self._leases.renew(tokens)
        except LlmcError:
            return True  # the store is busy or full: until it expires, nobody else can have it

    def _offer(self) -> None:
        """Have other servers begin with this index, in a thread of its own."""
        if self._share is None or not self._share.is_due() or (self._sharing is not None and self._sharing.is_alive()):
            return
        with self._lock:
            if not self._closed:
                self._sharing = threading.Thread(target=self._share.offer, name="index-share", daemon=True)
                self._sharing.start()

    def _start(self, tokens: list[int]) -> RunningChild:
        grammars = self._prepared(tokens)
        opened = self._open(grammars)
        root, in_read, in_write, nothing, log, ruleset, searches, requests = opened
        try:
            with self._lock:
                if self._closed:
                    raise FeatureUnavailable("the server is closing")
                self._child = child = self._launcher.start(
                    confine.command("llmc_mcp.rag.build.keeper"),
                    {os.fsencode(CACHE): grammars},
                    [root, in_read, nothing, log, ruleset, requests, searches],
                    {**confine.plan(4, memory=_MEMORY, inotify=True), "keep": [5, 6], "outlives": True},
                )
                self._lifeline = in_write
                opened.remove(in_write)
        except OSError as exc:
            reason = "it could not be confined" if isinstance(exc, ConfinementError) else exc.strerror
            raise FeatureUnavailable(f"the indexing process did not start: {reason}") from None
        finally:
            _close(opened[1:])
        try:
            # The process imports what it needs meanwhile, and looks at nothing before it has its setup.
            if self._share is None and self._home.current() is None and self._home.seed() is None:
                seed(self._home, self._root.fd, self._setup.kind())
            os.write(in_write, msgspec.json.encode(self._setup) + b"\n")
        except BrokenPipeError:
            pass  # it has ended: whoever waits for it is told
        except BaseException:
            with self._lock:
                self._hang_up()
            raise
        return child

    def _open(self, grammars: bytes) -> list[int]:
        """What the process is given: root, both ends of its stdin, stdout, log, Landlock rules, both sockets."""
        opened = [self._root.fd]
        try:
            opened += os.pipe2(os.O_CLOEXEC)
            opened.append(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC))
            log = os.path.join(self._home.folder, "log")
            opened.append(os.open(log, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
            opened.append(self._confinement(grammars))
            opened.append(self._listen(self._searches).detach())  # first: who finds the other one needs both
            opened.append(self._listen(self._requests).detach())
        except OSError as exc:
            _close(opened[1:])
            raise self._unavailable(exc) from None
        except BaseException:
            _close(opened[1:])
            raise
        return opened

    def _prepared(self, tokens: list[int]) -> bytes:
        """Make the folder of the index and unpack the grammars; returns their folder. Slow the first time."""
        try:
            self._home.prepare(self._root.shown)
            if self._share is not None and self._home.current() is None:
                self._find_beginning(tokens, self._share)
            return os.fsencode(unpack(self._data_dir))
        except OSError as exc:
            raise self._unavailable(exc) from None

    def _find_beginning(self, tokens: list[int], share: IndexShare) -> None:
        """Have the index begin with another one: that of a sibling here, else that of another server."""
        share.forget_failed()
        if self._home.seed() is not None or seed(self._home, self._root.fd, self._setup.kind()):
            return
        renewed = time.monotonic()

        def tick() -> None:
            nonlocal renewed
            if self._closed:
                raise FeatureUnavailable("the server is closing")
            if time.monotonic() - renewed > self._leases.ttl_s / 3:
                if not self._renewed(tokens):
                    raise ResourceBusy("another server has taken the code index over")
                renewed = time.monotonic()

        self._receiving = True
        try:
            share.receive(tick)
        finally:
            self._receiving = False

    def _confinement(self, grammars: bytes) -> int:
        """Read the root, write the index, run Python and ripgrep: nothing else."""
        if syscalls.landlock_abi() == 0:
            raise FeatureUnavailable(
                "the code index needs Landlock, which this kernel lacks or has switched off",
                hint="Linux 5.13+ with landlock in the lsm= list; linux_fs_list and read_file work without.",
            )
        allowed = [(os.fsencode(self._home.folder), syscalls.EVERYTHING), *confine.needed(grammars)]
        return landlock.ruleset([*allowed, *needed_to_run(find_ripgrep())], [(self._root.fd, syscalls.READ_ONLY, True)])

    def _unavailable(self, exc: OSError) -> FeatureUnavailable:
        return FeatureUnavailable(
            f"the code index can't be kept in {self._home.folder}: {exc.strerror}",
            hint="Make it writable, or set LLMC_DATA_DIR to another folder.",
        )

    def _hang_up(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def _last_words(self) -> str:
        try:
            with open(os.path.join(self._home.folder, "log"), encoding="utf-8", errors="replace") as log:
                return log.read()[-_LAST_WORDS:].strip().rpartition("\n")[2]
        except OSError:
            return ""


def _kind(root: Root, setup: Setup) -> str:
    """What servers must have in common to share a process.

    With other rules, or as another version, they would index other things. Another user can't talk to it. And in two
    containers, two folders may have one path.
    """
    place = os.stat(root.fd)
    rules = msgspec.structs.replace(setup, idle_s=0.0)
    same = msgspec.json.encode([rules, FORMAT, PACKAGE_HOME, os.geteuid(), place.st_dev, place.st_ino])
    return hashlib.sha256(same).hexdigest()[:12]


def _at(folder: int, name: str) -> str:
    """The path of a socket in an open folder: the kernel takes 107 bytes, and a data directory may lie deep."""
    return f"/proc/self/fd/{folder}/{name}"


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)
