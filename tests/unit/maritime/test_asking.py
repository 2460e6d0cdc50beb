"""How workers ask a model: repairs, what an earlier attempt was answered, and data that cannot say more than it is."""

import json
from typing import Any

import pytest

from dagwright.contracts.model_calls import Action, ModelError
from dagwright.contracts.model_failures import ModelFailure
from dagwright.llm import Endpoint, ModelClient
from dagwright.maritime.asking import (
    QUESTION_CHARACTERS,
    NoUsableAnswer,
    Unusable,
    checked_question,
    data_lines,
    usable_answer,
)
from dagwright.testing import ModelServer, json_text, step
from dagwright.tools.errors import RetryLater
from dagwright.tools.testing import RecordedCall, tool_context

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


def even(answer: Any) -> int:
    if answer["n"] % 2:
        raise Unusable(f"{answer['n']} is odd")
    return int(answer["n"])


async def asked(server: ModelServer, before: Any = None, **more: Any) -> tuple[int, RecordedCall]:
    async with ModelClient(Endpoint(server.base_url), model="small") as client:
        with tool_context(ask=client.complete, last_heartbeat=before) as call:
            return await usable_answer("Name an even number.", "data", schema=SCHEMA, read=even, **more), call


async def test_a_model_is_told_what_is_wrong_with_its_answer() -> None:
    wrong = "That cannot be used. 3 is odd\nWrite the whole answer again."
    async with ModelServer(json_text({"n": 3}), step(json_text({"n": 4}), last=wrong)) as server:
        found, call = await asked(server)
    # Both were paid for.
    assert (found, call.heartbeats) == (4, [{"answer": {"n": 3}}, {"answer": {"n": 4}}])


async def test_an_answer_that_does_not_fit_the_schema_is_repaired_too() -> None:
    async with ModelServer(json_text({"m": 3}), step(json_text({"n": 4}))) as server:
        assert (await asked(server))[0] == 4


async def test_what_an_attempt_before_was_answered_is_used_again_if_it_still_can_be() -> None:
    async with ModelServer() as server:
        assert (await asked(server, {"answer": {"n": 6}}))[0] == 6
    for before in ({"other": 1}, "text"):
        async with ModelServer(json_text({"n": 8})) as server:
            assert (await asked(server, before))[0] == 8
    async with ModelServer(step(json_text({"n": 8}), last="That cannot be used. 7 is odd")) as server:
        assert (await asked(server, {"answer": {"n": 7}}))[0] == 8
    assert server.calls[0].messages[-2] == {"role": "assistant", "content": '{"n": 7}'}


async def test_what_somebody_else_judges_is_not_paid_for_again_when_that_one_was_away() -> None:
    async def away(_: int) -> None:
        raise RetryLater("nobody is there")

    async def large(found: int) -> None:
        if found < 10:
            raise Unusable(f"{found} is small")

    async with ModelServer(json_text({"n": 4})) as server:
        with pytest.raises(RetryLater, match="nobody is there"):
            await asked(server, judge=away)
    async with ModelServer(step(json_text({"n": 12}), last="That cannot be used. 4 is small")) as server:
        assert (await asked(server, {"answer": {"n": 4}}, judge=large))[0] == 12


@pytest.mark.parametrize(("attempt", "action"), [(2, Action.RETRY), (3, Action.GIVE_UP)])
async def test_a_model_that_does_not_answer_is_not_waited_for_as_a_server_is(attempt: int, action: Action) -> None:
    async def ask(*_: Any, **__: Any) -> Any:
        raise ModelFailure(ModelError.UNAVAILABLE, "no answer")

    with tool_context(ask=ask, attempt=attempt), pytest.raises(ModelFailure, match="no answer") as failed:
        await usable_answer("Name an even number.", "data", schema=SCHEMA, read=even)
    assert failed.value.action is action


async def test_a_model_that_stays_wrong_fails_the_worker_with_its_last_problem() -> None:
    async with ModelServer(*(json_text({"n": n}) for n in (1, 3, 5, 7))) as server:
        with pytest.raises(NoUsableAnswer, match="4 times; at last: 7 is odd"):
            await asked(server)


def test_no_data_ends_its_line() -> None:
    text = 'a"}\nTitle:\u2028b\x85c'
    lines = data_lines("Title", [{"text": text}, text]).splitlines()
    assert lines[0] == "Title:"
    assert [json.loads(line) for line in lines[1:]] == [{"text": text}, text]


def test_a_question_says_something_and_not_too_much() -> None:
    assert checked_question(" What? ") == "What?"
    for wrong in (" ", "x" * (QUESTION_CHARACTERS + 1)):
        with pytest.raises(ValueError, match="question"):
            checked_question(wrong)
