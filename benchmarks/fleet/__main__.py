"""`python -m benchmarks.fleet [WORD] …`: prints Markdown; nothing is asserted, and a bar that is missed is said."""

import sys
from collections.abc import Callable
from importlib import import_module

_RUNS = {
    "simulate": "what a call costs the database, and what a thousand developers need (the default)",
    "soak": "replicas that are killed, and a database that restarts, under writers",
    "calls": "small calls with the state in SQLite and in PostgreSQL",
    "limits": "a rate that replicas count together",
    "usage": "rows of usage, and what they cost calls",
}


def main(words: list[str]) -> int:
    word, rest = (words[0], words[1:]) if words and not words[0].startswith("-") else ("simulate", words)
    if word not in _RUNS:
        print("\n".join(f"{name:8} {about}" for name, about in _RUNS.items()), file=sys.stderr)
        return 2
    run: Callable[[list[str]], int | None] = import_module(f".{word}", __package__).main
    return run(rest) or 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
