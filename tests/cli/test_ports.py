"""`llmc ports`: a server that a command runs is listed, and reached from this machine when that is allowed."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..security.arena import USERS, Arena
from ..support.signals import obey_interrupts
from ..support.talk import eventually
from ..support.workspace import NOBODY, require

SERVE = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"from a command")
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
with open("port.new", "w") as file:
    file.write(str(server.server_port))
os.rename("port.new", "port")
server.serve_forever()
"""
LLMC = "from llmc_mcp.cli.main import main; main()"


class Ports:
    """A command that serves a page, and the `llmc` of who runs the server."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        arena.order(["python3", "-c", SERVE], yield_after=0)
        arena.answer()
        assert eventually((arena.root / "port").exists)
        self.port = (arena.root / "port").read_text()

    def llmc(self, *words: str) -> "subprocess.Popen[str]":
        identity: dict[str, Any] = {}
        if self.arena.other_user:
            identity = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        python = "/usr/bin/python3" if self.arena.other_user else sys.executable
        environment = {"HOME": str(self.arena.home), "PATH": "/usr/bin", "PYTHONPATH": self.arena.python_path}
        return subprocess.Popen(
            [python, "-c", LLMC, *words],
            env={**environment, "LLMC_DATA_DIR": str(self.arena.home / "data")},
            cwd="/",
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=obey_interrupts,  # noqa: PLW1509 - no other thread runs
            **identity,
        )

    def allow(self, *, allowed: bool = True) -> None:
        path = self.arena.home / ".config/llmc/llmc.toml"
        if not allowed:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("[mcp.sandbox]\nforward_ports = true\n")
        self.arena.hand_over()


@pytest.fixture(scope="module", params=USERS)
def ports(request: pytest.FixtureRequest) -> Iterator[Ports]:
    require(shutil.which("bwrap") is not None, "bubblewrap")
    with Arena("workspace", request.param) as arena:
        yield Ports(arena)


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return str(probe.getsockname()[1])


def test_ports_of_commands_are_listed_with_who_listens(ports: Ports) -> None:
    listed = json.loads(ports.llmc("ports", "--json").communicate()[0])
    mine = [one for one in listed if str(one["port"]) == ports.port]
    assert len(mine) == 1
    assert mine[0]["program"].startswith("python3 -c")
    assert mine[0]["session"] == "test"
    assert Path(f"/proc/{mine[0]['pid']}").exists()
    assert 61080 not in {one["port"] for one in listed}


def test_a_port_of_a_command_is_passed_on_when_the_operator_allows_it(ports: Ports) -> None:
    ports.allow(allowed=False)
    refused = ports.llmc("ports", ports.port)
    assert "sandbox.forward_ports true" in refused.communicate()[1]
    assert refused.returncode == 2
    ports.allow()
    here = free_port()
    forwarding = ports.llmc("ports", ports.port, "--at", here)
    assert forwarding.stderr
    assert f"http://127.0.0.1:{here}/ leads to python3" in forwarding.stderr.readline()

    def is_listening() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", int(here))) == 0

    assert is_listening(), "what is announced is there"
    for _ in range(3):
        with urllib.request.urlopen(f"http://127.0.0.1:{here}/") as page:
            assert page.read() == b"from a command"
    with socket.socket() as outside:  # nobody but this machine
        outside.bind(("127.0.0.2", int(here)))
    forwarding.send_signal(signal.SIGINT)
    forwarding.communicate()
    assert forwarding.returncode == 0
    assert not is_listening()


def test_a_port_that_is_taken_here_is_not_announced(ports: Ports) -> None:
    ports.allow()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = ports.llmc("ports", ports.port, "--at", str(taken.getsockname()[1]))
        said = done.communicate()[1]
    assert done.returncode == 2
    assert "can't be used" in said
    assert "leads to" not in said


def test_a_port_that_nobody_has_is_said_so(ports: Ports) -> None:
    ports.allow()
    done = ports.llmc("ports", free_port())
    assert "no command listens" in done.communicate()[1]
    assert done.returncode == 2
