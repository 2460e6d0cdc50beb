"""A run that receives any commands between its events stays consistent and ends."""

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dagwright.core.compiler.compilation import compiled_form
from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.core.model.requests import Feedback
from dagwright.core.model.states import NodeStatus
from dagwright.core.scheduler.extension import Extension
from dagwright.features.commands.node_commands import AddNodes, CancelNode, RetryNode, SetResult
from dagwright.features.commands.steering import Cancel, Pause, Resume, RunCommand, SetLimits, apply_command
from dagwright.features.run_scheduler import RunScheduler, create_scheduler
from dagwright.protocol.scheduler_snapshot import restore_state, state_to_json, tasks_in_flight
from tests.support.example_counts import example_count
from tests.support.plan_building import (
    check,
    has_new_limits,
    node,
    open_requests,
    plan_of,
    started_scheduler,
    tool_error,
)

_JOINS = ("all", "any", "all_done", {"at_least": 2})


@st.composite
def _plans(draw: st.DrawFn) -> dict[str, Any]:
    nodes: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 7))):
        needs = draw(st.lists(st.integers(0, number - 1), unique=True, max_size=3)) if number else []
        fields: dict[str, Any] = {"join": draw(st.sampled_from(_JOINS))} if len(needs) > 1 else {}
        if draw(st.booleans()):
            fields["for_each"] = list(range(draw(st.integers(0, 3))))
        if draw(st.integers(0, 3)) == 0:
            deadline = draw(st.sampled_from(["5s", "1d"]))
            fields["human"] = {"type": "CLARIFICATION", "prompt": "Well?", "deadline": deadline}
        else:
            fields["on_error"] = draw(st.sampled_from(["block", "skip", {"value": 1}, "ask"]))
        nodes.append(node(f"n{number}", *(f"n{need}" for need in needs), **fields))
    return plan_of(*nodes)


def _draw_command(data: st.DataObject, scheduler: RunScheduler) -> RunCommand:
    task_ids = _task_ids(scheduler)
    failed_ids = [name for name in task_ids if _has_status(scheduler, name, NodeStatus.FAILED, NodeStatus.CANCELLED)]
    prefers_failed = data.draw(st.booleans())
    task_id = data.draw(st.sampled_from(failed_ids if prefers_failed and failed_ids else task_ids))
    node_count = scheduler.plan.visible_count
    new_node = CompiledNode(f"x{node_count}", tool="any", dependencies=(data.draw(st.integers(0, node_count - 1)),))
    commands: tuple[RunCommand, ...] = (
        Pause(),
        Resume(),
        CancelNode(task_id, branch=data.draw(st.booleans())),
        RetryNode(task_id),
        RetryNode(task_id, {"by": "hand"}),
        SetResult(task_id, "manual"),
        AddNodes(Extension(node_count, (new_node,))),
        SetLimits(
            data.draw(st.sampled_from([None, 1, 2, 500])), data.draw(st.sampled_from([None, 3.0, 9.0, math.inf]))
        ),
    )
    if data.draw(st.integers(0, 19)) == 0:
        # Cancellations are rare, because they end the run.
        return Cancel()
    return data.draw(st.sampled_from(commands))


def _has_status(scheduler: RunScheduler, task_id: str, *statuses: NodeStatus) -> bool:
    record = scheduler.record_of(task_id)
    return record is not None and record.status in statuses


def _task_ids(scheduler: RunScheduler) -> list[str]:
    """Return the IDs of all nodes and items."""
    nodes = scheduler.state.visible_nodes()
    return [name for node, record in nodes for name in (node.id, *(f"{node.id}[{item.key}]" for item in record.items))]


def _answer_request(data: st.DataObject, scheduler: RunScheduler, at: float) -> None:
    request_id = data.draw(st.sampled_from([*open_requests(scheduler)]))
    answers: list[Any] = [{"text": "so"}, *({"action": action} for action in ("retry", "skip", "stop")), {"odd": 1}]
    old_state = state_to_json(scheduler)
    if scheduler.features.feedback.answer(Feedback(request_id, data.draw(st.sampled_from(answers))), at) is not None:
        assert state_to_json(scheduler) == old_state


def _restored_scheduler(scheduler: RunScheduler, plan: CompiledPlan) -> RunScheduler:
    next_scheduler = create_scheduler(plan, {})
    restore_state(next_scheduler, state_to_json(scheduler))
    return next_scheduler


def _assert_consistent(scheduler: RunScheduler, plan: CompiledPlan) -> None:
    assert scheduler.is_finished == all(record.status.is_final for record in scheduler.records)
    assert scheduler.in_flight == len(tasks_in_flight(scheduler))
    assert scheduler.state.cancel_deadlines.keys() <= set(tasks_in_flight(scheduler))
    for compiled_node, record in scheduler.state.visible_nodes():
        is_ready_or_running = record.status in (NodeStatus.READY, NodeStatus.RUNNING)
        if is_ready_or_running and compiled_node.join[0] == "all":
            statuses = [scheduler.records[number].status for number in compiled_node.dependencies]
            assert all(status is NodeStatus.COMPLETED for status in statuses)
    waiting_ids = [task_id for task_id in _task_ids(scheduler) if _has_status(scheduler, task_id, NodeStatus.WAITING)]
    assert sorted(request.task for request in open_requests(scheduler).values()) == sorted(waiting_ids)
    next_scheduler = _restored_scheduler(scheduler, plan)
    assert state_to_json(next_scheduler) == state_to_json(scheduler)
    if has_new_limits(scheduler):
        assert next_scheduler.state.max_in_flight == scheduler.state.max_in_flight
        assert next_scheduler.features.deadline.deadline == scheduler.features.deadline.deadline


@settings(max_examples=example_count(80), deadline=None)
@given(document=_plans(), data=st.data())
def test_run_with_any_commands_stays_consistent_and_ends(document: dict[str, Any], data: st.DataObject) -> None:
    plan = compiled_form(check(document))
    scheduler = started_scheduler(plan, max_in_flight=data.draw(st.sampled_from([1, 2, 500])))
    remaining_command_count, at = 8, 0.0
    while not scheduler.is_finished:
        at += 1.0
        scheduler.advance(at)
        if remaining_command_count and data.draw(st.booleans()):
            remaining_command_count -= 1
            command, old_state = _draw_command(data, scheduler), state_to_json(scheduler)
            if apply_command(command, scheduler, at=at) is not None:
                assert state_to_json(scheduler) == old_state
            _assert_consistent(scheduler, plan)
            continue
        if not remaining_command_count:
            apply_command(Resume(), scheduler, at=at)
        scheduler.features.deadline.expire(at)
        while scheduler.next_task(at) is not None:
            assert scheduler.in_flight <= scheduler.state.max_in_flight
        if running_tasks := tasks_in_flight(scheduler):
            task_id = data.draw(st.sampled_from(running_tasks))
            if task_id in scheduler.state.cancel_deadlines and data.draw(st.booleans()):
                scheduler.task_cancelled(task_id, at=at)
            elif data.draw(st.booleans()):
                scheduler.complete(task_id, task_id, at=at)
            else:
                scheduler.fail(task_id, tool_error(), at=at)
        elif open_requests(scheduler):
            _answer_request(data, scheduler, at)
        _assert_consistent(scheduler, plan)
    next_scheduler = _restored_scheduler(scheduler, plan)
    assert state_to_json(next_scheduler) == state_to_json(scheduler)
    assert next_scheduler.is_finished
    assert next_scheduler.status() == scheduler.status()
