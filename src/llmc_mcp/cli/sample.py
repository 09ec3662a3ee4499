"""A sample project for trying out the server; `make run` and `make smoke` serve it unless ROOT is given.

python -P -m llmc_mcp.cli.sample FOLDER
"""

import os
import sys

_FILES = {
    "README.md": """\
# Shop

A small project to try things on. Nothing here matters: change what you like, and revert it with `llmc undo`.

Ask your agent, for example:

- What does this project do, and is every function tested?
- Add a function `cheapest(cart)`, with a test, and run the tests.
- Rename `total` to `amount_due` everywhere.
- What did you change? Undo all of it.
""",
    "shop/__init__.py": '"""Carts and their prices."""\n',
    "shop/cart.py": '''\
"""Carts: items and their prices in cents."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    """Something to buy."""

    name: str
    price: int
    count: int = 1


def total(cart: list[Item], discount: int = 0) -> int:
    """The price of a cart, less a discount in per cent; fractions of a cent are rounded down."""
    full = sum(item.price * item.count for item in cart)
    return full * (100 - discount) // 100


def receipt(cart: list[Item]) -> str:
    """One line for each item, and the sum."""
    lines = [f"{item.count} x {item.name:12} {item.price * item.count / 100:8.2f}" for item in cart]
    return "\\n".join([*lines, f"{'total':16} {total(cart) / 100:8.2f}"])
''',
    "tests/test_cart.py": """\
from shop.cart import Item, receipt, total

CART = [Item("tea", 450), Item("cup", 799, count=2)]


def test_a_cart_costs_what_its_items_cost() -> None:
    assert total(CART) == 2048
    assert total([]) == 0


def test_a_discount_is_rounded_in_favour_of_the_customer() -> None:
    assert total(CART, discount=25) == 1536
    assert total([Item("pin", 1)], discount=50) == 0


def test_a_receipt_ends_with_the_sum() -> None:
    assert receipt(CART).splitlines()[-1].split() == ["total", "20.48"]
""",
    "pyproject.toml": '[project]\nname = "shop"\nversion = "0.1.0"\n\n[tool.pytest.ini_options]\npythonpath = ["."]\n',
}


def make(folder: str) -> bool:
    """Create the project in a new or empty folder. Return False and change nothing if the folder has entries."""
    os.makedirs(folder, exist_ok=True)
    if os.listdir(folder):
        return False
    for name, text in _FILES.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    return True


if __name__ == "__main__":
    if make(sys.argv[1]):
        print(f"created {sys.argv[1]}, a small project to try things on", file=sys.stderr)
