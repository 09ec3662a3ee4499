"""The container's files say what they must; `make image-test` builds and runs them, tests/deploy does the rest."""

import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from llmc_mcp.config.load import load, parse_flags
from llmc_mcp.store.data_dir import data_directory

TOP = Path(__file__).parent.parent
DOCKERFILE = (TOP / "deploy/Dockerfile").read_text()


@pytest.fixture(scope="module")
def service() -> dict[str, Any]:
    """The one service of docker-compose.yml."""
    compose = yaml.safe_load((TOP / "docker-compose.yml").read_text())
    assert list(compose["volumes"]) == ["llmc-data"]
    assert list(compose["services"]) == ["llmc-mcp"]
    return cast(dict[str, Any], compose["services"]["llmc-mcp"])


def test_compose_has_the_specified_environment_volume_and_port(service: dict[str, Any]) -> None:
    environment = dict(entry.split("=", 1) for entry in service["environment"])
    assert environment["LLMC_ROOT"] == "/app"
    assert environment["LLMC_CONFIG"] == "/app/llmc.toml"
    assert environment["LLMC_MCP_TOKEN"].startswith("${LLMC_MCP_TOKEN:?")  # without one it does not start
    assert "llmc-data:/app/.llmc" in service["volumes"]
    assert data_directory({"LLMC_ROOT": "/app"}) == "/app/.llmc"
    assert [port.endswith(":8080:8080") for port in service["ports"]] == [True]
    assert (service["build"]["context"], service["build"]["dockerfile"]) == (".", "deploy/Dockerfile")


def test_compose_opens_nothing_that_nobody_asked_for(service: dict[str, Any]) -> None:
    assert service["ports"] == ["${LLMC_BIND:-127.0.0.1}:8080:8080"]
    assert any(volume.endswith(":/workspace:${HOST_REPO_MODE:-ro}") for volume in service["volumes"])
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert "tty" not in service  # a terminal would echo what a client on stdio sends
    assert "privileged" not in service


def test_the_image_is_an_ordinary_users_from_the_lock_file_with_a_health_check() -> None:
    build, run = DOCKERFILE.split("\n\n\n")
    assert "ARG PYTHON_IMAGE=python:3.11-slim" in build
    assert re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE) == ["${PYTHON_IMAGE}"] * 2
    assert "--require-hashes -r requirements/run.lock" in build
    assert "pip" not in run
    assert [line for line in run.splitlines() if line.startswith("USER ")] == ["USER llmc"]
    assert "HEALTHCHECK" in run
    assert 'ENTRYPOINT ["llmc-mcp"]' in run
    assert "LLMC_ROOT=/app" in run
    assert "LLMC_CONFIG=/app/llmc.toml" in run


def test_only_what_the_image_is_made_of_is_sent_to_its_build() -> None:
    lines = (TOP / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    let_in = [rule[1:] for rule in rules if rule.startswith("!")]
    copied = {
        source.rstrip("/")
        for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
        for source in line.split()[:-1]
    }
    for source in copied:
        assert (TOP / source).exists(), source
        assert any(source == rule or source.startswith(f"{rule}/") for rule in let_in), source
    for private in (".git", ".venv", ".env", "tests"):
        assert not any(fnmatch(private, rule) for rule in let_in)


def test_the_configuration_in_the_image_loads_without_a_word(tmp_path: Path) -> None:
    flags, _ = parse_flags(["--config", str(TOP / "deploy/container/llmc.toml")])
    loaded = load(flags, environ={"LLMC_ROOT": "/app", "HOME": str(tmp_path)}, directory="/")
    assert loaded.roots == ["/workspace"]
    assert (loaded.config.server.host, loaded.config.server.port) == ("0.0.0.0", 8080)
    assert loaded.config.server.transport == "stdio"  # `docker run -i` is what a client starts
    assert [loaded.notices, loaded.idle, loaded.ignored, loaded.refusals] == [[], [], [], []]
