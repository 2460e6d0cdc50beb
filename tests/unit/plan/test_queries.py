"""Queries of RFC 9535: which are refused, what they cost, and what becomes of a node whose query costs too much."""

from typing import Any

import pytest

from dagwright.plan.paths import get_value, parse_path
from dagwright.plan.scheduler import Scheduler
from dagwright.plan.work import MAX_WORK, TooMuchWork, WorkBudget
from tests.unit.plan.building import node, plan_of, problems_of, scheduler_of, started, states

ROWS = [{"kind": "ab"[number % 2], "n": number} for number in range(1_000)]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("[?search(@.x, '(a+)+$')]", r"search\(\) cannot be used in a query"),
        ("[?match(@.x, 'a')]", r"match\(\) cannot be used in a query"),
        ("[?@.n > 1 && !(search(@.x, 'a') || @.x == 1)]", r"search\(\) cannot be used in a query"),
        ("[?@[?search(@.x, 'a')]]", r"search\(\) cannot be used in a query"),
        ("[?@.x == $.y]", "inside a filter `\\$` cannot be used"),
        ("[?count($..x) > 1]", "inside a filter `\\$` cannot be used"),
        ("..a..b..c", "could take too long: a query has at most 2 times"),
        ("..a[?@..b[?@..c]]", "could take too long"),
        ("[?@.a][?@.b][?@.c][?@.d]", "could take too long"),
        ("[0,0]" * 5, "could take too long"),
    ],
)
def test_query_that_could_take_too_long_is_refused(path: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_path(path)


def test_refused_query_is_told_with_its_place() -> None:
    wrong = node("b", arguments={"x": "{{a.result[?search(@.x, '(a+)+$')]}}"})
    (problem,) = problems_of(plan_of(node("a"), wrong))
    assert (problem.code, problem.pointer) == ("invalid_reference", "/nodes/1/arguments/x")


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("[?@.kind == 'b' && @.n < 4].n", [1, 3]),
        ("[2:4].n", [2, 3]),
        ("[4:2:-1].n", [4, 3]),
        ("[::0]", []),
        ("[-1,0]['n','kind']", [999, "b", 0, "a"]),
        ("[?count(@.*) == 3]", []),
        ("[?length(@.kind) == 2]", []),
        (".x[0][?@.y]", []),
    ],
)
def test_query_finds_its_matches_in_document_order(path: str, found: list[Any]) -> None:
    assert get_value(ROWS, parse_path(path), start="x") == found


@pytest.mark.parametrize(
    ("value", "path", "work"),
    [
        (ROWS, "[2:4].n", 30),
        ({"rows": ROWS}, ".rows[10:20].n", 110),
        (ROWS, "[*].n", 10_010),
        (ROWS, "[?@.n > 5]", 20_010),
        (ROWS, "[?@.n > 5].kind", 20_010),
        (ROWS, "..n", 30_020),
        (ROWS, "..*..*", 90_040),
    ],
)
def test_query_costs_what_it_looks_at(value: Any, path: str, work: int) -> None:
    budget = WorkBudget()
    get_value(value, parse_path(path), start="x", budget=budget)
    assert MAX_WORK - budget.left == work


def test_refusal_names_the_limit_that_holds() -> None:
    budget = WorkBudget(2_000)
    budget.spend(500)
    with pytest.raises(TooMuchWork) as refusal:
        budget.spend(1_501)
    assert str(refusal.value) == (
        "it reads too much: about 1,501 units of work, and 1,500 of 2,000 are left for this moment of the run; "
        "let a tool work it out and read its result"
    )
    budget.start(1.0)
    assert budget.left == 2_000


def test_query_that_descends_twice_into_what_is_large_and_deep_is_not_answered() -> None:
    value: Any = None
    for _ in range(90):
        value = {"x": value, "y": list(range(300))}
    with pytest.raises(TooMuchWork, match="x: it reads too much"):
        get_value(value, parse_path("..x..y[?@ > 5]"), start="x")


def test_query_that_many_items_ask_is_answered_once() -> None:
    ask = "{{rows.result[?@.kind == 'b'].n}}"
    scheduler = scheduler_of(node("rows"), node("m", for_each=list(range(200)), key="k{{item}}", arguments={"of": ask}))
    started(scheduler)
    scheduler.complete("rows", ROWS, at=1.0)
    tasks = started(scheduler, at=1.0)
    assert [task.arguments["of"] == list(range(1, 1_000, 2)) for task in tasks] == [True] * 200
    assert MAX_WORK - scheduler._budget.left == 20_010 + 200 * 21


def different_questions(count: int, **fields: Any) -> Scheduler:
    nodes = [node(f"n{number}", arguments={"x": f"{{{{a.result[?@.n > {number}]}}}}"}) for number in range(count)]
    scheduler = scheduler_of(node("a"), *nodes, **fields)
    started(scheduler)
    scheduler.complete("a", ROWS * 10, at=1.0)
    return scheduler


def test_node_fails_whose_query_is_one_too_many_for_a_moment() -> None:
    scheduler = different_questions(8)
    assert [task.id for task in started(scheduler, at=1.0)] == [f"n{number}" for number in range(7)]
    assert states(scheduler)["n7"] == "failed"
    record = scheduler.record_of("n7")
    assert record is not None
    assert record.error is not None
    start = "the query '$[?@.n > 7]' on a.result: it reads too much: about 200,010 units of work"
    assert (record.error.code, record.error.message[: len(start)]) == ("too_large", start)


def test_output_whose_query_costs_too_much_is_null_with_an_error() -> None:
    output = {f"x{number}": f"{{{{a.result[?@.n > {number}]}}}}" for number in range(8)}
    scheduler = different_questions(0, output=output)
    value, error = scheduler.output()
    assert (value, error and error.code) == (None, "too_large")
