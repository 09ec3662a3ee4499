"""DOCS/security.md claims what is tested, and nothing else."""

from .bypasses import BYPASSES
from .claims import CLAIMS, PAGE, document, shown_by_tests


def test_every_claim_has_a_test() -> None:
    assert sorted(CLAIMS.keys() - shown_by_tests().keys()) == []


def test_every_tested_attack_is_claimed() -> None:
    assert sorted(shown_by_tests().keys() - CLAIMS.keys()) == []


def test_the_page_is_not_stale() -> None:
    assert PAGE.read_text() == document(), "python -m tests.security.claims > DOCS/security.md"


def test_the_page_counts_the_bypasses_that_are_tried() -> None:
    assert f"({len(BYPASSES)} ways" in CLAIMS["B01"].attack
