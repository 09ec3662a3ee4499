"""Completion of arguments: what a listing would show anyway, and no more."""

import os
from typing import Any

from ..support.client import Client
from ..support.workspace import Workspace

PATH = {"type": "ref/prompt", "name": "explain_repo"}
DOCUMENT = {"type": "ref/resource", "uri": "llmc://docs/{name}{?offset}"}
HANDLE = {"type": "ref/resource", "uri": "llmc://handle/{id}{?offset}"}


def ask(client: Client, ref: object, name: object, value: object) -> dict[str, Any]:
    return client.request("completion/complete", {"ref": ref, "argument": {"name": name, "value": value}})


def values(client: Client, ref: object, name: str, value: str) -> list[str]:
    return ask(client, ref, name, value)["result"]["completion"]["values"]


def test_folders_below_the_roots_are_completed_as_they_were_begun(workspace: Workspace, server: Client) -> None:
    for name in ("src/api/x", "src/app/x", "sample/x", ".hidden/x", "docs/x"):
        workspace.file(name)
    workspace.file("setup.py")
    assert values(server, PATH, "path", "s") == ["sample/", "src/"]
    assert values(server, PATH, "path", "") == ["docs/", "sample/", "src/"]
    assert values(server, PATH, "path", "src/a") == ["src/api/", "src/app/"]
    assert values(server, PATH, "path", "src/ap/") == []
    assert values(server, PATH, "path", ".h") == [".hidden/"]
    root = str(workspace.root)
    assert values(server, PATH, "path", f"{root}/sr") == [f"{root}/src/"]
    assert values(server, PATH, "path", root[:-2]) == [root]


def test_nothing_outside_the_roots_is_ever_completed(workspace: Workspace, server: Client) -> None:
    (workspace.outside / "private").mkdir()
    (workspace.root / "way_out").symlink_to(workspace.outside)
    for value in ("../", "../out", f"{workspace.outside}/", "way_out/", "/etc/", "~/", "a/../../", "src/\\x2e\\x2e/"):
        found = values(server, PATH, "path", value)
        assert [one for one in found if "private" in one or "secret" in one or one.startswith("/etc")] == [], value


def test_no_more_than_a_hundred_are_given_and_their_number_is_told(workspace: Workspace, server: Client) -> None:
    for number in range(130):
        os.mkdir(workspace.root / f"d{number:03}")
    completion = ask(server, PATH, "path", "d")["result"]["completion"]
    assert (len(completion["values"]), completion["total"], completion["hasMore"]) == (100, 130, True)
    assert completion["values"][0] == "d000/"


def test_documents_and_own_handles_are_completed(workspace: Workspace, server: Client) -> None:
    assert values(server, DOCUMENT, "name", "con") == ["contracts.env.min.md"]
    assert values(server, {**DOCUMENT, "uri": "llmc://docs/{name}"}, "name", "") == [
        *("agents.core.min.md", "contracts.env.min.md")
    ]
    workspace.file("a.txt", "line\n" * 1000)
    handle = server.call("linux_fs_read", path="a.txt").meta["handle"]
    assert handle in values(server, HANDLE, "id", handle[:-6])
    assert values(server, HANDLE, "id", "H_nothing") == []
    assert values(server, HANDLE, "offset", "1") == []


NO_SENSE: tuple[tuple[object, object, object], ...] = (
    (None, "path", ""),
    ({}, "path", ""),
    ({"type": "ref/tool", "name": "x"}, "path", ""),
    ({"type": "ref/prompt"}, "path", ""),
    ({"type": "ref/prompt", "name": "nothing"}, "path", ""),
    (PATH, "folder", ""),
    (PATH, None, ""),
    (PATH, "path", 7),
    (PATH, "path", "x" * 5_000),
    (PATH, "path", "a\0b"),
    ({"type": "ref/resource", "uri": "file:///{path}"}, "path", "/etc/"),
    ({"type": "ref/resource", "uri": "llmc://docs/{name}"}, "id", ""),
    ({"type": "ref/resource", "uri": 7}, "id", ""),
)


def test_what_can_not_be_completed_is_an_invalid_parameter(server: Client) -> None:
    for ref, name, value in NO_SENSE:
        assert ask(server, ref, name, value)["error"]["code"] == -32602
