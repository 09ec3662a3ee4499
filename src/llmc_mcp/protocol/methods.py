"""MCP methods as plain payloads: the only place that knows what the protocol calls things.

Two eras are served, request by request. The handshake era (2024-11-05 to 2025-11-25) opens with `initialize`.
The stateless era (2026-07-28) has no handshake: each request carries its protocol version in `_meta`, and each
result says that it is complete. A request with neither is served as the handshake era would.
"""

import re
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import msgspec

from .. import __version__
from ..context import Ask, Context, Progress, UserAnswer, UserQuestion
from ..errors import Internal, LlmcError, NotFound, Unprocessable
from ..gate.dispatch import Gate
from ..gate.log import correlation_id
from ..session import Session
from ..tool import TaskSupport
from ..tools.introduction import instructions
from .jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
    SERVER_ERROR,
    UNSUPPORTED_VERSION,
    Params,
    ProtocolError,
)
from .request import CAPABILITIES_KEY, LONGEST_URI, TASKS, TASKS_VERSION, VERSION_KEY, Abilities, Request, abilities

if TYPE_CHECKING:
    from .background import BackgroundCall, CallOwner
    from .completion import Completion
    from .long_calls import LongCalls
    from .prompts import Prompts
    from .resources import ResourceReader

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS_VERSIONS = ("2026-07-28",)

_CLIENT_KEY = "io.modelcontextprotocol/clientInfo"
_SERVER_KEY = "io.modelcontextprotocol/serverInfo"
_REPLY_BYTES_KEY = "llmc/maxReplyBytes"
_ABOUT_CALLER = {
    "llmc/agentId": "agent_id",
    "llmc/sessionId": "session_id",
    "llmc/model": "model",
    "llmc/budgetProfile": "budget_profile",
}

_LIST_TTL_MS = 300_000  # what is offered never changes while the server runs
_READ_TTL_MS = 0  # what is read may
_PAGE = 100  # entries of a list
_SERVER_INFO = {"name": "llmc-mcp", "version": __version__}
_CAPABILITIES: dict[str, Any] = {
    "tools": {"listChanged": False},
    "resources": {"subscribe": False, "listChanged": False},
    "prompts": {"listChanged": False},
    "completions": {},
}
CORE_TASKS: Params = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
_QUICK = frozenset(
    {
        *("initialize", "ping", "tools/list", "prompts/list", "resources/templates/list", "server/discover"),
        *("tasks/get", "tasks/list", "tasks/cancel", "tasks/update"),
    }
)
_MAY_ASK_TOO = frozenset({"prompts/get", "resources/read"})  # what is no call, and runs tools all the same
_HANDSHAKE_ONLY = frozenset({"initialize", "ping", "tasks/list", "tasks/result"})
_STATELESS_ONLY = frozenset({"server/discover", "tasks/update"})
_PLAIN_WORD = re.compile(r"[A-Za-z0-9._:@/+ -]{1,128}")
_NO_PLAIN_WORD = re.compile(r"[^A-Za-z0-9._:@/+ -]")

Outcome = TypeVar("Outcome")


class CallFacts(NamedTuple):
    """What a tool says of its calls beyond arguments and result."""

    task_support: TaskSupport | None
    may_ask: bool


class Methods:
    """Answers requests; stateless but for the gate behind it and the calls that outlive their requests."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._making = threading.Lock()
        self._made: LongCalls | None = None  # its modules are loaded when the first call needs them
        self._handlers: dict[str, Callable[[Request], Params]] = {
            "initialize": self._initialize,
            "ping": lambda _: {},
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
            "server/discover": self._discover,
            "tasks/get": self._get_task,
            "tasks/list": self._list_tasks,
            "tasks/result": self._task_result,
            "tasks/cancel": self._cancel_task,
            "tasks/update": self._update_task,
        }

    @property
    def names(self) -> tuple[str, ...]:
        """The methods that are served."""
        return tuple(self._handlers)

    def input_schema(self, tool: str) -> Params | None:
        """The schema of a tool's arguments; None where there is no such tool."""
        found = self._gate.catalog.tools.get(tool)
        return found.input_schema() if found is not None else None

    def may_ask(self, method: object, params: Params, session: Session | None = None) -> bool:
        """Whether a request may put a question to the user while it is under way."""
        name: object = params.get("name")
        if method == "tools/call":
            return isinstance(name, str) and self.call_facts(name, session).may_ask
        return method == "tasks/result" or (method in _MAY_ASK_TOO and bool(self._gate.app.config.policy.rules))

    def is_quick(self, method: str) -> bool:
        """Whether a method answers at once, so that a transport need not hand it to a worker."""
        return method in _QUICK or method not in self._handlers

    def takes_long(self, method: str, params: Params) -> bool:
        """Whether a request may take long, as its tool says."""
        name: object = params.get("name")
        tool = self._gate.catalog.known(name) if method == "tools/call" and isinstance(name, str) else None
        return method == "tasks/result" or (tool is not None and tool.takes_long)

    def answer(self, request: Request) -> Params:
        """The result of a request, or a ProtocolError."""
        stateless = self._stateless(request.params.get("_meta"))
        handler = self._handlers.get(request.method)
        wrong_era = _HANDSHAKE_ONLY if stateless else _STATELESS_ONLY
        if handler is None or request.method in wrong_era:
            raise ProtocolError(METHOD_NOT_FOUND, f"method not found: {request.method[:100]}")
        if stateless and request.method in _MAY_ASK_TOO and self._asks_on_the_way(request):
            return self._complete_result(self._asking(request), stateless)
        return self._complete_result(handler(request), stateless)

    def _asks_on_the_way(self, request: Request) -> bool:
        """Whether a request that is no call may have to ask: a rule can make the tools behind it do so."""
        client = abilities(request)
        return "requestState" in request.params or (
            bool(client.answers) and self.may_ask(request.method, request.params)
        )

    def _asking(self, request: Request) -> Params:
        return (
            self._long_calls.resume(request, None)
            if "requestState" in request.params
            else self._long_calls.run(request, None)
        )

    def give_up(self, request: Request, ctx: Context | None, error: LlmcError) -> Params:
        """The result of a request whose handler does not come back; a ProtocolError for anything but a tool call."""
        tool = str(request.params.get("name", ""))[:64]
        self._gate.give_up(ctx, error, request.correlation_id, method=request.method[:64], tool=tool)
        if request.method != "tools/call":
            raise ProtocolError(SERVER_ERROR, error.message, error.envelope(request.correlation_id))
        failed = _tool_failure(error, request.correlation_id)
        return self._complete_result(failed, self._stateless(request.params.get("_meta")))

    def _complete_result(self, result: Params, stateless: bool) -> Params:
        return {"resultType": "complete", **result, "_meta": {_SERVER_KEY: _SERVER_INFO}} if stateless else result

    def close(self) -> None:
        """End the calls that no request waits for."""
        if self._made is not None:
            self._made.close()

    def _stateless(self, meta: object) -> bool:
        """Whether a request belongs to the stateless era; refuses a half-made or unknown envelope."""
        if not isinstance(meta, dict) or VERSION_KEY not in meta:
            return False
        fields = cast(Params, meta)
        version: object = fields[VERSION_KEY]
        if not isinstance(version, str):
            raise ProtocolError(INVALID_PARAMS, f"_meta[{VERSION_KEY!r}] must be a string")
        if version not in STATELESS_VERSIONS:
            known = {"supported": list(STATELESS_VERSIONS), "requested": version[:100]}
            raise ProtocolError(UNSUPPORTED_VERSION, "unsupported protocol version", known)
        if not isinstance(fields.get(CAPABILITIES_KEY), dict):
            raise ProtocolError(INVALID_PARAMS, f"_meta[{CAPABILITIES_KEY!r}] is missing")
        return True

    def _initialize(self, request: Request) -> Params:
        requested: object = request.params.get("protocolVersion")
        if not isinstance(requested, str):
            raise ProtocolError(INVALID_PARAMS, "protocolVersion is missing")
        version = requested if requested in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
        return {
            "protocolVersion": version,
            "capabilities": {**_CAPABILITIES, "tasks": CORE_TASKS} if version == TASKS_VERSION else _CAPABILITIES,
            "serverInfo": _SERVER_INFO,
            "instructions": instructions(self._gate.app, self._gate.catalog),
        }

    def _discover(self, request: Request) -> Params:
        del request
        return {
            "supportedVersions": [*STATELESS_VERSIONS, *HANDSHAKE_VERSIONS],
            "capabilities": {**_CAPABILITIES, "extensions": {TASKS: {}}},
            "instructions": instructions(self._gate.app, self._gate.catalog),
            **_cacheable(),
        }

    # --- tools -----------------------------------------------------------------------------------

    def _list_tools(self, request: Request) -> Params:
        if request.params.get("cursor") is not None:
            raise ProtocolError(INVALID_PARAMS, "unknown cursor: the tool list is a single page")
        listed = self._gate.visible(request.session)
        if request.peer.version == TASKS_VERSION and not self._stateless(request.meta):  # the one version with the word
            listed = [self._with_task_support(entry) for entry in listed]
        return {"tools": listed, **self._cacheable(request)}

    def _with_task_support(self, entry: Params) -> Params:
        support = self.call_facts(entry["name"]).task_support
        return entry if support is None else {**entry, "execution": {"taskSupport": support}}

    def call_facts(self, name: str, session: Session | None = None) -> CallFacts:
        """What the tool of a call says of itself, and whether a rule makes its calls ask."""
        tool = self._gate.catalog.known(name)
        if tool is None:
            return CallFacts(None, False)
        return CallFacts(tool.task_support, self._gate.may_ask(session, tool) if session else tool.may_ask)

    def _call_tool(self, request: Request) -> Params:
        params = request.params
        name: object = params.get("name")
        if not isinstance(name, str):
            raise ProtocolError(INVALID_PARAMS, "tools/call needs the name of a tool")
        facts, client = self.call_facts(name, request.session), abilities(request)
        if self._stateless(params.get("_meta")):
            if "requestState" in params:
                return self._long_calls.resume(request, facts.task_support)
            if facts.task_support == "required" or self._may_take_long(facts, client):
                return self._long_calls.run(request, facts.task_support)
        elif "task" in params and client.has_tasks:
            return self._long_calls.create(request, facts.task_support)
        return self.run_tool(request, self._context(request, ask=request.ask if client.answers else None))

    def _may_take_long(self, facts: CallFacts, client: Abilities) -> bool:
        return (client.has_tasks and facts.task_support is not None) or (bool(client.answers) and facts.may_ask)

    def run_tool(self, request: Request, ctx: Context) -> Params:
        """The result of a call, which an error of the tool is as well."""
        name, arguments = request.params["name"], request.params.get("arguments")
        try:
            rendered = self._gate.reply(ctx, name, arguments, reply_bytes=_reply_bytes(request))
        except LlmcError as exc:
            return _tool_failure(exc, ctx.correlation_id)
        content: list[Params] = [{"type": "text", "text": rendered.text}]
        if rendered.image:
            content.append({"type": "image", "data": rendered.image.data, "mimeType": rendered.image.mime_type})
        return {"content": content, "isError": False}

    # --- tasks -----------------------------------------------------------------------------------

    @property
    def _long_calls(self) -> "LongCalls":
        with self._making:
            if self._made is None:
                from .long_calls import LongCalls

                self._made = LongCalls(self._gate, self._begin, self._owner)
            return self._made

    def _begin(self, request: Request, call: "BackgroundCall", can_ask: bool) -> None:
        def ask(ctx: Context, questions: Sequence[UserQuestion]) -> list[UserAnswer | None]:
            with self._gate.limits.set_aside(ctx.session):
                return call.ask(ctx, questions)

        progress = msgspec.structs.replace(request, progress=call.send_progress)
        ctx = self._context(progress, ask=ask if can_ask else None)
        call.start(lambda: self._run(request, ctx), ctx, lambda: self._gate.log.exception("request_failed"))

    def _run(self, request: Request, ctx: Context) -> Params:
        """Answer in a context that is there already."""
        if request.method == "prompts/get":
            return self.get_prompt(request, ctx)
        if request.method == "resources/read":
            return self.read_resource(request, ctx)
        return self.run_tool(request, ctx)

    def _owner(self, request: Request) -> "CallOwner":
        from .background import CallOwner

        stated = self.session_of(request.session, request.meta)
        return CallOwner(request.session.principal, request.session.session_id, stated.session_id)

    def _get_task(self, request: Request) -> Params:
        return self._tasks(request).get(request, stateless=self._stateless(request.params.get("_meta")))

    def _list_tasks(self, request: Request) -> Params:
        return self._paged(request, "tasks", self._tasks(request).list_tasks(request))

    def _task_result(self, request: Request) -> Params:
        return self._tasks(request).wait_for_result(request, self._context(request))

    def _cancel_task(self, request: Request) -> Params:
        return self._tasks(request).cancel(request, stateless=self._stateless(request.params.get("_meta")))

    def _update_task(self, request: Request) -> Params:
        return self._tasks(request).update(request)

    def _tasks(self, request: Request) -> "LongCalls":
        """For a client that has tasks; any other hears what it lacks."""
        if abilities(request).has_tasks:
            return self._long_calls
        if not self._stateless(request.params.get("_meta")):
            raise ProtocolError(METHOD_NOT_FOUND, f"{request.method} needs protocol version {TASKS_VERSION}")
        from .long_calls import missing_tasks

        raise missing_tasks()

    # --- resources, prompts, completion ----------------------------------------------------------

    @cached_property
    def _resources(self) -> "ResourceReader":
        from .resources import ResourceReader

        return ResourceReader(self._gate)

    @cached_property
    def _prompts(self) -> "Prompts":
        from .prompts import Prompts

        return Prompts(self._gate)

    @cached_property
    def _completion(self) -> "Completion":
        from .completion import Completion

        return Completion(self._gate, self._resources, self._prompts)

    def _list_resources(self, request: Request) -> Params:
        return self._paged(request, "resources", self._resources.listed(request.session))

    def _list_templates(self, request: Request) -> Params:
        return self._paged(request, "resourceTemplates", self._resources.templates(request.session))

    def _read_resource(self, request: Request) -> Params:
        return self.read_resource(request, self._context(request, self._ask_of(request)))

    def read_resource(self, request: Request, ctx: Context) -> Params:
        """The contents of a resource."""
        from .resources import as_contents

        uri = request.params.get("uri")
        content = self._through_gate(request, lambda ctx: self._resources.read(ctx, uri, _reply_bytes(request)), ctx)
        return {"contents": as_contents(content), **self._cacheable(request, _READ_TTL_MS)}

    def _list_prompts(self, request: Request) -> Params:
        return self._paged(request, "prompts", self._prompts.listed(request.session))

    def _get_prompt(self, request: Request) -> Params:
        return self.get_prompt(request, self._context(request, self._ask_of(request)))

    def get_prompt(self, request: Request, ctx: Context) -> Params:
        """The text of a prompt."""
        name, arguments = request.params.get("name"), request.params.get("arguments")
        prompt = self._through_gate(request, lambda ctx: self._prompts.get(ctx, name, arguments), ctx)
        messages = [{"role": "user", "content": {"type": "text", "text": prompt.text}}]
        return {"description": prompt.description, "messages": messages}

    def _complete(self, request: Request) -> Params:
        params = request.params
        found = self._through_gate(
            request, lambda ctx: self._completion.complete(ctx, params.get("ref"), params.get("argument"))
        )
        counted = {} if found.total is None else {"total": found.total}
        return {"completion": {"values": found.values, **counted, "hasMore": found.has_more}}

    def _ask_of(self, request: Request) -> Ask | None:
        """How to ask the client of a handshake-era request, if it can be asked."""
        return request.ask if request.peer.answers else None

    def _through_gate(self, request: Request, ask: Callable[[Context], Outcome], ctx: Context | None = None) -> Outcome:
        """Answer through the gate; a failure becomes a protocol error with our envelope as its data."""
        ctx = ctx or self._context(request)
        try:
            return ask(ctx)
        except LlmcError as exc:
            code = SERVER_ERROR
            if isinstance(exc, NotFound) and request.method == "resources/read" and not self._stateless(request.meta):
                code = RESOURCE_NOT_FOUND
            elif isinstance(exc, NotFound | Unprocessable):
                code = INVALID_PARAMS
            elif isinstance(exc, Internal):
                code = INTERNAL_ERROR
            uri: object = request.params.get("uri")
            named = {"uri": uri} if isinstance(uri, str) and len(uri) <= LONGEST_URI else {}
            raise ProtocolError(code, exc.message, {**exc.envelope(ctx.correlation_id), **named}) from None

    def _paged(self, request: Request, what: str, entries: Sequence[Params]) -> Params:
        cursor: object = request.params.get("cursor")
        start = 0
        if cursor is not None:
            if not isinstance(cursor, str) or not re.fullmatch(r"after-[1-9]\d{0,8}", cursor):
                raise ProtocolError(INVALID_PARAMS, "unknown cursor")
            start = int(cursor.removeprefix("after-"))
        page: Params = {what: list(entries[start : start + _PAGE]), **self._cacheable(request)}
        if len(entries) > start + _PAGE:
            page["nextCursor"] = f"after-{start + _PAGE}"
        return page

    def _cacheable(self, request: Request, ttl_ms: int = _LIST_TTL_MS) -> Params:
        return _cacheable(ttl_ms) if self._stateless(request.params.get("_meta")) else {}

    # --- the caller ------------------------------------------------------------------------------

    def _context(self, request: Request, ask: Ask | None = None) -> Context:
        meta = request.meta
        ctx = self._gate.context(
            self.session_of(request.session, meta),
            request.correlation_id or correlation_id(),
            _progress(meta.get("progressToken"), request.progress),
            ask,
            abilities(request).answers,
        )
        request.attach(ctx)
        return ctx

    def session_of(self, session: Session, meta: Params) -> Session:
        """The caller, by what the call's own `_meta` says: the client's name, then our own keys."""
        if not meta:
            return session
        session = introduced(session, meta.get(_CLIENT_KEY))
        stated: dict[str, str] = {}
        for key, field in _ABOUT_CALLER.items():
            value: object = meta.get(key)
            if value is None:
                continue
            if not isinstance(value, str) or not _PLAIN_WORD.fullmatch(value):
                raise ProtocolError(INVALID_PARAMS, f"_meta[{key!r}] is a plain word of at most 128 characters")
            stated[field] = value
        return msgspec.structs.replace(session, **stated) if stated else session


def _tool_failure(error: LlmcError, cid: str) -> Params:
    envelope = msgspec.json.encode(error.envelope(cid)).decode()
    return {"content": [{"type": "text", "text": envelope}], "isError": True}


def introduced(session: Session, client: object) -> Session:
    """A session of a client that gave its name (`clientInfo`); without a name it stays as it is."""
    name = client_name(client)
    return msgspec.structs.replace(session, agent_id=name) if name else session


def client_name(client: object) -> str:
    """What a client calls itself in `clientInfo`, as a plain word; empty where it doesn't."""
    name: object = cast(Params, client).get("name") if isinstance(client, dict) else None
    return _NO_PLAIN_WORD.sub("", name)[:128].strip() if isinstance(name, str) else ""


def _reply_bytes(request: Request) -> int | None:
    requested: object = request.meta.get(_REPLY_BYTES_KEY)
    return requested if isinstance(requested, int) else None


def _cacheable(ttl_ms: int = _LIST_TTL_MS) -> Params:
    return {"ttlMs": ttl_ms, "cacheScope": "private"}


def _progress(token: object, send: Callable[[Params], None]) -> Callable[[Progress], None] | None:
    if not isinstance(token, str | int) or isinstance(token, bool):
        return None

    def report(progress: Progress) -> None:
        total = {} if progress.total is None else {"total": progress.total}
        send({"progressToken": token, "progress": progress.done, **total, "message": progress.doing})

    return report
