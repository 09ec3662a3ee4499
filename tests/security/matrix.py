"""A pytest plugin: the outcome of every attack, by level and user, as one table.

    make attack

The attacks are the tests whose names carry an id; what they are parametrised with says at which level and as which
user they ran. A test that says neither is about things that are the same for all.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest

from .arena import LEVELS, USERS
from .claims import CLAIMS

_ID = re.compile(r"(?<=_)[a-e]\d\d(?=_)")
_EVERYWHERE = "any"
COLUMNS = (*(f"{level} {user}" for level in LEVELS for user in USERS), *LEVELS, *USERS, _EVERYWHERE)


def attacks_of(node: str) -> list[str]:
    """The ids in a test's name."""
    return [number.upper() for number in _ID.findall(node.partition("::")[2].partition("[")[0])]


def column_of(node: str) -> str:
    """Level and user of a test, as its parameters say."""
    parameters = re.split(r"[-\]]", node.partition("[")[2])
    told = [next((name for name in names if name in parameters), "") for names in (LEVELS, USERS)]
    return " ".join(name for name in told if name) or _EVERYWHERE


class Matrix:
    """Collects outcomes, then prints them."""

    def __init__(self) -> None:
        self._cells: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))

    @property
    def failed(self) -> bool:
        return any(cell["failed"] for row in self._cells.values() for cell in row.values())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":  # a fixture may fail or skip, too
            for number in attacks_of(report.nodeid):
                self._cells[number][column_of(report.nodeid)][report.outcome] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self.table():
            terminalreporter.write_line(line)

    def table(self) -> Iterator[str]:
        """Rows are attacks, columns levels and users."""
        columns = [name for name in COLUMNS if any(name in row for row in self._cells.values())]
        rows = [["id", *columns]]
        for number, row in sorted(self._cells.items()):
            rows.append([number, *(_cell(number, name, row.get(name)) for name in columns)])
        widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
        for row in rows:
            yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def _cell(number: str, column: str, outcomes: Counter[str] | None) -> str:
    """held, not claimed or FAILED, with the number of tests."""
    if not outcomes:
        return "-"
    if outcomes["failed"]:
        return f"FAILED {outcomes['failed']} of {outcomes.total()}"
    if not outcomes["passed"]:
        return f"not run {outcomes['skipped']}"
    return f"held {outcomes['passed']}" + (" (part not claimed)" if _not_claimed(number, column) else "")


def _not_claimed(number: str, column: str) -> bool:
    """Whether the page says of this level that it does not keep all of this attack out."""
    claim = CLAIMS.get(number)
    if claim is None:
        return False
    level = next((name for name in LEVELS if column.startswith(name)), "")
    promise = claim.landlock if level == "landlock" and claim.landlock != "same" else claim.workspace
    return bool(level) and "not:" in promise


def main(arguments: list[str]) -> int:
    """Run the attacks; 1 when one of them got through or could not be tried."""
    matrix = Matrix()
    code = pytest.main(["-q", "-p", "no:cacheprovider", *arguments], plugins=[matrix])
    return 1 if code or matrix.failed else 0


if __name__ == "__main__":
    import sys

    sys.exit(main(sys.argv[1:] or ["tests/security"]))
