"""The system calls that Python does not wrap; every use of ctypes in the project is here.

Standard library only: the launcher, which must start fast and stay small, imports this file too.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Iterable

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long

# These numbers are the same on every architecture: the calls are newer than the unified table (424).
_NR_OPENAT2 = 437
_NR_LANDLOCK_CREATE_RULESET = 444
_NR_LANDLOCK_ADD_RULE = 445
_NR_LANDLOCK_RESTRICT_SELF = 446


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def trim_memory() -> None:
    """Return memory that was freed to the kernel, where the C library is glibc: it keeps most of it otherwise."""
    trim = getattr(_libc, "malloc_trim", None)
    if trim is not None:
        trim(0)


# --- openat2 ---------------------------------------------------------------------------------------

RESOLVE_NO_XDEV = 0x01
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08

O_PATH = 0o10000000  # os.O_PATH is missing from some builds of Python

_EAGAIN_RETRIES = 128  # the kernel returns EAGAIN while a rename races with "..": it means "retry"


class _OpenHow(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


def openat2(dir_fd: int, path: bytes, flags: int, resolve: int, mode: int = 0) -> int:
    """Open `path` below `dir_fd`; the kernel enforces `resolve`, which limits where the path may lead."""
    how = _OpenHow(flags | os.O_CLOEXEC, mode, resolve)
    for _ in range(_EAGAIN_RETRIES):
        fd: int = _syscall(_NR_OPENAT2, dir_fd, path, ctypes.byref(how), ctypes.sizeof(how))
        if fd >= 0:
            return fd
        number = ctypes.get_errno()
        if number not in (errno.EAGAIN, errno.EINTR):
            raise OSError(number, os.strerror(number))
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))


def missing_openat2() -> str | None:
    """Return why file access can't be confined here, or None if it can."""
    try:
        os.close(openat2(-100, b"/", O_PATH, RESOLVE_NO_MAGICLINKS))
    except OSError as exc:
        if exc.errno == errno.ENOSYS:
            return f"the kernel ({os.uname().release}) has no openat2: Linux 5.6 or newer is needed"
        return f"openat2 is refused here ({exc.strerror}): a container's seccomp profile must allow it"
    return None


# --- renameat2 -------------------------------------------------------------------------------------

_RENAME_NOREPLACE = 1
_RENAME_EXCHANGE = 2


def rename_no_replace(from_fd: int, name: bytes, to_fd: int, new_name: bytes) -> None:
    """Rename by directory fds; raise EEXIST if the new name exists."""
    if _libc.renameat2(from_fd, name, to_fd, new_name, _RENAME_NOREPLACE) == 0:
        return
    number = ctypes.get_errno()
    if number not in (errno.EINVAL, errno.ENOSYS):
        raise OSError(number, os.strerror(number))
    # Some network file systems don't support the flag: checking first is the best that is possible there.
    try:
        os.lstat(new_name, dir_fd=to_fd)
    except FileNotFoundError:
        os.rename(name, new_name, src_dir_fd=from_fd, dst_dir_fd=to_fd)
    else:
        raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))


def rename_exchange(dir_fd: int, name: bytes, other: bytes) -> bool:
    """Swap two names of a directory at once; False, and nothing is done, where the file system can't do that."""
    return exchange_between(dir_fd, name, dir_fd, other)


def exchange_between(from_fd: int, name: bytes, to_fd: int, other: bytes) -> bool:
    """Swap two names of two directories at once; False, and nothing is done, where the file system can't do that."""
    if _libc.renameat2(from_fd, name, to_fd, other, _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
        return False
    raise OSError(number, os.strerror(number))


def sync_file_system(fd: int) -> None:
    """Wait until everything written to the file system of an open file is on disk."""
    _check(_libc.syncfs(fd))


# --- prctl -----------------------------------------------------------------------------------------

_PR_SET_PDEATHSIG = 1
_PR_SET_SECCOMP = 22
_PR_CAPBSET_DROP = 24
_PR_SET_SECUREBITS = 28
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47

_PR_CAP_AMBIENT_CLEAR_ALL = 4
_SECCOMP_MODE_FILTER = 2
_SECUREBITS_ROOT_IS_NOBODY = 0b101111  # noroot, no setuid fix-up, no ambient raise; each of them locked
_CAPABILITY_VERSION_3 = 0x20080522


_raw_prctl = _libc.prctl
_raw_prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4


def _prctl(option: int, value: int) -> None:
    _check(_raw_prctl(option, value, 0, 0, 0))


def die_with_parent(signal_number: int) -> None:
    """Send `signal_number` to this process when the thread that forked it ends."""
    _prctl(_PR_SET_PDEATHSIG, signal_number)


def become_subreaper() -> None:
    """Make orphaned descendants children of this process instead of pid 1."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def no_new_privileges() -> None:
    """Keep exec from raising privileges from here on; Landlock and seccomp require it."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Give up every capability for good: uid 0 keeps the rights of a file owner and nothing more. Needs CAP_SETPCAP."""
    for capability in range(64):
        if _raw_prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            if ctypes.get_errno() == errno.EINVAL:  # past the last capability of this kernel
                break
            _check(-1)
    _prctl(_PR_SET_SECUREBITS, _SECUREBITS_ROOT_IS_NOBODY)
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _check(_libc.capset(header, nothing))


class _SockFprog(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def seccomp_filter(program: bytes) -> None:
    """Filter every system call with `program` (classic BPF) from here on."""
    prog = _SockFprog(len(program) // 8, program)
    _check(_raw_prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(prog), 0, 0))


# --- Landlock --------------------------------------------------------------------------------------

FS_EXECUTE = 1 << 0
FS_WRITE_FILE = 1 << 1
FS_READ_FILE = 1 << 2
FS_READ_DIR = 1 << 3

FS_IOCTL_DEV = 1 << 15

_FS_MAKE_CHAR = 1 << 6
_FS_MAKE_BLOCK = 1 << 11

READ_ONLY = FS_READ_FILE | FS_READ_DIR
EXECUTABLE = FS_READ_FILE | FS_EXECUTE
EVERYTHING = ((1 << 16) - 1) & ~(_FS_MAKE_CHAR | _FS_MAKE_BLOCK | FS_IOCTL_DEV)  # all but what devices need

_FS_TRUNCATE = 1 << 14
# The rights that may be granted on a file that is not a directory.
_ON_FILES = FS_EXECUTE | FS_WRITE_FILE | FS_READ_FILE | _FS_TRUNCATE | FS_IOCTL_DEV
_FS_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_NET_RIGHTS = 0b11  # bind and connect, TCP
_SCOPES = 0b11  # abstract unix sockets and signals to processes outside

_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1


class _RulesetAttr(ctypes.Structure):
    _fields_ = [
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    ]


class _PathBeneathAttr(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32)]


def landlock_abi() -> int:
    """Return the Landlock ABI version of the running kernel; 0 if it has none."""
    abi: int = _syscall(_NR_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), _CREATE_RULESET_VERSION)
    return max(abi, 0)


def landlock_ruleset(allowed: Iterable[tuple[int, int, bool]], *, network: bool = False) -> int:
    """Create a rule set (as an fd) that denies everything but the `(fd, rights, is_directory)` in `allowed`.

    `network` leaves TCP unrestricted; abstract unix sockets and signals to the outside are denied either way.
    """
    abi = landlock_abi()
    if abi == 0:
        raise OSError(errno.ENOSYS, "the kernel does not support Landlock")
    fs_rights = _FS_RIGHTS[max(version for version in _FS_RIGHTS if version <= abi)]
    attr = _RulesetAttr(fs_rights, _NET_RIGHTS if abi >= 4 and not network else 0, _SCOPES if abi >= 6 else 0)
    ruleset = _create_ruleset(attr, abi)
    try:
        for fd, rights, is_directory in allowed:
            rule = _PathBeneathAttr(rights & fs_rights & (fs_rights if is_directory else _ON_FILES), fd)
            _check(_syscall(_NR_LANDLOCK_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0))
    except OSError:
        os.close(ruleset)
        raise
    return ruleset


def landlock_scope() -> int | None:
    """Create a rule set that restricts abstract sockets and signals, but no files; None before Linux 6.12."""
    abi = landlock_abi()
    return _create_ruleset(_RulesetAttr(0, 0, _SCOPES), abi) if abi >= 6 else None


def _create_ruleset(attr: _RulesetAttr, abi: int) -> int:
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    return _check(_syscall(_NR_LANDLOCK_CREATE_RULESET, ctypes.byref(attr), ctypes.c_size_t(size), 0))


def landlock_restrict_self(ruleset: int) -> None:
    """Confine this thread and all it will start to `ruleset`, irreversibly."""
    _check(_syscall(_NR_LANDLOCK_RESTRICT_SELF, ruleset, 0))


# --- namespaces and mounts -------------------------------------------------------------------------

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_SLAVE = 1, 2, 4, 32, 4096, 16384, 1 << 19


def unshare(flags: int) -> None:
    """Move this process into new namespaces."""
    _check(_libc.unshare(flags))


def setns(fd: int, kind: int) -> None:
    """Move this process into a namespace that exists."""
    _check(_libc.setns(fd, kind))


def mount(source: bytes, target: bytes, kind: bytes, flags: int, options: bytes = b"") -> None:
    """Mount, or change a mount."""
    _check(_libc.mount(source, target, kind, ctypes.c_ulong(flags), options))


# --- inotify ---------------------------------------------------------------------------------------

IN_MODIFY, IN_CLOSE_WRITE = 0x2, 0x8
IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE = 0x40, 0x80, 0x100, 0x200
IN_ISDIR = 0x40000000
IN_Q_OVERFLOW = 0x4000
IN_IGNORED = 0x8000

_IN_CHANGES = IN_CLOSE_WRITE | IN_MOVED_FROM | IN_MOVED_TO | IN_CREATE | IN_DELETE
_IN_HOW = 0x01000000 | 0x02000000 | 0x04000000  # folders only, links not followed, no events of unlinked files
_IN_FOLDER = 0x01000000 | 0x04000000
_IN_HEAD = 16


def inotify() -> int:
    """Open a descriptor that reports changes in the folders that it watches."""
    return _check(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))


def inotify_watch(fd: int, folder: bytes) -> int:
    """Watch a folder (not its subfolders); return the watch number that its events carry."""
    return _check(_libc.inotify_add_watch(fd, folder, ctypes.c_uint32(_IN_CHANGES | IN_MODIFY | _IN_HOW)))


def inotify_watch_open(fd: int, folder: int) -> int:
    """Watch an open folder for everything that changes an entry in it, also its mode and what is written so far."""
    path = b"/proc/self/fd/%d" % folder
    return _check(_libc.inotify_add_watch(fd, path, ctypes.c_uint32(_IN_CHANGES | IN_MODIFY | 0x4 | _IN_FOLDER)))


def inotify_forget(fd: int, watch: int) -> None:
    """Watch a folder no more; one that is gone is not watched anyway."""
    _libc.inotify_rm_watch(fd, watch)


def inotify_events(data: bytes) -> list[tuple[int, int, int, bytes]]:
    """Parse data read from the descriptor into (watch, mask, number of a rename, name in the watched folder)."""
    events: list[tuple[int, int, int, bytes]] = []
    at = 0
    while at + _IN_HEAD <= len(data):
        watch, mask, rename, length = struct.unpack_from("=iIII", data, at)
        name = data[at + _IN_HEAD : at + _IN_HEAD + length].rstrip(b"\0")
        events.append((watch, mask, rename, name))
        at += _IN_HEAD + length
    return events


# --- statx -----------------------------------------------------------------------------------------

_AT_SYMLINK_NOFOLLOW = 0x100
_STATX_BTIME = 0x800
_STATX_BYTES, _STATX_BIRTH = 256, 80


def birth_ns(dir_fd: int, name: bytes) -> int:
    """When an entry was made, which tells it from an earlier one with its inode; 0 where nobody knows."""
    statx = getattr(_libc, "statx", None)
    if statx is None:
        return 0
    found = ctypes.create_string_buffer(_STATX_BYTES)
    _check(statx(dir_fd, name, _AT_SYMLINK_NOFOLLOW, _STATX_BTIME, found))
    (mask,) = struct.unpack_from("=I", found, 0)
    seconds, nanoseconds = struct.unpack_from("=qI", found, _STATX_BIRTH)
    return seconds * 1_000_000_000 + nanoseconds if mask & _STATX_BTIME else 0
