"""From the options of `feedback` to the answer."""

from typing import Any

import pytest

from dagwright.interfaces.cli.answering import answer_of
from dagwright.interfaces.cli.exits import CommandRefused
from dagwright.interfaces.cli.requests import AnswerRequest


def _request(**fields: Any) -> AnswerRequest:
    return AnswerRequest("run-1", "check", **fields)


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        ({}, None),
        ({"is_approved": True}, {"approved": True}),
        (
            {"is_approved": True, "reason": "fine", "arguments": '{"n": 1}'},
            {"approved": True, "reason": "fine", "arguments": {"n": 1}},
        ),
        ({"is_rejected": True, "reason": "no"}, {"approved": False, "reason": "no"}),
        ({"is_approved": True, "is_remembered": True}, {"approved": True, "remember": True}),
        ({"selected": ["north", "2"]}, {"selected": ["north", "2"]}),
        ({"selected": ["value"], "data": "[1]"}, {"selected": ["value"], "value": [1]}),
        ({"selected": ["retry"], "arguments": '{"n": 1}'}, {"selected": ["retry"], "arguments": {"n": 1}}),
        ({"text": ""}, {"text": ""}),
        ({"data": '{"age": 7}'}, {"data": {"age": 7}}),
    ],
)
def test_options_become_the_answer(options: dict[str, Any], answer: Any) -> None:
    assert answer_of(_request(**options)) == answer


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"is_approved": True, "is_rejected": True},
            "--approve and --reject do not go together: one answer is of one kind",
        ),
        ({"text": "a", "data": "1"}, "--text and --data do not go together: one answer is of one kind"),
        (
            {"is_rejected": True, "arguments": "{}"},
            "--arguments goes with --approve, or with --select retry",
        ),
        (
            {"text": "a", "reason": "b"},
            "--reason goes with --approve or --reject; --note goes with any answer",
        ),
        ({"is_rejected": True, "is_remembered": True}, "--remember goes with --approve"),
        (
            {"is_approved": True, "arguments": "[]"},
            "--arguments takes a JSON object, not '[]'",
        ),
        ({"data": "{a"}, "--data takes JSON, and '{a' is none: key must be a string at line 1 column 2"),
        ({"data": "NaN"}, "--data takes JSON, and 'NaN' is none: expected value at line 1 column 1"),
        ({"data": "1e999"}, "--data takes JSON, and '1e999' is none: "),
        ({"data": '"\\ud800"'}, "--data takes JSON, and '\"\\\\ud800\"' is none: "),
        ({"data": "[" * 9_000 + "]" * 9_000}, "--data takes JSON, and '[[["),
    ],
)
def test_options_that_make_no_answer_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CommandRefused) as refused:
        answer_of(_request(**options))
    assert str(refused.value).startswith(sentence)
