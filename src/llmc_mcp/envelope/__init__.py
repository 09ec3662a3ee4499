"""Condensing the output of commands, for readers that pay per token.

`programs` lists the commands and their families; `families` condenses an output within a budget through the module that
understands it (`git`, `grep`, `paths`, `tests`, `text`); `family` is what those share; `flags` parses a command's own
flags; `reply` is the shape of the result; `records` writes a row per command to the store.

Used by the program `te` and the tool `te_run`. It starts no command and changes no exit code.
"""
