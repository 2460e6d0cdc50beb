"""Calls that are repeated after the payload store failed, without Temporal: what counts, and when it ends."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from dagwright.contracts.outcomes import (
    MOST_STORE_WAITS,
    StoreWait,
    take_failure,
    take_loading_failure,
    take_result,
    wait_for_store,
)
from dagwright.contracts.wire import DETAIL_UNSTORED_BYTES, ERROR_STORE_AWAY
from dagwright.plan.scheduler import Scheduler
from dagwright.plan.seen import seen_of_places
from dagwright.plan.states import NodeStatus
from dagwright.plan.tools import Effects, ToolDeclaration
from dagwright.plan.undoing import has_changed
from dagwright.plan.usage import Usage
from tests.unit.plan.building import compiled, node, plan_of, started
from tests.unit.plan.test_usage import answered, told

TOOLS: Mapping[str, ToolDeclaration] = {
    tool.name: tool
    for tool in (
        ToolDeclaration("make", Effects.IDEMPOTENT, undo="unmake"),
        ToolDeclaration("unmake", Effects.IDEMPOTENT),
        ToolDeclaration("send", Effects.WRITE),
        ToolDeclaration("other", Effects.READ, task_queue="theirs", is_foreign=True),
    )
}
USED = Usage(calls=1, prompt_tokens=30, completion_tokens=12, money=Decimal("0.25"))


def _running(tool: str = "make") -> Scheduler:
    scheduler = Scheduler(compiled(plan_of(node("a", tool=tool)), tools=TOOLS), {})
    scheduler.begin(0.0)
    assert [task.id for task in started(scheduler)] == ["a"]
    return scheduler


def _away(size_bytes: int | None, **details: Any) -> ApplicationError:
    """Return the failure of a call: the store did not take a result of that size, or give a value if it is 0."""
    about = {"attempt": 1, **details} | ({} if size_bytes is None else {DETAIL_UNSTORED_BYTES: size_bytes})
    return ApplicationError("the store is away", about, type=ERROR_STORE_AWAY, non_retryable=True)


def test_repeated_call_waits_longer_each_time_and_fails_at_last() -> None:
    scheduler = _running()
    found = [wait_for_store(scheduler, "a", _away(9000), at=1.0) for _ in range(MOST_STORE_WAITS + 1)]
    assert found == [*(StoreWait(9000, pause_s) for pause_s in (0.0, 10.0, 20.0, 40.0, 80.0)), None]
    failure = take_failure(scheduler, "a", _away(9000), at=2.0)
    assert failure is not None
    assert (failure.code, failure.retryable) == ("store_unavailable", True)
    assert scheduler.records[0].attempts == MOST_STORE_WAITS + 1


def test_waits_of_a_call_that_succeeds_are_forgotten() -> None:
    scheduler = _running()
    wait_for_store(scheduler, "a", _away(0), at=1.0)
    take_result(scheduler, "a", answered(1, told(USED)), at=2.0)
    assert (scheduler.changes.store_waits, scheduler.records[0].attempts) == ({}, 1)


def test_usage_and_lineage_of_a_call_count_although_it_is_repeated() -> None:
    scheduler = _running()
    lineage = seen_of_places(["file:///in.csv"]).told()
    wait_for_store(scheduler, "a", _away(9000, usage=USED.to_json(), lineage=lineage), at=1.0)
    assert scheduler.usage.total == USED
    assert scheduler.changes.seen.tasks["a"].told() == lineage
    take_result(scheduler, "a", answered(1, told(USED)), at=2.0)
    assert scheduler.usage.total == USED + USED


@pytest.mark.parametrize(("size_bytes", "attempt", "changed"), [(9000, 1, True), (0, 1, False), (0, 2, True)])
def test_call_that_was_made_is_compensated_although_its_result_was_not_stored(
    *, size_bytes: int, attempt: int, changed: bool
) -> None:
    scheduler = _running()
    assert wait_for_store(scheduler, "a", _away(size_bytes, attempt=attempt), at=1.0) is not None
    take_loading_failure(scheduler, "a", ApplicationError("the wait failed"), at=2.0)
    assert scheduler.records[0].status is NodeStatus.FAILED
    assert has_changed(scheduler) is changed


def test_repeated_call_that_fails_before_its_change_is_compensated_for_the_first_one() -> None:
    scheduler = _running()
    wait_for_store(scheduler, "a", _away(9000), at=1.0)
    take_failure(scheduler, "a", ApplicationError("refused", {"attempt": 1}, type="not_started"), at=2.0)
    assert has_changed(scheduler)


@pytest.mark.parametrize(
    ("tool", "size_bytes"),
    [
        # A worker of another party, and a tool of one's own that raises an error of this type.
        ("other", 0),
        ("make", None),
        ("send", 9000),
        ("make", -1),
    ],
)
def test_failure_of_another_origin_is_not_repeated(tool: str, size_bytes: int | None) -> None:
    scheduler = _running(tool)
    assert wait_for_store(scheduler, "a", _away(size_bytes), at=1.0) is None


def test_write_that_was_not_called_waits_for_the_store() -> None:
    assert wait_for_store(_running("send"), "a", _away(0), at=1.0) == StoreWait(0, 0.0)
