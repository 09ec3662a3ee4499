"""Chromium, driven over its DevTools pipe: keys are pressed as a person presses them, and nothing clicks by script.

The pipe needs no port and no WebSocket: messages are JSON, each ended by a zero byte, on the descriptors 3 and 4.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from .workspace import require

_PATIENCE_S = 60.0  # a loaded machine starts a browser slowly
_ENDS_S = 10.0


class Key(NamedTuple):
    """What the DevTools protocol has to know of a key."""

    key: str
    code: str
    number: int
    text: str = ""


KEYS = {
    "Tab": Key("Tab", "Tab", 9),
    "Enter": Key("Enter", "Enter", 13, "\r"),
    "Space": Key(" ", "Space", 32, " "),
    "Escape": Key("Escape", "Escape", 27),
    "ArrowDown": Key("ArrowDown", "ArrowDown", 40),
    "ArrowUp": Key("ArrowUp", "ArrowUp", 38),
}
_SHIFT = 8


def chromium() -> str:
    """The browser's program; the test is skipped, or fails in CI, where there is none."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    require(found is not None, "chromium is not installed")
    return found or ""


class Browser:
    """A browser with a profile of its own, and a folder below `home` for it."""

    def __init__(self, home: Path, *, javascript: bool = True) -> None:
        to_browser, self._out = _pipe()
        self._in, from_browser = _pipe()
        self._buffer = b""
        self._number = 0
        self._heard: list[dict[str, Any]] = []  # events that nobody has taken yet
        profile = home / "chromium"
        profile.mkdir(parents=True, exist_ok=True)
        options = [] if javascript else ["--blink-settings=scriptEnabled=false"]
        command = [
            *(chromium(), "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={profile}"),
            *("--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"),
            *("--disable-component-update", "--disable-sync", "--no-default-browser-check", *options),
            *(["--no-sandbox"] if os.getuid() == 0 else []),
        ]
        redirect = f'exec "$@" 3<&{to_browser} 4>&{from_browser} {to_browser}<&- {from_browser}>&-'
        self._process = subprocess.Popen(
            ["bash", "-c", redirect, "bash", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(profile)},
            pass_fds=(to_browser, from_browser),
        )
        os.close(to_browser)
        os.close(from_browser)

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End it with all its processes: they end when their pipe does."""
        os.close(self._out)
        try:
            self._process.wait(_ENDS_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)

    def page(self) -> "Page":
        """A new, empty page."""
        target = self.send("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.send("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        return Page(self, session)

    # --- messages --------------------------------------------------------------------------------

    def send(self, method: str, parameters: dict[str, Any] | None = None, session: str | None = None) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters or {}}
        if session is not None:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        number = self._number
        reply = self._await(lambda one: one.get("id") == number)
        assert "error" not in reply, f"{method}: {reply['error']}"
        return reply["result"]

    def event(self, method: str, session: str) -> dict[str, Any]:
        """The next event of a name."""
        return self._await(lambda one: one.get("method") == method and one.get("sessionId") == session)["params"]

    def events(self, method: str, session: str) -> list[dict[str, Any]]:
        """The events of a name that have come so far."""
        return [one["params"] for one in self._heard if one.get("method") == method and one.get("sessionId") == session]

    def forget(self, method: str) -> None:
        """Drop the events of a name."""
        self._heard = [one for one in self._heard if one.get("method") != method]

    def _await(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        until = time.monotonic() + _PATIENCE_S
        while True:
            for index, one in enumerate(self._heard):
                if wanted(one):
                    return self._heard.pop(index)
            left = until - time.monotonic()
            assert left > 0, "the browser does not answer"
            if select.select([self._in], [], [], left)[0]:
                self._read()

    def _read(self) -> None:
        data = os.read(self._in, 1 << 20)
        assert data, "the browser has ended"
        *whole, self._buffer = (self._buffer + data).split(b"\0")
        self._heard += [json.loads(one) for one in whole]


class Page:
    """One page: where it is, what it shows, and a keyboard."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._send(f"{domain}.enable")

    def _send(self, method: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        return self._browser.send(method, parameters, self._session)

    def goto(self, url: str) -> None:
        """Open an address and wait until it is loaded."""
        self._browser.forget("Page.loadEventFired")
        failed = self._send("Page.navigate", {"url": url}).get("errorText")
        assert not failed, f"{url}: {failed}"
        self._browser.event("Page.loadEventFired", self._session)

    def loaded(self, act: Callable[[], None]) -> None:
        """Do something that leads to another page, and wait for it."""
        self._browser.forget("Page.loadEventFired")
        act()
        self._browser.event("Page.loadEventFired", self._session)

    def set_cookie(self, url: str, name: str, value: str) -> None:
        """Give the browser a cookie for a site, as the site's own login sets it."""
        self._send("Network.setCookie", {"url": url, "name": name, "value": value, "sameSite": "Strict"})

    def clear_cookies(self) -> None:
        """Forget who is signed in, in the whole browser."""
        self._send("Network.clearBrowserCookies")

    def evaluate(self, script: str) -> Any:
        """The value of an expression; a promise is awaited."""
        reply = self._send(
            "Runtime.evaluate", {"expression": script, "returnByValue": True, "awaitPromise": True, "userGesture": True}
        )
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def wait_for(self, script: str) -> Any:
        """Wait until an expression is true; the page itself looks, at every frame and at every 20 ms."""
        return self.evaluate(
            f"new Promise(done => {{ const look = () => {{ const found = ({script}); "
            "if (found) done(found); else setTimeout(look, 20); }; look(); })"
        )

    @property
    def text(self) -> str:
        """What the page shows."""
        return self.evaluate("document.body.innerText")

    @property
    def path(self) -> str:
        """Where the page is, without the host."""
        return self.evaluate("location.pathname + location.search")

    @property
    def focused(self) -> str:
        """What the element with the focus says: its label or its text."""
        return self.evaluate(
            "(e => e === document.body ? '' : (e.getAttribute('aria-label') || e.labels?.[0]?.innerText || "
            "e.innerText || e.name || e.tagName).trim())(document.activeElement)"
        )

    # --- the keyboard ----------------------------------------------------------------------------

    def press(self, name: str, *, shift: bool = False) -> None:
        """Press and release a key."""
        key = KEYS[name]
        given = {
            "key": key.key,
            "code": key.code,
            "windowsVirtualKeyCode": key.number,
            "nativeVirtualKeyCode": key.number,
        }
        given["modifiers"] = _SHIFT if shift else 0
        down = {"type": "keyDown", "text": key.text} if key.text else {"type": "rawKeyDown"}
        self._send("Input.dispatchKeyEvent", {**given, **down})
        self._send("Input.dispatchKeyEvent", {**given, "type": "keyUp"})

    def type(self, text: str) -> None:
        """Type text into the element with the focus."""
        self._send("Input.insertText", {"text": text})

    def fill(self, name: str, text: str) -> None:
        """Type into the field that the page gives the focus to by itself, as soon as it has it."""
        self.wait_for(f"document.activeElement.name === '{name}'")
        self.type(text)

    def tab_to(self, label: str, most: int = 200) -> None:
        """Press Tab until an element that says so has the focus."""
        seen: list[str] = []
        for _ in range(most):
            self.press("Tab")
            if (focused := self.focused) == label:
                return
            seen.append(focused)
        raise AssertionError(f"Tab never reaches {label!r}: {seen[:60]}")

    # --- how it looks ----------------------------------------------------------------------------

    def resize(self, width: int, height: int) -> None:
        """Give the window a size."""
        self._send(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )

    def prefer(self, scheme: str) -> None:
        """Prefer `dark` or `light`."""
        self._send("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def screenshot(self, path: Path) -> None:
        """Write a picture of the window."""
        path.write_bytes(base64.b64decode(self._send("Page.captureScreenshot")["data"]))

    # --- what went wrong -------------------------------------------------------------------------

    def complaints(self) -> list[str]:
        """What the browser objected to so far: errors of scripts, violations of the content security policy."""
        self.evaluate("0")  # what has come before the answer is read by now
        entries = [one["entry"] for one in self._browser.events("Log.entryAdded", self._session)]
        logged = [entry["text"] for entry in entries if entry["level"] in ("error", "warning")]
        thrown = [str(one) for one in self._browser.events("Runtime.exceptionThrown", self._session)]
        printed = [
            str(one["args"])
            for one in self._browser.events("Runtime.consoleAPICalled", self._session)
            if one["type"] in ("error", "warning")
        ]
        return logged + thrown + printed

    def dialogs(self) -> list[str]:
        """The dialogs that scripts opened."""
        return [one["message"] for one in self._browser.events("Page.javascriptDialogOpening", self._session)]


def _pipe() -> tuple[int, int]:
    """A pipe above the descriptors that the browser expects."""
    low = os.pipe()
    reader, writer = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20) for fd in low)
    for fd in low:
        os.close(fd)
    return reader, writer
