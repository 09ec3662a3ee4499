"""`te init SHELL`: wrappers that put te in front of commands in an agent's shell, and completions for te itself.

A wrapper acts only when TE_AGENT_ID is set, and only where the command prints to the shell's own output: in a
pipeline, a redirection or a substitution a program reads, and gets what the command prints.
"""

from collections.abc import Sequence

from ..envelope.programs import WRAPPED

SHELLS = ("bash", "zsh", "fish")

# What the shell prints to when it starts is remembered; a redirection or a pipe is something else.
_POSIX_START = """\
__te_stdout="$(command stat -Lc %d:%i "/proc/$$/fd/1" 2>/dev/null)"
__te_wanted() {{
  [[ -n "${{TE_AGENT_ID:-}}" && "$(command stat -Lc %d:%i "/proc/$1/fd/1" 2>/dev/null)" == "$__te_stdout" ]]
}}
"""
_POSIX = """\
{name}() {{
  if __te_wanted "{pid}"; then
    command te {name} "$@"
  else
    command {name} "$@"
  fi
}}
"""
_BASH_COMPLETION = """\
_te() {{
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
_te() {{
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
(( $+functions[compdef] )) && compdef _te te
"""
_FISH = """\
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


_FORMS = {
    "bash": (_POSIX_START, _POSIX, "$BASHPID", _BASH_COMPLETION),
    "zsh": (f"zmodload zsh/system\n{_POSIX_START}", _POSIX, "$sysparams[pid]", _ZSH_COMPLETION),
    "fish": ("", _FISH, "", _FISH_COMPLETION),
}


def script(shell: str, words: Sequence[str]) -> str:
    """The wrappers and the completion, for a shell to evaluate; `words` are te's own flags and commands."""
    start, wrapper, pid, _ = _FORMS[shell]
    functions = "".join(wrapper.format(name=name, pid=pid) for name in WRAPPED)
    return start.format() + functions + completion(shell, words)


def completion(shell: str, words: Sequence[str]) -> str:
    """The completion of te alone."""
    return _FORMS[shell][3].format(words=" ".join(words))
