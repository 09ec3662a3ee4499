"""A folder in the data directory where each server shows the programs that run in it, and finds requests to stop one.

All processes of the user can read it: the page of another server, and `llmc top`. A server writes one file, as a whole,
when something changed; a request is a file named after the program. Nobody waits for anybody.
"""

import os
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from ..store.data_dir import programs_of
from ..store.leases import alive, own_process

_STOP = ".stop"
_SHOWN = ".json"


class ShownProgram(msgspec.Struct, frozen=True):
    """A program as others see it."""

    proc_id: str
    principal: str
    session_id: str
    command: str
    state: str
    pid: int
    started_iso: str
    background: bool  # a command that outlived its call, not an interactive program
    output: str  # the end of it


class _Sheet(msgspec.Struct):
    """What one server shows."""

    process: str
    programs: list[ShownProgram]


class ProgramBoard:
    """The folder, from the side of one process."""

    def __init__(self, data_dir: str) -> None:
        self.folder = programs_of(data_dir)
        self._own = os.path.join(self.folder, f"{os.getpid()}{_SHOWN}")
        self._shows = False

    def show(self, programs: Sequence[ShownProgram]) -> None:
        """Show these programs of this server, in the place of those before."""
        if not programs and not self._shows:
            return
        with suppress(OSError):  # a full disk must not end a program
            if not programs:
                os.unlink(self._own)
            else:
                os.makedirs(self.folder, mode=0o700, exist_ok=True)
                fresh = f"{self._own}.new"
                with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
                    file.write(msgspec.json.encode(_Sheet(own_process(), list(programs))))
                os.replace(fresh, self._own)
            self._shows = bool(programs)

    def others(self) -> list[ShownProgram]:
        """What the other servers of the user show; the sheet of one that was killed is removed."""
        found: list[ShownProgram] = []
        for name in self._names():
            path = os.path.join(self.folder, name)
            if not name.endswith(_SHOWN) or path == self._own:
                continue
            with suppress(OSError, msgspec.DecodeError):
                with open(path, "rb") as file:
                    sheet = msgspec.json.decode(file.read(), type=_Sheet)
                if alive(sheet.process):
                    found += sheet.programs
                else:
                    os.unlink(path)
        return found

    def request_stop(self, proc_id: str) -> None:
        """Have the server of a program end it."""
        path = os.path.join(self.folder, f"{proc_id}{_STOP}")
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))

    def take_requests(self, own: Sequence[str]) -> list[str]:
        """The programs of this server that somebody wants stopped; each request is taken once."""
        wanted = [proc_id for proc_id in own if f"{proc_id}{_STOP}" in set(self._names())]
        for proc_id in wanted:
            with suppress(OSError):
                os.unlink(os.path.join(self.folder, f"{proc_id}{_STOP}"))
        return wanted

    def _names(self) -> list[str]:
        try:
            return os.listdir(self.folder)
        except OSError:
            return []
