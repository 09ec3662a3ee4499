"""Names, outputs, arguments and diffs are hostile text: in a real browser none of it runs, breaks out or misleads."""

import json
import time
from pathlib import Path

import pytest

from llmc_mcp.store.schema import insert_into
from llmc_mcp.store.sqlite import SqliteStore
from llmc_mcp.web.auth import COOKIE

from ...support.browser import Browser, Page
from ...support.workspace import Workspace
from .conftest import PagesServer

# Every string calls `pwned` if any part of it becomes markup or script.
RUNS = "window.pwned=1"
TAGS = [
    f"<script>{RUNS}</script>",
    f"<img src=x onerror={RUNS}>",
    f"<svg onload={RUNS}>",
    f"<svg><script>{RUNS}</script></svg>",
    f"<body onload={RUNS}>",
    f"<iframe srcdoc='<script>parent.{RUNS}</script>'></iframe>",
    f"<details open ontoggle={RUNS}>",
    f"<input autofocus onfocus={RUNS}>",
    f"<video><source onerror={RUNS}></video>",
    f"<math><mtext></p><img src=x onerror={RUNS}>",
    f"<a href=javascript:{RUNS}>x</a>",
    f"<form action=javascript:{RUNS}><button id=bx>x</button></form>",
    f"<object data=javascript:{RUNS}>",
    f"<embed src=javascript:{RUNS}>",
    f"<style>@import'javascript:{RUNS}'</style>",
    f"<base href=javascript:{RUNS}//>",
    f"<meta http-equiv=refresh content='0;url=javascript:{RUNS}'>",
    f"<link rel=stylesheet href=javascript:{RUNS}>",
    f"<template><script>{RUNS}</script></template>",
    f"<noscript><p title='</noscript><img src=x onerror={RUNS}>'>",
]
BREAKS = ["", '"', "'", '">', "'>", "-->", "]]>", "</title>", "</textarea>", "</pre></div>"]
ODD = [
    *(
        "\x00",
        "\x1b[31mred\x1b[0m",
        "\u202etxt.exe",
        "\u2066hidden\u2069",
        "\ufeff",
        "\u2028line",
        "\ud83d",
        "a" * 5000,
    ),
    *("&lt;script&gt;", "&#x3c;b&#x3e;", "%3Cscript%3E", "{{7*7}}", "${7*7}"),
]
CORPUS = [f"{before}{tag}" for before in BREAKS for tag in TAGS] + ODD


def test_the_corpus_has_200_strings() -> None:
    assert len(set(CORPUS)) >= 200


@pytest.fixture(scope="module")
def hostile_page(browser: Browser, pages_server: PagesServer, pages_workspace: Workspace) -> tuple[Page, PagesServer]:
    """A browser at a server where every string is a session, a tool, an argument, a file's name and its content."""
    rows = [(text, number) for number, text in enumerate(CORPUS)]
    pages_server.call("list_dir", path=".")
    _insert_calls(pages_server.data_dir, rows)
    (pages_workspace.root / "hostile").mkdir()
    client = pages_server.client()
    for text, number in rows:
        name = (
            text.replace("/", "\u2215").replace("\x00", "").encode("utf-8", "replace")[:200].decode("utf-8", "ignore")
        )
        content = text.replace("\ud83d", "?")
        arguments = {"path": f"hostile/{number} {name}", "content": f"{content}\n"}
        call = {"session_id": "hostile", "name": "linux_fs_write", "args": arguments}
        assert client.post("/tool", json=call).status_code == 200
    client.close()
    page = browser.page()
    page.set_cookie(pages_server.url, COOKIE, pages_server.cookie())
    return page, pages_server


def _insert_calls(data_dir: Path, rows: list[tuple[str, int]]) -> None:
    columns = (
        *("at", "source", "tool", "status", "duration_ms", "args", "bytes_in", "bytes_out"),
        *("principal", "session_id", "agent_id", "model", "roots", "sandbox"),
    )
    store = SqliteStore(str(data_dir))
    with store.transaction() as connection:
        for raw, number in rows:
            text = raw.encode("utf-8", "replace").decode()
            first = (time.time(), "network" if number % 7 == 0 else "mcp", text, text, 1.0, text, 1, 1)
            for session in (text, "hostile"):
                last = (text, session, text, text, json.dumps([text]), text)
                connection.execute(insert_into("calls", columns), (*first, *last))
    store.close()


@pytest.mark.parametrize(
    "path", ["/ui", "/ui/changes", "/ui/network", "/ui/usage", "/ui/session?id=hostile", "/ui/index"]
)
def test_hostile_text_is_shown_and_inert(hostile_page: tuple[Page, PagesServer], path: str) -> None:
    page, server = hostile_page
    page.goto(f"{server.url}{path}")
    _assert_inert(page)
    assert "\u202e" not in page.text
    assert "\x1b" not in page.text


def test_all_of_the_corpus_is_on_the_pages(hostile_page: tuple[Page, PagesServer]) -> None:
    page, server = hostile_page
    page.goto(f"{server.url}/ui/usage")
    assert page.evaluate("document.querySelectorAll('td code').length") >= len(
        {one for number, one in enumerate(CORPUS) if number % 7}
    )
    page.goto(f"{server.url}/ui/session?id=hostile")
    assert page.evaluate("document.querySelectorAll('td code').length") >= 2 * 200


def test_hostile_diffs_are_shown_and_inert(hostile_page: tuple[Page, PagesServer]) -> None:
    page, server = hostile_page
    with server.visitor() as visitor:
        listed = visitor.get("/ui/session?id=hostile").text
    changes = sorted({part.split('"')[0] for part in listed.split("/ui/change?id=")[1:]})
    assert len(changes) >= 50
    for change in changes[::16]:
        page.goto(f"{server.url}/ui/change?id={change}")
        _assert_inert(page)


def test_a_hostile_address_is_shown_and_inert(hostile_page: tuple[Page, PagesServer]) -> None:
    page, server = hostile_page
    for text in TAGS:
        for path in ("/ui/session?id=", "/ui/change?id=", "/ui/usage?span=", "/ui/index?q="):
            if path.endswith("q=") and text != TAGS[0]:
                continue
            page.goto(server.url + path + page.evaluate(f"encodeURIComponent({json.dumps(text)})"))
            _assert_inert(page)


def _assert_inert(page: Page) -> None:
    assert page.evaluate("typeof window.pwned") == "undefined"
    assert page.dialogs() == []
    alien = (
        "script:not([src^='/ui/assets/']), iframe, object, embed, base, style, img, video, math, template, [onerror]"
    )
    assert page.evaluate(f"document.querySelectorAll({json.dumps(alien)}).length") == 0
    assert page.evaluate("[...document.links].every(one => one.origin === location.origin)")
    complaints = [one for one in page.complaints() if "404" not in one]
    assert complaints == []
