"""The benchmark of edits: what it expresses is what was recorded, and its race finds what it must find."""

import pytest

from benchmarks.editing.dialects import changed_lines, express
from benchmarks.editing.pairs import Pair
from benchmarks.editing.races import race

CODE = b"".join(b"def f%d():\n    return %d\n\n\n" % (number, number % 3) for number in range(30))


@pytest.mark.filterwarnings("ignore:open_binary is deprecated:DeprecationWarning")  # bpe_openai's own
@pytest.mark.parametrize(
    "after",
    [
        CODE.replace(b"def f7():", b"def seven():"),
        CODE.replace(b"    return 1\n", b"    return 10\n"),
        b"import os\n" + CODE,
        CODE + b"tail = 1\n",
        CODE.replace(b"def f9():\n    return 0\n\n\n", b""),
        CODE.replace(b"def f3():\n", b"def f3():\n    note = 1\n").replace(b"f20", b"g20"),
    ],
)
def test_every_dialect_gives_the_recorded_bytes(after: bytes) -> None:
    found = express(Pair("r#1", "a.py", CODE, after))
    assert found is not None
    assert [one for one in found if not one.same] == []
    tokens = {one.dialect: one.tokens for one in found}
    assert tokens["lines"] < tokens["old_text"]


@pytest.mark.filterwarnings("ignore:open_binary is deprecated:DeprecationWarning")  # bpe_openai's own
def test_a_new_file_has_no_old_text_and_what_is_no_text_is_left_out() -> None:
    made = express(Pair("r#1", "a.py", None, b"new\n"))
    assert made is not None
    assert [one.same for one in made] == [True, True]
    assert express(Pair("r#1", "a.bin", b"\0\1", b"\0\2")) is None
    assert express(Pair("r#1", "a.py", b"same\n", b"same\n")) is None


def test_changed_lines_are_runs_of_old_lines() -> None:
    (one,) = changed_lines("a\nb\nc\n", "a\nB\nc\n")
    assert (one.first, one.last, one.new) == (2, 2, ["B"])


def test_no_edit_beside_a_writer_lands_in_a_wrong_place() -> None:
    found = race(40, 3)
    assert [one.wrong for one in found] == [0, 0, 0, 0]
    assert sum(one.made + one.refused for one in found) == 40
