"""Waits for what other servers announce in PostgreSQL: one connection and one thread for all who wait in a process.

A trigger announces the end of a lease that somebody wants (postgres.py). What is announced while the connection is
away is not heard, so its return counts as news of everything.

Of those who wait for one topic, an announcement wakes the first: a lease that is free serves only one of them, and the
others would ask the database in vain.
"""

import hashlib
import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg

_TOPICS = 4096  # that are remembered one by one
_LOOK_S = 5.0  # between two looks whether it is to end
_AGAIN_S = 0.25  # before the next try to connect
_PATIENCE_S = 1.0  # of a wait: nobody announces the end of a process that was killed


def payload_of(topic: str) -> str:
    """How a topic is announced: its length is limited, and that of a path is not."""
    return hashlib.sha256(topic.encode("utf-8", "surrogateescape")).hexdigest()


class Listener:
    """Hears what is announced on one channel; connects when somebody waits for the first time."""

    def __init__(self, connect: "Callable[[], psycopg.Connection[tuple[Any, ...]]]", channel: str) -> None:
        self._connect, self._channel = connect, channel
        self._lock = threading.Lock()
        self._count = 0  # announcements so far
        self._heard: dict[str, int] = {}  # the number of the latest one, by payload
        self._all_at = 0  # the number of the latest news of everything
        self._waiting: dict[str, deque[threading.Event]] = {}
        self._thread: threading.Thread | None = None
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._closed = threading.Event()

    def ticket(self) -> int:
        """The number of announcements so far."""
        return self._count

    def wait(self, topic: str, ticket: int, pause_s: float, limit_s: float) -> bool:
        """Wait until a topic is announced after the ticket; False after a while, or where nothing can be heard."""
        payload, woken = payload_of(topic), threading.Event()
        with self._lock:
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name="listener", daemon=True)
                self._thread.start()
            if max(self._heard.get(payload, 0), self._all_at) > ticket:
                return True
            self._waiting.setdefault(payload, deque()).append(woken)
            limit = min(_PATIENCE_S, limit_s) if self._connection is not None else pause_s
        heard = woken.wait(max(limit, 0))
        with self._lock:
            if (line := self._waiting.get(payload)) is not None:
                if woken in line:
                    line.remove(woken)
                if not line:
                    del self._waiting[payload]
        return heard

    def is_wanted(self, topic: str) -> bool:
        """Whether somebody waits for a topic."""
        return bool(self._waiting) and payload_of(topic) in self._waiting

    def close(self) -> None:
        """Hear no more."""
        with self._lock:
            self._closed.set()
            if self._connection is not None:
                with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(self._connection.fileno())) as line:
                    line.shutdown(socket.SHUT_RDWR)
        self._hear_all(None)

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                with self._connect() as connection:
                    connection.execute(f'LISTEN "{self._channel}"'.encode())
                    self._hear_all(connection)
                    while not self._closed.is_set():
                        for said in connection.notifies(timeout=_LOOK_S):
                            self._hear(said.payload)
            except (psycopg.Error, OSError):
                self._hear_all(None)
                self._closed.wait(_AGAIN_S)

    def _hear(self, payload: str) -> None:
        with self._lock:
            self._count += 1
            if len(self._heard) >= _TOPICS:
                self._heard.clear()
                self._all_at = self._count
            self._heard[payload] = self._count
            if line := self._waiting.get(payload):
                line.popleft().set()

    def _hear_all(self, connection: "psycopg.Connection[tuple[Any, ...]] | None") -> None:
        """The connection is there, or gone: whoever waits looks again."""
        with self._lock:
            self._connection = connection
            self._count += 1
            self._all_at = self._count
            for woken in [woken for line in self._waiting.values() for woken in line]:
                woken.set()
