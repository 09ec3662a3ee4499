"""A home, a cloned repository and a data directory, for tests about whose configuration counts."""

import json
import os
import subprocess
from pathlib import Path
from typing import cast

from llmc_mcp.config.load import LoadedConfig, load, parse_flags

from .client import Client
from .forked import llmc


class Machine:
    """Where configuration may come from, all below one folder."""

    def __init__(self, base: Path) -> None:
        self.home, self.repo, self.data = base / "home", base / "repo", base / "state"
        for folder in (self.home, self.repo):
            folder.mkdir()
        self.environ = {
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            "LLMC_DATA_DIR": str(self.data),
        }

    def users_file(self, text: str) -> Path:
        """The user's own configuration."""
        path = self.home / ".config" / "llmc" / "llmc.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def repo_file(self, text: str) -> Path:
        """The configuration that came with the repository."""
        path = self.repo / "llmc.toml"
        path.write_text(text)
        return path

    def named_file(self, text: str) -> Path:
        """A configuration for --config."""
        path = self.home / "named.toml"
        path.write_text(text)
        return path

    def load(self, *arguments: str, **environ: str) -> LoadedConfig:
        """What a server started in the repository would load."""
        flags, left = parse_flags(arguments)
        assert not left
        return load(flags, environ={**self.environ, **environ}, directory=str(self.repo))

    def server(self, *arguments: str, **environ: str) -> Client:
        """A server started in the repository."""
        return Client(*arguments, env={**self.environ, **environ}, cwd=self.repo)

    def llmc(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """`llmc` in the repository."""
        return llmc(*arguments, env={**os.environ, **self.environ, **environ}, cwd=self.repo)


def toml(value: object) -> str:
    """A value in TOML, where everything but tables is written as in JSON."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name} = {toml(item)}' for name, item in cast(dict[str, object], value).items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, cast(list[object], value)))}]"
    return json.dumps(value)


def one_setting(name: str, value: object) -> str:
    """A file with the mode and one other key."""
    section, _, field = f"mcp.{name}".rpartition(".")
    if section == "mcp":
        return f"[mcp]\n{field} = {toml(value)}\n" + ("" if field == "mode" else 'mode = "hybrid"\n')
    return f'[mcp]\nmode = "hybrid"\n[{section}]\n{field} = {toml(value)}\n'
