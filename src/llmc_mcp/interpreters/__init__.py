"""Code that an agent sends to `execute_code`.

`engine` is the protocol of an engine; `monty` runs the code in an interpreter without a machine behind it; `cpython`
runs it in a sandboxed CPython, whose inner side is `cpython_child`.

Code reaches the world only through the tools it is handed; it never sees a root.
"""
