"""Names mean one thing in the whole tree, and whatever a linter is told to overlook says why."""

import ast
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).parents[1]
SOURCES = ("src", "tests", "benchmarks", "scripts", "deploy")

# Classes of one name in several modules. Private parsers of two formats may both be readers.
SHARED_NAMES = {"_Reader"}
REASONED = re.compile(r"# noqa: [A-Z]+\d+(, [A-Z]+\d+)* - \S")


def python_files(*folders: str) -> Iterator[Path]:
    """Sources of ours; not what is installed beside them."""
    for folder in folders:
        for path in sorted((TOP / folder).rglob("*.py")):
            if not {"node_modules", ".cache"} & set(path.parts):
                yield path


def suppressions(path: Path) -> Iterator[tuple[int, str]]:
    """Comments that silence the linter, with their lines."""
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type == tokenize.COMMENT and re.search(r"\bnoqa\b", token.string):
                yield token.start[0], token.string


def test_no_two_modules_define_a_class_of_one_name() -> None:
    names = Counter[str]()
    for path in python_files("src"):
        names.update({node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)})
    assert {name for name, modules in names.items() if modules > 1} == SHARED_NAMES


def test_what_the_linter_overlooks_says_why() -> None:
    silent = [
        f"{path.relative_to(TOP)}:{line} {comment}"
        for path in python_files(*SOURCES)
        for line, comment in suppressions(path)
        if not REASONED.search(comment)
    ]
    assert silent == []


def test_a_suppression_without_a_reason_is_seen(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text(
        "import os  # noqa: F401\nimport sys  # noqa\nimport re  # noqa: F401, E402 - exported\nx = '# noqa'\n"
    )
    assert [line for line, comment in suppressions(source) if not REASONED.search(comment)] == [1, 2]
