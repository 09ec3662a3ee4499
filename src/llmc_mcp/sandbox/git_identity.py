"""The author of commits made in the sandbox: name and address from the user's own git configuration, and nothing else.

They become the global configuration inside the sandbox, so that a repository's own settings take precedence.
"""

import os
import pwd
import shutil
import time
from collections.abc import Callable

from ..errors import LlmcError, Timeout
from ..kernel.child import Child
from ..kernel.launcher import Launcher
from ..kernel.limits import own_plan
from .profile import SYSTEM_PATH, Profile

_QUERY = ["config", "--global", "--includes", "--null", "--get-regexp", r"^user\.(name|email)$"]
_CONFIG_VARIABLES = ("XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL")  # where the configuration of the server's user may be
_TIMEOUT_S = 5.0
_MAX = 200  # characters


def identity_file(launcher: Launcher, profile: Profile) -> bytes:
    """Return a git configuration file with the user's name and address; empty without either, or without git."""
    program = shutil.which("git", path=":".join(SYSTEM_PATH))
    if program is None:
        return b""
    lines = [
        f'\t{name.removeprefix("user.")} = "{_quoted(value)}"\n'
        for name, value in _git_user(launcher, profile, program)
    ]
    return "".join(["[user]\n", *lines]).encode() if lines else b""


def _git_user(launcher: Launcher, profile: Profile, program: str) -> list[tuple[str, str]]:
    """Ask git for the identity of the user that commands run as; if it fails, commits ask for a name as usual."""
    if profile.user is None:
        env = {name: os.environ[name] for name in _CONFIG_VARIABLES if name in os.environ}
        env["HOME"] = os.path.expanduser("~")
        plan = own_plan()
    else:
        env = {"HOME": pwd.getpwuid(profile.uid).pw_dir}
        plan = own_plan({"user": profile.user})
    argv = [os.fsencode(word) for word in (program, *_QUERY)]
    encoded = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    top = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        with Child(launcher, argv, cwd=top, env=encoded, plan=plan) as child:
            printed = b"".join(child.output(_deadline()))
    except (OSError, LlmcError):
        return []
    finally:
        os.close(top)
    settings: dict[str, str] = {}
    for entry in printed.decode("utf-8", "replace").split("\0"):
        name, _, value = entry.partition("\n")
        if value.isprintable() and 0 < len(value) <= _MAX:
            settings[name] = value  # the last of several wins
    return sorted(settings.items(), reverse=True)


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _deadline() -> Callable[[], None]:
    deadline = time.monotonic() + _TIMEOUT_S

    def check() -> None:
        if time.monotonic() > deadline:
            raise Timeout("git does not answer")

    return check
