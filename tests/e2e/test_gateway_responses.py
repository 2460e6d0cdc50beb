"""The Responses API of the gateway with OpenAI's client: complete, background and streamed responses, and questions."""

import asyncio
import json
from typing import Any, cast

import openai
import pytest
from openai.types.responses import Response
from pydantic import BaseModel

from dagwright.testing import When, json_text, step
from tests.e2e.conftest import APPROVAL_NODE, Serve, calculation, plan_of, wait_node
from tests.support.answer_texts import held_model_answer
from tests.support.eventually import eventually
from tests.support.gateway import assert_sequence_numbers_increase
from tests.support.goals import call_node, plan_text

pytestmark = pytest.mark.server

SUM_PLAN = plan_text(call_node("sum", "calculator", expression="1 + 2"))
CHAIN_PLAN = plan_of(calculation("sum", "1 + 2"), calculation("more", "{{sum.result}} * 2"))
BROKEN_PLAN = plan_of(calculation("broken", "1 / 0"))
LONG_PLAN = plan_of(wait_node("long", "1h"))
APPROVAL_PLAN = plan_of(APPROVAL_NODE, output="{{check.result.approved}}")


async def test_response_is_the_answer_of_a_run_and_can_be_fetched_later(serve: Serve) -> None:
    async with serve(SUM_PLAN, "It is 3.") as gateway:
        response = await gateway.openai.responses.create(model="profile/plan", input="1 + 2?", instructions="Be brief.")
        fetched_response = await gateway.openai.responses.retrieve(response.id)
        prompt = gateway.model_server.calls[0].text
    assert (response.output_text, response.status, response.model) == ("It is 3.", "completed", "profile/plan")
    fields = [(each.id, each.output_text, each.status, each.model, each.usage) for each in (response, fetched_response)]
    assert fields[0] == fields[1]
    assert response.usage is not None
    assert response.usage.total_tokens > 0
    assert "Be brief." in prompt


async def test_response_in_the_background_is_fetched_until_completed(serve: Serve) -> None:
    async with serve(plans={"chain": CHAIN_PLAN}) as gateway:
        response = await gateway.openai.responses.create(model="plan/chain", input="{}", background=True)
        fetched_responses: list[Response] = []

        async def is_completed() -> bool:
            fetched_responses.append(await gateway.openai.responses.retrieve(response.id))
            return fetched_responses[-1].status == "completed"

        await eventually(is_completed)
    assert (response.status, response.background, response.output) == ("in_progress", True, [])
    assert json.loads(fetched_responses[-1].output_text) == {"more": 6}


async def test_cancelled_response_has_status_cancelled(serve: Serve) -> None:
    async with serve(plans={"long": LONG_PLAN}) as gateway:
        response = await gateway.openai.responses.create(model="plan/long", input="{}", background=True)
        cancelled_response = await gateway.openai.responses.cancel(response.id)
        repeated_response = await gateway.openai.responses.cancel(response.id)
    assert (cancelled_response.status, repeated_response.status) == ("cancelled", "cancelled")


async def test_failed_run_is_an_error_or_a_failed_background_response(serve: Serve) -> None:
    async with serve(plans={"broken": BROKEN_PLAN}) as gateway:
        with pytest.raises(openai.UnprocessableEntityError, match="'broken' failed") as caught:
            await gateway.openai.responses.create(model="plan/broken", input="{}")
        background_response = await gateway.openai.responses.create(model="plan/broken", input="{}", background=True)
        stream = await gateway.openai.responses.retrieve(background_response.id, stream=True)
        last_event = [each async for each in stream][-1]
        fetched_response = await gateway.openai.responses.retrieve(background_response.id)
    assert (caught.value.type, caught.value.code) == ("run_error", "node_failed")
    assert last_event.type == "response.failed"
    for response in (last_event.response, fetched_response):
        result = response.model_dump()
        assert (result["status"], result["error"]["code"]) == ("failed", "node_failed")
        assert "'broken' failed" in result["error"]["message"]


async def test_stream_of_a_response_has_the_answer_and_progress(serve: Serve) -> None:
    async with serve(plans={"chain": CHAIN_PLAN}) as gateway:
        stream = await gateway.openai.responses.create(
            model="plan/chain", input="{}", stream=True, extra_body={"stream_progress": "progress"}
        )
        events: list[Any] = [each async for each in stream]
        async with gateway.openai.responses.stream(model="plan/chain", input="{}") as helper:
            final_response = await helper.get_final_response()
    kinds = [event.type for event in events]
    # `response.in_progress` has no output. After an output item, it would make the helper of the JavaScript client drop
    # this item.
    assert "response.in_progress" not in kinds[kinds.index("response.output_item.added") :]
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == '{"more": 6}'
    assert_sequence_numbers_increase([(event.sequence_number, "dagwright" in event.model_extra) for event in events])
    progress = [result for event in events for result in event.model_extra.get("dagwright", {}).get("events", [])]
    assert ("node.completed", "sum") in [(each["type"], each["node_id"]) for each in progress]
    assert json.loads(final_response.output_text) == {"more": 6}


async def test_question_is_a_function_call_and_the_output_of_the_call_is_the_answer(serve: Serve) -> None:
    async with serve(plans={"asking": APPROVAL_PLAN}) as gateway:
        create = gateway.openai.responses.create
        first_response = await create(model="plan/asking", input="{}")
        function_call = next(item for item in first_response.output if item.type == "function_call")
        output = {"call_id": function_call.call_id, "output": '{"approved": true}'}
        call_output: Any = {"type": "function_call_output", **output}
        # The answer is sent with the whole conversation, and then again as the only new message.
        conversation: list[Any] = [{"role": "user", "content": "{}"}, function_call.model_dump(), call_output]
        conversation_response = await create(model="plan/asking", input=conversation)
        message_response = await create(
            model="plan/asking", input=[call_output], previous_response_id=first_response.id
        )
    assert first_response.status == "completed"
    assert first_response.output_text == "Publish?"
    assert function_call.name == "answer_feedback"
    assert (conversation_response.output_text, message_response.output_text) == ("true", "true")


async def test_request_with_previous_response_id_gets_the_earlier_conversation(serve: Serve) -> None:
    async with serve(*[SUM_PLAN, "It is 3."] * 4) as gateway:
        create = gateway.openai.responses.create
        first_response = await create(model="profile/plan", input="How much is 1 + 2?")
        await create(model="profile/plan", input="And again?", previous_response_id=first_response.id)
        session_field: Any = {"session_id": "gateway-responses"}
        response = await create(model="profile/plan", input="How much is 1 + 2?", extra_body=session_field)
        next_response = await create(model="profile/plan", input="And again?", previous_response_id=response.id)
        plan_prompts = [call.text for call in gateway.model_server.calls if call.metadata["purpose"] == "plan"]
    assert ["It is 3." in each for each in plan_prompts] == [False, True, False, True]
    assert "How much is 1 + 2?" in plan_prompts[1]
    assert next_response.model_dump()["dagwright"]["session_id"] == "gateway-responses"


async def test_response_of_a_model_has_no_run_and_is_not_stored(serve: Serve) -> None:
    async with serve("Hello.", "Hello.") as gateway:
        response = await gateway.openai.responses.create(model="small", input="Hi.")
        stream = await gateway.openai.responses.create(model="small", input="Hi.", stream=True)
        kinds = [each.type async for each in stream]
        with pytest.raises(openai.NotFoundError, match="only responses of runs are stored"):
            await gateway.openai.responses.retrieve(response.id)
        with pytest.raises(openai.BadRequestError, match="omit background"):
            await gateway.openai.responses.create(model="small", input="Hi.", background=True)
    assert (response.output_text, response.model, kinds[-1]) == ("Hello.", "small", "response.completed")
    assert response.usage is not None


async def test_disconnect_from_a_background_response_does_not_cancel_its_run(serve: Serve) -> None:
    async with serve(plans={"long": LONG_PLAN}) as gateway:
        body = {"model": "plan/long", "input": "{}", "stream": True, "background": True, "cancel_on_disconnect": True}
        async with gateway.http.stream("POST", "/v1/responses", json=body) as response:
            async for part in response.aiter_text():
                assert "response.created" in part
                break
            run_id = response.headers["x-run-id"]
        await asyncio.sleep(0)
        assert (await gateway.context.runs.reader(run_id).read()).status == "running"
        await gateway.context.steering.cancel(run_id)


async def test_response_is_streamed_while_the_model_writes_it(serve: Serve) -> None:
    release_event = asyncio.Event()
    answer_text = "Oslo has rain today, and Bergen has more of it."
    plan = json_text({"nodes": [calculation("sum", "1 + 2")]})
    answer = held_model_answer(answer_text, release_event)
    async with serve(plan, answer) as gateway:
        stream = await gateway.openai.responses.create(model="profile/plan", input="What is the weather?", stream=True)
        kinds, pieces, result = list[str](), list[str](), ""
        async for each in stream:
            kinds.append(each.type)
            if each.type == "response.output_text.delta":
                pieces.append(each.delta)
                if "".join(pieces) == answer_text[:28]:
                    release_event.set()
            if each.type == "response.completed":
                result = each.response.output_text
    assert ("".join(pieces), result) == (answer_text, answer_text)
    assert [kinds.count(f"response.{kind}") for kind in ("output_item.added", "content_part.added")] == [1, 1]
    assert len(pieces) > 1


class Person(BaseModel):
    """Type of a structured answer."""

    name: str
    age: int


PERSON_PLAN = plan_of(calculation("age", "15 * 2"), output={"name": "Ann", "age": "{{age.result}}"})


async def test_structured_answer_matches_its_schema_in_both_apis(serve: Serve) -> None:
    plan, answer = json_text({"nodes": [calculation("age", "15 * 2")]}), {"name": "Ann", "age": 30}
    messages: list[Any] = [{"role": "user", "content": "{}"}]
    schema = {"name": "final", "parameters": Person.model_json_schema()}
    function: dict[str, Any] = {"type": "function", "function": schema}
    async with serve(
        plan,
        step(json_text(answer), when=When(response_format="json_schema")),
        plans={"person": PERSON_PLAN, "chain": CHAIN_PLAN},
    ) as gateway:
        chat = gateway.openai.chat.completions
        completion = await chat.parse(model="profile/plan", messages=messages, response_format=Person)
        async with gateway.openai.responses.stream(model="plan/person", input="{}", text_format=Person) as helper:
            streamed_response = await helper.get_final_response()
        tools = [{"type": "function", **function["function"]}]
        tool_fields: dict[str, Any] = {"tools": tools, "tool_choice": "required"}
        tool_response = await gateway.openai.responses.create(model="plan/person", input="{}", **tool_fields)
        async with chat.stream(
            model="plan/person",
            messages=messages,
            tools=cast("Any", [function]),
            tool_choice={"type": "function", "function": {"name": "final"}},
        ) as stream:
            final_choice = (await stream.get_final_completion()).choices[0]
        key = {"Idempotency-Key": "s1"}
        with pytest.raises(openai.UnprocessableEntityError, match='"name" is a required property') as caught:
            await chat.parse(model="plan/chain", messages=messages, response_format=Person, extra_headers=key)
    ann = Person(name="Ann", age=30)
    assert (completion.choices[0].message.parsed, streamed_response.output_parsed) == (ann, ann)
    (item,) = tool_response.output
    assert (item.type, json.loads(getattr(item, "arguments", ""))) == ("function_call", answer)
    (call,) = final_choice.message.tool_calls or []
    assert (final_choice.finish_reason, final_choice.message.content, call.function.name) == ("stop", "", "final")
    assert json.loads(call.function.arguments) == answer
    assert (caught.value.code, caught.value.type) == ("output_invalid", "run_error")
