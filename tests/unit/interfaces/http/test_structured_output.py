"""Structured output of runs, as third-party clients request it, and rejected requests.

`structured_output_requests.json` holds requests of instructor, LangChain, pydantic-ai and the Vercel AI SDK.
"""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.feedback_calls import allows_answer_calls
from dagwright.interfaces.http.request_fields import ChatBody
from dagwright.interfaces.http.response_items import ResponseBody, to_chat_body
from dagwright.interfaces.http.structured_output import OutputForm, OutputMismatch, output_form_of
from tests.unit.interfaces.http.conftest import error_of

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


def named_function(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def chat(**fields: Any) -> ChatBody:
    return ChatBody.model_validate({"model": "plan/double", "messages": MESSAGES, **fields})


def form_of(body: ChatBody) -> OutputForm:
    form = output_form_of(body)
    assert form is not None
    return form


def allowed_tools(*tools: Any) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [*tools]}}


REQUESTS = json.loads(Path(__file__).with_name("structured_output_requests.json").read_text(encoding="utf-8"))
"""Recorded bodies of requests of the clients; their texts are replaced, and the model is omitted."""

PERSON_TOOL, FINAL_TOOL = ("Person", True), ("final_result", False)
FUNCTIONS = {
    **dict.fromkeys(("TOOLS", "RESPONSES_TOOLS", "function_calling"), PERSON_TOOL),
    **dict.fromkeys(("tool", "responses"), FINAL_TOOL),
}
"""Mode -> the function with the schema, and whether `tool_choice` names it; others use a format."""


@pytest.mark.parametrize("recorded", REQUESTS, ids=lambda recorded: f"{recorded['client']} {recorded['mode']}")
def test_output_form_of_recorded_requests(recorded: Any) -> None:
    fields = {"model": "plan/double", **recorded["body"]}
    is_response = recorded["path"].endswith("/responses")
    form = form_of(
        to_chat_body(ResponseBody.model_validate(fields)) if is_response else ChatBody.model_validate(fields)
    )
    by_function = "tools" in recorded["body"]
    assert (form.function, form.is_named) == (FUNCTIONS[recorded["mode"]] if by_function else (None, False))
    if "json_object" in str(recorded["body"]):
        assert form.schema == {"type": "object"}
    else:
        types = {name: each["type"] for name, each in form.schema["properties"].items()}
        assert types == {"name": "string", "age": "integer"}
        assert json.loads(form.text_of({"name": "Ann", "age": 30})) == {"name": "Ann", "age": 30}
        with pytest.raises(OutputMismatch, match="output/age"):
            form.text_of({"name": "Ann", "age": "thirty"})


def test_schema_is_that_of_the_only_function_that_may_be_the_answer() -> None:
    required_function = {
        "tools": [function("answer_feedback", {}), function("final_result")],
        "tool_choice": "required",
    }
    one_allowed = {
        "tools": [function("Person"), function("other")],
        "tool_choice": allowed_tools(named_function("Person")),
    }
    for fields, name in ((required_function, "final_result"), (one_allowed, "Person")):
        form = form_of(chat(**fields))
        assert (form.function, form.is_named, form.schema) == (name, False, PERSON)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"response_format": {"type": "text"}},
        {"tools": [function("get_weather")]},
        {"tools": [function("get_weather")], "tool_choice": "auto"},
        {"tools": [function("answer_feedback", {})], "tool_choice": named_function("answer_feedback")},
    ],
)
def test_other_requests_are_answered_by_a_text(fields: Any) -> None:
    assert output_form_of(chat(**fields)) is None


def _format(kind: str, **json_schema: Any) -> dict[str, Any]:
    schema = {"json_schema": {"name": "x", **json_schema}} if kind == "json_schema" else {}
    return {"response_format": {"type": kind, **schema}}


UNSUPPORTED: list[Any] = [
    (_format("json_schema"), "response_format"),
    (_format("json_schema", schema={"type": 1}), "response_format"),
    (_format("grammar"), "response_format"),
    ({"tools": [function("a"), function("b")], "tool_choice": "required"}, "tool_choice"),
    ({"tools": [function("answer_feedback")], "tool_choice": "required"}, "tool_choice"),
    ({"functions": [{"name": "a"}], "function_call": {"name": "a"}}, "function_call"),
    ({"tools": [function("a")], "tool_choice": named_function("b")}, "tool_choice"),
]


@pytest.mark.parametrize(("fields", "param"), UNSUPPORTED)
async def test_unsupported_output_is_rejected(offline_client: httpx.AsyncClient, fields: Any, param: str) -> None:
    body = {"model": "plan/double", "messages": MESSAGES, **fields}
    answer = await offline_client.post("/v1/chat/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize("model", ["profile/intents", "plan/double"])
async def test_schema_needs_a_model_and_a_waiting_client(offline_client: httpx.AsyncClient, model: str) -> None:
    expected = {"type": "json_schema", "name": "Person", "schema": PERSON}
    body = {"model": model, "input": "{}", "text": {"format": expected}, "background": model == "plan/double"}
    assert error_of(await offline_client.post("/v1/responses", json=body)) == (400, "unsupported_parameter")


def test_format_and_choice_of_a_response_are_those_of_a_completion() -> None:
    expected = {"type": "json_schema", "name": "Person", "schema": PERSON, "strict": True}
    tool = {"type": "function", "name": "Person", "parameters": PERSON}
    fields = {"input": "{}", "tools": [tool], "tool_choice": {"type": "function", "name": "Person"}}
    body = to_chat_body(ResponseBody.model_validate({**fields, "text": {"format": expected}}))
    assert (body.response_format, body.tool_choice) == (FORMAT, named_function("Person"))
    form = form_of(body)
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
    # A request for feedback is a call beside a schema only if its function is declared.
    assert not allows_answer_calls(chat(response_format=FORMAT), is_structured=True)
    assert allows_answer_calls(chat(response_format=FORMAT, tools=[function("answer_feedback")]), is_structured=True)
    with pytest.raises(ApiError, match=r"^response_format\.json_schema\.schema: must be a JSON Schema$"):
        output_form_of(chat(**_format("json_schema", schema=1)))
