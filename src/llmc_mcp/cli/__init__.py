"""`llmc`: one module per command.

A command reaches a tool through the gate; it calls an engine only where there is no tool for what it does.
"""
