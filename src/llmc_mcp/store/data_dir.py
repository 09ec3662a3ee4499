"""Where state lives. Every start of `te` imports this, so it imports next to nothing."""

import os
from collections.abc import Mapping


def database_of(data_dir: str) -> str:
    """The store's file in a data directory."""
    return os.path.join(data_dir, "llmc.db")


def stamp_of(data_dir: str, topic: str) -> str:
    """The file that is replaced whenever something changes in the store that servers follow."""
    return os.path.join(data_dir, f"{topic}.stamp")


def programs_of(data_dir: str) -> str:
    """The folder in which servers show the programs that run in them."""
    return os.path.join(data_dir, "programs")


def watched_files(data_dir: str) -> tuple[str, ...]:
    """The files whose change means that there is something new to see, whichever process is at work."""
    store = database_of(data_dir)
    return store, f"{store}-wal", programs_of(data_dir)


def data_directory(environ: Mapping[str, str] | None = None) -> str:
    """Where state lives: LLMC_DATA_DIR, else .llmc in LLMC_ROOT, else the XDG state home; never from a file."""
    environ = os.environ if environ is None else environ
    if chosen := environ.get("LLMC_DATA_DIR"):
        return os.path.abspath(os.path.expanduser(chosen))
    if root := environ.get("LLMC_ROOT"):
        return os.path.join(os.path.abspath(os.path.expanduser(root)), ".llmc")
    state = environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # the XDG specification says to ignore a relative path
        state = os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "llmc")
