"""A plan with call batches ends like the same plan without batches, and like the brute-force model."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pydantic_core
from hypothesis import given, settings
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload

from dagwright.activities.call_batch import Followers
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.states import NodeError, NodeStatus, Task
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.features.batch_followers import can_start_batch, followers_of
from dagwright.features.run_scheduler import create_scheduler
from dagwright.protocol.call_batches import (
    BatchedCall,
    CallBatchResult,
    CallEnd,
    apply_call_batch,
    call_batch_result_from_json,
    encode_call_batch,
    read_call_batch,
)
from dagwright.protocol.documents import RunFacts, result_document
from dagwright.protocol.ready_calls import ReadyCall, next_call
from tests.property.plan_model import PlanModel, Step, result_of
from tests.property.plans import failing_ids_of, steps, without_times
from tests.support.example_counts import example_count
from tests.support.plan_building import TOOLS, compiled_plan, plan_of

_TOOLS = {**TOOLS, "short": ToolDeclaration("short", Effects.READ, batch=True)}
_FACTS = RunFacts("run", "1")


@st.composite
def batchable_steps(draw: st.DrawFn) -> tuple[Step, ...]:
    tool_names = st.sampled_from(["any", "short", "short", "short", "single"])
    return tuple(replace(step, tool=draw(tool_names), max_parallel=None) for step in draw(steps(limit=10)))


class Run:
    """Run of a plan as in the engine. With `draw`, calls run in a drawn order and in batches; otherwise one by one.

    Args:
        draw: return a number from 0 to the argument.
    """

    def __init__(self, plan: CompiledPlan, failing_ids: frozenset[str], draw: Callable[[int], int] | None) -> None:
        self.scheduler = create_scheduler(plan, {})
        self._failing_ids, self._draw = failing_ids, draw
        self._returned_ids: set[str] = set()
        """Task IDs of calls that a batch returned without a result."""
        self.completed_ids: list[str] = []
        """Task IDs of completed calls, in order."""

    def run(self) -> None:
        self.scheduler.start(0.0)
        running_activities: list[list[ReadyCall]] = []
        restarted_calls: list[ReadyCall] = []
        while True:
            ready_calls, restarted_calls = restarted_calls, []
            while (call := next_call(self.scheduler, 0.0)) is not None:
                ready_calls.append(call)
            batch_calls = [call for call in ready_calls if self._may_start_batch(call.task)]
            running_activities += [[call] for call in ready_calls if not self._may_start_batch(call.task)]
            running_activities += [batch_calls] if batch_calls else []
            if not running_activities:
                break
            calls = running_activities.pop(self._draw(len(running_activities) - 1) if self._draw is not None else 0)
            if self._may_start_batch(calls[0].task):
                restarted_calls = self._run_batch(calls)
            else:
                self._end_task(calls[0].task)
        assert self.scheduler.is_finished, "no task is running or ready, but the plan is not finished"
        assert self.scheduler.in_flight == 0

    def _may_start_batch(self, task: Task) -> bool:
        return self._draw is not None and task.id not in self._returned_ids and can_start_batch(self.scheduler, task)

    def _end_task(self, task: Task) -> None:
        if task.id in self._failing_ids:
            self.scheduler.fail(task.id, NodeError("tool_failed", task.id), at=1.0)
        else:
            self.completed_ids.append(task.id)
            self.scheduler.complete(task.id, result_of(task.id, task.arguments), at=1.0)

    def _run_batch(self, calls: list[ReadyCall]) -> list[ReadyCall]:
        """Run a batch that ends after a drawn number of calls, and return the calls that start again."""
        assert self._draw is not None
        tasks = [call.task for call in calls]
        follower_ids, plan = followers_of(self.scheduler, tasks, task_queue=None, separate_tools=())
        keys = dict.fromkeys(follower_ids, "key")
        encoded = encode_call_batch(calls, [{}] * len(calls), plan=plan, keys=keys, max_parallel=9, model=None)
        batch = read_call_batch(pydantic_core.from_json(encoded))
        followers, waiting_calls = Followers(batch), [*batch.calls]
        call_ends: list[CallEnd] = []
        returned_failures: dict[str, str | None] = {}
        for _ in range(1 + self._draw(len(calls) + len(follower_ids))):
            if not waiting_calls:
                break
            call = waiting_calls.pop(self._draw(len(waiting_calls) - 1))
            if call.task_id in self._failing_ids or self._draw(5) == 0:
                returned_failures[call.task_id] = None
                continue
            call_ends.append(self._complete_call(call))
            followers.apply_result(call.task_id, call_ends[-1].payload)
            waiting_calls += followers.next_calls()
        result = call_batch_result_from_json(
            pydantic_core.from_json(pydantic_core.to_json(CallBatchResult(call_ends, returned_failures).to_json()))
        )
        self._returned_ids |= returned_failures.keys()
        running_ids = apply_call_batch(self.scheduler, result, calls=[task.id for task in tasks], at=1.0)
        assert all(self._status_of(end.task_id) is NodeStatus.COMPLETED for end in call_ends), "a result was lost"
        return [call for call in calls if call.task.id in running_ids]

    def _complete_call(self, call: BatchedCall) -> CallEnd:
        self.completed_ids.append(call.task_id)
        data = pydantic_core.to_json(result_of(call.task_id, call.arguments))
        return CallEnd(call.task_id, Payload(metadata={"encoding": b"json/plain"}, data=data))

    def _status_of(self, task_id: str) -> NodeStatus | None:
        record = self.scheduler.record_of(task_id)
        return None if record is None else record.status

    def document(self) -> dict[str, Any]:
        """Return the document without times."""
        document: dict[str, Any] = without_times(result_document(self.scheduler, _FACTS))
        return document


@settings(max_examples=example_count(100), deadline=None)
@given(plan_steps=batchable_steps(), data=st.data())
def test_plan_ends_the_same_with_and_without_call_batches(plan_steps: tuple[Step, ...], data: st.DataObject) -> None:
    failing_ids = failing_ids_of(plan_steps)
    plan = compiled_plan(plan_of(*(step.to_json() for step in plan_steps)), tools=_TOOLS)
    unbatched_run = Run(plan, failing_ids, None)
    unbatched_run.run()
    batched_run = Run(plan, failing_ids, lambda limit: data.draw(st.integers(0, limit)))
    batched_run.run()
    assert batched_run.document() == unbatched_run.document()
    assert sorted(batched_run.completed_ids) == sorted(unbatched_run.completed_ids), "each call completes once"
    model = PlanModel(plan_steps)
    nodes = batched_run.document()["nodes"]
    assert {name: nodes[name]["status"] for name in model.final_statuses} == model.final_statuses
    position_by_task = {task_id: position for position, task_id in enumerate(batched_run.completed_ids)}
    for step in plan_steps:
        for task_id in step.task_ids:
            needed_ids = [name for name in step.dependencies if step.join == "all" and name in position_by_task]
            assert task_id not in position_by_task or all(
                position_by_task[name] < position_by_task[task_id] for name in needed_ids
            )
