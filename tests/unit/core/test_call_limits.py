"""Text forms of limits across runs."""

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


def test_limits_are_read_and_written_in_one_form() -> None:
    limit = parse_limit("concurrency=5 20/s tokens=100000")
    assert limit == CallLimit(Rate(20, "s"), 5, 100_000)
    assert str(limit) == "20/s concurrency=5 tokens=100000"
    assert parse_limits("tool:a 500/min; model:gpt-5 tokens=9;") == {
        Subject("tool", "a"): CallLimit(Rate(500, "min")),
        Subject("model", "gpt-5"): CallLimit(tokens_per_minute=9),
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a limit has at least one of"),
        ("0/s", "a rate is at least 1 call in a period, not 0/s"),
        ("20/day", "not '20/day'"),
        ("20/s 3/min", "two parts of the same kind"),
        ("concurrency=2000", "a number from 1 to 1,000, not 2000"),
    ],
)
def test_invalid_limit_is_refused_with_the_valid_form(text: str, words: str) -> None:
    with pytest.raises(CallLimitInvalid, match=words):
        parse_limit(text)


@pytest.mark.parametrize("text", ["fetch", "queue:fetch", "tool:", "owner:" + "x" * 201])
def test_invalid_subject_is_refused(text: str) -> None:
    with pytest.raises(CallLimitInvalid):
        parse_subject(text)
