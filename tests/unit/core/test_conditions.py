"""`when`: the syntax of conditions, their reads and cost, and their values."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from dagwright.core.expressions.compute_budget import MAX_WORK
from dagwright.core.expressions.condition_parser import ParsedCondition, Read
from dagwright.core.expressions.conditions import (
    ConditionFailed,
    evaluate_condition,
    measure_value,
    read_values,
    values_for_item,
)
from dagwright.core.model.states import NodeStatus
from dagwright.core.scheduler import map_items
from dagwright.core.validation.condition_checks import check_condition
from dagwright.features.run_scheduler import RunScheduler
from tests.support.plan_building import (
    compiled_plan,
    error_of,
    node,
    plan_of,
    start_ready_tasks,
    started_run,
    started_scheduler,
    statuses_of,
    work_of,
)

IDS = {"check", "sum", "odd id", "b.c", "map", "nodes", "_p0", "é"}


def _evaluate_parsed(condition: ParsedCondition, scope: Mapping[str, Any]) -> bool:
    """Evaluate a condition in the two steps of a run, which reads the values of a map once for all items."""
    values = read_values(condition, scope)
    if "item" in scope:
        values = values_for_item(condition, values, item=scope["item"], index=scope["index"])
    return evaluate_condition(condition, values)


def evaluate(text: str, **scope: Any) -> bool:
    results: dict[str, Any] = {"odd id": "text", "b.c": [], "map": 1, "nodes": 2, "_p0": 7}
    results["check"] = {"approved": True, "n": 5, "list": [1, 2, 3], "none": None}
    nodes = {name: {"result": result, "status": "completed", "error": None} for name, result in results.items()}
    nodes["sum"] = {"result": None, "status": "failed", "error": {"code": "x", "message": "m"}}
    condition = check_condition(text, IDS.__contains__)
    read_nodes = {name: nodes[name] for name in condition.nodes}
    inputs = {"quarter": "Q1", "n": 2, "word": "\u00e9"}
    return _evaluate_parsed(condition, {"nodes": read_nodes, "inputs": inputs} | scope)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("check.result.approved && check.result.n > 4", True),
        ("size(check.result.list) == 3", True),
        ("check.result.list.exists(x, x > 2)", True),
        ("check.result.list.all(x, x > 2)", False),
        ('nodes["odd id"].result == "text"', True),
        ("nodes['b.c'].result == []", True),
        ("map.result == 1", True),
        ('check.status == "completed" && sum.status == "failed"', True),
        ('sum.error.code == "x"', True),
        ('inputs.quarter == "Q1"', True),
        ("has(check.result.gone)", False),
        ('"check.result.approved" == ""', False),
        ("check.result.list.exists(check, check > 2) && check.result.n == 5", True),
        ("check.result.list.size() == 3 && size(check.result) == 4", True),
        ("size(inputs.word) == 2", True),
        ("has(check.result.n) && has(nodes.check)", True),
        ("has(sum.result.n)", False),
        ("check.result.list[index] == 2 && _p0.result == 7", True),
        ("1 in[1]//check.result", True),
        ("sum.result == null || size(sum.result) == 0", True),
        ("nodes.nodes.result == 2", True),
    ],
)
def test_condition_is_evaluated(text: str, expected: bool) -> None:
    assert evaluate(text, **({"item": 0, "index": 1} if "index" in text else {})) is expected


@pytest.mark.parametrize(
    "text",
    [
        "sum.result > 3",
        "sum.result.deep.path == 1",
        "check.result.gone == 1",
        "check.result.list[9] == 1",
        "check.error.code == 'x'",
        "sum.result",
        "inputs.gone == 1",
        "size(sum.result) > 0",
    ],
)
def test_condition_that_needs_a_null_or_missing_value_is_false(text: str) -> None:
    assert evaluate(text) is False


@pytest.mark.parametrize(
    "literal",
    [
        "\"nodes['zzz']\"",
        "'zzz.result'",
        "r'\\' + 'zzz'",
        "'''it's nodes[\"zzz\"]'''",
        '"\\"zzz"',
        "b'zzz' == b'' ? '' : ''",
    ],
)
def test_text_in_quotes_is_never_parsed_as_a_node_id(literal: str) -> None:
    condition = check_condition(f"check.result == ({literal}) // zzz.result", IDS.__contains__)
    assert condition.nodes == ("check",)
    assert not _evaluate_parsed(condition, {"nodes": {"check": {"result": 1}}, "inputs": {}})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("check.result.n", "is neither true nor false but 5"),
        ("'text'", "is neither true nor false but 'text'"),
        ("check.result.n + 'x' == 5", "cannot be evaluated"),
        ("1 / 0 == 1", "cannot be evaluated"),
        ("size(check.result.n) == 1", "cannot be evaluated: a number has no size"),
        ("check.result.n.exists(x, x > 1)", "cannot be evaluated"),
    ],
)
def test_condition_without_a_boolean_value_fails(text: str, message: str) -> None:
    with pytest.raises(ConditionFailed, match=message):
        evaluate(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a >", "column 4: the condition ends too early"),
        ("", "the condition is empty"),
        ("gone.result == 1", "gone"),
        ('nodes["gone"].result == 1', "gone"),
        ("nodes == 1", "after `nodes` a node id in brackets"),
        ("check.result.list.map(x, x) == []", r"map\(\) cannot be used"),
        ("check.result.list.filter(x, x > 1) == []", r"filter\(\) cannot be used"),
        ("[[1]].all(x, x.all(y, y > 0))", "inside another comprehension"),
        ("[[1]].all(x, x.existsOne(y, y > 0))", "inside another comprehension"),
        ("check.status.matches(check.result)", "must be a text in quotes"),
        ("check.status.matches('a' + check.result)", "must be a text in quotes"),
        (r"check.status.matches('(\\w{100}){2}')", "no counts in braces"),
        (f"matches(check.status, '{'a' * 200}')", "has at most 200 characters"),
        (".check.result == 1", "there is no node '.check'"),
        ("type(check.result) == int", "there is no node 'int'"),
        ("true" + " && true" * 1_000, "at most 4000 are allowed"),
        ("(" * 300 + "true" + ")" * 300, "nested too deep"),
    ],
)
def test_text_that_is_not_a_condition_is_rejected(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_condition(text, {"check"}.__contains__)


@pytest.fixture(autouse=True)
def _maps_in_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the limits of map batches, so that no items run in child runs."""
    monkeypatch.setattr(map_items, "MAP_BATCH_ITEMS", 10_000)
    monkeypatch.setattr(map_items, "MAX_UNBATCHED_ITEMS", 10_000)


def scheduler_with_items(when: str, *, result: Any, items: list[Any]) -> RunScheduler:
    """Return a scheduler in which `facts` is completed and the condition of the map `m` is evaluated."""
    map_node = node("m", "facts", for_each="{{PLACEHOLDER_items}}", when=when)
    scheduler = started_run(node("facts"), map_node, inputs={"items": items})
    scheduler.complete("facts", result, at=1.0)
    return scheduler


@pytest.mark.parametrize(
    "when",
    [
        "item >= 1000",
        "item >= 1000 && size(facts.result) == 2000",
        "item >= 1000 && facts.result.size() > index",
        "facts.result[1000] <= item",
    ],
)
def test_condition_of_many_items_does_not_read_the_whole_list_per_item(when: str) -> None:
    scheduler = scheduler_with_items(when, result=list(range(2_000)), items=list(range(2_000)))
    ready_flags = [item.record.status is NodeStatus.READY for item in scheduler.records[1].items]
    assert ready_flags == [number >= 1_000 for number in range(2_000)]
    assert work_of(scheduler) <= 20 * 2_000


@pytest.mark.parametrize("when", ["item in facts.result", "facts.result.exists(x, x == item)"])
def test_condition_that_would_read_too_much_fails_its_node(when: str) -> None:
    scheduler = scheduler_with_items(when, result=list(range(10_000)), items=list(range(10_000)))
    assert statuses_of(scheduler)["m"] == "failed"
    code, message = error_of(scheduler, "m")
    assert (code, message[:33]) == ("too_large", "when: it reads too much: it needs")
    assert scheduler.record_of("m[0]") is None
    scheduler = started_run(node("a"), node("b", "a", when="a.result.exists(x, x + 1 in a.result && x < 0)"))
    scheduler.complete("a", list(range(10_000)), at=1.0)
    assert error_of(scheduler, "b")[0] == "too_large"


def test_compute_budget_of_conditions_is_reset_at_every_activation() -> None:
    when = "a.result.exists(x, x < 0) || a.status == 'completed'"
    scheduler = started_run(node("a"), node("b", "a", when=when), node("c", "b", when=when), node("d", "b", when=when))
    scheduler.complete("a", [0] * 180_000, at=1.0)
    work_per_condition = work_of(scheduler)
    start_ready_tasks(scheduler)
    scheduler.complete("b", 1, at=2.0)
    assert statuses_of(scheduler) == {"a": "completed", "b": "completed", "c": "ready", "d": "ready"}
    assert (3 * work_per_condition > MAX_WORK, work_of(scheduler)) == (True, 2 * work_per_condition)


def test_large_result_is_measured_once_for_all_conditions_that_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    measured_nodes: list[str] = []

    def measure(read: Read, value: Any) -> tuple[int, int]:
        measured_nodes.append(read.node_id)
        return measure_value(read, value)

    monkeypatch.setattr("dagwright.core.expressions.conditions.measure_value", measure)
    scheduler = started_run(node("a"), *(node(f"n{number}", when=f"{number} in a.result") for number in range(5)))
    scheduler.complete("a", list(range(1, 5_000)), at=1.0)
    ready_nodes = dict.fromkeys(("n1", "n2", "n3", "n4"), "ready")
    assert statuses_of(scheduler) == {"a": "completed", "n0": "skipped", **ready_nodes}
    assert measured_nodes == ["a"]


def test_invalid_condition_of_an_unchecked_plan_fails_its_node() -> None:
    plan = compiled_plan(plan_of(node("a"), node("b", "a", when="a.result == 1")))
    unchecked_plan = replace(plan, nodes=[plan.nodes[0], replace(plan.nodes[1], when="zzz.result == 1")])
    scheduler = started_scheduler(unchecked_plan)
    start_ready_tasks(scheduler)
    scheduler.complete("a", 1, at=1.0)
    assert error_of(scheduler, "b") == ("invalid_condition", "when: there is no node 'zzz'")
