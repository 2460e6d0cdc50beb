"""`calculator`: what it knows, what it refuses, and that its numbers are exact."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagwright.tools import spec_of
from dagwright.tools.builtin.calculator import calculator, evaluated, number_of


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
        ("Calculate the difference between 69 and 56", "is not arithmetic: it has 'Calculate'"),
        ("what is 2+2?", "is not arithmetic: it has 'what'"),
        ("__import__('os')", "is not arithmetic: it has '__import__'"),
        ("(1).real", "is not arithmetic: it has '.'"),
        ("'a' * 9", "is not arithmetic"),
        ("1 2", "'1' and '2' have no operator between them"),
        ("1,234 + 1", "it cannot be read"),
        ("", "it is empty"),
        ("sqrt", "it is not one number"),
        ("1 if pi else 2", "it has 'if'"),
        ("50%", "it cannot be read"),
        ("0x10", "it has 'x10'"),
        ("1/0", "divides by zero"),
        ("0**-1", "divides by zero"),
        ("sqrt(-1)", "no square root"),
        ("9**9**9", "too large"),
        ("1e99999999", "too large"),
        ("9**999 * 9**999 * 9**999 * 9**999", "too large"),
        ("10**400 / 3", "too large or too small for a number with a decimal point"),
        ("-" * 3000 + "1", "nested too deep"),
        ("(" * 500 + "1" + ")" * 500, "cannot be read"),
        ("1" * 4001, "over the limit of 4,000"),
    ],
)
def test_everything_else_is_a_clear_error(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        calculator(text)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300


def test_exactly_one_of_expression_and_query_is_wanted() -> None:
    for arguments in ({}, {"expression": "1", "query": "2"}):
        with pytest.raises(ValueError, match="either an expression or a query"):
            calculator(**arguments)


def test_numbers_are_taken_as_they_are() -> None:
    spec = spec_of(calculator)
    assert spec is not None
    assert calculator(**spec.bind({"expression": 2.50})) == 2.5
    assert spec.declaration.effects == "pure"


@given(st.lists(st.tuples(st.sampled_from("+-*/"), st.decimals(0, 10**6, places=4)), max_size=8))
def test_chains_of_operations_equal_fractions(steps: list[tuple[str, object]]) -> None:
    text, expected = "1", "Fraction(1)"
    for sign, number in steps:
        text, expected = f"({text}) {sign} {number}", f"({expected}) {sign} Fraction('{number}')"
    try:
        value = eval(expected, {"Fraction": Fraction})
    except ZeroDivisionError:
        with pytest.raises(ValueError, match="divides by zero"):
            evaluated(text)
    else:
        assert evaluated(text) == value
        if value:
            assert abs(Fraction(number_of(value)) / value - 1) < Fraction(1, 10**14)
