"""Condensing the output of commands, for readers that pay per token.

`programs` lists the commands and their families; `families` condenses an output within a budget through the module that
understands it (`git`, `grep`, `searches`, `paths`, `tests`, `text`, `scripts`, `lint`, `logs`, `runners`); `family` is
what those share, `blocks`, `salience` and `floods` how a text and lines are condensed, `structure` how JSON is, `names`
what a session is after; `flags` parses a command's own flags; `lines` and `recognition` read a shell line; `facts` and
`replay` judge recorded output; `reply` is the shape of the result; `records` writes a row per command to the store.

Used by the program `te` and the tool `te_run`. It starts no command and changes no exit code.
"""
