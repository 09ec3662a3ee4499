"""Those who know the truth: language servers, asked for references, and Go's type checker."""

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from queue import Queue
from typing import Any, Self
from urllib.parse import unquote

Place = tuple[str, int]  # path below the folder, line from 1


class LanguageServer:
    """A language server on one folder, for the length of a `with` block."""

    def __init__(self, folder: Path, command: list[str], language: str, *, imports_are_declarations: bool) -> None:
        self._folder, self._language, self._declarations = folder.resolve(), language, imports_are_declarations
        env = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env
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

    def __enter__(self) -> Self:
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
                    "textDocument": {
                        "uri": uri,
                        "languageId": self._language,
                        "version": 1,
                        "text": file.read_text("utf-8", "replace"),
                    }
                },
            }
        )
        began = time.perf_counter()
        found = self._request(
            "textDocument/references",
            {
                "textDocument": {"uri": uri},
                "position": {"line": line - 1, "character": column},
                "context": {"includeDeclaration": self._declarations},
            },
        )
        took = time.perf_counter() - began
        self._send({"method": "textDocument/didClose", "params": {"textDocument": {"uri": uri}}})
        prefix = self._folder.as_uri() + "/"
        places = {
            (unquote(one["uri"].removeprefix(prefix)), one["range"]["start"]["line"] + 1)
            for one in found or ()
            if one["uri"].startswith(prefix)
        }
        return places, took

    def renamed(self, path: str, line: int, column: int, new: str) -> set[Place]:
        """The lines that a rename of the name at a place would change."""
        file = self._folder / path
        uri = file.as_uri()
        opened = {"uri": uri, "languageId": self._language, "version": 1, "text": file.read_text("utf-8", "replace")}
        self._send({"method": "textDocument/didOpen", "params": {"textDocument": opened}})
        position = {"line": line - 1, "character": column}
        asked = {"textDocument": {"uri": uri}, "position": position, "newName": new}
        edits: dict[str, Any] = self._request("textDocument/rename", asked) or {}
        self._send({"method": "textDocument/didClose", "params": {"textDocument": {"uri": uri}}})
        changes: dict[str, Any] = dict(edits.get("changes") or {})
        for document in edits.get("documentChanges") or ():
            changes[document["textDocument"]["uri"]] = document["edits"]
        prefix = self._folder.as_uri() + "/"
        return {
            (unquote(uri.removeprefix(prefix)), one["range"]["start"]["line"] + 1)
            for uri, some in changes.items()
            for one in some
        }

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


class Pyright(LanguageServer):
    """pyright on a folder of Python."""

    def __init__(self, folder: Path) -> None:
        settings = '{"typeCheckingMode": "off", "exclude": [], "extraPaths": ["src"]}'
        (folder / "pyrightconfig.json").write_text(settings)
        server = Path(sys.executable).with_name("pyright-langserver")
        super().__init__(folder, [str(server), "--stdio"], "python", imports_are_declarations=False)


class TypeScript(LanguageServer):
    """The server that comes with TypeScript 7; `program` is its tsc."""

    def __init__(self, folder: Path, program: str) -> None:
        super().__init__(folder, [program, "--lsp", "--stdio"], "typescript", imports_are_declarations=True)


def go_uses(folder: Path, program: str) -> dict[tuple[str, Place], set[Place]]:
    """The uses of each definition of a Go module, by its name and place."""
    found = re.search(r"^module\s+(\S+)", (folder / "go.mod").read_text(), re.M)
    assert found is not None
    script = Path(__file__).with_name("uses.go")
    with tempfile.TemporaryDirectory(prefix="go-") as cache:
        env = {**os.environ, "GOCACHE": cache, "GOPATH": cache, "GOFLAGS": "", "GO111MODULE": "off"}
        command = [program, "run", str(script), str(folder.resolve()), found[1]]
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
    uses: dict[tuple[str, Place], set[Place]] = {}
    for line in done.stdout.splitlines():
        name, definition, use = line.split("\t")
        uses.setdefault((name, _place(definition)), set()).add(_place(use))
    return uses


def _place(written: str) -> Place:
    path, _, line = written.rpartition(":")
    return path, int(line)
