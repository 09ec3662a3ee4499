"""`llmc run`: serve a folder over HTTP and print how to connect; `make run` starts it."""

import json

from ..command_line import Arguments, declare
from ..config.live import LiveConfig
from ..gate.dispatch import Gate
from ..server import build, configure
from ..web.serve import ListeningServer, serve
from .install.clients import BY_NAME, llmc_command

_ABOUT = """\
Serves this folder over HTTP until ^C, and prints URL, token, sandbox level and the configuration for a client. The\
 token is made once and kept for the next time.
"""


@declare("run", _ABOUT, server_flags=True, parsed=False)
def command(given: Arguments) -> int:
    """Serve until ^C."""
    if {"-h", "--help"} & set(given.rest):
        print(command.help(), end="")
        return 0
    loaded = configure(["--set", "observability.log_level=warning", *given.rest, "--transport", "http"])
    gate = build(loaded.config, loaded.roots, loaded.data_dir, loaded.files, loaded.trusted_files)
    gate.app.follow(LiveConfig(loaded))
    try:
        serve(gate, lambda listening: print(announcement(gate, listening), flush=True))
    finally:
        gate.close()
    return 0


def announcement(gate: Gate, listening: ListeningServer) -> str:
    """How to connect a client. It contains the token: print it, never log it."""
    url, token = listening.url, listening.issued.owners
    header = gate.app.config.auth.header
    roots = ", ".join(root.shown for root in gate.app.files.roots)
    headers = {header: token} if token else {}
    entry = {"mcpServers": {"llmc": {"type": "http", "url": f"{url}/mcp", "headers": headers}}}
    option = f' --header "{header}: {token}"' if token else ""
    body = '{"name": "list_dir", "args": {"path": "."}}'
    curl = f"curl -s {url}/tool" + (f' -H "{header}: {token}"' if token else "")
    own = [f"  own code {', '.join(kept)}: nobody changes it"] if (kept := gate.app.files.own_code) else []
    lines = [
        f"LLMC MCP on {roots}",
        f"  URL      {url}/mcp (MCP), {url}/docs (REST; a browser signs in at {url}/login)",
        f"  token    {token or 'none'} ({listening.issued.source})",
        f"  sandbox  commands: {gate.app.command_confinement()}",
        *own,
        "",
        "Claude Code:",
        f"  claude mcp add --transport http llmc {url}/mcp{option}",
        "Other clients (mcpServers in their JSON configuration):",
        json.dumps(entry, indent=2),
        "curl:",
        f"  {curl} -H 'Content-Type: application/json' -d '{body}'",
        "Without HTTP, as a process of the client's own:",
        f"  {llmc_command()} install CLIENT   ({', '.join(BY_NAME)})",
        "",
        "^C ends it.",
    ]
    return "\n".join(lines)
