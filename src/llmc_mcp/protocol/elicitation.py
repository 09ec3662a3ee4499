"""Questions to the user in the middle of a call, as each era of the protocol asks them.

In the handshake era the server sends a request of its own (`elicitation/create`) and waits for the reply:
`SentQuestions`. In the stateless era the call's result says `input_required` and the client calls again with the
answers; meanwhile the call waits where it is, in `PausedCalls`, because running it once more would repeat what it has
done already. A client that does not answer holds a call up for `tools.consent_timeout` at most.
"""

import itertools
import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, cast

from ..context import ELICIT, RESULT, Context, UserAnswer, UserQuestion
from .background import BackgroundCall, CallOwner
from .jsonrpc import INVALID_PARAMS, SERVER_ERROR, Params, ProtocolError
from .request import as_object

_ACTIONS = ("accept", "decline", "cancel")
_CHECK_S = 0.1  # how often a waiting call looks whether it was cancelled
_KEPT_S = 60.0  # how long the outcome of a call is kept whose client did not come back


def as_request(question: UserQuestion) -> Params:
    """A question as the protocol's request to a client."""
    if question.method != ELICIT:
        return {"method": question.method, "params": dict(question.params)}
    return {
        "method": ELICIT,
        "params": {"mode": "form", "message": question.message, "requestedSchema": question.form},
    }


def read_answer(raw: object, method: str = ELICIT) -> UserAnswer | None:
    """An answer as a client sends it; None if it is malformed."""
    if not isinstance(raw, dict):
        return None
    fields = cast(Params, raw)
    if method != ELICIT:
        return UserAnswer(RESULT, fields)
    action, content = fields.get("action"), fields.get("content")
    if action not in _ACTIONS or not isinstance(content, dict | None):
        return None
    return UserAnswer(action, cast(Params, content or {}))


def read_answers(raw: object, expected: Mapping[str, UserQuestion] | None = None) -> dict[str, UserAnswer]:
    """The answers of `inputResponses`; keys that nobody asked for are ignored, malformed answers are refused.

    Where it is not known yet what is asked, an answer without an action can only be one to something else than a
    question to the user.
    """
    if not isinstance(raw, dict):
        raise ProtocolError(INVALID_PARAMS, "inputResponses is an object: answers by the keys of inputRequests")
    answers: dict[str, UserAnswer] = {}
    for key, value in cast(dict[str, object], raw).items():
        if expected is None:
            fields = as_object(value)
            method = "" if fields and "action" not in fields else ELICIT
        elif key in expected:
            method = expected[key].method
        else:
            continue
        answer = read_answer(value, method)
        if answer is None:
            raise ProtocolError(INVALID_PARAMS, f"inputResponses[{key[:100]!r}] has no action, or content that is none")
        answers[key] = answer
    return answers


class SentQuestions:
    """Requests to clients that wait for replies. Ids are unique in the process; a reply counts for its session only."""

    def __init__(self, patience_s: float, most_per_session: int) -> None:
        self._patience_s, self._most = patience_s, most_per_session
        self._ids = itertools.count(1)
        self._waiting: dict[tuple[str, str], queue.SimpleQueue[Params]] = {}
        self._closed = False

    def ask_each(
        self,
        ctx: Context,
        questions: Sequence[UserQuestion],
        send: Callable[[Params], None],
        session_id: str = "",
    ) -> list[UserAnswer | None]:
        """Ask one after the other: each is a request of its own."""
        return [self.ask(ctx, question, send, session_id) for question in questions]

    def ask(
        self, ctx: Context, question: UserQuestion, send: Callable[[Params], None], session_id: str = ""
    ) -> UserAnswer | None:
        """Send a question and wait for its answer; None if none comes, or if too many are open already.

        A call that ends meanwhile takes its question back.
        """
        if sum(session == session_id for session, _ in list(self._waiting)) >= self._most:
            return None
        request_id = f"ask-{next(self._ids)}"
        replies: queue.SimpleQueue[Params] = queue.SimpleQueue()
        self._waiting[session_id, request_id] = replies
        if self._closed:
            replies.put({})
        answered = False
        try:
            send({"jsonrpc": "2.0", "id": request_id, **as_request(question)})
            reply = self._wait(ctx, replies)
            answered = reply is not None
            return read_answer(reply.get("result"), question.method) if reply is not None else None
        finally:
            del self._waiting[session_id, request_id]
            if not answered:
                withdrawn = {"requestId": request_id, "reason": "the call no longer waits for an answer"}
                send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": withdrawn})

    def _wait(self, ctx: Context, replies: "queue.SimpleQueue[Params]") -> Params | None:
        until = time.monotonic() + self._patience_s
        while (left := until - time.monotonic()) > 0:
            try:
                return replies.get(timeout=min(_CHECK_S, left))
            except queue.Empty:
                ctx.check()
        return None

    def deliver(self, message: Mapping[str, object], session_id: str = "") -> None:
        """Hand a client's reply to the call that waits for it; any other reply is dropped."""
        request_id = message.get("id")
        replies = self._waiting.get((session_id, request_id)) if isinstance(request_id, str) else None
        if replies is not None:
            replies.put(dict(message))

    def close(self) -> None:
        """The clients are gone: nobody will answer."""
        self._closed = True
        for replies in list(self._waiting.values()):
            replies.put({})


class _PausedCall(NamedTuple):
    owner: CallOwner
    said: tuple[object, ...]
    call: BackgroundCall


def _said(params: Params) -> tuple[object, ...]:
    """What makes a request that comes back the same request."""
    return tuple(params.get(name) for name in ("name", "arguments", "uri"))


class PausedCalls:
    """Calls that wait for their client to come back with answers, by the `requestState` that it was given.

    A state is a random number: it can be neither guessed nor altered. It serves once, its owner only, for one call.
    """

    def __init__(self, most_per_principal: int) -> None:
        self._most = most_per_principal
        self._lock = threading.Lock()
        self._paused: dict[str, _PausedCall] = {}
        self._closed = False

    def add(self, owner: CallOwner, params: Params, call: BackgroundCall) -> str:
        """Keep a call that asks; returns its state. A client that leaves too many questions open loses the call."""
        state = secrets.token_urlsafe(24)
        with self._lock:
            self._drop_forgotten()
            own = sum(paused.owner.principal == owner.principal for paused in self._paused.values())
            crowded = own >= self._most or self._closed
            if not crowded:
                self._paused[state] = _PausedCall(owner, _said(params), call)
        if crowded:
            call.cancel()
            raise ProtocolError(SERVER_ERROR, f"{self._most} calls wait for an answer already; answer one of them")
        return state

    def find(self, owner: CallOwner, params: Params) -> BackgroundCall:
        """The call that a state belongs to."""
        return self._get(owner, params).call

    def take(self, owner: CallOwner, params: Params) -> BackgroundCall:
        """The call that a state belongs to; the state is used up."""
        with self._lock:
            found = self._get(owner, params)
            del self._paused[params["requestState"]]
            return found.call

    def _get(self, owner: CallOwner, params: Params) -> _PausedCall:
        state: object = params.get("requestState")
        found = self._paused.get(state) if isinstance(state, str) else None
        if found is None or (found.owner, found.said) != (owner, _said(params)):
            raise ProtocolError(
                INVALID_PARAMS, "unknown requestState: the call that asked is over, or was another one; call again"
            )
        return found

    def _drop_forgotten(self) -> None:
        over = [state for state, paused in self._paused.items() if paused.call.ended_for() > _KEPT_S]
        for state in over:
            del self._paused[state]

    def close(self) -> list[BackgroundCall]:
        """Forget all calls; returns them, to be cancelled."""
        with self._lock:
            self._closed = True
            paused, self._paused = self._paused, {}
        return [one.call for one in paused.values()]
