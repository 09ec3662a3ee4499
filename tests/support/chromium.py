"""A real Chromium without a window, driven by the DevTools protocol over pipes: no driver, no port."""

import json
import os
import shutil
import subprocess
import tempfile
from types import TracebackType
from typing import Any

from .client import PATIENCE
from .workspace import require

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-dev-shm-usage", "--no-proxy-server", "--remote-debugging-pipe", "about:blank"),
)


class Chromium:
    """A browser with one page."""

    def __init__(self) -> None:
        program = shutil.which("chromium") or ""
        require(bool(program), "chromium (apt-get install chromium)")
        self._profile = tempfile.TemporaryDirectory(prefix="chromium-")
        to_read, self._out = os.pipe()
        self._in, to_write = os.pipe()
        # The browser reads messages from descriptor 3 and writes to 4; the shell puts the pipes there.
        line = f'exec 3<&{to_read} 4>&{to_write}; exec "$0" "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", line, program, f"--user-data-dir={self._profile.name}", *FLAGS],
            pass_fds=(to_read, to_write),
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "HOME": self._profile.name},
        )
        os.close(to_read)
        os.close(to_write)
        self._last_id, self._buffer = 0, b""
        self.events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", {"url": "about:blank"})["targetId"]
        self._session = self.send("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        self.command("Page.enable")
        self.command("Network.enable")

    def __enter__(self) -> "Chromium":
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        os.close(self._out)
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        self._profile.cleanup()

    def send(self, method: str, params: dict[str, Any] | None = None, session: str = "") -> dict[str, Any]:
        """A command of the protocol; returns its result."""
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": params or {}}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._receive()
            if reply.get("id") == self._last_id:
                assert "error" not in reply, reply
                return reply["result"]
            self.events.append(reply)

    def command(self, method: str, **params: Any) -> dict[str, Any]:
        """The same, about the page."""
        return self.send(method, params, self._session)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            piece = os.read(self._in, 65_536)
            assert piece, "the browser ended"
            self._buffer += piece
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _wait_for(self, method: str) -> dict[str, Any]:
        while True:
            for place, event in enumerate(self.events):
                if event.get("method") == method:
                    del self.events[: place + 1]
                    return event["params"]
            self.events.append(self._receive())

    def open(self, url: str) -> None:
        """Go to a page and wait until it is there."""
        self.events.clear()
        self.command("Page.navigate", url=url)
        self._wait_for("Page.loadEventFired")

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        done = self.command("Runtime.evaluate", expression=script, returnByValue=True)
        return done["result"].get("value")

    def type_and_submit(self, text: str) -> None:
        """Type into the field that has the focus, and press Enter, as a person would."""
        self.command("Input.insertText", text=text)
        self.events.clear()
        enter = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
        self.command("Input.dispatchKeyEvent", type="keyDown", **enter)
        self.command("Input.dispatchKeyEvent", type="keyUp", **enter)
        self._wait_for("Page.loadEventFired")

    @property
    def url(self) -> str:
        return self.run("location.href")

    @property
    def text(self) -> str:
        return self.run("document.body.innerText")
