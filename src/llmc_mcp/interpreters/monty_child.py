"""The process that holds Monty for the server: runs come in as orders, tool calls and outcomes go out.

Monty returns values as Python objects, and a few short lists can expand to more of them than fit in memory. So they
become objects here, where the kernel limits memory and the server ends a run that takes too long.
"""

import os
import sys
import time
from typing import Any

import msgspec

from .cpython_child import ChildChannel, encoded, functions, receive, send, weight

CHANNEL = 3  # the descriptor of the channel to the server
_MAX_SLEEP_S = 5.0
_PATIENCE_S = 10.0  # for the interpreter to start
_SHOWN_SOURCE = 200
_SHOWN_MESSAGE = 1_500
_FLUSH_EVERY_S = 0.05
_FLUSH_BYTES = 1 << 14


class Order(msgspec.Struct):
    """One run."""

    secret: str
    code: str
    names: list[str]
    seconds: float
    memory_bytes: int
    calls: int
    output_bytes: int
    value_bytes: int
    arguments_bytes: int


def main() -> None:
    """Carry out orders until the server closes the channel."""
    sys.setswitchinterval(1e-4)
    os.set_inheritable(CHANNEL, False)
    try:
        import pydantic_monty

        pool: Any = pydantic_monty.Monty(max_processes=1, checkout_timeout=_PATIENCE_S).__enter__()
    except (ImportError, OSError, RuntimeError) as exc:
        send(CHANNEL, str(exc).encode())
        return
    send(CHANNEL, b"")
    while True:
        try:
            order = msgspec.json.decode(receive(CHANNEL), type=Order)
        except ConnectionError:
            os._exit(0)
        _carry_out(order, pool, pydantic_monty.MontyError)


def _carry_out(order: Order, pool: Any, monty_error: type[Exception]) -> None:
    """Run the code in a fresh session, and report the outcome."""
    channel = ChildChannel(CHANNEL, order.secret, order.arguments_bytes)
    printed = _Printed(channel, order.output_bytes)
    sleep = min(order.seconds, _MAX_SLEEP_S)
    bounds = {
        "max_feed_duration_secs": order.seconds,
        "max_memory": order.memory_bytes,
        "max_suspensions": order.calls,
        "max_total_sleep_secs": sleep,
    }
    outcome: dict[str, object] = {}
    value = "null"
    tools = {name: printed.before(tool) for name, tool in functions(channel, order.names).items()}
    try:
        with pool.checkout(script_name="code.py", limits=bounds, os_policy={"sleep_system_max": sleep}) as session:
            found = session.feed_run(order.code, external_lookup=tools, print_callback=printed)
        value, outcome["cut"] = _encoded(found, order.value_bytes)
    except monty_error as exc:
        outcome = {"failure": _explained(exc)}
    except MemoryError:
        outcome = {"failure": _failure("MemoryError: memory limit exceeded: TOO_LARGE: the value can't be handed over")}
    printed.flush()
    channel.end(outcome, value)


def _encoded(value: object, most: int) -> tuple[str, int]:
    """A value as JSON, and how much was cut: dates, bytes and sets in the form that tools give them."""
    if weight(value, most) <= most:
        try:
            text = msgspec.json.encode(msgspec.to_builtins(value, str_keys=True, enc_hook=repr))
        except (TypeError, ValueError, OverflowError, RecursionError):
            pass
        else:
            if len(text) <= most:
                return text.decode(), 0
    return encoded(value, most)


class _Printed:
    """Forwards what is printed, up to a limit, in pieces that are worth a frame."""

    def __init__(self, channel: ChildChannel, room: int) -> None:
        self._channel, self._room = channel, room + 1  # one byte more tells the server that something was cut
        self._kept: list[str] = []
        self._size = 0
        self._flushed_at = time.monotonic()

    def __call__(self, stream: str, text: str) -> None:
        del stream
        kept = text[: self._room]
        if not kept:
            return
        self._room -= len(kept)
        self._kept.append(kept)
        self._size += len(kept)
        if self._size > _FLUSH_BYTES or time.monotonic() - self._flushed_at > _FLUSH_EVERY_S:
            self.flush()

    def flush(self) -> None:
        """Send what was printed so far."""
        if self._kept:
            self._channel.print("".join(self._kept))
        self._kept, self._size, self._flushed_at = [], 0, time.monotonic()

    def before(self, tool: Any) -> Any:
        """A tool that is called once everything printed before it has been sent."""

        def call(*values: object, **named: object) -> object:
            self.flush()
            return tool(*values, **named)

        call.__name__ = tool.__name__
        return call


def _explained(exc: Any) -> dict[str, object]:
    """What went wrong, and on which line of the agent's code."""
    frames: list[Any] = exc.traceback() if hasattr(exc, "traceback") else []
    last = frames[-1] if frames else None
    source = last.source_line[:_SHOWN_SOURCE] if last and last.source_line else None
    return _failure(str(exc)[:_SHOWN_MESSAGE], last.line if last else None, source)


def _failure(message: str, line: int | None = None, source: str | None = None) -> dict[str, object]:
    return {"kind": "", "message": message, "line": line, "source": source}
