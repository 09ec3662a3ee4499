"""Queries that are tasks: issues and tracebacks, pasted as they are; and what a poor result says about itself."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmc_mcp.gate.dispatch import Gate
from llmc_mcp.rag.parse.question import question
from llmc_mcp.tools.plan import PlanText
from llmc_mcp.tools.rag import Snippets
from tests.support.gates import context, gate_on

FILES = {
    "shop/cart.py": """\
import math

from .money import Money


class Cart:
    def add_item(self, item, amount):
        self.items.append((item, amount))

    def total_price(self, currency):
        return sum(Money(item.price, currency) * amount for item, amount in self.items)

    def empty(self):
        self.items.clear()
""",
    "shop/money.py": """\
class Money:
    def __init__(self, value, currency):
        self.value, self.currency = value, currency

    def __mul__(self, times):
        return Money(self.value * times, self.currency)

    def convert_to(self, currency, rates):
        return Money(self.value * rates[self.currency, currency], currency)
""",
    "shop/from_request.py": "def from_request(data):\n    return data\n",
    "shop/extract.py": "class FromRequest:\n    def extract(self, data):\n        return data\n",
    "shop/leader_election.py": "def campaign(peers):\n    return sorted(peers)[0]\n",
    "shop/locks/leaderelection.py": "def resign(peers):\n    return peers[1:]\n",
    "shop/tls.py": "MINIMUM = 'TLS 1.2'\n\n\ndef handshake(socket):\n    return socket.wrap(MINIMUM)\n",
    "tests/test_cart.py": "def test_total_price_in_another_currency():\n    assert Cart().total_price('EUR')\n",
    "docs/cart.md": "# The cart\n\nHow the total price of a cart is computed.\n",
    "CHANGES.rst": "Changes\n=======\n\nThe first version.\n",
    "docs/changes.rst": "What changed\n============\n\nThe list of changes.\n",
    "Makefile": "all:\n\ttrue\n",
    "docs/Makefile": "html:\n\tsphinx\n",
    "poetry.lock": "[[package]]\nname = 'handshake'\nsocket wrap handshake socket\n",
    "src/egg/SOURCES.txt": "shop/cart.py\nshop/money.py\nshop/tls.py\n",
}

ISSUE = """\
total_price fails when the currencies differ

I use version 3.11.2 of the shop. Tests pass on my machine. To reproduce:

```python
cart = Cart()
cart.total_price("EUR")
```

Traceback (most recent call last):
  File "/home/me/venv/lib/python3.11/site-packages/shop/cart.py", line 11, in total_price
    return sum(Money(item.price, currency) * amount for item, amount in self.items)
  File "/home/me/venv/lib/python3.11/site-packages/shop/money.py", line 6, in __mul__
    return Money(self.value * times, self.currency)
TypeError: can't multiply sequence by non-int of type 'float'
"""


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    root = tmp_path_factory.mktemp("root")
    for path, text in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    with gate_on(Path(root)) as made:
        made.call(context(made), "rag_index", {})
        yield made


def search(gate: Gate, query: str, **arguments: object) -> Snippets:
    found = gate.call(context(gate), "rag_search", {"query": query, **arguments})
    assert isinstance(found, Snippets)
    return found


def paths(found: Snippets) -> list[str]:
    return list(dict.fromkeys(row.src.partition("#")[0] for row in found.snippets))


# --- the parts of a task -------------------------------------------------------------------------------------------


def test_a_task_has_a_title_prose_code_and_frames() -> None:
    asked = question(ISSUE)
    assert asked.is_task
    assert asked.names == ("total_price",)
    assert "machin" in dict(asked.prose)
    assert "cart.total_price" in asked.code_names
    assert [function for _, function in asked.frames] == ["__mul__", "total_price"]
    assert asked.frames[0][0].endswith("shop/money.py")


def test_versions_in_a_task_are_left_out_and_in_a_question_they_count() -> None:
    assert not [term for term, _ in question(ISSUE).prose if "3.11" in term]
    assert "1.2" in question("TLS 1.2 handshake").words


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("  at Cart.total (/app/src/cart.ts:12:5)", "app/src/cart.ts"),
        ("\tat org.shop.Cart.total(Cart.java:31)", "org/shop/cart.java"),
        ("shop/cart.rb:12:in `total'", "shop/cart.rb"),
        ("shop/cart.go:31 +0x1d", "shop/cart.go"),
    ],
)
def test_frames_of_other_languages_are_read(text: str, place: str) -> None:
    assert question(f"It fails\n\n{text}\n").frames[0][0] == place


# --- searching -----------------------------------------------------------------------------------------------------


def test_an_issue_finds_the_code_of_its_traceback_before_tests_docs_and_lock_files(gate: Gate) -> None:
    found = paths(search(gate, ISSUE, scope="both", limit=10))
    assert set(found[:2]) == {"shop/cart.py", "shop/money.py"}


@pytest.mark.parametrize("path", sorted(FILES))
def test_the_path_of_a_file_finds_that_file_first(gate: Gate, path: str) -> None:
    assert paths(search(gate, path))[0] == path


@pytest.mark.parametrize(
    ("text", "is_path"), [("README.md", True), ("Makefile", True), ("Plug.Router", False), ("app.run", False)]
)
def test_a_bare_file_name_is_a_path_and_a_qualified_name_is_none(text: str, is_path: bool) -> None:
    assert question(text).is_path is is_path


@pytest.mark.parametrize(
    ("text", "wants"),
    [
        ("where are the tests of the cart", True),
        ("add a regression test", True),
        ("which tests cover the cart", True),
        ("how the test count is validated", False),
        ("how bats should retry a flaky test", False),
    ],
)
def test_a_question_about_testing_need_not_ask_for_tests(text: str, wants: bool) -> None:
    assert question(text).wants_tests is wants


def test_a_name_in_its_own_spelling_comes_before_one_that_is_spelled_otherwise(gate: Gate) -> None:
    assert paths(search(gate, "FromRequest"))[0] == "shop/extract.py"
    assert paths(search(gate, "from_request"))[0] == "shop/from_request.py"


def test_words_that_the_code_joins_are_found_apart_and_the_other_way_round(gate: Gate) -> None:
    assert "shop/leader_election.py" in paths(search(gate, "leaderelection"))[:2]
    assert "shop/locks/leaderelection.py" in paths(search(gate, "leader election", limit=4))


def test_a_version_is_found(gate: Gate) -> None:
    assert paths(search(gate, "where is 1.2 required"))[0] == "shop/tls.py"


def test_lock_files_come_after_code(gate: Gate) -> None:
    found = paths(search(gate, "handshake socket wrap", limit=10))
    assert found[0] == "shop/tls.py"


def test_a_hit_is_the_definition_that_answers_and_not_the_head_of_its_file(gate: Gate) -> None:
    row = search(gate, "sum the price of all items in a currency", limit=1).snippets[0]
    assert (row.symbol, row.text.strip().split("(")[0]) == ("Cart.total_price", "def total_price")


# --- poor results --------------------------------------------------------------------------------------------------


def test_a_typo_finds_what_was_meant_and_says_which_word_is_unknown(gate: Gate) -> None:
    found = search(gate, "handshkae of the sokcet")
    assert paths(found)[0] == "shop/tls.py"
    assert "no file holds" in (found.hint or "")


@pytest.mark.parametrize("query", ["where is the", "購入 手続き", "zyxwvut qponmlk"])
def test_a_query_that_finds_nothing_says_why(gate: Gate, query: str) -> None:
    found = search(gate, query)
    assert (found.snippets, bool(found.hint)) == ([], True)


def test_hits_that_share_little_with_the_query_are_not_called_good(gate: Gate) -> None:
    assert "no good match" in (search(gate, "quantum entanglement socket decoherence experiment").hint or "")
    assert search(gate, "total price of the cart").hint is None


# --- the plan ------------------------------------------------------------------------------------------------------


def plan(gate: Gate, query: str) -> PlanText:
    made = gate.call(context(gate), "rag_plan", {"query": query})
    assert isinstance(made, PlanText)
    return made


def test_a_plan_has_the_files_of_a_search_in_its_order(gate: Gate) -> None:
    root = os.fsdecode(gate.app.files.roots[0].real)
    planned = [os.path.relpath(row.path, root) for row in plan(gate, ISSUE).files]
    assert planned == paths(search(gate, ISSUE, limit=10, budget_tokens=4_000))


def test_a_plan_tells_definitions_with_their_lines_and_reasons(gate: Gate) -> None:
    made = plan(gate, ISSUE)
    first = {os.path.basename(row.path): row for row in made.files}
    assert "in the traceback: __mul__" in first["money.py"].reasons
    assert "Cart.total_price:10-11" in first["cart.py"].symbols
    assert made.spans[0].path == made.files[0].path


def test_a_reason_shows_words_as_the_task_writes_them(gate: Gate) -> None:
    made = plan(gate, "Converting Money between currencies\n\nconvert_to uses the wrong rates when multiplying.")
    (reason,) = [one for row in made.files if row.path.endswith("money.py") for one in row.reasons if "matches" in one]
    assert reason.startswith("matches: Converting, Money, currencies")
    assert "convert_to" in reason
