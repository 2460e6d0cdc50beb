"""Runs with compensation, without Temporal: compensated calls, their order, and notes about calls without undo."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from dagwright.core.boundary.limits import ARGUMENTS_LIMIT_BYTES
from dagwright.core.expressions.references import Lookup
from dagwright.core.model.actor import Actor
from dagwright.core.model.lookups import with_lookups
from dagwright.core.model.policy import Policy, Rule, Verdict
from dagwright.core.model.states import Attempt, NodeError, NodeStatus, Phase, RunStatus, Task
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.core.scheduler.run_state import counts_of
from dagwright.features.commands.node_commands import AddUnparsedNodes, CancelNode, RetryNode, SetResult
from dagwright.features.commands.steering import (
    COMPENSATING_REJECTION,
    Cancel,
    SetPolicy,
    apply_command,
    current_notes,
)
from dagwright.features.compensation.compensation import compensation_counts, compensation_notes
from dagwright.features.deadline import Deadline
from dagwright.features.run_scheduler import RunScheduler
from dagwright.protocol.outcomes import apply_loading_failure
from dagwright.protocol.ready_calls import next_call
from dagwright_onboarding.entity_types import RESOLVER
from tests.support.plan_building import (
    compiled_plan,
    configure,
    end_task,
    ids_of,
    node,
    plan_of,
    restored_scheduler,
    scheduler_of,
    start_ready_tasks,
    started_scheduler,
    tool_error,
)

TOOLS: Mapping[str, ToolDeclaration] = {
    tool.name: tool
    for tool in (
        ToolDeclaration("make", Effects.IDEMPOTENT, undo="unmake"),
        ToolDeclaration("unmake", Effects.IDEMPOTENT, timeout_s=7.0, max_attempts=9),
        ToolDeclaration("send", Effects.WRITE),
        ToolDeclaration("post", Effects.WRITE, undo="unmake"),
        ToolDeclaration("look", Effects.READ),
    )
}
ANN = Actor("ann")


def _saga(*nodes: Mapping[str, Any], **fields: Any) -> RunScheduler:
    return started_scheduler(compiled_plan(plan_of(*nodes, **fields), tools=TOOLS), setup=_COMPENSATION_SETUP)


def _key_of(scope: str | None, path: Sequence[Sequence[str]]) -> str:
    return f"{scope or 'run'}:" + "/".join(name for _, name in path)


_COMPENSATION_SETUP = {"compensate": True, "key_of": _key_of}


def _compensable_node(node_id: str, *dependencies: str, **fields: Any) -> dict[str, Any]:
    return node(node_id, *dependencies, tool="make", **fields)


_CHAIN = (_compensable_node("a"), _compensable_node("b", "a"), node("c", "b", tool="look"))
_READ_AFTER_CALL = (_compensable_node("a"), node("b", "a", tool="look"))


def _run_to_end(
    scheduler: RunScheduler, *, errors: Mapping[str, NodeError] | None = None, task_seconds: float = 1.0
) -> list[Task]:
    """Run all tasks one after the other at different times, and return them in order."""
    ended_tasks: list[Task] = []
    now = task_seconds + max((record.ended_at or 0.0 for record in scheduler.records), default=0.0)
    while tasks := start_ready_tasks(scheduler, at=now):
        for task in tasks:
            now += task_seconds
            ended_tasks.append(task)
            end_task(scheduler, task, (errors or {}).get(task.id, {"id": task.id}), at=now)
    return ended_tasks


def _advanced_saga(*nodes: Mapping[str, Any], levels: int = 1) -> RunScheduler:
    """Return a run in which the nodes of the first levels have completed."""
    scheduler = _saga(*nodes)
    for _ in range(levels):
        for task in start_ready_tasks(scheduler):
            scheduler.complete(task.id, None, at=1.0)
    return scheduler


def _not_compensated_messages(scheduler: RunScheduler) -> dict[str, str]:
    return {note["node_id"]: note["message"] for note in current_notes(scheduler) if note["code"] == "not_compensated"}


def test_completed_calls_are_compensated_in_reverse_order_with_key_arguments_and_result() -> None:
    nodes = (
        _compensable_node("a", arguments={"name": "x"}),
        _compensable_node("b", arguments={"of": "{{a.result.id}}"}),
    )
    scheduler = _saga(*nodes, node("c", "b", tool="look"))
    ended_tasks = _run_to_end(scheduler, errors={"c": tool_error("boom")})
    assert ids_of(ended_tasks) == ["a", "b", "c", "undo b", "undo a"]
    undo_b, undo_a = ended_tasks[3:]
    assert undo_b.arguments == {"key": "run:b", "arguments": {"of": "a"}, "result": {"id": "b"}}
    assert undo_a.arguments == {"key": "run:a", "arguments": {"name": "x"}, "result": {"id": "a"}}
    assert (undo_a.node.tool, undo_a.node.timeout_s, undo_a.node.retry.max_attempts) == ("unmake", 7.0, 9)
    assert scheduler.status() is RunStatus.FAILED
    assert scheduler.state.error == NodeError("not_completed", "'c' failed: boom")
    assert scheduler.output() == (None, None)
    assert [note["message"] for note in current_notes(scheduler)] == ["compensated 2 calls"]


def test_run_whose_output_cannot_be_resolved_is_compensated() -> None:
    scheduler = _saga(_compensable_node("a", arguments={"name": "x"}), output="{{a.result.price}}")
    assert ids_of(_run_to_end(scheduler)) == ["a", "undo a"]
    message = "output: Missing data: a.result.price: 'price' not found in a.result; it has id"
    assert (scheduler.status(), scheduler.state.error) == (RunStatus.FAILED, NodeError("missing_data", message))


def test_completed_run_and_run_without_compensation_compensate_nothing() -> None:
    scheduler = _saga(_compensable_node("a"), _compensable_node("b", "a", when="false"))
    assert ids_of(_run_to_end(scheduler)) == ["a"]
    assert (scheduler.status(), current_notes(scheduler)) == (RunStatus.COMPLETED, [])
    scheduler = scheduler_of(*_READ_AFTER_CALL, tools=TOOLS)
    assert ids_of(_run_to_end(scheduler, errors={"b": tool_error()})) == ["a", "b"]
    assert scheduler.status() is RunStatus.FAILED


def test_calls_are_compensated_one_by_one_in_reverse_order_of_end_times_and_dependencies() -> None:
    scheduler = _saga(
        _compensable_node("a"), _compensable_node("b"), _compensable_node("c"), node("end", "a", "b", "c", tool="look")
    )
    assert len(start_ready_tasks(scheduler)) == 3
    for end_s, node_id in enumerate(["b", "c", "a"], start=1):
        scheduler.complete(node_id, None, at=float(end_s))
    start_ready_tasks(scheduler, at=4.0)
    scheduler.fail("end", tool_error(), at=5.0)
    (first_task,) = start_ready_tasks(scheduler, at=6.0)
    assert first_task.id == "undo a"
    scheduler.complete("undo a", None, at=7.0)
    assert ids_of(_run_to_end(scheduler)) == ["undo c", "undo b"]
    scheduler = _saga(
        _compensable_node("last", "left", "right"),
        _compensable_node("left", "top"),
        _compensable_node("right", "top"),
        _compensable_node("top"),
        node("z", "last", tool="look"),
    )
    order = ids_of(_run_to_end(scheduler, errors={"z": tool_error()}, task_seconds=0.0))
    assert order[4:] == ["z", "undo last", "undo right", "undo left", "undo top"]


@pytest.mark.parametrize(
    ("error", "attempt", "is_compensated"),
    [
        (NodeError("timeout", "late"), Attempt(3), True),
        (NodeError("ValueError", "no"), Attempt(1), True),
        (NodeError("not_started", "no"), Attempt(1), False),
        (NodeError("not_started", "no"), Attempt(2), True),
        (NodeError("invalid_arguments", "no"), Attempt(1), False),
    ],
)
def test_failed_call_is_compensated_if_it_may_have_run(
    error: NodeError, attempt: Attempt, is_compensated: bool
) -> None:
    scheduler = _saga(_compensable_node("a"))
    start_ready_tasks(scheduler)
    scheduler.fail("a", error, at=1.0, attempt=attempt)
    tasks = start_ready_tasks(scheduler, at=2.0)
    assert ids_of(tasks) == (["undo a"] if is_compensated else [])
    assert all(task.arguments["result"] is None for task in tasks)
    if not is_compensated:
        assert scheduler.is_finished
        assert current_notes(scheduler)[0]["message"] == "nothing to compensate"


def test_calls_that_failed_or_were_never_sent_are_not_counted_as_compensated() -> None:
    scheduler = _saga(_compensable_node("a"), _compensable_node("b", "a"))
    assert ids_of(_run_to_end(scheduler, errors={"b": tool_error("boom")})) == ["a", "b", "undo b", "undo a"]
    assert counts_of(scheduler.plan, scheduler.records) == {NodeStatus.COMPLETED: 3, NodeStatus.FAILED: 1}
    assert compensation_counts(scheduler.state) == {NodeStatus.COMPLETED: 2}
    assert [note["message"] for note in current_notes(scheduler)] == ["compensated 1 call"]
    single_call_saga = _saga(_compensable_node("a"))
    _run_to_end(single_call_saga, errors={"a": tool_error("boom")})
    assert [note["message"] for note in current_notes(single_call_saga)] == ["compensated calls with unknown outcome"]
    large_call = _compensable_node("d", arguments={"name": "x" * ARGUMENTS_LIMIT_BYTES})
    scheduler = _saga(*map(_compensable_node, "abc"), large_call)
    for _ in range(3):
        assert next_call(scheduler, 1.0) is not None
    assert next_call(scheduler, 1.0) is None
    scheduler.complete("a", None, at=2.0)
    apply_loading_failure(scheduler, "b", RuntimeError("no store"), at=3.0)
    apply_loading_failure(scheduler, "c", asyncio.CancelledError(), at=4.0)
    assert ids_of(_run_to_end(scheduler)) == ["undo a"]
    assert [note["message"] for note in current_notes(scheduler)] == ["compensated 1 call"]
    scheduler = _saga(node("a", tool="post"), node("b", tool="send"))
    start_ready_tasks(scheduler)
    scheduler.fail("a", NodeError("outcome_unknown", "its worker died"), at=1.0)
    scheduler.fail("b", NodeError("outcome_unknown", "its worker died"), at=2.0)
    assert ids_of(_run_to_end(scheduler)) == ["undo a"]
    assert _not_compensated_messages(scheduler) == {"b": "'b' cannot be compensated: the tool 'send' has no undo"}


def test_failed_undo_is_reported_and_other_undos_run_even_with_fail_fast() -> None:
    scheduler = _saga(*_CHAIN, on_failure="fail_fast")
    ended_tasks = _run_to_end(scheduler, errors={"c": tool_error("boom"), "undo b": tool_error("stuck")})
    assert ids_of(ended_tasks) == ["a", "b", "c", "undo b", "undo a"]
    assert scheduler.status() is RunStatus.FAILED
    assert _not_compensated_messages(scheduler) == {"b": "'b' was not compensated: 'undo b' failed: stuck"}
    (result, _) = current_notes(scheduler)
    assert result["message"] == "compensated: 1; not compensated: 1 ('b')"


def test_each_item_of_a_map_is_compensated_with_its_key() -> None:
    arguments = {"name": "{{item}}", "at": "{{index}}"}
    scheduler = _saga(_compensable_node("m", for_each=["x", "y", "z"], key="{{item}}", arguments=arguments))
    ended_tasks = _run_to_end(scheduler, errors={"m[y]": NodeError("not_started", "no")})
    assert ids_of(ended_tasks) == ["m[x]", "m[y]", "m[z]", "undo m[z]", "undo m[x]"]
    assert ended_tasks[3].arguments == {"key": "run:m/z", "arguments": {"name": "z", "at": 2}, "result": {"id": "m[z]"}}


def test_cancelled_run_compensates_completed_and_cancelled_calls() -> None:
    scheduler = _saga(_compensable_node("a"), _compensable_node("b", "a"), _compensable_node("c", "b"))
    (a,) = start_ready_tasks(scheduler)
    scheduler.complete(a.id, {"id": 1}, at=1.0)
    start_ready_tasks(scheduler, at=1.0)
    assert apply_command(Cancel(ANN), scheduler, at=2.0) is None
    assert scheduler.is_stopped
    scheduler.task_cancelled("b", at=3.0)
    assert scheduler.state.phase is Phase.COMPENSATING
    ended_tasks = _run_to_end(scheduler)
    assert [(task.id, task.arguments["result"]) for task in ended_tasks] == [("undo b", None), ("undo a", {"id": 1})]
    assert scheduler.status() is RunStatus.CANCELLED


def test_first_cancel_starts_the_compensation_and_second_cancel_ends_it() -> None:
    human_node = node("ask", "a", human={"type": "APPROVAL", "prompt": "Go on?"})
    scheduler = _advanced_saga(_compensable_node("a"), human_node, _compensable_node("b", "ask"))
    apply_command(Cancel(), scheduler, at=2.0)
    assert ids_of(start_ready_tasks(scheduler, at=2.0)) == ["undo a"]
    assert not scheduler.features.feedback.requests.open
    scheduler = _advanced_saga(*_CHAIN, levels=2)
    apply_command(Cancel(ANN), scheduler, at=2.0)
    assert ids_of(start_ready_tasks(scheduler, at=3.0)) == ["undo b"]
    assert apply_command(Cancel(ANN), scheduler, at=4.0) is None
    scheduler.complete("undo b", None, at=5.0)
    assert (scheduler.is_finished, scheduler.status()) == (True, RunStatus.CANCELLED)
    assert list(_not_compensated_messages(scheduler)) == ["a"]
    scheduler = _advanced_saga(*_READ_AFTER_CALL)
    [task] = start_ready_tasks(scheduler)
    scheduler.fail(task.id, tool_error("boom"), at=2.0)
    assert apply_command(Cancel(), scheduler, at=3.0) is None
    assert ids_of(_run_to_end(scheduler)) == ["undo a"]
    expected = (RunStatus.FAILED, NodeError("not_completed", "'b' failed: boom"))
    assert (scheduler.status(), scheduler.state.error) == expected


def test_deadline_ends_the_plan_but_not_its_compensation() -> None:
    scheduler = configure(_saga(*_READ_AFTER_CALL), deadline=Deadline(0.0, 10.0))
    for task in start_ready_tasks(scheduler):
        scheduler.complete(task.id, None, at=1.0)
    start_ready_tasks(scheduler, at=2.0)
    scheduler.features.deadline.expire(10.0)
    scheduler.task_cancelled("b", at=11.0)
    assert (scheduler.features.deadline.deadline.at, scheduler.state.phase) == (None, Phase.COMPENSATING)
    scheduler.features.deadline.expire(99.0)
    assert ids_of(_run_to_end(scheduler)) == ["undo a"]
    assert scheduler.state.error == NodeError("deadline_exceeded", "the run exceeded its deadline; still running: b")


def test_new_execution_continues_the_compensation() -> None:
    scheduler = _saga(*_CHAIN)
    (a,) = start_ready_tasks(scheduler)
    scheduler.complete(a.id, {"id": "a"}, at=1.0)
    (b,) = start_ready_tasks(scheduler, at=1.0)
    scheduler.complete(b.id, {"id": "b"}, at=2.0)
    start_ready_tasks(scheduler, at=2.0)
    scheduler.fail("c", tool_error("boom"), at=3.0)
    (undo_b,) = start_ready_tasks(scheduler, at=4.0)
    scheduler.complete(undo_b.id, None, at=5.0)
    plan = compiled_plan(plan_of(*_CHAIN), tools=TOOLS)
    successor = restored_scheduler(scheduler, plan, setup=_COMPENSATION_SETUP)
    (undo_a,) = start_ready_tasks(successor, at=6.0)
    assert (undo_a.id, undo_a.arguments) == ("undo a", {"key": "run:a", "arguments": {}, "result": {"id": "a"}})
    successor.complete("undo a", None, at=7.0)
    assert (successor.status(), successor.state.error) == (RunStatus.FAILED, scheduler.state.error)


def test_during_compensation_people_can_change_compensating_nodes_only() -> None:
    scheduler = _advanced_saga(*_CHAIN, levels=2)
    [task] = start_ready_tasks(scheduler)
    scheduler.fail(task.id, tool_error("boom"), at=2.0)
    for command in (RetryNode("c"), SetResult("c", 1), CancelNode("c")):
        assert apply_command(command, scheduler, at=3.0) == COMPENSATING_REJECTION
    new_nodes = AddUnparsedNodes([node("d", tool="look")], TOOLS)
    assert apply_command(new_nodes, scheduler, at=3.0) == COMPENSATING_REJECTION
    (undo_b,) = start_ready_tasks(scheduler, at=3.0)
    scheduler.fail(undo_b.id, tool_error("stuck"), at=4.0)
    start_ready_tasks(scheduler, at=5.0)
    message = "the arguments of 'undo b' cannot be changed: they come from the call of 'b'"
    assert apply_command(RetryNode("undo b", {"key": "other"}), scheduler, at=5.0) == message
    assert apply_command(RetryNode("undo b"), scheduler, at=5.0) is None
    (retried_task,) = start_ready_tasks(scheduler, at=6.0)
    assert (retried_task.call_id, retried_task.arguments["key"]) == ("undo b#2", "run:b")
    scheduler.complete("undo b", None, at=7.0)
    scheduler.fail("undo a", tool_error("stuck"), at=8.0)
    assert list(_not_compensated_messages(scheduler)) == ["a"]


def test_manually_set_result_stays_and_its_call_is_compensated_with_unknown_outcome() -> None:
    scheduler = _saga(_compensable_node("a"), _compensable_node("b"), node("c", "a", "b", tool="look"))
    start_ready_tasks(scheduler)
    scheduler.fail("a", tool_error("boom"), at=1.0)
    assert apply_command(SetResult("a", {"id": "manual"}, ANN), scheduler, at=2.0) is None
    scheduler.complete("b", None, at=3.0)
    start_ready_tasks(scheduler, at=3.0)
    scheduler.fail("c", tool_error(), at=4.0)
    ended_tasks = _run_to_end(scheduler)
    assert [(task.id, task.arguments["result"]) for task in ended_tasks] == [("undo b", None), ("undo a", None)]
    assert _not_compensated_messages(scheduler) == {"a": "'a' has a manual result: manual changes are not compensated"}


def test_node_of_the_plan_keeps_an_id_that_looks_like_an_undo() -> None:
    scheduler = _saga(_compensable_node("a"), node("undo a", "a", tool="look"), node("z", "undo a", tool="look"))
    ended_tasks = _run_to_end(scheduler, errors={"z": tool_error()})
    assert ids_of(ended_tasks) == ["a", "undo a", "z", "undo a#2"]


@pytest.mark.parametrize("verdict", ["ask", "deny"])
def test_policy_does_not_apply_to_compensation(verdict: Verdict) -> None:
    scheduler = _advanced_saga(*_READ_AFTER_CALL)
    assert apply_command(SetPolicy(Policy((Rule(verdict),))), scheduler, at=2.0) is None
    apply_command(Cancel(ANN), scheduler, at=3.0)
    assert ids_of(_run_to_end(scheduler)) == ["undo a"]
    assert [note["message"] for note in current_notes(scheduler)] == ["compensated 1 call"]


def test_superseded_call_is_compensated() -> None:
    scheduler = _saga(_compensable_node("a"), node("z", tool="look"))
    start_ready_tasks(scheduler)
    scheduler.fail("a", NodeError("timeout", "late"), at=1.0)
    assert apply_command(RetryNode("a", {"name": "other"}, ANN), scheduler, at=2.0) is None
    start_ready_tasks(scheduler, at=2.0)
    scheduler.complete("a#2", {"id": 2}, at=3.0)
    scheduler.fail("z", tool_error(), at=4.0)
    ended_tasks = _run_to_end(scheduler)
    assert [(task.id, task.arguments["key"], task.arguments["result"]) for task in ended_tasks] == [
        ("undo a#2", "run:a#2", {"id": 2}),
        ("undo a", "run:a", None),
    ]


def test_calls_without_compensation_are_reported_before_the_run() -> None:
    sub_plan_node = node("s", plan=plan_of(node("x", tool="send"), _compensable_node("y")))
    nodes = (_compensable_node("a"), node("b", tool="post"), node("c", tool="send"), sub_plan_node)
    plan = compiled_plan(plan_of(*nodes), tools=TOOLS)
    message = "cannot be compensated: the tool 'send' has no undo"
    assert [(note.code, note.node_id, note.message) for note in compensation_notes(plan)] == [
        ("not_compensated", "c", f"'c' {message}"),
        ("not_compensated", "s/x", f"'s/x' {message}"),
    ]


@pytest.mark.parametrize(("is_created", "undo_ids"), [(True, ["undo a", "undo {bind}"]), (False, ["undo a"])])
def test_parties_that_a_lookup_created_are_compensated_last(*, is_created: bool, undo_ids: list[str]) -> None:
    plan_without_lookups = compiled_plan(plan_of(*_READ_AFTER_CALL), tools=TOOLS)
    plan = with_lookups(plan_without_lookups, [Lookup("X", "person")], RESOLVER)
    scheduler = started_scheduler(plan, setup=_COMPENSATION_SETUP)
    ended_ids: list[str] = []
    now = 0.0
    while tasks := start_ready_tasks(scheduler, at=now):
        for task in tasks:
            now += 1.0
            ended_ids.append(task.id)
            if task.id == "b":
                scheduler.fail("b", tool_error(), at=now)
            else:
                party = {"id": "p", "name": "X", "kind": "person"}
                bind_result = [{"entity": party, "reason": "", "created": is_created}]
                result: Any = bind_result if len(ended_ids) == 2 else {"entity": party}
                scheduler.complete(task.id, result, at=now)
    _, bind_id, *other_ids = ended_ids
    assert other_ids == ["a", "b", *(undo_id.format(bind=bind_id) for undo_id in undo_ids)]
    assert not _not_compensated_messages(scheduler)


def test_reused_calls_of_another_run_and_calls_that_never_started_are_not_compensated() -> None:
    scheduler = _saga(_compensable_node("a"), _compensable_node("b", "a"), node("c", tool="look"))
    record = scheduler.records[0]
    (first_task, _) = start_ready_tasks(scheduler)
    scheduler.complete(first_task.id, None, at=1.0)
    record.reused = {"run_id": "other", "node_id": "a"}
    scheduler.fail("c", tool_error(), at=2.0)
    apply_command(CancelNode("b", actor=ANN), scheduler, at=3.0)
    assert scheduler.records[1].status is NodeStatus.CANCELLED
    assert (scheduler.is_finished, scheduler.status()) == (True, RunStatus.FAILED)
