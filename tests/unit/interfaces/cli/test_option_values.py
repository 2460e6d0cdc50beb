"""Values of options on the command line: answers, typed inputs, budgets."""

import ast
import importlib
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from dagwright.core.errors import PlanInvalid, Problem
from dagwright.core.model.states import Usage
from dagwright.interfaces import cli
from dagwright.interfaces.cli.exit_codes import CommandError
from dagwright.interfaces.cli.feedback_command import answer_of
from dagwright.interfaces.cli.node_text import usage_lines
from dagwright.interfaces.cli.people_commands import AnswerArguments
from dagwright.interfaces.cli.plan_input import (
    PlanSource,
    convert_inputs,
    convert_value,
    parse_budget,
    parse_new_limits,
    parse_pairs,
    problem_lines,
    read_plan,
)
from dagwright.interfaces.cli.request_text import answer_command

CONTRADICTION = "contradict each other: give one answer"


def _arguments(**fields: Any) -> AnswerArguments:
    return AnswerArguments("run-1", "check", **fields)


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        ({}, None),
        ({"is_approved": True}, {"approved": True}),
        ({"is_approved": True, "reason": "ok", "arguments": "{}"}, {"approved": True, "reason": "ok", "arguments": {}}),
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
    assert answer_of(_arguments(**options)) == answer


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"is_approved": True, "is_rejected": True}, f"--approve and --reject {CONTRADICTION}"),
        ({"text": "a", "data": "1"}, f"--text and --data {CONTRADICTION}"),
        ({"is_rejected": True, "arguments": "{}"}, "--arguments needs --approve, or --select retry"),
        ({"text": "a", "reason": "b"}, "--reason needs --approve or --reject; --note works with every answer"),
        ({"is_rejected": True, "is_remembered": True}, "--remember needs --approve"),
        ({"is_approved": True, "arguments": "[]"}, "--arguments must be a JSON object, not '[]'"),
        ({"data": "{a"}, "--data must be JSON, not '{a': key must be a string at line 1 column 2"),
        ({"data": "1e999"}, "--data must be JSON, not '1e999': "),
        ({"data": '"\\ud800"'}, "--data must be JSON, not '\"\\\\ud800\"': "),
        ({"data": "[" * 9_000 + "]" * 9_000}, "--data must be JSON, not '[[["),
    ],
)
def test_contradictory_or_invalid_answer_options_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(CommandError) as error:
        answer_of(_arguments(**options))
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({}, "7", "7"),
        ({"type": "string"}, "7", "7"),
        ({"type": "integer"}, "7", 7),
        ({"type": "integer"}, "7.0", 7),
        ({"type": "number"}, "7.5", 7.5),
        ({"type": "boolean"}, "yes", True),
        ({"type": "boolean"}, "False", False),
        ({"type": "array"}, "[1, 2]", [1, 2]),
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
        ({"type": ["integer", "null"]}, "null", None),
        ({"type": ["integer", "string"]}, "seven", "seven"),
        ({"enum": [1, 2]}, "2", 2),
        ({"enum": ["a", "b"]}, "c", "c"),
    ],
)
def test_text_is_converted_to_the_declared_type(schema: dict[str, Any], text: str, value: Any) -> None:
    actual_value = convert_value(schema, text)
    assert (type(actual_value), actual_value) == (type(value), value)


def test_text_of_another_type_is_rejected() -> None:
    invalid_values = (("integer", "7.5"), ("integer", "true"), ("number", "NaN"), ("boolean", "1"), ("array", "{}"))
    for type_name, text in (*invalid_values, ("object", "x"), ("array", "[" * 100_000)):
        with pytest.raises(ValueError, match=f"is not of type {type_name}"):
            convert_value({"type": type_name}, text)


def test_hint_shows_how_to_write_a_list_or_an_object() -> None:
    input_schemas = {"lamps": {"type": "array"}, "size": {"type": "object"}, "n": {"type": "integer"}}
    hint_for_list = """write a list as JSON: --input 'lamps=["desk", "wall"]'"""
    hint_for_object = """write an object as JSON: --input 'size={"key": "value"}'"""
    for lamps in ("desk,wall", "[desk, wall]"):
        values, problems = convert_inputs(input_schemas, {"lamps": lamps, "size": "big", "n": "x"})
        assert (values, [problem.hint for problem in problems]) == ({}, [hint_for_list, hint_for_object, None])


def test_problem_names_its_file_once() -> None:
    error = PlanInvalid([Problem("invalid_syntax", "m4.yaml: a key must be text (line 1, column 2)", "/nodes")])
    (line,) = problem_lines(PlanSource("m4.yaml", None, error), error)
    assert line == "m4.yaml: invalid_syntax at /nodes: a key must be text (line 1, column 2)"


def test_pairs_are_split_at_the_first_equals_sign() -> None:
    assert parse_pairs(["a=b=c", "empty="], option="--input") == {"a": "b=c", "empty": ""}
    with pytest.raises(CommandError, match="--input must be KEY=VALUE, not '=x'"):
        parse_pairs(["=x"], option="--input")


def test_plan_of_standard_input_can_be_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    for plan in ({"nodes": [1]}, {"nodes": [2]}):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(plan).encode())))
        assert [read_plan("-"), read_plan("-")] == [plan, plan]


def test_budget_text_is_converted_to_the_budget_of_run_options() -> None:
    text = "tokens=50000, money=1.50,calls=40,nodes=200,time=1.5h"
    limits = {"tokens": 50000, "money": "1.50", "calls": 40, "nodes": 200, "time": "5400.0s"}
    assert parse_budget(text, is_interactive=True) == limits
    assert parse_budget(text, is_interactive=False) == {**limits, "on_limit": "finish"}
    assert parse_budget(None, is_interactive=True) is None
    assert parse_new_limits("tokens=none,calls=9") == {"tokens": None, "calls": 9}


LIMIT_HINT = "write NAME=NUMBER"
WHOLE_NUMBER_PROBLEM = "must be a whole number from 1 to 1,000,000,000,000,000, not"
MONEY_PROBLEM = "money must be an amount of money over 0 and at most 1,000,000,000,000,000, such as 1.50, not"
TIME_PROBLEM = "time must be a duration:"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        *((text, f"invalid limit '{text}'; {LIMIT_HINT}") for text in ("", "tokens", "tokens=")),
        *(
            (f"tokens={text}", f"tokens {WHOLE_NUMBER_PROBLEM} '{text}'")
            for text in ("-5", "1.5", "NaN", "1e400", "50k")
        ),
        ("tokens=0", f"tokens {WHOLE_NUMBER_PROBLEM} 0"),
        ("tokens=1000000000000001", f"tokens {WHOLE_NUMBER_PROBLEM} 10000"),
        (f"calls={'9' * 5_000}", f"calls {WHOLE_NUMBER_PROBLEM} '99999"),
        ("tokens=50,000", f"invalid limit '000'; {LIMIT_HINT}, and numbers without commas"),
        *(
            (f"money={text}", f"{MONEY_PROBLEM} {text!r}")
            for text in ("much", "-1.50", "NaN", "inf", "1e400", "$5", "0")
        ),
        ("time=30", f"{TIME_PROBLEM} '30' is not a duration; write a number and a unit, such as"),
        ("time=-5m", f"{TIME_PROBLEM} '-5m' is not a duration"),
        ("time=0s", f"{TIME_PROBLEM} '0s' is out of range; a duration is over 0"),
        ("time=1e400h", f"{TIME_PROBLEM} '1e400h' is not a duration"),
        ("cals=5", "unknown limit 'cals'; did you mean 'calls'?"),
        ("calls=5,calls=6", "calls is given twice"),
        ("on_limit=finish", "expected an object with some of tokens, money, calls, nodes, time"),
    ],
)
def test_error_of_an_invalid_budget_names_the_invalid_limit(text: str, problem: str) -> None:
    with pytest.raises(CommandError) as error:
        parse_budget(text, is_interactive=True)
    assert f": {problem}" in str(error.value)
    assert str(error.value).startswith(f"--budget {text[:100]}")


def test_answer_command_of_a_budget_request_can_raise_the_budget_or_finish_the_run() -> None:
    schema = {"type": "object", "properties": {"calls": {"type": "integer"}, "finish": {"type": "boolean"}}}
    request = {"run_id": "run-1", "request_id": "budget", "type": "INFORMATION", "purpose": "budget", "schema": schema}
    command = """dagwright feedback run-1 budget --data '{"calls": 10}'  (or --data '{"finish": true}')"""
    assert answer_command({**request, "options": None}) == command


def test_unknown_cost_is_reported_once_with_its_remedy() -> None:
    usage = Usage(calls=3, prompt_tokens=30, unpriced_calls=1, uncounted_calls=1, money=Decimal("0.5"))
    agents = {"writer": usage.to_document(), "reader": Usage(calls=1, prompt_tokens=9, unpriced_calls=1).to_document()}
    assert usage_lines({"usage": {**usage.to_document(), "agents": agents}}) == [
        "used: 30 tokens in 3 model calls, cost at least 0.5",
        "  agent writer: 30 tokens in 3 model calls, cost at least 0.5",
        "  agent reader: 9 tokens in 1 model call",
        "  not in the cost: 1 of the calls, because no price table has the model; add a price to the file of "
        "DAGWRIGHT_PRICES",
        "  not in the cost: 1 of the calls, because the service did not report tokens",
    ]


_COMMAND_FUNCTIONS = sorted(
    (names[0].value, names[1].value)
    for file in Path(cli.__path__[0]).glob("*.py")
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("call_command", "command")
    for names in [node.args[node.func.id == "command" :]]
    if len(names) > 1 and isinstance(names[0], ast.Constant) and isinstance(names[1], ast.Constant)
)
"""Module and function of each command, from `call_command(MODULE, FUNCTION, …)` and `command(TYPE, MODULE, FUNCTION)`.

`TYPE` is the type of the arguments."""


def test_command_functions_are_found() -> None:
    assert len(_COMMAND_FUNCTIONS) > 30


@pytest.mark.parametrize(("module", "function"), _COMMAND_FUNCTIONS)
def test_module_of_a_command_has_its_function(module: str, function: str) -> None:
    assert callable(getattr(importlib.import_module(f"{cli.__name__}.{module}"), function))
