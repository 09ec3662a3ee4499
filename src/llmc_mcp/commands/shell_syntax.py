"""Whether a command is a plain program with its arguments, or a line for a shell.

Only whether: what a line means is for a parser (`shell_child`) and for the shell to say.
"""

import shlex
from typing import NamedTuple

from ..errors import BadArgs

# A shell gives these a meaning outside of quotes; ~ and = only at some places, but a shell also knows where not.
_SYNTAX = frozenset("|&;<>()$`*?[{~#\n\r")
_IN_DOUBLE_QUOTES = frozenset("$`")
# What only a shell has, and what it has although there are programs of the same name.
BUILTINS = frozenset(
    (
        *(".", ":", "alias", "bg", "bind", "break", "builtin", "caller", "cd", "command", "compgen", "complete"),
        *("compopt", "continue", "declare", "dirs", "disown", "enable", "eval", "exec", "exit", "export", "fc", "fg"),
        *("getopts", "hash", "help", "history", "jobs", "let", "local", "logout", "mapfile", "popd", "pushd", "read"),
        *("readarray", "readonly", "return", "set", "shift", "shopt", "source", "suspend", "times", "trap", "type"),
        *("typeset", "ulimit", "umask", "unalias", "unset", "wait"),
    )
)
ALSO_BUILTINS = frozenset(("[", "echo", "false", "kill", "printf", "pwd", "test", "true"))
KEYWORDS = frozenset(
    (
        *("!", "[[", "]]", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if"),
        *("in", "select", "then", "time", "until", "while", "{", "}"),
    )
)


class CommandLine(NamedTuple):
    """A command, ready to be looked up and started.

    `script` is a line that is too long for an argument: the shell in `argv` reads it from a descriptor.
    """

    argv: list[str]
    programs: tuple[str, ...] = ()  # that a line names, besides the shell itself
    script: bytes | None = None
    changes_folder: bool = False  # a line does, for as long as it runs
    in_background: bool = False  # a line leaves something running in the background, which ends with it
    warnings: tuple[str, ...] = ()


def needs_shell(command: str) -> bool:
    """Whether a command means something else, or something at all, only to a shell."""
    quote = ""
    at, first = 0, ""  # the first word, as far as it is not quoted
    in_first = True
    text = command.strip(" \t\n")
    while at < len(text):
        character = text[at]
        if quote:
            if character == quote:
                quote = ""
            elif quote == '"':
                if character in _IN_DOUBLE_QUOTES:
                    return True
                at += character == "\\"
        elif character in _SYNTAX:
            return True
        elif character in "'\"":
            quote, in_first = character, in_first and at > 0
        elif character == "\\":
            at += 1
            if text[at : at + 1] in ("\n", ""):
                return True
        elif character in " \t":
            in_first = False
        elif in_first:
            first += character
        at += 1
    return bool(quote) or "=" in first or first in BUILTINS or first in KEYWORDS


def split(command: str | list[str]) -> list[str]:
    """The words of a command. A string is split like a shell would, but nothing in it is interpreted."""
    try:
        words = shlex.split(command) if isinstance(command, str) else list(command)
    except ValueError as exc:
        raise BadArgs(f"the command can't be split into words: {exc}", hint="Pass a list of words.") from None
    if not words or not words[0]:
        raise BadArgs("the command is empty")
    if any("\0" in word for word in words):
        raise BadArgs("the command contains a NUL byte")
    return words
