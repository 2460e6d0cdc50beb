"""The model client against the scripted server: what is sent, and what comes back, whole and streamed."""

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
    ModelFailure,
    OfferedTool,
    PriceTable,
    ToolCall,
    Usage,
    system,
    tool_result,
    user,
)
from dagwright.testing import Completion, ModelServer, Pace, Raw, Silence, Tokens, step, text, tool_calls
from tests.unit.llm.asking import KEY, ask, client_of, failure_of, read, saying

pytestmark = pytest.mark.waits

ALL = ModelConfig(model="large", temperature=0.5, max_tokens=7, top_p=0.9, seed=3, reasoning_effort="low")
LABELS = CallLabels(run="run-1", node="plan", purpose="planner")
USED = Tokens(100, 20, cached=40, reasoning=5)


async def test_what_is_not_set_is_not_sent() -> None:
    async with ModelServer("Hi") as server:
        answer = await ask(server)
    assert answer.text == "Hi"
    assert server.calls[0].body == {"model": "small", "messages": [{"role": "user", "content": "Hello?"}]}
    assert server.calls[0].api_key == KEY


async def test_what_is_set_is_sent_with_the_labels() -> None:
    async with ModelServer("Hi") as server:
        await ask(server, ModelCall((system("Be brief."), user("Hello?")), config=ALL, labels=LABELS))
    assert server.calls[0].body == {
        "model": "large",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello?"}],
        "temperature": 0.5,
        "max_tokens": 7,
        "top_p": 0.9,
        "seed": 3,
        "reasoning_effort": "low",
        "metadata": {"run": "run-1", "node": "plan", "purpose": "planner"},
    }


async def test_labels_are_cut_to_what_the_protocol_takes() -> None:
    async with ModelServer("Hi") as server:
        await ask(server, saying(labels=CallLabels(node="n" * 600)))
    assert server.calls[0].metadata == {"node": "n" * 512}


async def test_an_answer_tells_its_model_and_what_it_used() -> None:
    async with ModelServer(Completion(text="Hi", model="gpt-4o-2024-08-06", tokens=USED)) as server:
        answer = await ask(server, saying(config=ModelConfig(model="gpt-4o")))
    assert (answer.model, answer.finish_reason) == ("gpt-4o-2024-08-06", "stop")
    assert answer.usage == Usage(
        calls=1,
        prompt_tokens=100,
        completion_tokens=20,
        cached_tokens=40,
        reasoning_tokens=5,
        # 60 fresh at 2.50, 40 cached at 1.25 and 20 written at 10.00 for a million.
        money=Decimal("0.0004"),
    )


@pytest.mark.parametrize(
    ("answer", "usage"),
    [
        (text("Hi", tokens=Tokens(3, 4)), Usage(calls=1, prompt_tokens=3, completion_tokens=4, unpriced_calls=1)),
        (text("Hi", has_usage=False), Usage(calls=1, uncounted_calls=1)),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_what_is_not_known_of_a_usage_is_never_none(answer: Completion, usage: Usage, streamed: bool) -> None:
    async with ModelServer(answer) as server, client_of(server) as client:
        found = await read(client, saying(), streamed=streamed)
    assert (found.text, found.usage) == ("Hi", usage)
    assert found.usage.cost is None


async def test_a_stream_gives_the_text_in_pieces_and_the_whole_at_its_end() -> None:
    async with (
        ModelServer(text("one two three", tokens=USED)) as server,
        client_of(server) as client,
        client.stream(saying(labels=LABELS)) as stream,
    ):
        with pytest.raises(RuntimeError, match="read to its end"):
            stream.answer  # noqa: B018
        pieces = [words async for words in stream]
    assert pieces == ["one two ", "three"]
    assert (stream.answer.text, stream.text, stream.answer.usage.tokens) == ("one two three", "one two three", 120)
    assert server.calls[0].body["stream_options"] == {"include_usage": True}
    assert server.calls[0].metadata == LABELS.to_json()


async def test_a_stream_that_is_left_ends_the_call() -> None:
    async with ModelServer(text("one two three four five six seven")) as server, client_of(server) as client:
        async with client.stream(saying()) as stream:
            async for words in stream:
                assert words == "one two "
                break
        with pytest.raises(RuntimeError, match="read to its end"):
            stream.answer  # noqa: B018


WEATHER = OfferedTool("weather.now", "Looks out of the window.", {"type": "object", "properties": {"at": {}}})
OTHER = OfferedTool("weather_now")


@pytest.mark.parametrize("streamed", [False, True])
async def test_tools_have_their_own_names_again_and_are_called_together(streamed: bool) -> None:
    call = saying(tools=(WEATHER, OTHER), tool_choice="weather.now")
    async with ModelServer("?") as server:
        await ask(server, call)
    sent = server.calls[0].tools
    assert (sent[0][:12], len(sent[0]), sent[1]) == ("weather_now_", 20, "weather_now")
    assert server.calls[0].body["tool_choice"] == {"type": "function", "function": {"name": sent[0]}}
    wanted = tool_calls((sent[0], {"at": "Oslo"}), ("weather_now", {}), ("never", {}))
    async with ModelServer(wanted) as server, client_of(server) as client:
        answer = await read(client, call, streamed=streamed)
    assert [(each.name, each.arguments) for each in answer.message.tool_calls] == [
        ("weather.now", '{"at": "Oslo"}'),
        ("weather_now", "{}"),
        ("never", "{}"),
    ]
    assert (answer.finish_reason, answer.text) == ("tool_calls", "")


async def test_a_conversation_goes_on_with_the_results_of_tools() -> None:
    call = ToolCall(id="c1", name="weather.now", arguments='{"at": "Oslo"}')
    async with ModelServer("Cold.") as server:
        asked = saying(tools=(WEATHER,))
        said = Message(role="assistant", tool_calls=(call,))
        answer = await ask(server, ModelCall((*asked.messages, said, tool_result(call, "-4")), tools=(WEATHER,)))
    assert answer.text == "Cold."
    assert server.calls[0].messages[1:] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "weather_now", "arguments": '{"at": "Oslo"}'}}
            ],
        },
        {"role": "tool", "content": "-4", "tool_call_id": "c1"},
    ]


async def test_without_a_model_or_a_key_nothing_is_asked() -> None:
    failure = await failure_of(model=None)
    assert (failure.error, str(failure)) == (
        ModelError.MODEL_MISSING,
        "no model is named; name one in the request, or set DAGWRIGHT_MODEL of the worker "
        "(one of `dagwright up` has the environment in which it was started)",
    )
    with pytest.raises(ModelFailure) as caught:
        await ModelClient(Endpoint(), model="m").complete(saying())
    assert caught.value.error is ModelError.KEY_MISSING


async def test_a_key_is_sent_without_the_line_end_behind_it() -> None:
    async with ModelServer("Hi") as server, ModelClient(Endpoint(server.base_url, f"{KEY}\n"), model="m") as client:
        await client.complete(saying())
    assert server.calls[0].api_key == KEY


@pytest.mark.parametrize("key", [f"{KEY}\nmore", f"{KEY}\r\nx: y", "ключ-ключ", f"{KEY} {KEY}", f"{KEY}\x00"])
async def test_a_key_that_no_header_can_carry_is_refused_and_told_nowhere(key: str) -> None:
    async with ModelServer() as server, ModelClient(Endpoint(server.base_url, key), model="m") as client:
        with pytest.raises(ModelFailure) as caught:
            await client.complete(saying())
    assert caught.value.error is ModelError.KEY_REFUSED
    assert "its key holds a line end" in str(caught.value)
    assert KEY not in repr(caught.value)
    assert "ключ" not in repr(caught.value)


@pytest.mark.parametrize("address", ["not a url", "ftp://models.example.com", "localhost:4000", "http://"])
async def test_an_address_that_is_none_is_not_tried_again_and_again(address: str) -> None:
    async with ModelClient(Endpoint(address, KEY), model="m") as client:
        with pytest.raises(ModelFailure) as caught:
            await client.complete(saying())
    assert caught.value.error is ModelError.ADDRESS_WRONG
    assert "OPENAI_BASE_URL" in str(caught.value)


async def test_an_answer_in_one_piece_is_taken_where_a_stream_was_asked_for() -> None:
    said = {"role": "assistant", "content": "Hello"}
    body = {"model": "m-1", "choices": [{"message": said}], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}
    async with (
        ModelServer(Raw(json.dumps(body).encode())) as server,
        client_of(server) as client,
        client.stream(saying()) as stream,
    ):
        pieces = [words async for words in stream]
    assert (pieces, stream.answer.text, stream.answer.model) == (["Hello"], "Hello", "m-1")
    assert stream.answer.usage.prompt_tokens == 3


async def test_a_stream_that_does_not_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagwright.llm.client.ANSWER_CHARACTERS", 1_000)
    async with ModelServer(text(" " * 10_000)) as server, client_of(server) as client:
        with pytest.raises(ModelFailure) as caught:
            await read(client, saying(), streamed=True)
    assert caught.value.error is ModelError.OUTPUT_INVALID
    assert "wrote over 1,000 characters and did not come to an end" in str(caught.value)
    assert len(caught.value.partial) == 1_000


async def test_a_call_can_be_cancelled() -> None:
    async with ModelServer(Silence(), "next") as server, client_of(server) as client:
        asked = asyncio.ensure_future(client.complete(saying()))
        while not server.calls:
            await asyncio.wait({asked}, timeout=0.01)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert (await client.complete(saying())).text == "next"


async def test_a_client_that_was_closed_can_be_used_again() -> None:
    async with ModelServer("one", "two") as server, client_of(server) as client:
        assert (await client.complete(saying())).text == "one"
        await client.close()
        assert (await client.complete(saying())).text == "two"


CALLS = 200


def echo(number: int) -> ModelCall:
    config = ModelConfig(model=f"model-{number % 2}", seed=number)
    return saying(f"What is {number}?", config=config, labels=CallLabels(node=f"n{number}"))


async def test_two_hundred_calls_at_once_never_mix_and_take_no_memory() -> None:
    """Each call has its own words, model, labels and manner of answer; a quarter of them is streamed."""
    steps = [
        step(
            text(
                f"It is {number}." + "x" * 10_000,
                model=f"model-{number % 2}",
                tokens=Tokens(number, number),
                pace=Pace(characters=500),
            ),
            metadata={"node": f"n{number}"},
            times=3,
        )
        for number in range(CALLS)
    ]

    async def answer(client: ModelClient, number: int) -> None:
        found = await read(client, echo(number), streamed=number % 4 == 0)
        assert found.text == f"It is {number}." + "x" * 10_000
        assert (found.model, found.usage.prompt_tokens) == (f"model-{number % 2}", number)

    async with ModelServer(*steps) as server, client_of(server, prices=PriceTable()) as client:
        await asyncio.gather(*(answer(client, number) for number in range(CALLS)))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(2):
            await asyncio.gather(*(answer(client, number) for number in range(CALLS)))
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    asked = [(call.metadata["node"], call.text, call.model, call.body["seed"]) for call in server.calls]
    assert sorted(asked) == sorted(3 * [(f"n{n}", f"What is {n}?", f"model-{n % 2}", n) for n in range(CALLS)])
    assert grown_kib < 64 * 1024


def test_the_library_of_openai_is_imported_with_the_first_call_and_not_before() -> None:
    code = (
        "import sys, worker, dagwright.llm, dagwright.toolset.toolset\n"
        "print(sorted(name for name in sys.modules if name.split('.')[0] in ('openai', 'httpx2')))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_an_answer_in_one_piece_that_is_too_long_is_not_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch, *, is_streamed: bool
) -> None:
    monkeypatch.setattr("dagwright.llm.transport.ANSWER_BYTES", 1_000)
    body = {"choices": [{"message": {"role": "assistant", "content": "x" * 1_000}}]}
    async with ModelServer(Raw(json.dumps(body).encode())) as server, client_of(server) as client:
        with pytest.raises(ModelFailure) as caught:
            await read(client, saying(), streamed=is_streamed)
    assert caught.value.error is ModelError.OUTPUT_INVALID
    assert "answered with over 1,000 bytes" in str(caught.value)


async def test_an_answer_in_one_piece_that_cannot_be_read_on_says_so() -> None:
    failure = await failure_of(Raw(b'{"choices": []}', headers={"content-encoding": "gzip"}))
    assert failure.error is ModelError.UNAVAILABLE
    assert "broke off" in str(failure)
