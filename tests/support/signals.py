"""Processes that react to signals the same way wherever the tests run."""

import signal


def obey_interrupts() -> None:
    """A `preexec_fn` that resets SIGINT: background jobs ignore it, and their children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


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
