"""Tools that call a model: responses, usage, failures, secrets, and the reuse of results."""

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload

from dagwright.core.boundary.usage_reports import Usage, usage_from_json
from dagwright.core.boundary.wire import HEADER_BINDINGS, HEADER_CACHE, HEADER_MODEL
from dagwright.llm import Action, ModelConfig, system, user
from dagwright.testing import HttpError, ModelServer, Tokens, When, busy, json_text, slow, step, text
from dagwright.tools import GiveUp, ToolRegistry, context, tool
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.testing import tool_context
from tests.support.eventually import eventually
from tests.support.tool_harness import ToolHarness, clients_of

NUMBER_SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class ModelToolHarness(ToolHarness):
    """Call one tool as a worker does, with a scripted model server or without a model."""

    def __init__(self, function: Callable[..., Any], server: ModelServer | None) -> None:
        environment = ToolEnvironment(Path(), find_secret={"TOKEN": "very-secret"}.get)
        models = clients_of(server) if server is not None else None
        super().__init__(ToolRegistry.of(function), environment, models)


@tool(effects="read")
async def compare(first: str, second: str) -> list[Any]:
    """Asks a model two questions in sequence."""
    first_response = await context().ask_model(first)
    second_response = await context().ask_model(
        [system("Be brief."), user(second)], purpose="count", output=NUMBER_SCHEMA, config=ModelConfig(model="large")
    )
    return [first_response.text, second_response.output]


@tool(effects="read", secrets=["TOKEN"])
def count(words: str) -> Any:
    """Asks a model one question from a thread."""
    return context().ask_model(words, output=NUMBER_SCHEMA).wait().output


def usage_of(payload: Payload) -> Usage:
    return usage_from_json(json.loads(payload.metadata["dagwright-usage"]))


async def test_async_tool_calls_models_and_its_result_reports_the_total_usage() -> None:
    steps = (text("Hi", tokens=Tokens(3, 4)), json_text({"n": 2}, tokens=Tokens(10, 20)))
    async with ModelServer(*steps) as server:
        payload = await ModelToolHarness(compare, server).payload({"first": "Hello?", "second": "How many?"})
    assert json.loads(payload.data) == ["Hi", {"n": 2}]
    assert usage_of(payload) == Usage(calls=2, prompt_tokens=13, completion_tokens=24, unpriced_calls=2)
    labels, second_message = {"run_id": "test", "node_id": "n1"}, {"role": "user", "content": "How many?"}
    assert [(call.model, call.metadata, call.messages) for call in server.calls] == [
        ("small", {**labels, "purpose": "tool"}, [{"role": "user", "content": "Hello?"}]),
        ("large", {**labels, "purpose": "count"}, [{"role": "system", "content": "Be brief."}, second_message]),
    ]


async def test_tool_calls_the_model_of_the_run_unless_the_tool_names_a_model() -> None:
    headers = {HEADER_MODEL: {"model": "model-of-run", "temperature": 0.5}}
    async with ModelServer(text("Hi"), json_text({"n": 2})) as server:
        await ModelToolHarness(compare, server).payload({"first": "?", "second": "?"}, **headers)
    assert [(call.model, call.body["temperature"]) for call in server.calls] == [("model-of-run", 0.5), ("large", 0.5)]


async def test_model_calls_of_a_tool_are_concurrent() -> None:
    release_event = asyncio.Event()

    @tool(effects="read")
    async def ask_twice() -> list[str]:
        answers = await asyncio.gather(*(context().ask_model(question) for question in ("one", "two")))
        return [answer.text for answer in answers]

    steps = (step("first", when=When(last="one"), release_event=release_event), step("second", when=When(last="two")))
    async with ModelServer(*steps) as server:
        tool_call = asyncio.create_task(ModelToolHarness(ask_twice, server).payload({}))
        await eventually(lambda: tool_call.done() or len(server.calls) == 2)
        release_event.set()
        payload = await tool_call
    assert (json.loads(payload.data), usage_of(payload).calls) == (["first", "second"], 2)


async def test_sync_tool_calls_a_model_from_its_thread() -> None:
    async with ModelServer(json_text({"n": 7})) as server:
        payload = await ModelToolHarness(count, server).payload({"words": "How many?"})
    assert (json.loads(payload.data), usage_of(payload).calls) == ({"n": 7}, 1)


@pytest.mark.parametrize("function", [compare, count])
async def test_busy_model_is_retried_after_the_requested_delay(function: Callable[..., Any]) -> None:
    async with ModelServer(busy(retry_after=7)) as server:
        arguments = {"words": "?"} if function is count else {"first": "?", "second": "?"}
        failure = await ModelToolHarness(function, server).failure(arguments)
    assert (failure.type, failure.non_retryable) == ("model_busy", False)
    assert failure.next_retry_delay == timedelta(seconds=7)


async def test_failure_of_a_model_call_reports_advice_and_usage() -> None:
    steps = (text("Hi", tokens=Tokens(3, 4)), HttpError(401, "Incorrect API key", code="invalid_api_key"))
    async with ModelServer(*steps) as server:
        failure = await ModelToolHarness(compare, server).failure({"first": "?", "second": "?"})
    assert (failure.type, failure.non_retryable) == ("model_key_rejected", True)
    [detail] = failure.details
    expected = (Action.GIVE_UP, Usage(calls=1, prompt_tokens=3, completion_tokens=4, unpriced_calls=1))
    assert (detail["action"], usage_from_json(detail["usage"])) == expected
    advice = f"set OPENAI_API_KEY for the worker to a key that {server.base_url} accepts"
    assert detail["advice"] == advice
    assert failure.message.endswith(advice)


async def test_unusable_response_of_a_model_counts_toward_usage() -> None:
    async with ModelServer(text("nonsense", tokens=Tokens(1, 2))) as server:
        failure = await ModelToolHarness(count, server).failure({"words": "?"})
    assert (failure.type, failure.non_retryable) == ("model_output_invalid", True)
    assert usage_from_json(failure.details[0]["usage"]).tokens == 3


async def test_busy_model_is_not_retried_in_a_write() -> None:
    @tool(effects="write")
    async def publish() -> str:
        return (await context().ask_model("?")).text

    async with ModelServer(busy()) as server:
        failure = await ModelToolHarness(publish, server).failure({})
    assert (failure.type, failure.non_retryable) == ("model_busy", True)


async def test_secret_is_not_sent_to_a_model() -> None:
    bindings = [[["words"], [{"text": "the key is "}, {"secret": "TOKEN"}]]]
    async with ModelServer(json_text({"n": 1})) as server:
        await ModelToolHarness(count, server).payload({"words": None}, **{HEADER_BINDINGS: bindings})
    assert server.calls[0].messages == [{"role": "user", "content": "the key is ***"}]


async def test_worker_without_a_model_client_fails_with_model_not_set() -> None:
    failure = await ModelToolHarness(count, None).failure({"words": "?"})
    assert (failure.type, failure.message) == ("model_not_set", "this worker has no model client")


async def test_result_of_a_pure_tool_that_calls_a_model_is_reused_only_if_the_plan_allows_it() -> None:
    @tool(effects="pure")
    def weigh(words: str) -> Any:
        return context().ask_model(words, output=NUMBER_SCHEMA).wait().output

    headers_of_calls: list[dict[str, Any]] = [{}, {}, {HEADER_CACHE: 60}, {HEADER_CACHE: 60}]
    steps = [slow(json_text({"n": n}), first_byte_delay_s=0.2) for n in (1, 2, 3)]
    async with ModelServer(*steps) as server:
        harness = ModelToolHarness(weigh, server)
        payloads = [await harness.payload({"words": "?"}, **headers) for headers in headers_of_calls]
    assert [json.loads(payload.data)["n"] for payload in payloads] == [1, 2, 3, 3]


async def test_call_of_the_method_wait_in_an_async_tool_is_an_error() -> None:
    @tool(effects="read")
    async def call_wait_in_async_tool() -> str:
        return context().ask_model("?").wait().text

    async with ModelServer() as server:
        failure = await ModelToolHarness(call_wait_in_async_tool, server).failure({})
    assert "an async def must use `await context().ask_model(…)` instead of wait()" in failure.message


async def test_cancelled_tool_call_does_not_wait_for_the_model() -> None:
    release_event = asyncio.Event()
    async with ModelServer(step("late", release_event=release_event)) as server:
        harness = ModelToolHarness(count, server)
        tool_call = asyncio.create_task(harness.payload({"words": "?"}))
        await eventually(lambda: tool_call.done() or bool(server.calls))
        tool_call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await tool_call


async def test_ask_model_needs_a_model_and_a_message() -> None:
    with tool_context():
        with pytest.raises(GiveUp, match=r"in a test, pass `ask` to tool_context\(\)"):
            await context().ask_model("?")
        with pytest.raises(ValueError, match="needs at least one message"):
            context().ask_model([])
