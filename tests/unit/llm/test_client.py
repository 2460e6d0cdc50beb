"""The model client with the scripted server: requests, and complete and streamed responses."""

import asyncio
import json
import resource
import subprocess
import sys
from decimal import Decimal

import pytest

from dagwright.llm import (
    CallLabels,
    Endpoint,
    Message,
    ModelCall,
    ModelClient,
    ModelConfig,
    ModelError,
    OfferedTool,
    PriceTable,
    ToolCall,
    Usage,
    system,
    tool_result,
    user,
)
from dagwright.testing import Completion, ModelServer, Pace, Raw, Silence, Tokens, When, step, text, tool_calls
from tests.unit.llm.scripted_calls import (
    KEY,
    client_of,
    complete,
    failure_of,
    failure_of_client,
    model_call,
    read_response,
)

pytestmark = pytest.mark.waits

FULL_CONFIG = ModelConfig(model="large", temperature=0.5, max_tokens=7, top_p=0.9, seed=3, reasoning_effort="low")
LABELS = CallLabels(run_id="run-1", node_id="plan", purpose="planner")
TOKENS = Tokens(100, 20, cached=40, reasoning=5)


async def test_request_has_only_the_fields_that_are_set() -> None:
    async with (
        ModelServer("Hi", "Hi", "Hi") as server,
        ModelClient(Endpoint(server.base_url, f"{KEY}\n"), model="small") as client,
    ):
        answer = await client.complete(model_call())
        await client.complete(ModelCall((system("Be brief."), user("Hello?")), config=FULL_CONFIG, labels=LABELS))
        await client.complete(model_call(labels=CallLabels(node_id="n" * 600)))
    minimal_call, full_call, long_label_call = server.calls
    hello = {"role": "user", "content": "Hello?"}
    assert (answer.text, minimal_call.api_key) == ("Hi", KEY)
    assert minimal_call.body == {"model": "small", "messages": [hello]}
    assert full_call.body == {
        **{"model": "large", "temperature": 0.5, "max_tokens": 7, "top_p": 0.9, "seed": 3, "reasoning_effort": "low"},
        "messages": [{"role": "system", "content": "Be brief."}, hello],
        "metadata": {"run_id": "run-1", "node_id": "plan", "purpose": "planner"},
    }
    assert long_label_call.metadata == {"node_id": "n" * 512}


async def test_answer_has_its_model_and_usage() -> None:
    async with ModelServer(Completion(text="Hi", model="gpt-4o-2024-08-06", tokens=TOKENS)) as server:
        answer = await complete(server, model_call(config=ModelConfig(model="gpt-4o")))
    assert (answer.model, answer.finish_reason) == ("gpt-4o-2024-08-06", "stop")
    # Per million tokens: 60 uncached at 2.50, 40 cached at 1.25, and 20 completion tokens at 10.00.
    tokens = {"prompt_tokens": 100, "completion_tokens": 20, "cached_tokens": 40, "reasoning_tokens": 5}
    assert answer.usage == Usage(calls=1, money=Decimal("0.0004"), **tokens)


@pytest.mark.parametrize(
    ("answer", "usage"),
    [
        (text("Hi", tokens=Tokens(3, 4)), Usage(calls=1, prompt_tokens=3, completion_tokens=4, unpriced_calls=1)),
        (text("Hi", has_usage=False), Usage(calls=1, uncounted_calls=1)),
        (text("Hi", tokens=Tokens(10**400, 4)), Usage(calls=1, uncounted_calls=1)),
    ],
)
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_missing_usage_or_price_is_counted_as_unknown_and_not_as_zero(
    answer: Completion, usage: Usage, is_streamed: bool
) -> None:
    async with ModelServer(answer) as server, client_of(server) as client:
        actual = await read_response(client, model_call(), is_streamed=is_streamed)
    assert (actual.text, actual.usage) == ("Hi", usage)
    assert actual.usage.cost is None


async def test_stream_yields_pieces_and_the_complete_answer_at_its_end() -> None:
    async with (
        ModelServer(text("one two three", tokens=TOKENS)) as server,
        client_of(server) as client,
        client.stream(model_call(labels=LABELS)) as stream,
    ):
        with pytest.raises(RuntimeError, match="read to its end"):
            stream.answer  # noqa: B018
        pieces = [piece async for piece in stream]
    assert pieces == ["one two ", "three"]
    assert (stream.answer.text, stream.text, stream.answer.usage.tokens) == ("one two three", "one two three", 120)
    assert server.calls[0].body["stream_options"] == {"include_usage": True}
    assert server.calls[0].metadata == LABELS.to_json()


async def test_stream_that_is_not_read_to_its_end_has_no_answer() -> None:
    async with ModelServer(text("one two three four five six seven")) as server, client_of(server) as client:
        async with client.stream(model_call()) as stream:
            assert await anext(aiter(stream)) == "one two "
        with pytest.raises(RuntimeError, match="read to its end"):
            stream.answer  # noqa: B018


WEATHER_TOOL = OfferedTool("weather.now", "Looks out of the window.", {"type": "object", "properties": {"at": {}}})
TOOL_WITH_CLASHING_NAME = OfferedTool("weather_now")
"""Services do not accept dots. With an underscore for the dot, `weather.now` would have the name of this tool."""


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_original_names_of_called_tools_are_restored(is_streamed: bool) -> None:
    call = model_call(tools=(WEATHER_TOOL, TOOL_WITH_CLASHING_NAME), tool_choice="weather.now")
    async with ModelServer("?") as server:
        await complete(server, call)
    sent_names = server.calls[0].tools
    assert (sent_names[0][:12], len(sent_names[0]), sent_names[1]) == ("weather_now_", 20, "weather_now")
    assert server.calls[0].body["tool_choice"] == {"type": "function", "function": {"name": sent_names[0]}}
    response = tool_calls((sent_names[0], {"at": "Oslo"}), ("weather_now", {}), ("not_offered", {}))
    async with ModelServer(response) as server, client_of(server) as client:
        answer = await read_response(client, call, is_streamed=is_streamed)
    assert [(called_tool.name, called_tool.arguments) for called_tool in answer.message.tool_calls] == [
        ("weather.now", '{"at": "Oslo"}'),
        ("weather_now", "{}"),
        ("not_offered", "{}"),
    ]
    assert (answer.finish_reason, answer.text) == ("tool_calls", "")


async def test_conversation_continues_with_the_results_of_tools() -> None:
    call = ToolCall(id="c1", name="weather.now", arguments='{"at": "Oslo"}')
    async with ModelServer("Cold.") as server:
        message = Message(role="assistant", tool_calls=(call,))
        messages = (*model_call().messages, message, tool_result(call, "-4"))
        answer = await complete(server, ModelCall(messages, tools=(WEATHER_TOOL,)))
    assert answer.text == "Cold."
    function = {"name": "weather_now", "arguments": '{"at": "Oslo"}'}
    assert server.calls[0].messages[1:] == [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": function}]},
        {"role": "tool", "content": "-4", "tool_call_id": "c1"},
    ]


async def test_call_without_a_model_or_a_key_is_not_sent() -> None:
    failure = await failure_of(model=None)
    assert (failure.error, str(failure)) == (
        ModelError.MODEL_NOT_SET,
        "no model is named; name a model in the request, or set DAGWRIGHT_MODEL for the worker "
        "(`dagwright up` passes its environment to the workers that it starts)",
    )
    assert (await failure_of_client(ModelClient(Endpoint(), model="m"))).error is ModelError.KEY_MISSING


@pytest.mark.parametrize("key", [f"{KEY}\r\nx: y", "ключ-ключ", f"{KEY} {KEY}", f"{KEY}\x00"])
async def test_key_that_is_invalid_in_a_header_is_rejected_and_hidden(key: str) -> None:
    async with ModelServer() as server:
        failure = await failure_of_client(ModelClient(Endpoint(server.base_url, key), model="m"))
    assert (failure.error, "its key contains a line break" in str(failure)) == (ModelError.KEY_REJECTED, True)
    assert [part for part in (KEY, "ключ") if part in repr(failure)] == []


@pytest.mark.parametrize("address", ["not a url", "ftp://models.example.com", "localhost:4000", "http://"])
async def test_invalid_address_is_not_retried(address: str) -> None:
    failure = await failure_of_client(ModelClient(Endpoint(address, KEY), model="m"))
    assert (failure.error, "OPENAI_BASE_URL" in str(failure)) == (ModelError.ADDRESS_INVALID, True)


async def test_complete_response_is_accepted_for_a_stream_request() -> None:
    message = {"role": "assistant", "content": "Hello"}
    body = {"model": "m-1", "choices": [{"message": message}], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}
    async with ModelServer(Raw(json.dumps(body).encode())) as server, client_of(server) as client:
        answer = await read_response(client, model_call(), is_streamed=True)
    assert (answer.text, answer.model, answer.usage.prompt_tokens) == ("Hello", "m-1", 3)


async def test_call_can_be_cancelled_and_a_closed_client_can_be_reused() -> None:
    async with ModelServer(Silence(), "one", "two") as server, client_of(server) as client:
        pending_call = asyncio.ensure_future(client.complete(model_call()))
        while not server.calls:
            await asyncio.wait({pending_call}, timeout=0.01)
        pending_call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pending_call
        assert (await client.complete(model_call())).text == "one"
        await client.close()
        assert (await client.complete(model_call())).text == "two"


CALL_COUNT = 120


def numbered_call(number: int) -> ModelCall:
    config = ModelConfig(model=f"model-{number % 2}", seed=number)
    return model_call(f"What is {number}?", config=config, labels=CallLabels(node_id=f"n{number}"))


async def test_concurrent_calls_are_not_mixed_and_leak_no_memory() -> None:
    """Each call has a unique text, seed and label. A quarter of the calls is streamed."""

    def answer_text(number: int) -> str:
        return f"It is {number}." + "x" * 10_000

    def answer_of(number: int) -> Completion:
        tokens, pace = Tokens(number, number), Pace(chunk_characters=500)
        return text(answer_text(number), model=f"model-{number % 2}", tokens=tokens, pace=pace)

    async def check_answer(client: ModelClient, number: int) -> None:
        actual = await read_response(client, numbered_call(number), is_streamed=number % 4 == 0)
        expected = (answer_text(number), f"model-{number % 2}", number)
        assert (actual.text, actual.model, actual.usage.prompt_tokens) == expected

    steps = [
        step(answer_of(number), when=When(metadata={"node_id": f"n{number}"}), times=3) for number in range(CALL_COUNT)
    ]
    async with ModelServer(*steps) as server, client_of(server, prices=PriceTable()) as client:
        await asyncio.gather(*(check_answer(client, number) for number in range(CALL_COUNT)))
        memory_before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(2):
            await asyncio.gather(*(check_answer(client, number) for number in range(CALL_COUNT)))
        memory_growth_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory_before_kib
    received_calls = [(call.metadata["node_id"], call.text, call.model, call.body["seed"]) for call in server.calls]
    sent_calls = 3 * [(f"n{n}", f"What is {n}?", f"model-{n % 2}", n) for n in range(CALL_COUNT)]
    assert sorted(received_calls) == sorted(sent_calls)
    assert memory_growth_kib < 64 * 1024


def test_openai_library_is_not_imported_before_the_first_call() -> None:
    code = (
        "import sys, worker, dagwright.llm, dagwright.toolset.toolset\n"
        "print(sorted(name for name in sys.modules if name.split('.')[0] in ('openai', 'httpx2')))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_too_long_response_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch, is_streamed: bool) -> None:
    monkeypatch.setattr("dagwright.llm.transport.MAX_RESPONSE_BYTES", 1_000)
    body = {"choices": [{"message": {"role": "assistant", "content": "x" * 1_000}}]}
    async with ModelServer(Raw(json.dumps(body).encode())) as server:
        failure = await failure_of_client(client_of(server), is_streamed=is_streamed)
    assert "returned over 1,000 bytes" in str(failure)
    assert failure.error is ModelError.OUTPUT_INVALID


async def test_endless_stream_and_undecodable_answer_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagwright.llm.client.MAX_ANSWER_CHARACTERS", 1_000)
    async with ModelServer(text(" " * 10_000)) as server:
        failure = await failure_of_client(client_of(server), is_streamed=True)
    assert "exceeded the limit of 1,000 characters per answer" in str(failure)
    assert (failure.error, len(failure.partial)) == (ModelError.OUTPUT_INVALID, 1_000)
    failure = await failure_of(Raw(b'{"choices": []}', headers={"content-encoding": "gzip"}))
    assert (failure.error, "broke off" in str(failure)) == (ModelError.UNAVAILABLE, True)
