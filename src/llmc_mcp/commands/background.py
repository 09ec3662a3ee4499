"""A command that outlived its call: its output is collected in the background, its end is noticed, input is typed.

Its stdout and stderr stay apart, as they were during the call. Its input is a terminal where the caller wanted to type
(a program that would take a pipe for its data, as ripgrep does, does not take a terminal for it); otherwise its input
has ended before it began.
"""

import codecs
import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable

from ..errors import BadArgs
from ..kernel.child import ERR, OUT, ReleasedChild
from ..kernel.launcher import Launcher
from .conversation import Check, Conversation, StreamsTurn
from .input_wait import BlockedThread, Terminal, blocked_reader
from .terminal import keystrokes

_READ = 1 << 16
_LAST_OUTPUT_S = 1.0  # how long the last output of an ended command may take
_WRAPPER = "bwrap"


class BackgroundCommand(Conversation):
    """A command on pipes, with the interface of a program on a terminal."""

    def __init__(
        self,
        launcher: Launcher,
        released: ReleasedChild,
        terminal: Terminal,
        ended_fd: int,
        request_write: Callable[[Conversation], None],
        *,
        takes_input: bool,
    ) -> None:
        super().__init__(launcher, released.child, terminal, ended_fd, request_write)
        self._streams = {released.out: OUT, released.err: ERR}
        self.outputs = (self.master, released.out, released.err)
        for fd in self._streams:
            os.set_blocking(fd, False)
        self._status, self._takes_input = released.status, takes_input
        self._runs: deque[tuple[str, int]] = deque()  # which stream the unread bytes are of, in their order
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in (OUT, ERR)}

    # --- for the pump ----------------------------------------------------------------------------

    def readable(self, fd: int) -> int:
        if fd not in self._streams:
            return super().readable(fd)
        with self._news:
            try:
                data = os.read(fd, _READ) if self.exit_code is None else b""
            except BlockingIOError:  # another thread was faster
                return 0
            self._keep_of(self._streams[fd], data)
            if not data:
                self._closed_outputs.add(fd)
            return len(data) or -1

    def _keep(self, data: bytes) -> None:
        self._keep_of(OUT, data)  # written to its input, which is a terminal

    def _keep_of(self, stream: str, data: bytes) -> None:
        super()._keep(data)
        if data and self._runs and self._runs[-1][0] == stream:
            data_before = self._runs.pop()[1]
            self._runs.append((stream, data_before + len(data)))
        elif data:
            self._runs.append((stream, len(data)))
        over = sum(size for _, size in self._runs) - len(self._output)
        while over > 0:
            stream, size = self._runs.popleft()
            if size > over:
                self._runs.appendleft((stream, size - over))
            over -= size

    def ended(self) -> None:
        with self._news:
            self._read_to_the_end()
            for fd in self._streams:
                os.close(fd)
            if self._status is not None:
                self._status.close()
            super().ended()

    def _read_to_the_end(self) -> None:
        poll = select.poll()
        for fd in self._streams:
            poll.register(fd, select.POLLIN)
        open_fds, until = set(self._streams), time.monotonic() + _LAST_OUTPUT_S
        while open_fds and time.monotonic() < until:
            for fd, _ in poll.poll(_LAST_OUTPUT_S * 1000):
                data = os.read(fd, _READ)  # nobody else reads: the lock is held
                self._keep_of(self._streams[fd], data)
                if not data:
                    poll.unregister(fd)
                    open_fds.discard(fd)

    def abandon(self) -> None:
        with self._news:
            if self.exit_code is None:
                for fd in self._streams:
                    os.close(fd)
                if self._status is not None:
                    self._status.close()
            super().abandon()

    # --- reading and typing ----------------------------------------------------------------------

    def streams(self, seconds: float, check: Check) -> StreamsTurn:
        waiting = self._wait(seconds, check, for_output=False)
        with self._news:
            texts = self._texts()
            note = f"… [{self._dropped:,} bytes dropped] …\n" if self._dropped else ""
            self._forget_output()
            return StreamsTurn(note + texts[OUT], texts[ERR], self.exit_code, waiting)

    def _texts(self) -> dict[str, str]:
        parts: dict[str, list[bytes]] = {OUT: [], ERR: []}
        at = 0
        for stream, size in self._runs:
            parts[stream].append(bytes(self._output[at : at + size]))
            at += size
        final = self.exit_code is not None
        return {name: self._decoders[name].decode(b"".join(pieces), final) for name, pieces in parts.items()}

    def _take(self) -> str:
        self._runs.clear()
        return super()._take()

    def _forget_output(self) -> None:
        self._runs.clear()
        self._output.clear()
        self._dropped = 0

    def _settle(self, until: float, check: Check) -> str:
        if self._takes_input:
            return super()._settle(until, check)
        self._await(lambda: self.exit_code is not None, until, check)
        return ""

    def _blocked(self) -> BlockedThread | None:
        return blocked_reader(self._terminal, self._child.pid, shared=True)

    def send(self, text: str, check: Check) -> None:
        if keystrokes(text) == "\x03":  # the terminal is in nobody's foreground, so its own ^C would reach nobody
            self.signal(signal.SIGINT)
            return
        if self.exit_code is None and not self._takes_input:
            raise BadArgs(
                "the command takes no input: it was started without any",
                hint="Start it again with yield_after, which keeps its input open, or by linux_proc_start.",
            )
        super().send(text, check)

    @property
    def pid(self) -> int:
        """The pid of the command, as far as it can be told from what wraps it; 0 once it has ended."""
        if self.exit_code is not None:
            return 0
        pid = self._child.pid
        while below := _children(pid):
            pid = below[0]
            if _name_of(pid) != _WRAPPER:
                break
        return pid


def _children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def _name_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""
