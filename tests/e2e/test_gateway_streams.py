"""Streams of the gateway: chunks as OpenAI's clients read them, progress, heartbeats, clients that leave, questions."""

import asyncio
import json
from functools import partial
from typing import Any

import openai
import pytest

from dagwright.interfaces.http.run_preparation import run_id_of_key
from dagwright.testing import Pace, json_text, slow, text
from tests.e2e.conftest import CHECK, Serve, calculation, pause, plan_of
from tests.support.eventually import eventually
from tests.support.gateway import CHAT, Event, Gateway, chat_body, events_of

pytestmark = pytest.mark.server


def chain(rest: str) -> dict[str, Any]:
    nodes = (calculation("sum", "1 + 2"), pause("rest", rest), calculation("more", "{{sum.result}} * 2"))
    return plan_of(*nodes, output="{{more.result}}")


CHAIN = chain("1ms")
BROKEN = plan_of(calculation("broken", "1 / 0"), calculation("next", "{{broken.result}} + 1"))
LONG = plan_of(pause("long", "1h"))
ASKING = plan_of(
    CHECK,
    {"id": "name", "human": {"type": "CLARIFICATION", "prompt": "Under which name?"}},
    output={"approved": "{{check.result.approved}}", "name": "{{name.result}}"},
)


def body(model: str, words: str = "{}", **more: Any) -> dict[str, Any]:
    return chat_body(model, words, stream=True, **more)


def named_events(events: list[Event]) -> list[tuple[str, str | None]]:
    return [(each["type"], each["node_id"]) for each in progress_of(events)]


def progress_of(events: list[Event]) -> list[dict[str, Any]]:
    contents = [event.content for event in events if isinstance(event.content, dict)]
    return [result for content in contents for result in content.get("dagwright", {}).get("events", [])]


def content_of(events: list[Event]) -> str:
    chunks = [event.content for event in events if isinstance(event.content, dict)]
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


async def test_naive_reader_of_a_stream_gets_the_answer_whatever_is_shown(serve: Serve) -> None:
    async with serve(plans={"chain": CHAIN}) as live:
        for shown in ("content", "progress", "full"):
            stream = await live.openai.chat.completions.create(
                model="plan/chain",
                messages=[{"role": "user", "content": "{}"}],
                stream=True,
                extra_body={"stream_progress": shown},
            )
            # As most programs read it, without parsing the chunk.
            pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
            assert "".join(pieces) == "6"


async def test_chunks_have_ids_role_reason_and_usage(serve: Serve) -> None:
    async with serve(plans={"chain": CHAIN}) as live:
        events = await live.stream(CHAT, body("plan/chain", stream_options={"include_usage": True}))
    *chunks, done = [event for event in events if event.comment is None]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk.content["choices"]]
    assert (deltas[0], done.content) == ({"role": "assistant", "content": ""}, "[DONE]")
    assert chunks[-2].content["choices"][0]["finish_reason"] == "stop"
    assert chunks[-2].content["dagwright"]["status"] == "completed"
    assert (chunks[-1].content["choices"], chunks[-1].content["usage"]["total_tokens"]) == ([], 0)
    ids = [chunk.id for chunk in chunks]
    assert None not in ids
    assert len(set(ids)) == len(ids)
    assert len({chunk.content["id"] for chunk in chunks}) == 1


async def test_progress_has_each_node_and_full_its_result(serve: Serve) -> None:
    async with serve(plans={"chain": CHAIN, "broken": BROKEN}) as live:
        plain = await live.stream(CHAT, body("plan/chain"))
        progress = await live.stream(CHAT, body("plan/chain", stream_progress="progress"))
        full = await live.stream(CHAT, body("plan/chain", metadata={"stream_progress": "full"}))
        broken = await live.stream(CHAT, body("plan/broken"), X_Stream_Progress="progress")
    assert (named_events(plain), content_of(plain), content_of(full)) == ([], "6", "6")
    for node in ("sum", "rest", "more"):
        kinds = [kind for kind, each in named_events(progress) if each == node and kind != "node.ready"]
        assert (kinds[0], kinds[-1]) == ("node.started", "node.completed")
    assert named_events(progress)[-1] == ("run.completed", None)
    results = {each["node_id"]: each["data"].get("result") for each in progress_of(full)}
    assert (results["sum"], results["more"]) == (3, 6)
    assert {("node.failed", "broken"), ("node.blocked", "next")} <= set(named_events(broken))
    *_, error, done = [each.content for each in broken]
    assert "'broken' failed" in error["error"]["message"]
    assert done == "[DONE]"


async def test_error_after_the_beginning_reaches_the_client_as_an_error(serve: Serve) -> None:
    async with serve(plans={"broken": BROKEN}) as live:
        stream = await live.openai.chat.completions.create(
            model="plan/broken", messages=[{"role": "user", "content": "{}"}], stream=True
        )
        with pytest.raises(openai.APIError, match="'broken' failed"):
            [chunk async for chunk in stream]


async def test_silence_is_broken_by_heartbeats(serve: Serve) -> None:
    released = asyncio.Event()
    slow = text("Done.", pace=Pace(held_after=0, released=released))
    async with (
        serve(slow, heartbeat_s=0.05) as live,
        live.http.stream("POST", CHAT, json=body("small", "Wait.")) as response,
    ):
        seen = ""
        async for part in response.aiter_text():
            seen += part
            if seen.count(": heartbeat\n\n") >= 2:
                released.set()
    assert seen.endswith("data: [DONE]\n\n")


async def _leave(live: Gateway, **headers: str) -> str:
    """Start a stream of a long run and disconnect; return the run."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with live.http.stream("POST", CHAT, json=body("plan/long"), headers=named) as response:
        async for part in response.aiter_text():
            assert "assistant" in part
            break
        return response.headers["x-run-id"]


async def test_client_that_leaves_cancels_only_if_it_asked_for_that(serve: Serve) -> None:
    key = "gateway-left-whole"
    async with serve(plans={"long": LONG}) as live:
        continues, ends = await _leave(live), await _leave(live, X_Cancel_On_Disconnect="true")
        not_streamed = chat_body("plan/long", cancel_on_disconnect=True)
        asking = asyncio.create_task(live.post(CHAT, not_streamed, Idempotency_Key=key))

        async def has(run: str, status: str) -> bool:
            return (await live.document(run)).get("status") == status

        await eventually(lambda: has(run_id_of_key(key), "running"))
        asking.cancel()
        for run in (ends, run_id_of_key(key)):
            await eventually(partial(has, run, "cancelled"))
        assert await has(continues, "running")
        await live.context.steering.cancel(continues)


async def test_gateway_that_ends_lets_streams_go_and_runs_stay(serve: Serve) -> None:
    async with serve(plans={"long": LONG}) as live:
        request = live.http.stream("POST", CHAT, json=body("plan/long"), headers={"x-cancel-on-disconnect": "true"})
        async with request as response:
            run = response.headers["x-run-id"]
            live.context.stopping.set()
            seen = (await response.aread()).decode()
        assert "[DONE]" not in seen
        assert (await live.context.runs.reader(run).read()).status == "running"
        await live.context.steering.cancel(run)


async def test_question_to_a_person_is_a_tool_call_and_its_result_the_answer(serve: Serve) -> None:
    async with serve(plans={"asking": ASKING}) as live:
        create = live.openai.chat.completions.create
        messages: list[Any] = [{"role": "user", "content": "{}"}]
        first_response = await create(model="plan/asking", messages=messages, user="ann")
        asked = first_response.choices[0].message
        calls: list[Any] = asked.tool_calls or []
        assert (first_response.choices[0].finish_reason, asked.content) == ("tool_calls", "Publish?\nUnder which name?")
        arguments = [json.loads(call.function.arguments) for call in calls]
        asked_for = [(argument["request_id"], argument["type"]) for argument in arguments]
        assert asked_for == [("check", "APPROVAL"), ("name", "CLARIFICATION")]
        assert arguments[0]["schema"]["required"] == ["approved"]

        messages.append(asked.model_dump(exclude_none=True))
        results = ['{"approved": true, "reason": "fine"}', "Apex"]
        for call, result in zip(calls, results, strict=True):
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        last = await create(model="plan/asking", messages=messages, user="ann")
        # Sent again it changes nothing.
        repeated_response = await create(model="plan/asking", messages=messages, user="ann")
        run = last.model_dump()["dagwright"]["run_id"]
        document = await live.context.runs.document(await live.context.runs.reader(run).read())
    assert (last.choices[0].finish_reason, repeated_response.choices[0].message) == ("stop", last.choices[0].message)
    answer = json.loads(last.choices[0].message.content or "")
    assert answer["approved"] is True
    assert "Apex" in json.dumps(answer["name"])
    (answered,) = document["nodes"]["check"]["lineage"]["answers"]
    assert (answered["by"], answered["through"]) == ("ann", "tool_result")


async def test_question_is_not_a_call_for_a_client_that_would_reply_automatically(serve: Serve) -> None:
    weather = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
    chat = {"type": "function", "function": {"name": "get_weather", "parameters": weather["parameters"]}}
    async with serve(plans={"asking": ASKING}) as live:
        asked = (await live.chat("plan/asking", tools=[chat])).json()
        events = await live.stream(CHAT, body("plan/asking", tool_choice="none"))
        chunks = [event.content for event in events if isinstance(event.content, dict)]
        fields: dict[str, Any] = {"model": "plan/asking", "input": "{}", "extra_body": {"tools": [weather]}}
        response = await live.openai.responses.create(**fields)
        fetched = await live.openai.responses.retrieve(response.id)
        runs = [asked["dagwright"]["run_id"], chunks[-1]["dagwright"]["run_id"], response.model_dump()["dagwright"]]
        for run in (*runs[:2], runs[2]["run_id"]):
            await live.context.steering.cancel(run)
    (choice,) = asked["choices"]
    assert (choice["finish_reason"], "tool_calls" in choice["message"]) == ("stop", False)
    assert choice["message"]["content"].startswith("Publish?\nUnder which name?\n\n(The run 'run-")
    waiting = asked["dagwright"]["waiting_for"]
    assert [(each["request_id"], each["type"], each["run_id"]) for each in waiting] == [
        ("check", "APPROVAL", runs[0]),
        ("name", "CLARIFICATION", runs[0]),
    ]
    assert waiting[0]["answer_schema"]["required"] == ["approved"]
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert not any("tool_calls" in chunk["choices"][0]["delta"] for chunk in chunks)
    assert [item.type for item in response.output] == [item.type for item in fetched.output] == ["message"]
    assert [each["request_id"] for each in fetched.model_dump()["dagwright"]["waiting_for"]] == ["check", "name"]


async def test_streamed_question_comes_as_deltas_of_a_tool_call(serve: Serve) -> None:
    async with serve(plans={"asking": ASKING}) as live:
        events = await live.stream(CHAT, body("plan/asking", stream_progress="progress"))
        chunks = [event.content for event in events if isinstance(event.content, dict)]
        calls = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", [])]
        await live.context.steering.cancel(chunks[-1]["dagwright"]["run_id"])
    assert [call["index"] for call in calls] == [0, 1]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert ("feedback.requested", "check") in named_events(events)


async def test_missing_inputs_are_asked_for(serve: Serve) -> None:
    plan = plan_of(
        calculation("double", "{{PLACEHOLDER_number}} * 2"),
        inputs={"number": {"type": "integer", "prompt": "Which number?"}},
        output="{{double.result}}",
    )
    async with serve(plans={"double": plan}) as live:
        first = (await live.chat("plan/double")).json()
        message = first["choices"][0]["message"]
        (call,) = message["tool_calls"]
        result = {"role": "tool", "tool_call_id": call["id"], "content": '{"number": 4}'}
        messages = [{"role": "user", "content": "{}"}, message, result]
        response = await live.post(CHAT, {"model": "plan/double", "messages": messages})
    assert json.loads(call["function"]["arguments"])["request_id"] == "inputs"
    assert response.json()["choices"][0]["message"]["content"] == "8"


async def test_answer_continues_in_the_middle_of_the_text_of_a_model(serve: Serve) -> None:
    released = asyncio.Event()
    words = "Oslo has rain today, and Bergen has more of it."
    plan = json_text({"nodes": [calculation("sum", "1 + 2")]})
    held = slow(json_text({"answer": words, "missing": []}), characters=8, held_after=5, released=released)
    sent = body("profile/plan", "What is the weather?")
    async with serve(plan, held) as live:
        text, last = "", ""
        async with live.http.stream("POST", CHAT, json=sent) as response:
            async for part in response.aiter_text():
                for event in events_of(part):
                    text, last = text + content_of([event]), event.id or last
                if text:
                    break
        released.set()
        rest = await live.stream(CHAT, sent, Last_Event_ID=last)
    assert text + content_of(rest) == words
    assert 0 < len(text) < len(words)
