"""A changed configuration file, noticed while a server runs: at most one stat per second, when a call begins."""

import os
import threading
import time

from .load import LoadedConfig, load, trusted_path

# What a running server takes over from a changed file. Everything else is read at the start only.
LIVE = (
    "policy.rules",
    "policy.ask",
    "tools.run_cmd_allowlist",
    "linux_ops.commands.allowed_binaries",
    "linux_ops.commands.unsafe_binaries",
    "linux_ops.commands.allow_unsafe",
    "tools.allow_outbound_network",
    "tools.network",
    "tools.network_allow",
    "sandbox.extra_read",
    "sandbox.extra_write",
    "limits.rate_limit_rps",
    "limits.rate_limit_burst",
    "limits.concurrency_per_token",
    "limits.max_queued_calls",
    "limits.max_reply_bytes",
    "limits.max_reply_bytes_cap",
)
# Read by commands for people at each start, and by no server.
READ_BY_PEOPLE = ("sandbox.forward_ports",)
_LOOK_EVERY_S = 1.0


class LiveConfig:
    """The configuration that a server was started with, loaded anew by the same rules when the user's file changes."""

    def __init__(self, loaded: LoadedConfig, *, every_s: float = _LOOK_EVERY_S) -> None:
        self._flags, self._directory, self._every_s = loaded.flags, loaded.directory, every_s
        self.path = trusted_path(loaded.flags, os.environ, loaded.directory)[0]
        self._lock = threading.Lock()
        self._next_look = 0.0
        self._seen = _state_of(self.path)

    def changed(self) -> LoadedConfig | None:
        """The configuration of now, if the file changed since the last look; raises ConfigError if it has mistakes."""
        if time.monotonic() < self._next_look or not self._lock.acquire(blocking=False):
            return None
        try:
            self._next_look = time.monotonic() + self._every_s
            state = _state_of(self.path)
            if state == self._seen:
                return None
            self._seen = state
            return load(self._flags, directory=self._directory)
        finally:
            self._lock.release()

    def reloaded(self) -> LoadedConfig:
        """The configuration of now, whether or not the file looks changed; raises ConfigError if it has mistakes."""
        with self._lock:
            self._seen = _state_of(self.path)
            return load(self._flags, directory=self._directory)


def _state_of(path: str) -> tuple[int, int, int] | None:
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_ino, info.st_mtime_ns, info.st_size
