"""An OpenTelemetry collector receives the spans of a run."""

from collections.abc import Iterable

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from tests.e2e.command import CommandLine
from tests.support.http_servers import ReceivedRequest, ServiceResponse, serve_requests

pytestmark = pytest.mark.server

PLAN = """
plan: 1
nodes:
  - {id: half, tool: calculator, arguments: {expression: 3 / 2}}
  - {id: whole, tool: calculator, arguments: {expression: "{{half.result}} * 2"}}
"""


async def test_run_and_its_calls_have_the_same_trace(commands: CommandLine) -> None:
    (commands.folder / "plan.yaml").write_text(PLAN, encoding="utf-8")
    requests: list[ExportTraceServiceRequest] = []

    def collect(request: ReceivedRequest) -> ServiceResponse:
        requests.append(ExportTraceServiceRequest.FromString(request.body))
        return ServiceResponse(200, b"")

    with serve_requests(collect) as address:
        commands.environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = address
        result = await commands("run", "plan.yaml", "--id", "traced")
    assert (result.code, result.stderr) == (0, "")
    scopes = [scope for request in requests for resource in request.resource_spans for scope in resource.scope_spans]
    spans = [span for scope in scopes for span in scope.spans]
    start_span = next(span for span in spans if span.name == "StartWorkflow:RunPlan")
    spans_by_name = {span.name: span for span in spans if span.trace_id == start_span.trace_id}
    # Pure calls run together in one activity.
    assert sorted(spans_by_name) == [
        "CompleteWorkflow:RunPlan",
        "RunActivity:run_region",
        "RunWorkflow:RunPlan",
        "StartActivity:run_region",
        "StartWorkflow:RunPlan",
    ]
    assert _attribute_texts(spans_by_name["RunActivity:run_region"].attributes)["temporalWorkflowID"] == "traced"
    assert _attribute_texts(requests[0].resource_spans[0].resource.attributes)["service.name"] == "dagwright"


def _attribute_texts(attributes: Iterable[KeyValue]) -> dict[str, str]:
    return {attribute.key: attribute.value.string_value for attribute in attributes}
