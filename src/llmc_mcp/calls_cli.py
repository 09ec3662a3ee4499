"""`llmc calls`."""

from .stats_cli import calls as command

__all__ = ["command"]
