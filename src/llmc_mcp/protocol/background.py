"""A call in a thread of its own: it may outlive the request that began it, and ask its user on the way."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from ..context import Context, UserAnswer, UserQuestion
from .jsonrpc import INTERNAL_ERROR, SERVER_ERROR, Params, ProtocolError

Status = Literal["working", "input_required", "completed", "failed", "cancelled"]

_CHECK_S = 0.1  # how often a call that waits for an answer looks whether it was cancelled


class CallOwner(NamedTuple):
    """Whom a call belongs to: the session is that of the transport, with what the caller said of itself."""

    principal: str
    session_id: str
    stated_session_id: str


class BackgroundCall:
    """One call. Its thread runs the tool; any other thread may look, wait, answer its questions or cancel it."""

    def __init__(self, patience_s: float, given: Mapping[str, UserAnswer] | None = None) -> None:
        self._patience_s = patience_s  # for an answer
        self._given = dict(given or {})  # answers that no question has used yet
        self._news = threading.Condition()
        self._questions: dict[str, UserQuestion] = {}
        self._outcome: Params | ProtocolError | None = None
        self._cancelled = False
        self._ended = 0.0
        self._context: Context | None = None
        self._thread: threading.Thread | None = None
        self.progress: Callable[[Params], None] | None = None  # where progress goes; None: nobody listens any more
        self.changed: Callable[[], None] = lambda: None  # called after a change of the status
        self.updated = time.time()  # of the status

    def start(self, run: Callable[[], Params], context: Context, failed: Callable[[], None]) -> None:
        """Begin; `failed` logs the exception that is being handled."""
        with self._news:
            self._context = context
            if self._cancelled:
                context.cancel()

        def work() -> None:
            try:
                outcome: Params | ProtocolError = run()
            except ProtocolError as exc:
                outcome = exc
            except BaseException:  # noqa: BLE001 - whatever it is, somebody waits for the end
                failed()
                outcome = ProtocolError(INTERNAL_ERROR, "internal error")
            self._end(outcome)

        self._thread = threading.Thread(target=work, name="background-call", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # no thread to be had
            raise ProtocolError(SERVER_ERROR, "the server is too busy to start the call; try again") from None

    def _end(self, outcome: Params | ProtocolError) -> None:
        with self._news:
            self._outcome, self._ended = outcome, time.monotonic()
            self._questions.clear()
            self._touch()
        if not self._cancelled:
            self.changed()

    def _touch(self) -> None:
        self.updated = time.time()
        self._news.notify_all()

    def serve(self, attach: Callable[[Context], None]) -> None:
        """Let another request's transport cancel it."""
        if self._context is not None:
            attach(self._context)

    # --- for the call itself ---------------------------------------------------------------------

    def send_progress(self, params: Params) -> None:
        """Report progress to whoever listens."""
        progress = self.progress
        if progress is not None:
            progress(params)

    def ask(self, ctx: Context, questions: Sequence[UserQuestion]) -> list[UserAnswer | None]:
        """Wait for the answers to questions, which are asked together; None for one that is not answered in time."""
        until = time.monotonic() + self._patience_s
        keys = [question.key for question in questions]
        with self._news:
            self._questions.update({one.key: one for one in questions if one.key not in self._given})
            self._touch()
        self.changed()
        while True:
            with self._news:
                if not self._given.keys() >= set(keys):
                    self._news.wait(_CHECK_S)
                if self._given.keys() >= set(keys) or time.monotonic() > until:
                    for key in keys:
                        self._questions.pop(key, None)
                    answers = [self._given.pop(key, None) for key in keys]
                    self._touch()
                    break
            ctx.check()
        self.changed()
        return answers

    # --- for everybody else ----------------------------------------------------------------------

    def questions(self) -> dict[str, UserQuestion]:
        """What it waits to be told."""
        with self._news:
            return {} if self._cancelled else dict(self._questions)

    def give(self, answers: Mapping[str, UserAnswer]) -> None:
        """Answer questions; what was not asked is ignored."""
        with self._news:
            for key in answers.keys() & self._questions.keys():
                self._given[key] = answers[key]
                del self._questions[key]
            self._touch()

    def wait(self, seconds: float | None = None, *, for_questions: bool = True) -> None:
        """Return when it has ended, when it asks, or when the time is up."""

        def over() -> bool:
            return self._outcome is not None or self._cancelled or (for_questions and bool(self._questions))

        with self._news:
            self._news.wait_for(over, seconds)

    @property
    def status(self) -> Status:
        with self._news:
            if self._cancelled:
                return "cancelled"
            if self._outcome is not None:
                return "failed" if isinstance(self._outcome, ProtocolError) else "completed"
            return "input_required" if self._questions else "working"

    @property
    def over(self) -> bool:
        """Whether its status is final."""
        return self.status in ("completed", "failed", "cancelled")

    def ended_for(self) -> float:
        """Seconds since its end; negative while it runs."""
        return time.monotonic() - self._ended if self._ended else -1.0

    def result(self) -> Params:
        """The result of the tool, or the error that it ended with."""
        if isinstance(self._outcome, ProtocolError):
            raise self._outcome
        if self._outcome is None:
            raise ProtocolError(INTERNAL_ERROR, "the call has not ended")
        return self._outcome

    @property
    def outcome(self) -> Params | ProtocolError | None:
        return self._outcome

    def cancel(self) -> bool:
        """Cancel it, unless it has ended; its thread stops at its next check."""
        with self._news:
            if self._cancelled or self._outcome is not None:
                return False
            self._cancelled = True
            self._touch()
        if self._context is not None:
            self._context.cancel()
        self.changed()
        return True

    def join(self, seconds: float) -> None:
        """Wait for its thread."""
        if self._thread is not None:
            self._thread.join(max(seconds, 0))
