"""Budgets on the command line: how they are written, and how a request for more is answered."""

import pytest

from dagwright.cli.budgets import read_budget, read_new_limits
from dagwright.cli.exits import CommandRefused
from dagwright.cli.request_words import answer_words


def test_budget_is_read_as_the_options_of_a_run_have_it() -> None:
    written = "tokens=50000, money=1.50,calls=40,nodes=200"
    limits = {"tokens": 50000, "money": "1.50", "calls": 40, "nodes": 200}
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
        ("tokens=-5", "tokens must be a whole number from 1, not '-5'"),
        ("tokens=0", "tokens must be a whole number from 1, not 0"),
        ("tokens=1.5", "tokens must be a whole number from 1, not '1.5'"),
        ("money=much", "money must be an amount of money over 0, such as 1.50, not 'much'"),
        ("cals=5", "there is no limit 'cals'; did you mean 'calls'?"),
        ("calls=5,calls=6", "calls is given twice"),
        ("on_limit=finish", "expected an object with some of tokens, money, calls, nodes"),
    ],
)
def test_budget_that_is_none_is_refused_with_its_part(written: str, problem: str) -> None:
    with pytest.raises(CommandRefused) as refused:
        read_budget(written, is_asking=True)
    assert f"--budget {written}: {problem}" in str(refused.value)


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
