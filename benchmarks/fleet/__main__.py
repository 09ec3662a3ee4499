"""`python -m benchmarks.fleet NAME [ARGUMENTS]`: prints Markdown; nothing is asserted."""

import sys
from importlib import import_module
from pathlib import Path

_NAMES = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))


def main() -> None:
    name, *arguments = sys.argv[1:] or [""]
    if name not in _NAMES:
        raise SystemExit(f"usage: python -m benchmarks.fleet {'|'.join(_NAMES)} [ARGUMENTS]")
    import_module(f".{name}", __package__).main(arguments)


if __name__ == "__main__":
    main()
