"""Commands of people for nodes of a running plan, without a server."""

import pytest

from dagwright.core.model.actor import Actor
from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.states import NodeStatus, RunStatus
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.core.scheduler.extension import Extension
from dagwright.core.scheduler.run_state import call_ids
from dagwright.features.commands.node_commands import AddNodes, AddUnparsedNodes, CancelNode, RetryNode, SetResult
from dagwright.features.commands.steering import RunCommand, apply_command
from dagwright.features.run_scheduler import RunScheduler
from dagwright.protocol.run_snapshot import state_to_text
from dagwright.protocol.scheduler_snapshot import state_to_json
from tests.support.plan_building import (
    TOOLS,
    ids_of,
    node,
    overrides_of,
    record_of,
    scheduler_of,
    start_ready_tasks,
    started_run,
    statuses_of,
    tool_error,
)

ANN = Actor("ann", "wrong file", "update")

BRANCHES = (node("a"), node("b", "a"), node("c", "b"), node("late", "b", "side"), node("any", "b", "side", join="any"))
SIDE = (node("side"), node("after", "side"))


def _partly_failed_run() -> RunScheduler:
    """Return a run in which `a` has failed, its branch is blocked, and another node is running."""
    branch = (node("a"), node("b", "a", arguments={"of": "{{a.result.n}}"}), node("c", "b"))
    scheduler = scheduler_of(*branch, node("independent"))
    assert ids_of(start_ready_tasks(scheduler)) == ["a", "independent"]
    scheduler.fail("a", tool_error(), at=1.0)
    return scheduler


def test_cancelled_node_blocks_its_dependents_or_cancels_its_branch() -> None:
    scheduler = scheduler_of(*BRANCHES, *SIDE)
    assert apply_command(CancelNode("b", actor=ANN), scheduler, at=1.0) is None
    assert statuses_of(scheduler) == {
        **{"a": "ready", "b": "cancelled", "c": "blocked", "late": "pending", "any": "pending"},
        **{"side": "ready", "after": "pending"},
    }
    assert record_of(scheduler, "b").reason == "cancelled by ann: wrong file"
    assert overrides_of(scheduler, "b") == [
        {"command": "cancel_node", "by": "ann", "at": 1.0, "source": "update", "reason": "wrong file"}
    ]
    assert ids_of(start_ready_tasks(scheduler)) == ["a", "side"]
    scheduler = scheduler_of(*BRANCHES, *SIDE)
    assert apply_command(CancelNode("b", branch=True, actor=ANN), scheduler, at=1.0) is None
    assert [name for name, status in statuses_of(scheduler).items() if status == "cancelled"] == ["b", "c", "late"]
    for task in start_ready_tasks(scheduler):
        scheduler.complete(task.id, 1, at=2.0)
    assert ids_of(start_ready_tasks(scheduler)) == ["any", "after"]


def test_run_waits_for_a_cancelled_node_until_its_grace_period_ends() -> None:
    def cancelling_run() -> RunScheduler:
        scheduler = started_run(node("a"), node("b", "a"), node("independent"))
        assert apply_command(CancelNode("a", branch=True, grace_s=30.0), scheduler, at=1.0) is None
        return scheduler

    scheduler = cancelling_run()
    assert (scheduler.state.cancel_deadlines, scheduler.next_timer) == ({"a": 31.0}, 31.0)
    assert statuses_of(scheduler) == {"a": "running", "b": "cancelled", "independent": "running"}
    assert apply_command(CancelNode("a"), scheduler, at=2.0) == "'a' is being stopped already"
    scheduler.task_cancelled("a", at=3.0)
    assert (scheduler.state.cancel_deadlines, statuses_of(scheduler)["a"]) == ({}, "cancelled")
    assert apply_command(CancelNode("a"), scheduler, at=4.0) == "'a' has ended: cancelled"

    scheduler = cancelling_run()
    scheduler.advance(30.0)
    assert statuses_of(scheduler)["a"] == "running"
    scheduler.advance(31.0)
    record = record_of(scheduler, "a")
    assert (record.status, record.reason) == (NodeStatus.CANCELLED, "still running outside")
    assert scheduler.next_timer is None


def test_item_can_be_cancelled_alone_and_a_map_with_all_its_items() -> None:
    scheduler = scheduler_of(node("m", for_each=["x", "y", "z"], key="{{item}}", max_parallel=1), node("after", "m"))
    assert ids_of(start_ready_tasks(scheduler)) == ["m[x]"]
    assert apply_command(CancelNode("m[y]"), scheduler, at=1.0) is None
    assert apply_command(CancelNode("m[y]", branch=True), scheduler, at=1.0) == "'m[y]' has ended: cancelled"
    rejection = "an item has no branch: cancel 'm' with its branch instead"
    assert apply_command(CancelNode("m[z]", branch=True), scheduler, at=1.0) == rejection
    scheduler.complete("m[x]", 1, at=2.0)
    assert ids_of(start_ready_tasks(scheduler)) == ["m[z]"]
    assert apply_command(CancelNode("m"), scheduler, at=3.0) is None
    assert scheduler.state.cancel_deadlines == {"m[z]": 33.0}
    scheduler.task_cancelled("m[z]", at=4.0)
    assert (statuses_of(scheduler), scheduler.status()) == ({"m": "cancelled", "after": "blocked"}, RunStatus.FAILED)


@pytest.mark.parametrize(
    ("command", "rejection"),
    [
        (CancelNode("bb"), "the run has no node 'bb'; did you mean 'b'?"),
        (CancelNode("a"), "'a' has ended: failed"),
        (RetryNode("independent"), "'independent' is running; only a node that failed or was cancelled can be retried"),
        (RetryNode("b"), "'b' is blocked; only a node that failed or was cancelled can be retried"),
        (SetResult("independent", 1), "'independent' is running; cancel it first"),
    ],
)
def test_impossible_command_is_rejected_and_changes_nothing(command: RunCommand, rejection: str) -> None:
    scheduler = _partly_failed_run()
    state_before = state_to_json(scheduler)
    assert apply_command(command, scheduler, at=2.0) == rejection
    assert state_to_json(scheduler) == state_before


def test_retried_node_keeps_its_key_and_blocked_nodes_continue() -> None:
    scheduler = _partly_failed_run()
    assert apply_command(RetryNode("a", actor=ANN), scheduler, at=2.0) is None
    (task,) = start_ready_tasks(scheduler)
    assert (task.id, task.call_id, task.path) == ("a", "a#2", [["node", "a"]])
    scheduler.complete("a", {"n": 7}, at=3.0)
    (task,) = start_ready_tasks(scheduler)
    assert (task.id, task.arguments) == ("b", {"of": 7})
    record = record_of(scheduler, "a")
    assert (record.status, record.attempts) == (NodeStatus.COMPLETED, 2)
    assert [override["command"] for override in overrides_of(scheduler, "a")] == ["retry_node"]


def test_retry_with_new_arguments_adds_a_node_with_an_unused_id() -> None:
    scheduler = _partly_failed_run()
    assert apply_command(RetryNode("a", {"file": "other"}, actor=ANN), scheduler, at=2.0) is None
    (task,) = start_ready_tasks(scheduler)
    assert (task.id, task.call_id, task.path, task.arguments) == ("a#2", "a#2", [["node", "a#2"]], {"file": "other"})
    scheduler.complete("a#2", {"n": 7}, at=3.0)
    assert [task.arguments for task in start_ready_tasks(scheduler)] == [{"of": 7}]
    statuses = {"a": "superseded", "b": "running", "c": "pending", "independent": "running", "a#2": "completed"}
    assert statuses_of(scheduler) == statuses
    assert apply_command(RetryNode("a"), scheduler, at=4.0) == "'a' was superseded by 'a#2': send the command to 'a#2'"
    scheduler = _partly_failed_run()
    apply_command(RetryNode("a"), scheduler, at=2.0)
    start_ready_tasks(scheduler)
    scheduler.fail("a", tool_error(), at=2.0)
    for number, name in enumerate(("a#3", "a#4")):
        assert apply_command(RetryNode("a" if not number else "a#3", {"try": number}), scheduler, at=3.0) is None
        assert ids_of(start_ready_tasks(scheduler)) == [name]
        scheduler.fail(name, tool_error(), at=4.0)
    record = record_of(scheduler, "b")
    assert (statuses_of(scheduler)["a#3"], record.blocked_by) == ("superseded", ("a#4",))
    scheduler = _partly_failed_run()
    for at in (2.0, 3.0):
        apply_command(RetryNode("a"), scheduler, at=at)
        start_ready_tasks(scheduler)
        scheduler.fail("a", tool_error(), at=at)
    assert call_ids(scheduler.state, "a") == ["a", "a#2", "a#3"]
    assert apply_command(RetryNode("a", {"n": 1}), scheduler, at=4.0) is None
    assert ids_of(start_ready_tasks(scheduler)) == ["a#4"]


def test_failed_items_are_retried_and_completed_items_keep_their_results() -> None:
    map_node = node("m", for_each=["x", "y", "z"], key="{{item}}")
    scheduler = started_run(map_node, node("after", "m"), node("independent"))
    scheduler.complete("m[x]", "X", at=1.0)
    scheduler.fail("m[y]", tool_error(), at=1.0)
    scheduler.fail("m[z]", tool_error(), at=1.0)
    assert statuses_of(scheduler) == {"m": "failed", "after": "blocked", "independent": "running"}
    assert apply_command(RetryNode("m[y]"), scheduler, at=2.0) is None
    assert [task.call_id for task in start_ready_tasks(scheduler)] == ["m[y]#2"]
    scheduler.complete("m[y]", "Y", at=3.0)
    assert statuses_of(scheduler) == {"m": "failed", "after": "blocked", "independent": "running"}
    assert apply_command(RetryNode("m"), scheduler, at=4.0) is None
    assert [task.call_id for task in start_ready_tasks(scheduler)] == ["m[z]#2"]
    scheduler.complete("m[z]", "Z", at=5.0)
    assert ids_of(start_ready_tasks(scheduler)) == ["after"]
    assert scheduler.records[0].result == ["X", "Y", "Z"]


def test_cancelled_branch_is_pending_again_when_its_node_is_retried() -> None:
    scheduler = scheduler_of(*BRANCHES, *SIDE)
    apply_command(CancelNode("b", branch=True), scheduler, at=1.0)
    assert apply_command(RetryNode("b"), scheduler, at=2.0) is None
    pending_nodes = dict.fromkeys(("b", "c", "late", "any", "after"), "pending")
    assert statuses_of(scheduler) == {"a": "ready", "side": "ready", **pending_nodes}


def test_arguments_that_the_tool_does_not_accept_are_rejected() -> None:
    schema = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
    tools = {**TOOLS, "mail": ToolDeclaration("mail", Effects.WRITE, input_schema=schema)}
    scheduler = started_run(node("a", tool="mail", arguments={"to": "ann"}), node("independent"), tools=tools)
    scheduler.fail("a", tool_error(), at=1.0)
    assert apply_command(RetryNode("a", {"to": 5}), scheduler, at=2.0) == 'arguments/to: 5 is not of type "string"'
    assert statuses_of(scheduler) == {"a": "failed", "independent": "running"}
    assert apply_command(RetryNode("a", {"to": "eve"}), scheduler, at=2.0) is None


def test_manual_result_ends_a_node_and_is_marked() -> None:
    scheduler = _partly_failed_run()
    assert apply_command(SetResult("a", {"n": 3}, actor=ANN), scheduler, at=2.0) is None
    assert [task.arguments for task in start_ready_tasks(scheduler)] == [{"of": 3}]
    record = record_of(scheduler, "a")
    assert (record.status, record.result, record.ended_at) == (NodeStatus.COMPLETED, {"n": 3}, 2.0)
    [override] = overrides_of(scheduler, "a")
    assert (override["command"], override["error"]["code"]) == ("set_result", "tool_failed")
    rejection = "'a' has completed, and other nodes may have used its result"
    assert apply_command(SetResult("a", 4), scheduler, at=3.0) == rejection
    scheduler = scheduler_of(node("a"), node("b", "a"), node("c", "b"))
    assert apply_command(SetResult("b", 1), scheduler, at=1.0) is None
    assert ids_of(start_ready_tasks(scheduler)) == ["a", "c"]
    scheduler = started_run(node("m", for_each=["x", "y"], key="{{item}}"), node("independent"))
    scheduler.complete("m[x]", "X", at=1.0)
    scheduler.fail("m[y]", tool_error(), at=1.0)
    assert apply_command(SetResult("m[y]", "Y"), scheduler, at=2.0) is None
    assert (scheduler.records[0].status, scheduler.records[0].result) == (NodeStatus.COMPLETED, ["X", "Y"])


def test_data_of_commands_has_a_total_limit() -> None:
    scheduler = started_run(*(node(f"n{number}") for number in range(90)), node("independent"))
    for number in range(90):
        scheduler.fail(f"n{number}", tool_error(), at=1.0)
    large_text = "x" * 250_000
    rejections = [apply_command(SetResult(f"n{number}", large_text), scheduler, at=2.0) for number in range(90)]
    assert [rejection is None for rejection in rejections] == [True] * 33 + [False] * 57
    assert rejections[33] == (
        "results of 250,002 bytes are too much: people may send 8,388,608 bytes to a run in total, and 8,250,066 are "
        "stored; a value of up to 1,024 bytes, such as a file name, is always accepted"
    )
    large_nodes = [{"id": "more", "tool": "any", "arguments": {"text": large_text}}]
    rejection = apply_command(RetryNode("n50", {"text": large_text}), scheduler, at=2.0) or ""
    assert rejection.startswith("arguments of 250,011 bytes")
    rejection = apply_command(AddUnparsedNodes(large_nodes), scheduler, at=2.0) or ""
    assert rejection.startswith("nodes of 250,052 bytes")
    assert apply_command(SetResult("n50", "a.txt"), scheduler, at=2.0) is None
    assert state_to_text(state_to_json(scheduler))


def test_added_nodes_wait_for_their_dependencies_and_stale_or_duplicate_nodes_are_rejected() -> None:
    scheduler = _partly_failed_run()
    nodes = (CompiledNode("x", tool="any", dependencies=(3,)), CompiledNode("y", tool="any", dependencies=(4, 0)))
    assert apply_command(AddNodes(Extension(4, nodes), actor=ANN), scheduler, at=2.0) is None
    scheduler.complete("independent", 1, at=3.0)
    assert ids_of(start_ready_tasks(scheduler)) == ["x"]
    assert statuses_of(scheduler)["y"] == "pending"
    scheduler.complete("x", 1, at=4.0)
    assert (statuses_of(scheduler)["y"], scheduler.is_finished) == ("blocked", True)
    scheduler = _partly_failed_run()
    state_before = state_to_json(scheduler)
    stale_extension = Extension(3, (CompiledNode("x", tool="any"),))
    rejection = "the extension is for a plan of 3 nodes, but the plan has 4"
    assert apply_command(AddNodes(stale_extension), scheduler, at=2.0) == rejection
    duplicate_command = AddNodes(Extension(4, (CompiledNode("independent", tool="any"),)))
    assert apply_command(duplicate_command, scheduler, at=2.0) == "the run has a node or item 'independent' already"
    assert state_to_json(scheduler) == state_before


def test_scheduler_has_fewer_than_30_attributes() -> None:
    """CPython accesses the attributes of an object faster if the object has at most 30 attributes."""
    scheduler = _partly_failed_run()
    assert max(len(vars(scheduler)), len(vars(scheduler.state))) < 30
