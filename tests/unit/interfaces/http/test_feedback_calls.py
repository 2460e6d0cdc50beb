"""Open requests as function calls, and results of those calls as answers."""

import json
from typing import Any

import jsonschema_rs
import pytest

from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.feedback_calls import (
    allows_answer_calls,
    answer_schema,
    call_id,
    is_call_id_of,
    parse_answer,
    question_call,
    questions_text,
    questions_with_hint,
    reject_undeclared_function,
    requests_sent_as_calls,
)
from dagwright.interfaces.http.request_fields import ChatBody


def request(request_type: str, **fields: Any) -> dict[str, Any]:
    document = {"request_id": "check", "node_id": "check", "type": request_type, "prompt": "Publish?"}
    absent_fields = dict.fromkeys(("schema", "options", "assignee", "deadline"))
    return {**document, "opened_at": "2026-01-01T00:00:00.000Z", **absent_fields, **fields}


CITY_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def test_call_has_the_request_and_its_run() -> None:
    call = question_call(request("APPROVAL", tool="pay", arguments={"to": "bob"}), run_id="run-1")
    arguments = json.loads(call["function"]["arguments"])
    assert (call["type"], call["function"]["name"]) == ("function", "answer_feedback")
    expected = {"run_id": "run-1", "request_id": "check", "type": "APPROVAL", "prompt": "Publish?", "tool": "pay"}
    assert expected.items() <= arguments.items()
    assert arguments["answer_schema"]["required"] == ["approved"]
    assert "deadline" not in arguments


def test_id_of_a_call_depends_only_on_run_and_request() -> None:
    first_id = call_id(request("APPROVAL"), run_id="run-1")
    later_request = request("APPROVAL", opened_at="2026-01-02T00:00:00.000Z")
    assert first_id == call_id(request("APPROVAL"), run_id="run-1")
    assert len({first_id, call_id(later_request, run_id="run-1"), call_id(request("APPROVAL"), run_id="run-2")}) == 3
    expected = (True, True, False)
    assert (
        len(first_id) <= 40,
        is_call_id_of(first_id, run_id="run-1"),
        is_call_id_of(first_id, run_id="run-2"),
    ) == expected
    changed_ids = (first_id[:-1], f"{first_id}0", first_id.removeprefix("call_"))
    for invalid_id in ("zzz", "", "call_", "call_ü\ud800", *changed_ids):
        assert not is_call_id_of(invalid_id, run_id="run-1"), invalid_id


def test_schema_covers_all_fields_of_an_answer() -> None:
    approval_schema = answer_schema(request("APPROVAL", tool="pay", purpose="approval"))
    error_schema = answer_schema(request("SELECTION", options=["retry", "value", "skip"], purpose="error"))
    jsonschema_rs.validate(approval_schema, {"approved": True, "remember": True})
    jsonschema_rs.validate(error_schema, {"selected": ["value"], "value": 5})
    jsonschema_rs.validate(error_schema, {"selected": ["retry"], "arguments": {"to": "bob"}})
    options = [{"id": "p1", "label": "Kite"}, {"id": "p2", "label": "Kite SARL"}]
    schema = answer_schema(request("SELECTION", options=options, allow_text=True))
    selected_schema = schema["properties"]["selected"]
    assert (selected_schema["items"], selected_schema["maxItems"]) == ({"enum": ["p1", "p2"]}, 1)
    assert schema["required"] == []


def test_text_of_a_request_without_a_prompt_is_its_type() -> None:
    assert questions_text([request("APPROVAL"), request("GUIDANCE", prompt="")]) == "Publish?\nGuidance"


@pytest.mark.parametrize(
    ("document", "text", "content"),
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
        (request("INFORMATION", schema=CITY_SCHEMA), '{"city": "Oslo"}', {"data": {"city": "Oslo"}}),
        (request("INFORMATION", schema=CITY_SCHEMA), '{"data": {"city": "Oslo"}}', {"data": {"city": "Oslo"}}),
    ],
)
def test_result_of_a_call_becomes_the_answer(document: Any, text: str, content: Any) -> None:
    assert parse_answer(document, text) == content
    jsonschema_rs.validate(answer_schema(document), content)


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def test_schema_decides_whether_data_is_wrapped() -> None:
    inner_schema = {**_object(x={"type": "integer"}), "additionalProperties": False}
    schema = {**_object(data=inner_schema), "required": ["data"], "additionalProperties": False}
    request_for_data = request("INFORMATION", schema=schema)
    for text in ('{"data": {"data": {"x": 1}}}', '{"data": {"x": 1}}'):
        content = parse_answer(request_for_data, text)
        assert content == {"data": {"data": {"x": 1}}}
        jsonschema_rs.validate(answer_schema(request_for_data), content)
    ambiguous_request = request("INFORMATION", schema=_object(data={"type": "object"}))
    assert parse_answer(ambiguous_request, '{"data": {}}') == {"data": {}}


def test_result_that_is_not_an_answer_is_rejected() -> None:
    for document, text in ((request("APPROVAL"), "perhaps"), (request("INFORMATION", schema=CITY_SCHEMA), "Oslo")):
        with pytest.raises(ApiError, match="the result is not an answer to 'check': answer"):
            parse_answer(document, text)


_ANSWER_FUNCTION = {"type": "function", "function": {"name": "answer_feedback"}}
_WEATHER_FUNCTION = {"type": "function", "function": {"name": "get_weather"}}
_ALLOWED_TOOLS = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [_WEATHER_FUNCTION]}}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, True),
        ({"tools": []}, True),
        ({"tools": [_WEATHER_FUNCTION]}, False),
        ({"tools": [_WEATHER_FUNCTION, _ANSWER_FUNCTION]}, True),
        ({"functions": [{"name": "get_weather"}]}, False),
        ({"tool_choice": "none"}, False),
        ({"functions": [_ANSWER_FUNCTION["function"]], "function_call": "none"}, False),
        ({"tools": [_ANSWER_FUNCTION, _WEATHER_FUNCTION], "tool_choice": "required"}, True),
        ({"tools": [_ANSWER_FUNCTION, _WEATHER_FUNCTION], "tool_choice": _WEATHER_FUNCTION}, False),
        ({"tools": [_ANSWER_FUNCTION, _WEATHER_FUNCTION], "tool_choice": _ANSWER_FUNCTION}, True),
        ({"tools": [_ANSWER_FUNCTION, _WEATHER_FUNCTION], "tool_choice": _ALLOWED_TOOLS}, False),
    ],
)
def test_request_becomes_a_call_only_if_the_client_accepts_the_call(fields: dict[str, Any], expected: bool) -> None:
    assert allows_answer_calls(_chat_body(**fields)) is expected


def _chat_body(**fields: Any) -> ChatBody:
    return ChatBody.model_validate({"messages": [{"role": "user", "content": "{}"}], **fields})


def test_result_of_an_undeclared_function_is_rejected() -> None:
    for tools in (None, [], [_WEATHER_FUNCTION, _ANSWER_FUNCTION]):
        reject_undeclared_function(_chat_body(tools=tools))
    for fields in ({"tools": [_WEATHER_FUNCTION]}, {"functions": [_WEATHER_FUNCTION["function"]]}):
        with pytest.raises(ApiError, match="is not the answer of a person: the request does not declare this function"):
            reject_undeclared_function(_chat_body(**fields))


def test_request_without_a_call_names_the_ways_to_answer() -> None:
    requests = [request("APPROVAL"), request("CLARIFICATION", request_id="who", prompt="Who?", channel="inbox")]
    assert questions_with_hint(requests[:1], run_id="run-1", allows_calls=True) == "Publish?"
    ways = "in the console, with `dagwright feedback run-1`, or with POST /v1/runs/run-1/feedback"
    hint = f"(The run 'run-1' waits for the answer to 'who'. Answer {ways}.)"
    assert questions_with_hint(requests, run_id="run-1", allows_calls=True) == f"Publish?\nWho?\n\n{hint}"
    hint_for_both = hint.replace("'who'", "'check', 'who'")
    assert questions_with_hint(requests, run_id="run-1", allows_calls=False) == f"Publish?\nWho?\n\n{hint_for_both}"
    assert requests_sent_as_calls(requests, allows_calls=True) == requests[:1]
    assert requests_sent_as_calls(requests, allows_calls=False) == []
