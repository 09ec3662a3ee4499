"""What commands need to act for a person: a session, a gate without an agent's limits, the folder that is meant."""

import os

from ..app import App
from ..config.load import load
from ..context import Context
from ..errors import InvalidArgument
from ..gate.catalog import Catalog
from ..gate.dispatch import Gate
from ..gate.log import Log, correlation_id
from ..session import Session

_TIME_S = 600.0  # a first index of a large repository


def session() -> Session:
    """The session of this process."""
    return Session(principal=f"uid:{os.getuid()}", session_id=f"llmc-{os.getpid()}", agent_id="llmc")


def gate_on(folder: str) -> Gate:
    """The way to the tools, on a folder that the person named. Limits that protect an agent's context do not apply."""
    loaded = load()
    config = loaded.config
    config.rag.jit_context_enabled = True
    config.tools.read_timeout = config.linux_ops.process_limits.max_timeout_sec = _TIME_S
    config.limits.max_reply_bytes_cap = 1 << 30
    log = Log(enabled=True, level="error", log_format="text", with_ids=True)
    return Gate(App(config, [folder], loaded.data_dir, loaded.files, loaded.trusted_files), Catalog(config), log)


def context(gate: Gate) -> Context:
    """One call of this process."""
    return gate.context(session(), correlation_id())


def never() -> None:
    """The cancellation check of a person's call: never cancelled, a person presses ^C."""


def indexed_folder(folder: str) -> str:
    """The folder whose index is meant: the repository that contains a folder, else the folder itself."""
    here = above = os.path.realpath(folder)
    if not os.path.isdir(here):
        raise InvalidArgument(f"{folder}: not a folder")
    while above != os.path.dirname(above):
        if os.path.exists(os.path.join(above, ".git")):
            return above
        above = os.path.dirname(above)
    return here
