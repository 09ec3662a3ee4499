"""A seccomp filter against the system calls that no command needs and that would help it escape its sandbox.

A filter sees numbers, not paths. So it denies whole interfaces: namespaces and mounts, other processes' memory, kernel
interfaces with a history of vulnerabilities, socket families that no namespace isolates, set-ID modes, and, where
Landlock is the only confinement, what neither Landlock nor a namespace covers: sockets, System V and POSIX queues,
inotify, extended attributes by path, the scheduling of other processes.
"""

import os
import struct
from collections.abc import Iterable
from typing import NamedTuple

_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_ERRNO = 0x00050000
_EPERM, _ENOSYS, _EOPNOTSUPP, _EAFNOSUPPORT = 1, 38, 95, 97

# struct seccomp_data: number, architecture, instruction pointer, six 64-bit arguments (low half first: both
# architectures are little-endian).
_NUMBER, _ARCH, _ARG0, _ARG1, _ARG2, _ARG3 = 0, 4, 16, 24, 32, 40

_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_JUMP, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT = 0x05, 0x15, 0x35, 0x45
_RETURN = 0x06

_NEW_NAMESPACES = 0x7E020000  # every CLONE_NEW* flag that clone takes
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # both inject input into the terminal
LOCAL = 1  # AF_UNIX
INTERNET = (2, 10, 16)  # AF_INET, AF_INET6, and AF_NETLINK, which libc uses to look up addresses

SET_USER_ID, SET_GROUP_ID = 0o4000, 0o2000
_CREATING = 0o100 | 0o20000000  # O_CREAT, O_TMPFILE: without them open ignores the mode

_X32_BIT = 0x40000000

# Newer than the unified table: the same number on both architectures.
_COMMON = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "pidfd_getfd": 438,
    "process_madvise": 440,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "open_tree_attr": 467,
}
_X86_64 = {
    "ptrace": 101, "syslog": 103, "uselib": 134, "vhangup": 153, "modify_ldt": 154, "pivot_root": 155,
    "sysctl": 156, "adjtimex": 159, "chroot": 161, "acct": 163, "settimeofday": 164, "mount": 165,
    "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169, "sethostname": 170, "setdomainname": 171,
    "iopl": 172, "ioperm": 173, "create_module": 174, "init_module": 175, "delete_module": 176, "quotactl": 179,
    "nfsservctl": 180, "lookup_dcookie": 212, "clock_settime": 227, "kexec_load": 246, "add_key": 248,
    "request_key": 249, "keyctl": 250, "unshare": 272, "perf_event_open": 298, "fanotify_init": 300,
    "open_by_handle_at": 304, "clock_adjtime": 305, "setns": 308, "process_vm_readv": 310,
    "process_vm_writev": 311, "kcmp": 312, "finit_module": 313, "kexec_file_load": 320, "bpf": 321,
    "userfaultfd": 323,
}  # fmt: skip
_AARCH64 = {
    "lookup_dcookie": 18, "umount2": 39, "mount": 40, "pivot_root": 41, "nfsservctl": 42, "chroot": 51,
    "vhangup": 58, "quotactl": 60, "acct": 89, "unshare": 97, "kexec_load": 104, "init_module": 105,
    "delete_module": 106, "clock_settime": 112, "syslog": 116, "ptrace": 117, "reboot": 142, "sethostname": 161,
    "setdomainname": 162, "settimeofday": 170, "adjtimex": 171, "add_key": 217, "request_key": 218,
    "keyctl": 219, "swapon": 224, "swapoff": 225, "perf_event_open": 241, "fanotify_init": 262,
    "open_by_handle_at": 265, "clock_adjtime": 266, "setns": 268, "process_vm_readv": 270,
    "process_vm_writev": 271, "kcmp": 272, "finit_module": 273, "bpf": 280, "userfaultfd": 282,
    "kexec_file_load": 294,
}  # fmt: skip


# Denied where a command shares the host's namespaces; see `command_filter`. To a program, ENOSYS means a kernel built
# without the call, and EOPNOTSUPP a file system without attributes.
_SHARED_X86_64 = {
    "shmget": 29, "shmat": 30, "shmctl": 31, "semget": 64, "semop": 65, "semctl": 66, "shmdt": 67, "msgget": 68,
    "msgsnd": 69, "msgrcv": 70, "msgctl": 71, "semtimedop": 220, "mq_open": 240, "mq_unlink": 241,
    "inotify_init": 253, "inotify_add_watch": 254, "inotify_init1": 294,
}  # fmt: skip
_SHARED_AARCH64 = {
    "inotify_init1": 26, "inotify_add_watch": 27, "mq_open": 180, "mq_unlink": 181, "msgget": 186, "msgctl": 187,
    "msgrcv": 188, "msgsnd": 189, "semget": 190, "semctl": 191, "semtimedop": 192, "semop": 193, "shmget": 194,
    "shmctl": 195, "shmat": 196, "shmdt": 197,
}  # fmt: skip
_ATTRIBUTES_COMMON = {
    "setxattrat": 463, "getxattrat": 464, "listxattrat": 465, "removexattrat": 466,
    "file_getattr": 468, "file_setattr": 469,
}  # fmt: skip
# By path only: for a descriptor, Landlock decided when it was opened.
_ATTRIBUTES_X86_64 = {
    "setxattr": 188, "lsetxattr": 189, "getxattr": 191, "lgetxattr": 192, "listxattr": 194, "llistxattr": 195,
    "removexattr": 197, "lremovexattr": 198,
}  # fmt: skip
_ATTRIBUTES_AARCH64 = {
    "setxattr": 5, "lsetxattr": 6, "getxattr": 8, "lgetxattr": 9, "listxattr": 11, "llistxattr": 12,
    "removexattr": 14, "lremovexattr": 15,
}  # fmt: skip


class _TargetedCall(NamedTuple):
    """A call that can affect another process."""

    number: int
    target: int  # the argument that selects the process; 0 is the caller itself
    every: int | None = None  # the value of the first argument that means all processes of a user


class _Machine(NamedTuple):
    arch: int
    denied: dict[str, int]
    shared: dict[str, int]
    attributes: dict[str, int]
    clone: int
    clone3: int
    ioctl: int
    socket: int
    targeted: tuple[_TargetedCall, ...]
    scheduling: tuple[_TargetedCall, ...]  # in a shared pid namespace these reach all of the user's processes
    modes: tuple[tuple[int, int], ...]  # call, argument that holds the file's mode
    opens: tuple[tuple[int, int, int], ...]  # call, flags, mode


# targeted: prlimit64, setpriority, ioprio_set. scheduling: sched_setparam, sched_setscheduler, sched_setaffinity,
# sched_setattr. modes: chmod, fchmod, fchmodat, fchmodat2, creat, mknod, mknodat; mkdir ignores these bits. openat2
# passes its mode in memory, which no filter sees; but the file that it creates is empty, and writing clears the bits.
_MACHINES = {
    "x86_64": _Machine(
        0xC000003E,
        _X86_64 | _COMMON,
        _SHARED_X86_64,
        _ATTRIBUTES_X86_64 | _ATTRIBUTES_COMMON,
        clone=56,
        clone3=435,
        ioctl=16,
        socket=41,
        targeted=(_TargetedCall(302, _ARG0), _TargetedCall(141, _ARG1, every=2), _TargetedCall(251, _ARG1, every=3)),
        scheduling=tuple(_TargetedCall(number, _ARG0) for number in (142, 144, 203, 314)),
        modes=((90, _ARG1), (91, _ARG1), (268, _ARG2), (452, _ARG2), (85, _ARG1), (133, _ARG1), (259, _ARG2)),
        opens=((2, _ARG1, _ARG2), (257, _ARG2, _ARG3)),
    ),
    "aarch64": _Machine(
        0xC00000B7,
        _AARCH64 | _COMMON,
        _SHARED_AARCH64,
        _ATTRIBUTES_AARCH64 | _ATTRIBUTES_COMMON,
        clone=220,
        clone3=435,
        ioctl=29,
        socket=198,
        targeted=(_TargetedCall(261, _ARG0), _TargetedCall(140, _ARG1, every=2), _TargetedCall(30, _ARG1, every=3)),
        scheduling=tuple(_TargetedCall(number, _ARG0) for number in (118, 119, 122, 274)),
        modes=((52, _ARG1), (53, _ARG2), (452, _ARG2), (33, _ARG2)),
        opens=((56, _ARG2, _ARG3),),
    ),
}


def supported(machine: str | None = None) -> bool:
    """Whether there is a filter for this architecture."""
    return (machine or os.uname().machine) in _MACHINES


def command_filter(
    *,
    families: Iterable[int],
    set_ids: int = SET_USER_ID | SET_GROUP_ID,
    shared: bool,
    inotify: bool = False,
    machine: str | None = None,
) -> bytes:
    """Build the filter for commands; a socket may only be of one of `families`.

    `set_ids` are the mode bits that no file can be given: a set-ID program has its owner's rights, whoever starts it.
    `shared` means that the command runs in the host's namespaces, so the filter denies what namespaces would isolate,
    except `inotify` for a process whose task is to follow changes.
    """
    kind = _MACHINES[machine or os.uname().machine]
    steps: list[Step] = [
        (_LOAD, 0, 0, _ARCH),
        (_JUMP_EQUAL, 1, 0, kind.arch),
        (_RETURN, 0, 0, _KILL),  # 32-bit calls on a 64-bit kernel have other numbers, which this filter does not cover
        (_LOAD, 0, 0, _NUMBER),
    ]
    if kind is _MACHINES["x86_64"]:
        steps += [(_JUMP_AT_LEAST, 0, 1, _X32_BIT), _fail(_ENOSYS)]
    # The flags of clone3 are behind a pointer; libc falls back to clone, whose flags the filter sees.
    steps += [(_JUMP_EQUAL, 0, 1, kind.clone3), _fail(_ENOSYS)]
    steps += _on(kind.clone, _refuse_bits(_ARG0, _NEW_NAMESPACES))
    steps += _on(kind.ioctl, _refuse_values(_ARG1, (_TIOCSTI, _TIOCLINUX)))
    steps += _on(kind.socket, _only_values(_ARG0, tuple(families)))
    for number, mode in kind.modes:
        steps += _on(number, _refuse_bits(mode, set_ids))
    for number, flags, mode in kind.opens:
        refused = _refuse_bits(mode, set_ids)
        steps += _on(number, [(_LOAD, 0, 0, flags), (_JUMP_ANY_BIT, 0, len(refused), _CREATING), *refused])
    for number, target, every in (*kind.targeted, *(kind.scheduling if shared else ())):
        steps += _on(number, [*([] if every is None else _refuse_values(_ARG0, (every,))), *_only_self(target)])
    steps += _refuse_calls(kind.denied, _EPERM)
    if shared:
        absent = {name: number for name, number in kind.shared.items() if not (inotify and name.startswith("inotify"))}
        steps += _refuse_calls(absent, _ENOSYS)
        steps += _refuse_calls(kind.attributes, _EOPNOTSUPP)
    steps.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("<HBBI", *step) for step in steps)


Step = tuple[int, int, int, int]


def _fail(number: int) -> Step:
    return (_RETURN, 0, 0, _ERRNO | number)


def _on(number: int, steps: list[Step]) -> list[Step]:
    """Apply `steps` to one system call only, and allow what they don't deny."""
    return [(_JUMP_EQUAL, 0, len(steps) + 1, number), *steps, (_RETURN, 0, 0, _ALLOW)]


def _refuse_calls(calls: dict[str, int], error: int) -> list[Step]:
    numbers = sorted(calls.values())
    jumps = [(_JUMP_EQUAL, len(numbers) - index, 0, number) for index, number in enumerate(numbers)]
    return [*jumps, (_JUMP, 0, 0, 1), _fail(error)]


def _refuse_bits(argument: int, bits: int) -> list[Step]:
    return [(_LOAD, 0, 0, argument), (_JUMP_ANY_BIT, 0, 1, bits), _fail(_EPERM)]


def _only_self(argument: int) -> list[Step]:
    return [(_LOAD, 0, 0, argument), (_JUMP_EQUAL, 1, 0, 0), _fail(_EPERM)]


def _refuse_values(argument: int, values: tuple[int, ...]) -> list[Step]:
    refused = [step for value in values for step in ((_JUMP_EQUAL, 0, 1, value), _fail(_EPERM))]
    return [(_LOAD, 0, 0, argument), *refused]


def _only_values(argument: int, values: tuple[int, ...]) -> list[Step]:
    allowed = [step for value in values for step in ((_JUMP_EQUAL, 0, 1, value), (_RETURN, 0, 0, _ALLOW))]
    return [(_LOAD, 0, 0, argument), *allowed, _fail(_EAFNOSUPPORT)]
