"""The last commit of a file: one run of git, with fixed arguments, in a sandbox that allows no changes.

A repository's own configuration can name programs that git starts: to verify a signature, to run a hook, to page, to
compute a diff, and to fetch a missing object in a partial clone. Reading must not start any of them, so each is
disabled; one that started nevertheless could read the roots and change nothing.
"""

import os
import time
from collections.abc import Callable

from ..errors import Cancelled, LlmcError, Timeout
from ..files.filesystem import Root
from ..sandbox.sandbox import Sandbox
from .allowlist import Programs

_TIMEOUT_S = 3.0
_MAX_OUTPUT = 2_000  # bytes
QUIET = (
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
ENVIRONMENT = {
    b"GIT_ALLOW_PROTOCOL": b"none",  # unlike protocol.allow, a repository can't override it
    b"GIT_NO_LAZY_FETCH": b"1",
    b"GIT_OPTIONAL_LOCKS": b"0",
    b"GIT_LITERAL_PATHSPECS": b"1",
}


def last_commit(sandbox: Sandbox, programs: Programs, root: Root, path: bytes, check: Callable[[], None]) -> str | None:
    """Return a file's last commit as id, date, author and subject; None if there is none to report."""
    settings = [part for setting in QUIET for part in (b"-c", setting)]
    argv = [b"--no-pager", *settings, b"log", *_ARGUMENTS, b"--", path]
    deadline = time.monotonic() + _TIMEOUT_S

    def check_deadline() -> None:
        check()
        if time.monotonic() > deadline:
            raise _TooLate

    try:
        git = os.fsencode(programs.locate("git", "/"))
        return _run_git(sandbox, [git, *argv], root, check_deadline)
    except (Cancelled, Timeout):
        raise  # the call is over, not only this run
    except (LlmcError, OSError, _TooLate):
        return None


def _run_git(sandbox: Sandbox, argv: list[bytes], root: Root, check: Callable[[], None]) -> str | None:
    printed = b""
    level = sandbox.another(read_only=True)
    try:
        with sandbox.start(argv, root.fd, env=ENVIRONMENT, level=level) as child:
            for piece in child.output(check):
                printed = (printed + piece)[:_MAX_OUTPUT]
            done = child.exit_code == 0
    finally:
        level.close()
    return printed.decode("utf-8", "replace").strip() or None if done else None


class _TooLate(Exception):
    """git takes longer than its answer is worth."""
