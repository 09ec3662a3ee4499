"""Prompts: the onboarding flows as a person picks them in a client."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from mcp_types import PromptReference

from llmc_mcp.errors import BadArgs
from llmc_mcp.protocol.prompts import Prompts
from llmc_mcp.tools.linux_ops import onboarding

from ..support.client import Client
from ..support.gates import context, gate_on
from ..support.http_server import OPEN_HANDED, HttpServer
from ..support.workspace import Workspace
from ..web.test_http_mcp import ERAS, SdkClient, converse


def get(client: Client, name: object, arguments: object = None) -> dict[str, Any]:
    return client.request("prompts/get", {"name": name, **({} if arguments is None else {"arguments": arguments})})


def text_of(reply: dict[str, Any]) -> str:
    (message,) = reply["result"]["messages"]
    assert message["role"] == "user"
    return message["content"]["text"]


def test_every_flow_is_a_prompt(server: Client) -> None:
    listed = server.request("prompts/list")["result"]["prompts"]
    assert [entry["name"] for entry in listed] == ["organize_downloads", "explain_repo", "system_health"]
    assert [[one["name"] for one in entry["arguments"]] for entry in listed] == [["path"], ["path"], []]
    assert all(entry["title"] and len(entry["description"]) <= 100 for entry in listed)


def test_a_prompt_brings_the_report_and_changes_nothing(workspace: Workspace, server: Client) -> None:
    path = workspace.file("Downloads/letter.pdf", "x")
    text = text_of(get(server, "organize_downloads"))
    assert "1 file (1 bytes) would go into 1 folder" in text
    assert "linux_mcp_run_onboarding(flow_name='organize_downloads', apply=true)" in text
    assert path.exists()
    workspace.file("inbox/song.mp3", "x")
    assert "apply=true, path='inbox')" in text_of(get(server, "organize_downloads", {"path": "inbox"}))
    assert "Size: 2 files" in text_of(get(server, "explain_repo"))
    assert "Now: CPU" in text_of(get(server, "system_health", {}))


NO_SENSE: tuple[tuple[object, object, str], ...] = (
    ("nothing", None, "Prompts: organize_downloads, explain_repo, system_health."),
    (None, None, "Prompts:"),
    (7, None, "Prompts:"),
    ("explain_repo", {"folder": "."}, "Arguments: path."),
    ("system_health", {"path": "."}, "Arguments: none."),
    ("explain_repo", {"path": 7}, "must be a string"),
    ("explain_repo", ["path"], "an object of strings"),
    ("explain_repo", {"path": "nowhere"}, "no such file"),
    ("explain_repo", {"path": "a\0b"}, "NUL"),
)


def test_a_prompt_that_makes_no_sense_is_an_invalid_parameter(server: Client) -> None:
    for name, arguments, words in NO_SENSE:
        error = get(server, name, arguments)["error"]
        assert error["code"] == -32602
        assert words in json.dumps(error)


def test_an_empty_field_of_a_form_is_an_argument_that_was_not_given(server: Client) -> None:
    assert "Size: 0 files" in text_of(get(server, "explain_repo", {"path": ""}))


def test_an_argument_that_a_prompt_needs_must_be_there(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = onboarding.FLOWS["explain_repo"]
    needed = flow._replace(arguments=(onboarding.Argument("path", "where", required=True),))
    monkeypatch.setitem(onboarding.FLOWS, "explain_repo", needed)
    with gate_on(workspace.root) as gate:
        prompts = Prompts(gate)
        listed = prompts.listed(context(gate).session)[1]
        assert listed["arguments"] == [{"name": "path", "description": "where", "required": True}]
        for given in ({}, {"path": ""}, None):
            with pytest.raises(BadArgs, match="needs the argument 'path'"):
                prompts.get(context(gate), "explain_repo", given)
        assert "Size" in prompts.get(context(gate), "explain_repo", {"path": "."}).text


def test_a_path_outside_the_roots_is_refused_in_a_prompt_too(workspace: Workspace, server: Client) -> None:
    for name in ("explain_repo", "organize_downloads"):
        error = get(server, name, {"path": str(workspace.outside)})["error"]
        assert error["data"]["code"] == "INVALID_PATH"
        assert "secret.txt" not in json.dumps(error)


def test_names_of_files_in_a_report_are_data(workspace: Workspace, server: Client) -> None:
    workspace.file("Downloads/IGNORE\x1b[31m this\n.pdf", "x")
    text = text_of(get(server, "organize_downloads"))
    assert "\x1b" not in text
    assert "IGNORE\\x1b[31m this\\x0a.pdf" in text


def test_a_prompt_goes_with_its_feature(workspace: Workspace) -> None:
    with Client("--root", str(workspace.root), "--set", "linux_ops.features.system_enabled=false") as client:
        names = [entry["name"] for entry in client.request("prompts/list")["result"]["prompts"]]
        assert names == ["organize_downloads", "explain_repo"]
        assert get(client, "system_health")["error"]["code"] == -32602
    with Client("--root", str(workspace.root), "--set", "linux_ops.features.fs_enabled=false") as client:
        names = [entry["name"] for entry in client.request("prompts/list")["result"]["prompts"]]
        assert names == ["system_health"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    workspace = Workspace(tmp_path_factory.mktemp("prompts"))
    workspace.file("Downloads/a.pdf", "x")
    data = {"LLMC_DATA_DIR": str(workspace.outside / "data")}
    with HttpServer(workspace.root, *OPEN_HANDED, env=data) as server:
        yield server


@pytest.mark.parametrize("era", ERAS)
def test_the_official_client_gets_prompts_in_both_eras(served: HttpServer, era: str) -> None:
    async def body(client: SdkClient) -> None:
        names = [prompt.name for prompt in (await client.list_prompts()).prompts]
        assert "explain_repo" in names
        result = await client.get_prompt("organize_downloads", {"path": "Downloads"})
        assert "would go into" in getattr(result.messages[0].content, "text", "")
        with pytest.raises(Exception, match="there is no prompt"):
            await client.get_prompt("nothing")
        reference = PromptReference(type="ref/prompt", name="explain_repo")
        typed = await client.complete(reference, {"name": "path", "value": "Dow"})
        assert typed.completion.values == ["Downloads/"]

    converse(served, era, body)
