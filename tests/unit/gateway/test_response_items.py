"""The form of the Responses API, to and from that of chat completions."""

from typing import Any

import pytest

from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.response_items import (
    ResponseBody,
    ResponseRef,
    chat_of,
    of_completion,
    response_object,
    run_asked_by_reference,
    run_of_response,
    runs_referred_to,
)


def messages(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [each.model_dump(exclude_none=True) for each in chat_of(ResponseBody.model_validate(body)).messages]


def test_text_is_a_message_of_the_user_behind_the_instructions() -> None:
    assert messages({"input": "Hi.", "instructions": "Be brief."}) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi."},
    ]


def test_items_are_messages_calls_and_results() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    found = messages(
        {
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
                {"type": "reasoning", "summary": []},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b"}]},
                call,
                {**call, "call_id": "c2"},
                {"type": "function_call_output", "call_id": "c1", "output": "1"},
            ]
        }
    )
    assert [each["role"] for each in found] == ["user", "assistant", "tool"]
    assert [each["id"] for each in found[1]["tool_calls"]] == ["c1", "c2"]
    assert found[2] == {"role": "tool", "tool_call_id": "c1", "content": "1"}


def reference(id: Any) -> dict[str, Any]:
    return {"type": "item_reference", "id": id}


REFERRING = ResponseBody(
    input=[
        {"role": "user", "content": "a"},
        reference("rs_1"),
        reference("msg_run-1"),
        reference("fc_1"),
        {"type": "function_call_output", "call_id": "call_1", "output": "yes"},
    ]
)


def test_answers_that_are_named_by_their_ids_stand_in_their_place() -> None:
    assert runs_referred_to(REFERRING) == {"run-1": 2}
    told = [(each.role, each.content) for each in chat_of(REFERRING, {"run-1": "b"}).messages]
    assert told == [("user", "a"), ("assistant", "b"), ("tool", "yes")]
    assert [each.role for each in chat_of(REFERRING, {"run-1": None}).messages] == ["user", "tool"]
    assert (runs_referred_to(ResponseBody(input="a")), run_asked_by_reference(ResponseBody(input="a"))) == ({}, None)


def test_question_is_that_of_the_answer_before_the_call_that_is_named() -> None:
    assert run_asked_by_reference(REFERRING) == "run-1"
    items = [*REFERRING.input]
    for input in (items[:4], items[3:], [*items[:3], items[4]], [*items[:2], *items[3:]], items[4:]):
        assert run_asked_by_reference(ResponseBody(input=input)) is None


@pytest.mark.parametrize("id", [None, 7, "", "msg", "msg_a\nb", "resp_1", {}])
def test_reference_to_what_is_no_answer_of_a_run_is_refused(id: Any) -> None:
    with pytest.raises(ApiError, match=r"input\.0: an item_reference names an answer of a run"):
        runs_referred_to(ResponseBody(input=[reference(id)]))


def test_options_keep_their_meaning() -> None:
    tool = {"type": "function", "name": "f", "parameters": {"type": "object"}}
    chat = chat_of(
        ResponseBody(model="m", input="x", max_output_tokens=7, temperature=0.5, tools=[tool], session_id="s")
    )
    assert (chat.max_completion_tokens, chat.temperature, chat.session_id) == (7, 0.5, "s")
    assert chat.tools == [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


@pytest.mark.parametrize(("run", "model"), [("run-1", "plan/double"), ("a.b/ü", "agent/Zoë é"), ("session x", "m")])
def test_id_of_a_response_tells_its_run_and_model(run: str, model: str) -> None:
    assert run_of_response(ResponseRef(run, model).id) == ResponseRef(run, model)


@pytest.mark.parametrize("response", ["", "resp_", "resp_x", "resp_.YQ", "run-1.YQ", "resp_run-1.Y", "resp_run-1.ÿ"])
def test_id_of_no_response_is_not_found(response: str) -> None:
    with pytest.raises(ApiError) as refused:
        run_of_response(response)
    assert refused.value.status == 404


def test_answer_of_a_model_that_calls_functions_is_a_response_with_calls() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    completion = {
        "id": "x",
        "choices": [{"message": {"content": None, "tool_calls": [call]}}],
        "usage": {"prompt_tokens": 3},
    }
    told = of_completion({}, completion, model="small")
    assert [(item["type"], item["call_id"], item["name"]) for item in told["output"]] == [("function_call", "c1", "f")]
    assert (told["usage"]["input_tokens"], told["store"]) == (3, False)


@pytest.mark.parametrize("conversation", ["conv_1", {"id": "conv_1"}])
def test_conversation_of_the_service_is_refused(conversation: Any) -> None:
    with pytest.raises(ApiError, match="name a session with session_id") as refused:
        messages({"input": "And then?", "conversation": conversation})
    assert (refused.value.status, refused.value.param) == (400, "conversation")


def test_answer_to_the_question_of_a_response_does_not_follow_itself() -> None:
    own, other = ResponseRef("run-1", "plan/ask").id, ResponseRef("run-0", "plan/ask").id
    told = [
        response_object({"previous_response_id": each}, ResponseRef("run-1", "plan/ask"), status="completed")
        for each in (own, other, None)
    ]
    assert [each["previous_response_id"] for each in told] == [None, other, None]
