"""Who makes commits in the sandbox: the name and address of the user's own git configuration, and nothing else of it.

They become the global configuration inside, so that what a repository sets for itself still comes first.
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

_ASKED = ["config", "--global", "--includes", "--null", "--get-regexp", r"^user\.(name|email)$"]
_PASSED_ON = ("XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL")  # where the configuration of the server's user may be
_PATIENCE_S = 5.0
_MAX = 200  # characters


def identity_file(launcher: Launcher, profile: Profile) -> bytes:
    """A git configuration file with the user's name and address; empty without either, or without git."""
    program = shutil.which("git", path=":".join(SYSTEM_PATH))
    if program is None:
        return b""
    lines = [
        f'\t{name.removeprefix("user.")} = "{_quoted(value)}"\n' for name, value in _ask(launcher, profile, program)
    ]
    return "".join(["[user]\n", *lines]).encode() if lines else b""


def _ask(launcher: Launcher, profile: Profile, program: str) -> list[tuple[str, str]]:
    """What git says of the user whom commands run as; where it fails, commits ask for a name as they always did."""
    if profile.user is None:
        env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        env["HOME"] = os.path.expanduser("~")
        plan = own_plan()
    else:
        env = {"HOME": pwd.getpwuid(profile.uid).pw_dir}
        plan = own_plan({"user": profile.user})
    argv = [os.fsencode(word) for word in (program, *_ASKED)]
    encoded = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    top = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        with Child(launcher, argv, cwd=top, env=encoded, plan=plan) as child:
            printed = b"".join(child.output(_patience()))
    except (OSError, LlmcError):
        return []
    finally:
        os.close(top)
    found: dict[str, str] = {}
    for entry in printed.decode("utf-8", "replace").split("\0"):
        name, _, value = entry.partition("\n")
        if value.isprintable() and 0 < len(value) <= _MAX:
            found[name] = value  # of several, the last counts
    return sorted(found.items(), reverse=True)


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _patience() -> Callable[[], None]:
    ends = time.monotonic() + _PATIENCE_S

    def check() -> None:
        if time.monotonic() > ends:
            raise Timeout("git does not answer")

    return check
