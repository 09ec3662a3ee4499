"""No requirement without a test, and no test named that is not there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from .requirements import REQUIREMENTS, Requirement, page

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "DOCS" / "requirements.md"

# The numbered requirements and the rows of the checklists, counted in the documents themselves.
COMPLETE = {
    "L1": [f"R{number}" for number in range(1, 17)],
    "L2": [f"R{number}" for number in range(1, 12)],
    "MVP": [f"FR-{number}" for number in range(1, 8)]
    + [f"NFR-{number}" for number in range(1, 7)]
    + [f"14.2.12-{number}" for number in range(1, 11)]
    + [f"16-{number}" for number in range(1, 7)]
    + [f"G{number}" for number in range(1, 6)]
    + [f"M{number}" for number in range(7)]
    + [f"R{number}" for number in range(1, 6)],
    "LLD": [f"L1-{number}" for number in range(1, 9)]
    + [f"L2-{number}" for number in range(1, 6)]
    + [f"L3-{number}" for number in range(1, 6)]
    + [f"L4-{number}" for number in range(1, 7)]
    + [f"X-{number}" for number in range(1, 6)],
    "HYB": [f"4-{number}" for number in range(1, 6)]
    + [f"6-{number}" for number in range(1, 6)]
    + [f"7-{number}" for number in range(1, 5)],
}


@cache
def names_in(module: str) -> frozenset[str]:
    path = TESTS / f"{module}.py"
    if not path.exists():
        return frozenset()
    tree = ast.parse(path.read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_requirement_of_the_documents_is_in_the_table_once() -> None:
    ids = [requirement.id for requirement in REQUIREMENTS]
    wanted = {f"{document} {name}" for document, names in COMPLETE.items() for name in names}
    assert sorted(wanted - set(ids)) == []
    assert sorted({name for name in ids if ids.count(name) > 1}) == []


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda requirement: requirement.id.replace(" ", "-"))
def test_every_requirement_is_proved_by_tests_that_exist(requirement: Requirement) -> None:
    assert requirement.proofs
    for proof in requirement.proofs:
        module, _, name = proof.partition("::")
        found = names_in(module)
        assert any(test.startswith("test_") for test in found), f"{module}.py has no tests"
        assert not name or name in found, f"there is no test {proof}"


def test_the_page_of_requirements_is_up_to_date() -> None:
    assert PAGE.read_text() == page()


def test_the_page_names_no_test_twice_for_one_requirement() -> None:
    for row in re.findall(r"^\| .+ \|$", page(), re.MULTILINE):
        named = re.findall(r"`([^`]+)`", row.rpartition(" | ")[2])
        assert len(named) == len(set(named)), row
