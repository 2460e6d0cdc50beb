"""Conditions in a run: what they may read at one moment, and what becomes of a node that wants more."""

from dataclasses import replace
from typing import Any

import pytest

from dagwright.plan import chunks, item_book
from dagwright.plan.condition_text import Read
from dagwright.plan.conditions import measure_value
from dagwright.plan.scheduler import Scheduler
from dagwright.plan.states import NodeStatus
from dagwright.plan.work import MAX_WORK
from tests.unit.plan.building import compiled, node, plan_of, scheduler_of, started, states


@pytest.fixture(autouse=True)
def _maps_in_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the scheduler take every item itself; otherwise the runs of the chunks ask for their own."""
    monkeypatch.setattr(chunks, "CHUNK_ITEMS", 10_000)
    monkeypatch.setattr(item_book, "OWN_ITEMS", 10_000)


def error_of(scheduler: Scheduler, task_id: str) -> tuple[str, str]:
    record = scheduler.record_of(task_id)
    assert record is not None
    assert record.error is not None
    return record.error.code, record.error.message


def mapped(when: str, *, result: Any, items: list[Any]) -> Scheduler:
    """Returns a scheduler in which `m` has just got its items and its condition has read the result of `facts`."""
    scheduler = scheduler_of(
        node("facts"), node("m", "facts", for_each="{{PLACEHOLDER_items}}", when=when), inputs={"items": items}
    )
    started(scheduler)
    scheduler.complete("facts", result, at=1.0)
    return scheduler


def work_in(scheduler: Scheduler) -> int:
    """Returns the work of the conditions at the last moment."""
    return MAX_WORK - scheduler._budget.left


@pytest.mark.parametrize(
    "when",
    [
        "item >= 5000",
        "item >= 5000 && size(facts.result) == 10000",
        "item >= 5000 && facts.result.size() > index",
        "facts.result[5000] <= item",
    ],
)
def test_condition_of_ten_thousand_items_reads_no_more_than_it_names(when: str) -> None:
    scheduler = mapped(when, result=list(range(10_000)), items=list(range(10_000)))
    waiting = [item.record.status is NodeStatus.READY for item in scheduler.records[1].items]
    assert waiting == [number >= 5_000 for number in range(10_000)]
    assert work_in(scheduler) <= 20 * 10_000


@pytest.mark.parametrize("when", ["item in facts.result", "facts.result.exists(x, x == item)"])
def test_condition_that_would_read_a_large_list_for_each_of_many_items_fails_its_node(when: str) -> None:
    scheduler = mapped(when, result=list(range(10_000)), items=list(range(10_000)))
    assert states(scheduler)["m"] == "failed"
    code, message = error_of(scheduler, "m")
    assert (code, message[:31]) == ("too_large", "when: it reads too much: about ")
    assert scheduler.record_of("m[0]") is None


def test_condition_that_goes_over_one_large_list_for_each_element_of_another_fails_its_node() -> None:
    scheduler = scheduler_of(node("a"), node("b", "a", when="a.result.exists(x, x + 1 in a.result && x < 0)"))
    started(scheduler)
    scheduler.complete("a", list(range(10_000)), at=1.0)
    assert error_of(scheduler, "b")[0] == "too_large"


def test_work_of_conditions_is_counted_anew_at_every_moment() -> None:
    when = "a.result.exists(x, x < 0) || a.status == 'completed'"
    scheduler = scheduler_of(node("a"), node("b", "a", when=when), node("c", "b", when=when), node("d", "b", when=when))
    started(scheduler)
    scheduler.complete("a", [0] * 180_000, at=1.0)
    spent = work_in(scheduler)
    started(scheduler)
    scheduler.complete("b", 1, at=2.0)
    assert states(scheduler) == {"a": "completed", "b": "completed", "c": "ready", "d": "ready"}
    assert (3 * spent > MAX_WORK, work_in(scheduler)) == (True, 2 * spent)


def test_large_result_is_measured_once_for_all_conditions_that_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def measure(read: Read, value: Any) -> tuple[int, int]:
        measured.append(read.node)
        return measure_value(read, value)

    monkeypatch.setattr("dagwright.plan.condition_asker.measure_value", measure)
    scheduler = scheduler_of(node("a"), *(node(f"n{number}", when=f"{number} in a.result") for number in range(5)))
    started(scheduler)
    scheduler.complete("a", list(range(1, 5_000)), at=1.0)
    assert states(scheduler) == {"a": "completed", "n0": "skipped"} | {f"n{number}": "ready" for number in range(1, 5)}
    assert measured == ["a"]


def test_condition_that_no_check_would_pass_fails_its_node() -> None:
    plan = compiled(plan_of(node("a"), node("b", "a", when="a.result == 1")))
    odd = replace(plan, nodes=[plan.nodes[0], replace(plan.nodes[1], when="zzz.result == 1")])
    scheduler = Scheduler(odd, {})
    scheduler.begin(0.0)
    started(scheduler)
    scheduler.complete("a", 1, at=1.0)
    assert error_of(scheduler, "b") == ("invalid_condition", "when: there is no node 'zzz'")
