"""A file system that works until it is told to hang, as a network mount does whose server is gone.

Run as a program it is the mount's other side: a FUSE daemon that speaks the kernel's protocol, serves one file, and
after a line on its standard input reads requests without ever answering one. Its end ends the mount's requests.
"""

import ctypes
import errno
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

NAME, CONTENT = b"there.txt", b"read in time\n"

_LOOKUP, _FORGET, _GETATTR, _OPEN, _READ, _STATFS, _RELEASE = 1, 2, 3, 14, 15, 17, 18
_INIT, _OPENDIR, _READDIR, _RELEASEDIR, _INTERRUPT, _BATCH_FORGET = 26, 27, 28, 29, 36, 42
_UNANSWERED = (_FORGET, _INTERRUPT, _BATCH_FORGET)
_FOLDER, _FILE = 1, 2  # node ids
_NOSUID, _NODEV, _DETACH = 2, 4, 2  # flags of mount and umount2
_MAX_REQUEST = 1 << 18


class HangingMount:
    """A mounted folder; `hang` makes every later request to it wait for ever."""

    def __init__(self, folder: Path, daemon: "subprocess.Popen[bytes]") -> None:
        self.folder, self._daemon = folder, daemon

    def hang(self) -> None:
        assert self._daemon.stdin
        assert self._daemon.stdout
        self._daemon.stdin.write(b"hang\n")
        self._daemon.stdin.flush()
        assert self._daemon.stdout.readline() == b"hanging\n"

    def end(self) -> None:
        """Whoever waits for an answer gets an error now."""
        self._daemon.kill()
        self._daemon.wait()


def can_mount() -> bool:
    """Whether a test may mount file systems of its own here."""
    return os.getuid() == 0 and os.access("/dev/fuse", os.R_OK | os.W_OK)


@contextmanager
def hanging_mount(folder: Path) -> Generator[HangingMount]:
    """Mount on a folder; nothing of it is left at the end."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, __file__, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as daemon:
        mount = HangingMount(folder, daemon)
        try:
            assert daemon.stdout
            assert daemon.stdout.readline() == b"mounted\n"
            yield mount
        finally:
            mount.end()
            ctypes.CDLL(None).umount2(os.fsencode(folder), _DETACH)


class _Daemon:
    def __init__(self, folder: str) -> None:
        self._fd = os.open("/dev/fuse", os.O_RDWR)
        self.hanging = False
        libc = ctypes.CDLL(None, use_errno=True)
        options = f"fd={self._fd},rootmode=40755,user_id=0,group_id=0,allow_other".encode()
        if libc.mount(b"hanging", os.fsencode(folder), b"fuse", _NOSUID | _NODEV, options):
            raise OSError(ctypes.get_errno(), "mount")
        threading.Thread(target=self._hang_when_told, daemon=True).start()

    def _hang_when_told(self) -> None:
        sys.stdin.readline()
        self.hanging = True
        print("hanging", flush=True)

    def serve(self) -> None:
        while True:
            request = os.read(self._fd, _MAX_REQUEST)
            _, operation, unique, node = struct.unpack_from("<IIQQ", request)
            if operation in _UNANSWERED or (self.hanging and operation != _INIT):
                continue
            answer = _answer(operation, node, request[40:])
            body, number = (b"", -answer) if isinstance(answer, int) else (answer, 0)
            os.write(self._fd, struct.pack("<IiQ", 16 + len(body), number, unique) + body)
            if operation == _INIT:
                print("mounted", flush=True)


def _answer(operation: int, node: int, body: bytes) -> bytes | int:
    """The answer to a request, or an error number. Nothing is cached: every look is a request."""
    if operation == _INIT:
        return struct.pack("<IIIIHHIIHHI28x", 7, 31, 1 << 16, 0, 12, 10, 1 << 17, 1, 256, 0, 0)
    if operation == _GETATTR:
        return struct.pack("<QII", 0, 0, 0) + _attributes(node)
    if operation == _LOOKUP:
        if node != _FOLDER or body.rstrip(b"\0") != NAME:
            return errno.ENOENT
        return struct.pack("<QQQQII", _FILE, 0, 0, 0, 0, 0) + _attributes(_FILE)
    if operation in (_OPEN, _OPENDIR):
        return struct.pack("<QII", 0, 0, 0)
    if operation in (_READ, _READDIR):
        offset, size = struct.unpack_from("<QI", body, 8)
        return CONTENT[offset : offset + size] if operation == _READ else _entries(offset)
    if operation == _STATFS:
        return struct.pack("<QQQQQIII4x24x", 1, 1, 1, 1, 1, 4096, 255, 4096)
    return b"" if operation in (_RELEASE, _RELEASEDIR) else errno.ENOSYS


def _attributes(node: int) -> bytes:
    mode, size = (0o40755, 0) if node == _FOLDER else (0o100644, len(CONTENT))
    return struct.pack("<QQQQQQIIIIIIIIII", node, size, 1, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def _entries(offset: int) -> bytes:
    if offset:
        return b""
    return struct.pack("<QQII", _FILE, 1, len(NAME), 8) + NAME.ljust(-(-len(NAME) // 8) * 8, b"\0")


if __name__ == "__main__":
    _Daemon(sys.argv[1]).serve()
