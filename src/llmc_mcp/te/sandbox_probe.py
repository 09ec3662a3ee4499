"""What runs inside a sandbox to find out whether it holds: a few things that must fail, a few that must work.

The text of this file is handed to a bare interpreter inside, so it imports nothing of ours. Every attempt is
harmless if it succeeds: files and listeners are the self-test's own, nothing is written to the system.
"""

import ctypes
import json
import os
import socket
import sys

CLONE_NEWUSER = 0x10000000


def attempts(facts):  # type: ignore[no-untyped-def]
    """Name → a function that must raise an OSError inside a sandbox."""
    outside = facts["outside"]
    return {
        "write_outside": lambda: os.close(os.open(outside + "/marker", os.O_WRONLY | os.O_CREAT, 0o600)),
        "read_outside": lambda: open(outside + "/secret", "rb").read(),
        "truncate_outside": lambda: os.truncate(outside + "/secret", 0),
        "list_outside": lambda: os.listdir(outside),
        "change_mode_outside": lambda: os.chmod(outside + "/mode", 0o600),
        "connect_tcp": lambda: _connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", facts["tcp"])),
        "send_udp": lambda: _connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", facts["udp"])),
        "connect_unix": lambda: _connect(socket.AF_UNIX, socket.SOCK_STREAM, outside + "/socket"),
        "connect_abstract": lambda: _connect(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + facts["abstract"]),
        "read_server_environment": lambda: open("/proc/%d/environ" % facts["server"], "rb").read(),
        "signal_server": lambda: os.kill(facts["server"], 0),
        "new_user_namespace": lambda: _unshare(CLONE_NEWUSER),
        "write_kernel_settings": lambda: os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY)),
        "read_shadow": lambda: open("/etc/shadow", "rb").read(1),
    }


def _connect(family, kind, address):  # type: ignore[no-untyped-def]
    with socket.socket(family, kind) as probe:
        probe.settimeout(2)
        probe.connect(address)
        probe.send(b"probe")


def _unshare(flags):  # type: ignore[no-untyped-def]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


def main():  # type: ignore[no-untyped-def]
    """Print, as JSON, which attempts succeeded and whether ordinary work does."""
    facts = json.loads(sys.argv[1])
    succeeded = []
    for name, attempt in attempts(facts).items():
        try:
            attempt()
        except OSError:
            continue
        succeeded.append(name)
    with open(facts["root"] + "/inside", "w") as file:
        file.write("ok")
    print(json.dumps({"succeeded": succeeded, "uid": os.getuid()}))


if __name__ == "__main__":
    main()
