"""Forms of MCP elicitation: requests as forms, answers from filled forms, and the state of a call."""

import json
from typing import Any

import mcp_types as types
import pytest

from dagwright.interfaces.mcp.elicitation import CallState, StateUnreadable, parse_call_state
from dagwright.interfaces.mcp.request_forms import InvalidJson, answer_of, form_of, prompt_of


def _request(kind: str, **fields: Any) -> dict[str, Any]:
    defaults = {"prompt": "What?", "schema": None, "options": None, "multiple": False, "allow_text": False}
    return {"id": "r", "type": kind, "purpose": "answer", **defaults, **fields}


def _form_fields(request: dict[str, Any]) -> Any:
    form = form_of(request)
    assert form is not None
    return form["properties"]


def test_approval_may_have_a_reason() -> None:
    request = _request("APPROVAL")
    approved_field, reason_field = {"type": "boolean", "title": "Approve"}, {"type": "string", "title": "Reason"}
    properties = {"approved": approved_field, "reason": reason_field}
    assert form_of(request) == {"type": "object", "properties": properties, "required": ["approved"]}
    assert answer_of(request, {"approved": False, "reason": ""}) == {"approved": False}
    assert answer_of(request, {"approved": True, "reason": "fine"}) == {"approved": True, "reason": "fine"}


def test_prompt_of_an_approval_has_its_call_and_the_names_of_entities() -> None:
    call = {"tool": "pay", "arguments": {"to": "7"}, "entities": {"7": "Bob"}, "purpose": "approval"}
    assert prompt_of(_request("APPROVAL", **call)) == 'What?\npay with {"to": "7"}\n7 is Bob'
    assert prompt_of(_request("APPROVAL", prompt="")) == "Approval?"


@pytest.mark.parametrize(
    ("options", "choice"),
    [
        (["web", "mail"], {"type": "string", "enum": ["web", "mail"]}),
        ([1, True], {"type": "string", "enum": ["1", "true"]}),
        (
            [{"id": "7", "label": "Bob"}, "none"],
            {"type": "string", "oneOf": [{"const": "7", "title": "Bob"}, {"const": "none", "title": "none"}]},
        ),
    ],
)
def test_selection_offers_the_labels_of_its_options(options: list[Any], choice: dict[str, Any]) -> None:
    request = _request("SELECTION", options=options)
    assert _form_fields(request) == {"selected": {**choice, "title": "Choice"}}
    assert answer_of(request, {"selected": "x"}) == {"selected": ["x"]}


def test_selection_may_be_a_list_or_a_text() -> None:
    request = _request("SELECTION", options=["a", "b"], multiple=True)
    items = {"type": "string", "enum": ["a", "b"]}
    assert _form_fields(request) == {"selected": {"type": "array", "items": items, "minItems": 1, "title": "Choice"}}
    assert answer_of(request, {"selected": ["a", "b"]}) == {"selected": ["a", "b"]}
    request = _request("SELECTION", options=["a"], allow_text=True)
    assert (form_of(request) or {})["required"] == []
    assert answer_of(request, {"selected": "a", "text": "Bob"}) == {"text": "Bob"}
    assert answer_of(request, {"selected": "a", "text": ""}) == {"selected": ["a"]}


def test_selection_after_a_failure_offers_only_the_choices_that_need_no_value() -> None:
    request = _request("SELECTION", options=["retry", "value", "skip", "stop"], purpose="error")
    assert _form_fields(request)["selected"]["enum"] == ["retry", "skip", "stop"]


def test_selection_without_options_or_with_over_200_options_has_no_form() -> None:
    for options in ([], [str(number) for number in range(201)]):
        assert form_of(_request("SELECTION", options=options)) is None


def test_supported_property_becomes_a_field_and_any_other_property_a_json_field() -> None:
    name = {"type": "string", "minLength": 1}
    quarter, number = {"enum": ["Q1", "Q2"], "default": "Q1"}, {"type": "integer", "minimum": 1}
    properties = {
        "name": {**name, "pattern": "x", "format": "date", "prompt": "Who?"},
        "quarter": quarter,
        "number": {**number, "multipleOf": 2, "description": "How many?"},
        "grade": {"enum": [1, 2]},
        "lines": {"type": "array"},
    }
    base_schema = {"type": "object", "required": ["name", "lines"]}
    request = _request("INFORMATION", schema={**base_schema, "properties": properties})
    assert form_of(request) == {
        **base_schema,
        "properties": {
            "name": {**name, "description": "Who?", "format": "date"},
            "quarter": {"type": "string", **quarter},
            "number": {**number, "description": "How many?"},
            "grade": {"type": "string", "description": 'JSON that matches {"enum": [1, 2]}'},
            "lines": {"type": "string", "description": 'JSON that matches {"type": "array"}'},
        },
    }
    content = {"name": "Bob", "quarter": "", "number": 4, "grade": "1", "lines": "[1]"}
    assert answer_of(request, content) == {"data": {"name": "Bob", "number": 4, "grade": 1, "lines": [1]}}
    with pytest.raises(InvalidJson, match="the field 'lines' must contain JSON"):
        answer_of(request, {"lines": "one, two"})


@pytest.mark.parametrize("schema", [None, {"type": "object"}, {"type": "array", "items": {"type": "integer"}}])
def test_data_without_properties_is_a_single_json_field(schema: dict[str, Any] | None) -> None:
    request = _request("INFORMATION", schema=schema)
    assert list(_form_fields(request)) == ["data"]
    assert answer_of(request, {"data": "[1, 2]"}) == {"data": [1, 2]}
    with pytest.raises(InvalidJson):
        answer_of(request, {})


def test_clarification_and_guidance_have_a_text_field() -> None:
    for kind in ("CLARIFICATION", "GUIDANCE"):
        request = _request(kind)
        assert list(_form_fields(request)) == ["text"]
        assert answer_of(request, {"text": "more"}) == {"text": "more"}


def parsed_state(text: str | None) -> CallState | None:
    return parse_call_state(types.CallToolRequestParams(name="run_plan", request_state=text))


@pytest.mark.parametrize("rounds", ["Infinity", "NaN", "1e999", "-1", '"many"', "null", "[]"])
def test_state_is_restored_and_an_invalid_state_is_rejected(rounds: str) -> None:
    state = CallState("run-1", ("check",), 2)
    assert (parsed_state(state.to_text()), parsed_state(None)) == (state, None)
    document = json.dumps({"run_id": "run-1", "skipped": []})
    with pytest.raises(StateUnreadable, match="repeat the call without it"):
        parsed_state(f'{document[:-1]}, "rounds": {rounds}}}')
