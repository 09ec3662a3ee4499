"""What is shipped: wheel, sdist, the registry's entry and the bundle. `make dist-test` installs and uses them."""

import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from llmc_mcp import __version__
from llmc_mcp.config.load import parse_flags
from scripts import dist, mcpb

from .support.workspace import Workspace, require

TOP = dist.TOP


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dist.build("wheel", tmp_path_factory.mktemp("wheel"))


def test_the_wheel_is_the_package_and_nothing_else_and_small(wheel: Path) -> None:
    held = dist.contents(wheel)
    assert wheel.stat().st_size <= dist.LARGEST_WHEEL
    modules = {str(path.relative_to(TOP / "src")) for path in (TOP / "src").rglob("*.py")}
    assert modules <= held.keys()
    assert {name.split("/")[0] for name in held} == {"llmc_mcp", f"llmc_mcp-{__version__}.dist-info"}
    assert "llmc_mcp/py.typed" in held
    assert not [name for name in held if name.endswith((".pyc", ".orig", ".bak"))]


def test_the_wheel_says_what_it_is_and_brings_its_commands(wheel: Path) -> None:
    about = f"llmc_mcp-{__version__}.dist-info"
    held = dist.contents(wheel)
    metadata = held[f"{about}/METADATA"].decode()
    assert f"\nVersion: {__version__}\n" in metadata
    assert "\nRequires-Python: >=3.11\n" in metadata
    asked_for = re.findall(r"^Requires-Dist: ([\w-]+)(?!.*extra ==)", metadata, re.MULTILINE)
    assert "pytest" not in asked_for
    assert "msgspec" in asked_for
    assert {"llmc", "llmc-mcp", "te"} == set(
        re.findall(r"^([\w-]+) = ", held[f"{about}/entry_points.txt"].decode(), re.M)
    )


def test_the_sdist_holds_what_building_testing_and_reading_need(tmp_path: Path) -> None:
    with tarfile.open(dist.build("sdist", tmp_path)) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    tracked = subprocess.run(["git", "ls-files"], cwd=TOP, capture_output=True, text=True, check=False)
    require(tracked.returncode == 0, "a git repository")
    left_out = {name for name in tracked.stdout.split() if name not in held and (TOP / name).exists()}
    assert {name for name in left_out if not name.startswith(".")} == set()
    assert not [name for name in held if "node_modules" in name or ".venv" in name or name.endswith(".pyc")]


def test_the_registry_entry_names_this_version_and_flags_that_exist() -> None:
    entry: dict[str, Any] = json.loads((TOP / "server.json").read_text())
    (package,) = entry["packages"]
    assert (entry["version"], package["version"]) == (__version__, __version__)
    assert len(entry["description"]) <= 100
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", entry["name"])
    assert f"mcp-name: {entry['name']}" in (TOP / "README.md").read_text(), "how the registry knows whose package it is"
    for argument in package["packageArguments"]:
        value = argument.get("default", "x")
        assert parse_flags([argument["name"], value])[1] == []


def test_the_manifest_of_the_bundle_is_what_the_package_says() -> None:
    kept = json.loads((mcpb.FOLDER / "manifest.json").read_text())
    assert kept == mcpb.manifest(), "renew it: python -m scripts.mcpb --manifest"


def test_the_formats_own_tool_accepts_the_bundle(tmp_path: Path) -> None:
    require(mcpb.TOOL.exists(), "the mcpb tool (make clients)")
    mcpb.assemble(tmp_path / "in")
    assert "validation passes" in mcpb.pack(tmp_path / "in", tmp_path / "it.mcpb")
    done = mcpb.run_tool("unpack", str(tmp_path / "it.mcpb"), str(tmp_path / "out"))
    assert done.returncode == 0
    held = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert {"manifest.json", "pyproject.toml", "README.md", "LICENSE", "server/main.py"} <= held
    assert "src/llmc_mcp/server.py" in held


def test_the_bundle_holds_all_that_building_it_needs(tmp_path: Path) -> None:
    mcpb.assemble(tmp_path / "in")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path / "out")]
    subprocess.run(command, cwd=tmp_path / "in", check=True, capture_output=True)
    (built,) = (tmp_path / "out").glob("*.whl")
    assert "llmc_mcp/server.py" in dist.contents(built)


def test_the_bundle_serves_the_folders_that_a_person_chose_and_no_others(workspace: Workspace, tmp_path: Path) -> None:
    mcpb.assemble(tmp_path / "in")
    workspace.file("a.txt", "inside")
    calls = [str(workspace.root / "a.txt"), str(workspace.outside / "secret.txt")]
    requests = [
        {
            "jsonrpc": "2.0",
            "id": n,
            "method": "tools/call",
            "params": {"name": "read_file", "arguments": {"path": path}},
        }
        for n, path in enumerate(calls)
    ]
    done = subprocess.run(
        [sys.executable, "server/main.py", str(workspace.root), str(tmp_path / "in")],
        cwd=tmp_path / "in",
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path / "in" / "src")},
        input="".join(json.dumps(request) + "\n" for request in requests),
        capture_output=True,
        text=True,
        check=True,
    )
    replies = {reply["id"]: reply["result"] for reply in map(json.loads, done.stdout.splitlines())}
    assert "inside" in replies[0]["content"][0]["text"]
    assert "INVALID_PATH" in replies[1]["content"][0]["text"]


def test_a_release_is_published_by_a_workflow_that_holds_no_secret() -> None:
    text = (TOP / ".github" / "workflows" / "release.yml").read_text()
    jobs = re.split(r"^  (\w+):$", text.partition("\njobs:\n")[2], flags=re.MULTILINE)[1:]
    bodies = dict(zip(jobs[::2], jobs[1::2], strict=True))
    assert list(bodies) == ["build", "publish", "announce"]
    assert [name for name, body in bodies.items() if "id-token: write" in body] == ["publish"]
    assert "environment: release" in bodies["publish"]
    assert "secrets." not in text
    assert "persist-credentials: false" in bodies["build"]
    targets = re.findall(r"^([a-z-]+):", (TOP / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"run: make ([a-z-]+)", text)) <= set(targets)
    pattern = re.search(r'grep -Fx "(.*)" src', text)
    assert pattern
    version = pattern[1].replace("${TAG#v}", __version__).replace('\\"', '"')
    assert version in (TOP / "src/llmc_mcp/__init__.py").read_text().splitlines(), "what the tag is compared with"
