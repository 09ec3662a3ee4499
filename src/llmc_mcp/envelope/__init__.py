"""Condensing what a command prints, for a reader who pays per token.

`families` maps a command to the module that knows its output (`git`, `grep`, `paths`, `tests`, `text`), within a
budget; `flags` reads the command's own flags; `reply` is the shape of the result; `records` are its rows in the
store.

Used by the program `te` and the tool `te_run`. It starts no command and changes no exit code.
"""
