"""Structured output of runs, as third-party clients ask for it, and what of it is refused before a run starts.

`structured_output_requests.json` holds requests of instructor, LangChain, pydantic-ai and the Vercel AI SDK.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from dagwright.interfaces.http.bodies import ChatBody
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.feedback_calls import may_call
from dagwright.interfaces.http.response_items import ResponseBody, chat_of
from dagwright.interfaces.http.structured_output import OutputForm, OutputMismatch, output_form_of
from tests.unit.gateway.conftest import Apart

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
MESSAGES = [{"role": "user", "content": "{}"}]
FORMAT = {"type": "json_schema", "json_schema": {"name": "Person", "strict": True, "schema": PERSON}}


def function(name: str, parameters: Any = PERSON) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": "", "parameters": parameters}}


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def chat(**fields: Any) -> ChatBody:
    return ChatBody.model_validate({"model": "plan/double", "messages": MESSAGES, **fields})


REQUESTS = json.loads(Path(__file__).with_name("structured_output_requests.json").read_text(encoding="utf-8"))
"""Bodies that the clients sent, recorded from the client itself; texts are ours, the model is left out."""

FUNCTIONS = {
    "TOOLS": ("Person", True),
    "RESPONSES_TOOLS": ("Person", True),
    "function_calling": ("Person", True),
    "tool": ("final_result", False),
    "responses": ("final_result", False),
}
"""Mode -> the function that the schema comes by, and whether `tool_choice` names it; others use a format."""


@pytest.mark.parametrize("sent", REQUESTS, ids=lambda sent: f"{sent['client']} {sent['mode']}")
def test_client_that_asks_for_structured_output_is_understood(sent: Any) -> None:
    fields = {"model": "plan/double", **sent["body"]}
    is_response = sent["path"].endswith("/responses")
    form = output_form_of(
        chat_of(ResponseBody.model_validate(fields)) if is_response else ChatBody.model_validate(fields)
    )
    assert form is not None
    by_function = "tools" in sent["body"]
    assert (form.function, form.is_named) == (FUNCTIONS[sent["mode"]] if by_function else (None, False))
    if "json_object" in str(sent["body"]):
        assert form.schema == {"type": "object"}
    else:
        assert {name: each["type"] for name, each in form.schema["properties"].items()} == {
            "name": "string",
            "age": "integer",
        }
        assert json.loads(form.text_of({"name": "Ann", "age": 30})) == {"name": "Ann", "age": 30}
        with pytest.raises(OutputMismatch, match="output/age"):
            form.text_of({"name": "Ann", "age": "thirty"})


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        (
            {"tools": [function("answer_feedback", {}), function("final_result")], "tool_choice": "required"},
            ("final_result", False),
        ),
        (
            {
                "tools": [function("Person"), function("other")],
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {"mode": "required", "tools": [named("Person")]},
                },
            },
            ("Person", False),
        ),
    ],
)
def test_schema_is_that_of_the_one_function_that_may_be_the_answer(fields: Any, found: tuple[str, bool]) -> None:
    form = output_form_of(chat(**fields))
    assert form is not None
    assert (form.function, form.is_named, form.schema) == (*found, PERSON)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"response_format": {"type": "text"}},
        {"tools": [function("get_weather")]},
        {"tools": [function("get_weather")], "tool_choice": "auto"},
        {"tools": [function("answer_feedback", {})], "tool_choice": named("answer_feedback")},
    ],
)
def test_other_requests_are_answered_by_a_text(fields: Any) -> None:
    assert output_form_of(chat(**fields)) is None


REFUSED: dict[str, Any] = {
    "no schema": ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "response_format"),
    "wrong schema": (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": 1}}}},
        "response_format",
    ),
    "unknown format": ({"response_format": {"type": "grammar"}}, "response_format"),
    "several functions": ({"tools": [function("a"), function("b")], "tool_choice": "required"}, "tool_choice"),
    "no function": ({"tools": [function("answer_feedback")], "tool_choice": "required"}, "tool_choice"),
    "deprecated form": ({"functions": [{"name": "a"}], "function_call": {"name": "a"}}, "function_call"),
    "unknown function": ({"tools": [function("a")], "tool_choice": named("b")}, "tool_choice"),
}


@pytest.mark.parametrize(("fields", "param"), [pytest.param(*each, id=name) for name, each in REFUSED.items()])
async def test_what_a_run_cannot_honour_is_refused_before_one_starts(away: Apart, fields: Any, param: str) -> None:
    http, client, _ = away
    answer = await http.post("/v1/chat/completions", json={"model": "plan/double", "messages": MESSAGES, **fields})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert not client.asked


@pytest.mark.parametrize("profile", ["profile/intents", "plan/double"])
async def test_answer_with_a_schema_is_made_by_a_model_and_while_the_client_waits(away: Apart, profile: str) -> None:
    http, client, _ = away
    wanted = {"type": "json_schema", "name": "Person", "schema": PERSON}
    body = {"model": profile, "input": "{}", "text": {"format": wanted}, "background": profile == "plan/double"}
    answer = await http.post("/v1/responses", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unsupported_parameter")
    assert not client.asked


def test_format_and_choice_of_a_response_are_those_of_a_completion() -> None:
    wanted = {"type": "json_schema", "name": "Person", "schema": PERSON, "strict": True}
    tool = {"type": "function", "name": "Person", "parameters": PERSON}
    fields = {"input": "{}", "tools": [tool], "tool_choice": {"type": "function", "name": "Person"}}
    body = ResponseBody.model_validate({**fields, "text": {"format": wanted}})
    made = chat_of(body)
    assert made.response_format == FORMAT
    assert made.tool_choice == named("Person")
    form = output_form_of(made)
    assert form is not None
    assert (form.function, form.schema) == ("Person", PERSON)


def test_output_is_checked_and_text_that_is_json_is_read() -> None:
    form = OutputForm(PERSON, "response_format")
    assert json.loads(form.text_of({"name": "Ann", "age": 30})) == {"name": "Ann", "age": 30}
    assert form.text_of('{"name": "Ann",  "age": 30}') == '{"name": "Ann",  "age": 30}'
    assert OutputForm({"type": "string"}, "response_format").text_of("12") == '"12"'
    with pytest.raises(OutputMismatch, match='output/age: "30" is not of type "integer"'):
        form.text_of({"name": "Ann", "age": "30"})
    with pytest.raises(OutputMismatch, match='output: "Ann" is not of type "object"'):
        form.text_of("Ann")


def test_answer_of_a_run_is_the_same_call_from_every_gateway() -> None:
    form = OutputForm(PERSON, "tools", "Person")
    call = form.call('{"name": "Ann"}', run="run-1")
    assert call["function"] == {"name": "Person", "arguments": '{"name": "Ann"}'}
    assert call["id"] == form.call("{}", run="run-1")["id"] != form.call("{}", run="run-2")["id"]


def test_question_is_a_call_beside_a_schema_only_if_the_function_is_declared() -> None:
    assert not may_call(chat(response_format=FORMAT), is_structured=True)
    assert may_call(chat(response_format=FORMAT, tools=[function("answer_feedback")]), is_structured=True)


def test_wrong_schema_names_its_place() -> None:
    with pytest.raises(ApiError, match=r"^response_format\.json_schema\.schema: must be a JSON Schema$"):
        output_form_of(chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": 1}}))
