"""pyright's language server, asked for references: the judge."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from queue import Queue
from typing import Any

Place = tuple[str, int]  # path below the folder, line from 1


class Pyright:
    """A language server on one folder, for the length of a `with` block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        (self._folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "off", "exclude": []}')
        server = Path(sys.executable).with_name("pyright-langserver")
        env = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
        self._process = subprocess.Popen(
            [str(server), "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env
        )
        self._replies: dict[int, Queue[Any]] = {}
        self._sent = 0
        threading.Thread(target=self._listen, daemon=True).start()
        uri = self._folder.as_uri()
        self._request(
            "initialize",
            {
                "processId": os.getpid(),
                "rootUri": uri,
                "workspaceFolders": [{"uri": uri, "name": "x"}],
                "capabilities": {"workspace": {"configuration": True}},
            },
        )
        self._send({"method": "initialized", "params": {}})

    def __enter__(self) -> "Pyright":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def references(self, path: str, line: int, column: int) -> tuple[set[Place], float]:
        """Where the name at a place (lines from 1, columns from 0) is used; and the seconds that it took to say so."""
        file = self._folder / path
        uri = file.as_uri()
        self._send(
            {
                "method": "textDocument/didOpen",
                "params": {
                    "textDocument": {"uri": uri, "languageId": "python", "version": 1, "text": file.read_text("utf-8")}
                },
            }
        )
        began = time.perf_counter()
        found = self._request(
            "textDocument/references",
            {
                "textDocument": {"uri": uri},
                "position": {"line": line - 1, "character": column},
                "context": {"includeDeclaration": False},
            },
        )
        took = time.perf_counter() - began
        self._send({"method": "textDocument/didClose", "params": {"textDocument": {"uri": uri}}})
        prefix = self._folder.as_uri() + "/"
        places = {
            (one["uri"].removeprefix(prefix), one["range"]["start"]["line"] + 1)
            for one in found or ()
            if one["uri"].startswith(prefix)
        }
        return places, took

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._process.stdin.flush()

    def _request(self, method: str, params: dict[str, Any]) -> Any:
        self._sent += 1
        reply = self._replies[self._sent] = Queue()
        self._send({"id": self._sent, "method": method, "params": params})
        return reply.get(timeout=300)

    def _listen(self) -> None:
        stream = self._process.stdout
        assert stream is not None
        while header := stream.readline():
            size = 0
            while header.strip():
                name, _, value = header.partition(b":")
                size = int(value) if name.lower() == b"content-length" else size
                header = stream.readline()
            message = json.loads(stream.read(size))
            if "method" in message and "id" in message:  # it asks for its settings
                items = message.get("params", {}).get("items", [])
                settings = {"analysis": {"autoSearchPaths": True, "diagnosticMode": "openFilesOnly"}}
                answer = [settings if "python" in (item.get("section") or "") else {} for item in items]
                self._send({"id": message["id"], "result": answer if items else None})
            elif message.get("id") in self._replies:
                self._replies[message["id"]].put(message.get("result"))
