"""Answers that must be JSON: output modes, the stored capabilities of a server, and invalid answers."""

import json
from typing import Any

import pytest

from dagwright.llm import (
    CallLabels,
    ModelCall,
    ModelConfig,
    ModelError,
    ModelFailure,
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
    json_text,
    step,
    text,
    tool_call,
)
from tests.unit.llm.asking import ask, client_of, failure_of, read, saying

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "more": {"type": "object"}},
    "required": ["name"],
}
PERSON_OUTPUT = OutputSchema("person", PERSON)
ANN = {"name": "Ann", "more": {"likes": ["tea"]}}
NUMBERS = OutputSchema("numbers", {"type": "array", "items": {"type": "integer"}})

NO_SCHEMA = HttpError(
    400, "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model."
)
NO_JSON = HttpError(400, "This response_format type is unavailable now")
NO_TOOLS = HttpError(400, "this model does not support tools")


def modes(server: ModelServer) -> list[str]:

    def mode(call: ReceivedCall) -> str:
        return "tool" if call.tools else call.response_format

    return [mode(call) for call in server.calls]


async def test_strict_schema_is_requested_and_the_answer_is_restored() -> None:
    written = {"name": "Ann", "age": None, "more": '{"likes": ["tea"]}'}
    async with ModelServer(json_text(written)) as server:
        answer = await ask(server, saying(output=PERSON_OUTPUT))
    assert (answer.output, json.loads(answer.text)) == (ANN, written)
    null, as_json = {"type": "null"}, {"type": "string", "description": "The value as a text of JSON."}
    age, more = {"anyOf": [{"type": "integer"}, null]}, {"anyOf": [as_json, null]}
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": age, "more": more},
        "required": ["name", "age", "more"],
        "additionalProperties": False,
    }
    json_schema = {"name": "person", "strict": True, "schema": schema}
    assert server.calls[0].body["response_format"] == {"type": "json_schema", "json_schema": json_schema}


MODES = ["json_schema", "json_object", "tool", "text"]
FENCED = text(f"Here it is:\n```json\n{json.dumps(ANN)}\n```\nAnything else?")
ANSWERS = [json_text(ANN), json_text(ANN), tool_call("person", **ANN), FENCED]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("refused", range(4))
async def test_refused_modes_are_replaced_by_the_next_one_which_is_remembered(refused: int, streamed: bool) -> None:
    refusals, answer = (NO_SCHEMA, NO_JSON, NO_TOOLS)[:refused], ANSWERS[refused]
    async with ModelServer(*refusals, answer, answer) as server, client_of(server) as client:
        for _ in range(2):
            actual = await read(client, saying(output=PERSON_OUTPUT), streamed=streamed)
            assert (actual.output, actual.message.tool_calls, actual.finish_reason) == (ANN, (), "stop")
    assert modes(server) == [*MODES[: refused + 1], MODES[refused]]


async def test_unexpected_call_of_a_scripted_model_is_not_sent_in_another_form() -> None:
    error = HttpError(400, "the script has no answer for response_format", code="unexpected_call")
    async with ModelServer(error) as server, client_of(server) as client:
        with pytest.raises(ModelFailure) as caught:
            await read(client, saying(output=PERSON_OUTPUT), streamed=False)
    assert (modes(server), caught.value.advice) == (["json_schema"], "")


async def test_schema_is_in_the_prompt_if_no_mode_carries_it() -> None:
    call = ModelCall((system("Be brief."), user("Who?")), output=PERSON_OUTPUT)
    async with ModelServer(NO_SCHEMA, json_text(ANN)) as server:
        await ask(server, call)
    first, second = server.calls[1].messages
    assert second == {"role": "user", "content": "Who?"}
    assert first["content"].startswith("Be brief.\n\nAnswer with JSON only")
    assert first["content"].endswith(json.dumps(PERSON))


async def test_modes_are_remembered_for_each_model_and_not_for_a_refused_schema() -> None:
    both = ["json_schema", "json_object", "json_schema", "json_object"]
    refusing = step(NO_SCHEMA, model="old", response_format="json_schema", times=ANY_NUMBER)
    async with ModelServer(refusing, step(json_text(ANN), times=ANY_NUMBER)) as server, client_of(server) as client:
        for model in ("old", "new", "old"):
            config = ModelConfig(model=model)
            assert (await client.complete(saying(output=PERSON_OUTPUT, config=config))).output == ANN
    assert modes(server) == both
    error = HttpError(400, "Invalid schema for response_format 'person': too deep", param="response_format")
    answers = (error, json_text(ANN), json_text({"value": [1]}), json_text(ANN))
    async with ModelServer(*answers) as server, client_of(server) as client:
        for output, value in ((PERSON_OUTPUT, ANN), (NUMBERS, [1]), (PERSON_OUTPUT, ANN)):
            assert (await client.complete(saying(output=output))).output == value
    assert modes(server) == both
    async with ModelServer(NO_SCHEMA, json_text(ANN), "Hi", json_text(ANN)) as server, client_of(server) as client:
        for call in (saying(output=PERSON_OUTPUT), saying(), saying(output=PERSON_OUTPUT)):
            await client.complete(call)
    assert modes(server) == ["json_schema", "json_object", "text", "json_object"]


async def test_first_refusal_is_reported_if_no_mode_works() -> None:
    failure = await failure_of(NO_SCHEMA, NO_JSON, NO_TOOLS, HttpError(400, "no"), call=saying(output=PERSON_OUTPUT))
    assert failure.error is ModelError.REQUEST_INVALID
    assert "'json_schema' is not supported" in str(failure)


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (HttpError(400, "Unsupported value", param="temperature"), ModelError.REQUEST_INVALID),
        (HttpError(401, "no"), ModelError.KEY_REFUSED),
        (HttpError(429, "wait"), ModelError.BUSY),
        (HttpError(400, "too long", code="context_length_exceeded"), ModelError.CONTEXT_EXCEEDED),
    ],
)
async def test_failures_unrelated_to_json_are_not_retried(refusal: HttpError, error: ModelError) -> None:
    assert (await failure_of(refusal, call=saying(output=PERSON_OUTPUT))).error is error


async def test_refused_optional_fields_are_left_out_or_renamed() -> None:
    extra = {"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options"], "msg": "not permitted"}]}
    refusals = (
        HttpError(400, "The 'metadata' parameter is only allowed when 'store' is enabled.", param="metadata"),
        Raw(json.dumps(extra).encode(), status=422),
    )
    async with ModelServer(*refusals, "one", "two") as server, client_of(server) as client:
        for words in ("one", "two"):
            actual = await read(client, saying(labels=CallLabels(node_id="n")), streamed=True)
            assert (actual.text, actual.usage.uncounted_calls) == (words, 1)
    sent = [sorted(call.body.keys() & {"metadata", "stream_options"}) for call in server.calls]
    assert sent == [["metadata", "stream_options"], ["stream_options"], [], []]
    words = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
    refusal = HttpError(400, words, code="unsupported_parameter", param="max_tokens")
    async with ModelServer(refusal, "one", "two") as server, client_of(server) as client:
        for _ in range(2):
            await client.complete(saying(config=ModelConfig(max_tokens=9)))
    limits = [(call.body.get("max_tokens"), call.body.get("max_completion_tokens")) for call in server.calls]
    assert limits == [(9, None), (None, 9), (None, 9)]


@pytest.mark.parametrize(
    ("refusals", "answer"),
    [([], {"value": [1, 2]}), ([NO_SCHEMA], {"value": [1, 2]}), ([NO_SCHEMA], [1, 2]), ([NO_SCHEMA, NO_JSON], None)],
)
async def test_answer_that_is_not_an_object_is_wrapped(refusals: list[HttpError], answer: Any) -> None:
    given = json_text(answer) if answer is not None else tool_call("numbers", value=[1, 2])
    async with ModelServer(*refusals, given) as server:
        actual = await ask(server, saying(output=NUMBERS))
    assert actual.output == [1, 2]


@pytest.mark.parametrize(
    ("message", "words"),
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
async def test_unusable_answer_is_to_be_fixed_and_has_a_reason(message: str, words: str) -> None:
    failure = await failure_of(message, call=saying(output=PERSON_OUTPUT))
    assert (failure.error, failure.action, failure.partial) == (ModelError.OUTPUT_INVALID, "fix", message)
    assert words in str(failure)


LOOK = OfferedTool("look.up")


async def test_a_model_with_tools_may_look_before_it_answers() -> None:
    call = saying(output=PERSON_OUTPUT, tools=(LOOK,))
    async with ModelServer(tool_call("look_up", who="Ann")) as server:
        answer = await ask(server, call)
    assert (answer.output, [call.name for call in answer.message.tool_calls]) == (None, ["look.up"])
    both = Completion(tool_calls=(ScriptedToolCall("look_up"), ScriptedToolCall("person", ANN)))
    async with ModelServer(NO_SCHEMA, NO_JSON, tool_call("look_up"), both) as server, client_of(server) as client:
        looked, given = await client.complete(call), await client.complete(call)
    assert [call.name for call in looked.message.tool_calls] == ["look.up"]
    assert (given.output, given.message.tool_calls) == (ANN, ())
    assert (server.calls[2].tools, server.calls[2].body["tool_choice"]) == (["look_up", "person"], "required")


async def test_an_invalid_schema_costs_no_call() -> None:
    async with ModelServer() as server:
        with pytest.raises(ValueError, match="not a valid JSON Schema"):
            await ask(server, saying(output=OutputSchema("odd", {"type": 7})))


@pytest.mark.parametrize("depth", [91, 200, 900])
async def test_the_text_of_an_answer_that_is_nested_too_deep_is_not_parsed(depth: int) -> None:
    anything = OutputSchema("plan", {"type": "object"}, is_enforced=False)
    deep = json.dumps({"a": json.loads("[" * (depth - 1) + "]" * (depth - 1))})
    async with ModelServer(deep) as server:
        answer = await ask(server, saying(output=anything))
    assert (answer.output, answer.text) == (None, deep)
