"""Requests that known clients send are answered by a run or a model, in the format that the client reads."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dagwright.testing import ANY_NUMBER, step
from tests.e2e.conftest import calculation, plan_of
from tests.support.foreign_clients import CLIENT_REQUESTS, EARLIER_MESSAGE_ID, QUESTION, ClientRequest
from tests.support.gateway import Gateway, assert_sequence_numbers_increase, events_of, gateway
from tests.support.server import LiveServer

pytestmark = pytest.mark.server

ECHO_PLAN = plan_of(
    calculation("sum", "1 + 2"), inputs={"words": {"type": "string"}}, output="{{PLACEHOLDER_words}} {{sum.result}}"
)
"""A plan that uses only the last message of the user."""
ANSWERS = {"plan/echo": f"{QUESTION} 3", "small": "Three."}


@pytest.fixture(scope="module")
async def client_gateway(server: LiveServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    script = step("Three.", times=ANY_NUMBER)
    folder = tmp_path_factory.mktemp("clients")
    async with gateway(server, script, folder=folder, plans={"echo": ECHO_PLAN}) as running_gateway:
        yield running_gateway


@pytest.mark.parametrize("model", list(ANSWERS))
@pytest.mark.parametrize("client_request", CLIENT_REQUESTS, ids=lambda client_request: client_request.client)
async def test_request_of_a_client_is_answered(
    client_gateway: Gateway, client_request: ClientRequest, model: str
) -> None:
    body = json.dumps({"model": model, **client_request.body})
    if EARLIER_MESSAGE_ID in body:
        earlier_response = (await client_gateway.post("/v1/responses", {"model": "plan/echo", "input": "Hi."})).json()
        body = body.replace(EARLIER_MESSAGE_ID, earlier_response["output"][0]["id"])
    headers = {**client_request.headers, "Content-Type": "application/json"}
    response = await client_gateway.http.post(client_request.path, content=body, headers=headers)
    assert response.status_code == 200, response.text
    content_type = "text/event-stream" if client_request.is_streamed else "application/json"
    assert response.headers["content-type"].partition(";")[0] == content_type
    read_answer = _read_stream if client_request.is_streamed else _read_document
    assert (
        read_answer(client_request, response.text if client_request.is_streamed else response.json()) == ANSWERS[model]
    )


def _read_document(client_request: ClientRequest, document: Any) -> str:
    if client_request.path.endswith("/responses"):
        assert (document["object"], document["status"]) == ("response", "completed")
        (message,) = [item for item in document["output"] if item["type"] == "message"]
        (part,) = message["content"]
        assert document["usage"]["total_tokens"] >= 0
        return str(part["text"])
    (choice,) = document["choices"]
    assert (document["object"], choice["finish_reason"]) == ("chat.completion", "stop")
    assert document["usage"]["total_tokens"] >= 0
    return str(choice["message"]["content"])


def _read_stream(client_request: ClientRequest, text: str) -> str:
    contents = [event.content for event in events_of(text) if event.comment is None]
    if client_request.path.endswith("/responses"):
        kinds = [content["type"] for content in contents]
        assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
        assert_sequence_numbers_increase([(content["sequence_number"], "dagwright" in content) for content in contents])
        return "".join(content["delta"] for content in contents if content["type"] == "response.output_text.delta")
    *chunks, final_content = contents
    assert final_content == "[DONE]"
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert {choice["index"] for choice in choices} == {0}
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["stop"]
    wants_usage = (client_request.body.get("stream_options") or {}).get("include_usage")
    usages = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
    assert len(usages) == (1 if wants_usage else 0)
    # The last chunk has the usage and no choices.
    assert not wants_usage or chunks[-1]["choices"] == []
    return "".join(choice["delta"].get("content") or "" for choice in choices)
