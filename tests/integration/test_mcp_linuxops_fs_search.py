"""Every file and search tool through the official client: the shapes that the contract promises, as JSON."""

import base64
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import StdioServerParameters
from mcp.client import Client as SdkClient
from mcp.client.stdio import stdio_client
from mcp_types import ImageContent, TextContent

from ..support.workspace import Workspace

Body = Callable[[SdkClient], Awaitable[None]]

SHAPES: dict[str, tuple[dict[str, object], dict[str, type | tuple[type, ...]]]] = {
    "read_file": ({"path": "notes.txt"}, {"data": str, "meta": dict}),
    "linux_fs_read": ({"path": "notes.txt"}, {"content": str, "meta": dict}),
    "list_dir": ({"path": "."}, {"data": list, "meta": dict}),
    "stat": ({"path": "notes.txt"}, {"data": dict}),
    "linux_search_content": (
        {"root": ".", "pattern": "needle"},
        {"hits": list, "total_hits": int, "truncated": bool},
    ),
    "linux_search_files": ({"root": ".", "pattern": "notes"}, {"hits": list, "total_hits": int, "truncated": bool}),
    "linux_fs_list": ({"path": "."}, {"entries": list, "truncated": bool, "total_entries": int}),
    "linux_fs_read_many": ({"paths": ["notes.txt"]}, {"files": list}),
    "repo_read": ({"root": ".", "path": "notes.txt"}, {"data": str, "meta": dict}),
    "health": ({}, {"ok": bool, "version": str, "mode": str, "roots": list}),
}


def converse(root: Path, body: Body) -> None:
    """One conversation with a server in classic mode."""

    async def main() -> None:
        parameters = StdioServerParameters(
            command=sys.executable,
            args=["-m", "llmc_mcp.server", "--root", str(root), "--mode", "classic"],
            env=dict(os.environ),
        )
        with open(os.devnull, "w") as log:
            async with SdkClient(stdio_client(parameters, errlog=log)) as client:
                await body(client)

    anyio.run(main)


async def call(client: SdkClient, tool: str, **arguments: object) -> dict[str, Any]:
    """A result's object."""
    result = await client.call_tool(tool, arguments)
    assert isinstance(result.content[0], TextContent)
    assert result.is_error is False, result.content[0].text
    return json.loads(result.content[0].text)


async def failure(client: SdkClient, tool: str, **arguments: object) -> dict[str, Any]:
    """An error's envelope."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error is True
    assert isinstance(result.content[0], TextContent)
    return json.loads(result.content[0].text)


@pytest.fixture
def files(workspace: Workspace) -> Workspace:
    workspace.file("notes.txt", "first\nneedle here\nlast\n")
    workspace.file("sub/more.txt", "another needle\n")
    return workspace


def test_every_tool_returns_the_object_it_promises(files: Workspace) -> None:
    async def body(client: SdkClient) -> None:
        for tool, (arguments, fields) in SHAPES.items():
            reply = await call(client, tool, **arguments)
            for field, kind in fields.items():
                assert isinstance(reply[field], kind), (tool, field, reply)

    converse(files.root, body)


def test_a_file_goes_round_by_the_paths_that_are_returned(files: Workspace) -> None:
    async def body(client: SdkClient) -> None:
        found = await call(client, "linux_search_content", root=".", pattern="needle", context_lines=0)
        assert [(hit["path"], hit["line"], hit["snippet"]) for hit in found["hits"]] == [
            (f"{files.root}/notes.txt", 2, "needle here"),
            (f"{files.root}/sub/more.txt", 1, "another needle"),
        ]
        for hit in found["hits"]:
            read = await call(client, "linux_fs_read", path=hit["path"], offset_lines=hit["line"] - 1, max_lines=1)
            assert read["content"].rstrip("\n") == hit["snippet"]
            assert read["meta"]["path"] == hit["path"]
        listed = await call(client, "list_dir", path=".", depth=2)
        assert listed == {
            "data": ["notes.txt", "sub/", "sub/more.txt"],
            "meta": {"path": str(files.root), "truncated": False, "total": 3},
        }
        stat = await call(client, "stat", path="sub/more.txt")
        assert (stat["data"]["type"], stat["data"]["size"]) == ("file", 15)

    converse(files.root, body)


def test_dotted_names_are_accepted(files: Workspace) -> None:
    async def body(client: SdkClient) -> None:
        assert (await call(client, "linux.fs_read", path="notes.txt"))["content"].startswith("first\n")
        assert (await call(client, "linux.search_content", root=".", pattern="needle"))["total_hits"] == 2

    converse(files.root, body)


def test_large_results_are_cut_say_so_and_leave_a_handle(files: Workspace) -> None:
    files.file("big.txt", "needle 0123456789\n" * 5_000)

    async def body(client: SdkClient) -> None:
        read = await call(client, "linux_fs_read", path="big.txt", max_lines=2000)
        assert read["meta"]["truncated"] is True
        assert read["meta"]["total_lines"] == 5_000
        assert read["meta"]["next_offset"] == read["content"].count("\n")
        found = await call(client, "linux_search_content", root="big.txt", pattern="needle", max_results=1000)
        assert (found["truncated"], found["total_hits"]) == (True, 5_000)
        for handle in (read["handle"], found["handle"]):
            page = await call(client, "linux_handle_read", handle=handle, offset=3_000, limit=2)
            assert "0123456789" in page["content"]

    converse(files.root, body)


def test_an_image_comes_as_an_image(files: Workspace) -> None:
    raw = b"\x89PNG\r\n\x1a\n" + bytes(64)
    files.file("dot.png", raw)

    async def body(client: SdkClient) -> None:
        result = await client.call_tool("read_file", {"path": "dot.png"})
        assert isinstance(result.content[1], ImageContent)
        assert base64.b64decode(result.content[1].data) == raw

    converse(files.root, body)


def test_paths_outside_are_refused_by_every_tool(files: Workspace) -> None:
    (files.root / "link").symlink_to(files.outside)
    outside = str(files.outside / "secret.txt")

    async def body(client: SdkClient) -> None:
        for path in (outside, "../outside/secret.txt", "link/secret.txt"):
            for tool in ("read_file", "linux_fs_read", "stat"):
                assert (await failure(client, tool, path=path))["code"] == "INVALID_PATH"
            assert (await failure(client, "linux_search_content", root=path, pattern="."))["code"] == "INVALID_PATH"
            assert (await failure(client, "repo_read", root=".", path=path))["code"] == "INVALID_PATH"
            many = await call(client, "linux_fs_read_many", paths=[path])
            assert many["files"][0]["error"].startswith("INVALID_PATH")
        for tool in ("list_dir", "linux_fs_list"):
            assert (await failure(client, tool, path="link"))["code"] == "INVALID_PATH"

    converse(files.root, body)
