"""An OpenTelemetry span per call, if the extra `otel` is installed and the environment names a collector.

OpenTelemetry's own variables apply (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME …). Like the log, spans contain no
arguments and no contents.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from ..gate.usage import Usage, UsageListener

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def wanted(environ: Mapping[str, str] | None = None) -> bool:
    """Whether the environment names a collector."""
    environ = os.environ if environ is None else environ
    return any(environ.get(name) for name in _ENDPOINTS)


def installed() -> bool:
    """Whether the extra is installed."""
    try:
        import_module("opentelemetry.sdk.trace")
        import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ImportError:
        return False
    return True


def over_http() -> tuple[UsageListener, Callable[[], None]]:
    """A listener that sends spans by OTLP in the background, and a function that stops it."""
    exporter = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter").OTLPSpanExporter()
    processor = import_module("opentelemetry.sdk.trace.export").BatchSpanProcessor(exporter)
    return spans(processor)


def spans(processor: Any) -> tuple[UsageListener, Callable[[], None]]:
    """A listener that passes a span of every call to a processor, and a function that stops it."""
    sdk = import_module("opentelemetry.sdk.trace")
    status = import_module("opentelemetry.trace.status")
    resource = import_module("opentelemetry.sdk.resources").Resource.create({"service.name": "llmc-mcp"})
    provider = sdk.TracerProvider(resource=resource)
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("llmc_mcp")

    def called(rows: Sequence[Usage]) -> None:
        for row in rows:
            started = int((row.at - row.duration_ms / 1000) * 1e9)
            name = row.tool if _method(row) == row.tool else f"tools/call {row.tool}"
            span = tracer.start_span(name, start_time=started, attributes=_attributes(row))
            if row.status != "ok":
                span.set_status(status.Status(status.StatusCode.ERROR, row.status))
            span.end(int(row.at * 1e9))

    return called, provider.shutdown


def _method(row: Usage) -> str:
    """The MCP method of a call. Tools are recorded by name, other calls by their method, which contains a slash."""
    return row.tool if "/" in row.tool else "tools/call"


def _attributes(row: Usage) -> dict[str, str | int]:
    return {
        "mcp.method.name": _method(row),
        "gen_ai.tool.name": row.tool,
        "llmc.status": row.status,
        "llmc.principal": row.principal,
        "llmc.session_id": row.session_id,
        "llmc.correlation_id": row.correlation_id,
        "llmc.tokens_out": row.tokens_out,
        "llmc.tokens_saved": row.tokens_saved,
    }
