"""Syntax check of a file after an edit.

Grammars are written in C and read untrusted files, so a confined process of its own does the check. Starting it takes
a while, and so does unpacking a grammar for the first time on a machine: an edit waits a moment and no longer, and the
next one finds the process ready.
"""

import threading
import time
from collections import Counter

import msgspec

from ...errors import LlmcError
from ...kernel import syscalls
from ...kernel.launcher import Launcher
from ..parse.detect import language_of
from ..parse.languages import traits_of
from ..parse.types import SyntaxProblem
from .parser_process import ParserProcess
from .syntax_child import SyntaxCheck, SyntaxErrors

PATIENCE_S = 0.25  # an edit waits no longer than this
LARGEST_BYTES = 512 * 1024
_LONGEST_S = 5.0  # a process that takes longer is ended
_SHOWN = 80


class Checker:
    """Finds syntax errors; safe from any thread."""

    def __init__(self, launcher: Launcher, data_dir: str, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._free = threading.Lock()
        self._process = ParserProcess(launcher, "llmc_mcp.rag.build.syntax_child", data_dir)
        self._closed = False

    def may_know(self, path: str) -> bool:
        """Whether a file of this name may be in a language that is checked."""
        return bool(language_of(path, b"")) or "." not in path.rpartition("/")[2]

    def check(self, path: str, before: bytes | None, after: bytes, patience_s: float | None = None) -> str | None:
        """`ok`, or where the first error is; None if that is unknown or takes too long."""
        patience_s = self._patience_s if patience_s is None else patience_s
        language = language_of(path, after[:4096])
        reported = traits_of(language).syntax_check
        if reported == "none":
            return None
        if max(len(after), len(before or b"")) > LARGEST_BYTES or self._closed or syscalls.landlock_abi() == 0:
            return None
        until = time.monotonic() + patience_s
        if not self._free.acquire(timeout=patience_s):
            return None
        pending = _PendingCheck(SyntaxCheck(language, [after] if before is None else [after, before]))
        threading.Thread(target=self._answer, args=(pending,), name="syntax", daemon=True).start()
        if not pending.done.wait(max(0.0, until - time.monotonic())) or pending.answer is None:
            return None
        now, then = pending.answer[0], pending.answer[1] if before is not None else None
        if now is None or (then is None and before is not None):
            return None
        return _summary(after, now, before, then, sure=reported == "all")

    def close(self) -> None:
        """End the process."""
        self._closed = True
        if self._free.acquire(timeout=1.0):
            self._process.close()
            self._free.release()

    def release_idle(self, idle_s: float) -> bool:
        """End the process if it has checked nothing for a while; whether it was ended."""
        if not self._free.acquire(blocking=False):
            return False  # a check is under way
        try:
            return self._process.release_idle(idle_s)
        finally:
            self._free.release()

    def _answer(self, pending: "_PendingCheck") -> None:
        try:
            question = pending.question
            if not self._closed:
                frame = self._process.ask(question.language, msgspec.msgpack.encode(question), _LONGEST_S)
                if frame is not None:
                    pending.answer = msgspec.msgpack.decode(frame, type=SyntaxErrors).errors
        except (OSError, LlmcError, msgspec.MsgspecError):
            self._process.close()
        finally:
            self._free.release()
            pending.done.set()


class _PendingCheck:
    """A request to the process, and its result."""

    def __init__(self, question: SyntaxCheck) -> None:
        self.question = question
        self.done = threading.Event()
        self.answer: list[list[SyntaxProblem] | None] | None = None


def _summary(
    after: bytes, now: list[SyntaxProblem], before: bytes | None, then: list[SyntaxProblem] | None, *, sure: bool
) -> str | None:
    """The first error that the edit added; else that there is none, or that it was there before."""
    if not now:
        return "ok"
    if before is None or not before.strip():
        return _described(after, now[0]) if sure else None
    known = Counter(_line(before, one) for one in then or ())
    for one in now:
        if known[_line(after, one)] == 0:
            return _described(after, one)
        known[_line(after, one)] -= 1
    return f"line {now[0].line}, as before this change"


def _described(text: bytes, one: SyntaxProblem) -> str:
    shown = _line(text, one).decode(errors="replace").strip()
    shown = shown if len(shown) <= _SHOWN else shown[: _SHOWN - 1] + "…"
    return f"line {one.line}: {f'missing {one.missing} in ' if one.missing else ''}{shown}"


def _line(text: bytes, one: SyntaxProblem) -> bytes:
    lines = text.split(b"\n", one.line)
    return lines[one.line - 1] if one.line <= len(lines) else b""
