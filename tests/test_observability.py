"""Observability: metrics, logs and audits of calls, and that no secret is in them."""

import csv
import json
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from llmc_mcp.config.schema import Config
from llmc_mcp.gate.audit import Audit, TokenAudit, digest
from llmc_mcp.gate.usage import Recorder, Usage, weighed
from llmc_mcp.session import Session
from llmc_mcp.store.schema import insert_into
from llmc_mcp.store.sqlite import SqliteStore
from llmc_mcp.tokens import estimate, sample
from llmc_mcp.web import otel

from .support.gates import gate_on
from .support.http_server import OPEN_HANDED, TOKEN, HttpServer
from .support.workspace import Workspace


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    made = Workspace(tmp_path_factory.mktemp("seen"))
    made.file("a.txt", "hello\n")
    made.file("long.txt", "".join(f"line {number} with a needle\n" for number in range(5000)))
    return made


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("seen-data")


@pytest.fixture(scope="module")
def served(workspace: Workspace, data: Path) -> Iterator[HttpServer]:
    settings = ("--set", "observability.csv_token_audit_enabled=true", "--log-level", "debug")
    with HttpServer(workspace.root, *OPEN_HANDED, *settings, env={"LLMC_DATA_DIR": str(data)}) as server:
        yield server


Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def metrics(served: HttpServer) -> Samples:
    """What a Prometheus parser makes of the page."""
    with served.client() as client:
        reply = client.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    found: Samples = {}
    for family in text_string_to_metric_families(reply.text):
        for one in family.samples:
            found[one.name, frozenset(one.labels.items())] = one.value
    return found


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples.get((name, frozenset(labels.items())), 0.0)


# --- metrics -------------------------------------------------------------------------------------------------------


def test_a_prometheus_parser_takes_the_page_and_finds_every_call_in_it(served: HttpServer) -> None:
    before = metrics(served)
    served.tool("stat", path="a.txt")
    served.tool("stat", path="missing")
    served.tool("no_such_tool_" + "x" * 30)
    with served.client("wrong") as stranger:
        stranger.get("/tool")
    after = metrics(served)

    def grown(name: str, **labels: str) -> float:
        return value(after, name, **labels) - value(before, name, **labels)

    assert grown("llmc_calls_total", tool="stat", status="ok") == 1
    assert grown("llmc_calls_total", tool="stat", status="NOT_FOUND") == 1
    assert grown("llmc_calls_total", tool="unknown", status="UNKNOWN_TOOL") == 1
    assert grown("llmc_call_seconds_count", tool="stat") == 2
    assert grown("llmc_http_requests_total", route="/tool", method="POST", status="200") == 1
    assert grown("llmc_http_request_seconds_count", route="/tool") == 4
    assert grown("llmc_auth_failures_total") == 1
    assert grown("llmc_tokens_total", kind="out") > 0
    for name in ("llmc_handles", "llmc_handle_bytes", "llmc_processes", "llmc_te_seconds_count"):
        assert (name, frozenset[tuple[str, str]]()) in after
    assert ("llmc_dropped_total", frozenset({("reason", "rate")})) in after


def test_the_time_of_te_run_is_in_the_metrics(served: HttpServer) -> None:
    before = value(metrics(served), "llmc_te_seconds_count")
    assert served.tool("te_run", command="cat a.txt").status_code == 200
    assert value(metrics(served), "llmc_te_seconds_count") == before + 1


def test_no_client_can_make_the_page_grow(served: HttpServer) -> None:
    def make_up(number: int) -> int:
        with served.client() as client:
            client.get(f"/made-up-{number}")
        served.tool(f"made_up_{number}")
        return len(metrics(served))

    make_up(0)
    assert make_up(1) == make_up(2) == make_up(3)


def test_metrics_are_where_and_whether_the_operator_says(workspace: Workspace) -> None:
    def status(*settings: str, path: str = "/metrics") -> int:
        flags = [part for setting in settings for part in ("--set", setting)]
        with HttpServer(workspace.root, *flags) as server, server.client() as client:
            return client.get(path).status_code

    assert status("observability.metrics_path=/m", path="/m") == 200
    assert status("observability.metrics_prometheus_enabled=false") == 403
    assert status("observability.metrics_enabled=false") == 403
    assert status("observability.enabled=false") == 403


# --- logs ----------------------------------------------------------------------------------------------------------


def test_no_token_and_no_address_made_up_by_a_client_is_in_log_metrics_or_errors(
    served: HttpServer, data: Path
) -> None:
    secret = "guessed-token-777"
    with served.client() as client:
        replies = [
            client.get(f"/{TOKEN}/x?token={TOKEN}"),
            client.get("/tool", headers={"x-llmc-token": secret}),
            client.post("/login", json={"token": secret}),
            client.post("/tool", json={"name": "run_cmd", "args": {"command": f"echo token={secret}"}}),
            client.get("/metrics"),
        ]
    assert all(TOKEN not in reply.text for reply in replies)
    assert secret not in "".join(reply.text for index, reply in enumerate(replies) if index != 3)
    served.tool("linux_mcp_recent_calls")  # past calls are in the store now
    kept = [path for path in data.rglob("*") if path.is_file() and path.name != "token"]
    everything = served.log.encode() + b"".join(path.read_bytes() for path in kept)
    assert TOKEN.encode() not in everything
    assert secret.encode() not in everything


def test_a_line_has_a_correlation_id_unless_the_operator_wants_none(workspace: Workspace) -> None:
    with HttpServer(workspace.root, "--set", "observability.include_correlation_id=false") as server:
        server.tool("stat", path="a.txt")
    lines = [event for event in server.events if event["event"] in ("tool", "http")]
    assert lines
    assert all("cid" not in event for event in lines)


def test_agent_and_model_are_the_configured_ones(workspace: Workspace, tmp_path: Path) -> None:
    config = Config()
    config.session.default_agent_id, config.session.default_model = "otto", "m1"
    settings = ("--set", "session.default_agent_id=otto", "--set", "session.default_model=m1")
    with HttpServer(workspace.root, *settings, env={"LLMC_DATA_DIR": str(tmp_path)}) as server:
        server.tool("stat", path="a.txt")
    rows = SqliteStore(str(tmp_path)).query("SELECT agent_id, model, principal, session_id FROM calls")
    assert rows == [("otto", "m1", "owner", "S")]


@pytest.mark.parametrize(("setting", "spans_are_made"), [("true", True), ("false", False)])
def test_with_the_extra_every_call_is_a_span(setting: str, spans_are_made: bool, workspace: Workspace) -> None:
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    flags = ("--set", f"observability.otel_enabled={setting}")
    with HttpServer(workspace.root, *flags, env=environment) as server:
        server.tool("stat", path="a.txt")
    told = "the extra otel of llmc-mcp" in server.log  # the exporter is not among what is installed to develop
    assert told == (spans_are_made and not otel.installed())

    sdk = import_module("opentelemetry.sdk.trace.export")
    exporter = import_module("opentelemetry.sdk.trace.export.in_memory_span_exporter").InMemorySpanExporter()
    called, end = otel.spans(sdk.SimpleSpanProcessor(exporter))
    called([usage(time.time()), usage(time.time())._replace(status="TIMEOUT", args="secret")])
    end()
    first, second = exporter.get_finished_spans()
    assert first.name == "tools/call stat"
    assert first.end_time - first.start_time == pytest.approx(1_000_000, abs=1000)
    assert (first.status.is_ok, second.status.is_ok) == (True, False)
    assert "secret" not in str(second.attributes)


# --- the audit -----------------------------------------------------------------------------------------------------


def audited(data: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for path in (data / "audit").glob("*.jsonl") for line in path.read_text().splitlines()]
    return [line for line in lines if not line.get("closed")]


def test_every_call_that_may_change_something_is_in_the_audit_whatever_came_of_it(
    served: HttpServer, data: Path
) -> None:
    served.tool("linux_fs_write", path="new.txt", content="secret words")
    served.tool("linux_fs_delete", path="missing.txt")
    served.tool("linux_fs_write", path="/etc/outside", content="x")
    served.tool("read_file", path="a.txt")
    served.tool("execute_code", code="linux_fs_write('by_code.txt', 'x')")
    lines = audited(data)
    seen = [(line["tool"], line["status"]) for line in lines if line["session"] == "S"]
    for wanted in (
        ("linux_fs_write", "ok"),
        ("linux_fs_delete", "NOT_FOUND"),
        ("linux_fs_write", "INVALID_PATH"),
        ("execute_code", "ok"),
    ):
        assert wanted in seen
    assert all(tool != "read_file" for tool, _ in seen)
    first = next(line for line in lines if "path=new.txt" in line["args"])
    assert first["principal"] == "owner"
    assert first["args_sha256"] == digest({"content": "secret words", "path": "new.txt"})
    assert "secret words" not in json.dumps(lines)
    nested = [line for line in lines if "by_code.txt" in line["args"]]
    assert [line["tool"] for line in nested] == ["linux_fs_write"]
    for path in (data / "audit").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_line_of_the_audit_cannot_be_forged_by_what_is_in_it(tmp_path: Path) -> None:
    audit = Audit(str(tmp_path))
    audit.write(Session("p\n{}", 's"}\n{"ts":"x'), "run_cmd", "ok", {"a": 1}, 'x"}\n{"tool":"forged"}', "cid")
    audit.write(Session("p", "s"), "run_cmd", "ok", object(), "", "cid")
    audit.close()
    lines = audited(tmp_path)
    assert [line["tool"] for line in lines] == ["run_cmd", "run_cmd"]
    assert lines[1]["args_sha256"] == ""


def test_whole_months_leave_the_audit_when_they_are_past_retention(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    folder.mkdir()
    (folder / "2001-01.jsonl").write_text("{}\n")
    for days, left in ((0, True), (30, False)):
        audit = Audit(str(tmp_path), days)
        audit.write(Session("p", "s"), "run_cmd", "ok", {}, "", "cid")
        audit.close()
        assert (folder / "2001-01.jsonl").exists() == left


def test_the_audit_can_be_switched_off(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMC_DATA_DIR", str(tmp_path))
    config = Config()
    config.observability.audit_enabled = False
    with gate_on(workspace.root, config) as gate:
        context = gate.context(Session("p", "s"), "cid")
        gate.call(context, "linux_fs_write", {"path": "quiet.txt", "content": "x"})
    assert not (tmp_path / "audit").exists()


# --- the token audit -----------------------------------------------------------------------------------------------


def test_the_token_audit_has_a_row_per_call(served: HttpServer, data: Path) -> None:
    served.tool("read_file", path="a.txt")
    served.tool("linux_mcp_recent_calls")
    rows = list(csv.DictReader((data / "artifacts" / "token_audit.csv").read_text().splitlines()))
    row = next(row for row in rows if row["tool"] == "read_file")
    assert row["principal"] == "owner"
    assert row["status"] == "ok"
    assert int(row["tokens_out"]) > 10


def usage(at: float, tool: str = "stat") -> Usage:
    return Usage(at, "mcp", tool, "ok", 1.0, "", 0, 0, "p", "s", "a", "m", "cid", 1, 2, 3)


def test_old_rows_leave_the_token_audit_and_the_store(tmp_path: Path) -> None:
    audit, store = TokenAudit("tokens.csv", str(tmp_path)), SqliteStore(str(tmp_path))
    recorder = Recorder(lambda: store, (audit,), retention_days=2)
    recorder.record(usage(time.time()))
    recorder.flush()
    audit.append([usage(time.time() - 5 * 86_400), usage(time.time())])
    again = Recorder(lambda: store, (audit,), retention_days=2)
    again.record(usage(time.time() - 3 * 86_400))
    again.close()
    recorder.close()
    assert len(list(csv.DictReader(Path(audit.path).read_text().splitlines()))) == 3
    audit.forget(time.time() - 2 * 86_400)
    assert len(list(csv.DictReader(Path(audit.path).read_text().splitlines()))) == 2
    assert len(store.query("SELECT 1 FROM calls")) == 1


def test_a_cell_is_never_a_formula(tmp_path: Path) -> None:
    audit = TokenAudit(str(tmp_path / "t.csv"), "/")
    audit.append([usage(time.time(), '=HYPERLINK("http://evil")'), usage(time.time(), "a\nb,c")])
    rows = list(csv.DictReader((tmp_path / "t.csv").read_text().splitlines(keepends=True)))
    assert [row["tool"] for row in rows] == ['\'=HYPERLINK("http://evil")', "a\nb,c"]


def test_an_audit_that_cannot_be_written_fails_no_call(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    audit = TokenAudit("file/below/t.csv", str(tmp_path))
    audit.append([usage(time.time())])
    audit.forget(time.time())
    assert audit.failed == 2


# --- tokens --------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:open_binary is deprecated")
def test_the_estimate_is_close_to_what_models_of_the_o200k_family_count(workspace: Workspace) -> None:
    from benchmarks.tokens import count

    here = Path(__file__).parents[1]
    texts = [path.read_text() for path in sorted((here / "src" / "llmc_mcp").glob("*.py"))]
    texts += [path.read_text() for path in sorted((here / "DOCS").glob("*.md"))]
    errors = sorted(abs(estimate(text) - count(text)) / count(text) for text in texts if len(text) > 500)
    assert errors[len(errors) // 2] < 0.1
    assert abs(sum(map(estimate, texts)) / sum(map(count, texts)) - 1) < 0.1


def test_the_estimate_takes_any_text() -> None:
    assert estimate("") == 0
    for text in ("a", " " * 10_000, "\n" * 999, "\x00" * 500, "你好" * 999, "😀" * 500, "x" * 10**6, "\ud800"):
        assert 0 < estimate(text) <= len(text.encode("utf-8", "replace"))


def test_in_a_flood_a_reply_is_taken_to_cost_what_others_of_its_tool_do() -> None:
    text = "some words in a line\n" * 40
    batch = [(usage(0.0), sample(text * (1 + number % 3))) for number in range(300)]
    exact = [estimate(text * (1 + number % 3)) for number in range(300)]
    found = [row.tokens_out for row in weighed(batch)]
    assert found[:20] == exact[:20]
    assert sum(found) == pytest.approx(sum(exact), rel=0.05)
    assert weighed([(usage(0.0), sample(""))])[0].tokens_out == 2  # nothing was sent: what the row says stands


def test_what_went_behind_a_handle_or_into_code_counts_as_saved(workspace: Workspace) -> None:
    def saved(tool: str, **arguments: Any) -> int:
        with gate_on(workspace.root) as gate:
            rows: list[Usage] = []
            gate.listeners.append(rows.extend)
            gate.reply(gate.context(Session("p", "s"), "cid"), tool, arguments)
            gate.flush_usage()
            return sum(row.tokens_saved for row in rows)

    assert saved("read_file", path="a.txt") == 0
    assert saved("linux_search_content", root=".", pattern="needle", max_results=1000) > 5_000
    assert saved("execute_code", code="len(read_file('long.txt')['data'])") > 5_000
    assert saved("run_cmd", command="true") == 0
    assert saved("run_cmd", command="cat long.txt") > 5_000
    assert saved("te_run", command="cat long.txt") > 5_000


def test_recording_waits_for_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "llmc.db")  # no store will ever open here
    recorder = Recorder(lambda: SqliteStore(str(tmp_path / "llmc.db" / "below")))
    for _ in range(20_000):
        recorder.record(usage(0.0))
    recorder.close()
    assert recorder.dropped > 0


def test_records_are_kept_for_ninety_days_and_forgotten_in_short_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, now = SqliteStore(str(tmp_path)), time.time()
    rows = [usage(now - 91 * 86_400) for _ in range(2_500)] + [usage(now - 89 * 86_400) for _ in range(10)]
    with store.transaction() as connection:
        connection.executemany(insert_into("calls", Usage._fields), rows)
    sizes: list[int] = []
    monkeypatch.setattr(store, "transaction", watched_transactions(store, sizes))
    recorder = Recorder(lambda: store, retention_days=Config().observability.retention_days)
    recorder.record(usage(now))
    for _ in range(10):  # on a busy machine, more than one moment
        recorder.flush()
    recorder.close()
    assert store.query("SELECT count(*) FROM calls") == [(11,)]
    assert len(sizes) >= 3
    assert max(sizes) <= 1_000


def watched_transactions(
    store: SqliteStore, sizes: list[int]
) -> Callable[..., AbstractContextManager[sqlite3.Connection]]:
    """The store's transactions; notes how many rows each changed."""
    real = store.transaction

    @contextmanager
    def watched(**given: Any) -> Generator[sqlite3.Connection]:
        with real(**given) as connection:
            before = connection.total_changes
            yield connection
            sizes.append(connection.total_changes - before)

    return watched
