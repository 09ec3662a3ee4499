"""The audit in files and in a shared store: what was altered, removed, reordered or inserted is found and named."""

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmc_mcp.cli.main import main
from llmc_mcp.gate.audit import Audit
from llmc_mcp.gate.audit_chain import AuditFinding, Verdict, read_link, verify
from llmc_mcp.gate.audit_trail import FileTrail, StoreTrail, parts_of
from llmc_mcp.session import Session
from llmc_mcp.store.postgres import PostgresStore

from ..support.postgres import Cluster, answers
from ..support.talk import eventually

DAY_S = 86_400.0


class Place:
    """An audit, and somebody with a text editor."""

    def __init__(self, folder: Path, store: PostgresStore | None) -> None:
        self.folder, self.store = folder, store

    def audit(self, days: int = 0, notice: Callable[[str], None] = lambda _: None) -> Audit:
        store = self.store
        return Audit(str(self.folder), days, None if store is None else lambda: store, notice)

    def verdict(self) -> Verdict:
        """Of all chains."""
        verdicts = [verify(part.lines(), part.register) for part in parts_of(str(self.folder), self.store)]
        found = [finding for one in verdicts for finding in one.findings]
        heads = {chain: head for one in verdicts for chain, head in one.heads.items()}
        return verdicts[0]._replace(findings=found, lines=sum(one.lines for one in verdicts), heads=heads)

    def kinds(self) -> list[tuple[str, int]]:
        return sorted((one.kind, one.seq) for one in self.verdict().findings)

    def lines(self) -> list[bytes]:
        return [line.text for part in parts_of(str(self.folder), self.store) for line in part.lines()]

    def replace(self, lines: list[bytes]) -> None:
        """Write these lines instead, in their order; a store's places are numbered as before."""
        if self.store is None:
            (file,) = (self.folder / "audit").glob("*.jsonl")
            file.write_bytes(b"".join(line + b"\n" for line in lines))
            return
        places = self.store.query("SELECT chain, seq, at FROM audit ORDER BY chain, seq")
        self.store.execute_alone("DELETE FROM audit")
        for number, line in enumerate(lines):
            place = places[number] if number < len(places) else (places[-1][0], int(str(places[-1][1])) + 1, 0.0)
            row = (*place, line.decode())
            self.store.execute_alone("INSERT INTO audit (chain, seq, at, line) VALUES (?, ?, ?, ?)", row)


@pytest.fixture(params=["files", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "files":
        yield Place(tmp_path, None)
        return
    running: Cluster = request.getfixturevalue("postgres")
    store = PostgresStore(running.fresh(), str(tmp_path))
    yield Place(tmp_path, store)
    store.close()


def write(audit: Audit, *words: str) -> None:
    for word in words:
        audit.write(Session("p", "s"), "linux_fs_write", "ok", {"path": word}, f"path={word}", "cid")


def test_what_nobody_touched_is_as_it_was_written(place: Place) -> None:
    one, two = place.audit(), place.audit()
    write(one, "a", "b")
    write(two, "c")
    write(one, 'd\n{"chain":"x"}')
    one.close()
    verdict = place.verdict()
    assert verdict.findings == []
    assert sorted((head.seq, head.closed) for head in verdict.heads.values()) == [(1, False), (4, True)]
    write(one, "late")  # a call that ended after the server did
    two.close()
    assert place.verdict().findings == []
    assert len(place.verdict().heads) == 3


def test_calls_at_once_are_one_chain(place: Place) -> None:
    audit = place.audit()
    threads = [threading.Thread(target=write, args=(audit, *"abcdef")) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    verdict = place.verdict()
    assert (verdict.findings, verdict.lines, [head.seq for head in verdict.heads.values()]) == ([], 36, [36])


def relinked(line: bytes, **changes: object) -> bytes:
    """A line that says something else, with a hash that fits."""
    link = read_link(line)
    assert link is not None
    record = {**link.record, **changes}
    del record["hash"]
    body = json.dumps(record, separators=(",", ":")).encode()[:-1]
    return body + b',"hash":"' + hashlib.sha256(body).hexdigest().encode() + b'"}'


def swapped(lines: list[bytes]) -> list[bytes]:
    return [lines[0], lines[2], lines[1], *lines[3:]]


TAMPERED: dict[str, tuple[Callable[[list[bytes]], list[bytes]], set[tuple[str, int]]]] = {
    "altered": (lambda lines: [lines[0], lines[1].replace(b"path=b", b"path=x"), *lines[2:]], {("altered", 2)}),
    "altered, with a hash that fits": (
        lambda lines: [lines[0], relinked(lines[1], args="path=x"), *lines[2:]],
        {("altered", 2)},
    ),
    "the first one altered": (lambda lines: [relinked(lines[0], args="path=x"), *lines[1:]], {("altered", 1)}),
    "reordered": (swapped, {("reordered", 2)}),
    "a copy inserted": (lambda lines: [*lines[:3], lines[1], *lines[3:]], {("inserted", 2)}),
    "another one inserted": (
        lambda lines: [*lines[:2], relinked(lines[1], args="path=x"), *lines[2:]],
        {("inserted", 2)},
    ),
    "of no chain": (lambda lines: [*lines[:2], b'{"ts":"x","tool":"forged"}', *lines[2:]], {("inserted", 0)}),
    "of a chain of its own": (
        lambda lines: [*lines, relinked(lines[0], chain="0" * 16)],
        {("inserted", 1)},
    ),
    "behind the end": (lambda lines: [*lines, relinked(lines[-1], seq=6, closed=False)], {("inserted", 6)}),
    "removed": (lambda lines: [lines[0], *lines[2:]], {("removed", 2)}),
    "several removed": (lambda lines: [lines[0], *lines[4:]], {("removed", 2)}),
    "the first one removed": (lambda lines: lines[1:], {("removed", 1)}),
    "all removed": (lambda _: [], {("removed", 0)}),
}


@pytest.mark.parametrize("way", TAMPERED)
def test_whatever_is_done_to_files_is_found_and_named(tmp_path: Path, way: str) -> None:
    place = Place(tmp_path, None)
    audit = place.audit()
    write(audit, *"abcd")
    audit.close()
    change, expected = TAMPERED[way]
    place.replace(change(place.lines()))
    assert set(place.kinds()) == expected
    if way == "altered":
        (found,) = place.verdict().findings
        assert found.where.endswith(".jsonl:2")


def test_whatever_is_done_to_rows_is_found_and_named(postgres: Cluster, tmp_path: Path) -> None:
    store = PostgresStore(postgres.fresh(), str(tmp_path))
    place = Place(tmp_path, store)
    audit = place.audit()
    write(audit, *"abcd")
    audit.close()
    lines = place.lines()
    alter = "UPDATE audit SET line = replace(line, 'path=b', 'path=x') WHERE seq=2"
    assert _after(place, lines, alter) == {("altered", 2)}
    assert _after(place, lines, "DELETE FROM audit WHERE seq=3") == {("removed", 3)}
    assert _after(place, lines, "DELETE FROM audit") == {("removed", 0)}
    assert _after(place, lines, "UPDATE audit SET seq = 9 WHERE seq=2") == {("reordered", 2)}
    place.replace([lines[0], lines[2], lines[1], *lines[3:]])
    assert {kind for kind, _ in place.kinds()} == {"reordered"}
    place.replace([*lines, relinked(lines[-1], seq=6, closed=False)])
    assert set(place.kinds()) == {("inserted", 6)}
    place.replace(lines)
    forged = relinked(lines[0], chain="0" * 16).decode()
    store.execute_alone("INSERT INTO audit (chain, seq, at, line) VALUES (?, 1, 0, ?)", ("0" * 16, forged))
    assert place.kinds() == [("inserted", 1)]
    store.execute_alone("DELETE FROM audit")
    store.execute_alone("UPDATE audit_chains SET number=2")
    assert {finding.text for finding in place.verdict().findings} >= {"the register lacks the chain with the number 1"}
    store.close()


def _after(place: Place, lines: list[bytes], statement: str) -> set[tuple[str, int]]:
    assert place.store is not None
    place.store.execute_alone(statement)
    found = set(place.kinds())
    place.store.execute_alone("DELETE FROM audit")
    for line in lines:
        link = read_link(line)
        assert link is not None
        row = (link.chain, link.seq, 0.0, line.decode())
        place.store.execute_alone("INSERT INTO audit (chain, seq, at, line) VALUES (?, ?, ?, ?)", row)
    return found


def test_a_tail_that_is_cut_off_is_missed_by_what_was_written_down_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LLMC_DATA_DIR", str(tmp_path))

    def llmc(*words: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["llmc", "audit", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), capsys.readouterr().out

    place = Place(tmp_path, None)
    audit = place.audit()
    write(audit, *"abcd")
    status, heads = llmc("verify", "--json")
    assert (status, json.loads(heads)["ok"], json.loads(heads)["open_chains"]) == (0, True, 1)
    (tmp_path / "heads.json").write_text(heads)
    write(audit, "e")
    assert llmc("verify", "--heads", str(tmp_path / "heads.json"))[0] == 0
    place.replace(place.lines()[:3])
    assert llmc("verify")[0] == 0  # by itself it looks like a process that was killed
    status, told = llmc("verify", "--heads", str(tmp_path / "heads.json"))
    assert status == 1
    assert "REMOVED   row 4 of chain" in told
    shown = json.loads(llmc("show", "-n", "2", "--json")[1])
    assert [record["args"] for record in shown] == ["path=b", "path=c"]
    assert "linux_fs_write" in llmc("show")[1]


def test_retention_leaves_what_the_rest_is_verified_by(place: Place) -> None:
    old = place.audit()
    write(old, "a", "b", "c")
    ended = place.audit()
    write(ended, "x")
    ended.close()
    _age(place)
    write(old, "d")
    notices: list[str] = []
    fresh = place.audit(30, notices.append)
    write(fresh, "e")
    fresh.close()  # waits until it has dropped what it may
    verdict = place.verdict()
    assert (verdict.findings, notices) == ([], [])
    assert verdict.lines == 3  # d, e, and the end of the last chain
    place.replace([relinked(line, prev="") if b"path=d" in line else line for line in place.lines()])
    assert place.kinds() == [("altered", 3)]  # the first that is left follows from one that is gone


def test_what_does_not_fit_outlives_its_retention(place: Place) -> None:
    audit = place.audit()
    write(audit, "a", "b", "c")
    lines = place.lines()
    place.replace([lines[0], lines[1].replace(b"path=b", b"path=x"), lines[2]])
    _age(place)
    notices: list[str] = []
    fresh = place.audit(30, notices.append)
    write(fresh, "d")
    fresh.close()
    assert len([line for line in place.lines() if b"path=" in line]) == 4
    assert "stays" in notices[0]
    assert ("altered", 2) in place.kinds()


def _age(place: Place) -> None:
    """Let all lines so far be of another year."""
    if place.store is not None:
        place.store.execute_alone("UPDATE audit SET at = at - ?", (400 * DAY_S,))
        return
    (file,) = (place.folder / "audit").glob("*.jsonl")
    file.with_name("2001-01.jsonl").write_bytes(file.read_bytes())
    file.unlink()


def test_rows_wait_in_a_file_while_the_store_is_away(postgres: Cluster, tmp_path: Path) -> None:
    store = PostgresStore(postgres.fresh(), str(tmp_path))
    place = Place(tmp_path, store)
    audit, unheard = place.audit(), place.audit()
    write(audit, "a")
    postgres.stop()
    try:
        write(audit, "b", "c")
        write(unheard, "x")  # no number yet: a chain of files
        assert sum(1 for _ in FileTrail(str(tmp_path)).lines()) == 3
    finally:
        postgres.start()
    assert eventually(lambda: answers(store))
    assert place.verdict().findings == []  # read from both
    assert place.verdict().lines == 4
    write(audit, "d")
    assert [link.seq for line in StoreTrail(store).lines() if (link := read_link(line.text))] == [1, 2, 3, 4]
    audit.close()
    unheard.close()
    assert place.verdict().findings == []
    store.close()


def test_a_row_that_somebody_put_in_the_place_of_the_next_is_not_taken_for_it(
    postgres: Cluster, tmp_path: Path
) -> None:
    store = PostgresStore(postgres.fresh(), str(tmp_path))
    place = Place(tmp_path, store)
    audit = place.audit()
    write(audit, "a")
    forged = relinked(place.lines()[0], seq=2, start=None).decode()
    store.execute_alone("INSERT INTO audit (chain, seq, at, line) SELECT chain, 2, at, ? FROM audit", (forged,))
    with pytest.raises(OSError, match="in the place of"):
        write(audit, "b")
    assert any(isinstance(finding, AuditFinding) for finding in place.verdict().findings)
    store.close()


def test_only_the_owner_reads_the_audit(tmp_path: Path) -> None:
    audit = Place(tmp_path, None).audit()
    write(audit, "a")
    audit.close()
    for entry in os.scandir(tmp_path / "audit"):
        assert entry.stat().st_mode & 0o077 == 0
