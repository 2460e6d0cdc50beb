"""Each example of the document of the API is sent to a run, and what comes back fits what the document says."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import jsonschema_rs
import pytest

from tests.e2e.conftest import calculation
from tests.support.eventually import eventually
from tests.support.gateway import Gateway, gateway, named_events_of
from tests.support.server import LiveServer

pytestmark = pytest.mark.server

PLAN = {
    "plan": 1,
    "title": "Something of everything",
    "inputs": {"number": {"type": "integer"}},
    "nodes": [
        calculation("double", "{{PLACEHOLDER_number}} * 2"),
        calculation("broken", "1 / 0"),
        calculation("after", "{{broken.result}} + 1"),
        {"id": "check", "depends_on": ["double"], "human": {"type": "APPROVAL", "prompt": "Publish?"}},
    ],
}
NODES = {"/cancel": "check", "/retry": "broken", "/result": "broken"}
"""What an operation on nodes is tried with: the end of its path -> node."""
OURS = ("/v1/runs", "/v1/orchestration", "/v1/plans", "/v1/inbox")


async def turn_of(live: Gateway) -> tuple[str, str]:
    """Returns a session and its run, which has a node of each kind and waits for an answer."""
    session = f"s-{uuid4().hex[:8]}"
    message = {"role": "user", "content": '{"number": 21}'}
    body = {"model": "plan/everything", "messages": [message], "session_id": session}
    run = (await live.post("/v1/chat/completions", body)).json()["dagwright"]["run_id"]

    async def is_broken() -> bool:
        nodes = (await live.http.get(f"/v1/runs/{run}")).json()["nodes"]
        return bool(nodes.get("broken", {}).get("status") == "failed")

    await eventually(is_broken)
    return session, run


async def test_examples_are_taken_and_answers_are_as_described(server: LiveServer, tmp_path: Path) -> None:
    wrong: list[str] = []
    async with gateway(server, folder=tmp_path, plans={"everything": PLAN}) as live:
        document = (await live.http.get("/openapi.json")).json()
        for path, operations in document["paths"].items():
            if not path.startswith(OURS):
                continue
            for method, operation in operations.items():
                for body in bodies_of(operation, document):
                    wrong += [f"{method} {path}: {each}" for each in await tried(live, method, path, body, document)]
    assert not wrong


def bodies_of(operation: Any, document: Any) -> list[Any]:
    """Returns the bodies that the document gives as examples, or none at all."""
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    references = [each["$ref"] for each in [*schema.get("anyOf", ()), schema] if "$ref" in each]
    models = [document["components"]["schemas"][each.rpartition("/")[2]] for each in references]
    return [example for model in models for example in model["examples"]] or [None]


async def tried(live: Gateway, method: str, path: str, body: Any, document: Any) -> list[str]:
    """Returns what is wrong with the answer to an example."""
    session, run = await turn_of(live)
    node = next((name for end, name in NODES.items() if path.endswith(end)), "double")
    address = path.format(session_id=session, run_id=run, node=node)
    if path.endswith("/events"):
        await live.post(f"/v1/runs/{run}/cancel", {})
    if path.endswith("/resume"):
        await live.post(f"/v1/runs/{run}/pause", {})
    answer = await live.http.request(method, address, json=body)
    if answer.status_code != 200:
        return [f"{answer.status_code} {answer.text}"]
    content = document["paths"][path][method]["responses"]["200"]["content"]
    if path.endswith("/events"):
        told = {each.name for each in named_events_of(content["text/event-stream"]["example"])}
        return [] if {each.name for each in named_events_of(answer.text)} == told else [answer.text]
    schema = {**content["application/json"]["schema"], "components": document["components"]}
    example = content["application/json"]["example"]
    missing = [f"no {name!r}, which the example has" for name in example if name not in answer.json()]
    return [*missing, *(each.message for each in jsonschema_rs.iter_errors(schema, answer.json()))]
