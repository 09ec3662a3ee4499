"""LLMC MCP: an MCP server that lets an AI agent work on a Linux machine."""

import os
import sys

__version__ = "0.1.0"

PACKAGE = os.path.dirname(os.path.abspath(__file__))
PACKAGE_HOME = os.path.dirname(PACKAGE)  # the entry of sys.path that holds us

# `python -m` looks for modules in the working directory first, mostly the very folder that is served: a file of that
# folder with the name of a module would run as the server. This is the first code of ours that runs.
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path and __path__[0] != f"{sys.path[0]}/llmc_mcp":
    del sys.path[0]
