"""`calculator` with expressions and queries: valid input, rejected input, and exact numbers."""

import asyncio
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagwright.llm import Endpoint, ModelClient, ModelFailure
from dagwright.testing import HttpError, ModelServer, busy, json_text
from dagwright.tools.builtin.calculator import calculator, evaluate, number_of
from dagwright.tools.builtin.word_problems import EXPRESSION_SCHEMA, MAX_TEXT_CHARACTERS
from dagwright.tools.testing import tool_context


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("0.1+0.2", 0.3),
        ("10/4", 2.5),
        ("1/3", 0.333333333333333),
        ("69 - 56", 13),
        ("4/2", 2),
        ("2*3^2", 18),
        ("-2**2", -4),
        ("7//2 + 7 % 4", 6),
        ("2 − 1 × 3 ÷ 4", 1.25),
        ("sqrt(2)", 1.4142135623731),
        ("sqrt(0.25)", 0.5),
        ("8**(1/3)", 2),
        ("round(2.675, 2)", 2.68),
        ("round(-0.5)", -1),
        ("max(1, 2.5) + min(3, 1) + abs(-1) + floor(1.9) + ceil(1.1)", 7.5),
        ("2*pi", 6.28318530717959),
        ("12345678901234567890 + 1", 12345678901234567891),
        ("1_000 * .5", 500),
        ("(1.10 * 3 - 3.3) * 10**9", 0),
    ],
)
def test_arithmetic_is_exact(expression: str, value: float) -> None:
    assert calculator(expression) == value
    assert calculator(query=expression) == value
    assert type(calculator(expression)) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Calculate the difference between 69 and 56", "is not arithmetic: unknown name 'Calculate'"),
        ("what is 2+2?", "is not arithmetic: unknown name 'what'"),
        ("__import__('os')", "is not arithmetic: unknown name '__import__'"),
        ("(1).real", "is not arithmetic: unexpected '.'"),
        ("'a' * 9", "is not arithmetic"),
        ("1 2", "no operator between '1' and '2'"),
        ("1,234 + 1", "invalid syntax"),
        ("", "it is empty"),
        ("sqrt", "it is not a single number"),
        ("1 if pi else 2", "unknown name 'if'"),
        ("50%", "invalid syntax"),
        ("0x10", "unknown name 'x10'"),
        ("1/0", "divides by zero"),
        ("0**-1", "divides by zero"),
        ("sqrt(-1)", "no square root"),
        ("9**9**9", "too large"),
        ("1e99999999", "too large"),
        ("9**999 * 9**999 * 9**999 * 9**999", "too large"),
        ("10**400 / 3", "too large or too small for a number with a decimal point"),
        ("-" * 3000 + "1", "nested too deep"),
        ("(" * 500 + "1" + ")" * 500, "invalid syntax"),
        ("1" * 4001, "over the limit of 4,000"),
    ],
)
def test_text_that_is_not_arithmetic_is_rejected_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        calculator(text)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300


def test_exactly_one_of_expression_and_query_is_required() -> None:
    for arguments in ({}, {"expression": "1", "query": "2"}):
        with pytest.raises(ValueError, match="either an expression or a query"):
            calculator(**arguments)


@given(st.lists(st.tuples(st.sampled_from("+-*/"), st.decimals(0, 10**6, places=4)), max_size=8))
def test_chain_of_operations_has_the_value_of_exact_fractions(steps: list[tuple[str, object]]) -> None:
    text, fraction_text = "1", "Fraction(1)"
    for operator, number in steps:
        text, fraction_text = f"({text}) {operator} {number}", f"({fraction_text}) {operator} Fraction('{number}')"
    try:
        value = eval(fraction_text, {"Fraction": Fraction})
    except ZeroDivisionError:
        with pytest.raises(ValueError, match="divides by zero"):
            evaluate(text)
    else:
        assert evaluate(text) == value
        if value:
            assert abs(Fraction(number_of(value)) / value - 1) < Fraction(1, 10**14)


# Queries in words.

QUERY = "Calculate the difference between 69 and 55"


def expression_response(text: str) -> Any:
    return json_text({"is_calculation": True, "expression": text, "reason": ""})


async def calculate(server: ModelServer, query: Any, *, model: str | None = "small") -> Any:
    """Call `calculator` with a query. The tool sends its model calls to `server`."""
    async with ModelClient(Endpoint(server.base_url), model=model) as client:
        with tool_context(ask=client.complete):
            return await asyncio.to_thread(calculator, query=query)


async def test_text_becomes_an_expression_that_the_calculator_evaluates() -> None:
    async with ModelServer(expression_response("69 - 55")) as server:
        assert await calculate(server, QUERY) == 14
    [call] = server.calls
    assert [message["role"] for message in call.messages] == ["system", "user"]
    assert (call.messages[1]["content"], call.metadata) == (QUERY, {"purpose": "calculate"})
    schema = call.body["response_format"]["json_schema"]
    assert (schema["strict"], schema["schema"]["required"]) == (True, EXPRESSION_SCHEMA["required"])


@pytest.mark.parametrize("query", ["69 - 55", " 2 * 7 ", 14, 14.0, "28 ÷ 2"])
async def test_plain_arithmetic_calls_no_model(query: Any) -> None:
    async with ModelServer() as server:
        assert await calculate(server, query) == 14


@pytest.mark.parametrize(
    ("query", "message"),
    [
        *(("1/0", "divides by zero"), ("9**9**9", "too large"), ("", "it is empty"), ("  ", "it is empty")),
        ("x" * (MAX_TEXT_CHARACTERS + 1), "over the limit of 100,000"),
    ],
    ids=["division_by_zero", "too_large", "empty", "blank", "too_long"],
)
async def test_invalid_arithmetic_and_empty_or_too_long_queries_call_no_model(query: str, message: str) -> None:
    async with ModelServer() as server:
        with pytest.raises(ValueError, match=message):
            await calculate(server, query)


async def test_invalid_expression_is_returned_to_the_model_once() -> None:
    async with ModelServer(expression_response("69 minus 55"), expression_response("69 - 55")) as server:
        assert await calculate(server, QUERY) == 14
    assert server.calls[1].messages[-1]["content"] == (
        "Invalid expression: '69 minus 55' is not arithmetic: unknown name 'minus'; write an expression such as "
        "12 * (3 + 4) / 5. Write the expression again."
    )


@pytest.mark.parametrize("result", ["14", "(14)", " 14.0 "])
async def test_result_that_the_model_computed_itself_is_rejected(result: str) -> None:
    async with ModelServer(expression_response(result), expression_response(result)) as server:
        message = "could not convert '.*' to an expression: .*14.* is a single number that is not in the text"
        with pytest.raises(ValueError, match=message):
            await calculate(server, QUERY)


async def test_number_from_the_text_is_accepted_as_the_expression() -> None:
    async with ModelServer(expression_response("69")) as server:
        assert await calculate(server, "How old was he? He died at 69.") == 69


@pytest.mark.parametrize(
    ("reason", "message"), [("it asks\nfor a   poem", "it asks for a poem"), ("", "the model gave no reason")]
)
async def test_text_that_is_not_a_calculation_is_rejected_with_the_reason(reason: str, message: str) -> None:
    async with ModelServer(json_text({"is_calculation": False, "expression": "", "reason": reason})) as server:
        with pytest.raises(ValueError, match="is not a calculation") as caught:
            await calculate(server, "Write a poem")
    assert str(caught.value) == f"'Write a poem' is not a calculation: {message}"


async def test_division_by_zero_in_the_expressions_of_the_model_is_an_error() -> None:
    async with ModelServer(expression_response("1 / 0"), expression_response("1 / (2 - 2)")) as server:
        with pytest.raises(ValueError, match=r"to an expression: '1 / \(2 - 2\)' divides by zero"):
            await calculate(server, "One divided by nothing")


async def test_error_without_a_model_explains_how_to_name_a_model() -> None:
    rejection = "'Add 1 and 2' is not arithmetic: unknown name 'Add'; write an expression such as 12 * (3 + 4) / 5"
    async with ModelServer() as server:
        with pytest.raises(ValueError, match="not arithmetic") as caught:
            await calculate(server, "Add 1 and 2", model=None)
    assert str(caught.value) == (
        f"{rejection}, or let a model read it: name a model in the request, or set DAGWRIGHT_MODEL for the worker "
        "(`dagwright up` passes its environment to the workers that it starts)"
    )


async def test_service_failure_is_distinguished_from_an_invalid_text() -> None:
    async with ModelServer(busy(), HttpError(401, code="invalid_api_key")) as server:
        for error in ("model_busy", "model_key_rejected"):
            with pytest.raises(ModelFailure) as caught:
                await calculate(server, QUERY)
            assert caught.value.error == error
