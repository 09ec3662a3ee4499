"""A program on a terminal: typing to it, collecting what it prints, and telling when it is the user's turn.

The kernel's echo is off, so what was typed does not come back; a program that edits its own line and echoes is
noticed by trying, once. A line longer than the terminal's line buffer is typed with that buffer switched off, all but
its end: a program that began to wait while the buffer was off would never be told of an end of input (the kernel
hands it no less than one byte), so that what it waits for last has to come through the buffer again.
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

from ..errors import ProcessNotFound, ResourceBusy
from ..kernel.launcher import Launcher, RunningChild
from .input_wait import BlockedThread, Terminal, blocked_reader, ignores, is_python_prompt
from .terminal import Screen, keystrokes, python_block

_KEPT_BYTES = 256 << 10  # of output that nobody has read
_TYPED_AHEAD_BYTES = 1 << 20  # that a program has not taken yet
_LINE_BYTES = 4_000  # the kernel edits lines of up to 4,095
_LINE_END_BYTES = 1_000  # of a longer one that are typed in line mode
_INTERRUPTS = (b"\x03", b"\x1a", b"\x1c")  # drop what is typed ahead, as the kernel does
_STABLE_S = 0.003  # blocked for this long, and nothing printed: it waits
_IDLE_S = 0.15  # asleep for this long, where the kernel does not tell what for
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.025
_ECHO_S = 0.1  # how long a program may take to echo
_TAKES_LINE_S = 5.0  # how long a program may take to come back for a long line
_TAKES_END_S = 0.25  # how long it is waited for so that the end of a long line can be typed
_CHECK_S = 0.05
_READ = 1 << 16
_TOLD_S = 1.0  # how long the last words and the exit code of an ended program may take
_PYTHON_PROMPT = re.compile(r"(?:>>> |\.\.\. )")

Check = Callable[[], None]


class Turn(NamedTuple):
    """What a program printed since the last time, and where it stands."""

    output: str
    exit_code: int | None
    waiting: str  # the call in which it waits for input; empty when it does not
    warnings: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        return "running" if self.exit_code is None else "exited"


def open_terminal(columns: int, rows: int) -> Terminal:
    """A terminal that does not echo and leaves output as it is."""
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
    """One program; safe from any thread. The pump calls `readable`, `writable` and `ended`."""

    def __init__(
        self,
        launcher: Launcher,
        child: RunningChild,
        terminal: Terminal,
        ended_fd: int,
        type_on: "Callable[[Conversation], None]",
    ) -> None:
        self._launcher, self._child, self._terminal, self._type_on = launcher, child, terminal, type_on
        self.master, self.ended_fd = terminal.master, ended_fd
        self.exit_code: int | None = None
        self._news = threading.Condition()
        self._typing = threading.Lock()  # one input at a time
        self._screen = Screen()
        self._output = bytearray()
        self._dropped = self._total = 0
        self._unwritten = bytearray()
        self._echoes: dict[int, bool] = {}  # by foreground process: whether it echoes
        self._prompts = 0  # of lines that were typed at once: Python prints one for each
        self._line_mode: list[int | list[bytes | int]] | None = None  # to put back before the end of a long line
        self._after_long_line: list[bytes] = []  # typed once that mode is back

    # --- for the pump ----------------------------------------------------------------------------

    def readable(self) -> int:
        with self._news:  # nothing may be on its way from the terminal to us while somebody looks whose turn it is
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
            self._total += len(data)
            if (over := len(self._output) - _KEPT_BYTES) > 0:
                del self._output[:over]
                self._dropped += over
            self._news.notify_all()

    def writable(self) -> bool:
        with self._news:
            self._write_on()
            return bool(self._unwritten)

    def ended(self) -> None:
        """The program and all it started are gone: read what is left and take its exit code."""
        with self._news:
            os.close(self._terminal.slave)  # so that the end of the output can be told from a pause
            _read_to_the_end(self.master, self._keep)
            os.close(self.master)
            os.close(self.ended_fd)
            code = self._launcher.wait(self._child, _TOLD_S)
            code = -signal.SIGKILL if code is None else code
            self.exit_code = 128 - code if code < 0 else code
            self._news.notify_all()

    def abandon(self) -> None:
        """The server closes; its launcher ends the program."""
        with self._news:
            if self.exit_code is None:
                for fd in (self._terminal.slave, self.master, self.ended_fd):
                    os.close(fd)
                self.exit_code = 128 + signal.SIGKILL
                self._news.notify_all()

    # --- reading ---------------------------------------------------------------------------------

    def turn(self, seconds: float, check: Check, *, for_output: bool) -> Turn:
        """Wait until the program has ended or waits for input, or time is up; take what it printed.

        With `for_output` a program that waits and has printed nothing new is waited for: it may print by itself.
        """
        until = time.monotonic() + seconds
        if for_output:
            self._await(self._has_news, until, check)
        waiting = self._settle(max(until, time.monotonic() + _STABLE_S * 3), check)
        with self._news:
            return Turn(self._take(), self.exit_code, waiting)

    def _has_news(self) -> bool:
        """Whether it printed something or ended; a program that is silent may still be due the end of a long line."""
        if self.exit_code is None:
            self._restore_line_mode()
        return bool(self._output) or self.exit_code is not None

    def left(self) -> str:
        """What was printed and not read yet."""
        with self._news:
            return self._take()

    def ends_within(self, seconds: float, check: Check) -> bool:
        """Whether the program ends in time."""
        return self._await(lambda: self.exit_code is not None, time.monotonic() + seconds, check)

    def signal(self, number: int) -> bool:
        """To the program and all it started; whether the program itself heeds it at all."""
        heeds = not ignores(self.pid, number)
        self._launcher.signal(self._child, number)
        return heeds

    @property
    def pid(self) -> int:
        """The program's process; 0 until it has its terminal, and when it has ended."""
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
            data = data[data.find(b"\n") + 1 :]  # not in the middle of a character, a sequence or a line
        text = self._screen.take(data, final=self.exit_code is not None)
        return note + self._without_prompts(text)

    def _without_prompts(self, text: str) -> str:
        """The prompts for lines that were typed already say nothing; the last one, before nothing, stays."""
        at = 0
        while text and self._prompts and (found := _PYTHON_PROMPT.match(text, at)) and found.end() < len(text):
            at = found.end()
            self._prompts -= 1
        if text:
            self._prompts = 0
        return text[at:]

    def _await(self, told: Callable[[], bool], until: float, check: Check) -> bool:
        while True:
            check()
            left = until - time.monotonic()
            with self._news:
                if self._news.wait_for(told, max(min(left, _CHECK_S), 0.0)):
                    return True
            if left <= 0:
                return False

    # --- whose turn it is ------------------------------------------------------------------------

    def _settle(self, until: float, check: Check) -> str:
        """Wait until the program waits for input; how that is known, or nothing if it ended or time is up."""
        look: BlockedThread | None = None
        since, total, pause = time.monotonic(), -1, _FIRST_PAUSE_S
        while self.exit_code is None:
            check()
            now_look, now_total = self._look()
            now = time.monotonic()
            if now_look != look or now_total != total:
                look, total, since = now_look, now_total, now
            elif look is not None and now - since >= (_IDLE_S if look.how == "idle" else _STABLE_S):
                return look.how
            if now >= until:
                break
            time.sleep(min(pause, max(until - now, 0.0)))
            pause = _FIRST_PAUSE_S if look is not None else min(pause * 1.5, _LONGEST_PAUSE_S)
        return ""

    def _look(self) -> tuple[BlockedThread | None, int]:
        """Who waits for input now, and how much was printed so far; nobody while either direction is under way."""
        with self._news:
            if self.exit_code is not None:
                return None, self._total
            self._restore_line_mode()
            if self._unwritten or self._after_long_line or _readable(self._terminal.slave):
                return None, self._total
            who = blocked_reader(self._terminal, self._child.pid)
            if _readable(self.master):
                self.readable()
                who = None
            return who, self._total

    # --- typing ----------------------------------------------------------------------------------

    def send(self, text: str, check: Check) -> None:
        """Type something: a line, several, or a control character."""
        with self._typing:
            typed = keystrokes(text)
            if self._begin() and typed.endswith("\n"):
                typed = python_block(typed)
                self._prompts = typed.count("\n") - 1
            pieces = _pieces(typed.encode("utf-8", "replace"))
            for number, piece in enumerate(pieces):
                if number and len(piece) > _LINE_BYTES:  # the mode that it needs can only be chosen once it is read
                    self._settle(time.monotonic() + _TAKES_LINE_S, check)
                self._type_lines(piece, check)
            self._finish_long_line(check)

    def _finish_long_line(self, check: Check) -> None:
        """Give a program that waits the moment that it needs for a long line; a busy one gets its end later."""
        until = time.monotonic() + _TAKES_END_S
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
        """Switch off the echo, whoever switched it on; whether it is Python's interactive mode that will read."""
        with self._news:
            if self.exit_code is not None:
                raise ProcessNotFound(
                    f"the process has ended with exit code {self.exit_code}",
                    hint="linux_proc_read gives what it printed last.",
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
            self._write_on()
            if self._unwritten:
                self._type_on(self)

    def _write_on(self) -> None:
        if self.exit_code is not None:
            self._unwritten.clear()
        try:
            while self._unwritten:
                del self._unwritten[: os.write(self.master, self._unwritten[:_LINE_BYTES])]
        except BlockingIOError:
            pass  # the terminal is full: the pump goes on when the program has taken some
        except OSError:
            self._unwritten.clear()

    def _suspend_line_mode(self) -> bool:
        """The kernel's line buffer would cut the line: let its bytes through as they come.

        False where the program has switched line mode off itself.
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
        """Once all but the end of a long line is taken, and type what had to wait for that.

        The mode stays if the program has chosen one of its own since.
        """
        if (self._line_mode is None and not self._after_long_line) or not self._all_taken():
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
        """Whether a long line comes too early: its mode would spoil what the program has yet to read in line mode."""
        return len(data) > _LINE_BYTES and not self._all_taken()

    def _all_taken(self) -> bool:
        return not self._unwritten and not _readable(self._terminal.slave)

    # --- programs that echo ----------------------------------------------------------------------

    def _may_echo(self) -> bool:
        """Whether the foreground reads keys rather than lines, and is not known to keep quiet."""
        with self._news:
            if self.exit_code is not None or termios.tcgetattr(self._terminal.slave)[3] & termios.ICANON:
                return False
            return self._echoes.get(self._terminal.foreground(), True)

    def _type_and_swallow_echo(self, data: bytes, check: Check) -> None:
        """Type a line without its end, and drop what comes back if it is the same."""
        with self._news:
            who, seen = self._terminal.foreground(), len(self._output)
        self._type(data)
        self._settle(time.monotonic() + _ECHO_S, check)
        with self._news:
            came = Screen().take(bytes(self._output[seen:]), final=True).strip()
            typed = data.decode("utf-8", "replace").strip()
            echoed = bool(typed) and came.endswith(typed)
            if typed:
                self._echoes[who] = echoed
            if echoed:
                del self._output[seen:]


def _pieces(typed: bytes) -> list[bytes]:
    """Long lines by themselves, short ones together."""
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
        while poll.poll(_TOLD_S * 1000):  # somebody may have smuggled the other end out of the tree
            keep(os.read(master, _READ))
    except OSError:
        pass  # EIO: all is read, and nobody holds the other end


def _readable(fd: int) -> bool:
    """Whether anything waits to be read at this end of a terminal.

    Between the two ends bytes lie in a buffer that the kernel empties when it finds the time; to be asked makes it do
    so. After a no, all that was written to the other end has been read.
    """
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))
