"""Calls that one request and one reply don't cover: those that ask their user, and those that become tasks."""

import time
from collections.abc import Callable

from ..context import Context, UserAnswer
from ..errors import Cancelled, RateLimited
from ..gate.dispatch import Gate
from ..tool import TaskSupport
from .background import BackgroundCall, CallOwner
from .elicitation import PausedCalls, as_request, read_answers
from .jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_CAPABILITY, SERVER_ERROR, Params, ProtocolError
from .request import TASKS, Request, abilities
from .tasks import RELATED_TASK, Task, Tasks, announce

_LOOK_S = 0.25  # how often a request that waits for a task looks whether it was cancelled
_CLOSING_S = 5.0  # for all calls together to stop when the session ends

# Begins a call in the background: makes its context, with or without questions, and starts it.
Begin = Callable[[Request, BackgroundCall, bool], None]


class LongCalls:
    """Tasks and paused calls, for all sessions of the process."""

    patience_s = 1.0  # a call that ends within this time is answered at once instead of becoming a task

    def __init__(self, gate: Gate, begin: Begin, owner_of: Callable[[Request], CallOwner]) -> None:
        limits = gate.app.config.limits
        self._begin, self._owner_of = begin, owner_of
        self._answer_s = gate.app.config.tools.consent_timeout
        self._tasks = Tasks(limits.max_tasks, limits.task_ttl_sec)
        self._paused = PausedCalls(limits.workers)

    # --- calls of the stateless era --------------------------------------------------------------

    def run(self, request: Request, support: TaskSupport | None) -> Params:
        """Answer a call: with its result, with its question, or with the task that it has become."""
        client = abilities(request)
        if support == "required" and not client.has_tasks:
            raise missing_tasks()
        given = read_answers(request.params["inputResponses"]) if "inputResponses" in request.params else {}
        call = BackgroundCall(self._answer_s, given)
        call.progress = request.progress
        self._begin(request, call, bool(client.answers))
        return self._attend(request, call, support)

    def resume(self, request: Request, support: TaskSupport | None) -> Params:
        """Go on with a call that asked: its client is back with the answers."""
        owner = self._owner_of(request)
        questions = self._paused.find(owner, request.params).questions()
        answers = read_answers(request.params.get("inputResponses", {}), questions)
        call = self._paused.take(owner, request.params)
        call.progress = request.progress
        call.serve(request.attach)
        call.give(answers)
        return self._attend(request, call, support)

    def _attend(self, request: Request, call: BackgroundCall, support: TaskSupport | None) -> Params:
        """Wait for the end of a call or its question; one that takes long becomes a task where it may."""
        if support is not None and abilities(request).has_tasks:
            call.wait(self.patience_s)
            task = self._as_task(request, call)
            if task is not None:
                return {"resultType": "task", **task.as_extension()}
        call.wait()
        questions = call.questions()
        if call.over or not questions:
            return call.result()
        call.progress = None
        return {
            "resultType": "input_required",
            "inputRequests": {key: as_request(question) for key, question in questions.items()},
            "requestState": self._paused.add(self._owner_of(request), request.params, call),
        }

    def _as_task(self, request: Request, call: BackgroundCall) -> Task | None:
        """A task for a call that works; None if it has ended, if it asks, or if there are too many tasks."""
        if call.status != "working":
            return None
        task = Task(self._owner_of(request), str(request.params.get("name", "")), call, self._tasks.ttl_ms(None))
        if not self._tasks.add(task):
            return None
        call.progress = None
        return task

    # --- calls of the handshake era --------------------------------------------------------------

    def create(self, request: Request, support: TaskSupport | None) -> Params:
        """Make the task that a client asks for."""
        if support is None:
            raise ProtocolError(METHOD_NOT_FOUND, f"{str(request.params['name'])[:100]} does not run as a task")
        wanted: object = request.params["task"]
        if not isinstance(wanted, dict):
            raise ProtocolError(INVALID_PARAMS, "task is an object")
        call = BackgroundCall(self._answer_s)
        ttl_ms = self._tasks.ttl_ms(request.params["task"].get("ttl"))
        task = Task(self._owner_of(request), str(request.params.get("name", "")), call, ttl_ms)
        if request.notify is not None:
            call.progress = request.progress
            announce(task, request.notify)
        if not self._tasks.add(task):
            error = RateLimited("this session has as many tasks as it may", hint="Setting: mcp.limits.max_tasks.")
            raise ProtocolError(SERVER_ERROR, error.message, error.envelope(request.correlation_id))
        try:
            self._begin(request, call, bool(abilities(request).answers))
        except BaseException:
            self._tasks.drop(task)
            raise
        return {"task": task.as_core()}

    def list_tasks(self, request: Request) -> list[Params]:
        """The tasks of the caller."""
        return [task.as_core() for task in self._tasks.of(self._owner_of(request))]

    def wait_for_result(self, request: Request, ctx: Context) -> Params:
        """The result of a task, once there is one; what the task asks meanwhile is put to the user."""
        task = self._find(request)
        call, ask = task.call, request.ask if request.peer.asks_users else None
        while not call.over:
            call.wait(_LOOK_S, for_questions=ask is not None)
            if ask is not None:
                for key, question in call.questions().items():
                    call.give({key: ask(ctx, [question])[0] or UserAnswer("cancel", {})})
            try:
                ctx.check()
            except Cancelled as exc:
                raise ProtocolError(SERVER_ERROR, exc.message) from None
        if call.status == "cancelled":
            raise ProtocolError(INVALID_PARAMS, "the task was cancelled: it has no result")
        return {**call.result(), "_meta": {RELATED_TASK: {"taskId": task.id}}}

    # --- tasks of both eras ----------------------------------------------------------------------

    def get(self, request: Request, *, stateless: bool) -> Params:
        """The state of a task; the extension's includes the outcome."""
        task = self._find(request)
        return task.in_detail() if stateless else task.as_core()

    def cancel(self, request: Request, *, stateless: bool) -> Params:
        """Cancel a task. One that is over stays as it is, which only the handshake era calls an error."""
        task = self._find(request)
        cancelled = task.call.cancel()
        if stateless:
            return {}
        if not cancelled:
            raise ProtocolError(INVALID_PARAMS, f"the task is over: {task.as_core()['status']}")
        return task.as_core()

    def update(self, request: Request) -> Params:
        """Hand answers to a task that asked."""
        call = self._find(request).call
        call.give(read_answers(request.params.get("inputResponses"), call.questions()))
        return {}

    def _find(self, request: Request) -> Task:
        return self._tasks.find(self._owner_of(request), request.params.get("taskId"))

    def close(self) -> None:
        """Cancel what is under way, and give it a moment to stop."""
        calls = [*self._tasks.close(), *self._paused.close()]
        for call in calls:
            call.cancel()
        until = time.monotonic() + _CLOSING_S
        for call in calls:
            call.join(until - time.monotonic())


def missing_tasks() -> ProtocolError:
    """The error for a client that uses tasks without having declared the extension."""
    required: Params = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    return ProtocolError(MISSING_CAPABILITY, f"this needs the client capability {TASKS}", required)
