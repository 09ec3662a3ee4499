"""`python -m scripts.dist`: build wheel and sdist, install each into a clean environment, and use it.

Clean means: a new virtual environment with what the wheel itself asks for, at the locked versions, and nothing else;
an empty home; a folder elsewhere. Then the same without a clone and in one line: uvx, uv tool install and pipx, each
from the wheel, and uvx from the git repository.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).parent.parent
LARGEST_WHEEL = 2_500_000
_INSTALLERS = ("uv==0.13.7", "pipx==1.18.4")
_LISTS_TOOLS = '{"jsonrpc":"2.0","method":"tools/list","id":1}\n'
_LENT = re.compile(r"(?i)pip_|uv_|.*_proxy$|ssl_cert|lang$|tmpdir$")
_LOCKED = re.compile(r"^([A-Za-z0-9._-]+==[^ ;\\]+)", re.MULTILINE)


def build(target: str, folder: Path) -> Path:
    """One wheel or sdist."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)]
    subprocess.run(command, cwd=TOP, check=True, capture_output=True)
    (made,) = folder.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return made


def contents(wheel: Path) -> dict[str, bytes]:
    """What a wheel holds, by name; without the list of what it holds."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}


def locked_versions() -> str:
    """The lock file as constraints: versions only, so that the wheel's own list decides what is installed."""
    return "\n".join(_LOCKED.findall((TOP / "requirements" / "run.lock").read_text())) + "\n"


class Clean:
    """A new environment with a home of its own."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._bin = base / "venv" / "bin"
        subprocess.run([sys.executable, "-m", "venv", str(base / "venv")], check=True)
        (base / "home").mkdir()
        (base / "project").mkdir()
        (base / "project" / "README.md").write_text("# A project\n\nwith a readme\n")
        (base / "project" / "cart.py").write_text(
            'def total(prices):\n    """Sum of prices."""\n    return sum(prices)\n'
        )
        (base / "constraints.txt").write_text(locked_versions())

    def pip(self, *arguments: str) -> None:
        command = [str(self._bin / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
        subprocess.run([*command, "-c", str(self._base / "constraints.txt")], check=True)

    def run(self, name: str, *arguments: str, typed: str = "") -> str:
        """One of the package's commands, as an ordinary shell would start it; what it printed."""
        kept = {name: value for name, value in os.environ.items() if name in ("LANG", "TMPDIR")}
        environment = {**kept, "HOME": str(self._base / "home"), "PATH": f"{self._bin}:/usr/bin:/bin"}
        done = subprocess.run(
            [str(self._bin / name), *arguments],
            cwd=self._base / "project",
            env=environment,
            input=typed,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{name} {' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def installed(self) -> set[str]:
        """The names of all packages in it."""
        listed = subprocess.run(
            [str(self._bin / "python"), "-m", "pip", "list", "--format=json"], check=True, capture_output=True
        )
        return {row["name"].lower() for row in json.loads(listed.stdout)}


def use(clean: Clean) -> Iterator[str]:
    """Call what was installed; yields what was seen."""
    yield clean.run("llmc", "--version").strip()
    yield clean.run("te", "--version").strip()
    smoke = clean.run("llmc", "smoke")
    if "with a readme" not in smoke:
        raise SystemExit(f"llmc smoke did not read the file:\n{smoke}")
    yield "llmc smoke: read README.md"
    reply = clean.run("llmc-mcp", typed=_LISTS_TOOLS)
    yield f"llmc-mcp: {len(json.loads(reply)['result']['tools'])} tools"
    if "cart.py:1" not in clean.run("llmc", "search", "sum of prices"):
        raise SystemExit("llmc search did not find the function")
    yield "llmc search: found a function"
    clean.run("llmc", "repo", "validate")
    yield "llmc repo validate: nothing is wrong"


class OneLine:
    """Somebody with uv and pipx, an empty home and no clone."""

    def __init__(self, base: Path) -> None:
        self._home, self._project = base / "home", base / "project"
        for folder in (self._home, self._project):
            folder.mkdir(parents=True)
        tools = base / "tools"
        subprocess.run([sys.executable, "-m", "venv", str(tools)], check=True)
        pip = [str(tools / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
        subprocess.run([*pip, *_INSTALLERS], check=True)
        kept = {name: value for name, value in os.environ.items() if _LENT.match(name)}
        path = f"{self._home}/.local/bin:{tools}/bin:{Path(sys.executable).parent}:/usr/bin:/bin"
        certificates = os.environ.get("PIP_CERT", "")
        self._environment = {
            **kept,
            **({"SSL_CERT_FILE": certificates} if certificates else {}),
            "HOME": str(self._home),
            "PATH": path,
        }

    def run(self, *command: str, typed: str = "", code: int = 0) -> str:
        """A command line as this person types it; what it printed."""
        done = subprocess.run(
            command,
            cwd=self._project,
            env=self._environment,
            input=typed,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != code:
            raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout if code == 0 else done.stderr


def use_one_line(person: OneLine, wheel: Path) -> Iterator[str]:
    """Each way to have the server without a clone; yields what was seen."""
    for source in (str(wheel), f"git+file://{TOP}"):
        reply = person.run("uvx", "--quiet", "--from", source, "llmc-mcp", typed=_LISTS_TOOLS)
        yield f"uvx --from {source.rpartition('/')[2]}: {len(json.loads(reply)['result']['tools'])} tools"
    said = person.run("uvx", "--quiet", "--from", str(wheel), "llmc", "install", "claude-code", code=2)
    if "uv tool install" not in said:
        raise SystemExit(f"llmc install wrote an entry that uv may remove at any time:\n{said}")
    for installing, removing in (
        (("uv", "tool", "install", "--quiet"), ("uv", "tool", "uninstall", "--quiet")),
        (("pipx", "install", "--quiet"), ("pipx", "uninstall", "--quiet")),
    ):
        person.run(*installing, str(wheel))
        person.run("llmc", "install", "claude-code")
        yield f"{installing[0]} install: {person.run('llmc', '--version').strip()}, connected to Claude Code"
        person.run("llmc", "install", "claude-code", "--uninstall")
        person.run(*removing, "llmc-mcp")


def main() -> None:
    """Everything, on new files; leaves wheel and sdist in dist/."""
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        wheel, sdist = build("wheel", base / "wheel"), build("sdist", base / "sdist")
        size = wheel.stat().st_size
        print(f"{wheel.name}: {size:,} bytes; {sdist.name}: {sdist.stat().st_size:,} bytes")
        if size > LARGEST_WHEEL:
            raise SystemExit(f"the wheel is larger than {LARGEST_WHEEL:,} bytes")
        clean = Clean(base)
        clean.pip("install", str(wheel))
        if extra := {"pytest", "hypothesis", "ruff", "pyright", "numpy"} & clean.installed():
            raise SystemExit(f"installed without being asked for: {', '.join(sorted(extra))}")
        for line in use(clean):
            print(f"  {line}")
        clean.pip("wheel", "--no-deps", "--wheel-dir", str(base / "again"), str(sdist))
        (again,) = (base / "again").glob("*.whl")
        if contents(again) != contents(wheel):
            raise SystemExit("the sdist builds another wheel than the repository does")
        clean.pip("install", "--no-deps", "--force-reinstall", str(again))
        print("the sdist builds the same wheel; installed from it:")
        for line in use(clean):
            print(f"  {line}")
        print("in one line, without a clone:")
        for line in use_one_line(OneLine(base / "person"), wheel):
            print(f"  {line}")
        (TOP / "dist").mkdir(exist_ok=True)
        for made in (wheel, sdist):
            shutil.copy(made, TOP / "dist")


if __name__ == "__main__":
    main()
