"""What the best files for a task import: found by path alone, and raised behind the first ones."""

import pytest

from llmc_mcp.rag.parse.file import look
from llmc_mcp.rag.store import neighbours


def links(sources: dict[str, str]) -> dict[str, list[str]]:
    paths = list(sources)
    imports = {at: look(path, text.encode()).imports for at, (path, text) in enumerate(sources.items())}
    made = neighbours.links(dict(enumerate(paths)), imports)
    return {paths[file]: [paths[target] for target in targets] for file, targets in made.items() if targets}


@pytest.mark.parametrize(
    ("path", "text", "target"),
    [
        ("shop/cart.py", "from . import money\n", "shop/money.py"),
        ("shop/web/cart.py", "from ..money import Money\n", "shop/money.py"),
        ("shop/cart.py", "from shop.money import Money\n", "src/shop/money/__init__.py"),
        ("shop/cart.py", "def total():\n    import shop.money\n", "shop/money.py"),
        ("web/src/cart.ts", 'import * as money from "../lib/money.js";\nmoney.sum();\n', "web/lib/money.ts"),
        ("cart/cart.go", 'package cart\n\nimport m "example.org/shop/money"\n\nfunc F() { m.Sum() }\n', "money/sum.go"),
        ("src/cart/mod.rs", "use crate::money::sum::Sum;\nfn f() { Sum::new(); }\n", "src/money/sum.rs"),
        ("src/org/Cart.java", "import org.money.Sum;\nclass Cart { Sum sum; }\n", "src/main/java/org/money/Sum.java"),
        ("src/cart.c", '#include "money/sum.h"\nint f() { return 0; }\n', "include/money/sum.h"),
    ],
)
def test_an_import_leads_to_the_file_that_it_names(path: str, text: str, target: str) -> None:
    assert links({path: text, target: "", f"elsewhere/{target.rpartition('/')[2]}": ""})[path][:1] == [target]


def test_a_module_of_the_language_is_no_file_with_that_name() -> None:
    assert links({"shop/cart.py": "import json\nfrom json import loads\n", "shop/web/json.py": ""}) == {}


def test_what_the_best_file_imports_rises_behind_the_first_ones_and_a_hub_less() -> None:
    scores = {1: 9.0, 2: 8.0, 3: 7.0, 4: 3.0, 5: 2.0, 6: 1.9, 7: 1.8}
    found = neighbours.imported(scores, {1: [6, 7], 2: [7], 3: [7], 4: [7]})
    raised = neighbours.raised(scores, found, 12.0)
    assert sorted(raised, key=lambda file: -raised[file]) == [1, 2, 3, 6, 7, 4, 5]


def test_few_candidates_keep_their_scores() -> None:
    assert neighbours.raised({1: 2.0, 2: 1.0}, {2: 1.0}, 5.0) == {1: 2.0, 2: 1.0}
