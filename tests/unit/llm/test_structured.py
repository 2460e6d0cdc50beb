"""JSON answers: output modes, stored capabilities of a server, and invalid answers."""

import json
from typing import Any

import pytest

from dagwright.llm import (
    CallLabels,
    ModelCall,
    ModelConfig,
    ModelError,
    OfferedTool,
    OutputSchema,
    system,
    user,
)
from dagwright.testing import (
    ANY_NUMBER,
    Completion,
    HttpError,
    ModelServer,
    Raw,
    ReceivedCall,
    ScriptedToolCall,
    When,
    json_text,
    step,
    text,
    tool_call,
)
from tests.unit.llm.scripted_calls import client_of, complete, failure_of, failure_of_client, model_call, read_response

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "more": {"type": "object"}},
    "required": ["name"],
}
PERSON_OUTPUT = OutputSchema("person", PERSON)
ANN = {"name": "Ann", "more": {"likes": ["tea"]}}
NUMBERS = OutputSchema("numbers", {"type": "array", "items": {"type": "integer"}})

SCHEMA_UNSUPPORTED = HttpError(
    400, "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model."
)
JSON_UNSUPPORTED = HttpError(400, "This response_format type is unavailable now")
TOOLS_UNSUPPORTED = HttpError(400, "this model does not support tools")


def requested_modes(server: ModelServer) -> list[str]:
    def mode(call: ReceivedCall) -> str:
        return "tool" if call.tools else call.response_format

    return [mode(call) for call in server.calls]


async def test_strict_schema_is_requested_and_the_answer_is_converted_back() -> None:
    strict_answer = {"name": "Ann", "age": None, "more": '{"likes": ["tea"]}'}
    async with ModelServer(json_text(strict_answer)) as server:
        answer = await complete(server, model_call(output=PERSON_OUTPUT))
    assert (answer.output, json.loads(answer.text)) == (ANN, strict_answer)
    null_schema, json_text_schema = {"type": "null"}, {"type": "string", "description": "The value as a text of JSON."}
    age_schema, more_schema = {"anyOf": [{"type": "integer"}, null_schema]}, {"anyOf": [json_text_schema, null_schema]}
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": age_schema, "more": more_schema},
        "required": ["name", "age", "more"],
        "additionalProperties": False,
    }
    json_schema = {"name": "person", "strict": True, "schema": schema}
    assert server.calls[0].body["response_format"] == {"type": "json_schema", "json_schema": json_schema}


# Output modes in the order of the attempts, the rejection of each mode but the last, and an answer in each mode.
MODES = ["json_schema", "json_object", "tool", "text"]
FENCED_ANSWER = text(f"Here it is:\n```json\n{json.dumps(ANN)}\n```\nAnything else?")
REJECTIONS = (SCHEMA_UNSUPPORTED, JSON_UNSUPPORTED, TOOLS_UNSUPPORTED)
ANSWERS = [json_text(ANN), json_text(ANN), tool_call("person", **ANN), FENCED_ANSWER]


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("rejected_count", range(4))
async def test_rejected_call_and_later_calls_use_the_next_mode(rejected_count: int, is_streamed: bool) -> None:
    rejections, answer = REJECTIONS[:rejected_count], ANSWERS[rejected_count]
    async with ModelServer(*rejections, answer, answer) as server, client_of(server) as client:
        for _ in range(2):
            actual = await read_response(client, model_call(output=PERSON_OUTPUT), is_streamed=is_streamed)
            assert (actual.output, actual.message.tool_calls, actual.finish_reason) == (ANN, (), "stop")
    assert requested_modes(server) == [*MODES[: rejected_count + 1], MODES[rejected_count]]


async def test_call_that_the_script_does_not_expect_is_not_repeated_in_another_mode() -> None:
    error = HttpError(400, "the script has no answer for response_format", code="unexpected_call")
    async with ModelServer(error) as server:
        failure = await failure_of_client(client_of(server), model_call(output=PERSON_OUTPUT))
    assert (requested_modes(server), failure.advice) == (["json_schema"], "")


async def test_schema_is_in_the_prompt_if_the_mode_has_no_schema() -> None:
    call = ModelCall((system("Be brief."), user("Who?")), output=PERSON_OUTPUT)
    async with ModelServer(SCHEMA_UNSUPPORTED, json_text(ANN)) as server:
        await complete(server, call)
    system_message, user_message = server.calls[1].messages
    assert user_message == {"role": "user", "content": "Who?"}
    assert system_message["content"].startswith("Be brief.\n\nAnswer with JSON only")
    assert system_message["content"].endswith(json.dumps(PERSON))


async def test_rejected_mode_is_stored_per_model_unless_only_the_schema_was_rejected() -> None:
    expected_modes = ["json_schema", "json_object", "json_schema", "json_object"]
    schema_rejection = step(SCHEMA_UNSUPPORTED, when=When(model="old", response_format="json_schema"), times=ANY_NUMBER)
    steps = (schema_rejection, step(json_text(ANN), times=ANY_NUMBER))
    async with ModelServer(*steps) as server, client_of(server) as client:
        for model in ("old", "new", "old"):
            config = ModelConfig(model=model)
            assert (await client.complete(model_call(output=PERSON_OUTPUT, config=config))).output == ANN
    assert requested_modes(server) == expected_modes
    error = HttpError(400, "Invalid schema for response_format 'person': too deep", param="response_format")
    answers = (error, json_text(ANN), json_text({"value": [1]}), json_text(ANN))
    async with ModelServer(*answers) as server, client_of(server) as client:
        for output, value in ((PERSON_OUTPUT, ANN), (NUMBERS, [1]), (PERSON_OUTPUT, ANN)):
            assert (await client.complete(model_call(output=output))).output == value
    assert requested_modes(server) == expected_modes
    async with (
        ModelServer(SCHEMA_UNSUPPORTED, json_text(ANN), "Hi", json_text(ANN)) as server,
        client_of(server) as client,
    ):
        for call in (model_call(output=PERSON_OUTPUT), model_call(), model_call(output=PERSON_OUTPUT)):
            await client.complete(call)
    assert requested_modes(server) == ["json_schema", "json_object", "text", "json_object"]


async def test_first_rejection_is_reported_if_no_mode_works() -> None:
    failure = await failure_of(*REJECTIONS, HttpError(400, "no"), call=model_call(output=PERSON_OUTPUT))
    assert failure.error is ModelError.REQUEST_INVALID
    assert "'json_schema' is not supported" in str(failure)


@pytest.mark.parametrize(
    ("rejection", "error"),
    [
        (HttpError(400, "Unsupported value", param="temperature"), ModelError.REQUEST_INVALID),
        (HttpError(401, "no"), ModelError.KEY_REJECTED),
        (HttpError(429, "wait"), ModelError.BUSY),
        (HttpError(400, "too long", code="context_length_exceeded"), ModelError.CONTEXT_EXCEEDED),
    ],
)
async def test_failures_unrelated_to_json_are_not_retried(rejection: HttpError, error: ModelError) -> None:
    assert (await failure_of(rejection, call=model_call(output=PERSON_OUTPUT))).error is error


async def test_rejected_optional_fields_are_omitted_or_renamed() -> None:
    problem = {"type": "extra_forbidden", "loc": ["body", "stream_options"], "msg": "not permitted"}
    rejected_field = {"detail": [problem]}
    rejections = (
        HttpError(400, "The 'metadata' parameter is only allowed when 'store' is enabled.", param="metadata"),
        Raw(json.dumps(rejected_field).encode(), status=422),
    )
    async with ModelServer(*rejections, "one", "two") as server, client_of(server) as client:
        for expected_text in ("one", "two"):
            actual = await read_response(client, model_call(labels=CallLabels(node_id="n")), is_streamed=True)
            assert (actual.text, actual.usage.uncounted_calls) == (expected_text, 1)
    sent_fields = [sorted(call.body.keys() & {"metadata", "stream_options"}) for call in server.calls]
    assert sent_fields == [["metadata", "stream_options"], ["stream_options"], [], []]
    message = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
    rejection = HttpError(400, message, code="unsupported_parameter", param="max_tokens")
    async with ModelServer(rejection, "one", "two") as server, client_of(server) as client:
        for _ in range(2):
            await client.complete(model_call(config=ModelConfig(max_tokens=9)))
    token_limits = [(call.body.get("max_tokens"), call.body.get("max_completion_tokens")) for call in server.calls]
    assert token_limits == [(9, None), (None, 9), (None, 9)]


@pytest.mark.parametrize(
    ("rejections", "answer"),
    [
        ([], {"value": [1, 2]}),
        ([SCHEMA_UNSUPPORTED], {"value": [1, 2]}),
        ([SCHEMA_UNSUPPORTED], [1, 2]),
        ([SCHEMA_UNSUPPORTED, JSON_UNSUPPORTED], None),
    ],
)
async def test_array_output_is_read_from_its_wrapper_or_directly(rejections: list[HttpError], answer: Any) -> None:
    response = json_text(answer) if answer is not None else tool_call("numbers", value=[1, 2])
    async with ModelServer(*rejections, response) as server:
        actual = await complete(server, model_call(output=NUMBERS))
    assert actual.output == [1, 2]


@pytest.mark.parametrize(
    ("response_text", "reason"),
    [
        ("I would rather not.", "gave no JSON, but the call requires it"),
        ("", "gave no JSON, but the call requires it"),
        ('{"name": "Ann"', "gave no JSON, but the call requires it"),
        ('{"age": 7}', """does not fit the schema: answer: "name" is a required property"""),
        ('{"name": 7}', "does not fit the schema: answer/name: 7 is not of type"),
        ("[" * 100_000, "gave no JSON, but the call requires it"),
        ('{"name": "Ann", "name": "Bob"}', "a key twice with different values"),
    ],
)
async def test_failure_of_an_invalid_answer_has_a_reason_and_requests_a_fix(response_text: str, reason: str) -> None:
    failure = await failure_of(response_text, call=model_call(output=PERSON_OUTPUT))
    assert (failure.error, failure.action, failure.partial) == (ModelError.OUTPUT_INVALID, "fix", response_text)
    assert reason in str(failure)


LOOK_UP_TOOL = OfferedTool("look.up")


async def test_model_may_call_tools_before_it_answers() -> None:
    call = model_call(output=PERSON_OUTPUT, tools=(LOOK_UP_TOOL,))
    async with ModelServer(tool_call("look_up", who="Ann")) as server:
        answer = await complete(server, call)
    assert (answer.output, [tool.name for tool in answer.message.tool_calls]) == (None, ["look.up"])
    tool_and_answer = Completion(tool_calls=(ScriptedToolCall("look_up"), ScriptedToolCall("person", ANN)))
    async with (
        ModelServer(SCHEMA_UNSUPPORTED, JSON_UNSUPPORTED, tool_call("look_up"), tool_and_answer) as server,
        client_of(server) as client,
    ):
        tool_response, final_response = await client.complete(call), await client.complete(call)
    assert [tool.name for tool in tool_response.message.tool_calls] == ["look.up"]
    assert (final_response.output, final_response.message.tool_calls) == (ANN, ())
    assert (server.calls[2].tools, server.calls[2].body["tool_choice"]) == (["look_up", "person"], "required")


async def test_invalid_schema_is_rejected_without_a_call() -> None:
    async with ModelServer() as server:
        with pytest.raises(ValueError, match="not a valid JSON Schema"):
            await complete(server, model_call(output=OutputSchema("invalid", {"type": 7})))


@pytest.mark.parametrize("depth", [91, 200, 900])
async def test_too_deeply_nested_answer_is_not_parsed(depth: int) -> None:
    any_object = OutputSchema("plan", {"type": "object"}, is_enforced=False)
    deep_json = json.dumps({"a": json.loads("[" * (depth - 1) + "]" * (depth - 1))})
    async with ModelServer(deep_json) as server:
        answer = await complete(server, model_call(output=any_object))
    assert (answer.output, answer.text) == (None, deep_json)
