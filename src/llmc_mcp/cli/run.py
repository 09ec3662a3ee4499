"""`llmc run`: serve a folder over HTTP and print how to connect; `make run` starts it."""

import json
import time

from ..command_line import Arguments, declare
from ..gate.dispatch import Gate
from ..review.summary import as_lines, summarize_session
from ..review.undoing import journal_of
from ..server import build_from, configure
from ..store.sessions import StoreReader, sessions
from ..web.serve import ListeningServer, serve
from ..web.ui.layout import SESSION
from .install.clients import BY_NAME, llmc_command
from .request_log import request_log

_SUMMARIES = 10
_ABOUT = """\
Serves this folder over HTTP until ^C, and prints URL, token, sandbox level, the configuration for a client and a link\
 that signs a browser in. The token is made once and kept for the next time. At the end it prints what its sessions did.
"""


@declare("run", _ABOUT, server_flags=True, parsed=False)
def command(given: Arguments) -> int:
    """Serve until ^C."""
    if {"-h", "--help"} & set(given.rest):
        print(command.help(), end="")
        return 0
    loaded = configure([*given.rest, "--transport", "http"])
    gate = build_from(loaded, request_log(loaded.config.observability))
    started = time.time()
    try:
        serve(gate, lambda listening: print(announcement(gate, listening), flush=True))
        _print_summaries(gate, started)
    finally:
        gate.close()
    return 0


def _print_summaries(gate: Gate, since: float) -> None:
    """What the sessions of this run did: they end with it, because clients over HTTP don't say when theirs do."""
    gate.flush_usage()
    store, own = gate.app.store, StoreReader(None, gate.app.root_set)
    journal = journal_of(gate.app.config, store, gate.app.root_set)
    for one in sessions(store, own, _SUMMARIES):
        if one.last_at >= since and one.session_id != SESSION:
            summary = summarize_session(store, journal, own._replace(principal=one.principal), one.session_id)
            print("\n" + "\n".join(as_lines(summary)), flush=True)


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
        f"  URL      {url}/mcp (MCP), {url}/docs (REST), {url}/ui (what agents do)",
        *(
            [f"  browser  {url}/login?code={listening.issued.tokens.login_code()} (works once, for ten minutes)"]
            * bool(token)
        ),
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
