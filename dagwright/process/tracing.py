"""OpenTelemetry traces: spans of runs, workflows and calls, created by the Temporal SDK's interceptor.

Spans are exported if the extra `otel` is installed and `OTEL_EXPORTER_OTLP_ENDPOINT` has the address of a collector.
The exporter reads the other `OTEL_…` variables itself. If the process has already set up OpenTelemetry, its tracer
provider is used.
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
"""Default service name of spans; `OTEL_SERVICE_NAME` overrides it."""


@asynccontextmanager
async def tracing_client(client: Client, *, endpoint: str | None) -> AsyncIterator[Client]:
    """Yield a copy of the client that traces its calls and its workers. Spans are flushed when the block ends.

    Args:
        endpoint: address of the collector; without an address, or without the extra, the client is unchanged.
    """
    if endpoint is None or not has_extra("otel"):
        yield client
        return
    from temporalio.contrib.opentelemetry import TracingInterceptor  # noqa: PLC0415 - optional, 0.2 s

    provider = _tracer_provider()
    config: Any = client.config()
    interceptor = TracingInterceptor(provider.get_tracer("dagwright"))
    try:
        yield Client(**{**config, "interceptors": [interceptor, *config["interceptors"]]})
    finally:
        # The program may end without running the exit handlers of the interpreter, on which the exporter relies.
        await asyncio.to_thread(provider.force_flush)


def _tracer_provider() -> "TracerProvider":
    from opentelemetry import trace  # noqa: PLC0415 - optional
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - optional
    from opentelemetry.sdk.resources import SERVICE_NAME as KEY  # noqa: PLC0415 - optional
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415 - optional
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - optional
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - optional

    existing_provider = trace.get_tracer_provider()
    if isinstance(existing_provider, TracerProvider):
        return existing_provider
    # The detector reads `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`, which take precedence.
    provider = TracerProvider(resource=Resource({KEY: SERVICE_NAME}).merge(OTELResourceDetector().detect()))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider
