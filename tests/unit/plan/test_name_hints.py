"""Hints for wrong names cost a bounded time, whatever the names are."""

import time
from collections.abc import Mapping
from typing import Any

import pytest

from dagwright.plan.errors import MAX_PROBLEMS, TOO_MANY_PROBLEMS, PlanInvalid
from dagwright.plan.references import HINT_BUDGET, NameHints, nearest, suggestion
from dagwright.plan.tools import ToolDeclaration
from dagwright.preparation import check_plan, unused_inputs
from tests.unit.plan.building import TOOLS, node, plan_of

MOST_SECONDS = 2.0
"""Several times the half second that hints cost at most, for a busy machine."""


def _problems(raw: Mapping[str, Any], tools: Mapping[str, ToolDeclaration] = TOOLS) -> list[tuple[str, str | None]]:
    with pytest.raises(PlanInvalid) as caught:
        check_plan(raw, tools)
    return [(problem.code, problem.hint) for problem in caught.value.problems]


def _equal_letters(count: int, length: int) -> list[dict[str, Any]]:
    names = [f"{number:03}" + "a" * length for number in range(count)]
    return [node(name, f"{name[::-1]}") for name in names]


@pytest.mark.parametrize("length", [50, 90])
def test_long_equal_names_are_compared_in_bounded_time(length: int) -> None:
    start = time.thread_time()
    problems = _problems(plan_of(*_equal_letters(100, length)))
    assert len(problems) == 100
    assert time.thread_time() - start < MOST_SECONDS


def test_unknown_arguments_are_compared_in_bounded_time() -> None:
    names = [f"{number:04}" + "ab" * 20 for number in range(2_000)]
    schema = {"type": "object", "properties": {name: {} for name in names[:1_000]}, "additionalProperties": False}
    tools = {"wide": ToolDeclaration("wide", TOOLS["typed"].effects, schema)}
    start = time.thread_time()
    problems = _problems(plan_of(node("a", tool="wide", arguments=dict.fromkeys(names[1_000:], 1))), tools)
    assert len(problems) == MAX_PROBLEMS + 1
    assert time.thread_time() - start < MOST_SECONDS


def test_name_of_megabytes_has_no_suggestion_at_once() -> None:
    start = time.thread_time()
    assert [suggestion("a" * 5_000_000, ["a" * 40] * 100) for _ in range(100)] == [None] * 100
    assert suggestion("calc", ["c" * 5_000_000, "calculate"]) == "did you mean 'calculate'?"
    assert time.thread_time() - start < MOST_SECONDS


def test_spent_budget_gives_no_suggestion() -> None:
    hints = NameHints(100)
    assert [hints.near("bok", ["book"]) for _ in range(6)] == ["did you mean 'book'?"] * 5 + [None]


def test_nearest_names_are_sorted_by_similarity() -> None:
    assert nearest("serch", ["search", "searches", "perch", "zzz"], most=3) == ["search", "perch", "searches"]


def test_budget_covers_the_names_of_a_usual_plan() -> None:
    hints = NameHints(HINT_BUDGET)
    names = [f"fetch_{word}" for word in ("books", "films", "songs", "plays", "games")]
    assert {hints.near(f"{name}s", names) for name in names * 20} == {f"did you mean {name!r}?" for name in names}


def test_unused_inputs_stop_after_the_most_problems() -> None:
    checked = check_plan(plan_of(node("a"), inputs={f"in_{n}": {"default": "x"} for n in range(2_000)}), TOOLS)
    start = time.thread_time()
    problems = unused_inputs(checked, [f"out_{n}" for n in range(2_000)])
    assert PlanInvalid(problems).problems[-1].code == TOO_MANY_PROBLEMS
    assert len(problems) == MAX_PROBLEMS + 1
    assert time.thread_time() - start < MOST_SECONDS


def test_unknown_inputs_of_conditions_are_compared_in_bounded_time() -> None:
    inputs = {f"in_{n}": {"default": "x"} for n in range(2_000)}
    nodes = [node(f"n{n}", when=f"inputs.im_{n} == 'x'") for n in range(200)]
    start = time.thread_time()
    assert len(_problems(plan_of(*nodes, inputs=inputs))) == MAX_PROBLEMS
    assert time.thread_time() - start < MOST_SECONDS
