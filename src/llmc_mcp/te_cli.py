"""`te COMMAND ARGS…`: run a command from an agent's shell; it passes through unchanged, exit code and all."""

import os
import sys

_NOT_FOUND = 127
_NOT_EXECUTABLE = 126


def main() -> None:
    """Become the command."""
    command = sys.argv[1:]
    if not command:
        os.write(2, b"usage: te COMMAND [ARGS...]\n")
        raise SystemExit(2)
    try:
        os.execvp(command[0], command)
    except FileNotFoundError:
        os.write(2, f"te: {command[0]}: command not found\n".encode("utf-8", "surrogateescape"))
        code = _NOT_FOUND
    except OSError as exc:
        os.write(2, f"te: {command[0]}: {exc.strerror}\n".encode("utf-8", "surrogateescape"))
        code = _NOT_EXECUTABLE
    raise SystemExit(code)
