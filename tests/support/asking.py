"""Clients that can be asked, on stdio and over HTTP, message by message."""

import json
import queue
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx2 as httpx

from .client import PATIENCE, Client, Reply
from .http_server import OPEN_HANDED, HttpServer

Message = dict[str, Any]

TASKS = "io.modelcontextprotocol/tasks"
ASKS: Message = {"elicitation": {}}
HAS_TASKS: Message = {"extensions": {TASKS: {}}}
ACCEPT: Message = {"action": "accept", "content": {}}
DECLINE: Message = {"action": "decline"}
CANCEL: Message = {"action": "cancel"}


def stateless(capabilities: Message | None = None) -> Message:
    """The `_meta` of a request of the stateless era."""
    return {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities or {},
    }


def initialize(capabilities: Message | None = None, version: str = "2025-11-25") -> Message:
    """The parameters of a handshake."""
    return {
        "protocolVersion": version,
        "capabilities": capabilities or {},
        "clientInfo": {"name": "test", "version": "1"},
    }


class StdioTalk:
    """A conversation with a server on pipes."""

    def __init__(self, client: Client, capabilities: Message | None = None, version: str = "2025-11-25") -> None:
        self.client = client
        self.server = client.request("initialize", initialize(capabilities, version))["result"]

    def start(self, method: str, params: Message) -> int:
        return self.client.start(method, params)

    def wait(self, request: int) -> Message:
        return self.client.wait(request)

    def request(self, method: str, params: Message) -> Message:
        return self.client.request(method, params)

    def heard(self, method: str) -> Message:
        """The next message of the server with this method."""
        for place, message in enumerate(self.client.notifications):
            if message["method"] == method:
                return self.client.notifications.pop(place)
        while True:
            message = self.client.messages.get(timeout=PATIENCE)
            assert message is not None, self.client.log
            if message.get("method") == method:
                return message
            assert "method" in message, message
            self.client.notifications.append(message)

    def reply(self, question: Message, **outcome: Any) -> None:
        """Answer a request of the server."""
        self.client.send({"jsonrpc": "2.0", "id": question["id"], **outcome})

    def cancel(self, request: int) -> None:
        self.client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request}})


class HttpTalk:
    """A conversation with a server over HTTP: each request in a thread, what is streamed in one place."""

    def __init__(
        self,
        served: HttpServer,
        capabilities: Message | None = None,
        version: str = "2025-11-25",
        token: str | None = None,
    ) -> None:
        self._http = served.client(token)
        self._headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": version}
        self._said: queue.Queue[Message] = queue.Queue()
        self._replies: dict[int, queue.Queue[Message]] = {}
        self._last_id = 0
        if version != "2026-07-28":
            handshake = self._message(initialize(capabilities, version))
            first = self._http.post("/mcp", json=handshake, headers=self._headers)
            self.server = first.json()["result"]
            self._headers["mcp-session-id"] = first.headers["mcp-session-id"]

    def __enter__(self) -> "HttpTalk":
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self._http.close()

    def _message(self, params: Message, method: str = "initialize") -> Message:
        self._last_id += 1
        return {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}

    def start(self, method: str, params: Message) -> int:
        message = self._message(params, method)
        headers = {**self._headers, "mcp-method": method}
        name = params.get("name") or params.get("taskId")
        if isinstance(name, str):
            headers["mcp-name"] = name
        replies = self._replies[message["id"]] = queue.Queue()
        threading.Thread(target=self._exchange, args=(message, headers, replies), daemon=True).start()
        return message["id"]

    def _exchange(self, message: Message, headers: dict[str, str], replies: "queue.Queue[Message]") -> None:
        try:
            with self._http.stream("POST", "/mcp", json=message, headers=headers) as response:
                if response.headers.get("content-type", "").startswith("text/event-stream"):
                    for line in response.iter_lines():
                        if line.startswith("data: "):
                            said = json.loads(line.removeprefix("data: "))
                            (self._said if "method" in said else replies).put(said)
                else:
                    replies.put(json.loads(response.read()))
        except (httpx.HTTPError, RuntimeError, ValueError) as exc:
            replies.put({"broken": repr(exc)})

    def wait(self, request: int) -> Message:
        return self._replies[request].get(timeout=PATIENCE)

    def request(self, method: str, params: Message) -> Message:
        return self.wait(self.start(method, params))

    def heard(self, method: str) -> Message:
        while True:
            message = self._said.get(timeout=PATIENCE)
            if message["method"] == method:
                return message

    def _post(self, message: Message) -> None:
        assert self._http.post("/mcp", json=message, headers=self._headers).status_code == 202

    def reply(self, question: Message, **outcome: Any) -> None:
        self._post({"jsonrpc": "2.0", "id": question["id"], **outcome})

    def cancel(self, request: int) -> None:
        self._post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request}})


Talk = StdioTalk | HttpTalk


def call(tool: str, meta: Message | None = None, /, **arguments: Any) -> Message:
    """The parameters of a tool call."""
    return {"name": tool, "arguments": arguments, **({"_meta": meta} if meta else {})}


def outcome(reply: Message) -> Reply:
    """The result of a call."""
    assert "result" in reply, reply
    return Reply(reply["result"])


@contextmanager
def talk_to(
    kind: str,
    root: Path,
    *settings: str,
    capabilities: Message | None = None,
    version: str = "2025-11-25",
) -> Generator[Talk]:
    """A conversation with a server of its own; `settings` as `--set` takes them."""
    arguments = [word for setting in settings for word in ("--set", setting)]
    if kind == "stdio":
        with Client("--root", str(root), *arguments) as client:
            yield StdioTalk(client, capabilities, "2025-11-25" if version == "2026-07-28" else version)
        return
    with HttpServer(root, *OPEN_HANDED, *arguments) as served, HttpTalk(served, capabilities, version) as talk:
        yield talk
