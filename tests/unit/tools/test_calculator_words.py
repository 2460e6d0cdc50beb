"""`calculator` on words: a model writes the expression, and nothing but the calculator works it out."""

import asyncio
import json
from typing import Any

import pytest

from dagwright.llm import Endpoint, ModelClient, ModelFailure
from dagwright.testing import ModelServer, Refused, busy, json_text
from dagwright.tools.builtin.calculator import calculator
from dagwright.tools.builtin.worded import EXPRESSION, QUERY_LIMIT
from dagwright.tools.testing import tool_context

SEED = "Calculate the difference between 69 and 55"


def expression(text: str) -> Any:
    return json_text({"is_calculation": True, "expression": text, "reason": ""})


def none_found(reason: str) -> Any:
    return json_text({"is_calculation": False, "expression": "", "reason": reason})


async def calculated(server: ModelServer, query: Any, *, model: str | None = "small") -> Any:
    """Returns what a worker with this model service calculates."""
    async with ModelClient(Endpoint(server.base_url), model=model) as client:
        with tool_context(ask=client.complete):
            return await asyncio.to_thread(calculator, query=query)


async def test_words_become_an_expression_that_the_calculator_works_out() -> None:
    async with ModelServer(expression("69 - 55")) as server:
        assert await calculated(server, SEED) == 14
    [call] = server.calls
    assert [message["role"] for message in call.messages] == ["system", "user"]
    assert (call.messages[1]["content"], call.metadata) == (SEED, {"purpose": "calculate"})
    schema = call.body["response_format"]["json_schema"]
    assert (schema["strict"], schema["schema"]["required"]) == (True, EXPRESSION["required"])


async def test_results_of_searches_stand_in_the_text_as_they_are() -> None:
    found = json.dumps([{"title": "Emperor Wu of Han", "link": "", "snippet": "156 BC - 87 BC (aged 69)"}] * 20)
    query = f"Calculate the difference between {found} and {found.replace('69', '55')}"
    async with ModelServer(expression("69 - 55")) as server:
        assert await calculated(server, query) == 14
    assert server.calls[0].messages[1]["content"] == query


@pytest.mark.parametrize("query", ["69 - 55", " 2 * 7 ", 14, 14.0, "28 ÷ 2"])
async def test_plain_arithmetic_asks_no_model(query: Any) -> None:
    async with ModelServer() as server:
        assert await calculated(server, query) == 14


@pytest.mark.parametrize(
    ("query", "message"),
    [("1/0", "divides by zero"), ("9**9**9", "too large"), ("", "it is empty"), ("  ", "it is empty")],
)
async def test_what_a_model_could_not_help_asks_none(query: str, message: str) -> None:
    async with ModelServer() as server:
        with pytest.raises(ValueError, match=message):
            await calculated(server, query)


async def test_a_wrong_expression_is_shown_to_the_model_once() -> None:
    async with ModelServer(expression("69 minus 55"), expression("69 - 55")) as server:
        assert await calculated(server, SEED) == 14
    last = server.calls[1].messages[-1]["content"]
    assert last == (
        "That cannot be used: '69 minus 55' is not arithmetic: it has 'minus'; write an expression such as "
        "12 * (3 + 4) / 5. Write the expression again."
    )


@pytest.mark.parametrize("result", ["14", "(14)", " 14.0 "])
async def test_a_result_that_the_model_worked_out_itself_is_refused(result: str) -> None:
    async with ModelServer(expression(result), expression(result)) as server:
        with pytest.raises(
            ValueError, match=r"could not put '.*' into an expression: .*14.* stands nowhere in the text"
        ):
            await calculated(server, SEED)


async def test_a_number_of_the_text_is_a_result() -> None:
    async with ModelServer(expression("69")) as server:
        assert await calculated(server, "How old was he? He died at 69.") == 69


@pytest.mark.parametrize(
    ("reason", "told"),
    [("it asks\nfor a   poem", "it asks for a poem"), ("", "the model found none in it")],
)
async def test_what_is_no_calculation_is_a_clear_error(reason: str, told: str) -> None:
    async with ModelServer(none_found(reason)) as server:
        with pytest.raises(ValueError, match="is no calculation") as caught:
            await calculated(server, "Write a poem")
    assert str(caught.value) == f"'Write a poem' is no calculation: {told}"


async def test_an_expression_that_divides_by_zero_is_no_result() -> None:
    async with ModelServer(expression("1 / 0"), expression("1 / (2 - 2)")) as server:
        with pytest.raises(ValueError, match=r"into an expression: '1 / \(2 - 2\)' divides by zero"):
            await calculated(server, "One divided by nothing")


async def test_without_a_model_the_error_says_what_would_help() -> None:
    refusal = "'Add 1 and 2' is not arithmetic: it has 'Add'; write an expression such as 12 * (3 + 4) / 5"
    async with ModelServer() as server:
        with pytest.raises(ValueError, match="not arithmetic") as unnamed:
            await calculated(server, "Add 1 and 2", model=None)
    assert str(unnamed.value) == (
        f"{refusal}, or let a model read it: name one in the request, or set DAGWRIGHT_MODEL of the worker "
        "(one of `dagwright up` has the environment in which it was started)"
    )


async def test_a_service_that_fails_is_no_matter_of_the_text() -> None:
    async with ModelServer(busy(), Refused(401, code="invalid_api_key")) as server:
        for error in ("model_busy", "model_key_refused"):
            with pytest.raises(ModelFailure) as caught:
                await calculated(server, SEED)
            assert caught.value.error == error


async def test_a_text_without_end_is_refused_before_anybody_is_asked() -> None:
    async with ModelServer() as server:
        with pytest.raises(ValueError, match="over the limit of 100,000"):
            await calculated(server, "x" * (QUERY_LIMIT + 1))
