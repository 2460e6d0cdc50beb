"""Questions as function calls, and their results as answers."""

import json
from typing import Any

import jsonschema_rs
import pytest

from dagwright.interfaces.http.bodies import ChatBody
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.feedback_calls import (
    answer_schema,
    call_id,
    call_of,
    callable_requests,
    content_of,
    is_call_of,
    may_call,
    question_words,
    refuse_undeclared,
    waiting_words,
)


def request(kind: str, **more: Any) -> dict[str, Any]:
    told = {"id": "check", "node": "check", "type": kind, "prompt": "Publish?", "opened_at": "2026-01-01T00:00:00.000Z"}
    return {**told, "schema": None, "options": None, "assignee": None, "deadline": None, **more}


PLACE = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def test_call_says_what_is_asked_of_which_run() -> None:
    call = call_of(request("APPROVAL", tool="pay", arguments={"to": "bob"}), run="run-1")
    arguments = json.loads(call["function"]["arguments"])
    assert (call["type"], call["function"]["name"]) == ("function", "answer_feedback")
    assert {name: arguments[name] for name in ("run_id", "request_id", "type", "prompt", "tool")} == {
        "run_id": "run-1",
        "request_id": "check",
        "type": "APPROVAL",
        "prompt": "Publish?",
        "tool": "pay",
    }
    assert "deadline" not in arguments


def test_call_has_the_same_id_from_every_gateway_and_another_one_if_it_is_asked_again() -> None:
    first = call_id(request("APPROVAL"), run="run-1")
    assert first == call_id(request("APPROVAL"), run="run-1")
    later = request("APPROVAL", opened_at="2026-01-02T00:00:00.000Z")
    assert len({first, call_id(later, run="run-1"), call_id(request("APPROVAL"), run="run-2")}) == 3
    assert len(first) <= 40
    assert is_call_of(first, run="run-1")
    for other in ("zzz", "", "call_", first[:-1], f"{first}0", first.removeprefix("call_"), "call_ü\ud800"):
        assert not is_call_of(other, run="run-1"), other
    assert not is_call_of(first, run="run-2")


def test_schema_has_all_that_an_answer_may_hold() -> None:
    call = answer_schema(request("APPROVAL", tool="pay", purpose="approval"))
    failure = answer_schema(request("SELECTION", options=["retry", "value", "skip"], purpose="error"))
    jsonschema_rs.validate(call, {"approved": True, "remember": True})
    jsonschema_rs.validate(failure, {"selected": ["value"], "value": 5})
    jsonschema_rs.validate(failure, {"selected": ["retry"], "arguments": {"to": "bob"}})


def test_questions_without_a_prompt_have_words_too() -> None:
    assert question_words([request("APPROVAL"), request("GUIDANCE", prompt="")]) == "Publish?\nGuidance"


@pytest.mark.parametrize(
    ("asked", "text", "content"),
    [
        (request("APPROVAL"), '{"approved": true, "reason": "fine"}', {"approved": True, "reason": "fine"}),
        (request("APPROVAL"), "Yes.", {"approved": True}),
        (request("APPROVAL"), "rejected", {"approved": False}),
        (request("APPROVAL"), "true", {"approved": True}),
        (request("SELECTION", options=["a", "b"]), '{"selected": ["a"]}', {"selected": ["a"]}),
        (request("SELECTION", options=["a", "b"]), "a", {"selected": ["a"]}),
        (request("SELECTION", options=["a", "b"], multiple=True), '["a", "b"]', {"selected": ["a", "b"]}),
        (request("CLARIFICATION"), "Under Apex.", {"text": "Under Apex."}),
        (request("CLARIFICATION"), '{"text": "Apex"}', {"text": "Apex"}),
        (request("CLARIFICATION"), "12", {"text": "12"}),
        (request("CLARIFICATION"), '{"name": "Apex"}', {"text": '{"name": "Apex"}'}),
        (request("CLARIFICATION"), "{}", {"text": "{}"}),
        (request("GUIDANCE"), '{"nodes": []}', {"nodes": []}),
        (request("GUIDANCE"), "Slower.", {"text": "Slower."}),
        (request("INFORMATION", schema=PLACE), '{"city": "Oslo"}', {"data": {"city": "Oslo"}}),
        (request("INFORMATION", schema=PLACE), '{"data": {"city": "Oslo"}}', {"data": {"city": "Oslo"}}),
    ],
)
def test_result_is_the_answer_that_it_means(asked: Any, text: str, content: Any) -> None:
    assert content_of(asked, text) == content
    jsonschema_rs.validate(answer_schema(asked), content)


OF_ITS_OWN = {
    "type": "object",
    "properties": {"data": {"type": "object", "properties": {"x": {"type": "integer"}}, "additionalProperties": False}},
    "required": ["data"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("text", ['{"data": {"data": {"x": 1}}}', '{"data": {"x": 1}}'])
def test_data_with_a_field_data_of_their_own_may_be_wrapped_and_alone(text: str) -> None:
    asked = request("INFORMATION", schema=OF_ITS_OWN)
    content = content_of(asked, text)
    assert content == {"data": {"data": {"x": 1}}}
    jsonschema_rs.validate(answer_schema(asked), content)


def test_answer_that_could_be_both_is_what_its_schema_says() -> None:
    schema = {"type": "object", "properties": {"data": {"type": "object"}}}
    assert content_of(request("INFORMATION", schema=schema), '{"data": {}}') == {"data": {}}


@pytest.mark.parametrize(
    ("asked", "text"), [(request("APPROVAL"), "perhaps"), (request("INFORMATION", schema=PLACE), "Oslo")]
)
def test_result_that_means_nothing_is_refused_with_what_to_send(asked: Any, text: str) -> None:
    with pytest.raises(ApiError, match="that is no answer to 'check': answer"):
        content_of(asked, text)


def test_schema_of_a_selection_has_the_options() -> None:
    options = [{"id": "p1", "label": "Kite"}, {"id": "p2", "label": "Kite SARL"}]
    schema = answer_schema(request("SELECTION", options=options, takes_text=True))
    assert schema["properties"]["selected"]["items"] == {"enum": ["p1", "p2"]}
    assert (schema["properties"]["selected"]["maxItems"], schema["required"]) == (1, [])


_DECLARED = {"type": "function", "function": {"name": "answer_feedback"}}
_WEATHER = {"type": "function", "function": {"name": "get_weather"}}


@pytest.mark.parametrize(
    ("fields", "allowed"),
    [
        ({}, True),
        ({"tools": []}, True),
        ({"tools": [_WEATHER]}, False),
        ({"tools": [_WEATHER, _DECLARED]}, True),
        ({"functions": [{"name": "get_weather"}]}, False),
        ({"tool_choice": "none"}, False),
        ({"tools": [_DECLARED], "tool_choice": "none"}, False),
        ({"functions": [_DECLARED["function"]], "function_call": "none"}, False),
        ({"tools": [_DECLARED, _WEATHER], "tool_choice": "required"}, True),
        ({"tools": [_DECLARED, _WEATHER], "tool_choice": _WEATHER}, False),
        ({"tools": [_DECLARED, _WEATHER], "tool_choice": _DECLARED}, True),
        (
            {
                "tools": [_DECLARED, _WEATHER],
                "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [_WEATHER]}},
            },
            False,
        ),
    ],
)
def test_question_is_a_call_only_if_the_request_could_have_it(fields: dict[str, Any], allowed: bool) -> None:
    body = ChatBody.model_validate({"messages": [{"role": "user", "content": "{}"}], **fields})
    assert may_call(body) is allowed


def test_result_from_a_client_that_does_not_declare_the_function_is_no_answer() -> None:
    messages = [{"role": "user", "content": "{}"}]
    for tools in (None, [], [_WEATHER, _DECLARED]):
        refuse_undeclared(ChatBody.model_validate({"messages": messages, "tools": tools}))
    for fields in ({"tools": [_WEATHER]}, {"functions": [_WEATHER["function"]]}):
        with pytest.raises(ApiError, match="is no answer of a person: the request declares no function of that name"):
            refuse_undeclared(ChatBody.model_validate({"messages": messages, **fields}))


def test_question_that_is_no_call_says_where_to_answer_it() -> None:
    asked = [request("APPROVAL"), request("CLARIFICATION", id="who", prompt="Who?", channel="inbox")]
    assert waiting_words(asked[:1], run="run-1", allows_calls=True) == "Publish?"
    where = "in the console, with `dagwright feedback run-1`, or with POST /v1/runs/run-1/feedback"
    hint = f"(The run 'run-1' waits for the answer to 'who'. Answer {where}.)"
    assert waiting_words(asked, run="run-1", allows_calls=True) == f"Publish?\nWho?\n\n{hint}"
    both = hint.replace("'who'", "'check', 'who'")
    assert waiting_words(asked, run="run-1", allows_calls=False) == f"Publish?\nWho?\n\n{both}"
    assert callable_requests(asked, allows_calls=True) == asked[:1]
    assert callable_requests(asked, allows_calls=False) == []
