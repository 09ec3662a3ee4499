"""Replacing, inserting beside and deleting a definition, in the file as it is now."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llmc_mcp.errors import BadArgs, InvalidArgument, NotFound
from llmc_mcp.gate.dispatch import Gate
from llmc_mcp.kernel import syscalls

from ..support.gates import context, gate_on
from ..support.workspace import require

Call = Callable[..., Any]

CART = '''import os


# Holds items.
@final
class Cart:
    def add(self, item):
        """Add."""
        self.items.append(item)

    @property
    def total(self):
        return sum(self.items)


def empty():
    return Cart()


def use(cart: Cart):
    cart.add(1)
'''


@pytest.fixture(autouse=True)
def landlock() -> None:
    require(syscalls.landlock_abi() > 0, "Landlock")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("code")


@pytest.fixture(scope="module")
def gate(root: Path) -> Iterator[Gate]:
    with gate_on(root) as made:
        yield made


@pytest.fixture
def edit(gate: Gate, root: Path) -> Call:
    (root / "cart.py").write_text(CART)

    def run(symbol: str, action: str, **more: object) -> Any:
        return gate.call(context(gate), "code_edit", {"symbol": symbol, "action": action, **more})

    return run


def test_a_method_is_replaced_at_its_indentation_and_its_decorators_stay(root: Path, edit: Call) -> None:
    edit("cart.py:Cart.total", "replace_body", text='def total(self):\n    note = """a\nb"""\n    return 0\n')
    assert (root / "cart.py").read_text() == CART.replace(
        "    def total(self):\n        return sum(self.items)\n",
        '    def total(self):\n        note = """a\nb"""\n        return 0\n',
    )


def test_decorators_in_the_text_replace_those_in_the_file(root: Path, edit: Call) -> None:
    edit("Cart.total", "replace_body", text="    @cached_property\n    def total(self):\n        return 1")
    text = (root / "cart.py").read_text()
    assert "    @cached_property\n    def total(self):\n        return 1\n\n\ndef empty" in text
    assert "@property" not in text


def test_a_changed_signature_names_the_callers(root: Path, edit: Call) -> None:
    done = edit("cart.py:Cart.add", "replace_body", text="def add(self, item, count):\n    pass")
    assert done.notes == ["signature: def add(self, item) → def add(self, item, count)"]
    assert "cart.add(1)" in done.detail
    assert done.callers == 1


def test_a_comment_at_the_head_of_a_body_is_no_part_of_the_signature(edit: Call) -> None:
    edit("cart.py:Cart.add", "replace_body", text="def add(self, item):\n    # at the end\n    self.items.append(item)")
    done = edit("cart.py:Cart.add", "replace_body", text="def add(self, item):\n    pass")
    assert not done.notes


def test_insertions_keep_the_distance_of_their_neighbours(root: Path, edit: Call) -> None:
    edit("cart.py:empty", "insert_after", text="def full():\n    return 1")
    edit("cart.py:Cart.add", "insert_before", text="def drop(self):\n    pass\n")
    edit("cart.py:Cart.total", "insert_after", text="def count(self):\n    return 2\n")
    text = (root / "cart.py").read_text()
    assert "    return Cart()\n\n\ndef full():\n    return 1\n\n\ndef use(" in text
    assert "class Cart:\n    def drop(self):\n        pass\n\n    def add(self, item):\n" in text
    assert "sum(self.items)\n\n    def count(self):\n        return 2\n\n\ndef empty" in text


def test_a_deleted_definition_takes_its_comment_along_and_leaves_one_gap(root: Path, edit: Call) -> None:
    done = edit("cart.py:Cart", "delete")
    assert (root / "cart.py").read_text().startswith("import os\n\n\ndef empty():\n")
    assert "return Cart()" in done.detail


def test_the_file_counts_as_it_is_now_and_not_as_it_was_indexed(root: Path, edit: Call) -> None:
    edit("cart.py:empty", "insert_after", text="def one():\n    pass", dry_run=True)  # the index has seen it
    (root / "cart.py").write_text("# Something new.\n" * 40 + CART)
    edit("cart.py:empty", "replace_body", text="def empty():\n    return None")
    assert (root / "cart.py").read_text() == "# Something new.\n" * 40 + CART.replace("return Cart()", "return None")


def test_other_languages_and_line_ends_are_kept(root: Path, edit: Call) -> None:
    (root / "a.go").write_bytes(b"package a\r\n\r\n// F is.\r\nfunc F() int {\r\n\treturn 1\r\n}\r\n")
    edit("a.go:F", "replace_body", text="func F() int {\n\treturn 2\n}")
    assert (root / "a.go").read_bytes() == b"package a\r\n\r\n// F is.\r\nfunc F() int {\r\n\treturn 2\r\n}\r\n"
    (root / "a.rb").write_text("class A\n  def go\n    1\n  end\nend\n")
    edit("a.rb:A.go", "replace_body", text="def go\n  2\nend")
    assert (root / "a.rb").read_text() == "class A\n  def go\n    2\n  end\nend\n"
    (root / "a.ts").write_text("/** Doc. */\nexport function f(): number {\n  return 1\n}\n")
    edit("a.ts:f", "replace_body", text="export function f(): number {\n  return 2\n}")
    assert (root / "a.ts").read_text() == "/** Doc. */\nexport function f(): number {\n  return 2\n}\n"


def test_what_is_not_there_or_there_twice_is_refused(root: Path, edit: Call) -> None:
    with pytest.raises(NotFound) as missing:
        edit("cart.py:Cart.sell", "delete")
    assert "Cart.add" in (missing.value.hint or "")
    (root / "twice.py").write_text("def f(): ...\n\n\ndef f(): ...\n")
    with pytest.raises(InvalidArgument, match=r"twice\.py:1, .*twice\.py:4"):
        edit("twice.py:f", "delete")
    (root / "notes.xyz").write_text("f\n")
    with pytest.raises(InvalidArgument, match="language"):
        edit("notes.xyz:f", "delete")
    with pytest.raises(BadArgs):
        edit("cart.py:empty", "delete", text="x")
    with pytest.raises(BadArgs):
        edit("cart.py:empty", "replace_body")


def test_a_definition_in_a_protected_or_secret_file_stays(root: Path, edit: Call) -> None:
    (root / ".git").mkdir(exist_ok=True)
    (root / ".git/hook.py").write_text("def f(): ...\n")
    with pytest.raises(Exception, match=r"hook\.py"):
        edit(".git/hook.py:f", "delete")
    assert (root / ".git/hook.py").read_text() == "def f(): ...\n"


@pytest.mark.parametrize("action", ["replace_body", "delete", "insert_after"])
def test_a_definition_whose_end_an_unclosed_bracket_hides_is_left_alone(edit: Call, root: Path, action: str) -> None:
    broken = CART.replace("self.items.append(item)", "self.items.append(item")
    (root / "cart.py").write_text(broken)
    with pytest.raises(InvalidArgument, match="line 9"):
        edit("cart.py:Cart.add", action, text=None if action == "delete" else "def add(self, item): ...")
    assert (root / "cart.py").read_text() == broken


def test_a_definition_with_an_error_of_its_own_is_replaced(edit: Call, root: Path) -> None:
    (root / "cart.py").write_text(CART.replace("return sum(self.items)", "return sum(self.items) +"))
    edit("cart.py:Cart.total", "replace_body", text="def total(self):\n    return sum(self.items)")
    assert (root / "cart.py").read_text() == CART
