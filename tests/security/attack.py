"""What the attacks share: every tool that takes a path, and how a refusal is read."""

import ctypes
import os
import select
from pathlib import Path
from typing import Any

from ..support.client import Client, Reply

# Each tool that takes a path, with the name of that argument and whatever else it needs.
PATH_TOOLS: dict[str, tuple[str, dict[str, Any]]] = {
    "read_file": ("path", {}),
    "linux_fs_read": ("path", {}),
    "list_dir": ("path", {"include_hidden": True, "depth": 3}),
    "linux_fs_list": ("path", {"include_hidden": True, "include_ignored": True}),
    "stat": ("path", {}),
    "linux_search_content": ("root", {"pattern": ".", "include_ignored": True}),
    "linux_search_files": ("root", {"pattern": "*"}),
}
READERS = ("read_file", "linux_fs_read")

_IN_OPEN = 0x20
_libc = ctypes.CDLL(None, use_errno=True)


def use(client: Client, tool: str, path: str) -> Reply:
    """Call a tool on a path."""
    argument, others = PATH_TOOLS[tool]
    return client.call(tool, **{argument: path}, **others)


def refusal(reply: Reply, path: str) -> dict[str, Any]:
    """An error as it would read for any path: without the one that was typed and the correlation id."""
    assert reply.is_error, reply.text
    envelope = reply.meta
    del envelope["correlation_id"]
    envelope["message"] = "PATH" + envelope["message"].removeprefix(path)
    return envelope


def assert_refused_alike(client: Client, existing: str, missing: str, tools: tuple[str, ...] = ()) -> None:
    """Both paths are refused as outside by every tool, in the same words: nothing tells which of them exists."""
    for tool in tools or PATH_TOOLS:
        first = refusal(use(client, tool, existing), existing)
        assert first["code"] == "INVALID_PATH", (tool, existing, first)
        assert first == refusal(use(client, tool, missing), missing), (tool, existing)


def assert_alive(client: Client) -> None:
    """The server still answers."""
    assert not client.call("health").is_error


def status_kb(pid: int, field: str) -> int:
    """A number from /proc/PID/status, in kB: `VmRSS` or, for the highest so far, `VmHWM`."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise LookupError(field)


class OpenWatch:
    """Notices every real open of one path (inotify); an O_PATH handle is none."""

    def __init__(self, path: Path) -> None:
        self._fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._fd >= 0
        assert _libc.inotify_add_watch(self._fd, os.fsencode(path), _IN_OPEN) >= 0

    def __enter__(self) -> "OpenWatch":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    @property
    def opened(self) -> bool:
        """Whether it was opened since the watch began."""
        return bool(select.select([self._fd], [], [], 0)[0])
