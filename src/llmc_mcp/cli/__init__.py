"""`llmc`: one module per command, which declares its arguments (`command_line`) and runs it; `main` lists them.

A command reaches a tool through the gate; it calls an engine only where there is no tool for what it does.
"""
