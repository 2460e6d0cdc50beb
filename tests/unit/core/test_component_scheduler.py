"""Hooks of the components of a scheduler: their order, and their effects on nodes."""

from collections.abc import Collection
from typing import Any

from dagwright.core.model.states import NodeError, NodeStatus, Task, TaskRef
from dagwright.core.scheduler.component import SchedulerComponent, TaskResult
from dagwright.core.scheduler.scheduler import Scheduler
from tests.support.components import single_component_scheduler, start_tasks, state_of, statuses_of
from tests.support.plan_building import node


class Recorder(SchedulerComponent):
    """Component that records the calls of its hooks."""

    def __init__(self, calls: list[str], name: str) -> None:
        self.calls, self.name = calls, name

    def on_node_ready(self, ref: TaskRef, at: float) -> bool:
        self.calls.append(f"{self.name} ready {ref.node}")
        return False

    def before_start(self, task: Task, at: float) -> bool:
        self.calls.append(f"{self.name} start {task.id}")
        return False

    def on_node_ended(self, ref: TaskRef, at: float) -> None:
        self.calls.append(f"{self.name} end {ref.node}")

    def on_quiescent(self, at: float) -> None:
        self.calls.append(f"{self.name} quiescent")


class ComponentWithoutHooks(Recorder):
    """Component that declares no hooks."""

    def needed_hooks(self) -> Collection[str]:
        return ()


def test_hooks_are_called_in_the_order_in_which_components_were_attached() -> None:
    calls: list[str] = []
    scheduler: Scheduler[Any] = Scheduler(state_of(node("a")))
    scheduler.attach(None, [Recorder(calls, "first"), ComponentWithoutHooks(calls, "never"), Recorder(calls, "second")])
    scheduler.start(0.0)
    start_tasks(scheduler)
    scheduler.complete("a", 1, at=1.0)
    events = ("ready 0", "quiescent", "start a", "end 0", "quiescent")
    assert calls == [f"{name} {event}" for event in events for name in ("first", "second")]


def test_ready_node_that_a_component_ends_is_not_queued() -> None:
    class PresetResult(SchedulerComponent):
        def __init__(self, scheduler: Scheduler[Any]) -> None:
            self.scheduler = scheduler

        def on_node_ready(self, ref: TaskRef, at: float) -> bool:
            self.scheduler.records[ref.node].result = "known"
            self.scheduler.propagation.end(ref, NodeStatus.COMPLETED, at)
            return True

    scheduler, _ = single_component_scheduler(state_of(node("a"), node("b", "a")), PresetResult)
    scheduler.start(0.0)
    assert (start_tasks(scheduler), scheduler.output()) == ([], ({"b": "known"}, None))


def test_component_can_fail_a_node_or_replace_its_result() -> None:
    class EvenResultsOnly(SchedulerComponent):
        def on_result(self, ref: TaskRef, value: Any) -> TaskResult | None:
            return TaskResult(None, NodeError("bad", "odd")) if value % 2 else TaskResult(value // 2, message="halved")

    scheduler, _ = single_component_scheduler(state_of(node("a"), node("b")), lambda _: EvenResultsOnly())
    scheduler.start(0.0)
    start_tasks(scheduler)
    scheduler.complete("a", 1, at=1.0)
    scheduler.complete("b", 2, at=1.0)
    assert statuses_of(scheduler) == {"a": "failed", "b": "completed"}
    assert (scheduler.records[1].result, scheduler.records[1].message) == (1, "halved")
