"""Failures of model calls over real HTTP: error code, retry delay and cost."""

import json
from datetime import timedelta
from typing import Any

import pytest

from dagwright.llm import Action, Endpoint, ModelClient, ModelConfig, ModelError, ModelFailure, OutputSchema, Usage
from dagwright.llm.errors import ServiceError
from dagwright.llm.transport import MAX_ERROR_BYTES
from dagwright.testing import (
    Answer,
    Completion,
    Cut,
    HttpError,
    ModelServer,
    Raw,
    Reset,
    Silence,
    Tokens,
    busy,
    http_date,
    slow,
    text,
    tool_call,
)
from tests.unit.llm.scripted_calls import KEY, client_of, failure_of, failure_of_client, model_call

pytestmark = pytest.mark.waits

Error = ModelError


def json_response(status: int, content: Any) -> Raw:
    """Return a response with any JSON body, even if it is not in the format of OpenAI."""
    return Raw(json.dumps(content).encode(), status=status)


def html_response(content: bytes, status: int = 200) -> Raw:
    return Raw(content, status=status, content_type="text/html")


def text_response(content: bytes, status: int) -> Raw:
    return Raw(content, status=status, content_type="text/plain")


def error_response(status: int, message: str, code: Any = None, **fields: Any) -> Raw:
    return json_response(status, {"error": {"message": message, "code": code, **fields}})


NO_DB = error_response(400, "No connected db.", "400", type="no_db_connection")
BUDGET_EXCEEDED = error_response(400, "Budget has been exceeded! Current cost: 2", type="budget_exceeded")
VLLM_UNKNOWN_MODEL = json_response(
    404, {"object": "error", "message": "The model `small` does not exist.", "code": 404}
)
UNSUPPORTED_TEMPERATURE = HttpError(
    400, "Unsupported value: 'temperature' does not support 0", code="unsupported_value", param="temperature"
)
CONTEXT_EXCEEDED = HttpError(400, "maximum context length is 8192 tokens", code="context_length_exceeded")
UNPROCESSABLE = json_response(422, {"detail": [{"loc": ["body", "top_p"], "msg": "too big"}]})
FAILURES: list[tuple[Answer, ModelError, str]] = [
    # Error bodies of OpenAI, Azure, vLLM, Ollama, OpenRouter, Groq and LiteLLM.
    (busy(), Error.BUSY, "answered 429: Rate limit reached"),
    (HttpError(503, "The engine is currently overloaded"), Error.UNAVAILABLE, "answered 503"),
    (HttpError(500, "The server had an error", type="server_error"), Error.UNAVAILABLE, "answered 500"),
    (html_response(b"<html>504</html>", status=504), Error.UNAVAILABLE, "504"),
    (HttpError(409, "try again"), Error.UNAVAILABLE, "answered 409"),
    (HttpError(429, "You exceeded your current quota", code="insufficient_quota"), Error.QUOTA_EXCEEDED, "add credit"),
    (error_response(402, "Insufficient credits", 402), Error.QUOTA_EXCEEDED, "credit"),
    (BUDGET_EXCEEDED, Error.QUOTA_EXCEEDED, "raise the limit"),
    (
        HttpError(401, f"Incorrect API key provided: {KEY}", code="invalid_api_key"),
        Error.KEY_REJECTED,
        "OPENAI_API_KEY",
    ),
    (NO_DB, Error.KEY_REJECTED, "OPENAI_API_KEY"),
    (HttpError(403, "Project does not have access to this"), Error.FORBIDDEN, "another key"),
    (HttpError(404, "The model `small` does not exist", code="model_not_found"), Error.MODEL_UNKNOWN, "/models lists"),
    (VLLM_UNKNOWN_MODEL, Error.MODEL_UNKNOWN, "does not exist"),
    (json_response(404, {"error": "model 'small' not found, try pulling it first"}), Error.MODEL_UNKNOWN, "pull"),
    (error_response(400, "Invalid model name passed in model=small", "400"), Error.MODEL_UNKNOWN, "Invalid model name"),
    (error_response(404, "The API deployment does not exist", "DeploymentNotFound"), Error.MODEL_UNKNOWN, "deployment"),
    (text_response(b"404 page not found", 404), Error.ADDRESS_INVALID, "OPENAI_BASE_URL"),
    (json_response(405, {"detail": "Method Not Allowed"}), Error.ADDRESS_INVALID, "Method Not Allowed"),
    (CONTEXT_EXCEEDED, Error.CONTEXT_EXCEEDED, "shorten"),
    (
        error_response(400, "litellm.ContextWindowExceededError: too much", "400"),
        Error.CONTEXT_EXCEEDED,
        "larger context",
    ),
    (HttpError(429, "Request too large for small in organization", type="tokens"), Error.CONTEXT_EXCEEDED, ""),
    (text_response(b"too large", 413), Error.CONTEXT_EXCEEDED, "answered 413"),
    (error_response(400, "The response was filtered", "content_filter"), Error.FILTERED, "change the filter"),
    (
        HttpError(400, "Your prompt was flagged as potentially violating", code="invalid_prompt"),
        Error.FILTERED,
        "rephrase",
    ),
    (UNSUPPORTED_TEMPERATURE, Error.REQUEST_INVALID, "remove or change the field that the service names"),
    (UNPROCESSABLE, Error.REQUEST_INVALID, "top_p"),
    (HttpError(400, "Failed to generate JSON", code="json_validate_failed"), Error.OUTPUT_INVALID, "Failed"),
    # Transport errors.
    (Reset(), Error.UNAVAILABLE, "could not be reached, or broke off (ReadError"),
    (Silence(), Error.UNAVAILABLE, "did not answer in time"),
    # Responses without a valid answer.
    (html_response(b"<html>hello</html>"), Error.RESPONSE_INVALID, ""),
    (Raw(b'{"choices": ['), Error.RESPONSE_INVALID, ""),
    (Raw(b"\xff\xfe\xfa"), Error.RESPONSE_INVALID, ""),
    (json_response(200, {"choices": []}), Error.RESPONSE_INVALID, ""),
    (json_response(200, None), Error.RESPONSE_INVALID, ""),
    (text(""), Error.RESPONSE_INVALID, "returned an empty answer"),
    (tool_call("mail", to="ann"), Error.RESPONSE_INVALID, "called a tool, but no tools were offered"),
    (text(" \n "), Error.RESPONSE_INVALID, "returned an empty answer"),
    # Valid responses whose answer cannot be used.
    (Completion(refusal="I can't help with that."), Error.REFUSED, "declined: I can't help with that; rephrase"),
    (text("So", finish_reason="content_filter"), Error.FILTERED, "content filter"),
    (text("So", finish_reason="length"), Error.TRUNCATED, "raise max_tokens (now 9)"),
]


@pytest.mark.parametrize(("answer", "error", "message_part"), FAILURES)
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_every_failed_response_has_its_error_code(
    answer: Answer, error: ModelError, message_part: str, is_streamed: bool
) -> None:
    call = model_call(config=ModelConfig(max_tokens=9))
    async with ModelServer(answer) as server:
        failure = await failure_of_client(client_of(server, read_timeout_s=0.3), call, is_streamed=is_streamed)
    assert (failure.error, failure.action) == (error, error.action)
    assert message_part in str(failure)
    assert ("small at http://127.0.0.1:" in str(failure), KEY in str(failure)) == (True, False)


async def test_long_error_is_shortened() -> None:
    failure = await failure_of(text_response(b"busy " * 2_000_000, 503))
    assert failure.error is Error.UNAVAILABLE
    assert isinstance(failure.__cause__, ServiceError)
    assert len(failure.__cause__.body.text) == MAX_ERROR_BYTES
    assert len(str(await failure_of(HttpError(400, "x" * 100_000)))) < 4096


async def test_failure_names_the_address_without_its_secrets() -> None:
    async with ModelServer(busy()) as server:
        endpoint = Endpoint(server.base_url.replace("://", "://ann:hush@"), KEY)
        failure = await failure_of_client(ModelClient(endpoint, model="small"))
    assert f"small at {server.base_url}" in str(failure)
    assert "hush" not in str(failure)


def test_only_temporary_failures_are_retried() -> None:
    retried_errors = {error for error in ModelError if error.action is Action.RETRY}
    assert retried_errors == {Error.BUSY, Error.UNAVAILABLE, Error.RESPONSE_INVALID}


@pytest.mark.parametrize(
    ("answer", "delay_s"),
    [
        (busy(retry_after=2), 2),
        (busy(retry_after=0.5), 0.5),
        (busy(retry_after=10**9), 86_400),
        (HttpError(429, headers={"retry-after-ms": "250"}, retry_after=7), 0.25),
        (HttpError(503, retry_after=3), 3),
        (HttpError(429, headers={"llm_provider-retry-after": "4"}), 4),
        *((answer, None) for answer in (busy(), busy(retry_after="soon"), HttpError(401, retry_after=3), Reset())),
    ],
)
async def test_retry_delay_is_the_delay_that_the_service_requests(answer: Answer, delay_s: float | None) -> None:
    delay = (await failure_of(answer)).delay
    assert delay == (None if delay_s is None else timedelta(seconds=delay_s))


@pytest.mark.parametrize(("hours", "min_s", "max_s"), [(2, 7_000, 7_200), (-2, 0, 0)])
async def test_retry_delay_may_be_a_date(hours: int, min_s: int, max_s: int) -> None:
    delay = (await failure_of(busy(retry_after=http_date(timedelta(hours=hours))))).delay
    assert delay is not None
    assert min_s <= delay.total_seconds() <= max_s


async def test_error_names_an_unreachable_service() -> None:
    async with ModelServer() as server:
        client = client_of(server)
    failure = await failure_of_client(client)
    assert f"small at {server.base_url} could not be reached" in str(failure)
    assert failure.action is Action.RETRY


STREAMED_TEXT = text("one two three", tokens=Tokens(5, 3))


@pytest.mark.parametrize(
    ("cut", "error"),
    [(Cut.RESET, Error.UNAVAILABLE), (Cut.CLOSE, Error.UNAVAILABLE), (Cut.END, Error.RESPONSE_INVALID)],
)
async def test_interrupted_stream_is_reported_and_keeps_the_received_text(cut: Cut, error: ModelError) -> None:
    pieces = []
    async with ModelServer(slow(STREAMED_TEXT, cut_after=1, cut=cut)) as server, client_of(server) as client:
        with pytest.raises(ModelFailure) as error_info:  # noqa: PT012 - the stream raises while it is read
            async with client.stream(model_call()) as stream:
                async for piece in stream:
                    pieces.append(piece)
    assert (error_info.value.error, error_info.value.partial, pieces) == (error, "one two ", ["one two "])


def sse(*chunks: Any) -> Raw:
    lines = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
    return Raw(lines.encode(), content_type="text/event-stream")


FIRST_CHUNK = {"choices": [{"index": 0, "delta": {"content": "one"}}]}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (sse(FIRST_CHUNK, {"error": {"message": "overloaded", "type": "server_error"}}), Error.UNAVAILABLE),
        (sse(FIRST_CHUNK, {"error": {"message": "slow down", "code": 429}}), Error.BUSY),
        (sse(FIRST_CHUNK, {"error": {"message": "no", "code": "insufficient_quota"}}), Error.QUOTA_EXCEEDED),
        (sse(FIRST_CHUNK, ["odd"]), Error.RESPONSE_INVALID),
        (Raw(b"data: {\n\n", content_type="text/event-stream"), Error.RESPONSE_INVALID),
        (Raw(b"data: \xff\n\n", content_type="text/event-stream"), Error.RESPONSE_INVALID),
        (Raw(b"", content_type="text/event-stream"), Error.RESPONSE_INVALID),
        (json_response(200, {"choices": [{"delta": {"content": "whole"}}]}), Error.RESPONSE_INVALID),
    ],
)
async def test_errors_inside_of_a_stream_have_their_error_code(answer: Answer, error: ModelError) -> None:
    async with ModelServer(answer) as server:
        failure = await failure_of_client(client_of(server), is_streamed=True)
    assert failure.error is error


async def test_usage_of_an_unusable_answer_is_counted() -> None:
    truncation_failure = await failure_of(text("So it", finish_reason="length", tokens=Tokens(5, 3)))
    output = OutputSchema("answer", {"type": "object"})
    invalid_answer_failure = await failure_of(text("no JSON", tokens=Tokens(4, 2)), call=model_call(output=output))
    usage = Usage(calls=1, prompt_tokens=5, completion_tokens=3, unpriced_calls=1)
    assert (truncation_failure.partial, truncation_failure.usage) == ("So it", usage)
    assert (invalid_answer_failure.partial, invalid_answer_failure.usage.tokens) == ("no JSON", 6)
