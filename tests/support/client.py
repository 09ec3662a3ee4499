"""A raw MCP client for tests: one server process on pipes, one line per message, nothing hidden."""

import json
import os
import queue
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from .forked import STDIO, ForkedServer

PATIENCE = 30.0  # seconds that a test waits before it calls a server hung; no test measures time
UNASKED = ("--set", "policy.ask=[]")  # for tests of what calls do, not of whether a person agrees


def exit_code(process: "subprocess.Popen[bytes] | subprocess.Popen[str]") -> int:
    """The exit code of a process that should end; one that hangs is killed and fails the test."""
    try:
        return process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise


class Reply:
    """The reply to a tool call."""

    def __init__(self, result: dict[str, Any]) -> None:
        self.result = result
        self.is_error: bool = result.get("isError", False)
        self.text: str = result["content"][0].get("text", "")

    @property
    def meta(self) -> dict[str, Any]:
        """The first line of a lean reply, a whole JSON reply, or an error's envelope."""
        return json.loads(self.text.split("\n", 1)[0])

    @property
    def body(self) -> str:
        """What follows the first line of a lean reply."""
        return self.text.partition("\n")[2]

    @property
    def code(self) -> str:
        """The error code; empty for a success."""
        return self.meta["code"] if self.is_error else ""


class Client:
    """A server process and the conversation with it."""

    def __init__(self, *arguments: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> None:
        self.process: subprocess.Popen[bytes] = ForkedServer(
            STDIO,
            list(arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(env or {})},
            cwd=cwd,
        )
        self.messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.notifications: list[dict[str, Any]] = []
        self.raw_lines: list[bytes] = []
        self._stray: dict[object, dict[str, Any]] = {}
        self._log: list[bytes] = []
        self._last_id = 0
        self._threads = [
            threading.Thread(target=self._read_messages, daemon=True),
            threading.Thread(target=self._read_log, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    @property
    def log(self) -> str:
        """What the server wrote to stderr so far."""
        return b"".join(self._log).decode("utf-8", "replace")

    def close(self) -> int:
        """Close the connection and return the exit code."""
        assert self.process.stdin
        assert self.process.stdout
        assert self.process.stderr
        if not self.process.stdin.closed:
            try:
                self.process.stdin.close()
            except BrokenPipeError:
                pass
        code = exit_code(self.process)
        for thread in self._threads:
            thread.join(PATIENCE)
        self.process.stdout.close()
        self.process.stderr.close()
        return code

    def send_raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        assert self.process.stdin
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, message: dict[str, Any]) -> None:
        """Send one message as a line."""
        self.send_raw(json.dumps(message).encode() + b"\n")

    def start(self, method: str, params: dict[str, Any] | None = None) -> int:
        """Send a request without waiting; returns its id."""
        self._last_id += 1
        self.send({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params or {}})
        return self._last_id

    def wait(self, request_id: object, patience: float = PATIENCE) -> dict[str, Any]:
        """The reply with this id; others that come first are kept, notifications collected."""
        while request_id not in self._stray:
            message = self.messages.get(timeout=patience)
            if message is None:
                raise EOFError(f"the server ended; its log:\n{self.log}")
            if "method" in message:
                self.notifications.append(message)
            else:
                self._stray[message.get("id")] = message
        return self._stray.pop(request_id)

    def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """The whole JSON-RPC reply to a request."""
        return self.wait(self.start(method, params))

    def start_call(self, name: str, arguments: dict[str, Any], meta: dict[str, Any] | None = None) -> int:
        """Start a tool call; returns its id."""
        params: dict[str, Any] = {"name": name, "arguments": arguments}
        if meta is not None:
            params["_meta"] = meta
        return self.start("tools/call", params)

    def call(self, tool: str, /, **arguments: Any) -> Reply:
        """Call a tool and wait."""
        return Reply(self.wait(self.start_call(tool, arguments))["result"])

    def tools(self) -> list[dict[str, Any]]:
        """The tools that tools/list returns."""
        return self.request("tools/list")["result"]["tools"]

    def _read_messages(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.raw_lines.append(line)
            try:
                self.messages.put(json.loads(line))
            except ValueError:
                self.messages.put({"id": "not-json", "line": line.decode("utf-8", "replace")})
        self.messages.put(None)

    def _read_log(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self._log.append(line)
