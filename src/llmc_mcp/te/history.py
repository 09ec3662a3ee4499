"""Who last changed a file: one question to git, with fixed arguments, in the sandbox.

A repository's own configuration can name programs that git starts. What it could do here, run_cmd could do as well:
the command has the sandbox of every command, and the settings that start something are switched off on top.
"""

import os
import time
from collections.abc import Callable

from ..errors import LlmcError
from .filesystem import Root
from .sandbox import Sandbox
from .shell import Programs

_PATIENCE_S = 3.0
_MOST = 2_000  # bytes of the answer
_QUIET = ("core.fsmonitor=false", "log.showSignature=false", "core.hooksPath=/dev/null", "core.pager=cat")


def last_commit(sandbox: Sandbox, programs: Programs, root: Root, path: bytes, check: Callable[[], None]) -> str | None:
    """The newest commit of a file: its id, day, author and subject; None where there is none to tell of."""
    settings = [part for one in _QUIET for part in (b"-c", one.encode())]
    shape = b"--format=%h %as %an: %s"
    argv = [b"--no-pager", *settings, b"log", b"-1", b"--no-color", b"--no-ext-diff", shape, b"--", path]
    until = time.monotonic() + _PATIENCE_S

    def in_time() -> None:
        check()
        if time.monotonic() > until:
            raise _TooLate

    said = b""
    try:
        git = os.fsencode(programs.locate("git", "/"))
        with sandbox.start([git, *argv], root.fd) as child:
            for piece in child.output(in_time):
                said = (said + piece)[:_MOST]
            done = child.exit_code == 0
    except (LlmcError, OSError, _TooLate):
        return None
    return said.decode("utf-8", "replace").strip() or None if done else None


class _TooLate(Exception):
    """git takes longer than its answer is worth."""
