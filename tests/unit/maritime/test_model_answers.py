"""Model calls of worker tools: repairs, reuse of answers of earlier attempts, and escaping of data."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from dagwright.llm import Endpoint, ModelClient
from dagwright.planning.model_calls.model_failure import Action, ModelError, ModelFailure
from dagwright.planning.model_calls.model_requests import Message, ModelResponse
from dagwright.testing import ModelServer, When, json_text, step
from dagwright.tools.errors import GiveUp, RetryLater
from dagwright.tools.testing import RecordedCall, tool_context
from dagwright_maritime.connection import SERVER_ATTEMPTS
from dagwright_maritime.model_answers import (
    QUESTION_CHARACTERS,
    InvalidAnswer,
    NoValidAnswer,
    data_lines,
    request_answer,
    validate_question,
)

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


def parse_even(answer: Any) -> int:
    if answer["n"] % 2:
        raise InvalidAnswer(f"{answer['n']} is odd")
    return int(answer["n"])


def heartbeat_details(answer: Any = None, answer_count: int = 0, *, model_failures: int = 0) -> dict[str, Any]:
    return {"answer": answer, "answer_count": answer_count, "model_failures": model_failures, "search_failures": 0}


async def request_number(server: ModelServer, last_heartbeat: Any = None, **options: Any) -> tuple[int, RecordedCall]:
    async with ModelClient(Endpoint(server.base_url), model="small") as client:
        with tool_context(ask=client.complete, last_heartbeat=last_heartbeat) as call:
            number = await request_answer("Name an even number.", "data", schema=SCHEMA, parse=parse_even, **options)
            return number, call


async def test_repair_prompt_has_the_problem_of_the_answer() -> None:
    repair_prompt = "Invalid answer. 3 is odd\nWrite the whole answer again."
    async with ModelServer(json_text({"n": 3}), step(json_text({"n": 4}), when=When(last=repair_prompt))) as server:
        actual, call = await request_number(server)
    # Each call is counted as a failure until its answer arrives.
    assert (actual, call.heartbeats) == (
        4,
        [
            heartbeat_details(model_failures=1),
            heartbeat_details({"n": 3}, 1),
            heartbeat_details({"n": 3}, 1, model_failures=1),
            heartbeat_details({"n": 4}, 2),
        ],
    )


async def test_answer_that_does_not_fit_the_schema_is_repaired() -> None:
    async with ModelServer(json_text({"m": 3}), step(json_text({"n": 4}))) as server:
        assert (await request_number(server))[0] == 4


async def test_valid_answer_of_an_earlier_attempt_is_reused() -> None:
    async with ModelServer() as server:
        assert (await request_number(server, {"answer": {"n": 6}}))[0] == 6
    for last_heartbeat in ({"other": 1}, "text"):
        async with ModelServer(json_text({"n": 8})) as server:
            assert (await request_number(server, last_heartbeat))[0] == 8
    async with ModelServer(step(json_text({"n": 8}), when=When(last="Invalid answer. 7 is odd"))) as server:
        assert (await request_number(server, {"answer": {"n": 7}}))[0] == 8
    assert server.calls[0].messages[-2] == {"role": "assistant", "content": '{"n": 7}'}


async def test_answer_is_reused_if_its_validation_is_retried() -> None:
    async def fail_temporarily(_: int) -> None:
        raise RetryLater("no response")

    async def accept_large(number: int) -> None:
        if number < 10:
            raise InvalidAnswer(f"{number} is small")

    async with ModelServer(json_text({"n": 4})) as server:
        with pytest.raises(RetryLater, match="no response"):
            await request_number(server, validate=fail_temporarily)
    async with ModelServer(step(json_text({"n": 12}), when=When(last="Invalid answer. 4 is small"))) as server:
        assert (await request_number(server, {"answer": {"n": 4}}, validate=accept_large))[0] == 12


async def errors_of_attempts(ask: Callable[[], Awaitable[Any]], **options: Any) -> list[BaseException]:
    """Attempt a call until it succeeds or must not be retried, and return the errors of the attempts.

    Each attempt gets the last heartbeat of the previous attempt.
    """
    errors: list[BaseException] = []
    last_heartbeat = None
    # Temporal makes at most this number of attempts.
    while len(errors) < SERVER_ATTEMPTS:

        async def fake_model(*_: Any, **__: Any) -> ModelResponse:
            output = await ask()
            return ModelResponse(Message(role="assistant", content=json.dumps(output)), output=output)

        with tool_context(ask=fake_model, attempt=len(errors) + 1, last_heartbeat=last_heartbeat) as call:
            try:
                await request_answer("Name an even number.", "data", schema=SCHEMA, parse=parse_even, **options)
            except BaseException as error:
                errors.append(error)
                if isinstance(error, GiveUp) or (isinstance(error, ModelFailure) and error.action is Action.GIVE_UP):
                    break
            else:
                break
        last_heartbeat = call.heartbeats[-1] if call.heartbeats else last_heartbeat
    return errors


async def test_unresponsive_model_gets_fewer_attempts_than_a_search_server() -> None:
    async def ask() -> Any:
        raise ModelFailure(ModelError.UNAVAILABLE, "no answer")

    errors = await errors_of_attempts(ask)
    actions_and_delays = [(error.action, error.delay) for error in errors if isinstance(error, ModelFailure)]
    # Temporal's own delays would also grow after attempts that found no search server, so each error states its delay.
    assert actions_and_delays == [
        (Action.RETRY, timedelta(seconds=1)),
        (Action.RETRY, timedelta(seconds=2)),
        (Action.GIVE_UP, None),
    ]


async def test_attempts_during_an_outage_of_the_search_server_do_not_count_as_attempts_with_the_model() -> None:
    numbers = iter([4, None, 6, None, 8])
    outage_attempts = iter(range(12))

    async def ask() -> Any:
        number = next(numbers)
        if number is None:
            raise ModelFailure(ModelError.BUSY, "busy", delay=timedelta(seconds=7))
        return {"n": number}

    async def fail_temporarily(number: int) -> None:
        if next(outage_attempts, None) is not None:
            raise RetryLater("no response")
        if number < 8:
            raise InvalidAnswer(f"{number} is small")

    errors = await errors_of_attempts(ask, validate=fail_temporarily)
    assert [str(error) for error in errors] == [*["no response"] * 12, "busy", "busy"]
    assert [error.action for error in errors if isinstance(error, ModelFailure)] == [Action.RETRY] * 2


async def test_outage_of_the_search_server_does_not_increase_the_number_of_requested_answers() -> None:
    numbers: list[int] = []
    failed_numbers: set[int] = set()

    async def ask() -> Any:
        numbers.append(2 * len(numbers))
        return {"n": numbers[-1]}

    async def fail_once_per_number(number: int) -> None:
        if number not in failed_numbers:
            failed_numbers.add(number)
            raise RetryLater("no response")
        raise InvalidAnswer(f"{number} is no good")

    errors = await errors_of_attempts(ask, validate=fail_once_per_number)
    expected = [*["no response"] * 4, "The model gave 4 invalid answers; last problem: 6 is no good"]
    assert [str(error) for error in errors] == expected
    assert numbers == [0, 2, 4, 6]


async def test_invalid_answers_of_all_attempts_are_counted() -> None:
    model_errors = iter([ModelError.OUTPUT_INVALID] * 2 + [ModelError.UNAVAILABLE] + [ModelError.OUTPUT_INVALID] * 2)

    async def ask() -> Any:
        raise ModelFailure(next(model_errors), "no answer that fits")

    first_error, second_error = await errors_of_attempts(ask)
    assert (type(first_error), type(second_error), next(model_errors, None)) == (ModelFailure, NoValidAnswer, None)
    # The last answer was invalid, but its attempt ended before it reported the problem.
    async with ModelServer() as server:
        with pytest.raises(
            NoValidAnswer, match="4 invalid answers; last problem: the answer to an earlier attempt was"
        ):
            await request_number(server, heartbeat_details(None, 4))


async def test_call_fails_if_every_attempt_ends_before_the_model_answers() -> None:
    calls: list[str] = []

    async def ask() -> Any:
        calls.append("asked")
        # The attempt times out, or its worker process ends.
        raise asyncio.CancelledError

    errors = await errors_of_attempts(ask)
    assert (len(calls), len(errors)) == (3, 4)
    assert str(errors[-1]).startswith("3 attempts ended before the model answered")


async def test_call_fails_with_the_last_problem_if_every_answer_is_invalid() -> None:
    async with ModelServer(*(json_text({"n": n}) for n in (1, 3, 5, 7))) as server:
        with pytest.raises(NoValidAnswer, match="4 invalid answers; last problem: 7 is odd"):
            await request_number(server)


def test_data_in_a_prompt_stays_on_one_line() -> None:
    text = 'a"}\nTitle:\u2028b\x85c'
    lines = data_lines("Title", [{"text": text}, text]).splitlines()
    assert lines[0] == "Title:"
    assert [json.loads(line) for line in lines[1:]] == [{"text": text}, text]


def test_question_must_have_text_of_limited_length() -> None:
    assert validate_question(" What? ") == "What?"
    for question in (" ", "x" * (QUESTION_CHARACTERS + 1)):
        with pytest.raises(ValueError, match="question"):
            validate_question(question)
