"""The entry of the proxy process."""

import os
import socket
import sys
from typing import cast


def main() -> None:
    """Serve; stdin is the control socket."""
    modules = cast("dict[str, object]", sys.modules)
    modules["ssl"] = None  # asyncio would import it: several megabytes for a process that never speaks TLS itself
    import asyncio

    from .proxy import serve

    asyncio.run(serve(socket.socket(fileno=os.dup(0))))
    os._exit(0)  # a lookup that hangs must not keep the process
