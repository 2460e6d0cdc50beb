"""Streams of the gateway: chunks as OpenAI's clients read them, progress, heartbeats, disconnects, questions."""

import asyncio
import json
from functools import partial
from typing import Any

import openai
import pytest

from dagwright.interfaces.http.run_preparation import run_id_of_key
from dagwright.testing import Pace, json_text, text
from tests.e2e.conftest import APPROVAL_NODE, Serve, calculation, plan_of, wait_node
from tests.support.answer_texts import held_model_answer
from tests.support.eventually import eventually
from tests.support.gateway import CHAT, Event, Gateway, chat_body, events_of

pytestmark = pytest.mark.server


def chain_plan(pause_duration: str) -> dict[str, Any]:
    nodes = (calculation("sum", "1 + 2"), wait_node("rest", pause_duration), calculation("more", "{{sum.result}} * 2"))
    return plan_of(*nodes, output="{{more.result}}")


CHAIN_PLAN = chain_plan("1ms")
BROKEN_PLAN = plan_of(calculation("broken", "1 / 0"), calculation("next", "{{broken.result}} + 1"))
LONG_PLAN = plan_of(wait_node("long", "1h"))
REQUESTS_PLAN = plan_of(
    APPROVAL_NODE,
    {"id": "name", "human": {"type": "CLARIFICATION", "prompt": "Under which name?"}},
    output={"approved": "{{check.result.approved}}", "name": "{{name.result}}"},
)


def stream_body(model: str, message: str = "{}", **fields: Any) -> dict[str, Any]:
    return chat_body(model, message, stream=True, **fields)


def event_types_and_nodes(events: list[Event]) -> list[tuple[str, str | None]]:
    return [(each["type"], each["node_id"]) for each in progress_of(events)]


def progress_of(events: list[Event]) -> list[dict[str, Any]]:
    contents = [event.content for event in events if isinstance(event.content, dict)]
    return [progress_event for content in contents for progress_event in content.get("dagwright", {}).get("events", [])]


def content_of(events: list[Event]) -> str:
    chunks = [event.content for event in events if isinstance(event.content, dict)]
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


async def test_content_of_the_deltas_is_the_answer_with_each_progress_option(serve: Serve) -> None:
    async with serve(plans={"chain": CHAIN_PLAN}) as gateway:
        for option in ("content", "progress", "full"):
            body = stream_body("plan/chain")
            stream = await gateway.openai.chat.completions.create(**body, extra_body={"stream_progress": option})
            # Most programs read only the content of the deltas.
            pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
            assert "".join(pieces) == "6"


async def test_chunks_have_ids_role_finish_reason_and_usage(serve: Serve) -> None:
    async with serve(plans={"chain": CHAIN_PLAN}) as gateway:
        events = await gateway.stream(CHAT, stream_body("plan/chain", stream_options={"include_usage": True}))
    *chunks, end_marker = [event for event in events if event.comment is None]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk.content["choices"]]
    assert (deltas[0], end_marker.content) == ({"role": "assistant", "content": ""}, "[DONE]")
    assert chunks[-2].content["choices"][0]["finish_reason"] == "stop"
    assert chunks[-2].content["dagwright"]["status"] == "completed"
    assert (chunks[-1].content["choices"], chunks[-1].content["usage"]["total_tokens"]) == ([], 0)
    ids = [chunk.id for chunk in chunks]
    assert None not in ids
    assert len(set(ids)) == len(ids)
    assert len({chunk.content["id"] for chunk in chunks}) == 1


async def test_progress_reports_each_node_and_option_full_adds_the_results(serve: Serve) -> None:
    async with serve(plans={"chain": CHAIN_PLAN, "broken": BROKEN_PLAN}) as gateway:
        default_events = await gateway.stream(CHAT, stream_body("plan/chain"))
        progress_events = await gateway.stream(CHAT, stream_body("plan/chain", stream_progress="progress"))
        full_events = await gateway.stream(CHAT, stream_body("plan/chain", metadata={"stream_progress": "full"}))
        broken_events = await gateway.stream(CHAT, stream_body("plan/broken"), X_Stream_Progress="progress")
    assert event_types_and_nodes(default_events) == []
    assert content_of(default_events) == "6"
    assert content_of(full_events) == "6"
    for node_id in ("sum", "rest", "more"):
        kinds = [
            kind for kind, each in event_types_and_nodes(progress_events) if each == node_id and kind != "node.ready"
        ]
        assert (kinds[0], kinds[-1]) == ("node.started", "node.completed")
    assert event_types_and_nodes(progress_events)[-1] == ("run.completed", None)
    results = {each["node_id"]: each["data"].get("result") for each in progress_of(full_events)}
    assert (results["sum"], results["more"]) == (3, 6)
    assert {("node.failed", "broken"), ("node.blocked", "next")} <= set(event_types_and_nodes(broken_events))
    *_, error, end_marker = [each.content for each in broken_events]
    assert "'broken' failed" in error["error"]["message"]
    assert end_marker == "[DONE]"


async def test_error_within_a_stream_is_raised_by_the_client(serve: Serve) -> None:
    async with serve(plans={"broken": BROKEN_PLAN}) as gateway:
        stream = await gateway.openai.chat.completions.create(**stream_body("plan/broken"))
        with pytest.raises(openai.APIError, match="'broken' failed"):
            [chunk async for chunk in stream]


async def test_heartbeats_are_sent_while_no_text_arrives(serve: Serve) -> None:
    release_event = asyncio.Event()
    slow_response = text("Done.", pace=Pace(held_after_chunks=0, release_event=release_event))
    async with (
        serve(slow_response, heartbeat_s=0.05) as gateway,
        gateway.http.stream("POST", CHAT, json=stream_body("small", "Wait.")) as response,
    ):
        received_text = ""
        async for part in response.aiter_text():
            received_text += part
            if received_text.count(": heartbeat\n\n") >= 2:
                release_event.set()
    assert received_text.endswith("data: [DONE]\n\n")


async def _start_and_disconnect(gateway: Gateway, **headers: str) -> str:
    """Start a run of the plan `long` with a stream, and disconnect from the stream; return the ID of the run."""
    request_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    async with gateway.http.stream("POST", CHAT, json=stream_body("plan/long"), headers=request_headers) as response:
        async for part in response.aiter_text():
            assert "assistant" in part
            break
        return response.headers["x-run-id"]


async def test_disconnect_cancels_the_run_only_if_requested(serve: Serve) -> None:
    key = "gateway-disconnect"
    async with serve(plans={"long": LONG_PLAN}) as gateway:
        continued_run_id = await _start_and_disconnect(gateway)
        cancelled_run_id = await _start_and_disconnect(gateway, X_Cancel_On_Disconnect="true")
        body_without_stream = chat_body("plan/long", cancel_on_disconnect=True)
        request_task = asyncio.create_task(gateway.post(CHAT, body_without_stream, Idempotency_Key=key))

        async def has_status(run_id: str, status: str) -> bool:
            return (await gateway.document(run_id)).get("status") == status

        await eventually(lambda: has_status(run_id_of_key(key), "running"))
        request_task.cancel()
        for run_id in (cancelled_run_id, run_id_of_key(key)):
            await eventually(partial(has_status, run_id, "cancelled"))
        assert await has_status(continued_run_id, "running")
        await gateway.context.steering.cancel(continued_run_id)


async def test_stopping_gateway_ends_streams_but_cancels_no_run(serve: Serve) -> None:
    async with serve(plans={"long": LONG_PLAN}) as gateway:
        headers = {"x-cancel-on-disconnect": "true"}
        async with gateway.http.stream("POST", CHAT, json=stream_body("plan/long"), headers=headers) as response:
            run_id = response.headers["x-run-id"]
            gateway.context.stop_event.set()
            received_text = (await response.aread()).decode()
        assert "[DONE]" not in received_text
        assert (await gateway.context.runs.reader(run_id).read()).status == "running"
        await gateway.context.steering.cancel(run_id)


async def test_question_to_a_person_is_a_tool_call_and_the_tool_result_is_the_answer(serve: Serve) -> None:
    async with serve(plans={"asking": REQUESTS_PLAN}) as gateway:
        create = gateway.openai.chat.completions.create
        messages: list[Any] = [{"role": "user", "content": "{}"}]
        first_response = await create(model="plan/asking", messages=messages, user="ann")
        question = first_response.choices[0].message
        calls: list[Any] = question.tool_calls or []
        assert first_response.choices[0].finish_reason == "tool_calls"
        assert question.content == "Publish?\nUnder which name?"
        arguments = [json.loads(call.function.arguments) for call in calls]
        requests = [(argument["request_id"], argument["type"]) for argument in arguments]
        assert requests == [("check", "APPROVAL"), ("name", "CLARIFICATION")]
        assert arguments[0]["answer_schema"]["required"] == ["approved"]

        messages.append(question.model_dump(exclude_none=True))
        results = ['{"approved": true, "reason": "fine"}', "Apex"]
        for call, result in zip(calls, results, strict=True):
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        answered_response = await create(model="plan/asking", messages=messages, user="ann")
        # The same messages, sent again, change nothing.
        repeated_response = await create(model="plan/asking", messages=messages, user="ann")
        run_id = answered_response.model_dump()["dagwright"]["run_id"]
        document = await gateway.context.runs.document(await gateway.context.runs.reader(run_id).read())
    assert answered_response.choices[0].finish_reason == "stop"
    assert repeated_response.choices[0].message == answered_response.choices[0].message
    answer = json.loads(answered_response.choices[0].message.content or "")
    assert answer["approved"] is True
    assert "Apex" in json.dumps(answer["name"])
    (answer_record,) = document["nodes"]["check"]["lineage"]["answers"]
    assert (answer_record["by"], answer_record["source"]) == ("ann", "tool_result")


async def test_question_is_text_if_the_client_sends_tools_or_tool_choice_none(serve: Serve) -> None:
    weather_tool = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
    chat_tool = {"type": "function", "function": {"name": "get_weather", "parameters": weather_tool["parameters"]}}
    async with serve(plans={"asking": REQUESTS_PLAN}) as gateway:
        first_response = (await gateway.chat("plan/asking", tools=[chat_tool])).json()
        events = await gateway.stream(CHAT, stream_body("plan/asking", tool_choice="none"))
        chunks = [event.content for event in events if isinstance(event.content, dict)]
        fields: dict[str, Any] = {"model": "plan/asking", "input": "{}", "extra_body": {"tools": [weather_tool]}}
        response = await gateway.openai.responses.create(**fields)
        fetched_response = await gateway.openai.responses.retrieve(response.id)
        run_ids = [
            first_response["dagwright"]["run_id"],
            chunks[-1]["dagwright"]["run_id"],
            response.model_dump()["dagwright"]["run_id"],
        ]
        for run_id in run_ids:
            await gateway.context.steering.cancel(run_id)
    (choice,) = first_response["choices"]
    assert (choice["finish_reason"], "tool_calls" in choice["message"]) == ("stop", False)
    assert choice["message"]["content"].startswith("Publish?\nUnder which name?\n\n(The run 'run-")
    requests = first_response["dagwright"]["waiting_for"]
    assert [(each["request_id"], each["type"], each["run_id"]) for each in requests] == [
        ("check", "APPROVAL", run_ids[0]),
        ("name", "CLARIFICATION", run_ids[0]),
    ]
    assert requests[0]["answer_schema"]["required"] == ["approved"]
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert not any("tool_calls" in chunk["choices"][0]["delta"] for chunk in chunks)
    assert [item.type for item in response.output] == [item.type for item in fetched_response.output] == ["message"]
    fetched_requests = fetched_response.model_dump()["dagwright"]["waiting_for"]
    assert [each["request_id"] for each in fetched_requests] == ["check", "name"]


async def test_question_is_streamed_as_deltas_of_tool_calls(serve: Serve) -> None:
    async with serve(plans={"asking": REQUESTS_PLAN}) as gateway:
        events = await gateway.stream(CHAT, stream_body("plan/asking", stream_progress="progress"))
        chunks = [event.content for event in events if isinstance(event.content, dict)]
        calls = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", [])]
        await gateway.context.steering.cancel(chunks[-1]["dagwright"]["run_id"])
    assert [call["index"] for call in calls] == [0, 1]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert ("feedback.requested", "check") in event_types_and_nodes(events)


async def test_missing_inputs_are_requested_by_a_tool_call(serve: Serve) -> None:
    plan = plan_of(
        calculation("double", "{{PLACEHOLDER_number}} * 2"),
        inputs={"number": {"type": "integer", "prompt": "Which number?"}},
        output="{{double.result}}",
    )
    async with serve(plans={"double": plan}) as gateway:
        first_completion = (await gateway.chat("plan/double")).json()
        message = first_completion["choices"][0]["message"]
        (call,) = message["tool_calls"]
        result = {"role": "tool", "tool_call_id": call["id"], "content": '{"number": 4}'}
        messages = [{"role": "user", "content": "{}"}, message, result]
        response = await gateway.post(CHAT, {"model": "plan/double", "messages": messages})
    assert json.loads(call["function"]["arguments"])["request_id"] == "inputs"
    assert response.json()["choices"][0]["message"]["content"] == "8"


async def test_stream_continues_in_the_middle_of_an_answer(serve: Serve) -> None:
    release_event = asyncio.Event()
    answer_text = "Oslo has rain today, and Bergen has more of it."
    plan = json_text({"nodes": [calculation("sum", "1 + 2")]})
    slow_answer = held_model_answer(answer_text, release_event)
    request = stream_body("profile/plan", "What is the weather?")
    async with serve(plan, slow_answer) as gateway:
        received_text, last_event_id = "", ""
        async with gateway.http.stream("POST", CHAT, json=request) as response:
            async for part in response.aiter_text():
                for event in events_of(part):
                    received_text, last_event_id = received_text + content_of([event]), event.id or last_event_id
                if received_text:
                    break
        release_event.set()
        later_events = await gateway.stream(CHAT, request, Last_Event_ID=last_event_id)
    assert received_text + content_of(later_events) == answer_text
    assert 0 < len(received_text) < len(answer_text)
