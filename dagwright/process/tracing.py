"""Traces of OpenTelemetry: spans of runs, workflows and calls, by the Temporal SDK's interceptor.

They are sent if the extra `otel` is installed and `OTEL_EXPORTER_OTLP_ENDPOINT` names a collector. The exporter reads
the other `OTEL_…` variables itself. A process that has set up OpenTelemetry already keeps its tracer provider.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from temporalio.client import Client

from dagwright.core.extras import has_extra

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

SERVICE_NAME = "dagwright"
"""Name of the service in spans unless `OTEL_SERVICE_NAME` has another."""


@asynccontextmanager
async def traced(client: Client, *, endpoint: str | None) -> AsyncIterator[Client]:
    """Return the client with tracing, which workers of that client share; spans are flushed at the end of the block.

    Args:
        endpoint: address of the collector; without one, or without the extra, the client stays as it is.
    """
    if endpoint is None or not has_extra("otel"):
        yield client
        return
    from temporalio.contrib.opentelemetry import TracingInterceptor  # noqa: PLC0415 - optional, 0.2 s

    provider = _tracer_provider()
    config: Any = client.config()
    tracing = TracingInterceptor(provider.get_tracer("dagwright"))
    try:
        yield Client(**{**config, "interceptors": [tracing, *config["interceptors"]]})
    finally:
        # The program may end without the interpreter's exit handlers, of which the exporter has one.
        await asyncio.to_thread(provider.force_flush)


def _tracer_provider() -> "TracerProvider":
    from opentelemetry import trace  # noqa: PLC0415 - optional
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - optional
    from opentelemetry.sdk.resources import SERVICE_NAME as KEY  # noqa: PLC0415 - optional
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415 - optional
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - optional
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - optional

    known = trace.get_tracer_provider()
    if isinstance(known, TracerProvider):
        return known
    # The detector reads `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`, which win.
    provider = TracerProvider(resource=Resource({KEY: SERVICE_NAME}).merge(OTELResourceDetector().detect()))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider
