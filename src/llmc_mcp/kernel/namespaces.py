"""The namespaces that the commands of one session share: a network with nothing but its own loopback, and a /tmp.

A short-lived child of the launcher makes them and passes them on as descriptors. Whoever holds the descriptors keeps
the machine in being; when they are closed, even by a SIGKILL, and the last command in it has ended, the kernel removes
it with all it holds.

Standard library only: the launcher imports this file.
"""

import fcntl
import os
import socket
import struct
from typing import TypedDict

from . import syscalls

_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914
_UP = 0x1 | 0x40  # up and running
_SMALL = "size=64k,nr_inodes=256,mode=755"
_INODES_PER_MB = 256
PROXY_PORT = 61080  # above the ports that the kernel gives out by itself, and nobody's habit
_QUIET = syscalls.MS_NOSUID | syscalls.MS_NODEV


class MachineSpec(TypedDict):
    """What a machine is made from."""

    network: bool  # a network of its own
    tmp: str  # the folder to mount its /tmp on, seen only inside; empty for none
    size_mb: int
    owner: tuple[int, int] | None  # of the home in it, if not who makes it
    folders: list[str]  # that have to exist below its /tmp for others to be mounted on, relative to it
    files: list[str]  # the same for files
    links: list[tuple[str, str]]  # target, place
    home: str  # relative as well
    home_files: list[tuple[str, bytes]]


def fork_maker(spec: MachineSpec, fds: list[int]) -> None:
    """Make a machine in a child, which sends its namespaces over the socket `fds[0]`, or why there are none.

    With a network of its own comes, as the last descriptor, a socket that is bound in it and does not listen yet: it
    belongs to that network wherever it is used, so that whoever listens on it needs no other way in.
    """
    if os.fork():
        return
    try:
        channel = socket.socket(fileno=os.dup(fds[0]))
        try:
            names = _make(spec)
            opened = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in names]
            if spec["network"]:
                opened.append(_bound_socket())
        except OSError as exc:
            channel.send(f"!{exc.strerror or exc}".encode())
        else:
            socket.send_fds(channel, [" ".join(names).encode()], opened)
    finally:
        os._exit(0)


def _make(spec: MachineSpec) -> list[str]:
    """Make the namespaces and enter them; returns their names, in the order in which others have to enter them."""
    kinds = {"mnt": syscalls.CLONE_NEWNS} if spec["tmp"] else {}
    if spec["network"]:
        kinds["net"] = syscalls.CLONE_NEWNET
    wanted = sum(kinds.values())
    uid, gid = os.getuid(), os.getgid()
    names = list(kinds)
    try:
        syscalls.unshare(wanted)
    except PermissionError:  # not root, or a root without its powers: in a user namespace anybody may
        syscalls.unshare(wanted | syscalls.CLONE_NEWUSER)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
        names.insert(0, "user")
    if spec["network"]:
        _raise_loopback()
    if spec["tmp"]:
        _furnish(spec)
    return names


def _bound_socket() -> int:
    """The place of the proxy in the network: taken before the first command could take it."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.bind(("127.0.0.1", PROXY_PORT))
    return bound.detach()


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh22x", b"lo", 0)
        flags: int = struct.unpack("16sh22x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", flags | _UP))


def _furnish(spec: MachineSpec) -> None:
    """Mount the /tmp and what has to be in it.

    What is mounted on later lies in a folder of its own that is read-only and, inside, a mount point: a command can
    neither rename nor replace anything on the way to it, for the next start of a command to follow.
    """
    before = os.stat("/")
    tmp = spec["tmp"]
    syscalls.mount(b"none", b"/", b"", syscalls.MS_REC | syscalls.MS_SLAVE)
    inodes = max(spec["size_mb"], 16) * _INODES_PER_MB
    options = f"size={spec['size_mb']}m,nr_inodes={inodes},mode=1777"
    syscalls.mount(b"tmpfs", os.fsencode(tmp), b"tmpfs", _QUIET, options.encode())
    places = [*spec["folders"], *spec["files"], *(place for _, place in spec["links"])]
    kept = {path.split("/", 1)[0] for path in places}
    for name in kept:
        os.mkdir(f"{tmp}/{name}")
        syscalls.mount(b"tmpfs", os.fsencode(f"{tmp}/{name}"), b"tmpfs", _QUIET, _SMALL.encode())
    for path in spec["folders"]:
        os.makedirs(f"{tmp}/{path}", exist_ok=True)
    for path in spec["files"]:
        os.makedirs(os.path.dirname(f"{tmp}/{path}"), exist_ok=True)
        os.close(os.open(f"{tmp}/{path}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
    for target, path in spec["links"]:
        os.makedirs(os.path.dirname(f"{tmp}/{path}"), exist_ok=True)
        os.symlink(target, f"{tmp}/{path}")
    for name in kept:
        flags = syscalls.MS_REMOUNT | syscalls.MS_BIND | syscalls.MS_RDONLY | _QUIET
        syscalls.mount(b"none", os.fsencode(f"{tmp}/{name}"), b"", flags)
    _make_home(f"{tmp}/{spec['home']}", spec)
    # Entering a mount namespace leads to its root: in a changed root that would be another place than ours.
    namespace = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    syscalls.setns(namespace, syscalls.CLONE_NEWNS)
    after = os.stat("/")
    if (before.st_dev, before.st_ino) != (after.st_dev, after.st_ino):
        raise OSError(0, "the server runs in a changed root")


def _make_home(path: str, spec: MachineSpec) -> None:
    os.mkdir(path, 0o755)
    made = [path]
    for name, content in spec["home_files"]:
        made.append(f"{path}/{name}")
        fd = os.open(made[-1], os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        os.write(fd, content)
        os.close(fd)
    if spec["owner"] is not None:
        for one in made:
            os.chown(one, *spec["owner"])


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
