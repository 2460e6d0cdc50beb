"""Budgets on the command line: how they are written, and how a request for more is answered."""

from decimal import Decimal

import pytest

from dagwright.core.model.usage import Usage
from dagwright.interfaces.cli.exits import CommandRefused
from dagwright.interfaces.cli.request_words import answer_words
from dagwright.interfaces.cli.terms import read_budget, read_new_limits
from dagwright.interfaces.cli.wording import usage_lines

MOST = "1,000,000,000,000,000"


def test_budget_is_read_as_the_options_of_a_run_have_it() -> None:
    written = "tokens=50000, money=1.50,calls=40,nodes=200,time=1.5h"
    limits = {"tokens": 50000, "money": "1.50", "calls": 40, "nodes": 200, "time": "5400.0s"}
    assert read_budget(written, is_asking=True) == limits
    assert read_budget(written, is_asking=False) == {**limits, "on_limit": "finish"}
    assert read_budget(None, is_asking=True) is None
    assert read_new_limits("tokens=none,calls=9") == {"tokens": None, "calls": 9}


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("", "'' is no limit; write NAME=NUMBER"),
        ("tokens", "'tokens' is no limit; write NAME=NUMBER"),
        ("tokens=", "'tokens=' is no limit; write NAME=NUMBER"),
        ("tokens=-5", "tokens must be a whole number from 1 to 1,000,000,000,000,000, not '-5'"),
        ("tokens=0", "tokens must be a whole number from 1 to 1,000,000,000,000,000, not 0"),
        ("tokens=1.5", "tokens must be a whole number from 1 to 1,000,000,000,000,000, not '1.5'"),
        (
            "money=much",
            "money must be an amount of money over 0 and at most 1,000,000,000,000,000, such as 1.50, not 'much'",
        ),
        ("tokens=NaN", "tokens must be a whole number from 1 to 1,000,000,000,000,000, not 'NaN'"),
        ("tokens=1e400", "tokens must be a whole number from 1 to 1,000,000,000,000,000, not '1e400'"),
        ("tokens=50k", "tokens must be a whole number from 1 to 1,000,000,000,000,000, not '50k'"),
        ("tokens=1000000000000001", "tokens must be a whole number from 1 to 1,000,000,000,000,000, not 10000"),
        (f"calls={'9' * 5_000}", "calls must be a whole number from 1 to 1,000,000,000,000,000, not '99999"),
        ("tokens=50,000", "'000' is no limit; write NAME=NUMBER, and numbers without commas"),
        *(
            (f"money={text}", f"money must be an amount of money over 0 and at most {MOST}, such as 1.50, not {text!r}")
            for text in ("-1.50", "NaN", "inf", "Infinity", "1e400", "$5", "0")
        ),
        ("time=30", "time must be a duration: '30' is no duration; write a number and a unit, such as"),
        ("time=-5m", "time must be a duration: '-5m' is no duration"),
        ("time=0s", "time must be a duration: '0s' is out of range; a duration is over 0"),
        ("time=1e400h", "time must be a duration: '1e400h' is no duration"),
        ("cals=5", "there is no limit 'cals'; did you mean 'calls'?"),
        ("calls=5,calls=6", "calls is given twice"),
        ("on_limit=finish", "expected an object with some of tokens, money, calls, nodes, time"),
    ],
)
def test_budget_that_is_none_is_refused_with_its_part(written: str, problem: str) -> None:
    with pytest.raises(CommandRefused) as refused:
        read_budget(written, is_asking=True)
    assert f": {problem}" in str(refused.value)
    assert str(refused.value).startswith(f"--budget {written[:100]}")


def test_request_for_more_shows_both_commands() -> None:
    schema = {"type": "object", "properties": {"calls": {"type": "integer"}, "finish": {"type": "boolean"}}}
    request = {
        "workflow_id": "run-1",
        "id": "budget",
        "type": "INFORMATION",
        "purpose": "budget",
        "schema": schema,
        "options": None,
    }
    assert answer_words(request) == (
        """dagwright feedback run-1 budget --data '{"calls": 10}'  (or --data '{"finish": true}')"""
    )


def test_cost_that_is_not_known_is_told_once_with_what_mends_it() -> None:
    used = Usage(calls=3, prompt_tokens=30, unpriced_calls=1, uncounted_calls=1, money=Decimal("0.5"))
    agents = {"writer": used.told(), "reader": Usage(calls=1, prompt_tokens=9, unpriced_calls=1).told()}
    assert usage_lines({"usage": {**used.told(), "agents": agents}}) == [
        "used: 30 tokens in 3 model calls, cost at least 0.5",
        "  agent writer: 30 tokens in 3 model calls, cost at least 0.5",
        "  agent reader: 9 tokens in 1 model call",
        "  not in the cost: 1 of the calls, as no price table has its model; give it a price in the file that "
        "DAGWRIGHT_PRICES names",
        "  not in the cost: 1 of the calls, as the service did not tell its tokens",
    ]
