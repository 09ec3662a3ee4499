"""A server on a real port, and clients for it."""

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2 as httpx

from .client import PATIENCE, exit_code
from .forked import HTTP, ForkedServer

TOKEN = "test-token-0123456789abcdef"
# Plain HTTP needs none, but each client would load the machine's authorities: a quarter of what a server's start takes.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
OPEN_HANDED = ("--set", "limits.rate_limit_rps=10000", "--set", "limits.rate_limit_burst=10000")


class HttpServer:
    """A server process that listens on a free port of loopback; `program` runs instead of the server's own."""

    def __init__(
        self,
        root: Path,
        *arguments: str,
        env: dict[str, str] | None = None,
        token: str | None = TOKEN,
        program: tuple[str, ...] = (),
    ) -> None:
        environment = {**os.environ, **({"LLMC_MCP_TOKEN": token} if token else {}), **(env or {})}
        arguments = ("--transport", "http", "--port", "0", "--root", str(root), *arguments)
        self.process: subprocess.Popen[str] = (
            subprocess.Popen(
                [sys.executable, *program, *arguments], stderr=subprocess.PIPE, env=environment, cwd=root, text=True
            )
            if program
            else ForkedServer(HTTP, list(arguments), stderr=subprocess.PIPE, env=environment, cwd=root, text=True)
        )
        self.token = token
        self._lines: list[str] = []
        self._listening = threading.Event()
        self.url = ""
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        assert self._listening.wait(PATIENCE), f"the server does not listen:\n{self.log}"
        assert self.url, f"the server ended:\n{self.log}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def _read_log(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self._lines.append(line)
            if found := re.search(r"listening on (http://\S+);", line):
                self.url = found[1]
                self._listening.set()
        self._listening.set()

    @property
    def log(self) -> str:
        """What the server wrote to stderr so far."""
        return "".join(self._lines)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The JSON lines of the log."""
        return [json.loads(line) for line in self._lines if line.startswith("{")]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send it a signal to stop; returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = exit_code(self.process)
        self._reader.join(PATIENCE)
        assert self.process.stderr
        self.process.stderr.close()
        return code

    def client(self, token: str | None = None, **options: Any) -> httpx.Client:
        """An HTTP client with the server's token or another one; an empty token means none."""
        chosen = self.token if token is None else token
        headers = {"X-LLMC-Token": chosen} if chosen else {}
        options = {"timeout": PATIENCE, "trust_env": False, "verify": NO_TLS, **options}
        return httpx.Client(base_url=self.url, headers=headers, **options)

    def tool(self, name: str, /, **arguments: Any) -> httpx.Response:
        """Call a tool by REST."""
        with self.client() as client:
            return client.post("/tool", json={"session_id": "S", "name": name, "args": arguments})

    def raw(self, *parts: bytes) -> bytes:
        """Send bytes; returns what the server answers until it closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as connection:
            for part in parts:
                connection.sendall(part)
            answer = b""
            while piece := connection.recv(65_536):
                answer += piece
            return answer

    def sent(self, data: bytes) -> bytes:
        """Send bytes and close the sending side; returns what the server answers."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as connection:
            answer = b""
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                while piece := connection.recv(65_536):
                    answer += piece
            except ConnectionError:
                pass  # the server closed the connection before it read everything
            return answer


def endless(root: Path) -> dict[str, Any]:
    """Arguments of a read_file that runs until it is cancelled: the requested line never comes."""
    path = root / "endless.txt"
    path.write_bytes(b"text\n" * 20_000)
    os.truncate(path, 1 << 40)  # a sparse file: endless, but without disk space
    return {"path": "endless.txt", "offset_lines": 10**12}


UNHURRIED = ("--set", "tools.read_timeout=600")
