"""`te init SHELL`: wrappers that put te in front of commands in an agent's shell, and completions for te itself.

A wrapper acts only where the command prints to the shell's own output: in a pipeline, a redirection or a
substitution a program reads, and gets what the command prints. For a start-up file that people and agents share,
`--agents` makes wrappers that act only where TE_AGENT_ID is set.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ..envelope.programs import WRAPPED

SHELLS = ("bash", "zsh", "fish")

_IS_AGENT = '-n "${TE_AGENT_ID:-}" && '
# What the shell prints to when it starts is remembered; a redirection or a pipe is something else.
_POSIX_START = """\
__te_stdout="$(command stat -Lc %d:%i "/proc/$$/fd/1" 2>/dev/null)"
function __te_wanted {{
  [[ {agents}"$(command stat -Lc %d:%i "/proc/$1/fd/1" 2>/dev/null)" == "$__te_stdout" ]]
}}
"""
# `function ls {`: of `ls() {` an alias would make `ls --color=auto() {`, and Debian's start-up file has that alias.
_POSIX = """\
function {name} {{
  if __te_wanted "{pid}"; then
    command te --shell "$$" {name} "$@"
  else
    command {name} "$@"
  fi
}}
"""
_BASH_COMPLETION = """\
function _te {{
  local word="${{COMP_WORDS[COMP_CWORD]}}"
  if (( COMP_CWORD == 1 )); then
    COMPREPLY=($(compgen -W "{words}" -- "$word") $(compgen -c -- "$word"))
  elif [[ "${{COMP_WORDS[1]}}" == init ]]; then
    COMPREPLY=($(compgen -W "bash zsh fish" -- "$word"))
  elif [[ "${{COMP_WORDS[COMP_CWORD-1]}}" == --handle ]]; then
    COMPREPLY=($(compgen -W "$(command te --list-handles 2>/dev/null | cut -d' ' -f1)" -- "$word"))
  else
    COMPREPLY=($(compgen -f -- "$word"))
  fi
}}
complete -o filenames -F _te te
"""
_ZSH_COMPLETION = """\
function _te {{
  if (( CURRENT == 2 )); then
    compadd -- {words}
    _command_names -e
  elif [[ "$words[2]" == init ]]; then
    compadd -- bash zsh fish
  elif [[ "$words[CURRENT-1]" == --handle ]]; then
    compadd -- $(command te --list-handles 2>/dev/null | cut -d' ' -f1)
  else
    shift words
    (( CURRENT-- ))
    _normal
  fi
}}
if (( $+functions[compdef] )); then compdef _te te; fi
"""
_FISH = """\
function {name} --wraps {name}
  command te --shell $fish_pid {name} $argv
end
"""
_FISH_AGENTS = """\
function {name} --wraps {name}
  if set -q TE_AGENT_ID; and test -n "$TE_AGENT_ID"
    command te --shell $fish_pid {name} $argv
  else
    command {name} $argv
  end
end
"""
_FISH_COMPLETION = """\
complete -c te -n __fish_is_first_token -a "{words}"
complete -c te -n __fish_is_first_token -a "(__fish_complete_command)"
complete -c te -n "__fish_seen_subcommand_from init" -f -a "bash zsh fish"
complete -c te -n "__fish_prev_arg_in --handle" -f -a "(command te --list-handles 2>/dev/null | cut -d' ' -f1)"
"""


class _Form(NamedTuple):
    """The script of a shell: its start, a wrapper for everybody, one for agents alone, the completion."""

    start: str
    wrapper: str
    for_agents: str
    pid: str
    completion: str


_FORMS = {
    "bash": _Form(_POSIX_START, _POSIX, _POSIX, "$BASHPID", _BASH_COMPLETION),
    "zsh": _Form(f"zmodload zsh/system\n{_POSIX_START}", _POSIX, _POSIX, "$sysparams[pid]", _ZSH_COMPLETION),
    "fish": _Form("", _FISH, _FISH_AGENTS, "", _FISH_COMPLETION),
}


def script(shell: str, words: Sequence[str], *, agents: bool = False) -> str:
    """The wrappers and the completion, for a shell to evaluate; `words` are te's own flags and commands."""
    form = _FORMS[shell]
    wrapper = form.for_agents if agents else form.wrapper
    functions = "".join(wrapper.format(name=name, pid=form.pid) for name in WRAPPED)
    return form.start.format(agents=_IS_AGENT if agents else "") + functions + completion(shell, words)


def completion(shell: str, words: Sequence[str]) -> str:
    """The completion of te alone."""
    return _FORMS[shell].completion.format(words=" ".join(words))
