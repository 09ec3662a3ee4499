"""Who last changed a file: one run of git, with fixed arguments, in a sandbox in which nothing can be changed.

A repository's own configuration can name programs that git starts: for a signature, a hook, a page, a difference, and
for an object that is missing where the repository calls itself a part of another. Reading must not start any of them,
so each is switched off; what would be started all the same could read the roots and change nothing.
"""

import os
import time
from collections.abc import Callable

from ..errors import Cancelled, LlmcError, Timeout
from ..files.filesystem import Root
from ..sandbox.sandbox import Sandbox
from .allowlist import Programs

_PATIENCE_S = 3.0
_MOST = 2_000  # bytes of the answer
_QUIET = (
    b"core.fsmonitor=false",
    b"core.hooksPath=/dev/null",
    b"core.pager=cat",
    b"core.sshCommand=false",
    b"credential.helper=",
    b"diff.external=",
    b"gpg.program=false",
    b"log.showSignature=false",
    b"protocol.allow=never",
)
_ARGUMENTS = (
    b"-1",
    b"--no-color",
    b"--no-ext-diff",
    b"--no-textconv",
    b"--no-show-signature",
    b"--format=%h %as %an: %s",
)
_ENVIRONMENT = {
    b"GIT_ALLOW_PROTOCOL": b"none",  # unlike protocol.allow, nothing in a repository is above it
    b"GIT_NO_LAZY_FETCH": b"1",
    b"GIT_OPTIONAL_LOCKS": b"0",
    b"GIT_LITERAL_PATHSPECS": b"1",
}


def last_commit(sandbox: Sandbox, programs: Programs, root: Root, path: bytes, check: Callable[[], None]) -> str | None:
    """The newest commit of a file: its id, day, author and subject; None where there is none to tell of."""
    settings = [part for one in _QUIET for part in (b"-c", one)]
    argv = [b"--no-pager", *settings, b"log", *_ARGUMENTS, b"--", path]
    until = time.monotonic() + _PATIENCE_S

    def in_time() -> None:
        check()
        if time.monotonic() > until:
            raise _TooLate

    try:
        git = os.fsencode(programs.locate("git", "/"))
        return _run_git(sandbox, [git, *argv], root, in_time)
    except (Cancelled, Timeout):
        raise  # the call is over, not only this run
    except (LlmcError, OSError, _TooLate):
        return None


def _run_git(sandbox: Sandbox, argv: list[bytes], root: Root, check: Callable[[], None]) -> str | None:
    said = b""
    level = sandbox.another(read_only=True)
    try:
        with sandbox.start(argv, root.fd, env=_ENVIRONMENT, level=level) as child:
            for piece in child.output(check):
                said = (said + piece)[:_MOST]
            done = child.exit_code == 0
    finally:
        level.close()
    return said.decode("utf-8", "replace").strip() or None if done else None


class _TooLate(Exception):
    """git takes longer than its answer is worth."""
