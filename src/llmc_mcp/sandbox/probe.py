"""The program that tests a sandbox from inside: attempts that must fail, and one that must succeed.

The source of this file is passed to a bare interpreter inside, so it imports nothing from this package. Every attempt
is harmless if it succeeds: files and listeners are the self-test's own, nothing is written to the system.
"""

import hashlib
import json
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

NAMES = (
    "write_outside",
    "read_outside",
    "truncate_outside",
    "list_outside",
    "change_mode_outside",
    "set_user_id",
    "connect_tcp",
    "send_udp",
    "connect_unix",
    "connect_abstract",
    "read_server_environment",
    "signal_server",
    "enter_other_namespace",
    "write_kernel_settings",
    "read_shadow",
)


def attempts(facts: dict[str, Any]) -> dict[str, Callable[[], object]]:
    """Map each name to a function that must raise OSError inside a sandbox."""
    outside: str = facts["outside"]
    return {
        "write_outside": lambda: os.open(f"{outside}/marker", os.O_WRONLY | os.O_CREAT, 0o600),
        "read_outside": lambda: os.open(f"{outside}/secret", os.O_RDONLY),
        "truncate_outside": lambda: os.truncate(f"{outside}/secret", 0),
        "list_outside": lambda: os.listdir(outside),
        "change_mode_outside": lambda: os.chmod(f"{outside}/mode", 0o600),
        "set_user_id": lambda: _set_user_id(f"{facts['root']}/set-uid"),
        "connect_tcp": lambda: _connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", facts["tcp"])),
        "send_udp": lambda: _connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", facts["udp"])),
        "connect_unix": lambda: _connect_unix(outside),
        "connect_abstract": lambda: _connect(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + facts["abstract"]),
        "read_server_environment": lambda: _read_environment(facts["server"], facts["environment"]),
        "signal_server": lambda: _signal(facts["server"], facts["pid_namespace"]),
        "enter_other_namespace": lambda: _run("unshare", "--user", "true"),
        "write_kernel_settings": lambda: os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY),
        "read_shadow": lambda: _read("/etc/shadow"),
    }


def _set_user_id(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    os.chmod(path, 0o4700)


def _connect_unix(folder: str) -> None:
    """Connect by a relative name: an address holds 107 bytes, and the folder's path may be longer."""
    here = os.open(".", os.O_PATH)
    os.chdir(folder)
    try:
        _connect(socket.AF_UNIX, socket.SOCK_STREAM, "socket")
    finally:
        os.fchdir(here)
        os.close(here)


def _connect(family: int, kind: int, address: Any) -> None:
    with socket.socket(family, kind) as probe:
        probe.settimeout(2)
        probe.connect(address)
        probe.send(b"probe")


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(1)


def _read_environment(pid: int, digest: str) -> None:
    """Compare digests: the pid may be another process's here, as it is where the server is pid 1 of a container."""
    with open(f"/proc/{pid}/environ", "rb") as file:
        if hashlib.sha256(file.read()).hexdigest() != digest:
            raise ProcessLookupError(pid)


def _signal(pid: int, namespace: int) -> None:
    try:
        same = os.stat("/proc/self/ns/pid").st_ino == namespace
    except OSError:
        same = True  # not known to be a different one
    if not same:
        raise ProcessLookupError(pid)
    os.kill(pid, 0)


def _run(*command: str) -> None:
    """Run a program that must fail."""
    pid = os.posix_spawnp(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_CLOSE, 2)])
    if os.waitpid(pid, 0)[1] != 0:
        raise PermissionError(*command)


def main() -> None:
    """Print the attempts that succeeded as JSON; write a file in the root, as ordinary work would."""
    facts = json.loads(sys.argv[1])
    succeeded: list[str] = []
    for name, attempt in attempts(facts).items():
        try:
            attempt()
        except OSError:
            continue
        succeeded.append(name)
    with open(f"{facts['root']}/inside", "w") as file:
        file.write("ok")
    print(json.dumps(succeeded))


if __name__ == "__main__":
    main()
