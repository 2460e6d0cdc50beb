"""A fork ends like a new run after any change, and does not repeat an effect of the original run."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dagwright.core.model.states import NodeStatus
from dagwright.core.model.tools import Effects
from dagwright.features.forks.planner import ForkDifferences, Source, predict_fork, reusable_results
from dagwright.features.run_scheduler import RunScheduler, create_scheduler
from tests.property.naive import Model, Step
from tests.property.plans import Driver, steps
from tests.support.example_counts import examples
from tests.support.plan_building import TOOLS, compiled_plan, configure, plan_of, restored_scheduler

KEYED = {name: replace(tool, effects=Effects.IDEMPOTENT) for name, tool in TOOLS.items()}


def driver_of(plan: tuple[Step, ...], data: st.DataObject) -> Driver:
    driver = Driver(plan, lambda count: data.draw(st.integers(0, count - 1)))
    driver.plan = compiled_plan(plan_of(*(step.to_json() for step in plan)), tools=KEYED)
    driver.scheduler = create_scheduler(driver.plan, {})
    return driver


@st.composite
def changed_plans(draw: st.DrawFn, plan: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return a plan with changes: repaired steps, other references, other items, removed and new steps."""
    removed_ids = {
        step.id for step in plan if not any(step.id in other.dependencies for other in plan) and draw(st.booleans())
    }
    steps_of_fork = []
    for step in plan:
        if step.id in removed_ids:
            continue
        change = draw(st.sampled_from(["same", "same", "repair", "reads", "items", "when"]))
        fields: dict[str, Any] = {}
        if change == "repair":
            fields = {"fails": frozenset(), "reads_missing_key": False}
        elif change == "reads" and step.reads:
            fields = {"needs": tuple(step.dependencies), "reads": step.reads[1:], "reads_missing_key": False}
        elif change == "items" and step.items is not None:
            fields = {"items": tuple(draw(st.permutations([*step.items, "w"])))}
        elif change == "when":
            fields = {"when": draw(st.sampled_from([None, True, False]))}
        steps_of_fork.append(replace(step, **fields))
    return (*steps_of_fork, Step("new", reads=(steps_of_fork[0].id,) if steps_of_fork else ()))


@settings(max_examples=examples(80), deadline=None)
@given(plan=steps(), data=st.data(), stop_after=st.integers(0, 12), is_open=st.booleans())
def test_fork_ends_as_a_new_run(plan: tuple[Step, ...], data: st.DataObject, stop_after: int, is_open: bool) -> None:
    before = driver_of(plan, data)
    before.scheduler.start(0.0)
    before.start_all()
    for _ in range(stop_after):
        if before.running:
            before.end_one()
            before.start_all()
    if not is_open:
        before.scheduler.cancel(1.0)
        while before.running:
            before.end_one()
    has_result = {
        task: before.arguments[task]
        for task in before.order
        if (record := before.scheduler.record_of(task)) is not None
        and record.status is NodeStatus.COMPLETED
        and record.error is None
    }

    following = data.draw(changed_plans(plan))
    after = driver_of(following, data)
    reuse = reusable_results(
        before.scheduler, after.plan, source=Source("old", "scope", is_open=is_open), differences=ForkDifferences()
    )
    prediction = predict_fork(create_scheduler(after.plan, {}), before.scheduler, reuse, differences=ForkDifferences())
    after.scheduler = restored_scheduler(configure(after.scheduler, reuse=reuse.table), after.plan)
    after.scheduler.reconcile(0.0)
    scopes = run_to_the_end(after, data)
    started = after.scheduler

    model = Model(following)
    assert after.ends() == model.ends
    for step in following:
        record = started.record_of(step.id)
        assert record is not None
        if model.ends[step.id] == "completed":
            assert record.result == model.values[step.id]
    for task in after.order:
        assert has_result.get(task) != after.arguments[task], f"{task} was done again"
        had_started = task in before.arguments and task not in has_result
        if had_started and before.arguments[task] == after.arguments[task]:
            assert scopes[task] == "scope", f"{task} has another key than the call that had not ended"
        elif task in before.arguments:
            assert scopes[task] is None, f"{task} is another effect, and needs a key of its own"
    for task in prediction.reused:
        assert task not in after.order
    assert set(prediction.runs) <= {*after.order, *(task for task in prediction.runs if _is_final(started, task))}


def run_to_the_end(driver: Driver, data: st.DataObject) -> dict[str, Any]:
    """Run a started scheduler to its end, sometimes in a new execution; return the scopes of the keys."""
    scopes: dict[str, Any] = {}
    while True:
        driver.start_all()
        scopes |= {task.id: task.scope for task in driver.running}
        if not driver.running:
            assert driver.scheduler.is_finished
            return scopes
        driver.end_one()
        if data.draw(st.integers(0, 3)) == 0:
            driver.go_on_elsewhere()


def _is_final(scheduler: RunScheduler, task: str) -> bool:
    record = scheduler.record_of(task)
    return record is not None and record.status.is_final
