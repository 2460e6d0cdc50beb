"""A run continues in a new scheduler from JSON alone, at any moment and without loss of state."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.plan_model import Step
from tests.property.plans import Driver, positions, steps
from tests.support.example_counts import example_count


@settings(max_examples=example_count(80), deadline=None)
@given(
    plan=steps(),
    max_in_flight=st.sampled_from([1, 2, 500]),
    ended_counts_before_continue_as_new=st.frozensets(st.integers(0, 12)),
)
def test_continue_as_new_does_not_change_the_task_order_of_a_plan_without_tool_and_node_limits(
    plan: tuple[Step, ...], max_in_flight: int, ended_counts_before_continue_as_new: frozenset[int]
) -> None:
    unlimited_plan = tuple(replace(step, tool="any", max_parallel=None) for step in plan)
    uninterrupted_driver = Driver(unlimited_plan, lambda count: count // 2, max_in_flight=max_in_flight)
    uninterrupted_driver.run()
    continued_driver = Driver(unlimited_plan, lambda count: count // 2, max_in_flight=max_in_flight)
    continued_driver.run(
        before_each_end=lambda count: (
            continued_driver.continue_as_new() if count in ended_counts_before_continue_as_new else None
        )
    )
    assert continued_driver.started_ids == uninterrupted_driver.started_ids
    assert continued_driver.scheduler.records == uninterrupted_driver.scheduler.records


@settings(max_examples=example_count(80), deadline=None)
@given(plan=steps(), data=st.data(), stop_after=st.integers(0, 6), kind=st.sampled_from(["cancel", "abort"]))
def test_stopped_run_that_continues_as_new_ends_cancelled_or_failed(
    plan: tuple[Step, ...], data: st.DataObject, stop_after: int, kind: str
) -> None:
    driver = Driver(plan, positions(data))
    driver.scheduler.start(0.0)
    driver.start_tasks()
    driver.end_tasks(stop_after)
    driver.continue_as_new()
    driver.stop(kind, is_cancelled=lambda: False)
    driver.continue_as_new()
    was_stopped = driver.scheduler.is_stopped
    while driver.running_tasks:
        driver.end_task()
        driver.start_tasks()
    assert was_stopped
    assert driver.scheduler.is_finished
    assert driver.scheduler.status() == ("cancelled" if kind == "cancel" else "failed")
    assert kind == "cancel" or driver.scheduler.state.error is not None
