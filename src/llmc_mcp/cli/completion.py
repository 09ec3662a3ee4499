"""`llmc completion bash|zsh|fish`: what a shell is to evaluate so that Tab knows llmc, llmc-mcp and te.

Nothing about a command is written twice: the shell asks `llmc completion --words COMMAND`, which reads the help text of
that command, where every flag and every verb stands.
"""

import contextlib
import importlib
import io
import re
import sys

from ..te.init import completion as te_completion
from .install.clients import BY_NAME
from .main import COMMANDS

_USAGE = """\
usage: llmc completion bash|zsh|fish

Prints what makes Tab complete llmc, llmc-mcp and te:

  bash   eval "$(llmc completion bash)"    in ~/.bashrc
  zsh    eval "$(llmc completion zsh)"     in ~/.zshrc, after compinit
  fish   llmc completion fish | source     in ~/.config/fish/config.fish
"""
_BASH = """\
_llmc() {
  local word="${COMP_WORDS[COMP_CWORD]}" words
  words="$(command llmc completion --words "${COMP_WORDS[@]:0:COMP_CWORD}" 2>/dev/null)"
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -o bashdefault -F _llmc llmc llmc-mcp
"""
_ZSH = """\
_llmc() {
  local -a found
  found=(${(f)"$(command llmc completion --words ${words[1,CURRENT-1]} 2>/dev/null)"})
  compadd -- $found
  _files
}
(( $+functions[compdef] )) && compdef _llmc llmc llmc-mcp
"""
_FISH = """\
complete -c llmc -a "(command llmc completion --words (commandline -opc) 2>/dev/null)"
complete -c llmc-mcp -a "(command llmc completion --words (commandline -opc) 2>/dev/null)"
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}

_FLAG = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
_CHOICE = re.compile(r"[a-z_]+(?:\|[a-z_]+)+")
_VERB = re.compile(r"^(?:usage:)?\s+llmc (?P<command>[a-z-]+) (?P<verb>[a-z]+)\b", re.MULTILINE)


def command(arguments: list[str]) -> int:
    """Print a script, or what may come next on a command line."""
    match arguments:
        case ["--words", *line]:
            print("\n".join(words_after(line)))
        case ["-h"] | ["--help"] | []:
            print(_USAGE, end="")
        case [shell] if shell in _SCRIPTS:
            print(_SCRIPTS[shell] + te_completion(shell), end="")
        case _:
            print(_USAGE, end="", file=sys.stderr)
            return 2
    return 0


def words_after(line: list[str]) -> list[str]:
    """What may follow these words; empty where only the person knows, such as a file."""
    program, *typed = line or ["llmc"]
    if program.endswith("llmc-mcp"):
        typed = ["serve", *typed]
    if not typed:
        return [*COMMANDS, "--help", "--version"]
    if typed[0] == "help":
        return list(COMMANDS)
    if typed[0] not in COMMANDS:
        return []
    text = help_of(typed[0])
    if len(typed) > 1 and typed[-1] in ("--root", "--config", "--set", "--session"):
        return []
    if found := re.search(re.escape(typed[-1]) + r" (" + _CHOICE.pattern + r")(?![\w|])", text):
        return found.group(1).split("|")
    verbs = [found["verb"] for found in _VERB.finditer(text) if found["command"] == typed[0]] if len(typed) == 1 else []
    clients = list(BY_NAME) if typed[0] == "install" else []
    return list(dict.fromkeys([*verbs, *clients, *_FLAG.findall(text), "--help"]))


def help_of(name: str) -> str:
    """What `llmc NAME --help` prints."""
    module, _, function = COMMANDS[name][0].partition(":")
    printed = io.StringIO()
    if name == "serve":
        from ..server import USAGE

        return USAGE
    run = getattr(importlib.import_module(f"..{module}", __package__), function or "command")
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        run(["--help"])
    return printed.getvalue()
