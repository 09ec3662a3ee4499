"""How a process of ours that runs grammars is started: they are written in C and meet hostile files."""

import os
import sys

from .. import PACKAGE_HOME
from . import seccomp, syscalls
from .launcher_process import ChildPlan
from .limits import OWN_MEMORY, own_plan

_SYSTEM = (b"/lib", b"/lib64", b"/usr/lib", b"/usr/lib64", b"/etc/ld.so.cache")
_RUN = syscalls.EXECUTABLE | syscalls.READ_ONLY
_DEVICES = [(b"/dev/null", syscalls.FS_READ_FILE | syscalls.FS_WRITE_FILE), (b"/dev/urandom", syscalls.FS_READ_FILE)]


def command(module: str) -> list[bytes]:
    """A Python that runs the `main` of a module of this package."""
    code = f"import sys; sys.path.append({PACKAGE_HOME!r}); from {module} import main; main()"
    return [os.fsencode(word) for word in (sys.executable, "-I", "-B", "-X", "utf8", "-c", code)]


def plan(ruleset: int, *limits: tuple[int, int], memory: int = OWN_MEMORY, inotify: bool = False) -> ChildPlan:
    """How the launcher starts it: no socket and none of the system calls that commands are refused either.

    Root's capabilities stay: files that only they can read are indexed, and Landlock says which ones that may be.
    """
    filter_program = seccomp.command_filter(families=(), shared=True, inotify=inotify)
    made = own_plan({"ruleset": ruleset, "seccomp": filter_program}, memory=memory)
    return {**made, "limits": [*made.get("limits", ()), *limits]}


def needed(grammars: bytes) -> list[tuple[bytes, int]]:
    """What Python, our packages and the grammars are made of, and what it takes to use them."""
    libraries = [os.fsencode(path) for path in (sys.prefix, sys.base_prefix, PACKAGE_HOME) if path != "/"]
    libraries += [os.fsencode(path) for path in sys.path if path.endswith("-packages")]
    executable = os.path.realpath(os.fsencode(sys.executable))
    return [*((path, _RUN) for path in (grammars, *libraries, *_SYSTEM, executable)), *_DEVICES]
