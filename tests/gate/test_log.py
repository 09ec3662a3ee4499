"""The log's writer: lines leave together, none is lost at the end, and a failure is not kept waiting."""

import os
import select
import socket
import threading
from collections.abc import Iterator

import pytest

from llmc_mcp.gate.log import Log

from ..support.client import PATIENCE

Packets = tuple[Log, socket.socket]


@pytest.fixture
def packets() -> Iterator[Packets]:
    """A log into a socket on which every write is a packet of its own."""
    reading, writing = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with reading, writing:
        yield Log(enabled=True, level="info", log_format="json", fd=writing.fileno()), reading


def arrived(reading: socket.socket) -> list[bytes]:
    """Every packet that is there."""
    found: list[bytes] = []
    while select.select([reading], [], [], 0)[0]:
        found.append(reading.recv(1 << 16))
    return found


def test_lines_of_a_burst_are_written_together_and_in_order(packets: Packets) -> None:
    log, reading = packets
    for number in range(200):
        log.info("tool", number=number)
    log.close()
    written = arrived(reading)
    assert len(written) < 50
    assert [line.count(b"\n") for line in written] != [1] * len(written)
    lines = b"".join(written).splitlines()
    assert [line.rpartition(b":")[2] for line in lines] == [b"%d}" % number for number in range(200)]
    assert all(len(packet) <= 4096 for packet in written)  # a pipe takes that much as a whole


@pytest.mark.parametrize("level", ["info", "warning"])
def test_a_line_comes_without_another_line_or_the_end(packets: Packets, level: str) -> None:
    log, reading = packets
    getattr(log, level)("tool", number=1)
    assert select.select([reading], [], [], PATIENCE)[0]
    log.close()


def test_a_line_longer_than_any_batch_is_written_whole(packets: Packets) -> None:
    log, reading = packets
    for size in (10, 9_000, 10):
        log.info("tool", text="x" * size)
    log.close()
    assert [packet.count(b"\n") for packet in arrived(reading)] == [1, 1, 1]


def test_a_log_without_a_thread_keeps_its_lines_for_the_next_one(packets: Packets) -> None:
    log, reading = packets
    threading.stack_size(1 << 46)  # no thread can have that much, so none starts
    try:
        log.info("tool", number=1)
    finally:
        threading.stack_size(0)
    log.info("tool", number=2)
    log.close()
    assert b"".join(arrived(reading)).count(b"\n") == 2


def test_a_reader_that_is_stuck_stops_nobody() -> None:
    reading, writing = os.pipe()
    log = Log(enabled=True, level="info", log_format="json", fd=writing)
    for _ in range(5_000):
        log.info("tool", text="x" * 500)
    assert log.dropped
    os.close(reading)
    log.close()
    os.close(writing)
