"""For any order of completions, limits, stops and unexpected events, every node ends.

Without a stop, each node ends with the status of the brute-force model.
"""

import itertools
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from dagwright.core.model.states import NodeError, NodeStatus
from tests.property.plan_model import PlanModel, Step
from tests.property.plans import Driver, positions, steps
from tests.support.example_counts import example_count

FINAL_STATUSES = {"completed", "failed", "skipped", "blocked", "cancelled"}


@settings(max_examples=example_count(100), deadline=None)
@given(
    plan=steps(),
    data=st.data(),
    max_in_flight=st.sampled_from([1, 2, 500]),
    ended_counts_before_continue_as_new=st.just(frozenset[int]()) | st.frozensets(st.integers(0, 12), max_size=6),
)
def test_every_node_ends_as_in_the_model_for_any_order_and_continue_as_new(
    plan: tuple[Step, ...], data: st.DataObject, max_in_flight: int, ended_counts_before_continue_as_new: frozenset[int]
) -> None:
    driver = Driver(plan, positions(data), max_in_flight=max_in_flight)

    def maybe_continue_as_new(count: int) -> None:
        if count in ended_counts_before_continue_as_new:
            driver.continue_as_new()
            driver.start_tasks()

    driver.run(before_each_end=maybe_continue_as_new)
    driver.assert_same_as_model()


@settings(max_examples=example_count(80), deadline=None)
@given(
    plan=steps(),
    data=st.data(),
    stop_after=st.integers(0, 6),
    kind=st.sampled_from(["cancel", "abort", "fail_fast"]),
    max_in_flight=st.sampled_from([1, 500]),
)
def test_stop_at_any_moment_ends_every_node(
    plan: tuple[Step, ...], data: st.DataObject, stop_after: int, kind: str, max_in_flight: int
) -> None:
    fields = {"on_failure": "fail_fast"} if kind == "fail_fast" else {}
    driver = Driver(plan, positions(data), max_in_flight=max_in_flight, **fields)
    scheduler = driver.scheduler

    scheduler.start(0.0)
    driver.start_tasks()
    for count in itertools.count():
        if count == stop_after and kind != "fail_fast":
            driver.stop(kind, is_cancelled=lambda: data.draw(st.booleans()))
        if not driver.running_tasks:
            break
        driver.end_task()
        driver.start_tasks()
    assert (scheduler.in_flight, scheduler.is_finished) == (0, True)
    statuses = driver.node_statuses()
    assert set(statuses.values()) <= FINAL_STATUSES
    if not scheduler.is_stopped:
        assert statuses == PlanModel(plan).final_statuses
    elif kind == "cancel":
        assert scheduler.status() == "cancelled"
    else:
        assert scheduler.status() == "failed"
        assert scheduler.state.error is not None


@settings(max_examples=example_count(60), deadline=None)
@given(plan=steps(), data=st.data())
def test_events_for_tasks_that_are_not_running_are_ignored(plan: tuple[Step, ...], data: st.DataObject) -> None:
    driver = Driver(plan, positions(data))
    scheduler = driver.scheduler

    def send_unexpected_events(count: int) -> None:
        running_ids = {task.id for task in driver.running_tasks}
        task_ids = [task_id for step in plan for task_id in dict.fromkeys([step.id, *step.task_ids])]
        for task_id in task_ids:
            record = scheduler.record_of(task_id)
            if record is None or task_id in running_ids or record.status is NodeStatus.RUNNING:
                continue
            old_state = (record.status, record.result, record.error, record.attempts, scheduler.in_flight)
            match data.draw(st.sampled_from(["complete", "fail", "cancelled"])):
                case "complete":
                    scheduler.complete(task_id, "stray", at=9.0)
                case "fail":
                    scheduler.fail(task_id, NodeError("stray", "stray"), at=9.0)
                case _:
                    scheduler.task_cancelled(task_id, at=9.0)
            assert (record.status, record.result, record.error, record.attempts, scheduler.in_flight) == old_state

    driver.run(before_each_end=send_unexpected_events)
    assert driver.node_statuses() == PlanModel(plan).final_statuses


@settings(max_examples=example_count(60), deadline=None)
@given(plan=steps(), data=st.data())
def test_ready_nodes_start_by_priority_then_plan_order(plan: tuple[Step, ...], data: st.DataObject) -> None:
    unlimited_plan = tuple(replace(step, tool="any", max_parallel=None) for step in plan)
    driver = Driver(unlimited_plan, positions(data))
    rank = {
        task: (step.priority, number, position)
        for number, step in enumerate(unlimited_plan)
        for position, task in enumerate(step.task_ids)
    }
    scheduler = driver.scheduler
    scheduler.start(0.0)
    while True:
        started_count = len(driver.started_ids)
        driver.start_tasks()
        new_ids = driver.started_ids[started_count:]
        assert new_ids == sorted(new_ids, key=rank.__getitem__)
        if not driver.running_tasks:
            break
        driver.end_task()
    assert scheduler.is_finished
