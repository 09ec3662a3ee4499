"""Edits in a 2 MB file, and finding what comes closest to a text that is not there. No server is involved."""

import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from llmc_mcp import __version__, errors
from llmc_mcp.changes import diff, edit

from . import report

_SIZE = 2_000_000
_EDIT_BAR = 25.0
_NEAREST_BAR = 200.0
_DIFF_BAR = 500.0


def run(_work: Path, quick: bool) -> str:
    rounds = 3 if quick else 15
    rows = [_row(name, action, _EDIT_BAR, rounds) for name, action in _edits().items()]
    rows += [_row(name, action, _NEAREST_BAR, rounds) for name, action in _misses().items()]
    rows += [_row(name, action, _DIFF_BAR, rounds) for name, action in _diffs().items()]
    head = ["what", "median, ms", "slowest, ms", "bar, ms", ""]
    return f"{report.table(head, rows)}\n\n{report.provenance(f'llmc {__version__}')}"


def _row(name: str, action: Callable[[], object], bar: float, rounds: int) -> list[str]:
    taken = [report.milliseconds(action) for _ in range(rounds)]
    value = report.median(taken)
    return [name, report.number(value), report.number(max(taken)), report.number(bar), report.verdict(value, bar)]


def _code(seed: int = 1, size: int = _SIZE) -> str:
    """Lines that look like a program: indented, some repeated, most different."""
    chance = random.Random(seed)
    names = [f"name_{i}" for i in range(400)]
    lines: list[str] = []
    total = 0
    while total < size:
        indent = "    " * chance.randint(0, 4)
        kind = chance.random()
        line = f"{indent}{chance.choice(names)} = {chance.choice(names)}({chance.randint(0, 9999)})"
        line = f"{indent}return None" if kind < 0.1 else "" if kind < 0.2 else line
        lines.append(line)
        total += len(line) + 1
    return "\n".join([*lines, ""])


def _edits() -> dict[str, Callable[[], object]]:
    code = _code()
    line = code[_SIZE // 2 :].split("\n")[5] + "  # here"
    here = code[: _SIZE // 2] + f"\n{line}\n" + code[_SIZE // 2 :]
    crlf = here.replace("\n", "\r\n")
    mixed = here.replace("\n", "\r\n", 5_000)
    accents = here.replace("name_1", "größe€")
    return {
        "edit, LF": _edit(here.encode(), line),
        "edit, CRLF": _edit(crlf.encode(), line),
        "edit, mixed line ends": _edit(mixed.encode(), f"\n{line.replace('name_1', 'name_1')}\n"),
        "edit, UTF-8 with accents": _edit(accents.encode(), line.replace("name_1", "größe€")),
        "edit, Latin-1": _edit(here.replace("name_1", "größe").encode("latin-1"), line.replace("name_1", "größe")),
        "edit, UTF-16": _edit(here.encode("utf-16"), line),
        "edit, one line of 2 MB": _edit(here.replace("\n", ";").encode(), line),
    }


def _edit(data: bytes, old: str) -> Callable[[], object]:
    return lambda: edit.apply(data, [edit.TextEdit(old, f"{old} + 1")])


def _misses() -> dict[str, Callable[[], object]]:
    code = _code()
    similar = "".join(f"    value_{i:06d} = compute(value, {i % 7})  # generated\n" for i in range(_SIZE // 55))
    common = "".join("    }\n\n  }\n}\n" for _ in range(_SIZE // 14))
    lines = code.split("\n")
    part = lines[20_000:25_000]
    part[2_500] = part[2_500] + "  # changed"
    retabbed = [line.replace("    ", "\t") for line in lines[20_000:25_000]]
    words = random.Random(2)
    noise = "\n".join("".join(words.choices("abcdefghijklmnopqrstuvwxyz ", k=70)) for _ in range(5_000))
    accents = code.replace("name_1", "größe€")
    return {
        "nearest, a line of code": _miss(code, lines[30_000] + " + 1\n" + lines[30_001] + "!"),
        "nearest, many similar lines": _miss(similar, "    value_020000 = compute(values, 9)  # generated\n"),
        "nearest, only common lines": _miss(common, "    }\n\n  }\n}\n" * 20 + "    }\n}\n"),
        "nearest, one line of 2 MB": _miss(code.replace("\n", ";"), lines[30_000] + ";;" + lines[30_001] + ";x"),
        "nearest, 5,000 lines, one differs": _miss(code, "\n".join(part)),
        "nearest, 5,000 lines, tabs": _miss(code, "\n".join(retabbed)),
        "nearest, 5,000 lines of noise": _miss(code, noise),
        "nearest, one character 2,000,000 times": _miss("a" * _SIZE, "a" * 1000 + "b" + "a" * 1000),
        "nearest, two million empty lines": _miss("\n" * _SIZE + "x", "\n" * 3000 + "y\n"),
        "nearest, random zeros and ones": _miss("".join(words.choices("01", k=_SIZE)), "01" * 5_000),
        "nearest, 1.8 MB of text to find": _miss("x\n" * (_SIZE // 2), "x\n" * 900_000 + "y"),
        "nearest, accents everywhere": _miss(accents, "größe€ = größe€(x)\nnothing like that"),
        "nearest, look-alikes": _miss(code[:_SIZE] + "print(“x” \u2013 1)", 'print("x" - 1)'),
        "nearest, CRLF": _miss(code.replace("\n", "\r\n"), lines[30_000] + " + 1\n" + lines[30_001]),
    }


def _miss(text: str, old: str) -> Callable[[], object]:
    data = text.encode()

    def miss() -> None:
        try:
            edit.apply(data, [edit.TextEdit(old, "")])
        except errors.PatchCountMismatch:
            return
        raise AssertionError("the text was found")

    return miss


def _diffs() -> dict[str, Callable[[], object]]:
    chance = random.Random(3)
    old = _code(size=400_000).split("\n")[:10_000]
    new = [f"{line} # new" if chance.random() < 0.05 else line for line in old if chance.random() > 0.02]
    before, after = "\n".join(old).encode(), "\n".join(new).encode()
    repeated = b"{\n}\n" * 5_000
    other = b"{\n}\n}\n" * 3_300
    shown = diff.unified(before, after, "code")
    return {
        "diff of 10,000 lines, 7 % changed": lambda: diff.unified(before, after, "code"),
        "diff of 10,000 repeated lines": lambda: diff.unified(repeated, other, "braces"),
        "diff of 10,000 lines, all different": lambda: diff.unified(before, _code(4, 400_000).encode(), "code"),
        "parse and apply that diff": lambda: diff.apply(diff.parse(shown)[0], before),
        "apply it with every line moved": lambda: diff.apply(diff.parse(shown)[0], b"# moved\n" * 500 + before),
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(run(Path(folder), "--quick" in sys.argv))
