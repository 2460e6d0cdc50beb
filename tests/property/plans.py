"""Random plans, and a driver that runs a plan in a random order and checks the rules of the scheduler."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

from dagwright.core.model.states import NodeError, NodeStatus, Task
from dagwright.features.run_scheduler import create_scheduler
from dagwright.protocol.scheduler_snapshot import restore_state, state_to_json
from tests.property.plan_model import PlanModel, Step, result_of
from tests.support.plan_building import TOOLS, compiled_plan, plan_of, record_of

SUCCESSFUL_STATUSES = (NodeStatus.COMPLETED, NodeStatus.SKIPPED)


@st.composite
def steps(draw: st.DrawFn, *, limit: int = 8) -> tuple[Step, ...]:
    """Return the nodes of a random acyclic plan in a random order, so that a node may refer to a later node."""
    ids = [f"n{number}" for number in range(draw(st.integers(1, limit)))]
    drawn_steps: list[Step] = []
    for number, name in enumerate(ids):
        needs = draw(st.lists(st.sampled_from(ids[:number]), unique=True, max_size=3)) if number else []
        joins: list[Any] = ["all", "all", "all_done", "any"] + ([draw(st.integers(1, len(needs)))] if needs else [])
        join = draw(st.sampled_from(joins))
        # With another join than `all`, a node may start before its dependencies have ended. Its arguments would depend
        # on time, so it reads no results.
        may_read = number and join == "all"
        reads = draw(st.lists(st.sampled_from(ids[:number]), unique=True, max_size=2)) if may_read else []
        items = draw(st.none() | st.lists(st.sampled_from("xyz"), unique=True, max_size=3))
        step = Step(
            name,
            tuple(needs),
            tuple(reads),
            join=join,
            on_error=draw(st.sampled_from(["block", "block", "skip", "value"])),
            items=tuple(items) if items is not None else None,
            when=draw(st.sampled_from([None, None, True, False])),
            priority=draw(st.integers(1, 5)),
            tool=draw(st.sampled_from(["any", "any", "single", "pair"])),
            max_parallel=draw(st.none() | st.integers(1, 2)) if items is not None else None,
            reads_missing_key=bool(reads) and draw(st.integers(0, 3)) == 0,
        )
        failing_ids = draw(st.frozensets(st.sampled_from(step.task_ids))) if step.task_ids else frozenset()
        drawn_steps.append(
            Step(**{**step.__dict__, "failing_ids": failing_ids if draw(st.booleans()) else frozenset()})
        )
    return tuple(draw(st.permutations(drawn_steps)))


def positions(data: st.DataObject) -> Callable[[int], int]:
    """Return a function: length of a list -> a drawn position in the list."""
    return lambda count: data.draw(st.integers(0, count - 1))


def failing_ids_of(plan_steps: tuple[Step, ...]) -> frozenset[str]:
    """Return the IDs of the tasks that fail."""
    return frozenset().union(*(step.failing_ids for step in plan_steps))


def without_times(value: Any) -> Any:
    """Return a document or snapshot without the times of its nodes."""
    if isinstance(value, Mapping):
        return {name: without_times(part) for name, part in value.items() if name not in ("started_at", "ended_at")}
    return [without_times(part) for part in value] if isinstance(value, list | tuple) else value


class Driver:
    """Run a plan as the engine does, and check the rules whenever a task starts or ends.

    Args:
        choose_position: return the position of the task that ends next; the argument is the number of running tasks.
    """

    def __init__(
        self,
        plan_steps: tuple[Step, ...],
        choose_position: Callable[[int], int],
        *,
        max_in_flight: int = 500,
        **fields: Any,
    ) -> None:
        self.steps = {step.id: step for step in plan_steps}
        self.choose_position = choose_position
        self.max_in_flight = max_in_flight
        self.plan = compiled_plan(plan_of(*(step.to_json() for step in plan_steps), **fields))
        self.scheduler = create_scheduler(self.plan, {}, max_in_flight=max_in_flight)
        self.running_tasks: list[Task] = []
        self.started_ids: list[str] = []
        self.arguments_by_task: dict[str, Any] = {}
        self.final_statuses: dict[str, str] = {}

    def run(self, *, before_each_end: Callable[[int], None] = lambda count: None) -> None:
        """Run the plan to its end; before each end of a task, call `before_each_end` with the number of ended tasks."""
        self.scheduler.start(0.0)
        ended_count = 0
        self.start_tasks()
        while self.running_tasks:
            before_each_end(ended_count)
            self.end_task()
            self.start_tasks()
            ended_count += 1
        assert self.scheduler.is_finished, "no task is running or ready, but the plan is not finished"

    def continue_as_new(self) -> None:
        """Continue in a new scheduler that receives only the state as JSON text."""
        old_scheduler = self.scheduler
        self.scheduler = create_scheduler(self.plan, {}, max_in_flight=self.max_in_flight)
        restore_state(self.scheduler, json.loads(json.dumps(state_to_json(old_scheduler))))
        assert self.scheduler.records == old_scheduler.records
        assert self.scheduler.in_flight == old_scheduler.in_flight
        assert self.scheduler.is_finished == old_scheduler.is_finished

    def end_tasks(self, count: int) -> None:
        """End up to `count` tasks, and after each end start all tasks that may start."""
        for _ in range(count):
            if self.running_tasks:
                self.end_task()
                self.start_tasks()

    def start_tasks(self) -> None:
        while (task := self.scheduler.next_task(0.0)) is not None:
            assert not self.scheduler.is_stopped
            self.assert_may_start(task)
            self.running_tasks.append(task)
            self.started_ids.append(task.id)
            self.arguments_by_task[task.id] = task.arguments
            self.assert_within_limits()
        self.assert_no_startable_task_waits()
        self.assert_final_statuses_do_not_change()

    def end_task(self) -> None:
        task = self.running_tasks.pop(self.choose_position(len(self.running_tasks)))
        if task.id in self.steps[task.node.id].failing_ids:
            self.scheduler.fail(task.id, NodeError("tool_failed", task.id), at=1.0)
        else:
            self.scheduler.complete(task.id, result_of(task.id, task.arguments), at=1.0)
        assert self.scheduler.in_flight == len(self.running_tasks)

    def status_of(self, name: str) -> NodeStatus:
        return record_of(self.scheduler, name).status

    def assert_may_start(self, task: Task) -> None:
        step = self.steps[task.node.id]
        statuses = [self.status_of(name) for name in step.dependencies]
        match step.join:
            case "all":
                assert all(status is NodeStatus.COMPLETED for status in statuses)
            case "all_done":
                assert all(status.is_final for status in statuses)
            case "any":
                assert not statuses or any(status in SUCCESSFUL_STATUSES for status in statuses)
            case at_least:
                assert sum(status in SUCCESSFUL_STATUSES for status in statuses) >= at_least
        assert task.id not in self.started_ids, "a task starts once"

    def running_counts_by_tool_and_node(self) -> tuple[Counter[str], Counter[str]]:
        count_by_tool = Counter(task.node.tool for task in self.running_tasks)
        return count_by_tool, Counter(task.node.id for task in self.running_tasks)

    def assert_within_limits(self) -> None:
        count_by_tool, count_by_node = self.running_counts_by_tool_and_node()
        assert len(self.running_tasks) <= self.max_in_flight
        for name, count in count_by_tool.items():
            assert count <= (TOOLS[name].max_parallel or self.max_in_flight)
        for name, count in count_by_node.items():
            assert count <= (self.steps[name].max_parallel or self.max_in_flight)

    def assert_no_startable_task_waits(self) -> None:
        count_by_tool, count_by_node = self.running_counts_by_tool_and_node()
        if len(self.running_tasks) >= self.max_in_flight:
            return
        for node_id, step in self.steps.items():
            is_tool_busy = count_by_tool[step.tool] >= (TOOLS[step.tool].max_parallel or self.max_in_flight)
            if is_tool_busy or count_by_node[node_id] >= (step.max_parallel or self.max_in_flight):
                continue
            for task in step.task_ids:
                record = self.scheduler.record_of(task)
                assert record is None or record.status is not NodeStatus.READY, f"{task} may start but has not started"

    def assert_final_statuses_do_not_change(self) -> None:
        for name in self.steps:
            status = self.status_of(name)
            assert self.final_statuses.get(name, status) == status, f"{name} left its final status"
            if status.is_final:
                self.final_statuses[name] = status

    def stop(self, kind: str, *, is_cancelled: Callable[[], bool]) -> None:
        """Cancel or abort the run; `is_cancelled` decides for each running task whether it ends as cancelled."""
        if kind == "cancel":
            self.scheduler.cancel(1.0, reason="enough")
        else:
            self.scheduler.abort(NodeError("too_large", "history is full"), 1.0)
        for task in list(self.running_tasks):
            if is_cancelled():
                self.running_tasks.remove(task)
                self.scheduler.task_cancelled(task.id, at=1.0, reason="requested")

    def node_statuses(self) -> dict[str, str]:
        """Return the status of every node."""
        return {name: self.status_of(name).value for name in self.steps}

    def assert_same_as_model(self) -> None:
        """Check that the statuses, blockers, results and arguments of a complete run are those of the model."""
        model = PlanModel(tuple(self.steps.values()))
        assert self.node_statuses() == model.final_statuses
        for step in model.steps:
            record = record_of(self.scheduler, step.id)
            assert list(record.blocked_by) == model.blocked_by.get(step.id, [])
            if model.final_statuses[step.id] == "completed":
                assert record.result == model.values[step.id]
            for task in step.task_ids:
                assert self.arguments_by_task.get(task, expected := model.arguments_of(step)) == expected
