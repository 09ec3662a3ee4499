"""`llmc serve`: the server itself, as `llmc-mcp` starts it."""

from .. import server
from ..command_line import Arguments


def _serve(given: Arguments) -> int:
    server.main(given.rest)
    return 0


command = server.definition(_serve)
