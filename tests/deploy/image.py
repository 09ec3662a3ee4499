"""The container image, built and run without a registry and without a Docker engine.

The base is a Debian made by debootstrap, kept among podman's images for the next time; LLMC_TEST_BASE_IMAGE names
another one, for example python:3.11-slim-bookworm where there is a registry. The pip settings of this machine are
lent to the build and end with it.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from ..support.client import PATIENCE

REPOSITORY = Path(__file__).parent.parent.parent
NEEDED = ("podman", "buildah", "runc", "debootstrap", "podman-compose")
IMAGE = "localhost/llmc-mcp:test"
_BASE = "localhost/llmc-base:bookworm"
_SLOW = 1_200.0

# crun does not start with hybrid control groups, and without explicit limits runc does not either; without systemd
# there is no other manager of control groups and no journal.
_CONTAINERS_CONF = """
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
"""


class Engine:
    """podman and buildah, set up for a machine that has neither systemd nor new control groups."""

    def __init__(self, folder: Path) -> None:
        settings = folder / "containers.conf"
        settings.write_text(_CONTAINERS_CONF)
        self.environment = {**os.environ, "CONTAINERS_CONF": str(settings)}
        self._folder = folder

    def run(self, *command: str, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
        """A command of the engine; its output."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False, timeout=_SLOW, **options
        )
        assert not check or done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done

    def build(self) -> None:
        """The image of this work tree; that of an earlier one makes room."""
        before = self._ids()
        self._build()
        for old in before - self._ids():
            self.run("podman", "rmi", old, check=False)  # with its layers, unless they are used

    def _ids(self) -> set[str]:
        shown = self.run("podman", "images", "--quiet", "--no-trunc", "--filter", f"reference={IMAGE}*")
        return set(shown.stdout.split())

    def _build(self) -> None:
        base = os.environ.get("LLMC_TEST_BASE_IMAGE", "")
        if not base:
            self._make_base()
        lent = [word for option in _lent_by_this_machine(self._folder / "pip.conf") for word in option]
        command = ["buildah", "bud", "--isolation", "chroot", "--format", "docker", "--layers", "--quiet"]
        command += ["--build-arg", f"PYTHON_IMAGE={base or _BASE}", *([] if base else ["--pull-never"])]
        command += ["--file", "deploy/Dockerfile"]
        # Only the first stage borrows; where something is mounted, a build leaves an empty folder.
        self.run(*command, *lent, "--target", "build", "--tag", f"{IMAGE}-build", ".", cwd=REPOSITORY)
        self.run(*command, "--tag", IMAGE, ".", cwd=REPOSITORY)

    def _make_base(self) -> None:
        """What python:3.x-slim is: a small Debian with Python and certificates."""
        if self.run("podman", "image", "exists", _BASE, check=False).returncode == 0:
            return
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            include = "--include=python3,python3-venv,ca-certificates"
            self.run("debootstrap", "--variant=minbase", include, "bookworm", folder)
            shutil.rmtree(f"{folder}/var/cache/apt/archives")
            self.run("sh", "-c", f"tar -C {folder} -c . | podman import - {_BASE}")


def _lent_by_this_machine(pip_conf: Path) -> Iterator[tuple[str, str]]:
    """Options of buildah for the pip settings in force here, and the files and folders that they name."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    settings: dict[str, str] = {}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        settings.setdefault(name.rpartition(".")[2], ast.literal_eval(value))
    lines = [f"{name} = {' '.join(value.split())}" for name, value in settings.items()]
    pip_conf.write_text("\n".join(["[global]", *lines, ""]))
    yield "--secret", f"id=pip.conf,src={pip_conf}"
    words = [word.removeprefix("file://") for value in settings.values() for word in value.split()]
    for path in {re.sub(r"/simple/?$", "", word) for word in words if word.startswith("/") and os.path.exists(word)}:
        yield "--volume", f"{path}:{path}:ro"


class Container:
    """A container of the image, removed in the end."""

    def __init__(self, engine: Engine, *options: str, image: str = IMAGE, running: str = "") -> None:
        self.engine = engine
        self.id = running or engine.run("podman", "run", "--detach", *options, image).stdout.split()[-1]

    def __enter__(self) -> "Container":
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.engine.run("podman", "rm", "--force", "--time", "1", self.id, check=False)

    def podman(self, verb: str, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """`podman VERB … CONTAINER`."""
        return self.engine.run("podman", verb, *words, self.id, check=check)

    def inside(self, *command: str, env: str = "", check: bool = True, **options: Any) -> Any:
        """What a command inside says."""
        extra = ["--env", env] if env else []
        return self.engine.run("podman", "exec", "--interactive", *extra, self.id, *command, check=check, **options)

    def inspect(self) -> dict[str, Any]:
        """What podman knows of it."""
        return json.loads(self.podman("inspect").stdout)[0]

    def wait_until_listening(self, log: tuple[str, ...] = ()) -> None:
        """Until the log says so: the container's, or one that a command inside shows."""
        command = ["podman", "exec", self.id, *log] if log else ["podman", "logs", "--follow", self.id]
        with subprocess.Popen(
            command, env=self.engine.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as following:
            assert following.stdout
            lines: list[str] = []
            for line in following.stdout:
                lines.append(line)
                if "llmc-mcp: listening on" in line:
                    break
            else:
                raise AssertionError(f"the container ended:\n{''.join(lines)}")
            following.kill()

    @property
    def url(self) -> str:
        """Where its port 8080 is published."""
        where = self.engine.run("podman", "port", self.id, "8080/tcp").stdout.split()[0]
        return f"http://{where}"


def build_with_systemd(engine: Engine, folder: Path) -> str:
    """The image with a systemd for its first process, and the system's unit installed as the unit tells."""
    unit = REPOSITORY / "deploy/systemd/system/llmc-mcp.service"
    shutil.copy(unit, folder)
    (folder / "Dockerfile").write_text(
        f"FROM {IMAGE}\nUSER root\nHEALTHCHECK NONE\n"
        "RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends systemd >/dev/null\n"
        "RUN systemctl mask systemd-logind getty.target console-getty\n"
        "COPY llmc-mcp.service /etc/systemd/system/\n"
        "RUN install -d -o llmc -g llmc /srv/llmc && install -d /etc/llmc\n"
        'ENTRYPOINT ["/lib/systemd/systemd"]\n'
    )
    command = ["buildah", "bud", "--isolation", "chroot", "--format", "docker", "--layers", "--quiet", "--pull-never"]
    engine.run(*command, "--tag", f"{IMAGE}-systemd", ".", cwd=folder)
    return f"{IMAGE}-systemd"


def talk(engine: Engine, *messages: dict[str, Any], options: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """The replies of a container that speaks MCP on its standard streams."""
    lines = "".join(json.dumps(message) + "\n" for message in messages)
    done = subprocess.run(
        ["podman", "run", "--rm", "--interactive", "--network=none", *options, IMAGE],
        env=engine.environment, input=lines, capture_output=True, text=True, check=False, timeout=PATIENCE * 4,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda reply: reply["id"])


def call(number: int, tool: str, **arguments: Any) -> dict[str, Any]:
    """A tools/call request."""
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
