"""The activity `call_model` without a Temporal server: its input, its heartbeats, and the content of its failures."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pydantic_core
import pytest
from temporalio.api.common.v1 import Payload

from dagwright.activities.call_model import model_activity
from dagwright.activities.values import LargeValues
from dagwright.core.boundary.wire import HEADER_BINDINGS, HEADER_PROJECTIONS
from dagwright.core.expressions.stored_values import StoredValue
from dagwright.llm import CallLabels, Endpoint, ModelCall, Usage, user
from dagwright.llm.client import ModelClients, ModelSetup
from dagwright.planning.model_calls.heartbeat_text import TEXT_INDEX, HeartbeatText, heartbeat_text_from_json
from dagwright.planning.model_calls.model_requests import (
    ModelRequest,
    NamedEndpoint,
    OfferedTool,
    OutputSchema,
    request_from_json,
    request_to_json,
)
from dagwright.planning.model_calls.response_summary import TOOL_CALLS_BYTES, summarize_response
from dagwright.protocol.outcomes import read_result
from dagwright.testing import Completion, ModelServer, Raw, ScriptedToolCall, Tokens, json_text, slow, text, tool_call
from tests.support.activity_harness import ActivityHarness
from tests.support.memory_store import MemoryStore

pytestmark = pytest.mark.waits

SECRETS = {"OTHER": "sk-other-key"}


class ModelHarness(ActivityHarness):
    """Harness of the activity `call_model`."""

    def __init__(self, server: ModelServer, store: MemoryStore | None = None) -> None:
        setup = ModelSetup(Endpoint(server.base_url, "sk-own-key"), model="small", find_secret=SECRETS.get)
        self.clients = ModelClients(setup)
        self.store = store or MemoryStore()
        super().__init__(model_activity(self.clients, LargeValues(self.store, retry_pauses_s=())))

    async def payload(self, *arguments: Any, **headers: Any) -> Payload:
        async with self.clients:
            return await super().payload(*arguments, **headers)


def request_json(prompt: str = "Hello?", tools: tuple[OfferedTool, ...] = (), **fields: Any) -> dict[str, Any]:
    return request_to_json(ModelRequest(ModelCall((user(prompt),), tools=tools), **fields))


async def test_small_response_is_inline_and_has_metadata_of_its_attempt() -> None:
    async with ModelServer(text("Hi", tokens=Tokens(3, 4))) as server:
        payload = await ModelHarness(server).payload(request_json())
    assert json.loads(payload.data) == {
        "message": {"role": "assistant", "content": "Hi"},
        "output": None,
        "finish_reason": "stop",
        "model": "small",
        "usage": Usage(calls=1, prompt_tokens=3, completion_tokens=4, unpriced_calls=1).to_json(),
    }
    assert {name: value.decode() for name, value in payload.metadata.items()} == {
        "encoding": "json/plain",
        "dagwright": "AY1tJDhl#2",
        "dagwright-usage": pydantic_core.to_json(json.loads(payload.data)["usage"]).decode(),
    }
    assert server.calls[0].metadata == {"run_id": "test", "node_id": "n1"}


async def test_labels_of_the_request_are_sent() -> None:
    request = ModelRequest(ModelCall((user("?"),), labels=CallLabels("root", "plan/agent", "agent")))
    async with ModelServer("Hi") as server:
        await ModelHarness(server).payload(request_to_json(request))
    assert server.calls[0].metadata == {"run_id": "root", "node_id": "plan/agent", "purpose": "agent"}


async def test_large_response_is_stored_and_the_run_receives_its_summary() -> None:
    calls = tuple(ScriptedToolCall(f"look{n}", {"at": "x" * 3_000}) for n in range(5))
    async with ModelServer(Completion(text="y" * 9_000, tool_calls=calls)) as server:
        harness = ModelHarness(server)
        projections = [[["message", "role"], "value"]]
        offered_tools = tuple(OfferedTool(call.name) for call in calls)
        payload = await harness.payload(
            request_json(tools=offered_tools, stores_conversation=True), **{HEADER_PROJECTIONS: projections}
        )
    summary = summarize_response(read_result(payload, name="n1.result")[0])
    assert [(call.name, len(call.arguments)) for call in summary.tool_calls] == [(f"look{n}", 3_010) for n in range(5)]
    assert isinstance(summary.text, StoredValue)
    assert summary.text.paths == (("message", "content"),)
    assert summary.output is None
    assert summary.finish_reason == "tool_calls"
    assert summary.conversation is not None
    assert json.loads(harness.store.contents[summary.text.ref])["message"]["content"] == "y" * 9_000
    conversation = json.loads(harness.store.contents[summary.conversation])
    assert [message["role"] for message in conversation] == ["user", "assistant"]
    assert [["message", "role"], {"value": "assistant"}] in json.loads(payload.data)["projections"]


@pytest.mark.parametrize(("response_text", "roles"), [(None, ["user"]), ("Let me look.", ["user", "assistant"])])
async def test_calls_of_unknown_tools_are_removed_from_summary_and_conversation(
    response_text: str | None, roles: list[str]
) -> None:
    completion = Completion(text=response_text, tool_calls=(ScriptedToolCall("look"),))
    output = OutputSchema("plan", {"type": "object"}, is_enforced=False)
    async with ModelServer(completion) as server:
        harness = ModelHarness(server)
        request = ModelRequest(ModelCall((user("Plan."),), output=output), stores_conversation=True)
        summary = summarize_response(read_result(await harness.payload(request_to_json(request)), name="n1.result")[0])
    assert (summary.tool_calls, summary.finish_reason, summary.conversation is not None) == ((), "stop", True)
    conversation = json.loads(harness.store.contents[summary.conversation or ""])
    assert [message["role"] for message in conversation] == roles
    assert not any(message.get("tool_calls") for message in conversation)


async def test_too_large_tool_calls_are_invalid_model_output() -> None:
    call = ModelCall((user("Write."),), tools=(OfferedTool("write", "Writes.", {"type": "object"}),))
    async with ModelServer(tool_call("write", content="x" * TOOL_CALLS_BYTES)) as server:
        failure = await ModelHarness(server).failure(request_to_json(ModelRequest(call)))
    assert (failure.type, failure.non_retryable) == ("model_output_invalid", True)
    assert "over the limit of 131,072" in failure.message


async def test_named_endpoint_receives_the_key_of_its_secret_and_never_the_key_of_the_settings() -> None:
    async with ModelServer("one", "two") as named_server, ModelServer() as default_server:
        for secret in ("OTHER", ""):
            endpoint = NamedEndpoint(named_server.base_url, secret)
            await ModelHarness(default_server).payload(request_json(endpoint=endpoint))
        failure = await ModelHarness(default_server).failure(
            request_json(endpoint=NamedEndpoint(named_server.base_url, "MISSING"))
        )
    assert [call.api_key for call in named_server.calls] == ["sk-other-key", "none"]
    assert (failure.type, failure.non_retryable) == ("model_key_missing", True)
    reason = "is not set; set DAGWRIGHT_SECRET_MISSING for the worker"
    assert failure.message == f"the key of {named_server.base_url} {reason}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "call_model takes one request"),
        (({}, {}), "call_model takes one request"),
        ((7,), "call_model takes one request"),
        (({},), "invalid request to a model: KeyError: 'messages'"),
        (({"messages": []},), "the request has no messages"),
        (({"messages": [], "config": {"top_p": 3}},), "top_p: must be less than or equal to 1, got 3"),
    ],
)
async def test_invalid_request_is_not_retried(arguments: tuple[Any, ...], message: str) -> None:
    async with ModelServer() as server:
        failure = await ModelHarness(server).failure(*arguments)
    expected = (f"Invalid arguments: {message}", "invalid_arguments", True)
    assert (failure.message, failure.type, failure.non_retryable) == expected


async def test_secret_is_never_sent_to_a_model() -> None:
    bindings = [[["messages", 0, "content"], [{"secret": "OTHER"}]]]
    async with ModelServer() as server:
        failure = await ModelHarness(server).failure(request_json(), **{HEADER_BINDINGS: bindings})
    assert failure.message == "Invalid arguments: a secret must not be sent to a model"


async def test_missing_or_invalid_conversation_is_a_lost_value_and_store_outage_is_retried_by_the_run() -> None:
    store, unavailable_store = MemoryStore(), MemoryStore()
    unavailable_store.is_down = True
    invalid_ref, missing_ref = await store.put(b'{"odd": 1}'), f"sha256-{'0' * 64}"
    for used_store, encoded_request, code in (
        (MemoryStore(), request_json(previous_conversation=missing_ref), "value_lost"),
        (store, request_json(previous_conversation=invalid_ref), "value_lost"),
        (unavailable_store, request_json(previous_conversation=missing_ref), "store_retry"),
        (unavailable_store, request_json(stores_conversation=True), "store_retry"),
    ):
        async with ModelServer(*["Hi"] * ("previous_conversation" not in encoded_request)) as server:
            failure = await ModelHarness(server, used_store).failure(encoded_request)
        assert (failure.type, failure.non_retryable) == (code, True), encoded_request


async def test_response_is_stored_after_an_outage_without_a_second_model_call() -> None:
    store = MemoryStore()
    store.is_down = True
    async with ModelServer("Hi") as server:
        harness = ModelHarness(server, store)
        harness.temporal.info = replace(harness.temporal.info, start_to_close_timeout=timedelta(seconds=60))

        def on_heartbeat(*details: Any) -> None:
            store.is_down = not any("waits_for" in each for each in details if isinstance(each, dict))

        harness.temporal.on_heartbeat = on_heartbeat
        await harness.payload(request_json(stores_conversation=True))
        assert (len(server.calls), len(store.contents)) == (1, 1)


async def test_failure_reports_advice_and_usage() -> None:
    async with ModelServer(text("So", finish_reason="length", tokens=Tokens(3, 4))) as server:
        failure = await ModelHarness(server).failure(request_json())
    assert (failure.type, failure.non_retryable) == ("model_truncated", True)
    assert failure.details[0] == {
        "attempt": 2,
        "started_at": "2024-02-03T04:05:06.789Z",
        "action": "give_up",
        "advice": "raise max_tokens, or split the request",
        "usage": Usage(calls=1, prompt_tokens=3, completion_tokens=4, unpriced_calls=1).to_json(),
    }


async def _stream_call(server: ModelServer, request: dict[str, Any], **info: Any) -> tuple[Any, list[Any]]:
    """Return the response of a call, and the text of each heartbeat (`None` for a heartbeat without text)."""
    harness, text_details = ModelHarness(server), list[Any]()
    harness.temporal.on_heartbeat = lambda *details: text_details.append(details[TEXT_INDEX : TEXT_INDEX + 1])
    harness.temporal.info = replace(harness.temporal.info, **info)
    payload = await harness.payload(request)
    return json.loads(payload.data), [heartbeat_text_from_json(each[0]) if each else None for each in text_details]


async def test_text_is_sent_with_the_first_piece_and_then_at_intervals() -> None:
    words = "Oslo has rain today. " * 300
    async with ModelServer(slow(text(words), chunk_characters=2)) as server:
        response, texts = await _stream_call(
            server, request_json(streamed_field=""), heartbeat_details=["x", None, None, {"text": "old"}]
        )
    start_text, first_text, *later_texts = [each for each in texts if each is not None]
    assert server.calls[0].is_streamed
    assert (start_text, first_text) == (HeartbeatText(2, 0, ""), HeartbeatText(2, 0, words[:2]))
    assert response["message"]["content"] == words
    assert all(words.startswith(each.text) for each in later_texts)
    # Texts are sent at most ten times per second, and all pieces arrive within a minute even on a slow machine.
    assert len(later_texts) < 600


async def test_streamed_field_of_json_output_is_sent_as_plain_text() -> None:
    output = OutputSchema("answer", {"type": "object"}, is_enforced=False)
    call = ModelCall((user("?"),), output=output)
    async with ModelServer(slow(json_text({"answer": "Oslo", "missing": []}), chunk_characters=14)) as server:
        response, heartbeat_texts = await _stream_call(
            server, request_to_json(ModelRequest(call, streamed_field="answer"))
        )
    texts = [each.text for each in heartbeat_texts if each is not None]
    assert (response["output"]["answer"], texts[:2]) == ("Oslo", ["", "Os"])


async def test_response_of_a_service_that_does_not_stream_is_accepted() -> None:
    calls = [{"type": "function", "function": {"name": "look", "arguments": "{}"}}] * 2
    message = {"role": "assistant", "content": "Let me look.", "tool_calls": calls}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    async with ModelServer(Raw(json.dumps(body).encode())) as server:
        response, texts = await _stream_call(server, request_json(streamed_field="", tools=(OfferedTool("look"),)))
    assert [call["name"] for call in response["message"]["tool_calls"]] == ["look", "look"]
    assert texts[-1] == HeartbeatText(2, 0, "Let me look.")


async def test_call_without_a_streamed_field_is_not_streamed() -> None:
    async with ModelServer("Hi") as server:
        _, texts = await _stream_call(server, request_json())
    assert not server.calls[0].is_streamed
    assert all(each is None for each in texts)


def test_streamed_field_of_a_request_is_encoded_and_must_be_text() -> None:
    for streamed_field in (None, "", "answer"):
        assert request_from_json(request_json(streamed_field=streamed_field)).streamed_field == streamed_field
    with pytest.raises(ValueError, match="streamed_field must be"):
        request_from_json({**request_json(), "streamed_field": ["answer"]})
