"""Prometheus metrics of an HTTP server: calls, requests, and the resources in use.

Counters cover the calls of this process; figures from the store (handles, te) are read when the page is rendered. Label
values come from fixed lists, never from a request, so that a client cannot make the page grow.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.registry import Collector

from .. import __version__
from ..errors import FeatureUnavailable, ResourceBusy
from ..gate.dispatch import Gate
from ..gate.usage import Usage

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_COUNTED_METHODS = frozenset({"resources/read", "prompts/get", "completion/complete"})  # counted like tools
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Metrics:
    """The counters; `page` renders them for Prometheus."""

    def __init__(self, gate: Gate) -> None:
        settings = gate.app.config.observability
        self.enabled = settings.enabled and settings.metrics_enabled
        self._settle = gate.flush_usage
        self._is_tool = gate.catalog.known
        disable_created_metrics()  # saves a line per counter that is of no use
        self._registry = CollectorRegistry()
        registry: Any = self._registry
        self._calls = Counter("llmc_calls", "Tool calls by outcome", ("tool", "status"), registry=registry)
        self._call_seconds = Histogram(
            "llmc_call_seconds", "Time of tool calls", ("tool",), buckets=_SECONDS, registry=registry
        )
        self._tokens = Counter(
            "llmc_tokens",
            "Estimated tokens: sent by the model, returned to it, and saved",
            ("kind",),
            registry=registry,
        )
        self._by_kind = [self._tokens.labels(kind) for kind in ("in", "out", "saved")]
        self._agent_calls = Counter("llmc_agent_calls", "Calls by agent", ("agent",), registry=registry)
        self._agent_tokens = Counter(
            "llmc_agent_tokens", "Estimated tokens out by agent", ("agent",), registry=registry
        )
        config = gate.app.config
        self._agents = frozenset({config.session.default_agent_id, *config.te.budgets})  # configured by the operator
        self._requests = Counter(
            "llmc_http_requests", "HTTP requests by outcome", ("route", "method", "status"), registry=registry
        )
        self._request_seconds = Histogram(
            "llmc_http_request_seconds", "Time of HTTP requests", ("route",), buckets=_SECONDS, registry=registry
        )
        self._request_series: dict[tuple[str, str, str], tuple[Counter, Histogram]] = {}  # looking one up takes long
        self._auth_failures = Counter("llmc_auth_failures", "Requests without a valid token", registry=registry)
        if self.enabled:
            registry.register(_Gauges(gate))
            ProcessCollector(namespace="llmc", registry=registry)
            gate.listeners.append(self.called)

    def called(self, rows: Sequence[Usage]) -> None:
        """Count finished tool calls; those that are alike together, because finding a counter takes long.

        What the network was denied is counted where that happens.
        """
        rows = [row for row in rows if row.source != "network"]
        alike: dict[tuple[str, str, str], list[Usage]] = {}
        for row in rows:
            tool = row.tool if row.tool in _COUNTED_METHODS or self._is_tool(row.tool) else "unknown"
            agent = row.agent_id if row.agent_id in self._agents else "other"
            alike.setdefault((tool, row.status, agent), []).append(row)
        for (tool, status, agent), calls in alike.items():
            self._agent_calls.labels(agent).inc(len(calls))
            self._agent_tokens.labels(agent).inc(sum(call.tokens_out for call in calls))
            self._calls.labels(tool, status).inc(len(calls))
            seconds = self._call_seconds.labels(tool)
            for call in calls:
                seconds.observe(call.duration_ms / 1000)
        for counter, kind in zip(self._by_kind, ("tokens_in", "tokens_out", "tokens_saved"), strict=True):
            counter.inc(sum(getattr(row, kind) for row in rows))

    def requested(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a finished HTTP request."""
        if not self.enabled:
            return
        labels = (route, method if method in _METHODS else "other", str(status))
        series = self._request_series.get(labels)
        if series is None:
            series = self._requests.labels(*labels), self._request_seconds.labels(route)
            self._request_series[labels] = series
        series[0].inc()
        series[1].observe(seconds)

    def auth_failed(self) -> None:
        """Count a missing or invalid token."""
        if self.enabled:
            self._auth_failures.inc()

    def page(self) -> bytes:
        """All metrics in Prometheus' text format."""
        self._settle()
        return generate_latest(self._registry)


class _Gauges(Collector):
    """Values kept elsewhere, read when the page is rendered."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def collect(self) -> Iterator[Any]:
        gate = self._gate
        info = GaugeMetricFamily("llmc_info", "The server", labels=("version", "mode"))
        info.add_metric((__version__, gate.app.config.mode), 1)
        yield info
        dropped = CounterMetricFamily("llmc_dropped", "Calls refused and records lost, by reason", labels=("reason",))
        for reason, count in gate.limits.dropped.items():
            dropped.add_metric((reason,), count)
        dropped.add_metric(("log",), gate.log.dropped)
        dropped.add_metric(("usage",), gate.recorder.dropped if gate.recorder else 0)
        yield dropped
        denied = CounterMetricFamily(
            "llmc_network_denied", "Connections of commands that the network allowlist denied", labels=("reason",)
        )
        for reason, count in gate.app.network_denied().items():
            denied.add_metric((reason,), count)
        yield denied
        yield GaugeMetricFamily(
            "llmc_limits_alone",
            "1 while the shared store is away and limits count this server's calls alone",
            float(gate.limits.counts.alone),
        )
        yield GaugeMetricFamily("llmc_calls_under_way", "Tool calls in progress", gate.limits.under_way())
        yield GaugeMetricFamily("llmc_processes", "Processes below this server", descendants(os.getpid()))
        yield from self._stored()

    def _stored(self) -> Iterator[Any]:
        try:
            store = self._gate.app.store
            ((handles, size),) = store.query("SELECT count(*), coalesce(sum(bytes), 0) FROM handles")
            ((runs, seconds),) = store.query(
                "SELECT count(*), coalesce(sum(duration_ms), 0) / 1000.0 FROM calls WHERE source IN ('te', 'te_run')"
            )
        except (FeatureUnavailable, ResourceBusy):
            return
        yield GaugeMetricFamily("llmc_handles", "Handles in the store", float(str(handles)))
        yield GaugeMetricFamily("llmc_handle_bytes", "Bytes of the handles in the store", float(str(size)))
        yield SummaryMetricFamily(
            "llmc_te_seconds", "Time of te runs in the store", count_value=int(str(runs)), sum_value=float(str(seconds))
        )


def descendants(pid: int) -> int:
    """The number of descendants of a process."""
    found, todo = 0, [pid]
    while todo:
        try:
            tasks = os.listdir(folder := f"/proc/{todo.pop()}/task")
        except OSError:
            continue
        for task in tasks:
            try:
                with open(f"{folder}/{task}/children") as file:
                    below = [int(word) for word in file.read().split()]
            except OSError:
                continue
            found += len(below)
            todo += below
    return found
