"""The program `te`: runs a command and condenses what it prints.

`main` passes a command through as fast as it can; `run` condenses by `envelope`; `child` behaves towards the
terminal as the command itself would; `queries`, `stats` and `init` are its own flags.
"""
