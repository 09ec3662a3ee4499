"""Approvals: bound to one call, used once, for ten minutes, and the first answer counts."""

import threading
from pathlib import Path

import msgspec
import pytest

from llmc_mcp.errors import Conflict, NotFound, RateLimited
from llmc_mcp.permissions.approvals import LASTS_S, Approvals, AskedCall
from llmc_mcp.session import Session
from llmc_mcp.store.sqlite import SqliteStore

WHO = Session(principal="uid:0", session_id="s1", agent_id="agent")
CALL = AskedCall(WHO, "linux_fs_delete", {"path": "tree", "recursive": True}, "delete tree", "risk", "/root")


class Clock:
    """A clock that tests move."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def approvals(tmp_path: Path, clock: Clock) -> Approvals:
    store = SqliteStore(str(tmp_path))
    return Approvals(lambda: store, clock)


def test_a_call_is_asked_about_once_and_its_approval_serves_once(approvals: Approvals) -> None:
    assert approvals.use(CALL) is None
    asked = approvals.request(CALL)
    assert approvals.request(CALL).id == asked.id
    assert [row.id for row in approvals.pending()] == [asked.id]
    assert approvals.use(CALL) is None
    assert approvals.answer(asked.id, True, "terminal").state == "approved"
    assert approvals.pending() == []
    assert approvals.use(CALL) is True
    assert approvals.use(CALL) is None
    assert approvals.request(CALL).id != asked.id


def test_a_denied_call_stays_denied_and_is_not_asked_about_again(approvals: Approvals, clock: Clock) -> None:
    approvals.answer(approvals.request(CALL).id, False, "terminal")
    assert approvals.use(CALL) is False
    clock.now += LASTS_S + 1
    assert approvals.use(CALL) is None


@pytest.mark.parametrize(
    "other",
    [
        CALL._replace(arguments={"path": "tree2", "recursive": True}),
        CALL._replace(tool="linux_fs_move"),
        CALL._replace(deed="delete something else"),
        CALL._replace(roots="/other"),
        CALL._replace(session=msgspec.structs.replace(WHO, session_id="s2")),
        CALL._replace(session=msgspec.structs.replace(WHO, principal="other")),
    ],
)
def test_an_approval_is_of_no_use_to_another_call(approvals: Approvals, other: AskedCall) -> None:
    approvals.answer(approvals.request(CALL).id, True, "terminal")
    assert approvals.use(other) is None
    assert approvals.use(CALL) is True


def test_question_and_answer_last_for_ten_minutes(approvals: Approvals, clock: Clock) -> None:
    late = approvals.request(CALL)
    clock.now += LASTS_S + 1
    with pytest.raises(Conflict, match="expired"):
        approvals.answer(late.id, True, "terminal")
    approvals.answer(approvals.request(CALL).id, True, "terminal")
    clock.now += LASTS_S + 1
    assert approvals.use(CALL) is None


def test_the_first_answer_counts(approvals: Approvals) -> None:
    asked = approvals.request(CALL)
    approvals.answer(asked.id, False, "terminal")
    with pytest.raises(Conflict, match="denied"):
        approvals.answer(asked.id, True, "page")
    with pytest.raises(NotFound):
        approvals.answer("A_00000000", True, "terminal")


def test_of_many_uses_at_once_one_counts(approvals: Approvals) -> None:
    approvals.answer(approvals.request(CALL).id, True, "terminal")
    used: list[bool | None] = []
    threads = [threading.Thread(target=lambda: used.append(approvals.use(CALL))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert used.count(True) == 1


def test_an_agent_cannot_bury_a_question_under_others(approvals: Approvals) -> None:
    for number in range(50):
        approvals.request(CALL._replace(arguments={"path": str(number)}))
    with pytest.raises(RateLimited):
        approvals.request(CALL)
    other = msgspec.structs.replace(WHO, principal="other")
    assert approvals.request(CALL._replace(session=other)).state == "pending"
