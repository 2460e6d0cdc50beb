"""A fork with any change of the plan ends like a new run, and repeats no effect of the original run."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dagwright.core.model.states import NodeStatus
from dagwright.core.model.tools import Effects
from dagwright.features.forks.planner import ForkDifferences, Source, find_reusable_results, predict_fork
from dagwright.features.run_scheduler import RunScheduler, create_scheduler
from tests.property.plan_model import PlanModel, Step
from tests.property.plans import Driver, positions, steps
from tests.support.example_counts import example_count
from tests.support.plan_building import TOOLS, compiled_plan, configure, plan_of, record_of, restored_scheduler

IDEMPOTENT_TOOLS = {name: replace(tool, effects=Effects.IDEMPOTENT) for name, tool in TOOLS.items()}


def driver_with_idempotent_tools(plan: tuple[Step, ...], data: st.DataObject) -> Driver:
    driver = Driver(plan, positions(data))
    driver.plan = compiled_plan(plan_of(*(step.to_json() for step in plan)), tools=IDEMPOTENT_TOOLS)
    driver.scheduler = create_scheduler(driver.plan, {})
    return driver


@st.composite
def changed_plans(draw: st.DrawFn, plan: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return a plan with changes: repaired steps, different references and items, removed and new steps."""
    needed_ids = {name for step in plan for name in step.dependencies}
    removed_ids = {step.id for step in plan if step.id not in needed_ids and draw(st.booleans())}
    steps_of_fork = []
    for step in plan:
        if step.id in removed_ids:
            continue
        change = draw(st.sampled_from(["same", "same", "repair", "reads", "items", "when"]))
        fields: dict[str, Any] = {}
        if change == "repair":
            fields = {"failing_ids": frozenset(), "reads_missing_key": False}
        elif change == "reads" and step.reads:
            fields = {"needs": tuple(step.dependencies), "reads": step.reads[1:], "reads_missing_key": False}
        elif change == "items" and step.items is not None:
            fields = {"items": tuple(draw(st.permutations([*step.items, "w"])))}
        elif change == "when":
            fields = {"when": draw(st.sampled_from([None, True, False]))}
        steps_of_fork.append(replace(step, **fields))
    return (*steps_of_fork, Step("new", reads=(steps_of_fork[0].id,) if steps_of_fork else ()))


@settings(max_examples=example_count(80), deadline=None)
@given(plan=steps(), data=st.data(), stop_after=st.integers(0, 12), is_open=st.booleans())
def test_fork_ends_like_a_new_run_and_repeats_no_effect(
    plan: tuple[Step, ...], data: st.DataObject, stop_after: int, is_open: bool
) -> None:
    original = driver_with_idempotent_tools(plan, data)
    original.scheduler.start(0.0)
    original.start_tasks()
    original.end_tasks(stop_after)
    if not is_open:
        original.scheduler.cancel(1.0)
        while original.running_tasks:
            original.end_task()
    arguments_of_completed_tasks = {
        task: original.arguments_by_task[task]
        for task in original.started_ids
        if (record := original.scheduler.record_of(task)) is not None
        and record.status is NodeStatus.COMPLETED
        and record.error is None
    }

    changed_plan = data.draw(changed_plans(plan))
    fork = driver_with_idempotent_tools(changed_plan, data)
    source, differences = Source("old", "scope", is_open=is_open), ForkDifferences()
    reuse = find_reusable_results(original.scheduler, fork.plan, source=source, differences=differences)
    prediction = predict_fork(create_scheduler(fork.plan, {}), original.scheduler, reuse, differences=differences)
    fork.scheduler = restored_scheduler(configure(fork.scheduler, reuse=reuse.table), fork.plan)
    fork.scheduler.reconcile(0.0)
    scope_by_task = run_to_the_end(fork, data)

    model = PlanModel(changed_plan)
    assert fork.node_statuses() == model.final_statuses
    for step in changed_plan:
        if model.final_statuses[step.id] == "completed":
            assert record_of(fork.scheduler, step.id).result == model.values[step.id]
    for task in fork.started_ids:
        assert arguments_of_completed_tasks.get(task) != fork.arguments_by_task[task], f"{task} was executed again"
        has_unfinished_call = task in original.arguments_by_task and task not in arguments_of_completed_tasks
        if has_unfinished_call and original.arguments_by_task[task] == fork.arguments_by_task[task]:
            assert scope_by_task[task] == "scope", f"{task} does not have the key of the unfinished call"
        elif task in original.arguments_by_task:
            assert scope_by_task[task] is None, f"{task} is a new effect, but has the key of an earlier effect"
    assert not {*prediction.reused} & {*fork.started_ids}
    assert all(task in fork.started_ids or _is_final(fork.scheduler, task) for task in prediction.executed)


def run_to_the_end(driver: Driver, data: st.DataObject) -> dict[str, Any]:
    """Run a started scheduler to its end, and sometimes continue as new.

    Returns: task ID -> scope in the idempotency key of the task.
    """
    scope_by_task: dict[str, Any] = {}
    while True:
        driver.start_tasks()
        scope_by_task |= {task.id: task.scope for task in driver.running_tasks}
        if not driver.running_tasks:
            assert driver.scheduler.is_finished
            return scope_by_task
        driver.end_task()
        if data.draw(st.integers(0, 3)) == 0:
            driver.continue_as_new()


def _is_final(scheduler: RunScheduler, task: str) -> bool:
    record = scheduler.record_of(task)
    return record is not None and record.status.is_final
