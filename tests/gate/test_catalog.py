"""Which tools there are, what a mode lists of them, and what the list costs a model."""

import ast
import importlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

import llmc_mcp
from llmc_mcp.config.schema import Config, Features, Hybrid, LinuxOps
from llmc_mcp.context import Context
from llmc_mcp.errors import FeatureDisabled, InvalidArgument, UnknownTool
from llmc_mcp.gate.catalog import MODES, Catalog
from llmc_mcp.tool import FILES, Result, ToolDef, registered

from ..support.client import Client

TOKENS_PER_TOOL = 85
# Who may name a tool without being one: defaults and contracts that are spelled by name, and words that mean
# something else there (a command of `llmc`, a program on the allowlist).
NAMES_ELSEWHERE: Mapping[str, set[str]] = {
    "cli/graph.py": {"inspect", "rag_where_used"},
    "cli/main.py": {"inspect"},
    "cli/onboard.py": {"linux_mcp_run_onboarding"},
    "cli/person.py": {"linux_fs_changes", "linux_search_content", "rag_search"},  # as patterns of hints
    "cli/smoke.py": {"health", "list_dir", "read_file"},
    "commands/read_only.py": {"stat"},  # the program
    "config/schema.py": {"linux_fs_edit", "linux_fs_write", "run_cmd", "stat"},
    "web/app.py": {"rag_bootload", "rag_search"},
}


class Nothing(Result):
    """An empty result."""


def other(ctx: Context) -> Nothing:
    return Nothing()


def listed(mode: str) -> list[str]:
    return [tool.name for tool in Catalog(Config(mode=mode)).listed]


@pytest.fixture
def aliased(monkeypatch: pytest.MonkeyPatch) -> ToolDef:
    """A tool of the file feature with two more names."""
    definition = ToolDef(
        other,
        "For this test",
        name="linux_fs_sample",
        aliases=("linux_fs_other", "sample_file"),
        needs=FILES,
        read_only=True,
    )
    Catalog(Config())
    monkeypatch.setitem(registered, definition.name, definition)
    return definition


# --- what every tool must be ---------------------------------------------------------------------------


@pytest.mark.parametrize("entry", Catalog(Config(mode="classic")).entries, ids=lambda entry: entry["name"])
def test_every_tool_is_listed_the_way_clients_and_models_take_it(entry: dict[str, Any]) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9_]{1,40}", entry["name"])
    assert "\n" not in entry["description"]
    assert 0 < len(entry["description"]) <= 90
    assert set(entry) == {"name", "description", "inputSchema", "annotations"}
    assert entry["inputSchema"]["type"] == "object"
    schema = msgspec.json.encode(entry["inputSchema"]).decode()
    for noise in ('"title"', '"description"', '"$ref"', '"default":null', '{"type":"null"}', "additionalProperties"):
        assert noise not in schema
    assert set(entry["inputSchema"].get("required", [])) <= set(entry["inputSchema"]["properties"])
    assert isinstance(entry["annotations"]["readOnlyHint"], bool)
    if not entry["annotations"]["readOnlyHint"]:
        assert {"destructiveHint", "idempotentHint"} <= set(entry["annotations"])


@pytest.mark.filterwarnings("ignore:open_binary is deprecated:DeprecationWarning")  # bpe_openai's own
@pytest.mark.parametrize("mode", ["classic", "hybrid"])
def test_the_tool_list_is_cheap_to_read(mode: str) -> None:
    encoding: Any = importlib.import_module("bpe_openai").get_encoding("o200k_base")
    entries = Catalog(Config(mode=mode)).entries
    costs = {
        entry["name"]: len(
            encoding.encode(
                f"{entry['name']} {entry['description']} {msgspec.json.encode(entry['inputSchema']).decode()}"
            )
        )
        for entry in entries
    }
    assert sum(costs.values()) / len(costs) <= TOKENS_PER_TOOL, costs


def test_no_name_means_two_tools() -> None:
    Catalog(Config())
    names = [name for tool in registered.values() for name in (tool.name, *tool.aliases)]
    assert len(names) == len(set(names))


def test_a_tool_is_named_nowhere_but_in_its_own_module() -> None:
    names = {name for tool in Catalog(Config()).tools.values() for name in (tool.name, *tool.aliases)}
    package = Path(llmc_mcp.__file__).parent
    found: dict[str, set[str]] = {}
    for path in package.rglob("*.py"):
        where = path.relative_to(package)
        for node in ast.walk(ast.parse(path.read_text())) if where.parts[0] != "tools" else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names:
                found.setdefault(str(where), set()).add(node.value)
    assert found == NAMES_ELSEWHERE


def test_what_a_tool_says_is_content_is_one_of_its_arguments() -> None:
    for tool in Catalog(Config(mode="classic")).tools.values():
        assert set(tool.content) <= set(tool.arguments.__struct_fields__), tool.name
    assert Catalog(Config()).content_arguments >= {"content", "old_text", "new_text", "diff_text", "stdin", "code"}


# --- modes ---------------------------------------------------------------------------------------------


def test_classic_lists_every_tool() -> None:
    catalog = Catalog(Config(mode="classic"))
    hidden = {"tool_search", "call_tool", "linux_sys_logs"}  # listed only where the operator wants them
    assert {tool.name for tool in catalog.listed} == set(registered) - hidden
    assert {"read_file", "list_dir", "stat", "linux_fs_read", "linux_search_content", "health", "00_INIT"} <= set(
        registered
    )


def test_hybrid_lists_the_basics_the_promoted_and_the_bootstrap() -> None:
    config = Config(mode="hybrid")
    wanted = ["read_file", "list_dir", *config.hybrid.promoted_tools, "execute_code", "00_INIT"]
    catalog = Catalog(config)
    assert [tool.name for tool in catalog.listed] == wanted
    assert catalog.notices == []


def test_hybrid_lists_what_the_operator_promotes() -> None:
    config = Config(mode="hybrid", hybrid=Hybrid(promoted_tools=("health", "read_file"), include_execute_code=False))
    assert [tool.name for tool in Catalog(config).listed] == ["read_file", "list_dir", "health", "00_INIT"]


def test_code_execution_lists_the_fewest() -> None:
    assert set(listed("code_execution")) == {"read_file", "list_dir", "execute_code", "00_INIT"}


@pytest.mark.parametrize("mode", MODES)
def test_a_tool_that_a_mode_does_not_list_can_still_be_called(mode: str) -> None:
    assert Catalog(Config(mode=mode)).find("health").name == "health"


def test_an_unknown_mode_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidArgument, match="classic, hybrid, code_execution"):
        Catalog(Config(mode="turbo"))


def test_an_unknown_mode_on_the_command_line_ends_the_start_with_a_reason(tmp_path: Path) -> None:
    client = Client("--root", str(tmp_path), "--mode", "turbo")
    assert client.close() == 2
    assert "turbo" in client.log
    assert "Traceback" not in client.log


def test_a_promoted_tool_that_does_not_exist_is_a_notice_with_the_nearest_name() -> None:
    catalog = Catalog(Config(hybrid=Hybrid(promoted_tools=("linux_fs_raed", "stat"))))
    assert [tool.name for tool in catalog.listed] == ["read_file", "list_dir", "stat", "execute_code", "00_INIT"]
    (notice,) = catalog.notices
    assert "'linux_fs_raed'" in notice
    assert "linux_fs_read" in notice


# --- names ---------------------------------------------------------------------------------------------


def test_a_dotted_name_finds_its_tool(aliased: ToolDef) -> None:
    catalog = Catalog(Config())
    assert catalog.find("linux.fs_read").name == "linux_fs_read"
    assert catalog.find("linux.search_content").name == "linux_search_content"
    assert catalog.find("linux.fs_other") is aliased


def test_an_alias_finds_its_tool_and_is_not_listed(aliased: ToolDef) -> None:
    catalog = Catalog(Config(mode="classic"))
    assert catalog.find("sample_file") is aliased
    names = [entry["name"] for entry in catalog.entries]
    assert "linux_fs_sample" in names
    assert "sample_file" not in names


def test_an_unknown_tool_is_answered_with_the_nearest_names() -> None:
    with pytest.raises(UnknownTool) as caught:
        Catalog(Config()).find("read_flie")
    assert "'read_flie'" in caught.value.message
    assert "read_file" in (caught.value.hint or "")


def test_a_name_like_no_other_is_answered_with_all_names() -> None:
    catalog = Catalog(Config())
    with pytest.raises(UnknownTool) as caught:
        catalog.find("§§§")
    assert all(name in (caught.value.hint or "") for name in catalog.tools)


@pytest.mark.parametrize("name", ["linux_fs_sample", "linux.fs_sample", "sample_file", "read_file"])
def test_a_feature_that_is_switched_off_says_which_setting(aliased: ToolDef, name: str) -> None:
    config = Config(linux_ops=LinuxOps(features=Features(fs_enabled=False)))
    catalog = Catalog(config)
    with pytest.raises(FeatureDisabled) as caught:
        catalog.find(name)
    assert "fs_enabled" in (caught.value.hint or "")
    assert all(tool.needs != FILES for tool in catalog.listed)
    assert catalog.find("health").name == "health"


def test_a_tool_that_is_switched_off_is_never_proposed(aliased: ToolDef) -> None:
    catalog = Catalog(Config(linux_ops=LinuxOps(features=Features(fs_enabled=False))))
    with pytest.raises(UnknownTool) as caught:
        catalog.find("linux_fs_sampel")
    assert "linux_fs_sample" not in (caught.value.hint or "")


def test_a_started_server_lists_what_the_catalogue_has(server: Client) -> None:
    assert server.tools() == Catalog(Config()).entries
