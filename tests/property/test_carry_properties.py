"""A run continues in another scheduler from JSON alone, at any moment, without losing state."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.naive import Step
from tests.property.plans import Driver, steps
from tests.support.example_counts import examples


@settings(max_examples=examples(80), deadline=None)
@given(plan=steps(), max_in_flight=st.sampled_from([1, 2, 500]), moments=st.frozensets(st.integers(0, 12)))
def test_order_is_the_same_without_limits(plan: tuple[Step, ...], max_in_flight: int, moments: frozenset[int]) -> None:
    free = tuple(replace(step, tool="any", max_parallel=None) for step in plan)
    whole = Driver(free, lambda count: count // 2, max_in_flight=max_in_flight)
    whole.run()
    broken = Driver(free, lambda count: count // 2, max_in_flight=max_in_flight)
    broken.run(before_each=lambda count: broken.go_on_elsewhere() if count in moments else None)
    assert broken.order == whole.order
    assert broken.scheduler.records == whole.scheduler.records


@settings(max_examples=examples(80), deadline=None)
@given(plan=steps(), data=st.data(), stop_after=st.integers(0, 6), how=st.sampled_from(["cancel", "abort"]))
def test_interruption_does_not_change_a_stop(
    plan: tuple[Step, ...], data: st.DataObject, stop_after: int, how: str
) -> None:
    driver = Driver(plan, lambda count: data.draw(st.integers(0, count - 1)))
    driver.scheduler.start(0.0)
    driver.start_all()
    for _ in range(stop_after):
        if driver.running:
            driver.end_one()
            driver.start_all()
    driver.go_on_elsewhere()
    driver.stop(how, reported=lambda: False)
    driver.go_on_elsewhere()
    was_stopped = driver.scheduler.is_stopped
    while driver.running:
        driver.end_one()
        driver.start_all()
    assert was_stopped
    assert driver.scheduler.is_finished
    assert driver.scheduler.status() == ("cancelled" if how == "cancel" else "failed")
    assert how == "cancel" or driver.scheduler.state.error is not None
