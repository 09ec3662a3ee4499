"""bubblewrap's own report on whether it executed a command (--json-status-fd).

What a command prints proves nothing: any program can print `bwrap: …` and exit with 1. bubblewrap closes this
descriptor before the command starts, and writes an exit code to it only where the command was really executed.
"""

import os

_MOST = 4096
_FAILED = 1  # the exit code of a bubblewrap that gave up


class ExecStatus:
    """A file in memory that bubblewrap writes to, for one start."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("status")

    def writing_end(self) -> int:
        """A descriptor for bubblewrap; the caller closes it."""
        return os.open(f"/proc/self/fd/{self._fd}", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def executed(self, exit_code: int | None) -> bool:
        """Whether the command ran, now that bubblewrap has ended with `exit_code`."""
        return exit_code != _FAILED or b'"exit-code"' in os.pread(self._fd, _MOST, 0)

    def close(self) -> None:
        os.close(self._fd)
