"""This server as one of several replicas on one store: it says that it lives, and forwards calls about programs.

A program that outlives its call runs in one replica. A call that names it and arrives elsewhere is forwarded once, to
the replica that its row names, and judged there again: by scope, tool, rules and owner. What is forwarded is never
forwarded again. Nothing else needs to reach a certain replica.
"""

import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NoReturn, get_type_hints

import msgspec

from ..app import App
from ..config.schema import Config
from ..context import Context
from ..errors import (
    ApprovalRequired,
    BadArgs,
    FeatureUnavailable,
    InvalidArgument,
    LlmcError,
    ProcessGone,
    ProcessNotFound,
    ReplicaUnreachable,
)
from ..gate.dispatch import Gate
from ..review.processes import ShownProgram
from ..session import Session
from ..store.opening import SQLITE
from ..store.replicas import BEAT_S, OwnedProgram, ReplicaRow, ReplicaTable
from ..tool import Result, ToolDef
from .replica_claims import Verifier, claims_for, proves, signed
from .replica_client import NotReached, ReplicaReply, is_usable, post

_RETRY_S = 5.0  # until the next try to open a store that can't be reached
_TIDY_EVERY = 150  # heartbeats
_AROUND_S = 30.0  # what a forwarded call may take beyond the longest that a program may be waited for
_BEYOND_REPLY = 1 << 20  # bytes of a forwarded reply around what its caller gets
_MOST_ASKED = 16  # replicas for a list of programs
_LIST_S = 5.0
_PROCESS_ID = re.compile(r"P_[0-9a-f]{16}")
_HINT = "Each replica needs mcp.server.replica_url: an address that leads to it alone, and that the others reach."
_ENDED_HINT = "Start it again: what runs is in linux_proc_sessions."


class ForwardedTool(msgspec.Struct, tag="tool"):
    """A call of a tool about a program."""

    name: str
    arguments: dict[str, Any]
    reply_bytes: int
    lean: bool


class ForwardedList(msgspec.Struct, tag="programs"):
    """What runs, for a page."""


class ForwardedStop(msgspec.Struct, tag="stop"):
    """The end of a program, from a page."""

    proc_id: str


Forwarded = ForwardedTool | ForwardedList | ForwardedStop


def replica_url(config: Config, port: int) -> str:
    """Where other replicas reach this server: as configured, or as far as it can be told from where it listens."""
    if given := config.server.replica_url:
        if not is_usable(given):
            raise InvalidArgument(
                f"mcp.server.replica_url is {given[:200]!r}", hint="It is http://HOST:PORT or https://HOST:PORT."
            )
        return given.rstrip("/")
    host = config.server.host.strip("[]")
    if host in ("0.0.0.0", "::", ""):  # noqa: S104 - not bound here
        with suppress(OSError):  # a container's name is its address
            host = socket.gethostbyname(socket.gethostname())
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Replicas:
    """This replica and its way to the others."""

    def __init__(self, gate: Gate, url: str) -> None:
        self._gate, self.url = gate, url
        self.id, self.key = secrets.token_hex(8), secrets.token_hex(32)
        self._table: ReplicaTable | None = None
        self._ahead = time.time() - time.monotonic()  # the store's clock before this process's own
        self._over, self._lock = threading.Event(), threading.Lock()
        self.verifier = Verifier(self.id, self.key, self.now)
        gate.app.on_program.append(self._started)
        with suppress(LlmcError):  # the thread tries again, and logs why
            self._beat()
        threading.Thread(target=self._run, name="replica", daemon=True).start()

    def now(self) -> float:
        """The store's time, as of the last heartbeat and the time since."""
        return time.monotonic() + self._ahead

    # --- this replica ----------------------------------------------------------------------------

    def _run(self) -> None:
        beats, said = 0, ""
        while not self._over.is_set():
            try:
                self._beat()
                if beats % _TIDY_EVERY == 0:
                    self._rows().forget_ended()
                beats, said = beats + 1, ""
            except LlmcError as exc:
                if exc.message != said:
                    self._gate.log.warning("replica", reason=exc.message)
                said = exc.message
            self._over.wait(BEAT_S if self._table is not None else _RETRY_S)

    def _beat(self) -> None:
        if self._table is None:
            self._table = ReplicaTable(self._gate.app.store, self.id)
        with self._lock:
            if self._over.is_set():
                return
            app, began = self._gate.app, time.monotonic()
            programs = app.repls.owned() if app.has_programs() else []
            now = self._rows().beat(self.url, self.key, programs)
            self._ahead = now - (began + time.monotonic()) / 2

    def _rows(self) -> ReplicaTable:
        if self._table is None:
            raise FeatureUnavailable("the store has not been reached yet, so other replicas are not known")
        return self._table

    def _started(self, program: OwnedProgram) -> None:
        """A program of this replica may be named from now on; without the store, from the next heartbeat on."""
        with self._lock:
            try:
                self._rows().own(program)
            except LlmcError as exc:
                self._gate.log.warning("replica", unregistered=program.proc_id, reason=exc.message)

    def leave(self) -> None:
        """This server ends, and the programs in it."""
        self._over.set()
        with self._lock:
            try:
                if self._table is not None:
                    self._table.leave()
            except LlmcError as exc:
                self._gate.log.warning("replica", reason=exc.message)
            self._table = None

    # --- calls -----------------------------------------------------------------------------------

    def handle(self, ctx: Context, tool: ToolDef, arguments: dict[str, Any]) -> object:
        """Run a tool about programs: here, where its program runs, or wherever the session has any."""
        if tool.gathers:
            return self._gathered(ctx, tool, arguments)
        proc_id: str = arguments[tool.process] or ""
        if not _PROCESS_ID.fullmatch(proc_id) or (ctx.app.has_programs() and ctx.app.repls.holds(proc_id)):
            return tool.fn(ctx, **arguments)
        replica = self._rows().runs(OwnedProgram(proc_id, ctx.session.principal, ctx.session.session_id))
        if replica is None:
            return tool.fn(ctx, **arguments)  # which says that there is none
        longest = ctx.app.config.linux_ops.process_limits.max_timeout_sec
        ctx.limit_time(longest + _AROUND_S)  # the other end knows how long this call may take
        return self._forwarded(replica, ctx, tool, arguments, proc_id)

    def _forwarded(
        self, replica: ReplicaRow, ctx: Context, tool: ToolDef, arguments: dict[str, Any], proc_id: str = ""
    ) -> Result:
        given = {name: value for name, value in arguments.items() if value is not None}
        call = ForwardedTool(tool.name, given, ctx.reply_bytes, ctx.lean)
        return self._ask(replica, call, get_type_hints(tool.fn)["return"], _Asking(ctx), proc_id)

    def _gathered(self, ctx: Context, tool: ToolDef, arguments: dict[str, Any]) -> object:
        result = tool.fn(ctx, **arguments)
        for replica in self._rows().with_programs(ctx.session.principal, ctx.session.session_id)[:_MOST_ASKED]:
            try:
                result.join(self._forwarded(replica, ctx, tool, arguments))  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] - whoever gathers can be joined
            except (ProcessGone, ReplicaUnreachable) as exc:
                ctx.notes.append(f"Not listed: {exc.message}.")
        return result

    # --- pages -----------------------------------------------------------------------------------

    def programs(self, session: Session, principal: str | None) -> list[ShownProgram]:
        """What runs in other replicas, of one principal or of all; those that don't answer are left out."""
        with suppress(LlmcError):
            asked = [one for one in self._rows().with_programs(principal) if not one.is_over][:_MOST_ASKED]
            if not asked:
                return []
            until = time.monotonic() + _LIST_S

            def ask(replica: ReplicaRow) -> list[ShownProgram]:
                with suppress(LlmcError):
                    return self._ask(replica, ForwardedList(), list[ShownProgram], _Asking.until(session, until))
                return []

            with ThreadPoolExecutor(len(asked)) as pool:
                return [one for found in pool.map(ask, asked) for one in found]
        return []

    def stop(self, session: Session, principal: str | None, proc_id: str, check: Callable[[], None]) -> ShownProgram:
        """End a program of another replica for a person; raises PROCESS_NOT_FOUND's kin where there is none."""
        found = self._rows().runs_for_person(proc_id, principal)
        if found is None:
            raise ProcessNotFound(f"there is no process {proc_id[:40]!r}")
        asking = _Asking.until(session, time.monotonic() + _AROUND_S, check)
        return self._ask(found[0], ForwardedStop(proc_id), ShownProgram, asking, proc_id)

    # --- the request -----------------------------------------------------------------------------

    def _ask(self, replica: ReplicaRow, call: Forwarded, answer: Any, asking: "_Asking", proc_id: str = "") -> Any:
        """What another replica answers, or its error."""
        if replica.is_over:
            self._gone(replica, proc_id)
        if not is_usable(replica.url):
            raise ReplicaUnreachable(f"{replica.url[:200]!r} is no address of a replica", hint=_HINT)
        body = msgspec.json.encode(call)
        claims = claims_for(replica.id, self.now(), body, asking.session, asking.correlation_id, asking.agreed)
        most = self._gate.app.config.limits.max_reply_bytes_cap * 2 + _BEYOND_REPLY

        def look() -> None:
            with suppress(FeatureUnavailable):  # without the store nobody knows; the wait goes on
                now = self._rows().find(replica.id)
                if now is None or now.is_over:
                    self._gone(replica, proc_id)

        try:
            reply = post(replica.url, signed(claims, replica.key), body, most, asking.check, look)
        except NotReached as exc:
            if not self._lives(replica, asking.check):
                self._gone(replica, proc_id)
            maybe = "; the call may have been made" if exc.sent else ""
            raise ReplicaUnreachable(
                f"the replica that runs the process does not answer at {replica.url}: {exc}{maybe}", hint=_HINT
            ) from None
        if not proves(reply.proof, replica.key, claims.nonce, reply.status, reply.body):
            raise ReplicaUnreachable(
                f"what answers at {replica.url} is not the replica that runs the process (HTTP {reply.status})",
                hint=_HINT,
            )
        return _read(reply, answer)

    def _lives(self, replica: ReplicaRow, check: Callable[[], None]) -> bool:
        """Whether a replica that does not answer still has a heartbeat; waits for the next one."""
        began = time.monotonic()
        while True:
            now = self._rows().find(replica.id)
            passed = time.monotonic() - began
            if now is None:
                return False
            if now.silent_s < passed:
                return True
            if passed > 2 * BEAT_S + 1:
                return False
            check()
            time.sleep(BEAT_S / 20)

    def _gone(self, replica: ReplicaRow, proc_id: str) -> NoReturn:
        if proc_id:
            with suppress(LlmcError):
                self._rows().forget(proc_id)
        raise ProcessGone(
            f"the replica at {replica.url} has ended, and {f'the process {proc_id}' if proc_id else 'its programs'}"
            " with it",
            hint=_ENDED_HINT,
        )


class _Asking:
    """Who asks another replica, and what may end the wait."""

    def __init__(self, ctx: Context) -> None:
        self.session, self.correlation_id, self.agreed = ctx.session, ctx.correlation_id, ctx.agreed
        self.check = ctx.check

    @classmethod
    def until(cls, session: Session, when: float, check: Callable[[], None] = lambda: None) -> "_Asking":
        """For a page: a person has pressed the button, and waits no longer than until then."""
        made = cls.__new__(cls)
        made.session, made.correlation_id, made.agreed = session, "page", True

        def in_time() -> None:
            check()
            if time.monotonic() > when:
                raise FeatureUnavailable("a replica took too long to answer")

        made.check = in_time
        return made


def _read(reply: ReplicaReply, answer: Any) -> Any:
    if reply.status == 200:
        return msgspec.json.decode(reply.body, type=answer)
    raise error_from(msgspec.json.decode(reply.body, type=dict[str, str]))


def error_from(envelope: dict[str, str]) -> LlmcError:
    """The error that an envelope tells of."""
    code, message, hint = envelope["code"], envelope["message"], envelope.get("hint")
    if code == ApprovalRequired.code:
        return ApprovalRequired(message, approval_id=envelope.get("approval_id", ""), hint=hint)
    kinds = {BadArgs.code: BadArgs, **{kind.code: kind for kind in _kinds(LlmcError) if kind.code != BadArgs.code}}
    return kinds.get(code, LlmcError)(message, hint=hint)


def _kinds(kind: type[LlmcError]) -> Sequence[type[LlmcError]]:
    return [kind, *(one for below in kind.__subclasses__() for one in _kinds(below))]


def is_replica(app: App) -> bool:
    """Whether other servers may share this one's store."""
    return app.config.store.url != SQLITE
