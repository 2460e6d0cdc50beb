"""The gateway accepts each request example of the API document, and its responses fit the schemas of the document."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import jsonschema_rs
import pytest

from dagwright.interfaces.http.api_keys import KeyFile
from dagwright.interfaces.http.callers import KeyScope
from dagwright.interfaces.http.examples import ERRORS
from dagwright.interfaces.http.response_items import ResponseRef
from dagwright.testing import ANY_NUMBER, Raw, When, json_text, step
from tests.e2e.conftest import Serve, calculation, plan_of
from tests.support.eventually import eventually
from tests.support.gateway import CHAT, Gateway, chat_body, named_events_of

pytestmark = pytest.mark.server

PLAN = plan_of(
    calculation("double", "{{PLACEHOLDER_number}} * 2"),  # PLACEHOLDER_number is the input `number`.
    calculation("broken", "1 / 0"),
    calculation("after", "{{broken.result}} + 1"),
    {"id": "check", "depends_on": ["double"], "human": {"type": "APPROVAL", "prompt": "Publish?"}},
    title="Something of everything",
    inputs={"number": {"type": "integer"}},
)
REPORT_PLAN = plan_of(
    calculation("sum", "1 + 2"),
    title="Report",
    inputs={"region": {"type": "string"}},
    output={"region": "{{PLACEHOLDER_region}}", "sum": "{{sum.result}}"},
)
"""The plan `report`, which the request examples start."""
NODE_BY_PATH_END = {"/cancel": "check", "/retry": "broken", "/result": "broken"}
"""End of the path of an operation -> node for which the operation is called."""
PLAN_RESPONSE = {"nodes": [{"id": "sum", "tool": "calculator", "arguments": {"expression": "1 + 2"}}]}
SCRIPT = (
    step(json_text(PLAN_RESPONSE), when=When(metadata={"purpose": "plan"}), times=ANY_NUMBER),
    step(json_text({"answer": "It is 3.", "missing": []}), when=When(metadata={"purpose": "answer"}), times=ANY_NUMBER),
)


async def start_turn(gateway: Gateway) -> tuple[str, str]:
    """Start a turn whose run has a failed node and waits for an answer; return the IDs of its session and its run."""
    session_id = f"s-{uuid4().hex[:8]}"
    response = await gateway.chat("plan/everything", '{"number": 21}', session_id=session_id)
    run_id = response.json()["dagwright"]["run_id"]

    async def has_failed() -> bool:
        nodes = (await gateway.document(run_id))["nodes"]
        return bool(nodes.get("broken", {}).get("status") == "failed")

    await eventually(has_failed)
    return session_id, run_id


async def test_request_examples_are_accepted_and_responses_fit_the_schema(serve: Serve) -> None:
    plans = {"everything": PLAN, "report": REPORT_PLAN}
    async with serve(*SCRIPT, plans=plans) as gateway:
        document = (await gateway.http.get("/openapi.json")).json()
        examples = [
            (path, method, body)
            for path, operations in document["paths"].items()
            for method, operation in operations.items()
            for body in example_bodies(operation, document)
        ]
        # A new run is started for each example.
        problem_lists = await asyncio.gather(
            *(send_example(gateway, method, path, body, document) for path, method, body in examples)
        )
    problems = [
        f"{method} {path}: {each}"
        for (path, method, _), problem_list in zip(examples, problem_lists, strict=True)
        for each in problem_list
    ]
    assert examples
    assert not problems


def example_bodies(operation: Any, document: Any) -> list[Any]:
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    references = [each["$ref"] for each in [*schema.get("anyOf", ()), schema] if "$ref" in each]
    models = [document["components"]["schemas"][reference.rpartition("/")[2]] for reference in references]
    return [example for model in models for example in model["examples"]] or [None]


async def send_example(gateway: Gateway, method: str, path: str, body: Any, document: Any) -> list[str]:
    session_id, run_id = await start_turn(gateway)
    node = next((node_id for path_end, node_id in NODE_BY_PATH_END.items() if path.endswith(path_end)), "double")
    path_ids = {"session_id": session_id, "run_id": run_id, "response_id": ResponseRef(run_id, "plan/everything").id}
    path_names = {"name": "everything", "model": "plan/everything", "node_id": node, "subject": f"owner:{session_id}"}
    address = path.format(**path_ids, **path_names)
    if path.endswith("/events"):
        await gateway.post(f"/v1/runs/{run_id}/cancel", {})
    if path.endswith("/resume"):
        await gateway.post(f"/v1/runs/{run_id}/pause", {})
    if (method, "call-limits" in path) == ("delete", True):
        await gateway.http.put(address, json={"limit": "1/s"})
    response = await gateway.http.request(method, address, json=body)
    if not response.is_success:
        return [f"{response.status_code} {response.text}"]
    content = document["paths"][path][method]["responses"]["200"]["content"]
    if path.endswith("/events"):
        stream = content["text/event-stream"]
        documented_names = {each["properties"]["event"]["const"] for each in stream["itemSchema"]["oneOf"]}
        sent_names, example_names = (
            {event.name for event in named_events_of(text)} for text in (response.text, stream["example"])
        )
        return [] if sent_names and sent_names | example_names <= documented_names else [response.text]
    if path.endswith("/answer"):
        # The run waits for a person, so its stream ends with a tool call that has the request to the person.
        return [] if '"finish_reason":"tool_calls"' in response.text and "[DONE]" in response.text else [response.text]
    schema = {**content["application/json"]["schema"], "components": document["components"]}
    example = content["application/json"]["example"]
    missing = [f"no {name!r}, which the example has" for name in example if name not in response.json()]
    return [*missing, *(error.message for error in jsonschema_rs.iter_errors(schema, response.json()))]


FAILING_PLAN = plan_of(calculation("broken", "1 / 0"), output="{{broken.result}}")


async def test_error_examples_match_the_errors_of_the_gateway(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    keys = KeyFile(file)
    full_key, key_without_scopes = keys.add("ann", list(KeyScope))[1], keys.add("ann", [])[1]
    gateway_settings = {"api_keys": file, "api_requests": 20, "api_body_bytes": 10_000}
    invalid_response = step(Raw(b"<html>"), times=ANY_NUMBER)
    async with (
        serve(invalid_response, plans={"failing": FAILING_PLAN}, extra_settings=gateway_settings) as gateway,
        serve(provider_url="http://127.0.0.1:9/v1") as gateway_without_model_server,
    ):
        document = (await gateway.http.get("/openapi.json")).json()
        gateway.http.headers["Authorization"] = f"Bearer {full_key}"
        idempotency_key = uuid4().hex
        await gateway.post("/v1/runs", {"template": "failing"}, Idempotency_Key=idempotency_key)
        responses = {
            400: await gateway.post(CHAT, chat_body("small", stream_progress="all")),
            401: await gateway.post(CHAT, chat_body("small"), Authorization=""),
            403: await gateway.post(CHAT, chat_body("small"), Authorization=f"Bearer {key_without_scopes}"),
            404: await gateway.http.get("/v1/runs/missing"),
            409: await gateway.post("/v1/runs", {"plan": PLAN}, Idempotency_Key=idempotency_key),
            413: await gateway.post(CHAT, chat_body("small", more="x" * 20_000)),
            422: await gateway.post(CHAT, chat_body("plan/failing")),
            502: await gateway.post(CHAT, chat_body("small")),
        }
        # The loop sends more requests than a key may send within a minute.
        for _ in range(40):
            responses[429] = await gateway.http.get("/v1/runs/missing")
            if responses[429].status_code != 404:
                break
        responses[503] = await gateway_without_model_server.post(CHAT, chat_body("small"))
    documented_responses = document["paths"][CHAT]["post"]["responses"]
    assert set(map(str, responses)) == {status for status in documented_responses if status >= "400"}
    for status, response in responses.items():
        assert response.status_code == status, response.text
        example, error = ERRORS[status]["error"], response.json()["error"]
        assert [error[name] for name in ("type", "param")] == [example[name] for name in ("type", "param")], status
        assert error["code"] == example["code"] or status in (422, 503), status
        assert set(error) == set(example)
