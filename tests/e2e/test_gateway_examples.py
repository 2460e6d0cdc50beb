"""Each example of the API document is sent to a run, and the response fits the schema of the document."""

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
from dagwright.testing import ANY_NUMBER, Raw, json_text, step
from tests.e2e.conftest import Serve, calculation, plan_of
from tests.support.eventually import eventually
from tests.support.gateway import Gateway, named_events_of

pytestmark = pytest.mark.server

PLAN = plan_of(
    calculation("double", "{{PLACEHOLDER_number}} * 2"),
    calculation("broken", "1 / 0"),
    calculation("after", "{{broken.result}} + 1"),
    {"id": "check", "depends_on": ["double"], "human": {"type": "APPROVAL", "prompt": "Publish?"}},
    title="Something of everything",
    inputs={"number": {"type": "integer"}},
)
REPORT = plan_of(
    calculation("sum", "1 + 2"),
    title="Report",
    inputs={"region": {"type": "string"}},
    output={"region": "{{PLACEHOLDER_region}}", "sum": "{{sum.result}}"},
)
"""The plan that examples of requests name."""
NODES = {"/cancel": "check", "/retry": "broken", "/result": "broken"}
"""Nodes to test operations with: the end of a path -> node."""
PLANNED = {"nodes": [{"id": "sum", "tool": "calculator", "arguments": {"expression": "1 + 2"}}]}
SCRIPT = (
    step(json_text(PLANNED), metadata={"purpose": "plan"}, times=ANY_NUMBER),
    step(json_text({"answer": "It is 3.", "missing": []}), metadata={"purpose": "answer"}, times=ANY_NUMBER),
)


async def turn_of(live: Gateway) -> tuple[str, str]:
    """Return a session and its run, which has a node of each kind and waits for an answer."""
    session = f"s-{uuid4().hex[:8]}"
    message = {"role": "user", "content": '{"number": 21}'}
    body = {"model": "plan/everything", "messages": [message], "session_id": session}
    run = (await live.post("/v1/chat/completions", body)).json()["dagwright"]["run_id"]

    async def is_broken() -> bool:
        nodes = (await live.http.get(f"/v1/runs/{run}")).json()["nodes"]
        return bool(nodes.get("broken", {}).get("status") == "failed")

    await eventually(is_broken)
    return session, run


async def test_examples_are_taken_and_answers_are_as_described(serve: Serve) -> None:
    plans = {"everything": PLAN, "report": REPORT}
    async with serve(*SCRIPT, plans=plans) as live:
        document = (await live.http.get("/openapi.json")).json()
        examples = [
            (path, method, body)
            for path, operations in document["paths"].items()
            for method, operation in operations.items()
            for body in bodies_of(operation, document)
        ]
        # Each has a run of its own.
        answers = await asyncio.gather(
            *(send_example(live, method, path, body, document) for path, method, body in examples)
        )
    wrong = [
        f"{method} {path}: {each}"
        for (path, method, _), result in zip(examples, answers, strict=True)
        for each in result
    ]
    assert examples
    assert not wrong


def bodies_of(operation: Any, document: Any) -> list[Any]:
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    references = [each["$ref"] for each in [*schema.get("anyOf", ()), schema] if "$ref" in each]
    models = [document["components"]["schemas"][reference.rpartition("/")[2]] for reference in references]
    return [example for model in models for example in model["examples"]] or [None]


async def send_example(live: Gateway, method: str, path: str, body: Any, document: Any) -> list[str]:
    session, run = await turn_of(live)
    node = next((name for end, name in NODES.items() if path.endswith(end)), "double")
    subject = f"owner:{session}"
    named = {
        "subject": subject,
        "name": "everything",
        "model": "plan/everything",
        "response_id": ResponseRef(run, "plan/everything").id,
    }
    address = path.format(session_id=session, run_id=run, node=node, **named)
    if path.endswith("/events"):
        await live.post(f"/v1/runs/{run}/cancel", {})
    if path.endswith("/resume"):
        await live.post(f"/v1/runs/{run}/pause", {})
    if (method, "call-limits" in path) == ("delete", True):
        await live.http.put(address, json={"limit": "1/s"})
    answer = await live.http.request(method, address, json=body)
    if not answer.is_success:
        return [f"{answer.status_code} {answer.text}"]
    content = document["paths"][path][method]["responses"]["200"]["content"]
    if path.endswith("/events"):
        stream = content["text/event-stream"]
        documented = {each["properties"]["event"]["const"] for each in stream["itemSchema"]["oneOf"]}
        sent, shown = ({event.name for event in named_events_of(text)} for text in (answer.text, stream["example"]))
        return [] if sent and sent | shown <= documented else [answer.text]
    if path.endswith("/answer"):
        # The run waits for an answer, so its stream ends with the question.
        return [] if '"finish_reason":"tool_calls"' in answer.text and "[DONE]" in answer.text else [answer.text]
    schema = {**content["application/json"]["schema"], "components": document["components"]}
    example = content["application/json"]["example"]
    missing = [f"no {name!r}, which the example has" for name in example if name not in answer.json()]
    return [*missing, *(error.message for error in jsonschema_rs.iter_errors(schema, answer.json()))]


FAILING = {"plan": 1, "nodes": [calculation("broken", "1 / 0")], "output": "{{broken.result}}"}


async def test_examples_of_errors_are_what_comes(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    keys = KeyFile(file)
    full, looks = keys.add("ann", list(KeyScope))[1], keys.add("ann", [])[1]
    more = {"api_keys": file, "api_requests": 20, "api_body_bytes": 10_000}
    broken = step(Raw(b"<html>"), times=ANY_NUMBER)
    async with (
        serve(broken, plans={"failing": FAILING}, extra_settings=more) as live,
        serve(provider_url="http://127.0.0.1:9/v1") as alone,
    ):
        document = (await live.http.get("/openapi.json")).json()
        live.http.headers["Authorization"] = f"Bearer {full}"

        def asks(model: str, **more: Any) -> Any:
            return {"model": model, "messages": [{"role": "user", "content": "Hello"}], **more}

        chat = "/v1/chat/completions"
        key = uuid4().hex
        await live.post("/v1/runs", {"template": "failing"}, Idempotency_Key=key)
        answers = {
            400: await live.post(chat, asks("small", stream_progress="all")),
            401: await live.post(chat, asks("small"), Authorization=""),
            403: await live.post(chat, asks("small"), Authorization=f"Bearer {looks}"),
            404: await live.http.get("/v1/runs/nobody"),
            409: await live.post("/v1/runs", {"plan": PLAN}, Idempotency_Key=key),
            413: await live.post(chat, asks("small", more="x" * 20_000)),
            422: await live.post(chat, asks("plan/failing")),
            502: await live.post(chat, asks("small")),
        }
        # More than a key may ask within a minute.
        for _ in range(40):
            answers[429] = await live.http.get("/v1/runs/nobody")
            if answers[429].status_code != 404:
                break
        answers[503] = await alone.post(chat, asks("small"))
    documented = document["paths"][chat]["post"]["responses"]
    assert set(map(str, answers)) == {status for status in documented if status >= "400"}
    for status, answer in answers.items():
        assert answer.status_code == status, answer.text
        example, result = ERRORS[status]["error"], answer.json()["error"]
        assert [result[name] for name in ("type", "param")] == [example[name] for name in ("type", "param")], status
        assert result["code"] == example["code"] or status in (422, 503), status
        assert set(result) == set(example)
