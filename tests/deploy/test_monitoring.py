"""Prometheus and Grafana samples: a real Prometheus scrapes a real server, and every query finds what it asks for."""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from ..support.client import PATIENCE
from ..support.http_server import TOKEN, HttpServer
from ..support.workspace import require
from .image import REPOSITORY
from .proxies import free_port

DEPLOY = REPOSITORY / "deploy"
_NAME = re.compile(r"\b(llmc_\w+|up)\b")


def dashboard_queries() -> Iterator[str]:
    """What the panels ask, with Grafana's variables filled in."""
    for panel in json.loads((DEPLOY / "grafana/llmc-mcp.json").read_text())["panels"]:
        for target in panel["targets"]:
            yield target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*")


def alert_queries() -> Iterator[str]:
    """What the alerts ask."""
    text = (DEPLOY / "prometheus/alerts.yml").read_text()
    for found in re.finditer(r"^ +expr: (?:\|\n((?: {10,}.*\n)+)|(.*)\n)", text, re.MULTILINE):
        yield found[1] or found[2]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    """A server that has seen a success, a failure and a stranger."""
    root = tmp_path_factory.mktemp("root")
    env = {"LLMC_DATA_DIR": str(tmp_path_factory.mktemp("data"))}
    with HttpServer(root, env=env) as server:
        server.tool("list_dir", path=".")
        server.tool("read_file", path="missing")
        with server.client("wrong") as stranger:
            stranger.get("/metrics")
        yield server


@pytest.fixture(scope="module")
def exported(served: HttpServer) -> set[str]:
    """The names of everything on the metrics page."""
    with served.client() as client:
        page = client.get("/metrics").text
    return {re.match(r"\w+", line)[0] for line in page.splitlines() if line and line[0] != "#"} | {"up"}  # type: ignore[index]


def test_dashboard_and_alerts_ask_only_for_metrics_that_the_server_exports(exported: set[str]) -> None:
    asked = {name for query in (*dashboard_queries(), *alert_queries()) for name in _NAME.findall(query)}
    assert len(asked) > 15
    assert asked - exported == set()


def test_alerts_are_as_many_as_the_file_has() -> None:
    text = (DEPLOY / "prometheus/alerts.yml").read_text()
    assert len(list(alert_queries())) == text.count("- alert:") == 8


def test_promtool_finds_no_mistake(tmp_path: Path) -> None:
    require(shutil.which("promtool") is not None, "promtool")
    config = _configured(tmp_path, 8080)
    done = subprocess.run(["promtool", "check", "config", str(config)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_real_prometheus_scrapes_with_its_token_and_answers_every_query(served: HttpServer, tmp_path: Path) -> None:
    require(shutil.which("prometheus") is not None, "prometheus")
    port = free_port()
    command = ["prometheus", f"--config.file={_configured(tmp_path, served.port)}", f"--storage.tsdb.path={tmp_path}/d"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=PATIENCE, trust_env=False) as client:
            assert _until_scraped(client)[0]["value"][1] == "1"
            for query in (*dashboard_queries(), *alert_queries()):
                assert _ask(client, query)["status"] == "success", query
            assert _ask(client, 'llmc_calls_total{tool="read_file",status="NOT_FOUND"}')["data"]["result"]
            rules = client.get("/rules").json()["data"]["groups"][0]["rules"]
            assert {rule["health"] for rule in rules} <= {"ok", "unknown"}
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _configured(folder: Path, port: int) -> Path:
    """The sample, for a server on another port and a token in another place."""
    text = (DEPLOY / "prometheus/prometheus.yml").read_text()
    for old, new in (
        ("/etc/prometheus/llmc.token\n", f"{folder}/llmc.token\n"),
        ("127.0.0.1:8080", f"127.0.0.1:{port}"),
        ("scrape_interval: 15s", "scrape_interval: 1s"),
    ):
        assert old in text
        text = text.replace(old, new)
    (folder / "llmc.token").write_text(TOKEN)
    shutil.copy(DEPLOY / "prometheus/alerts.yml", folder)
    (folder / "prometheus.yml").write_text(text)
    return folder / "prometheus.yml"


def _ask(client: httpx.Client, query: str) -> dict[str, Any]:
    return client.get("/query", params={"query": query}).json()


def _until_scraped(client: httpx.Client) -> list[dict[str, Any]]:
    give_up = time.monotonic() + PATIENCE
    while time.monotonic() < give_up:
        try:
            if found := _ask(client, 'up{job="llmc-mcp"}')["data"]["result"]:
                return found
        except (httpx.HTTPError, ValueError, KeyError):
            continue  # it has only just been started
    raise AssertionError("nothing was scraped")
