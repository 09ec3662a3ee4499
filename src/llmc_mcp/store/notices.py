"""Hears what other servers announce through PostgreSQL, on a connection and a thread of its own."""

import threading
import time
from collections.abc import Callable

import psycopg

_AGAIN_S = 1.0  # between two attempts to reach the database
_LOOK_S = 1.0  # how often the thread looks whether it has to end
_CONNECT_S = 3


class Follower:
    """Calls `heard` for every announcement of a topic, and after each connect: what was missed meanwhile is unknown.

    `heard` may raise: the connection is then made anew, and it is called again.
    """

    def __init__(self, url: str, topic: str, heard: Callable[[], None]) -> None:
        self._url, self._topic, self._heard = url, topic, heard
        self._ending = threading.Event()
        self.heard_at = time.monotonic()  # when it was last certain that nothing is missed
        self._thread = threading.Thread(target=self._run, name=f"listen-{topic}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening; the thread ends within a moment."""
        self._ending.set()

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                self._listen()
            except Exception:  # noqa: BLE001 - away, or nothing could be read: the next attempt says whether it still is
                self._ending.wait(_AGAIN_S)

    def _listen(self) -> None:
        with psycopg.connect(
            self._url, autocommit=True, connect_timeout=_CONNECT_S, application_name="llmc", tcp_user_timeout=5000
        ) as connection:
            connection.execute(f"LISTEN {self._topic}".encode())
            self._hear()
            while not self._ending.is_set():
                if any(True for _ in connection.notifies(timeout=_LOOK_S, stop_after=1)):
                    self._hear()
                else:
                    connection.execute("SELECT 1")  # a connection that is gone says so
                    self.heard_at = time.monotonic()

    def _hear(self) -> None:
        self._heard()
        self.heard_at = time.monotonic()
