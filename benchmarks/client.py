"""A raw MCP client on stdio: newline-delimited JSON-RPC, nothing else on the way, so that times are the server's."""

import json
import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PROTOCOL = "2025-06-18"
_READ = 1 << 18


class ClientError(Exception):
    """The server ended, kept silent or answered with an error."""


class Client:
    """One server process; `with` ends it."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: Path, timeout: float = 120) -> None:
        pipe = subprocess.PIPE
        # bufsize=0: each request is one write(), and replies are read by readline() below.
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=env, cwd=cwd, bufsize=0
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout.fileno()
        self._buffer = bytearray()
        self._timeout = timeout
        self._last_id = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        """The `result` of a request; what the server says in between is skipped."""
        self._last_id += 1
        self._send({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params or {}})
        while True:
            message = json.loads(self._readline())
            # A request of the server may carry the same id as ours.
            if message.get("id") != self._last_id or "method" in message:
                continue
            if "error" in message:
                raise ClientError(f"{method}: {message['error']}")
            return message["result"]

    def initialize(self) -> Any:
        who = {"name": "benchmarks", "version": "1"}
        hello = self.request("initialize", {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": who})
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return hello

    def ping(self) -> None:
        self.request("ping")

    def list_tools(self) -> list[dict[str, Any]]:
        tools: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            page = self.request("tools/list", {"cursor": cursor} if cursor else {})
            tools += page["tools"]
            cursor = page.get("nextCursor")
            if not cursor:
                return tools

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """The text of a tool's reply; a failed call raises."""
        reply = self.request("tools/call", {"name": name, "arguments": arguments})
        text = "\n".join(part["text"] for part in reply["content"] if part["type"] == "text")
        if reply.get("isError"):
            raise ClientError(f"{name}: {text}")
        return text

    def send_call(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Call a tool, and wait for nothing."""
        self._last_id += 1
        call = {"name": name, "arguments": arguments}
        self._send({"jsonrpc": "2.0", "id": self._last_id, "method": "tools/call", "params": call})

    def close(self) -> None:
        """Close its input, as clients do; kill what does not leave by itself."""
        self._in.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, message: Mapping[str, Any]) -> None:
        self._in.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    def _readline(self) -> bytes:
        deadline = time.monotonic() + self._timeout
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if not select.select([self._out], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise ClientError(f"no answer within {self._timeout:g} s")
            piece = os.read(self._out, _READ)
            if not piece:
                raise ClientError("the server ended")
            self._buffer += piece
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line
