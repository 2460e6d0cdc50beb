"""The Responses API: conversion to and from chat completions, cancellation, and results of unknown calls."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dagwright.client import run_follower
from dagwright.history.executions import RunClosed
from dagwright.interfaces.http import responses
from dagwright.interfaces.http.callers import Caller
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.feedback_calls import call_id
from dagwright.interfaces.http.response_items import (
    CreateResponseBody,
    ResponseRef,
    parse_response_id,
    referenced_runs,
    response_object,
    response_of_completion,
    run_of_referenced_question,
    to_chat_body,
)
from tests.support.scripted_run import RUN_ID, FakeRequestPoller, ScriptedRun, Step, approval_requests, scripted_gateway
from tests.unit.interfaces.http.conftest import status_and_code_of


def messages_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    chat_body = to_chat_body(CreateResponseBody.model_validate(body))
    return [message.model_dump(exclude_none=True) for message in chat_body.messages]


def test_instructions_and_text_become_messages() -> None:
    system, user = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi."}
    assert messages_of({"input": "Hi.", "instructions": "Be brief."}) == [system, user]


def test_items_become_messages_calls_and_results() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "reasoning", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b"}]},
        call,
        {**call, "call_id": "c2"},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
    ]
    user, assistant, tool = messages_of({"input": items})
    assert [message["role"] for message in (user, assistant)] == ["user", "assistant"]
    assert [call["id"] for call in assistant["tool_calls"]] == ["c1", "c2"]
    assert tool == {"role": "tool", "tool_call_id": "c1", "content": "1"}


def item_reference(id: Any) -> dict[str, Any]:
    return {"type": "item_reference", "id": id}


YES_OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "yes"}
REFERENCES = [item_reference(id) for id in ("rs_1", "msg_run-1", "fc_1")]
BODY_WITH_REFERENCES = CreateResponseBody(input=[{"role": "user", "content": "a"}, *REFERENCES, YES_OUTPUT])


def test_references_to_answers_become_assistant_messages() -> None:
    assert referenced_runs(BODY_WITH_REFERENCES) == {"run-1": 2}
    messages = to_chat_body(BODY_WITH_REFERENCES, {"run-1": "b"}).messages
    texts = [(message.role, message.content) for message in messages]
    assert texts == [("user", "a"), ("assistant", "b"), ("tool", "yes")]
    messages = to_chat_body(BODY_WITH_REFERENCES, {"run-1": None}).messages
    assert [message.role for message in messages] == ["user", "tool"]
    assert (
        referenced_runs(CreateResponseBody(input="a")),
        run_of_referenced_question(CreateResponseBody(input="a")),
    ) == ({}, None)


def test_call_reference_belongs_to_the_answer_before_it() -> None:
    assert run_of_referenced_question(BODY_WITH_REFERENCES) == "run-1"
    items = [*BODY_WITH_REFERENCES.input]
    for input_items in (items[:4], items[3:], [*items[:3], items[4]], [*items[:2], *items[3:]], items[4:]):
        assert run_of_referenced_question(CreateResponseBody(input=input_items)) is None


@pytest.mark.parametrize("id", [None, 7, "", "msg", "msg_a\nb", "resp_1", {}])
def test_reference_to_an_item_that_is_not_an_answer_is_rejected(id: Any) -> None:
    with pytest.raises(ApiError, match=r"input\.0: an item_reference must have the message id"):
        referenced_runs(CreateResponseBody(input=[item_reference(id)]))


def test_options_of_a_response_become_options_of_a_completion() -> None:
    tool = {"type": "function", "name": "f", "parameters": {"type": "object"}}
    body = {"model": "m", "input": "x", "max_output_tokens": 7, "temperature": 0.5, "tools": [tool], "session_id": "s"}
    chat_body = to_chat_body(CreateResponseBody.model_validate(body))
    assert (chat_body.max_completion_tokens, chat_body.temperature, chat_body.session_id) == (7, 0.5, "s")
    assert chat_body.tools == [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


@pytest.mark.parametrize(("run_id", "model"), [("run-1", "plan/double"), ("a.b/ü", "agent/Zoë é"), ("session x", "m")])
def test_id_of_a_response_has_its_run_and_model(run_id: str, model: str) -> None:
    assert parse_response_id(ResponseRef(run_id, model).id) == ResponseRef(run_id, model)


@pytest.mark.parametrize("response_id", ["", "resp_", "resp_x", "resp_.YQ", "run-1.YQ", "resp_run-1.Y", "resp_run-1.ÿ"])
def test_invalid_response_id_is_reported_as_not_found(response_id: str) -> None:
    with pytest.raises(ApiError) as error:
        parse_response_id(response_id)
    assert error.value.status == 404


def test_function_calls_of_a_completion_become_items_of_the_response() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    choices = [{"message": {"content": None, "tool_calls": [call]}}]
    response = response_of_completion({}, {"id": "x", "choices": choices, "usage": {"prompt_tokens": 3}}, model="small")
    (item,) = response["output"]
    assert (item["type"], item["call_id"], item["name"]) == ("function_call", "c1", "f")
    assert (response["usage"]["input_tokens"], response["store"]) == (3, False)


@pytest.mark.parametrize("conversation", ["conv_1", {"id": "conv_1"}])
def test_field_conversation_of_the_responses_api_is_rejected(conversation: Any) -> None:
    with pytest.raises(ApiError, match="use session_id") as error:
        messages_of({"input": "And then?", "conversation": conversation})
    assert (error.value.status, error.value.param) == (400, "conversation")


def test_response_does_not_name_itself_as_the_previous_response() -> None:
    response_ref = ResponseRef("run-1", "plan/ask")
    for previous_id in (ResponseRef("run-0", "plan/ask").id, None, response_ref.id):
        response = response_object({"previous_response_id": previous_id}, response_ref, status="completed")
        assert response["previous_response_id"] == (None if previous_id == response_ref.id else previous_id)


async def test_cancellation_of_a_response_names_the_owner_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    cancellations: list[Any] = []

    async def cancel(run_id: str, actor: Any) -> str:
        cancellations.append((run_id, actor.by))
        raise RunClosed(run_id)

    async def visible_run(run_id: str) -> str:
        return run_id

    async def current_response(*_: Any) -> dict[str, Any]:
        return {}

    monkeypatch.setattr(responses, "_current_response", current_response)
    caller = Caller("ann", frozenset())
    fields = {"visible_run": visible_run, "steering": SimpleNamespace(cancel=cancel), "caller": caller}
    context: Any = SimpleNamespace(**fields, active_starts=[])
    await responses.cancel_response(ResponseRef("run-1", "plan/ask").id, context)
    assert cancellations == [("run-1", "ann")]


@pytest.mark.parametrize("output_call_id", ["zzz", call_id(approval_requests(["check"])[0], run_id="run-2")])
@pytest.mark.parametrize("stream", [False, True])
async def test_result_of_an_unknown_call_is_rejected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, output_call_id: str, *, stream: bool
) -> None:
    monkeypatch.setattr(run_follower, "RequestPoller", FakeRequestPoller)
    run = ScriptedRun((Step(3, {}, status="waiting", requests=approval_requests(["check"])),), (), "")
    output_item = {"type": "function_call_output", "call_id": output_call_id, "output": "yes"}
    body = {"model": "small", "previous_response_id": ResponseRef(RUN_ID, "small").id, "stream": stream}
    body["input"] = [output_item]
    async with scripted_gateway(run, tmp_path) as http:
        rejected_response = await http.post("/v1/responses", json=body)
        # The result for a request that was answered elsewhere meanwhile is skipped.
        output_item["call_id"] = call_id(approval_requests(["answered"])[0], run_id=RUN_ID)
        skipped_response = await http.post("/v1/responses", json=body)
    assert status_and_code_of(rejected_response) == (400, "unknown_tool_call")
    assert skipped_response.status_code == 200
