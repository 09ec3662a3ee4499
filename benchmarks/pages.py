"""The pages and the terminal view: first paint on a full store, a call until an open page shows it, the price.

Chromium does the painting. Times are wall-clock; under load they are upper bounds.
"""

import http.client
import json
import os
import pty
import select
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from llmc_mcp.gate.usage import Usage
from llmc_mcp.store.schema import insert_into
from llmc_mcp.store.sqlite import SqliteStore
from llmc_mcp.web.auth import COOKIE
from tests.support.browser import Browser, Page

from . import procfs
from .http import OPEN, QUIET, TOKEN, Server
from .report import median, number, percentile, provenance, table, verdict

_CALLS, _CHANGES, _OPEN_PAGES = 10_000, 1_000, 50
_PAINTED = (
    "new Promise(done => new PerformanceObserver(list => done(list.getEntries().at(-1).startTime))"
    ".observe({type: 'paint', buffered: true}))"
)


def run(work: Path, quick: bool) -> str:
    """All figures as a table."""
    folder = work / "pages"
    folder.mkdir()
    server = Server(work, "llmc_mcp.server", "--transport", "http", "--port", "0", "--root", str(folder), *_settings())
    try:
        _fill(work / ".data", server.port)
        rounds = 5 if quick else 20
        with Browser(work) as browser:
            page = _signed_in(browser, server.port)
            rows = [_first_paint(page, server.port, path, rounds) for path in ("/ui", "/ui/changes", "/ui/usage")]
            rows.append(_live_update(page, server.port, rounds))
        rows.append(_idle(server, 5.0 if quick else 20.0))
    finally:
        server.process.terminate()
        server.process.wait()
    rows.append(_top(work / ".data", 3 if quick else 8))
    head = ("what", "median", "95 %", "bar", "")
    return table(head, rows) + "\n" + provenance()


def _settings() -> list[str]:
    return [word for setting in (*OPEN, *QUIET) for word in ("--set", setting)]


def _fill(data: Path, port: int) -> None:
    for at in range(10):
        _call(port, "linux_fs_write", session="filling", path=f"file{at}.txt", content=f"{at}\n", mode="rewrite")
    store = SqliteStore(str(data))
    now = time.time()
    columns = "principal, session_id, agent_id, at, action, state, process, roots, effects, undoes, undone_by, about"
    copied = f"INSERT INTO changes (id, {columns}) SELECT ?, {columns} FROM changes WHERE seq = ?"
    rows = [
        Usage(now - at, "mcp", f"tool_{at % 30}", "ok", 12.5, f"path=src/file{at}.py", 100, 2_000, "uid:0",
              f"session-{at // 200}", "claude", "model", "", 30, 500, 200, "", '["/srv"]', "workspace")
        for at in range(_CALLS)
    ]  # fmt: skip
    with store.transaction() as connection:
        connection.executemany(insert_into("calls", Usage._fields), rows)
        connection.executemany(copied, [(f"U_{at:010x}", at % 10 + 1) for at in range(_CHANGES)])
    store.close()


def _call(port: int, name: str, /, session: str, **arguments: Any) -> None:
    body = json.dumps({"session_id": session, "name": name, "args": arguments}).encode()
    headers = {"Content-Type": "application/json", "X-LLMC-Token": TOKEN}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/tool", body, headers)
    with urllib.request.urlopen(request) as reply:
        reply.read()


def _signed_in(browser: Browser, port: int) -> Page:
    url = f"http://127.0.0.1:{port}"
    connection = http.client.HTTPConnection("127.0.0.1", port)
    headers = {"Content-Type": "application/json", "Origin": url}
    connection.request("POST", "/login", json.dumps({"token": TOKEN}), headers)
    cookie = (connection.getresponse().getheader("set-cookie") or "").split(f"{COOKIE}=")[1].split(";")[0]
    page = browser.page()
    page.set_cookie(url, COOKIE, cookie)
    return page


def _first_paint(page: Page, port: int, path: str, rounds: int) -> tuple[str, ...]:
    times: list[float] = []
    for _ in range(rounds + 1):
        page.goto(f"http://127.0.0.1:{port}{path}")
        times.append(page.evaluate(_PAINTED))
    return _row(f"first paint of {path}", times[1:], 200, "ms")


def _live_update(page: Page, port: int, rounds: int) -> tuple[str, ...]:
    """From the reply of a call until the open page shows its session."""
    page.goto(f"http://127.0.0.1:{port}/ui")
    times: list[float] = []
    for at in range(rounds):
        name = f"live-{at}"
        page.evaluate(
            f"window.seen = new Promise(done => new MutationObserver((_, watch) => {{ if (document.body.innerText"
            f".includes('{name}')) {{ watch.disconnect(); done(Date.now()); }} }}).observe(document.body,"
            " {subtree: true, childList: true})), 0"
        )
        _call(port, "stat", session=name, path=".")
        ended = time.time() * 1000
        times.append(page.evaluate("window.seen") - ended)
    return _row("live update after a call", times, 300, "ms")


def _idle(server: Server, seconds: float) -> tuple[str, ...]:
    """The share of a core that a server takes while pages are open and nothing happens."""
    pages: list[http.client.HTTPConnection] = []
    for _ in range(_OPEN_PAGES):
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("GET", "/ui/events", headers={"X-LLMC-Token": TOKEN})
        connection.getresponse().readline()
        pages.append(connection)
    time.sleep(2)
    before, started = procfs.cpu_ms(server.process.pid) / 1000, time.monotonic()
    time.sleep(seconds)
    share = (procfs.cpu_ms(server.process.pid) / 1000 - before) / (time.monotonic() - started) * 100
    for connection in pages:
        connection.close()
    return _row(f"{_OPEN_PAGES} open pages, idle", [share], 5, "% of a core")


def _top(data: Path, rounds: int) -> tuple[str, ...]:
    """From the start of `llmc top` until its first rows are written to the terminal."""
    return _row("start of llmc top", [_started(data) for _ in range(rounds)], 400, "ms")


def _started(data: Path) -> float:
    begun = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(LLMC_DATA_DIR=str(data), TERM="xterm-256color", COLUMNS="80", LINES="24")
        os.execv(sys.executable, [sys.executable, "-c", "from llmc_mcp.cli.main import main; main()", "top"])
    seen = b""
    while b"session-" not in seen:
        select.select([terminal], [], [], 30)
        seen += os.read(terminal, 65_536)
    took = (time.perf_counter() - begun) * 1000
    os.write(terminal, b"q")
    try:
        while os.read(terminal, 65_536):
            pass
    except OSError:  # it has ended
        pass
    os.waitpid(pid, 0)
    os.close(terminal)
    return took


def _row(what: str, values: list[float], bar: float, unit: str) -> tuple[str, ...]:
    middle, high = median(values), percentile(values, 0.95)
    return what, f"{number(middle)} {unit}", f"{number(high)} {unit}", f"≤ {bar:g} {unit}", verdict(middle, bar)
