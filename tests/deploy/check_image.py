"""The image, really built and run: `make image-test`. Takes minutes and root, so `make test` does not collect it."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2 as httpx
import pytest
from mcp.client import Client as SdkClient
from mcp.client.streamable_http import streamable_http_client

from ..support.client import PATIENCE
from .image import IMAGE, NEEDED, REPOSITORY, Container, Engine, build_with_systemd, call, talk

TOKEN = "image-test-0123456789abcdef"
PUBLISHED = (
    *("--env", f"LLMC_MCP_TOKEN={TOKEN}", "--env", "LLMC_MCP_SERVER_TRANSPORT=http"),
    *("--publish", "127.0.0.1::8080"),
)
# As in docker-compose.yml: only the volume and /tmp can be written.
HARDENED = ("--read-only", "--tmpfs", "/tmp:mode=1777,exec", "--cap-drop=ALL", "--security-opt=no-new-privileges")
pytestmark = pytest.mark.timeout(1_800)


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """The engine, with the image built."""
    assert os.geteuid() == 0, "building and running without an engine of the machine's own needs root"
    missing = [name for name in NEEDED if shutil.which(name) is None]
    assert not missing, f"missing: {', '.join(missing)}"
    made = Engine(tmp_path_factory.mktemp("engine"))
    made.build()
    return made


@pytest.fixture
def volume(engine: Engine) -> Iterator[str]:
    """A volume of its own."""
    name = engine.run("podman", "volume", "create").stdout.strip()
    yield name
    engine.run("podman", "volume", "rm", "--force", name)


def post(container: Container, name: str, **arguments: Any) -> httpx.Response:
    body = {"session_id": "S", "name": name, "args": arguments}
    with httpx.Client(base_url=container.url, timeout=PATIENCE, trust_env=False) as client:
        return client.post("/tool", json=body, headers={"X-LLMC-Token": TOKEN})


def result(reply: dict[str, Any]) -> Any:
    """The first line of a tool's reply."""
    assert not reply["result"]["isError"], reply
    return json.loads(reply["result"]["content"][0]["text"].split("\n")[0])


def test_the_image_is_small_and_holds_nothing_of_its_build(engine: Engine) -> None:
    size = int(engine.run("podman", "image", "inspect", "--format", "{{.Size}}", IMAGE).stdout)
    print(f"\nimage: {size / 1e6:.0f} MB")
    look = "ls -A /opt; ls /etc/pip.conf /root/.config /run/secrets; /opt/llmc/bin/python -m pip --version;"
    look += "find /opt /app /workspace -name '*hatchling*' -o -name '*.lock'"
    done = engine.run("podman", "run", "--rm", "--user=0", "--entrypoint=sh", IMAGE, "-c", look, check=False)
    assert done.stdout.split() == ["llmc"]
    history = engine.run("podman", "history", "--no-trunc", "--format", "{{.CreatedBy}}", IMAGE).stdout
    assert "pip.conf" not in history


def test_the_server_is_an_ordinary_user_that_cannot_change_its_own_programs(engine: Engine) -> None:
    look = "id -u; for path in / /app /app/llmc.toml /opt/llmc/bin/python /etc; do test -w $path && echo $path; done"
    done = engine.run("podman", "run", "--rm", "--entrypoint=sh", IMAGE, "-c", look, check=False)
    assert done.stdout.split() == ["1000"]


def test_a_client_speaks_mcp_with_it_through_a_pipe(engine: Engine) -> None:
    health, written, ran, peeked = talk(
        engine,
        call(1, "health"),
        call(2, "linux_fs_write", path="made.txt", content="by a tool\n"),
        call(3, "run_cmd", command="git --version"),
        call(4, "run_cmd", command="ls -A /app/.llmc"),
    )
    level = result(health)["sandbox"]["commands"]
    assert level in ("landlock sandbox", "workspace sandbox")
    assert result(written)["bytes_written"] == 10
    assert result(ran)["sandbox"] == level.split()[0]
    assert result(peeked)["exit_code"] != 0  # what the server keeps is not for commands


def test_the_doctor_inside_tells_the_level_and_what_it_prevents(engine: Engine) -> None:
    done = engine.run("podman", "run", "--rm", *HARDENED, "--entrypoint=llmc", IMAGE, "doctor", "--json", check=False)
    found = {row["topic"]: row for row in json.loads(done.stdout)}
    assert found["commands"]["state"] == "ok"
    assert "prevented: read a file outside the roots" in found["commands"]["details"]
    if "run at level landlock" in found["commands"]["message"]:  # and why not the stronger one, and how to get it
        assert "workspace: " in found["sandbox"]["message"]
        assert "DOCS/deploy.md" in found["sandbox"]["fix"]


def test_where_the_container_may_make_namespaces_commands_get_the_strongest_level(engine: Engine) -> None:
    allowed = ("--security-opt=seccomp=unconfined", "--security-opt=unmask=ALL")
    (health,) = talk(engine, call(1, "health"), options=(*HARDENED, *allowed))
    assert result(health)["sandbox"]["commands"] == "workspace sandbox"


def test_it_serves_a_published_port_and_its_health_check_tells_the_truth(engine: Engine, volume: str) -> None:
    with Container(engine, *PUBLISHED, *HARDENED, "--volume", f"{volume}:/app/.llmc") as container:
        container.wait_until_listening()
        with httpx.Client(base_url=container.url, timeout=PATIENCE, trust_env=False) as client:
            assert client.get("/health").json() == {"ok": True, "version": "v0"}
            assert client.post("/tool", json={"name": "list_dir", "args": {"path": "."}}).status_code == 401
        anyio.run(_official_client, f"{container.url}/mcp")
        assert container.inspect()["Config"]["Healthcheck"]["Test"][0] == "CMD"
        assert container.podman("healthcheck", "run").returncode == 0
        probe = ("python", "-I", "/app/healthcheck.py")
        assert container.inside(*probe, env="LLMC_MCP_SERVER_PORT=9", check=False).returncode == 1
        container.podman("stop", "--time", "30")
        assert container.inspect()["State"]["ExitCode"] == 0


async def _official_client(url: str) -> None:
    async with (
        httpx.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False) as http,
        SdkClient(streamable_http_client(url, http_client=http)) as client,
    ):
        listed = await client.list_tools()
    assert "run_cmd" in {tool.name for tool in listed.tools}


def test_it_does_not_listen_without_a_token(engine: Engine) -> None:
    done = engine.run("podman", "run", "--rm", "--env=LLMC_MCP_SERVER_TRANSPORT=http", IMAGE, check=False)
    assert done.returncode == 2
    assert "no token, and 0.0.0.0 is not a loopback address" in done.stderr


def test_telemetry_handles_undo_and_index_survive_another_container(
    engine: Engine, volume: str, tmp_path: Path
) -> None:
    (tmp_path / "kept.txt").write_text("before\n")
    (tmp_path / "kept.txt").chmod(0o666)
    (tmp_path / "ledger.py").write_text("def balance_of(account):\n    return account.credit - account.debit\n")
    tmp_path.chmod(0o777)
    mounts = ("--volume", f"{volume}:/app/.llmc", "--volume", f"{tmp_path}:/workspace")
    with Container(engine, *PUBLISHED, *HARDENED, *mounts) as first:
        first.wait_until_listening()
        undo = post(first, "linux_fs_write", path="kept.txt", content="after\n").json()["undo_id"]
        handle = post(first, "run_cmd", command="seq 1 20000").json()["meta"]["handle"]
        assert (tmp_path / "kept.txt").read_text() == "after\n"
        indexed = post(first, "rag_index").json()
        assert (indexed["files"], indexed["changed"]) == (2, 2)
        first.podman("stop", "--time", "30")
    with Container(engine, *PUBLISHED, *HARDENED, *mounts) as second:
        second.wait_until_listening()
        page = post(second, "linux_handle_read", handle=handle, offset=19_999, limit=1).json()
        assert page["content"].strip() == "20000"
        stats = post(second, "linux_mcp_usage_stats").json()["tools"]
        assert stats["run_cmd"]["count"] == 1
        indexed = post(second, "rag_index").json()
        assert (indexed["files"], indexed["changed"]) == (2, 0)  # not built anew
        found = post(second, "rag_search", query="balance of an account").json()["snippets"]
        assert found[0]["src"].endswith("ledger.py#L1-L2")
        assert post(second, "linux_fs_undo", undo_id=undo).status_code == 200
    assert (tmp_path / "kept.txt").read_text() == "before\n"


def test_a_backup_of_the_volume_brings_everything_back(engine: Engine, volume: str, tmp_path: Path) -> None:
    first = ("--volume", f"{volume}:/app/.llmc")
    wrote, ran = talk(
        engine,
        call(1, "linux_fs_write", path="a.txt", content="x"),
        call(2, "run_cmd", command="seq 1 20000"),
        options=first,
    )
    assert result(wrote)["undo_id"]
    tar = ("--entrypoint=tar", IMAGE, "-C", "/app/.llmc")
    saved = tmp_path / "llmc-data.tar"
    with saved.open("wb") as file:
        command = ["podman", "run", "--rm", "--volume", f"{volume}:/app/.llmc:ro", *tar, "-c", "."]
        subprocess.run(command, env=engine.environment, stdout=file, stderr=subprocess.DEVNULL, check=True)
    other = engine.run("podman", "volume", "create").stdout.strip()
    try:
        back = ["podman", "run", "--rm", "--interactive", "--volume", f"{other}:/app/.llmc", *tar, "-x"]
        with saved.open("rb") as file:
            subprocess.run(back, env=engine.environment, stdin=file, stderr=subprocess.DEVNULL, check=True)
        options = ("--volume", f"{other}:/app/.llmc")
        page, *_ = talk(engine, call(1, "linux_handle_read", handle=result(ran)["handle"], limit=1), options=options)
        assert result(page)["total"] == 20_000
    finally:
        engine.run("podman", "volume", "rm", "--force", other)


def test_the_compose_file_starts_the_same_server(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "hello.txt").write_text("from the host\n")
    compose = tmp_path / "docker-compose.yml"
    text = (REPOSITORY / "docker-compose.yml").read_text()
    for name, ours in (("image: llmc-mcp\n", f"image: {IMAGE}\n"), ("name: llmc-data\n", f"name: {tmp_path.name}\n")):
        assert name in text
        text = text.replace(name, ours)
    compose.write_text(text)
    environment = {**engine.environment, "LLMC_MCP_TOKEN": TOKEN, "HOST_REPO": str(tmp_path / "repo")}
    project = ("podman-compose", "--project-name", f"llmc-test-{os.getpid()}", "--file", str(compose))
    engine.environment, usual = environment, engine.environment
    try:
        engine.run(*project, "up", "--detach", "--no-build", cwd=tmp_path)
        names = engine.run("podman", "ps", "--quiet", "--filter", f"label=io.podman.compose.project={project[2]}")
        container = Container(engine, running=names.stdout.strip())
        container.wait_until_listening()
        assert container.url == "http://127.0.0.1:8080"
        assert post(container, "read_file", path="hello.txt").json()["data"] == "from the host\n"
        assert post(container, "linux_fs_write", path="hello.txt", content="x").status_code != 200  # read-only
    finally:
        engine.run(*project, "down", "--volumes", cwd=tmp_path, check=False)
        engine.environment = usual


# --- under systemd ---------------------------------------------------------------------------------------------------

# Asked from inside: the unit lets nobody in but loopback.
_CALL = f"""
import json, sys, urllib.request
body = json.dumps({{"name": sys.argv[1], "args": json.loads(sys.argv[2])}}).encode()
headers = {{"X-LLMC-Token": "{TOKEN}", "Content-Type": "application/json"}}
with urllib.request.urlopen(urllib.request.Request("http://127.0.0.1:8080/tool", body, headers)) as answer:
    sys.stdout.write(answer.read().decode())
"""


def _ask(machine: Container, tool: str, **arguments: Any) -> Any:
    return json.loads(machine.inside("python3", "-", tool, json.dumps(arguments), input=_CALL).stdout)


def _restart(machine: Container) -> None:
    machine.inside("sh", "-c", "journalctl --rotate --vacuum-time=1s >/dev/null 2>&1; systemctl restart llmc-mcp")
    machine.wait_until_listening(("journalctl", "--follow", "--no-tail", "--unit=llmc-mcp"))


def test_the_system_unit_serves_with_the_strongest_sandbox_inside_its_walls(engine: Engine, tmp_path: Path) -> None:
    image = build_with_systemd(engine, tmp_path)
    with Container(engine, "--systemd=always", "--privileged", image=image) as machine:
        machine.inside("sh", "-c", "until systemctl is-active --quiet basic.target; do sleep 0.1; done 2>/dev/null")
        machine.inside("sh", "-c", f"umask 077; echo LLMC_MCP_TOKEN={TOKEN} > /etc/llmc/environment")
        _restart(machine)
        assert _ask(machine, "health")["sandbox"]["commands"] == "workspace sandbox"
        assert _ask(machine, "run_cmd", command="touch made")["data"]["exit_code"] == 0
        assert _ask(machine, "linux_fs_write", path="a.txt", content="x")["bytes_written"] == 1
        assert _ask(machine, "linux_proc_start", command="python3 -i")["state"] == "running"
        assert _ask(machine, "execute_code", code="1 + 1")["result"] == 2
        owner = machine.inside("stat", "-c", "%U %a", "/var/lib/llmc").stdout.split()
        assert owner == ["llmc", "700"]
        _drop_in(machine, "RestrictNamespaces=yes")
        _restart(machine)
        assert _ask(machine, "health")["sandbox"]["commands"] == "landlock sandbox"  # as the unit says
        machine.inside("systemctl", "stop", "llmc-mcp")
        state = machine.inside("systemctl", "show", "--property=Result,ExecMainStatus", "llmc-mcp").stdout.split()
        assert sorted(state) == ["ExecMainStatus=0", "Result=success"]


def _drop_in(machine: Container, line: str) -> None:
    folder = "/etc/systemd/system/llmc-mcp.service.d"
    script = f"mkdir -p {folder} && printf '[Service]\\n{line}\\n' > {folder}/x.conf && systemctl daemon-reload"
    machine.inside("sh", "-c", script)
