"""The scripted model server over real sockets, called by an ordinary HTTP client."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
import pytest

from dagwright.testing import (
    ANY_NUMBER,
    Completion,
    Cut,
    HttpError,
    ModelServer,
    Reset,
    ScriptedToolCall,
    ScriptNotFollowed,
    Silence,
    Tokens,
    When,
    busy,
    http_date,
    json_text,
    slow,
    step,
    text,
    tool_call,
    tool_calls,
)
from dagwright.testing.fixtures import StartModelServer
from tests.support.eventually import eventually


async def post_chat(server: ModelServer, *messages: str, key: str = "key", **fields: Any) -> httpx.Response:
    user_messages = [{"role": "user", "content": message} for message in messages or ("Hello?",)]
    body = {"model": "small", "messages": user_messages, **fields}
    async with httpx.AsyncClient(timeout=10) as client:
        headers = {"authorization": f"Bearer {key}"}
        return await client.post(f"{server.base_url}/chat/completions", json=body, headers=headers)


def message_of(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["message"]


def events_of(response: httpx.Response) -> list[Any]:
    assert response.headers["content-type"].startswith("text/event-stream")
    *lines, last_line = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert last_line == "[DONE]"
    return [json.loads(line) for line in lines]


async def test_responses_are_sent_in_the_order_of_the_script() -> None:
    steps = ("one", step("twice", times=2), step("ever", times=ANY_NUMBER), step("never", times=ANY_NUMBER))
    async with ModelServer(*steps) as server:
        contents = [message_of(await post_chat(server, letter))["content"] for letter in "abcde"]
        received_calls = [(call.model, call.text, call.step_index, call.api_key) for call in server.calls]
    assert contents == ["one", "twice", "twice", "ever", "ever"]
    assert received_calls == [
        ("small", letter, step_index, "key") for letter, step_index in zip("abcde", (0, 1, 1, 2, 2), strict=True)
    ]


async def test_complete_response_has_the_form_of_an_openai_response() -> None:
    answer = Completion(text="Hi", tokens=Tokens(7, 3, cached=5, reasoning=1), reasoning="hm")
    async with ModelServer(answer) as server:
        body = (await post_chat(server)).json()
    assert (body.pop("id").startswith("chatcmpl-"), body.pop("created") > 0) == (True, True)
    message = {"role": "assistant", "content": "Hi", "refusal": None, "reasoning_content": "hm"}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    usage: dict[str, Any] = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    usage |= {"prompt_tokens_details": {"cached_tokens": 5}, "completion_tokens_details": {"reasoning_tokens": 1}}
    assert body == {"object": "chat.completion", "model": "small", "choices": [choice], "usage": usage}


async def test_parallel_calls_receive_the_responses_of_matching_steps() -> None:
    steps = (
        step("to the planner", when=When(metadata={"purpose": "planner"})),
        step("to large", when=When(model="large")),
        step("to Oslo", when=When(text="Oslo")),
        step("to the stream", when=When(is_streamed=True)),
        step("to tools", when=When(tool="look")),
        step("to json", when=When(response_format="json_object")),
        step("to long", when=When(condition=lambda call: len(call.messages) == 3)),
    )
    tools = [{"type": "function", "function": {"name": "look"}}]
    async with ModelServer(*steps) as server:
        responses = await asyncio.gather(
            post_chat(server, "a", "b", "c"),
            post_chat(server, "as JSON", response_format={"type": "json_object"}),
            post_chat(server, tools=tools),
            post_chat(server, "Is it cold in Oslo?"),
            post_chat(server, model="large"),
            post_chat(server, metadata={"purpose": "planner", "node_id": "n"}),
        )
        streamed_response = await post_chat(server, stream=True)
    contents = [message_of(response)["content"].removeprefix("to ") for response in responses]
    assert contents == ["long", "json", "tools", "Oslo", "large", "the planner"]
    deltas = [event["choices"][0]["delta"].get("content", "") for event in events_of(streamed_response)]
    assert "".join(deltas) == "to the stream"


async def test_tool_calls_are_sent_completely_or_in_chunks() -> None:
    calls = tool_calls(("look", {"at": "Oslo"}), ("add", {"a": 1}))
    async with ModelServer(calls, calls) as server:
        complete_calls = message_of(await post_chat(server))["tool_calls"]
        events = events_of(await post_chat(server, stream=True, stream_options={"include_usage": True}))
    expected = [("look", '{"at": "Oslo"}'), ("add", '{"a": 1}')]
    functions = [{"name": name, "arguments": arguments} for name, arguments in expected]
    assert [(call["type"], call["function"]) for call in complete_calls] == [("function", each) for each in functions]
    chunks = [call for event in events for choice in event["choices"] for call in choice["delta"].get("tool_calls", [])]
    texts = ["", ""]
    for chunk in chunks:
        texts[chunk["index"]] += chunk["function"]["arguments"]
    names = [chunk["function"]["name"] for chunk in chunks if "id" in chunk]
    assert [*zip(names, texts, strict=True)] == expected
    assert events[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert (events[-1]["choices"], events[-1]["usage"]["completion_tokens"]) == ([], 4)


async def test_stream_contains_usage_only_on_request() -> None:
    async with ModelServer("one two", "one two") as server:
        events_without_usage = events_of(await post_chat(server, stream=True))
        response = await post_chat(server, "a b c", stream=True, stream_options={"include_usage": True})
        events_with_usage = events_of(response)
    assert [event for event in events_without_usage if "usage" in event] == []
    assert [event["usage"] for event in events_with_usage if event["usage"]] == [Tokens(3, 2).to_json()]


async def test_errors_have_the_scripted_body_and_retry_after_header() -> None:
    length_error = HttpError(400, "too long", code="context_length_exceeded", param="messages")
    date = http_date(timedelta(seconds=90))
    async with ModelServer(length_error, busy(retry_after=2), busy(retry_after=date), HttpError(503)) as server:
        responses = [await post_chat(server) for _ in range(4)]
    assert [response.status_code for response in responses] == [400, 429, 429, 503]
    error = {"message": "too long", "type": "invalid_request_error", "param": "messages"}
    assert responses[0].json() == {"error": {**error, "code": "context_length_exceeded"}}
    assert (responses[1].headers["retry-after"], "retry-after" in responses[3].headers) == ("2", False)
    delay = parsedate_to_datetime(responses[2].headers["retry-after"]) - datetime.now(UTC)
    assert timedelta(seconds=60) < delay <= timedelta(seconds=90)


THREE_WORDS = Completion(text="one two three")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Reset(), httpx.ReadError),
        (slow(THREE_WORDS, cut_after=1, cut=Cut.RESET), httpx.ReadError),
        (slow(THREE_WORDS, cut_after=1, cut=Cut.CLOSE), httpx.RemoteProtocolError),
    ],
)
async def test_connection_is_broken_as_the_script_defines(answer: Any, error: type[Exception]) -> None:
    async with ModelServer(answer, answer) as server:
        for stream in (True, False):
            with pytest.raises(error):
                await post_chat(server, stream=stream)


async def test_stream_may_end_early_without_an_error() -> None:
    async with ModelServer(slow(THREE_WORDS, cut_after=1, cut=Cut.END)) as server:
        response = await post_chat(server, stream=True)
    assert [part in response.text for part in ("one two ", "three", "[DONE]")] == [True, False, False]


async def _start_pending_call(server: ModelServer) -> asyncio.Future[httpx.Response]:
    pending_call = asyncio.ensure_future(post_chat(server))
    while not server.calls:
        await asyncio.wait({pending_call}, timeout=0.01)
    assert not pending_call.done()
    return pending_call


async def test_silence_lasts_until_the_client_disconnects() -> None:
    async with ModelServer(Silence(), "later") as server:
        (await _start_pending_call(server)).cancel()
        assert message_of(await post_chat(server))["content"] == "later"


async def test_held_response_is_sent_when_it_is_released() -> None:
    release_event = asyncio.Event()
    async with ModelServer(step("held", release_event=release_event), "free") as server:
        held_call = await _start_pending_call(server)
        assert message_of(await post_chat(server))["content"] == "free"
        assert not held_call.done()
        release_event.set()
        assert message_of(await held_call)["content"] == "held"


async def test_unexpected_call_is_rejected_and_reported() -> None:
    with pytest.raises(ScriptNotFollowed) as caught:
        async with ModelServer(step("x", when=When(model="large"))) as server:
            rejected_response = await post_chat(server, "What now?", metadata={"node_id": "n1"})
    error = rejected_response.json()["error"]
    assert (rejected_response.status_code, error["code"]) == (400, "unexpected_call")
    assert error["message"].endswith(
        "the most similar step is step 1 (when model='large'); the call does not match its model"
    )
    assert str(caught.value).splitlines() == [
        "the script of the model server was not followed",
        "calls without a matching step:",
        "  - POST /v1/chat/completions model='small' metadata={\"node_id\": \"n1\"} last message: 'What now?'",
        "unused steps:",
        "  - step 1 when model='large': text 'x'",
    ]
    with pytest.raises(ScriptNotFollowed, match="POST /v1/embeddings"):
        async with ModelServer() as server, httpx.AsyncClient() as client:
            assert (await client.post(f"{server.base_url}/embeddings", json={})).status_code == 404


async def test_unused_step_is_reported_and_added_to_an_earlier_error_as_a_note() -> None:
    message = r"unused steps:\n  - step 2 \(1 of 2 used\): text 'two'"
    with pytest.raises(ScriptNotFollowed, match=message):
        async with ModelServer("one", step("two", times=2)) as server:
            assert [(await post_chat(server)).status_code for _ in range(2)] == [200, 200]
    with pytest.raises(KeyError) as caught:
        async with ModelServer("unused"):
            raise KeyError("first")
    assert "unused steps" in caught.value.__notes__[0]


async def test_server_rejects_unknown_models_and_api_keys() -> None:
    async with ModelServer("Hi", models=["small", "large"], api_keys=["right"]) as server:
        async with httpx.AsyncClient() as client:
            model_list = (await client.get(f"{server.base_url}/models")).json()
        wrong_key_response = await post_chat(server, key="wrong")
        unknown_model_response = await post_chat(server, key="right", model="huge")
        assert message_of(await post_chat(server, key="right"))["content"] == "Hi"
    assert [model["id"] for model in model_list["data"]] == ["small", "large"]
    assert (wrong_key_response.status_code, wrong_key_response.json()["error"]["code"]) == (401, "invalid_api_key")
    assert unknown_model_response.status_code == 404
    assert unknown_model_response.json()["error"]["code"] == "model_not_found"


OPEN_SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
STRICT_SCHEMA = {**OPEN_SCHEMA, "required": ["a"], "additionalProperties": False}


def schema_format(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}


LOOK_CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
CALLS_MESSAGE = {"role": "assistant", "content": None, "tool_calls": [LOOK_CALL]}
USER_MESSAGE = {"role": "user", "content": "?"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": ""}, "model parameter"),
        ({"messages": []}, "at least one message"),
        ({"messages": [{"role": "robot", "content": "?"}]}, "role"),
        ({"messages": [{"role": "user", "content": None}]}, "content"),
        ({"messages": [USER_MESSAGE, {"role": "assistant", "content": None, "tool_calls": [{}]}]}, "tool_calls[0].id"),
        ({"messages": [USER_MESSAGE, CALLS_MESSAGE]}, "without a response: c1"),
        ({"messages": [USER_MESSAGE, CALLS_MESSAGE, USER_MESSAGE]}, "Missing: c1"),
        ({"messages": [USER_MESSAGE, {"role": "tool", "tool_call_id": "c1", "content": "x"}]}, "preceeding"),
        ({"metadata": {"a": 1}}, "Invalid 'metadata'"),
        ({"metadata": {"a": "x" * 513}}, "Invalid 'metadata'"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"tools": []}, "empty array"),
        ({"tools": [{"type": "function", "function": {"name": "a.b"}}]}, "tool name"),
        ({"response_format": {"type": "json_object"}}, "contain the word 'json'"),
        ({"response_format": schema_format(OPEN_SCHEMA)}, "additionalProperties"),
        ({"response_format": schema_format({**STRICT_SCHEMA, "required": []})}, "Missing 'a'"),
        ({"response_format": schema_format({"type": "array", "items": STRICT_SCHEMA})}, "'type: \"object\"'"),
        ({"response_format": schema_format({**STRICT_SCHEMA, "oneOf": []})}, "'oneOf' is not permitted"),
    ],
)
async def test_request_that_openai_would_reject_is_rejected_and_reported(fields: Any, message: str) -> None:
    with pytest.raises(ScriptNotFollowed, match="requests that violate the protocol"):
        async with ModelServer() as server:
            response = await post_chat(server, **fields)
    assert response.status_code == 400
    assert message in response.json()["error"]["message"]


async def test_valid_requests_of_every_kind_are_accepted() -> None:
    conversation = [USER_MESSAGE, CALLS_MESSAGE, {"role": "tool", "tool_call_id": "c1", "content": "x"}]
    strict_tool = {"type": "function", "function": {"name": "look", "parameters": STRICT_SCHEMA, "strict": True}}
    async with ModelServer(json_text({"a": "b"}), tool_call("look", at="x"), "done") as server:
        fields: Any = ({"response_format": schema_format(STRICT_SCHEMA)}, {"tools": [strict_tool]})
        responses = [await post_chat(server, **each) for each in (*fields, {"messages": conversation})]
    assert [message_of(response)["content"] for response in responses] == ['{"a": "b"}', None, "done"]


async def test_connection_is_reused() -> None:
    async with ModelServer("one", "two", "three") as server, httpx.AsyncClient() as client:
        body = {"model": "m", "messages": [USER_MESSAGE]}
        for expected in ("one", "two"):
            response = await client.post(f"{server.base_url}/chat/completions", json=body)
            assert message_of(response)["content"] == expected
            assert response.headers.get("connection") != "close"
        streamed_response = await client.post(f"{server.base_url}/chat/completions", json={**body, "stream": True})
        assert len(events_of(streamed_response)) == 3


async def test_fixture_starts_servers_with_separate_scripts(model_server: StartModelServer) -> None:
    first_server, second_server = await model_server("one"), await model_server("two", models=["large"])
    assert message_of(await post_chat(second_server, model="large"))["content"] == "two"
    assert message_of(await post_chat(first_server))["content"] == "one"


def test_invalid_steps_are_rejected_and_invalid_json_arguments_are_kept() -> None:
    with pytest.raises(TypeError, match="7 is not a response"):
        step(7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="times is 0"):
        step("x", times=0)
    assert ScriptedToolCall("look", '{"at": ').arguments_text == '{"at": '


async def test_send_times_of_streamed_chunks_are_recorded() -> None:
    release_event = asyncio.Event()
    held_stream = slow(text("abcdefghij"), chunk_characters=4, held_after_chunks=2, release_event=release_event)
    async with ModelServer("whole", held_stream) as server:
        await post_chat(server)
        request = asyncio.create_task(post_chat(server, stream=True))
        await eventually(lambda: [len(sent) for sent in server.sent_at] == [0, 2])
        release_event.set()
        await request
        times_of_unstreamed_response, chunk_times = server.sent_at
    assert list(times_of_unstreamed_response) == []
    assert (len(chunk_times), list(chunk_times)) == (3, sorted(chunk_times))
