"""Whether the server of this container answers: 0 or 1. Over stdio its client is who sees that, so 0.

`healthcheck.py /ready` asks whether it can work, too: what a proxy in front of several wants to know.
"""

import sys
import urllib.request

from llmc_mcp.config.load import load, parse_flags

# The server's own settings, from where it took them: the environment is the container's, the flags are in its
# command line (behind an init's, if there is one).
with open("/proc/1/cmdline") as file:
    words = file.read().split("\0")[:-1]
start = next((number for number, word in enumerate(words) if word.endswith("llmc-mcp")), len(words))
server = load(parse_flags(words[start + 1 :])[0]).config.server
path = sys.argv[1] if len(sys.argv) > 1 else "/health"
if server.transport == "http":
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=4) as answer:
            sys.exit(answer.status != 200)
    except OSError as exc:
        sys.exit(f"no answer on port {server.port}: {exc}")
