"""Processes that react to signals the same way wherever the tests run."""

import signal
from collections.abc import Generator
from contextlib import contextmanager


def obey_interrupts() -> None:
    """A `preexec_fn` that resets SIGINT and SIGHUP: background jobs ignore one, what nohup starts the other."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@contextmanager
def obeying_hang_ups() -> Generator[None]:
    """Programs that are started meanwhile obey SIGHUP, also where nohup started the tests."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


# A program that prints `ready`, waits for the signal that its argument names, prints `got` and exits with 7. The signal
# is blocked before `ready`, so it can't come too early; without one the program gives up by itself.
WAITS_FOR_SIGNAL = """
import signal, sys
number = int(sys.argv[1])
signal.pthread_sigmask(signal.SIG_BLOCK, {number})
print("ready", flush=True)
if signal.sigtimedwait({number}, 60):
    print("got", flush=True)
    sys.exit(7)
"""
