"""What one call gets: its caller, deadline and cancellation, and the gate that runs it."""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from .app import App
from .errors import Cancelled, FeatureUnavailable, Internal, ResourceBusy, Timeout
from .session import Session
from .tool import ToolDef

if TYPE_CHECKING:
    from .files.handles import Meta, Sink

_PROGRESS_EVERY_S = 0.5
_LEAST_PROGRESS = 0.01  # by which each report exceeds the one before, as the protocol demands


ELICIT = "elicitation/create"
LIST_ROOTS = "roots/list"
SAMPLE = "sampling/createMessage"
RESULT = "result"  # the action of an answer to anything but a question to the user


class UserQuestion(msgspec.Struct, frozen=True):
    """What a call asks the user: a sentence, and a form. A form without fields asks for a yes or a no.

    A client may be asked for other things than its user's word, by another `method` with parameters of its own.
    """

    key: str
    message: str = ""
    form: Mapping[str, Any] = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})
    method: str = ELICIT
    params: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])


class UserAnswer(NamedTuple):
    """What the user did with a question (`accept`, `decline`, `cancel`), and the fields of the form."""

    action: str
    content: Mapping[str, Any]


# Puts questions to the client and waits for the answers. Polls the call's `check`; None for one that nobody answers.
Ask = Callable[["Context", Sequence[UserQuestion]], list[UserAnswer | None]]


class Toolbox(Protocol):
    """The tools in force."""

    @property
    def tools(self) -> Mapping[str, ToolDef]:
        """Every enabled tool, by name."""
        ...

    @property
    def listed(self) -> Sequence[ToolDef]:
        """Those that the mode lists."""
        ...

    def known(self, name: str) -> ToolDef | None:
        """The tool that a name or an alias means."""
        ...


class CallingGate(Protocol):
    """What a tool may ask of the gate that runs it."""

    @property
    def catalog(self) -> Toolbox:
        """The tools in force."""
        ...

    def call_nested(self, ctx: "Context", name: str, arguments: dict[str, object]) -> object:
        """Call another tool as part of a call."""
        ...

    def render_part(self, ctx: "Context", result: object, room: int) -> str:
        """A result as text, to stand inside another reply."""
        ...

    def flush_usage(self) -> None:
        """Wait until the calls so far can be read from the store."""
        ...


class _NoTools:
    tools: Mapping[str, ToolDef] = {}
    listed: Sequence[ToolDef] = ()

    def known(self, name: str) -> ToolDef | None:
        return self.tools.get(name)


class _NoGate:
    """For a handler that is called directly, as a benchmark does: it can call no other tool."""

    catalog: Toolbox = _NoTools()

    def call_nested(self, ctx: "Context", name: str, arguments: dict[str, object]) -> object:
        raise Internal(f"{name}({', '.join(arguments)}) was called outside of the gate, for {ctx.correlation_id}")

    def render_part(self, ctx: "Context", result: object, room: int) -> str:
        raise Internal(f"{type(result).__name__} has no gate to render it in {room} bytes, for {ctx.correlation_id}")

    def flush_usage(self) -> None:
        """Nothing is recorded."""


_NO_GATE = _NoGate()


class Progress(NamedTuple):
    """How far a call is; `done` grows with every report: seconds, or of a known `total`."""

    done: float
    total: float | None
    doing: str


class Context:
    """One call. Engines poll `check`. The gate makes contexts for the calls that it runs: `Gate.context`."""

    def __init__(
        self,
        app: App,
        session: Session,
        *,
        correlation_id: str,
        gate: CallingGate = _NO_GATE,
        progress: Callable[[Progress], None] | None = None,
        parent: "Context | None" = None,
        ask: Ask | None = None,
        answers: frozenset[str] = frozenset({ELICIT}),
    ) -> None:
        self.app, self.session, self.correlation_id, self.gate = app, session, correlation_id, gate
        self.deadline: float | None = None
        self._progress, self._parent = progress, parent
        self._ask: Ask | None = ask if parent is None else parent._ask
        self.answers: frozenset[str] = answers if parent is None else parent.answers  # what the client can be asked
        self._started = self._last_progress = time.monotonic()
        self._cancelled = self._unanswered = self._unkept = False
        self.doing = "working"  # the message of a progress notification,
        self.steps: tuple[int, int] | None = None  # and how many steps of how many are done, where that is known
        self._reported = 0.0
        self.reply_bytes = app.config.limits.max_reply_bytes  # the gate sets it: how long this call's reply may be
        self.lean = app.config.lean_replies()  # the gate sets it: whether the reply is text or a JSON object
        self.audited = False  # the gate sets it: in the audit although no tool that changes something was called
        self.forwarded = False  # whether another replica forwarded it: then it goes no further, and is recorded there
        self.agreed = False  # whether a person agreed to it, here or where it came in
        self.in_code = False  # whether the result goes to code, which pays nothing for its length
        self.truncated = False  # for the log: whether the reply was cut
        self.logged: dict[str, object] = {}  # for the log: what the result says of itself
        self.warnings: list[str] = []  # for the log: what went wrong without failing the call
        self.notes: list[str] = []  # the same, for the reply
        self.kept_bytes = 0  # for the statistics: what went behind a handle instead of into the reply

    def cancel(self) -> None:
        """Called from another thread; the engine notices at its next `check`."""
        self._cancelled = True

    def limit_time(self, seconds: float) -> None:
        """The call must be done `seconds` from now."""
        self.deadline = time.monotonic() + seconds

    def check(self) -> None:
        """Raise if the call was cancelled or its time is up; send a progress notification where one is due."""
        if self._cancelled:
            raise Cancelled("the call was cancelled")
        if self._parent is not None:
            self._parent.check()
        now = time.monotonic()
        if self.deadline is not None and now > self.deadline:
            raise Timeout("the call took too long", hint="Narrow the path or the pattern.")
        if self._progress is not None and now - self._last_progress > _PROGRESS_EVERY_S:
            self._last_progress = now
            done, total = self.steps or (now - self._started, None)
            self._reported = max(float(done), self._reported + _LEAST_PROGRESS)
            total = total if total is not None and self._reported <= total else None
            self._progress(Progress(round(self._reported, 2), total, self.doing))

    @property
    def can_ask(self) -> bool:
        """Whether the client puts questions to its user."""
        return self._ask is not None and ELICIT in self.answers

    def ask(self, question: UserQuestion) -> UserAnswer | None:
        """The user's answer; None if there is none in time. The time that the user takes does not count.

        Once a question went unanswered, the rest of the call is spared the wait.
        """
        return self.ask_all([question])[0]

    def ask_all(self, questions: Sequence[UserQuestion]) -> list[UserAnswer | None]:
        """The same for several questions at once; what the client can't be asked goes unanswered."""
        outermost = self._lineage()[-1]
        possible = [question for question in questions if question.method in self.answers]
        if self._ask is None or outermost._unanswered or len(possible) < len(questions):
            return [None] * len(questions)
        with self._clock_stopped():
            answers = self._ask(self, questions)
        outermost._unanswered = None in answers
        return answers

    def _lineage(self) -> "list[Context]":
        """This call and those that it is a part of."""
        calls: list[Context] = [self]
        while (parent := calls[-1]._parent) is not None:
            calls.append(parent)
        return calls

    @contextmanager
    def _clock_stopped(self) -> Generator[None]:
        """Move the deadlines of this call and those around it by the time that passes inside."""
        calls = self._lineage()
        began, deadlines = time.monotonic(), [call.deadline for call in calls]
        for call in calls:
            call.deadline = None
        try:
            yield
        finally:
            passed = time.monotonic() - began
            for call, deadline in zip(calls, deadlines, strict=True):
                call.deadline = None if deadline is None else deadline + passed

    def call_tool(self, name: str, arguments: dict[str, object]) -> object:
        """Call another tool as part of this call."""
        return self.gate.call_nested(self, name, arguments)

    def keep(self, kind: str, meta: "Meta", payload: bytes) -> str | None:
        """Store what does not fit the reply; None, and a warning, if the store can't be used."""
        self.kept_bytes = max(self.kept_bytes, len(payload))
        if self._unkept:
            return None  # it has waited for the store once already
        try:
            return self.app.handles.create(self.session.principal, kind, meta, payload)
        except (FeatureUnavailable, ResourceBusy) as exc:
            self.unkept(exc.message)
            return None

    def refer(self, kind: str, meta: "Meta", size: int) -> str | None:
        """A handle on a file that is too large to keep a copy of."""
        try:
            return self.app.handles.refer(self.session.principal, kind, meta, size)
        except (FeatureUnavailable, ResourceBusy) as exc:
            self.unkept(exc.message)
            return None

    def spool(self, kind: str, meta: "Meta") -> "Sink":
        """Where all of a command's output goes; one that can't be stored costs the handle alone."""
        from .files.handles import SafeSink

        def kept(size: int) -> None:
            self.kept_bytes = max(self.kept_bytes, size)

        return SafeSink(lambda: self.app.handles.spool(self.session.principal, kind, meta), self.unkept, kept)

    def unkept(self, reason: str) -> None:
        """Output could not be stored: the log and the reply say why there is no handle."""
        self._unkept = True
        self.warnings.append(reason)
        self.notes.append(f"There is no handle for the rest: {reason}")
