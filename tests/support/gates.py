"""A server's gate in this process, for tests that need no transport."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from llmc_mcp.config.schema import Config
from llmc_mcp.context import Context
from llmc_mcp.gate.dispatch import Gate
from llmc_mcp.gate.log import correlation_id
from llmc_mcp.server import build
from llmc_mcp.session import Session

from .client import PATIENCE


@contextmanager
def gate_on(root: Path, config: Config | None = None) -> Generator[Gate]:
    """A gate on a folder; its children end with the block."""
    config = config or Config()
    config.observability.log_level = "error"
    config.rag.build_wait_sec = max(config.rag.build_wait_sec, PATIENCE)  # on a busy machine a first build takes long
    gate = build(config, [str(root)])
    try:
        yield gate
    finally:
        gate.close()


def context(gate: Gate) -> Context:
    """The context of one call."""
    return gate.context(Session(principal="uid:0", session_id="test"), correlation_id())


def text_of(gate: Gate, tool: str, /, reply_bytes: int | None = None, **arguments: object) -> str:
    """The text that a surface would send for a call."""
    return gate.reply(context(gate), tool, arguments, reply_bytes=reply_bytes).text
