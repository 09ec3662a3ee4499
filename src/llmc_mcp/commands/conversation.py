"""A program on a terminal: type input, collect output, and detect when the program waits for input.

The kernel's echo is off, so typed input does not come back; a program that edits and echoes its own line is detected
by trying once. A line longer than the terminal's line buffer is typed with line mode off, except for its end: a program
that began to wait while line mode was off would never see an end of input (the kernel returns at least one byte), so
the end of the line goes through the line buffer again.
"""

import os
import re
import select
import signal
import termios
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from ..changes.commands import CommandChanges
from ..errors import ProcessNotFound, ResourceBusy
from ..kernel.launcher import Launcher, RunningChild
from ..visible import visible
from .input_wait import BlockedThread, Terminal, blocked_reader, ignores, is_python_prompt
from .terminal import Screen, keystrokes, python_block

_KEPT_BYTES = 256 << 10  # of unread output
_TAIL_BYTES = 16 << 10  # of output, read or not, for a person who looks on
_TYPED_AHEAD_BYTES = 1 << 20  # of input that the program has not read yet
_LINE_BYTES = 4_000  # the kernel's line buffer holds 4,095
_LINE_END_BYTES = 1_000  # the end of a longer line, typed in line mode
_INTERRUPTS = (b"\x03", b"\x1a", b"\x1c")  # discard input that is typed ahead, as the kernel does
_STABLE_S = 0.003  # a program blocked for this long without printing waits for input
_IDLE_S = 0.15  # the same for a sleeping one whose system call the kernel does not show
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.025
_LATE_LOOKS = 8  # after time is up, at a program that may have just begun to wait
_TERMINAL_S = 5.0  # how long the sandbox may take to give a program its terminal
_ECHO_S = 0.1  # how long a program may take to echo
_LONG_LINE_S = 5.0  # how long a program may take to read what precedes a long line
_LINE_END_S = 0.25  # how long to wait until the end of a long line can be typed
_CHECK_S = 0.05
_READ = 1 << 16
_EXIT_S = 1.0  # how long the last output and the exit code of an ended program may take
_LAST_LINE_BYTES, _LAST_LINE_SHOWN = 400, 120
_PYTHON_PROMPT = re.compile(r"(?:>>> |\.\.\. )")

Check = Callable[[], None]


class Turn(NamedTuple):
    """What a program printed since the last turn, and its state."""

    output: str
    exit_code: int | None
    waiting: str  # the system call in which it waits for input, or "idle"; empty when it does not wait
    warnings: tuple[str, ...] = ()
    changes: CommandChanges = CommandChanges()

    @property
    def state(self) -> str:
        return "running" if self.exit_code is None else "exited"


class StreamsTurn(NamedTuple):
    """What a program printed since the last turn, by stream."""

    stdout: str
    stderr: str
    exit_code: int | None
    waiting: str
    warnings: tuple[str, ...] = ()
    changes: CommandChanges = CommandChanges()


def last_line(data: bytes | bytearray) -> str:
    """The last line of some output that says anything, short enough to be shown by the way."""
    line = data[-_LAST_LINE_BYTES:].rstrip().rpartition(b"\n")[2].rpartition(b"\r")[2]
    return visible(line.decode("utf-8", "replace").strip())[:_LAST_LINE_SHOWN]


def open_terminal(columns: int, rows: int) -> Terminal:
    """Open a terminal that neither echoes nor changes output."""
    master, slave = os.openpty()
    mode = termios.tcgetattr(slave)
    mode[0] |= getattr(termios, "IUTF8", 0o40000)
    mode[1] &= ~termios.OPOST
    mode[3] &= ~(termios.ECHO | termios.ECHONL)
    termios.tcsetattr(slave, termios.TCSANOW, mode)
    termios.tcsetwinsize(slave, (rows, columns))
    os.set_blocking(master, False)
    return Terminal(master, slave)


class Conversation:
    """One program; thread-safe. The pump calls `readable`, `writable` and `ended`."""

    def __init__(
        self,
        launcher: Launcher,
        child: RunningChild,
        terminal: Terminal,
        ended_fd: int,
        request_write: "Callable[[Conversation], None]",
    ) -> None:
        self._launcher, self._child, self._terminal, self._request_write = launcher, child, terminal, request_write
        self.master, self.ended_fd = terminal.master, ended_fd
        self.outputs: tuple[int, ...] = (terminal.master,)
        self._closed_outputs: set[int] = set()
        self.exit_code: int | None = None
        self._news = threading.Condition()
        self._typing = threading.Lock()  # one input at a time
        self._screen = Screen()
        self._output, self._tail = bytearray(), bytearray()
        self._dropped = self._total = 0
        self._unwritten = bytearray()
        self._echoes: dict[int, bool] = {}  # by foreground process group: whether it echoes
        self._prompts = 0  # to strip: Python prints one for each line that was typed at once
        self._line_mode: list[int | list[bytes | int]] | None = None  # to restore before the end of a long line
        self._after_long_line: list[bytes] = []  # typed once that mode is restored

    # --- for the pump ----------------------------------------------------------------------------

    def readable(self, fd: int) -> int:
        del fd  # there is no other
        with self._news:  # no output may be in transit while another thread looks whether the program waits
            try:
                data = os.read(self.master, _READ) if self.exit_code is None else b""
            except OSError:
                data = b""
            self._keep(data)
            if self.exit_code is None:
                self._restore_line_mode()
            return len(data)

    def _keep(self, data: bytes) -> None:
        with self._news:
            self._output += data
            self._tail = (self._tail + data)[-_TAIL_BYTES:]
            self._total += len(data)
            if (over := len(self._output) - _KEPT_BYTES) > 0:
                del self._output[:over]
                self._dropped += over
            self._news.notify_all()

    @property
    def printed(self) -> int:
        """How many bytes it has printed so far."""
        return self._total

    def remember(self, printed: str) -> None:
        """What it printed before this conversation began, for `tail`."""
        with self._news:
            self._tail = (bytearray(printed.encode("utf-8", "replace")) + self._tail)[-_TAIL_BYTES:]

    def tail(self) -> str:
        """The end of what it printed; reading it here leaves it unread for its owner."""
        with self._news:
            return self._tail.decode("utf-8", "replace")

    def writable(self) -> bool:
        with self._news:
            self._write_pending()
            return bool(self._unwritten)

    def ended(self) -> None:
        """Handle the end of the program and all it started: read what is left and collect the exit code."""
        with self._news:
            os.close(self._terminal.slave)  # so that the end of the output is distinguishable from a pause
            _read_to_the_end(self.master, self._keep)
            os.close(self.master)
            os.close(self.ended_fd)
            code = self._launcher.wait(self._child, _EXIT_S)
            code = -signal.SIGKILL if code is None else code
            self.exit_code = 128 - code if code < 0 else code
            self._news.notify_all()

    def abandon(self) -> None:
        """Close the terminal as the server shuts down; the launcher ends the program."""
        with self._news:
            if self.exit_code is None:
                for fd in (self._terminal.slave, self.master, self.ended_fd):
                    os.close(fd)
                self.exit_code = 128 + signal.SIGKILL
                self._news.notify_all()

    # --- reading ---------------------------------------------------------------------------------

    def await_terminal(self, check: Check) -> None:
        """Wait until the program has its terminal, and with it a pid; building its sandbox is not its own time."""
        until, pause = time.monotonic() + _TERMINAL_S, _FIRST_PAUSE_S
        while self.exit_code is None and not self.pid and time.monotonic() < until:
            check()
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE_S)

    def turn(self, seconds: float, check: Check, *, for_output: bool) -> Turn:
        """Wait until the program ends or waits for input, or time is up; return what it printed.

        With `for_output`, keep waiting while it waits for input and has printed nothing new: it may print on its own.
        """
        waiting = self._wait(seconds, check, for_output=for_output)
        with self._news:
            return Turn(self._take(), self.exit_code, waiting)

    def streams(self, seconds: float, check: Check) -> StreamsTurn:
        """Like `turn`, with what went to stderr by itself; a terminal has but one stream."""
        waiting = self._wait(seconds, check, for_output=False)
        with self._news:
            return StreamsTurn(self._take(), "", self.exit_code, waiting)

    def _wait(self, seconds: float, check: Check, *, for_output: bool) -> str:
        until = time.monotonic() + seconds
        if for_output:
            self._await(self._has_news, until, check)
        return self._settle(max(until, time.monotonic() + _STABLE_S * 3), check)

    def _has_news(self) -> bool:
        """Whether it printed something or ended; a silent program may still need the end of a long line."""
        if self.exit_code is None:
            self._restore_line_mode()
        return bool(self._output) or self.exit_code is not None

    def last_line(self) -> str:
        """Return the last line of the output that was not read yet."""
        with self._news:
            return last_line(self._output[-_LAST_LINE_BYTES:])

    def left(self) -> str:
        """Return the output that was not read yet."""
        with self._news:
            return self._take()

    def ends_within(self, seconds: float, check: Check) -> bool:
        """Wait for the program to end; return whether it does in time."""
        return self._await(lambda: self.exit_code is not None, time.monotonic() + seconds, check)

    def signal(self, number: int) -> bool:
        """Signal the program and all it started; return whether the program itself does not ignore the signal."""
        heeds = not ignores(self.pid, number)
        self._launcher.signal(self._child, number)
        return heeds

    @property
    def pid(self) -> int:
        """The pid of the program; 0 until it has its terminal, and after it has ended."""
        with self._news:
            return self._terminal.leader() if self.exit_code is None else 0

    def _take(self) -> str:
        data, dropped = bytes(self._output), self._dropped
        self._output.clear()
        self._dropped = 0
        note = ""
        if dropped:
            self._screen.lost()
            note = f"… [{dropped:,} bytes dropped] …\n"
            data = data[data.find(b"\n") + 1 :]  # resume at a line, not inside a character or a sequence
        text = self._screen.take(data, final=self.exit_code is not None)
        return note + self._without_prompts(text)

    def _without_prompts(self, text: str) -> str:
        """Strip the prompts for lines that were already typed; keep the last one, which no text follows."""
        at = 0
        while text and self._prompts and (prompt := _PYTHON_PROMPT.match(text, at)) and prompt.end() < len(text):
            at = prompt.end()
            self._prompts -= 1
        if text:
            self._prompts = 0
        return text[at:]

    def _await(self, condition: Callable[[], bool], until: float, check: Check) -> bool:
        while True:
            check()
            left = until - time.monotonic()
            with self._news:
                if self._news.wait_for(condition, max(min(left, _CHECK_S), 0.0)):
                    return True
            if left <= 0:
                return False

    # --- detecting that it waits -----------------------------------------------------------------

    def _settle(self, until: float, check: Check) -> str:
        """Wait until the program waits for input; return how that is known, or nothing if it ended or time is up.

        Where the machine is busy, time may be up after one look: what that has seen is not left undecided.
        """
        blocked: BlockedThread | None = None
        since, total, pause, late_looks = time.monotonic(), -1, _FIRST_PAUSE_S, _LATE_LOOKS
        while self.exit_code is None:
            check()
            now_blocked, now_total = self._look()
            now, printed = time.monotonic(), now_total != total
            if now_blocked != blocked or printed:
                blocked, total, since = now_blocked, now_total, now
            elif blocked is not None and now - since >= (_IDLE_S if blocked.how == "idle" else _STABLE_S):
                return blocked.how
            if now < until:
                time.sleep(min(pause, until - now))
                pause = _FIRST_PAUSE_S if blocked is not None else min(pause * 1.5, _LONGEST_PAUSE_S)
            elif late_looks and (blocked is not None or printed):
                late_looks -= 1
                time.sleep(_FIRST_PAUSE_S)
            else:
                break
        return ""

    def _look(self) -> tuple[BlockedThread | None, int]:
        """Return the thread that waits for input and the bytes printed so far; no thread while data is in transit."""
        with self._news:
            if self.exit_code is not None:
                return None, self._total
            self._restore_line_mode()
            if self._unwritten or self._after_long_line or readable(self._terminal.slave):
                return None, self._total
            thread = self._blocked()
            if self._reads_in_transit():
                thread = None
            return thread, self._total

    def _reads_in_transit(self) -> bool:
        """Read output that the pump has not come to yet; return whether there was any."""
        waiting = [fd for fd in self.outputs if fd not in self._closed_outputs and readable(fd)]
        return sum(max(self.readable(fd), 0) for fd in waiting) > 0

    def _blocked(self) -> BlockedThread | None:
        return blocked_reader(self._terminal, self._child.pid)

    # --- typing ----------------------------------------------------------------------------------

    def send(self, text: str, check: Check) -> None:
        """Type a line, several lines, or a control character."""
        with self._typing:
            typed = keystrokes(text)
            if self._begin() and typed.endswith("\n"):
                typed = python_block(typed)
                self._prompts = typed.count("\n") - 1
            pieces = _pieces(typed.encode("utf-8", "replace"))
            for number, piece in enumerate(pieces):
                if number and len(piece) > _LINE_BYTES:  # its mode can only be set once the input before it is read
                    self._settle(time.monotonic() + _LONG_LINE_S, check)
                self._type_lines(piece, check)
            self._finish_long_line(check)

    def _finish_long_line(self, check: Check) -> None:
        """Give a waiting program the moment it needs to read a long line; a busy one gets the end later."""
        until = time.monotonic() + _LINE_END_S
        while time.monotonic() < until and self.exit_code is None and self._after_long_line:
            check()
            self._look()
            time.sleep(_FIRST_PAUSE_S)

    def _type_lines(self, piece: bytes, check: Check) -> None:
        lines = piece.splitlines(keepends=True)
        while lines and lines[0].endswith(b"\n") and self._may_echo():
            line = lines.pop(0)
            self._type_and_swallow_echo(line[:-1], check)
            self._type(b"\n")
            if lines:
                self._settle(time.monotonic() + _ECHO_S, check)
        if lines:
            self._type(b"".join(lines))

    def _begin(self) -> bool:
        """Switch the echo off, whatever switched it on; return whether Python's interactive mode will read."""
        with self._news:
            if self.exit_code is not None:
                raise ProcessNotFound(
                    f"the process has ended with exit code {self.exit_code}",
                    hint="linux_proc_read returns its last output.",
                )
            self._restore_line_mode()
            mode = termios.tcgetattr(self._terminal.slave)
            if mode[3] & termios.ICANON and mode[3] & termios.ECHO:
                mode[3] &= ~termios.ECHO
                termios.tcsetattr(self._terminal.slave, termios.TCSANOW, mode)
            return is_python_prompt(self._terminal.foreground())

    def _type(self, data: bytes) -> None:
        with self._news:
            if self.exit_code is not None:
                return
            ahead = len(self._unwritten) + sum(map(len, self._after_long_line))
            if ahead + len(data) > _TYPED_AHEAD_BYTES:
                raise ResourceBusy(
                    "the program does not take its input", hint="Read its output, or interrupt it with ^C."
                )
            if data in _INTERRUPTS:
                self._after_long_line.clear()
            elif self._line_mode is not None or self._after_long_line or self._must_wait(data):
                self._after_long_line.append(data)
                return
            elif len(data) > _LINE_BYTES and self._suspend_line_mode():
                self._after_long_line.append(data[-_LINE_END_BYTES:])
                data = data[:-_LINE_END_BYTES]
            self._unwritten += data
            self._write_pending()
            if self._unwritten:
                self._request_write(self)

    def _write_pending(self) -> None:
        if self.exit_code is not None:
            self._unwritten.clear()
        try:
            while self._unwritten:
                del self._unwritten[: os.write(self.master, self._unwritten[:_LINE_BYTES])]
        except BlockingIOError:
            pass  # the terminal is full: the pump continues when the program has read some
        except OSError:
            self._unwritten.clear()

    def _suspend_line_mode(self) -> bool:
        """Switch line mode off, so that the kernel's line buffer does not cut the line.

        Return False if the program has switched it off itself.
        """
        mode = termios.tcgetattr(self._terminal.slave)
        if not mode[3] & termios.ICANON:
            return False
        self._line_mode = mode
        raw = [*mode[:3], mode[3] & ~termios.ICANON, *mode[4:6], list(mode[6])]
        raw[6][termios.VMIN], raw[6][termios.VTIME] = b"\1", b"\0"
        termios.tcsetattr(self._terminal.slave, termios.TCSANOW, raw)
        return True

    def _restore_line_mode(self) -> None:
        """Once all but the end of a long line is read, restore line mode and type what had to wait for it.

        The mode stays if the program has set one of its own since.
        """
        if (self._line_mode is None and not self._after_long_line) or not self._all_read():
            return
        if self._line_mode is not None:
            mode = termios.tcgetattr(self._terminal.slave)
            if mode[3] == int(str(self._line_mode[3])) & ~termios.ICANON:
                termios.tcsetattr(self._terminal.slave, termios.TCSANOW, self._line_mode)
            self._line_mode = None
        queue, self._after_long_line = self._after_long_line, []
        while queue and self._line_mode is None and not self._must_wait(queue[0]):
            self._type(queue.pop(0))
        self._after_long_line += queue

    def _must_wait(self, data: bytes) -> bool:
        """Whether a long line comes too early: its mode would corrupt input that is yet to be read in line mode."""
        return len(data) > _LINE_BYTES and not self._all_read()

    def _all_read(self) -> bool:
        return not self._unwritten and not readable(self._terminal.slave)

    # --- programs that echo ----------------------------------------------------------------------

    def _may_echo(self) -> bool:
        """Whether the foreground reads keys rather than lines, and has not been seen not to echo."""
        with self._news:
            if self.exit_code is not None or termios.tcgetattr(self._terminal.slave)[3] & termios.ICANON:
                return False
            return self._echoes.get(self._terminal.foreground(), True)

    def _type_and_swallow_echo(self, data: bytes, check: Check) -> None:
        """Type a line without its newline, and drop the output if it is an echo."""
        with self._news:
            group, seen = self._terminal.foreground(), len(self._output)
        self._type(data)
        waits = self._settle(time.monotonic() + _ECHO_S, check)
        with self._news:
            printed = Screen().take(bytes(self._output[seen:]), final=True).strip()
            typed = data.decode("utf-8", "replace").strip()
            echoed = bool(typed) and printed.endswith(typed)
            if typed and (echoed or waits):  # one that is not done with the line may yet echo it
                self._echoes[group] = echoed
            if echoed:
                del self._output[seen:]


def _pieces(typed: bytes) -> list[bytes]:
    """Split input into long lines, each by itself, and groups of short lines."""
    pieces: list[bytes] = []
    for line in typed.splitlines(keepends=True):
        if pieces and len(line) <= _LINE_BYTES and len(pieces[-1]) + len(line) <= _LINE_BYTES:
            pieces[-1] += line
        else:
            pieces.append(line)
    return pieces


def _read_to_the_end(master: int, keep: Callable[[bytes], None]) -> None:
    poll = select.poll()
    poll.register(master, select.POLLIN)
    try:
        while poll.poll(_EXIT_S * 1000):  # a process outside the tree may have been passed the other end
            keep(os.read(master, _READ))
    except OSError:
        pass  # EIO: all is read, and no process holds the other end


def readable(fd: int) -> bool:
    """Whether there is data to read at this end of a terminal.

    Between the two ends the kernel buffers bytes and flushes them asynchronously; polling makes it flush. If the
    result is False, everything that was written to the other end has been read.
    """
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))
