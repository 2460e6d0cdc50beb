"""Parsing and formatting of call limits."""

import pytest

from dagwright.core.model.call_limits import (
    CallLimit,
    CallLimitInvalid,
    Rate,
    Subject,
    parse_limit,
    parse_limits,
    parse_subject,
)


def test_parts_of_a_limit_are_parsed_in_any_order_and_formatted_in_a_fixed_order() -> None:
    limit = parse_limit("concurrency=5 20/s tokens=100000")
    assert limit == CallLimit(Rate(20, "s"), 5, 100_000)
    assert str(limit) == "20/s concurrency=5 tokens=100000"
    assert parse_limits("tool:a 500/min; model:gpt-5 tokens=9;") == {
        Subject("tool", "a"): CallLimit(Rate(500, "min")),
        Subject("model", "gpt-5"): CallLimit(tokens_per_minute=9),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a limit has at least one of"),
        ("0/s", "a rate is at least 1 call in a period, not 0/s"),
        ("20/day", "one of s, min, h, not 'day'; `calls=1000/day` limits model calls per day"),
        ("20/week", "the period of a rate is one of s, min, h, not 'week'"),
        ("-1/s", "not '-1/s'"),
        ("1e308/s", "not '1e308/s'"),
        ("NaN/s", "not 'NaN/s'"),
        ("\u0662/s", "not '\u0662/s'"),
        ("money=\u0663/day", "a limit is `20/s`, "),
        ("tokens=0", "a number from 1 to 1,000,000,000, not 0"),
        ("20/s 3/min", "two parts of the same kind"),
        ("concurrency=2000", "a number from 1 to 1,000, not 2000"),
    ],
)
def test_invalid_limit_is_rejected_with_an_explanation(text: str, message: str) -> None:
    with pytest.raises(CallLimitInvalid, match=message):
        parse_limit(text)


@pytest.mark.parametrize("text", ["fetch", "queue:fetch", "tool:", "tool: ", "model:small ", "owner:" + "x" * 201])
def test_invalid_subject_is_rejected(text: str) -> None:
    with pytest.raises(CallLimitInvalid):
        parse_subject(text)
