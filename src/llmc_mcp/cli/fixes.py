"""`llmc doctor --fix`: what can be done about a finding, each only after the person said yes."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from .terminal import confirm

_LLMC = "from llmc_mcp.cli.main import main; main()"
_PROGRAMS = ("llmc", "llmc-mcp", "te")
_INSTALLERS = (
    ("apt-get", "install", "-y"),
    ("dnf", "install", "-y"),
    ("pacman", "-S", "--noconfirm"),
    ("zypper", "--non-interactive", "install"),
    ("apk", "add"),
)


class Fix(NamedTuple):
    """Something that can be done: what it is, the step as a person would do it, and the step itself."""

    what: str
    step: str
    do: Callable[[], None]


def offer(fixes: Iterable[Fix]) -> int:
    """Ask about each; returns 1 if one of them failed."""
    failed = offered = 0
    for fix in fixes:
        offered += 1
        print(f"\n{fix.what}\n  {fix.step}", file=sys.stderr)
        if not confirm("Do that?"):
            continue
        try:
            fix.do()
        except (OSError, subprocess.CalledProcessError) as exc:
            failed = 1
            print(f"llmc: it did not work: {exc}", file=sys.stderr)
    if not offered:
        print("\nThere is nothing that llmc can do here.", file=sys.stderr)
    return failed


def fixes_for(topics: "dict[str, list[str]]") -> Iterator[Fix]:
    """What can be done about findings: by topic, the details of what is missing."""
    if "bubblewrap" in topics and (fix := _install_package("bubblewrap", "Commands get the stronger sandbox.")):
        yield fix
    for folder in topics.get("toolchains", []):
        command = [sys.executable, "-P", "-c", _LLMC, "allow", "dir", folder]
        yield _run_fix(f"Commands see the programs in {folder}.", f"llmc allow dir {shlex.quote(folder)}", command)
    if missing := not_on_path():
        yield from _path(missing)
    yield from _completion()


def _run_fix(what: str, step: str, command: list[str]) -> Fix:
    def do() -> None:
        subprocess.run(command, stdin=subprocess.DEVNULL, check=True)  # the answers are not for it

    return Fix(what, step, do)


def _install_package(name: str, why: str) -> Fix | None:
    installer = next((words for words in _INSTALLERS if shutil.which(words[0])), None)
    if installer is None or (os.geteuid() != 0 and not shutil.which("sudo")):
        return None
    command = [*([] if os.geteuid() == 0 else ["sudo"]), *installer, name]
    return _run_fix(why, shlex.join(command), command)


# --- PATH ------------------------------------------------------------------------------------------------------------


def not_on_path() -> list[str]:
    """Our programs that a shell would not find, or would find elsewhere."""
    beside = os.path.dirname(sys.executable)
    ours = [name for name in _PROGRAMS if os.access(os.path.join(beside, name), os.X_OK)]
    return [name for name in ours if not _is_ours(shutil.which(name), os.path.join(beside, name))]


def _is_ours(found: str | None, path: str) -> bool:
    return found is not None and os.path.realpath(found) == os.path.realpath(path)


def _path(missing: list[str]) -> Iterator[Fix]:
    beside, folder = os.path.dirname(sys.executable), os.path.expanduser("~/.local/bin")
    links = {os.path.join(folder, name): os.path.join(beside, name) for name in missing}
    free = {link: target for link, target in links.items() if not os.path.lexists(link)}

    def link_all() -> None:
        os.makedirs(folder, exist_ok=True)
        for link, target in free.items():
            os.symlink(target, link)

    if free:
        yield Fix(f"A shell finds {', '.join(missing)}.", f"link them from {beside} into {folder}", link_all)
    if folder not in os.environ.get("PATH", "").split(":"):
        start_up = _start_up_file()
        line = 'fish_add_path "$HOME/.local/bin"' if _shell() == "fish" else 'export PATH="$HOME/.local/bin:$PATH"'
        yield from _append("A shell looks in ~/.local/bin.", start_up, line)


# --- completion ------------------------------------------------------------------------------------------------------


def _shell() -> str:
    name = os.path.basename(os.environ.get("SHELL", ""))
    return name if name in ("zsh", "fish") else "bash"


def _start_up_file() -> str:
    files = {"bash": "~/.bashrc", "zsh": "~/.zshrc", "fish": "~/.config/fish/config.fish"}
    return os.path.expanduser(files[_shell()])


def _completion() -> Iterator[Fix]:
    shell = _shell()
    line = "llmc completion fish | source" if shell == "fish" else f'eval "$(llmc completion {shell})"'
    yield from _append("Tab completes llmc, llmc-mcp and te.", _start_up_file(), line)


def _append(what: str, path: str, line: str) -> Iterator[Fix]:
    """Add a line to a start-up file, unless it is there."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except FileNotFoundError:
        text = ""
    if line in text:
        return

    def do() -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "a", encoding="utf-8") as file:
            file.write(("" if not text or text.endswith("\n") else "\n") + f"{line}\n")
        print(f"  new shells have it; in this one: {line}", file=sys.stderr)

    yield Fix(what, f"append to {path}: {line}", do)
