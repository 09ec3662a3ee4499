"""Commands that change no file, as far as their names say: for them no row is journaled before they start.

That saves a write to the store, and nothing else: what such a command changes nevertheless is found and journaled as
for any other.
"""

import os

from .shell_syntax import CommandLine

_PROGRAMS = frozenset(
    (
        *("cat", "cut", "date", "df", "diff", "du", "echo", "env", "false", "file", "grep", "egrep", "fgrep", "head"),
        *("id", "ls", "nl", "od", "printenv", "pwd", "rg", "stat", "tail", "tree", "true", "uname", "wc", "which"),
    )
)
_OF_GIT = frozenset(("blame", "cat-file", "diff", "grep", "log", "ls-files", "rev-parse", "show", "status"))


def seems_read_only(line: CommandLine) -> bool:
    """Whether a command is a plain program that only reads; a line for a shell may redirect."""
    if line.programs or line.script is not None:
        return False
    name = os.path.basename(line.argv[0])
    return name in _PROGRAMS or (name == "git" and line.argv[1:2] != [] and line.argv[1] in _OF_GIT)
