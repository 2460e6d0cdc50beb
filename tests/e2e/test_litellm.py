"""The model client calls the scripted server through LiteLLM's real proxy."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from temporalio.client import Client

from dagwright.core.model.agents import AgentCard, agent_declaration
from dagwright.llm import (
    Action,
    Endpoint,
    ModelCall,
    ModelClient,
    ModelConfig,
    ModelError,
    ModelFailure,
    OfferedTool,
    OutputSchema,
    user,
)
from dagwright.planner import PlanningOptions, prepare_goal
from dagwright.settings import Settings
from dagwright.testing import Answer, Completion, HttpError, Reset, Tokens, busy, json_text, slow, text, tool_calls
from tests.support.eventually import eventually
from tests.support.goals import call_node, checked_document, plan_text
from tests.support.litellm import PROXY_KEY, UPSTREAM_KEY, Proxy, litellm_proxy
from tests.support.runs import serving_runs
from tests.support.tools import CallHarness

pytestmark = pytest.mark.litellm

HI_CALL = ModelCall((user("Hi"),))
NUMBER_SCHEMA = OutputSchema("answer", {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})


@pytest.fixture(scope="module")
async def proxy(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Proxy]:
    async with litellm_proxy(tmp_path_factory.mktemp("litellm")) as proxy:
        yield proxy


@pytest.fixture
async def model_client(proxy: Proxy) -> AsyncIterator[ModelClient]:
    async with ModelClient(Endpoint(proxy.base_url, PROXY_KEY), model="small") as client:
        yield client


async def test_complete_and_streamed_answers_have_their_usage(proxy: Proxy, model_client: ModelClient) -> None:
    answer = text("one two three", tokens=Tokens(100, 20, cached=40, reasoning=5))
    async with proxy.upstream(answer, answer) as upstream:
        complete_answer = await model_client.complete(HI_CALL)
        async with model_client.stream(HI_CALL) as stream:
            pieces = [piece async for piece in stream]
    assert (complete_answer.text, "".join(pieces), stream.answer.text) == ("one two three",) * 3
    for usage in (complete_answer.usage, stream.answer.usage):
        details = (usage.cached_tokens, usage.reasoning_tokens)
        assert (usage.prompt_tokens, usage.completion_tokens, *details) == (100, 20, 40, 5)
    assert {call.api_key for call in upstream.calls} == {UPSTREAM_KEY}
    assert {call.model for call in upstream.calls} == {"scripted-model"}


async def test_parallel_tool_calls_are_read_with_and_without_streaming(proxy: Proxy, model_client: ModelClient) -> None:
    call = ModelCall((user("Hi"),), tools=(OfferedTool("look.up"),))
    scripted_answer = tool_calls(("look_up", {"at": 1}), ("look_up", {"at": 2}))
    async with proxy.upstream(scripted_answer, scripted_answer):
        complete_answer = await model_client.complete(call)
        async with model_client.stream(call) as stream:
            assert [piece async for piece in stream] == []
    for answer in (complete_answer, stream.answer):
        assert [(tool_call.name, tool_call.arguments) for tool_call in answer.message.tool_calls] == [
            ("look.up", '{"at": 1}'),
            ("look.up", '{"at": 2}'),
        ]


async def test_output_schema_and_every_field_of_a_config_reach_the_service(
    proxy: Proxy, model_client: ModelClient
) -> None:
    config = ModelConfig(temperature=0.5, max_tokens=9, top_p=0.5, seed=1, reasoning_effort="low")
    async with proxy.upstream(json_text({"n": 1})) as upstream:
        answer = await model_client.complete(ModelCall((user("Hi"),), config=config, output=NUMBER_SCHEMA))
    assert answer.output == {"n": 1}
    body = upstream.calls[0].body
    assert {name: body[name] for name in config.to_json()} == config.to_json()
    assert upstream.calls[0].response_format == "json_schema"


async def test_request_rejected_by_the_proxied_service_is_sent_with_another_response_format(
    proxy: Proxy, model_client: ModelClient
) -> None:
    rejection = HttpError(400, "response_format of type json_schema is not supported with this model")
    async with proxy.upstream(rejection, json_text({"n": 1})) as upstream:
        answer = await model_client.complete(ModelCall((user("Hi"),), output=NUMBER_SCHEMA))
    assert answer.output == {"n": 1}
    assert [call.response_format for call in upstream.calls] == ["json_schema", "json_object"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (busy(retry_after=3), ModelError.BUSY),
        (HttpError(400, "maximum context length is 5", code="context_length_exceeded"), ModelError.CONTEXT_EXCEEDED),
        (HttpError(429, "You exceeded your current quota", code="insufficient_quota"), ModelError.QUOTA_EXCEEDED),
        (HttpError(401, "Incorrect API key provided", code="invalid_api_key"), ModelError.KEY_REJECTED),
        (HttpError(500, "boom", type="server_error"), ModelError.UNAVAILABLE),
        (Reset(), ModelError.UNAVAILABLE),
        (text("So", finish_reason="content_filter"), ModelError.FILTERED),
        (text("So", finish_reason="length"), ModelError.TRUNCATED),
        (Completion(refusal="I decline."), ModelError.REFUSED),
    ],
    ids=lambda value: value.value if isinstance(value, ModelError) else "",
)
async def test_failures_have_the_same_error_through_the_proxy(
    answer: Answer, error: ModelError, proxy: Proxy, model_client: ModelClient
) -> None:
    async with proxy.upstream(answer):
        with pytest.raises(ModelFailure) as failure:
            await model_client.complete(HI_CALL)
    assert failure.value.error is error
    if error is ModelError.BUSY:
        assert (failure.value.action, failure.value.delay and failure.value.delay.total_seconds()) == (Action.RETRY, 3)


async def test_stream_interrupted_by_the_service_is_retryable(proxy: Proxy, model_client: ModelClient) -> None:
    async with proxy.upstream(slow(text("one two three four five six"), cut_after=2)):
        with pytest.raises(ModelFailure) as failure:
            await read_stream(model_client, HI_CALL)
    assert failure.value.action is Action.RETRY


async def read_stream(model_client: ModelClient, call: ModelCall) -> Any:
    async with model_client.stream(call) as stream:
        return [piece async for piece in stream]


async def test_proxy_rejects_wrong_keys_and_unknown_models(proxy: Proxy, model_client: ModelClient) -> None:
    async with proxy.upstream(), ModelClient(Endpoint(proxy.base_url, "sk-wrong"), model="small") as wrong_key_client:
        with pytest.raises(ModelFailure) as wrong_key:
            await wrong_key_client.complete(HI_CALL)
        with pytest.raises(ModelFailure) as unknown_model:
            await model_client.complete(ModelCall((user("Hi"),), config=ModelConfig(model="huge")))
    assert (wrong_key.value.error, unknown_model.value.error) == (ModelError.KEY_REJECTED, ModelError.MODEL_UNKNOWN)


@pytest.mark.server
async def test_streamed_plan_runs_and_its_agent_calls_tools(proxy: Proxy, client: Client, tmp_path: Path) -> None:
    card = AgentCard(
        name="clerk",
        description="Reads mail",
        objective_template="Read {what}",
        type="llm",
        prompt="You read mail.",
        tools=("echo",),
    )
    harness, release_event = CallHarness(), asyncio.Event()
    first_node = call_node("first", "hold", name="first")
    plan = plan_text(first_node, {"id": "mail", "agent": "clerk", "objective": "Read my mail after {{first.result}}."})
    node_end = plan.index(json.dumps(first_node)) + len(json.dumps(first_node))
    steps = (
        slow(text(plan), chunk_characters=8, held_after_chunks=-(-node_end // 8), release_event=release_event),
        tool_calls(("echo", {"text": "one"}), ("echo", {"text": "two"})),
        text("Two mails."),
        text("You have two mails."),
    )
    key = SecretStr(PROXY_KEY)
    settings = Settings(state_dir=tmp_path, model="small", openai_base_url=proxy.base_url, openai_api_key=key)
    async with proxy.upstream(*steps) as upstream, serving_runs(client, harness.registry(), settings=settings) as runs:
        known_tools = {**runs.tools, (declaration := agent_declaration(card)).name: declaration}
        compiled, _ = prepare_goal("Read my mail.", known_tools, PlanningOptions())
        handle = await runs.start_compiled_plan(compiled)
        # The proxy forwards the stream piece by piece: the first tool runs while the model still writes.
        await eventually(lambda: harness.entered == ["first"])
        release_event.set()
        harness.open("first")
        document = await checked_document(runs, handle)
        await runs.check_runs()
    assert (document["status"], document["output"]) == ("completed", "You have two mails.")
    assert [received.is_streamed for received in upstream.calls] == [True] * 4
    assert document["nodes"]["mail"]["result"] == "Two mails."
