"""`llmc ports`: servers that commands run in the network of their session, and a way to them for a browser."""

import contextlib
import sys

from ..command_line import JSON, Arguments, Flag, Positional, UsageError, declare
from ..config.load import load
from ..errors import FeatureDisabled
from ..printing import print_json, print_line

_ABOUT = """\
Lists the ports on which commands of this user's servers listen, each in the network of its session, where nobody else\
 reaches it. With a port, passes connections to the same port of this machine's loopback (127.0.0.1) on to it until ^C,\
 so that a browser shows what a command serves. It has to be allowed first: llmc config set sandbox.forward_ports true.
"""
_MOST = 65_535


@declare(
    "ports",
    _ABOUT,
    positionals=(Positional("PORT", "the port to pass on", required=False),),
    flags=(
        Flag("--at", "the port on this machine, if not the same", "N"),
        Flag("--pid", "the process that listens, where several sessions have the same port", "N"),
        JSON,
    ),
)
def command(given: Arguments) -> int:
    """List ports, or forward one."""
    from ..sandbox.ports import find_port, forward, open_ports

    if not given.positionals:
        ports = open_ports()
        if "--json" in given:
            print_json([one._asdict() for one in ports])
            return 0
        for one in ports:
            print_line(f"{one.port:>5}  pid {one.pid:<8} {one.program[:80]}  [{one.session[:40]}]")
        if not ports:
            print_line("llmc: no command listens on a port", sys.stderr)
        return 0
    if not load().config.sandbox.forward_ports:
        hint = "It is off by default. To allow it: llmc config set sandbox.forward_ports true."
        raise FeatureDisabled("ports of commands are not passed on to this machine", hint=hint)
    asked = given.positionals[0]
    if not asked.isdecimal() or not 0 < int(asked) <= _MOST:
        raise UsageError(f"{asked!r} is no port")
    port = int(asked)
    here = given.number("--at", most=_MOST) if "--at" in given else port
    found = find_port(port, given.number("--pid") if "--pid" in given else None)
    announcement = f"http://127.0.0.1:{here}/ leads to {found.program[:80]} (pid {found.pid}); ^C ends it"
    with contextlib.suppress(KeyboardInterrupt):
        forward(port, found.pid, here, lambda: print_line(announcement, sys.stderr))
    return 0
