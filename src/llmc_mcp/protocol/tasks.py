"""Tasks: calls that their client need not wait for.

A client of version 2025-11-25 asks for a task with its call and collects the result with `tasks/result`. In the
stateless era tasks are the extension `io.modelcontextprotocol/tasks`: the server makes a task of a call that takes
long, and `tasks/get` has the result. A task belongs to the principal and the session that made it; for everybody else
it does not exist. It is kept for its time to live, running or not; on stdio it ends with the session, over HTTP with
the server.
"""

import secrets
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from .background import BackgroundCall, CallOwner, Status
from .elicitation import as_request
from .jsonrpc import INVALID_PARAMS, Params, ProtocolError

RELATED_TASK = "io.modelcontextprotocol/related-task"

_POLL_MS = 1_000
_SHORTEST_TTL_MS = 1_000
_PRINCIPAL_SHARE = 4  # as many times a session's tasks are kept for all sessions of a principal


class Task:
    """A call that is kept under an id."""

    def __init__(self, owner: CallOwner, tool: str, call: BackgroundCall, ttl_ms: int) -> None:
        self.id = secrets.token_urlsafe(24)
        self.owner, self.tool, self.call, self.ttl_ms = owner, tool, call, ttl_ms
        self._created = time.time()
        self.expires = time.monotonic() + ttl_ms / 1000

    def as_core(self) -> Params:
        """The task in the words of 2025-11-25, where a tool that fails is a task that failed."""
        outcome = self.call.outcome
        status = self.call.status
        if status == "completed" and isinstance(outcome, dict) and outcome.get("isError"):
            status = "failed"
        return {**self._common(status), "ttl": self.ttl_ms, "pollInterval": _POLL_MS}

    def as_extension(self) -> Params:
        """The task in the words of the extension, without its outcome."""
        return {**self._common(self.call.status), "ttlMs": self.ttl_ms, "pollIntervalMs": _POLL_MS}

    def in_detail(self) -> Params:
        """The task in the words of the extension: with its result, its error, or what it asks."""
        shown, outcome = self.as_extension(), self.call.outcome
        if shown["status"] == "input_required":
            shown["inputRequests"] = {key: as_request(one) for key, one in self.call.questions().items()}
        elif shown["status"] == "completed":
            shown["result"] = outcome
        elif shown["status"] == "failed" and isinstance(outcome, ProtocolError):
            shown["error"] = outcome.as_error()
        return shown

    def _common(self, status: Status) -> Params:
        return {
            "taskId": self.id,
            "status": status,
            "statusMessage": self.tool,
            "createdAt": _timestamp(self._created),
            "lastUpdatedAt": _timestamp(self.call.updated),
        }


class Tasks:
    """The tasks of all sessions; a thread drops those whose time is over, as long as there are any."""

    def __init__(self, most_per_session: int, longest_s: float) -> None:
        self._most, self._longest_ms = most_per_session, max(int(longest_s * 1000), _SHORTEST_TTL_MS)
        self._news = threading.Condition()
        self._tasks: dict[str, Task] = {}
        self._sweeping = self._closed = False

    def ttl_ms(self, requested: object) -> int:
        """The time to live for what a client requests; what is no number of milliseconds is refused."""
        if requested is None:
            return self._longest_ms
        if not isinstance(requested, int) or isinstance(requested, bool) or requested < 0:
            raise ProtocolError(INVALID_PARAMS, "task.ttl is a whole number of milliseconds")
        return min(max(requested, _SHORTEST_TTL_MS), self._longest_ms)

    def add(self, task: Task) -> bool:
        """Keep a task from now on; False if its owner has too many."""
        with self._news:
            owners = [other.owner for other in self._tasks.values()]
            of_principal = sum(owner.principal == task.owner.principal for owner in owners)
            if owners.count(task.owner) >= self._most or of_principal >= self._most * _PRINCIPAL_SHARE or self._closed:
                return False
            if not self._sweeping:
                threading.Thread(target=self._sweep, name="tasks", daemon=True).start()
                self._sweeping = True
            self._tasks[task.id] = task
            self._news.notify_all()
            return True

    def drop(self, task: Task) -> None:
        """Forget a task whose call did not start."""
        with self._news:
            self._tasks.pop(task.id, None)
            self._news.notify_all()

    def find(self, owner: CallOwner, task_id: object) -> Task:
        """A task of an owner."""
        with self._news:
            task = self._tasks.get(task_id) if isinstance(task_id, str) else None
        if task is None or task.owner != owner:
            raise ProtocolError(INVALID_PARAMS, "unknown task: never made, another session's, or its time is over")
        return task

    def of(self, owner: CallOwner) -> list[Task]:
        """The tasks of an owner, oldest first."""
        with self._news:
            return [task for task in self._tasks.values() if task.owner == owner]

    def _sweep(self) -> None:
        with self._news:
            while self._tasks:
                now = time.monotonic()
                for task in [task for task in self._tasks.values() if task.expires <= now]:
                    del self._tasks[task.id]
                    task.call.changed = _nothing  # nobody can look the task up any more
                    task.call.cancel()
                if self._tasks:
                    self._news.wait(max(min(task.expires for task in self._tasks.values()) - now, 0))
            self._sweeping = False

    def close(self) -> list[BackgroundCall]:
        """Forget all tasks; returns their calls, to be cancelled."""
        with self._news:
            self._closed = True
            tasks, self._tasks = self._tasks, {}
            self._news.notify_all()
        for task in tasks.values():
            task.call.changed = _nothing
        return [task.call for task in tasks.values()]


def announce(task: Task, notify: Callable[[str, Params], None]) -> None:
    """Tell the client of every change of a task's status, as 2025-11-25 does."""
    task.call.changed = lambda: notify("notifications/tasks/status", task.as_core())


def _nothing() -> None:
    """Nobody listens."""


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
