"""A stand-in for a model behind Claude Code: it asks for one Bash command, and remembers what came back."""

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast


class ScriptedModel:
    """Its answers, and the results of tools that it was sent."""

    def __init__(self, command: str) -> None:
        self._command = command
        self.results: list[str] = []

    def answer(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """The events of the next message."""
        contents = [message["content"] for message in request["messages"] if isinstance(message["content"], list)]
        blocks = [block for content in contents for block in cast("list[dict[str, Any]]", content)]
        self.results = [_text(block["content"]) for block in blocks if block["type"] == "tool_result"]
        if self.results or not any(tool.get("name") == "Bash" for tool in request.get("tools", ())):
            return _message(request, {"type": "text", "text": ""}, {"type": "text_delta", "text": "done"}, "end_turn")
        call: dict[str, Any] = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}
        given = json.dumps({"command": self._command, "description": "look"})
        return _message(request, call, {"type": "input_json_delta", "partial_json": given}, "tool_use")


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _message(
    request: dict[str, Any], block: dict[str, Any], delta: dict[str, Any], reason: str
) -> list[dict[str, Any]]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": request["model"]}
    message |= {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]


@contextmanager
def served(model: ScriptedModel) -> Generator[str]:
    """The model on a loopback port; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers.get("content-length", "0"))) or b"{}")
            if not self.path.startswith("/v1/messages?") and self.path != "/v1/messages":
                self._send("application/json", b"{}")
                return
            events = model.answer(request)
            text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
            self._send("text/event-stream", text.encode())

        def do_GET(self) -> None:
            self._send("application/json", b"{}")

        def _send(self, kind: str, body: bytes) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
