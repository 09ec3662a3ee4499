"""`llmc`: the commands for people. Data goes to stdout, everything else to stderr."""

import importlib
import os
import sys
from typing import TYPE_CHECKING

from .. import __version__
from ..errors import LlmcError, UnknownTool

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..command_line import Command

# By the groups that `llmc --help` shows: a command's name, the `module` or `module:name` that holds its declaration (a
# Command, by default called `command`), and a line of help. A module is imported when its command is run.
GROUPS = {
    "Connect": {
        "install": (
            "cli.install.command",
            "put the server into Claude Code, Cursor, VS Code, Codex, Zed …; --list, --uninstall",
        ),
        "run": ("cli.run", "serve this folder over HTTP; prints URL, token and client configuration"),
        "serve": ("cli.serve", "the MCP server itself; the same as llmc-mcp (see: llmc serve --help)"),
        "smoke": ("cli.smoke", "start the server on this folder, call it once, print a client configuration"),
    },
    "What agents did": {
        "top": ("cli.top", "what agents do, live in the terminal; undo, approve and stop by key (extra: tui)"),
        "changes": ("cli.changes:changes", "what agents changed below this folder; --diff shows it"),
        "undo": ("cli.changes:undo", "take back the newest change here, one by its id, or a session's"),
        "trash": ("cli.changes:trash", "what agents deleted; trash restore ID, trash empty"),
        "locks": ("cli.changes:locks", "who is changing what right now"),
        "summary": ("cli.summary", "what a session did: turns, tools, tokens, time, changes; what to do next"),
        "calls": ("cli.stats:calls", "the latest calls, newest first"),
        "stats": ("cli.stats", "calls per tool: how many, how fast, at what price"),
        "audit": ("cli.audit", "calls that may have changed something; audit verify finds a record that was changed"),
        "handles": ("cli.handles", "list what earlier replies left behind, or print one of them"),
    },
    "What agents ask": {
        "approvals": ("cli.approvals:approvals", "what waits for your word; --all: the last answers too"),
        "approve": ("cli.approvals:approve", "let a call through once: llmc approve ID; --deny refuses it"),
    },
    "Have something done": {
        "onboard": ("cli.onboard", "tidy your downloads, explain this repository, or check this machine's health"),
    },
    "Search and understand code": {
        "index": ("cli.index:index", "build or update the code index of this folder, with a progress bar"),
        "search": ("cli.index:search", "find code by what it does or by its name (llmc search QUERY…)"),
        "repos": ("cli.repos", "the repositories that are indexed; repos add PATH, repos forget PATH"),
        "where-used": ("cli.graph:where_used", "who uses a symbol: a name, Class.method or path:Class.method"),
        "inspect": ("cli.graph:inspect", "what a symbol or a file is, who uses it, what it uses"),
        "map": ("cli.graph:repository_map", "what everything else in this repository depends on, in 1,000 tokens"),
    },
    "Set up and check": {
        "doctor": ("cli.doctor", "what this machine offers the server, what it lacks; --fix offers to get it"),
        "allow": ("cli.allow", "let commands start a program, use the network or see a folder; list it, take it back"),
        "ports": ("cli.ports", "the ports on which commands listen; llmc ports PORT passes one on to your browser"),
        "config": ("cli.config", "show the configuration in force, set a key, trust this folder's llmc.toml"),
        "repo": ("cli.validate", "repo validate: check the configuration and the tools, with a hint per finding"),
        "store": ("cli.store", "the database of a server's state: check, migrate, copy to PostgreSQL and back"),
        "policy": ("cli.policy", "the rules about calls: policy show, policy test 'CALL' says which one decides"),
        "token": ("cli.token", "tokens of HTTP clients: list, create, rotate, revoke, with scopes, tools and expiry"),
        "update": ("cli.update", "is there a newer version? Asks the package index, or the clone's remote"),
        "completion": (
            "cli.completion",
            "shell code that completes llmc, llmc-mcp and te in bash, zsh or fish",
        ),
    },
}
_INTERRUPTED = 130  # what shells tell of a program that ^C ended

COMMANDS = {name: entry for entries in GROUPS.values() for name, entry in entries.items()}


def usage() -> str:
    """What `llmc --help` prints."""
    parts = [
        f"\n{title}:\n" + "".join(f"  {name:14} {summary}\n" for name, (_, summary) in entries.items())
        for title, entries in GROUPS.items()
    ]
    return "usage: llmc COMMAND [ARGUMENTS]\n" + "".join(parts) + "\nllmc COMMAND --help says more; llmc --version.\n"


def find(name: str) -> "Command":
    """The declaration of a command."""
    module, _, attribute = COMMANDS[name][0].partition(":")
    return getattr(importlib.import_module(f"..{module}", __package__), attribute or "command")


def main(loaded: "Callable[[], None]" = lambda: None) -> None:
    """Run one command; calls `loaded` between its import and its run."""
    name, *arguments = sys.argv[1:] or ["--help"]
    if name == "help" and arguments and arguments[0] in COMMANDS:
        name, arguments = arguments[0], ["--help"]
    if name in ("-h", "--help", "help"):
        print(usage(), end="")
    elif name == "--version":
        print(f"llmc {__version__}")
    elif name in COMMANDS:
        raise SystemExit(_run(name, arguments, loaded))
    else:
        raise SystemExit(_unknown(name))


def _unknown(name: str) -> int:
    from ..command_line import near
    from ..visible import visible

    hint = near(name, list(COMMANDS)) or "llmc --help lists the commands."
    print(f"llmc: unknown command {visible(name)!r}\nhint: {hint}", file=sys.stderr)
    return 2


def _run(name: str, arguments: list[str], loaded: "Callable[[], None]") -> int:
    try:
        command = find(name)
        loaded()
        return command(arguments)
    except LlmcError as exc:
        from ..visible import visible

        for line in exc.message.splitlines():
            print(f"llmc: {visible(line)}", file=sys.stderr)
        if exc.hint:
            from .person import for_people

            hint = exc.hint if isinstance(exc, UnknownTool) else for_people(exc.hint)
            print("hint:", visible(hint, keep="\n"), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:  # the reader of our output is gone; there is nothing left to flush to
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
