"""`python -m benchmarks.fleet soak|calls …`: prints Markdown; nothing is asserted, and a bar that is missed is said."""

import sys
from collections.abc import Callable
from importlib import import_module

_RUNS = {
    "soak": "replicas that are killed, and a database that restarts, under writers",
    "calls": "small calls with the state in SQLite and in PostgreSQL",
}


def main(words: list[str]) -> int:
    if not words or words[0] not in _RUNS:
        print("\n".join(f"{name:8} {about}" for name, about in _RUNS.items()), file=sys.stderr)
        return 2
    run: Callable[[list[str]], int] = import_module(f".{words[0]}", __package__).main
    return run(words[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
