"""Usage rows in each kind of store: what a caller sends is only text, and a store that is away costs rows, no calls."""

from pathlib import Path

import pytest

from llmc_mcp.gate.usage import Recorder, Usage
from llmc_mcp.store.opening import open_store

from ..support.postgres import Cluster, answers
from ..support.talk import eventually

ODD = "tab\tback\\slash \\N \\. new\nline 'quote\" ü $1 ?1 %s"


def usage(args: str) -> Usage:
    return Usage(1.5, "mcp", "stat", "ok", 1.0, args, 0, 0, "p", "s", "a", "m", "cid", 1, 2, 3)


def test_rows_hold_what_was_recorded_whatever_it_is(store_url: str, tmp_path: Path) -> None:
    store = open_store(store_url, str(tmp_path))
    recorder = Recorder(lambda: store)
    for args in (ODD, "plain", "", "a\0b"):
        recorder.record(usage(args))
    recorder.close()
    assert recorder.dropped == 0
    (first, *others) = store.query("SELECT args, at, tokens_saved, mode FROM calls ORDER BY id")
    assert first == (ODD, 1.5, 3, "")
    assert [str(args).replace("\ufffd", "\0") for args, *_ in others] == ["plain", "", "a\0b"]
    store.close()


def test_many_rows_arrive_and_those_for_a_store_that_is_away_are_counted(
    postgres: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(postgres.fresh(), str(tmp_path))
    recorder = Recorder(lambda: store)
    for number in range(5_000):
        recorder.record(usage(f"n={number}"))
    recorder.flush()
    assert store.query("SELECT count(*), count(DISTINCT args) FROM calls") == [(5_000, 5_000)]
    monkeypatch.setattr("llmc_mcp.gate.usage._WRITE_S", 0.1)
    postgres.stop()
    try:
        recorder.record(usage("lost"))
        assert eventually(lambda: recorder.dropped == 1)
    finally:
        postgres.start()
    assert eventually(lambda: answers(store))
    recorder.record(usage("kept"))
    recorder.close()
    assert recorder.dropped == 1
    assert store.query("SELECT args FROM calls ORDER BY id DESC LIMIT 1") == [("kept",)]
    store.close()
