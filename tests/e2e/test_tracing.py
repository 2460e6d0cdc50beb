"""An OpenTelemetry collector receives the spans of a run."""

import threading
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.e2e.command import CommandLine

pytestmark = pytest.mark.server

PLAN = """
plan: 1
nodes:
  - {id: half, tool: calculator, arguments: {expression: 3 / 2}}
  - {id: whole, tool: calculator, arguments: {expression: "{{half.result}} * 2"}}
"""


class Collector(ThreadingHTTPServer):
    """A collector that receives spans by OTLP over HTTP."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[ExportTraceServiceRequest] = []

    @property
    def spans(self) -> list[Span]:
        resources = (resource for request in self.requests for resource in request.resource_spans)
        return [span for resource in resources for scope in resource.scope_spans for span in scope.spans]


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.requests.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Write no access log."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


async def test_run_and_its_calls_have_the_same_trace(command_line: CommandLine, collector: Collector) -> None:
    (command_line.folder / "plan.yaml").write_text(PLAN, encoding="utf-8")
    endpoint = f"http://127.0.0.1:{collector.server_address[1]}"
    command_line.environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = endpoint
    result = await command_line("run", "plan.yaml", "--id", "traced")
    assert (result.code, result.stderr) == (0, "")
    start_span = next(span for span in collector.spans if span.name == "StartWorkflow:RunPlan")
    trace = {span.name: span for span in collector.spans if span.trace_id == start_span.trace_id}
    # Pure calls run together in one activity.
    assert sorted(trace) == [
        "CompleteWorkflow:RunPlan",
        "RunActivity:run_region",
        "RunWorkflow:RunPlan",
        "StartActivity:run_region",
        "StartWorkflow:RunPlan",
    ]
    assert _attribute_texts(trace["RunActivity:run_region"].attributes)["temporalWorkflowID"] == "traced"
    assert _attribute_texts(collector.requests[0].resource_spans[0].resource.attributes)["service.name"] == "dagwright"


def _attribute_texts(attributes: Iterable[KeyValue]) -> dict[str, str]:
    return {attribute.key: attribute.value.string_value for attribute in attributes}
