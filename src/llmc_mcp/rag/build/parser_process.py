"""A confined process of our own that runs grammars, and the server's end of the pipes to it.

Grammars are written in C and read untrusted text. The process sees what it is sent and nothing else. It is started
with the first request; one that takes too long or breaks is ended, and the next request starts another.
"""

import os
import resource
import select
import signal
import time
from collections.abc import Sequence

from ...kernel import syscalls
from ...kernel.confine import command, needed, plan
from ...kernel.landlock import ruleset
from ...kernel.launcher import Launcher, RunningChild
from ..parse.grammars import CACHE, unpack
from .syntax_child import receive, send

_MEMORY = 1 << 30


class ParserProcess:
    """Runs the `main` of a module that answers frames; one request at a time, which is the caller's care."""

    def __init__(
        self,
        launcher: Launcher,
        module: str,
        data_dir: str,
        *,
        folders: Sequence[tuple[bytes, int]] = (),
        address_space: int | None = _MEMORY,
    ) -> None:
        self._launcher, self._module, self._data_dir = launcher, module, data_dir
        self._folders = folders  # that it may use, and how
        self._limits = [] if address_space is None else [(resource.RLIMIT_AS, address_space)]
        self._child: RunningChild | None = None
        self._stdin = self._stdout = -1
        self._unpacked: set[str] = set()
        self._used_at = 0.0

    def ask(self, language: str, request: bytes, seconds: float) -> bytes | None:
        """The answer to a request about a text in `language`, if in any; None if there is none within `seconds`.

        OSError if the process can't be started.
        """
        self._ready(language)
        try:
            send(self._stdin, request)
            answer = receive(self._stdout) if select.select([self._stdout], [], [], seconds)[0] else None
        except OSError:
            answer = None
        self._used_at = time.monotonic()
        if answer is None:
            self.close()
        return answer

    def release_idle(self, idle_s: float) -> bool:
        """End the process if it was asked nothing for so long; whether it was ended."""
        if self._child is None or time.monotonic() - self._used_at < idle_s:
            return False
        self.close()
        return True

    def close(self) -> None:
        """End the process."""
        child, self._child = self._child, None
        for fd in (self._stdin, self._stdout):
            if fd >= 0:
                os.close(fd)
        self._stdin = self._stdout = -1
        if child is not None:
            self._launcher.signal(child, signal.SIGKILL)
            self._launcher.forget(child)

    def _ready(self, language: str) -> None:
        place = unpack(self._data_dir, [language]) if language and language not in self._unpacked else ""
        self._unpacked.add(language)
        if self._child is not None and self._launcher.wait(self._child, 0) is None:
            return
        self.close()
        self._start(os.fsencode(place or unpack(self._data_dir, [language] if language else None)))

    def _start(self, grammars: bytes) -> None:
        opened = [os.open(b"/", os.O_PATH | os.O_CLOEXEC), *os.pipe2(os.O_CLOEXEC), *os.pipe2(os.O_CLOEXEC)]
        opened += [os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)]
        folder, in_read, in_write, out_read, out_write, nothing = opened
        confined = plan(4, *self._limits)
        try:
            if syscalls.landlock_abi():
                opened.append(ruleset([*needed(grammars), *self._folders]))
            else:
                del confined["ruleset"]
            self._child = self._launcher.start(
                command(self._module),
                {os.fsencode(CACHE): grammars},
                [folder, in_read, out_write, nothing, *opened[6:]],
                confined,
            )
            self._stdin, self._stdout = in_write, out_read
        finally:
            for fd in opened:
                if self._child is None or fd not in (in_write, out_read):
                    os.close(fd)
