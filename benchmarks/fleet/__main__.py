"""`python -m benchmarks.fleet [WORD] [ARGUMENTS]`: the benchmark of that word; without one, `simulate`."""

import sys
from importlib import import_module
from pathlib import Path


def main() -> None:
    word, *rest = sys.argv[1:] or ["simulate"]
    if word.startswith("-"):
        word, rest = "simulate", [word, *rest]
    if not word.isidentifier() or word.startswith("_") or not Path(__file__).with_name(f"{word}.py").exists():
        raise SystemExit(f"no such benchmark: {word}")
    import_module(f".{word}", __package__).main(rest)


if __name__ == "__main__":
    main()
