"""Structured output of runs: requests of third-party clients, and requests that are rejected.

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
from dagwright.interfaces.http.response_items import CreateResponseBody, to_chat_body
from dagwright.interfaces.http.structured_output import OutputForm, OutputMismatch, output_form_of
from tests.unit.interfaces.http.conftest import status_and_code_of, status_and_param_of

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
MESSAGES = [{"role": "user", "content": "{}"}]
PERSON_FORMAT = {"type": "json_schema", "json_schema": {"name": "Person", "strict": True, "schema": PERSON}}


def function_tool(name: str, parameters: Any = PERSON) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": "", "parameters": parameters}}


def function_reference(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def chat_body(**fields: Any) -> ChatBody:
    return ChatBody.model_validate({"model": "plan/double", "messages": MESSAGES, **fields})


def response_chat_body(**fields: Any) -> ChatBody:
    return to_chat_body(CreateResponseBody.model_validate(fields))


def form_of(body: ChatBody) -> OutputForm:
    form = output_form_of(body)
    assert form is not None
    return form


def allowed_tools(*tools: Any) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [*tools]}}


REQUESTS = json.loads(Path(__file__).with_name("structured_output_requests.json").read_text(encoding="utf-8"))
"""Recorded request bodies, with replaced texts and without the model."""

PERSON_TOOL, FINAL_TOOL = ("Person", True), ("final_result", False)
FUNCTIONS_BY_MODE = {
    **dict.fromkeys(("TOOLS", "RESPONSES_TOOLS", "function_calling"), PERSON_TOOL),
    **dict.fromkeys(("tool", "responses"), FINAL_TOOL),
}
"""Mode of a request -> name of the function that has the schema, and whether `tool_choice` names this function.

Requests of the other modes use a response format.
"""


@pytest.mark.parametrize("recorded_request", REQUESTS, ids=lambda each: f"{each['client']} {each['mode']}")
def test_recorded_request_has_the_expected_output_form(recorded_request: Any) -> None:
    fields = {"model": "plan/double", **recorded_request["body"]}
    is_response = recorded_request["path"].endswith("/responses")
    form = form_of(response_chat_body(**fields) if is_response else ChatBody.model_validate(fields))
    function = FUNCTIONS_BY_MODE[recorded_request["mode"]] if "tools" in fields else (None, False)
    assert (form.function, form.is_named) == function
    if "json_object" in str(fields):
        assert form.schema == {"type": "object"}
    else:
        types = {name: field["type"] for name, field in form.schema["properties"].items()}
        assert types == {"name": "string", "age": "integer"}
        assert json.loads(form.text_of({"name": "Ann", "age": 30})) == {"name": "Ann", "age": 30}
        with pytest.raises(OutputMismatch, match="output/age"):
            form.text_of({"name": "Ann", "age": "thirty"})


def test_schema_comes_from_the_only_allowed_function() -> None:
    tools = [function_tool("answer_feedback", {}), function_tool("final_result")]
    form = form_of(chat_body(tools=tools, tool_choice="required"))
    assert (form.function, form.is_named, form.schema) == ("final_result", False, PERSON)
    tools = [function_tool("Person"), function_tool("other")]
    form = form_of(chat_body(tools=tools, tool_choice=allowed_tools(function_reference("Person"))))
    assert (form.function, form.is_named, form.schema) == ("Person", False, PERSON)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"response_format": {"type": "text"}},
        {"tools": [function_tool("get_weather")]},
        {"tools": [function_tool("get_weather")], "tool_choice": "auto"},
        {"tools": [function_tool("answer_feedback", {})], "tool_choice": function_reference("answer_feedback")},
    ],
)
def test_requests_without_required_structure_have_no_output_form(fields: Any) -> None:
    assert output_form_of(chat_body(**fields)) is None


def _response_format(kind: str, **json_schema: Any) -> dict[str, Any]:
    schema = {"json_schema": {"name": "x", **json_schema}} if kind == "json_schema" else {}
    return {"response_format": {"type": kind, **schema}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        (_response_format("json_schema"), "response_format"),
        (_response_format("json_schema", schema={"type": 1}), "response_format"),
        (_response_format("grammar"), "response_format"),
        ({"tools": [function_tool("a"), function_tool("b")], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [function_tool("answer_feedback")], "tool_choice": "required"}, "tool_choice"),
        ({"functions": [{"name": "a"}], "function_call": {"name": "a"}}, "function_call"),
        ({"tools": [function_tool("a")], "tool_choice": function_reference("b")}, "tool_choice"),
    ],
)
async def test_unsupported_output_is_rejected(offline_http: httpx.AsyncClient, fields: Any, param: str) -> None:
    body = {"model": "plan/double", "messages": MESSAGES, **fields}
    response = await offline_http.post("/v1/chat/completions", json=body)
    assert status_and_param_of(response) == (400, param)


@pytest.mark.parametrize("model", ["profile/intents", "plan/double"])
async def test_schema_is_unsupported_for_intents_and_in_background(offline_http: httpx.AsyncClient, model: str) -> None:
    output_format = {"type": "json_schema", "name": "Person", "schema": PERSON}
    body = {"model": model, "input": "{}", "text": {"format": output_format}, "background": model == "plan/double"}
    assert status_and_code_of(await offline_http.post("/v1/responses", json=body)) == (400, "unsupported_parameter")


def test_response_format_and_tool_choice_are_converted_for_chat_completions() -> None:
    output_format = {"type": "json_schema", "name": "Person", "schema": PERSON, "strict": True}
    tool = {"type": "function", "name": "Person", "parameters": PERSON}
    tool_choice = {"type": "function", "name": "Person"}
    body = response_chat_body(input="{}", tools=[tool], tool_choice=tool_choice, text={"format": output_format})
    assert (body.response_format, body.tool_choice) == (PERSON_FORMAT, function_reference("Person"))
    form = form_of(body)
    assert (form.function, form.schema) == ("Person", PERSON)


def test_output_is_validated_and_valid_json_text_is_unchanged() -> None:
    form = OutputForm(PERSON, "response_format")
    assert json.loads(form.text_of({"name": "Ann", "age": 30})) == {"name": "Ann", "age": 30}
    assert form.text_of('{"name": "Ann",  "age": 30}') == '{"name": "Ann",  "age": 30}'
    assert OutputForm({"type": "string"}, "response_format").text_of("12") == '"12"'
    with pytest.raises(OutputMismatch, match='output/age: "30" is not of type "integer"'):
        form.text_of({"name": "Ann", "age": "30"})
    with pytest.raises(OutputMismatch, match='output: "Ann" is not of type "object"'):
        form.text_of("Ann")


def test_function_call_of_a_run_has_the_same_id_from_every_gateway() -> None:
    form = OutputForm(PERSON, "tools", "Person")
    call = form.function_call('{"name": "Ann"}', run_id="run-1")
    assert call["function"] == {"name": "Person", "arguments": '{"name": "Ann"}'}
    assert (
        call["id"] == form.function_call("{}", run_id="run-1")["id"] != form.function_call("{}", run_id="run-2")["id"]
    )


def test_structured_output_allows_answer_calls_only_if_their_function_is_declared() -> None:
    assert not allows_answer_calls(chat_body(response_format=PERSON_FORMAT), is_structured=True)
    body = chat_body(response_format=PERSON_FORMAT, tools=[function_tool("answer_feedback")])
    assert allows_answer_calls(body, is_structured=True)


def test_invalid_output_schema_is_rejected() -> None:
    with pytest.raises(ApiError, match=r"^response_format\.json_schema\.schema: must be a JSON Schema$"):
        output_form_of(chat_body(**_response_format("json_schema", schema=1)))
