"""Where the bundle starts: every argument is a folder that the server may reach."""

import sys

from llmc_mcp.server import main

sys.argv[1:] = [word for folder in sys.argv[1:] for word in ("--root", folder)]
main()
