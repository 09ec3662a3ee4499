"""`llmc`: the commands for people. Data goes to stdout, everything else to stderr."""

import importlib
import os
import sys

from .. import __version__
from ..errors import LlmcError
from ..visible import visible

# Name → the module whose `command(arguments) -> exit code` runs it, or `module:function` where several share one,
# and a line of help. Imported when asked for.
COMMANDS = {
    "serve": ("server", "the MCP server itself; the same as llmc-mcp (see: llmc serve --help)"),
    "run": ("cli.run", "serve this folder over HTTP; prints URL, token and client configuration"),
    "install": (
        "cli.install.command",
        "put the server into Claude Code, Cursor, VS Code, Codex, Zed …; --list, --uninstall",
    ),
    "completion": ("cli.completion", "what makes Tab complete llmc, llmc-mcp and te in bash, zsh or fish"),
    "smoke": ("cli.smoke", "start the server on this folder, call it once, print a client configuration"),
    "onboard": ("cli.onboard", "tidy your downloads, explain this repository, or tell how this machine does"),
    "stats": ("cli.stats", "calls per tool: how many, how fast, at what price"),
    "calls": ("cli.stats:calls", "the latest calls, newest first"),
    "token": ("cli.token", "list, add or remove tokens of HTTP clients, with scopes"),
    "config": ("cli.config", "show the configuration in force, trust or untrust this folder's llmc.toml"),
    "doctor": ("cli.doctor", "what this machine offers the server, what it lacks, how to get it (--json)"),
    "changes": ("cli.changes:changes", "what agents changed below this folder; --diff shows it"),
    "undo": ("cli.changes:undo", "take back the newest change here, one by its id, or a session's"),
    "trash": ("cli.changes:trash", "what agents deleted; trash restore ID, trash empty"),
    "locks": ("cli.changes:locks", "who is changing what right now"),
    "handles": ("cli.handles", "list what earlier replies left behind, or print one of them"),
    "index": ("cli.index:index", "build or update the code index of this folder, with a progress bar"),
    "search": ("cli.index:search", "find code by what it does or by its name: llmc search QUERY..."),
    "where-used": ("cli.graph:where_used", "who uses a symbol: a name, Class.method or path:Class.method"),
    "inspect": ("cli.graph:inspect", "what a symbol or a file is, who uses it, what it uses"),
    "map": ("cli.graph:repository_map", "what everything else in this repository leans on, in 1,000 tokens"),
    "repo": ("cli.validate", "repo validate: check the configuration and the tools, with a hint per finding"),
}


# What `llmc --help` shows together.
GROUPS = {
    "Connect": ("install", "run", "serve", "smoke"),
    "What agents did": ("changes", "undo", "trash", "locks", "calls", "stats", "handles"),
    "Have something done": ("onboard",),
    "Search and understand code": ("index", "search", "where-used", "inspect", "map"),
    "Set up and check": ("doctor", "config", "repo", "token", "completion"),
}


def usage() -> str:
    """What `llmc --help` prints."""
    grouped = {name for names in GROUPS.values() for name in names}
    groups = {**GROUPS, "More": tuple(name for name in COMMANDS if name not in grouped)}
    parts = [
        f"\n{title}:\n" + "".join(f"  {name:14} {COMMANDS[name][1]}\n" for name in names if name in COMMANDS)
        for title, names in groups.items()
        if any(name in COMMANDS for name in names)
    ]
    return "usage: llmc COMMAND [ARGUMENTS]\n" + "".join(parts) + "\nllmc COMMAND --help says more; llmc --version.\n"


def main() -> None:
    """Run one command."""
    name, *arguments = sys.argv[1:] or ["--help"]
    if name == "help" and arguments and arguments[0] in COMMANDS:
        name, arguments = arguments[0], ["--help"]
    if name in ("-h", "--help", "help"):
        print(usage(), end="")
    elif name == "--version":
        print(f"llmc {__version__}")
    elif name in COMMANDS:
        raise SystemExit(_run(COMMANDS[name][0], arguments))
    else:
        print(f"llmc: unknown command {name!r}{_nearest(name)}\n{usage()}", end="", file=sys.stderr)
        raise SystemExit(2)


def _nearest(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, COMMANDS, 1)
    return f", did you mean {near[0]}?" if near else ""


def _run(entry: str, arguments: list[str]) -> int:
    module, _, function = entry.partition(":")
    try:
        return getattr(importlib.import_module(f"..{module}", __package__), function or "command")(arguments)
    except LlmcError as exc:
        for line in exc.message.splitlines():
            print(f"llmc: {visible(line)}", file=sys.stderr)
        if exc.hint:
            print("hint:", visible(exc.hint, keep="\n"), file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read our output has seen enough; nothing is left to flush to
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
