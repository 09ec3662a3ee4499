"""Where `llmc` and `te` start: a ^C while their modules load ends them without a traceback, as it does later.

It ends them at once: an import meets an exception in finalizers and extension modules, too, which print or lose it.
"""

import os
import signal

_INTERRUPTED = 130  # what shells tell of a program that ^C ended


def llmc() -> None:
    """Run a command for a person."""
    _leave_at_once()
    from .cli.main import main

    try:
        main(loaded=_raise_again)
    except KeyboardInterrupt:
        raise SystemExit(_INTERRUPTED) from None


def te() -> None:
    """Run a command of an agent's shell."""
    _leave_at_once()
    from .te.main import main

    _raise_again()
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(_INTERRUPTED) from None


def _leave_at_once() -> None:
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else our parent has it ignored
        signal.signal(signal.SIGINT, _leave)


def _leave(_signal: int, _frame: object) -> None:
    os._exit(_INTERRUPTED)


def _raise_again() -> None:
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
