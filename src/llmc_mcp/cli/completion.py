"""`llmc completion bash|zsh|fish`: the shell code that completes llmc, llmc-mcp and te.

The shell asks `llmc completion --words COMMAND LINE`, which answers from the declarations of the commands.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..command_line import Arguments, Positional, declare
from ..te.init import SHELLS
from ..te.init import completion as te_completion
from ..te.queries import te
from .main import COMMANDS, find

if TYPE_CHECKING:
    from ..command_line import Command

_ABOUT = """\
Prints the shell code that makes Tab complete llmc, llmc-mcp and te:

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


@declare("completion", _ABOUT, positionals=(Positional("SHELL", "", SHELLS, required=False),))
def command(given: Arguments) -> int:
    """Print a shell's script."""
    shell = given.first()
    print(_SCRIPTS[shell] + te_completion(shell, te.first_words()) if shell else command.help(), end="")
    return 0


@command.verb("--words", "", parsed=False)
def _print_words(given: Arguments) -> int:
    print("\n".join(words_after(given.rest)))
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
    return list(dict.fromkeys(_words(find(typed[0]), typed[1:])))


def _words(command: "Command", typed: list[str]) -> Iterator[str]:
    if typed and typed[0] in command.verbs:
        yield from _words(command.verbs[typed[0]], typed[1:])
        return
    flags = {flag.name: flag for flag in command.all_flags()}
    flag = flags.get(typed[-1]) if typed else None
    if flag is not None and flag.value:
        yield from flag.choices
        return
    words = command.first_words()
    yield from words if not typed else (word for word in words if word not in command.verbs)


def help_of(name: str) -> str:
    """What `llmc NAME --help` prints."""
    return find(name).help()
