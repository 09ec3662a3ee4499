"""Resources: documents for agents and handles, read by address through the gate that tools go through."""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import llmc_mcp
from llmc_mcp.config.schema import Config, PolicyRule
from llmc_mcp.errors import Forbidden, LlmcError, PermissionDenied, RateLimited
from llmc_mcp.protocol.completion import Completion
from llmc_mcp.protocol.prompts import Prompts
from llmc_mcp.protocol.resources import SHIPPED, ResourceReader
from llmc_mcp.store.sqlite import SqliteStore

from ..support.client import Client
from ..support.gates import context, gate_on
from ..support.http_server import OPEN_HANDED, HttpServer
from ..support.machine import Machine
from ..support.workspace import Workspace
from ..web.test_http_mcp import ERAS, SdkClient, converse

REPOSITORY = Path(__file__).parents[2]
AGENTS = "llmc://docs/agents.core.min.md"
STATELESS: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def read(client: Client, uri: str, meta: dict[str, Any] | None = None) -> dict[str, Any]:
    return client.request("resources/read", {"uri": uri, **({"_meta": meta} if meta else {})})


def uris(client: Client) -> list[str]:
    return [entry["uri"] for entry in client.request("resources/list")["result"]["resources"]]


def test_resources_and_completions_show_nothing_that_a_rule_denies(workspace: Workspace) -> None:
    workspace.file("secret/inner/key.py", "def hidden_definition():\n    return 1\n")
    workspace.file("open/a.py", "def shown_definition():\n    return 1\n")
    workspace.file("secret/notes.md", "the content\n")
    config = Config()
    config.resources.sidecars = ("secret/notes.md",)
    config.policy.rules = (PolicyRule("deny", path="secret"),)
    with gate_on(workspace.root, config) as gate:
        reader = ResourceReader(gate)
        for uri in ("llmc://map", "llmc://docs/notes.md", "llmc://symbol/hidden_definition"):
            with pytest.raises(PermissionDenied):
                reader.read(context(gate), uri)
        with pytest.raises(PermissionDenied):
            Prompts(gate).get(context(gate), "explain_repo", {"path": "secret"})
        completer = Completion(gate, reader, Prompts(gate))
        typed = {"name": "path", "value": "secret/"}
        flow = next(name for name, flow in Prompts(gate).flows().items() if flow.arguments)
        assert completer.complete(context(gate), {"type": "ref/prompt", "name": flow}, typed).values == []


def test_resources_follow_the_folders_of_a_client(workspace: Workspace) -> None:
    workspace.file("notes.md", "of the whole\n")
    workspace.file("sub/notes.md", "of the part\n")
    config = Config()
    config.resources.sidecars = ("notes.md",)
    with gate_on(workspace.root, config) as gate:
        reader = ResourceReader(gate)
        assert reader.read(context(gate), "llmc://docs/notes.md").text == "of the whole\n"
        gate.use_roots([str(workspace.root / "sub")]).close()
        assert reader.read(context(gate), "llmc://docs/notes.md").text == "of the part\n"


# --- documents -----------------------------------------------------------------------------------------------------


def test_the_documents_ship_with_the_package_and_stand_in_the_repository() -> None:
    for name in SHIPPED:
        shipped = Path(llmc_mcp.__file__).parent / "docs" / name
        assert shipped.read_text() == (REPOSITORY / "DOCS" / name).read_text()
        assert len(shipped.read_bytes()) < 3_000


def test_a_shipped_document_names_only_what_there_is(workspace: Workspace) -> None:
    with gate_on(workspace.root) as gate:
        text = "".join((REPOSITORY / "DOCS" / name).read_text() for name in SHIPPED)
        tools = set(re.findall(r"`((?:linux_|run_|execute_)\w+)`", text))
        assert tools
        assert tools <= gate.catalog.tools.keys()
        codes = {error.code for error in _errors()}
        assert set(re.findall(r"`([A-Z]+_[A-Z_]+)`", text)) - {"TE_AGENT_ID", "TE_SESSION_ID", "TE_MODEL"} <= codes


def _errors() -> Iterator[type[Any]]:
    todo: list[type[LlmcError]] = [LlmcError]
    while todo:
        kind = todo.pop()
        yield kind
        todo += kind.__subclasses__()


def test_documents_are_listed_and_read(server: Client) -> None:
    assert uris(server)[:2] == [AGENTS, "llmc://docs/contracts.env.min.md"]
    (content,) = read(server, AGENTS)["result"]["contents"]
    assert content["mimeType"] == "text/markdown"
    assert content["text"] == (REPOSITORY / "DOCS/agents.core.min.md").read_text()


def test_a_projects_own_document_comes_before_the_one_that_ships(workspace: Workspace, server: Client) -> None:
    workspace.file("DOCS/agents.core.min.md", "ours\n")
    assert read(server, AGENTS)["result"]["contents"][0]["text"] == "ours\n"
    (entry,) = [one for one in server.request("resources/list")["result"]["resources"] if one["uri"] == AGENTS]
    assert "the project's own: DOCS/agents.core.min.md" in entry["description"]


def test_the_operator_chooses_the_documents(workspace: Workspace) -> None:
    workspace.file("a/notes.md", "A")
    workspace.file("b/notes.md", "B")
    workspace.file("data.json", "{}")
    workspace.file("logo.png", b"\x89PNG\r\n\x1a\n" + bytes(40))
    sidecars = ["a/notes.md", "b/notes.md", "data.json", "logo.png", "missing.md"]
    with Client("--root", str(workspace.root), "--set", f"resources.sidecars={json.dumps(sidecars)}") as client:
        listed = [uri for uri in uris(client) if uri.startswith("llmc://docs/")]
        assert listed == [
            *("llmc://docs/a%2Fnotes.md", "llmc://docs/b%2Fnotes.md"),
            *("llmc://docs/data.json", "llmc://docs/logo.png"),
        ]
        assert read(client, "llmc://docs/b%2Fnotes.md")["result"]["contents"][0]["text"] == "B"
        assert read(client, "llmc://docs/b/notes.md")["result"]["contents"][0]["text"] == "B"
        assert read(client, "llmc://docs/data.json")["result"]["contents"][0]["mimeType"] == "application/json"
        (image,) = read(client, "llmc://docs/logo.png")["result"]["contents"]
        assert base64.b64decode(image["blob"]) == (workspace.root / "logo.png").read_bytes()
        assert image["mimeType"] == "image/png"
        assert read(client, "llmc://docs/missing.md")["error"]["code"] == -32002
        assert read(client, AGENTS)["error"]["code"] == -32002  # no longer one of them


def test_a_long_document_comes_in_pages_that_join_without_a_seam(workspace: Workspace) -> None:
    text = "".join(f"line {number} {'ä' * (number % 90)}\n" for number in range(2_000))
    workspace.file("long.txt", text)
    with Client("--root", str(workspace.root), "--set", 'resources.sidecars=["long.txt"]') as client:
        uri, pages = "llmc://docs/long.txt", list[str]()
        while True:
            contents = read(client, uri)["result"]["contents"]
            assert len(contents[0]["text"].encode()) <= 10_000
            pages.append(contents[0]["text"])
            if len(contents) == 1:
                break
            uri = contents[1]["uri"]
            assert contents[0]["_meta"]["llmc/nextUri"] == uri
        assert "".join(pages) == text
        larger = read(client, "llmc://docs/long.txt", {"llmc/maxReplyBytes": 100_000})["result"]["contents"]
        assert len(larger[0]["text"].encode()) > 50_000


def test_controls_in_a_document_are_shown_not_obeyed(workspace: Workspace) -> None:
    workspace.file("evil.md", "\x1b]0;owned\x07\u202eevil\n")
    with Client("--root", str(workspace.root), "--set", 'resources.sidecars=["evil.md"]') as client:
        text = read(client, "llmc://docs/evil.md")["result"]["contents"][0]["text"]
    assert not any(control in text for control in ("\x1b", "\x07", "\u202e"))


def test_a_document_that_can_not_be_read_is_told_by_repo_validate(workspace: Workspace, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (machine.repo / "there.md").write_text("x")
    sidecars = ["there.md", "missing.md", str(workspace.outside / "secret.txt"), "DOCS/agents.core.min.md"]
    flags = ("--set", f"resources.sidecars={json.dumps(sidecars)}")
    rows = json.loads(machine.llmc("repo", "validate", "--json", *flags).stdout)
    told = [row["message"] for row in rows if "sidecars" in row["message"]]
    assert [message.split(": ")[1] for message in told] == sidecars[1:3]


# --- handles -------------------------------------------------------------------------------------------------------


def test_a_handle_is_a_resource_of_its_owner_in_pages(workspace: Workspace, server: Client) -> None:
    text = "".join(f"row {number}\n" for number in range(5_000))
    workspace.file("big.txt", text)
    handle = server.call("linux_fs_read", path="big.txt").meta["handle"]
    assert not any(handle in uri for uri in uris(server))  # they come and go with every call
    uri, pages = f"llmc://handle/{handle}", list[str]()
    while uri:
        contents = read(server, uri)["result"]["contents"]
        pages.append(contents[0]["text"])
        uri = contents[1]["uri"] if len(contents) > 1 else ""
    assert "".join(pages) == text
    assert len(pages) > 2


def test_another_principals_handle_is_simply_not_there(workspace: Workspace, tmp_path: Path) -> None:
    workspace.file("a.txt", "MINE\n" * 400)
    environment = {"LLMC_DATA_DIR": str(tmp_path / "data")}
    with HttpServer(workspace.root, *OPEN_HANDED, env=environment) as served:
        owners = served.tool("linux_fs_read", path="a.txt").json()["handle"]
        with Client("--root", str(workspace.root), env=environment) as client:
            refused = read(client, f"llmc://handle/{owners}")
            assert refused["error"]["data"]["code"] == "HANDLE_NOT_FOUND"
            assert "MINE" not in json.dumps(refused)
            absent = read(client, "llmc://handle/H_file_20260101T000000Z_aaaaaaaaaaaaaaaa")
            assert refused["error"]["code"] == absent["error"]["code"] == -32002
            typed = {"ref": {"type": "ref/resource", "uri": "llmc://handle/{id}"}}
            values = client.request("completion/complete", {**typed, "argument": {"name": "id", "value": "H_"}})
            assert values["result"]["completion"]["values"] == []


def test_where_file_tools_are_off_handles_are_too(workspace: Workspace) -> None:
    with Client("--root", str(workspace.root), "--set", "linux_ops.features.fs_enabled=false") as client:
        templates = client.request("resources/templates/list")["result"]["resourceTemplates"]
        assert "handle" not in [entry["name"] for entry in templates]
        refused = read(client, "llmc://handle/H_file_20260101T000000Z_aaaaaaaaaaaaaaaa")
        assert refused["error"]["data"]["code"] == "FEATURE_DISABLED"


# --- what the code index knows -------------------------------------------------------------------------------------

SHOP = {
    "shop/cart.py": "class Cart:\n    def total(self):\n        return 1\n",
    "shop/till.py": "from shop.cart import Cart\n\n\ndef sell():\n    return Cart().total()\n",
    "shop/web.py": "from shop.cart import Cart\nfrom shop.till import sell\n\n\ndef page():\n    sell(), Cart()\n",
    **{f"shop/many{number}.py": f"def many_{number:03}():\n    return 1\n" for number in range(120)},
}


def test_the_repository_map_is_a_resource(workspace: Workspace, tmp_path: Path) -> None:
    for name, text in SHOP.items():
        workspace.file(name, text)
    workspace.file(".env", "class Secret: pass\n")
    complete = {"ref": {"type": "ref/resource", "uri": "llmc://symbol/{name}"}}
    with Client("--root", str(workspace.root), env={"LLMC_DATA_DIR": str(tmp_path / "data")}) as client:

        def typed(value: str) -> dict[str, Any]:
            reply = client.request("completion/complete", {**complete, "argument": {"name": "name", "value": value}})
            return reply["result"]["completion"]

        assert typed("C") == {"values": [], "total": 0, "hasMore": False}  # nothing is built while somebody types
        before = client.call("linux_mcp_run_onboarding", flow_name="explain_repo")
        assert "leans on" not in before.text
        text = read(client, "llmc://map")["result"]["contents"][0]["text"]
        assert text.startswith(f"# {workspace.root}")
        assert "shop/cart.py:\n  1 class Cart\n" in text
        assert "Secret" not in text
        after = client.call("linux_mcp_run_onboarding", flow_name="explain_repo")
        assert "What the rest leans on" in after.text
        assert "1 class Cart" in after.text
        elsewhere = client.call("linux_mcp_run_onboarding", flow_name="explain_repo", path="shop")
        assert "1 class Cart" in elsewhere.text
        assert typed("Car") == {"values": ["Cart"], "total": 1, "hasMore": False}
        portrait = read(client, "llmc://symbol/Cart")["result"]["contents"][0]["text"]
        assert "class Cart" in portrait
        assert "shop/till.py" in portrait
        for unknown in ("llmc://symbol/Nothing", "llmc://symbol/", "llmc://symbol/..%2F..%2Fetc%2Fpasswd"):
            assert read(client, unknown)["error"]["code"] in (-32002, -32602), unknown
        many = typed("many_")
        assert (len(many["values"]), many["hasMore"], "total" in many) == (100, True, False)


def test_without_an_index_there_is_no_map_to_read(workspace: Workspace) -> None:
    with Client("--root", str(workspace.root), "--set", "rag.jit_context_enabled=false") as client:
        assert "llmc://map" not in uris(client)
        assert read(client, "llmc://map")["error"]["data"]["code"] == "FEATURE_DISABLED"


# --- the gate ------------------------------------------------------------------------------------------------------


def test_reading_a_resource_is_recorded_and_logged_like_a_call(workspace: Workspace, tmp_path: Path) -> None:
    with Client("--root", str(workspace.root), env={"LLMC_DATA_DIR": str(tmp_path)}) as client:
        read(client, AGENTS)
        read(client, "file:///etc/passwd")
    rows = SqliteStore(str(tmp_path)).query("SELECT tool, status, args, tokens_out > 100 FROM calls ORDER BY at")
    assert rows == [
        ("resources/read", "ok", f"uri={AGENTS}", 1),
        ("resources/read", "NOT_FOUND", "uri=file:///etc/passwd", 0),
    ]
    assert '"tool":"resources/read"' in client.log


def test_a_token_without_the_scope_reads_no_resource(workspace: Workspace) -> None:
    with gate_on(workspace.root) as gate:
        ctx = context(gate)
        ctx.session = msgspec.structs.replace(ctx.session, scopes=frozenset({"admin"}))
        with pytest.raises(Forbidden, match="resources/read needs the scope 'read'"):
            ResourceReader(gate).read(ctx, AGENTS)
        assert ResourceReader(gate).listed(ctx.session) == ResourceReader(gate).templates(ctx.session) == []
        assert Prompts(gate).listed(ctx.session) == []


def test_the_rate_limit_holds_for_resources_too(workspace: Workspace) -> None:
    config = Config()
    config.limits.rate_limit_rps, config.limits.rate_limit_burst = 0.001, 2
    with gate_on(workspace.root, config) as gate:
        ctx = context(gate)
        ctx.session = msgspec.structs.replace(ctx.session, limited=True)
        for _ in range(2):
            ResourceReader(gate).read(ctx, AGENTS)
        with pytest.raises(RateLimited):
            ResourceReader(gate).read(ctx, AGENTS)


# --- the protocol --------------------------------------------------------------------------------------------------


def test_what_is_not_there_has_the_code_of_its_era(server: Client) -> None:
    assert read(server, "llmc://docs/nothing")["error"]["code"] == -32002
    assert read(server, "llmc://docs/nothing", STATELESS)["error"]["code"] == -32602
    result = read(server, AGENTS, STATELESS)["result"]
    assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == ("complete", 0, "private")


def test_lists_are_paged_and_a_made_up_cursor_is_refused(workspace: Workspace) -> None:
    names = [f"n{number}.md" for number in range(150)]
    for name in names:
        workspace.file(name, name)
    with Client("--root", str(workspace.root), "--set", f"resources.sidecars={json.dumps(names)}") as client:
        first = client.request("resources/list")["result"]
        second = client.request("resources/list", {"cursor": first["nextCursor"]})["result"]
        found = [entry["name"] for entry in [*first["resources"], *second["resources"]]]
        assert [name for name in found if name.startswith("n")] == names
        assert "nextCursor" not in second
        for cursor in ("x", "after-0", "after--1", 7, "", "after-1; DROP"):
            for method in ("resources/list", "resources/templates/list", "prompts/list"):
                assert client.request(method, {"cursor": cursor})["error"]["code"] == -32602
        assert client.request("resources/list", {"cursor": "after-100000"})["result"]["resources"] == []


def test_what_the_server_announces_is_what_it_serves(server: Client) -> None:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    capabilities = server.request("initialize", params)["result"]["capabilities"]
    assert capabilities["resources"] == {"subscribe": False, "listChanged": False}
    assert capabilities["prompts"] == {"listChanged": False}
    assert capabilities["completions"] == {}
    assert capabilities.pop("tasks") == {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
    discovered = server.request("server/discover", {"_meta": STATELESS})["result"]["capabilities"]
    assert discovered == {**capabilities, "extensions": {"io.modelcontextprotocol/tasks": {}}}
    assert server.request("resources/subscribe", {"uri": AGENTS})["error"]["code"] == -32601


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    folder = tmp_path_factory.mktemp("resources")
    (folder / "root").mkdir()
    with HttpServer(folder / "root", *OPEN_HANDED, env={"LLMC_DATA_DIR": str(folder / "data")}) as server:
        yield server


@pytest.mark.parametrize("era", ERAS)
def test_the_official_client_reads_resources_in_both_eras(served: HttpServer, era: str) -> None:
    async def body(client: SdkClient) -> None:
        listed = [str(entry.uri) for entry in (await client.list_resources()).resources]
        assert AGENTS in listed
        templates = (await client.list_resource_templates()).resource_templates
        assert "llmc://handle/{id}{?offset}" in [entry.uri_template for entry in templates]
        document = (await client.read_resource(AGENTS)).contents[0]
        assert "How to work here" in getattr(document, "text", "")
        with pytest.raises(Exception, match="there is no resource"):
            await client.read_resource("llmc://docs/nothing")

    converse(served, era, body)


def test_listing_costs_no_store(workspace: Workspace) -> None:
    """A client lists when it connects: that must not open a database."""
    config = Config()
    config.observability.enabled = False
    with gate_on(workspace.root, config) as gate:
        assert ResourceReader(gate).listed(context(gate).session)
        assert "store" not in gate.app._engines  # pyright: ignore[reportPrivateUsage]
