"""Exchanges two names as fast as it can, until it is killed: the attacker of the race tests.

Run as a program: `swapper.py NAME OTHER`. A line on standard output says that it has begun.
"""

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


class Swapper:
    """A swapping process, for the length of a `with` block."""

    def __init__(self, name: Path, other: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(name), str(other)], stdout=subprocess.PIPE
        )

    def __enter__(self) -> "Swapper":
        assert self._process.stdout
        assert self._process.stdout.readline() == b"swapping\n"
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        assert self._process.stdout
        still_swapping = self._process.poll() is None
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()
        assert still_swapping, "the swapper failed, so nothing was raced"


def _swap_for_ever(name: bytes, other: bytes) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    print("swapping", flush=True)
    while True:
        if libc.renameat2(_AT_FDCWD, name, _AT_FDCWD, other, _RENAME_EXCHANGE):
            raise OSError(ctypes.get_errno(), "renameat2")


if __name__ == "__main__":
    _swap_for_ever(*(os.fsencode(argument) for argument in sys.argv[1:3]))
