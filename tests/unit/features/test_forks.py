"""Forks: reuse of results, idempotency keys of unfinished calls, and effects that are not repeated."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.states import Attempt, NodeError, NodeStatus
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.core.scheduler.map_items import MapBatchEnd
from dagwright.features.compensation.compensation import without_compensation
from dagwright.features.forks.planner import (
    ForkDifferences,
    ForkPrediction,
    ReusableResults,
    Source,
    find_reusable_results,
    predict_fork,
)
from dagwright.features.run_scheduler import RunScheduler, create_scheduler
from tests.support.plan_building import (
    compiled_plan,
    configure,
    end_task,
    node,
    plan_of,
    restored_scheduler,
    start_ready_tasks,
    started_scheduler,
    statuses_of,
    tool_error,
)

TOOLS = {
    "look": ToolDeclaration("look", Effects.READ, version="1"),
    "send": ToolDeclaration("send", Effects.WRITE, version="1"),
    "put": ToolDeclaration("put", Effects.IDEMPOTENT, version="1"),
}


def plan_with_tools(
    *nodes: Mapping[str, Any], tools: Mapping[str, ToolDeclaration] = TOOLS, **fields: Any
) -> CompiledPlan:
    return compiled_plan(plan_of(*nodes, **fields), tools=tools)


def look_node(node_id: str, *dependencies: str, **arguments: Any) -> dict[str, Any]:
    return node(node_id, *dependencies, tool="look", arguments=arguments)


def write_node(node_id: str, *dependencies: str, tool: str = "send", **arguments: Any) -> dict[str, Any]:
    return node(node_id, *dependencies, tool=tool, arguments=arguments)


def ended_scheduler(
    plan: CompiledPlan, results: Mapping[str, Any], *, setup: Mapping[str, Any] | None = None, **inputs: Any
) -> RunScheduler:
    """Return the scheduler of a run whose tasks ended with these results or errors."""
    scheduler = started_scheduler(plan, inputs, setup=setup, at=1.0)
    while ready_tasks := [task for task in start_ready_tasks(scheduler, at=1.0) if task.id in results]:
        for task in ready_tasks:
            end_task(scheduler, task, results[task.id], at=2.0, attempt=Attempt(1, 1.5, "1"))
    return scheduler


def create_fork(
    origin: RunScheduler, plan: CompiledPlan, *, rerun: Sequence[str] = (), is_open: bool = False, **inputs: Any
) -> tuple[RunScheduler, ReusableResults, ForkPrediction]:
    """Return the scheduler of a fork, restored from JSON, with its reusable results and its prediction."""
    changed_inputs = {name for name in inputs if inputs[name] != origin.state.inputs.get(name)}
    differences = ForkDifferences(changed_inputs, rerun)
    reuse = find_reusable_results(
        origin, plan, source=Source("old", "old-scope", is_open=is_open), differences=differences
    )
    prediction = predict_fork(create_scheduler(plan, inputs), origin, reuse, differences=differences)
    fork = restored_scheduler(configure(create_scheduler(plan, inputs), reuse=reuse.table), inputs=inputs)
    fork.reconcile(10.0)
    return fork, reuse, prediction


def start_and_return_scopes(scheduler: RunScheduler) -> dict[str, str | None]:
    """Start the ready tasks. Return task ID -> scope of its idempotency key, `None` for a new key of the fork."""
    return {task.id: task.scope for task in start_ready_tasks(scheduler, at=11.0)}


CHAIN = (look_node("a", x="{{PLACEHOLDER_x}}"), look_node("b", x="{{a.result}}"), write_node("c", to="{{b.result}}"))


def test_fork_without_changes_reuses_everything() -> None:
    plan = plan_with_tools(*CHAIN)
    fork, _, prediction = create_fork(ended_scheduler(plan, {"a": 1, "b": 2, "c": 3}, x=0), plan, x=0)

    assert start_and_return_scopes(fork) == {}
    assert statuses_of(fork) == {"a": "completed", "b": "completed", "c": "completed"}
    assert [record.result for record in fork.records] == [1, 2, 3]
    assert [record.reused for record in fork.records] == [{"run_id": "old", "node_id": name} for name in "abc"]
    assert prediction == ForkPrediction(["a", "b", "c"], {}, [], [])


def test_dependents_are_reused_after_an_equal_result_and_rerun_with_new_keys_after_a_different_result() -> None:
    plan = plan_with_tools(*CHAIN)
    fork, _, prediction = create_fork(ended_scheduler(plan, {"a": 1, "b": 2, "c": 3}, x=0), plan, x=5)
    assert prediction == ForkPrediction([], {"a": "reads something that has changed"}, ["b", "c"], [])
    assert start_and_return_scopes(fork) == {"a": None}
    fork.complete("a", 1, at=12.0)
    assert statuses_of(fork) == {"a": "completed", "b": "completed", "c": "completed"}
    fork, _, _ = create_fork(ended_scheduler(plan, {"a": 1, "b": 2, "c": 3}, x=0), plan, x=5)
    start_and_return_scopes(fork)
    fork.complete("a", 7, at=12.0)
    assert start_and_return_scopes(fork) == {"b": None}
    fork.complete("b", 8, at=13.0)
    assert start_and_return_scopes(fork) == {"c": None}


def test_unfinished_call_keeps_its_key_unless_it_is_selected_to_run_again() -> None:
    write_nodes = (write_node("c", tool="put", to="{{a.result}}"), write_node("d", tool="put", to="x"))
    plan = plan_with_tools(look_node("a"), *write_nodes)
    origin = ended_scheduler(plan, {"a": 1, "c": tool_error(), "d": 4})
    fork, _, prediction = create_fork(origin, plan)
    assert start_and_return_scopes(fork) == {"c": "old-scope"}
    assert prediction.executed == {"c": "had failed"}

    fork, _, prediction = create_fork(origin, plan, rerun=["d", "c"])
    assert start_and_return_scopes(fork) == {"c": None, "d": None}
    assert prediction.executed == {"c": "was selected to run again", "d": "was selected to run again"}


def test_fork_of_a_fork_keeps_the_first_key_and_the_run_that_produced_the_result() -> None:
    plan = plan_with_tools(look_node("a"), write_node("c", tool="put", to="{{a.result}}"))
    fork, _, _ = create_fork(ended_scheduler(plan, {"a": 1, "c": tool_error()}), plan)
    start_ready_tasks(fork)
    fork.fail("c", tool_error(), at=20.0)
    source = Source("fork", "fork-scope", is_open=False)
    table = find_reusable_results(fork, plan, source=source, differences=ForkDifferences()).table

    assert table.results["c"].scope == "old-scope"
    assert table.results["a"].produced_by == {"run_id": "old", "node_id": "a"}


def test_changed_nodes_and_reads_with_a_changed_tool_version_run_again() -> None:
    plan = plan_with_tools(look_node("a"), write_node("c", to="x"))
    newer_tools = {name: ToolDeclaration(name, tool.effects, version="2") for name, tool in TOOLS.items()}
    plan_with_newer_tools = plan_with_tools(look_node("a"), write_node("c", to="x"), tools=newer_tools)
    fork, _, prediction = create_fork(ended_scheduler(plan, {"a": 1, "c": 3}), plan_with_newer_tools)
    assert start_and_return_scopes(fork) == {"a": None}
    assert (prediction.reused, prediction.executed) == (["c"], {"a": "has another version of its tool"})
    plan = plan_with_tools(look_node("a"), look_node("b", x="{{a.result}}"), look_node("removed"))
    origin = ended_scheduler(plan, {"a": 1, "b": 2, "removed": 3})
    plan = plan_with_tools(look_node("new"), look_node("b", x="{{a.result}}!"), look_node("a"))
    fork, _, prediction = create_fork(origin, plan)
    assert start_and_return_scopes(fork) == {"new": None, "b": None}
    assert prediction == ForkPrediction(["a"], {"new": "is new", "b": "was changed in the plan"}, [], [])


def test_items_are_reused_by_their_keys_and_failed_items_run_again() -> None:
    map_fields = {"for_each": "{{PLACEHOLDER_list}}", "key": "{{item.name}}", "on_error": "skip"}
    plan = plan_with_tools({**look_node("sum", x="{{item.x}}"), **map_fields}, look_node("all", x="{{sum.result}}"))
    items_before = [{"name": "n", "x": 1}, {"name": "s", "x": 2}]
    items_after = [{"name": "w", "x": 9}, {"name": "s", "x": 2}, {"name": "n", "x": 5}]
    fork, _, prediction = create_fork(
        ended_scheduler(plan, {"sum[n]": 10, "sum[s]": 20, "all": 30}, list=items_before), plan, list=items_after
    )
    assert (prediction.reused, [*prediction.executed]) == (["sum[s]"], ["sum[w]", "sum[n]"])
    assert prediction.reused_if_unchanged == ["all"]
    assert [*start_and_return_scopes(fork)] == ["sum[w]", "sum[n]"]
    fork.complete("sum[w]", 1, at=12.0)
    fork.complete("sum[n]", 2, at=12.0)
    assert fork.records[0].result == [1, 20, 2]
    assert [*start_and_return_scopes(fork)] == ["all"]
    plan = plan_with_tools({**write_node("each", tool="put", to="{{item}}"), "for_each": ["x", "y"], "key": "{{item}}"})
    fork, _, prediction = create_fork(ended_scheduler(plan, {"each[x]": 1, "each[y]": tool_error()}), plan)
    assert start_and_return_scopes(fork) == {"each[y]": "old-scope"}
    assert (prediction.reused, prediction.executed) == (["each[x]"], {"each[y]": "had failed"})


def test_read_after_a_changed_dependency_runs_again_and_write_does_not() -> None:
    plan = plan_with_tools(look_node("a", x="{{PLACEHOLDER_x}}"), look_node("b", "a"), write_node("c", "a", to="x"))
    fork, _, _ = create_fork(ended_scheduler(plan, {"a": 1, "b": 2, "c": 3}, x=0), plan, x=1)
    start_and_return_scopes(fork)
    fork.complete("a", 9, at=12.0)
    assert start_and_return_scopes(fork) == {"b": None}
    assert statuses_of(fork)["c"] == "completed"


@pytest.mark.parametrize(
    ("result", "is_open", "expected"),
    [
        (None, True, "'c' is a write that is running in 'old': let it end, or add it to `rerun` to run it again"),
        (NodeError("outcome_unknown", "?"), False, "it is unknown whether 'c' has had its effect: check it, and add"),
    ],
)
def test_write_that_may_have_had_its_effect_is_repeated_only_if_selected(
    result: Any, is_open: bool, expected: str
) -> None:
    plan = plan_with_tools(write_node("c", to="x"))
    origin = ended_scheduler(plan, {} if result is None else {"c": result})
    _, reuse, _ = create_fork(origin, plan, is_open=is_open)
    assert [problem[: len(expected)] for problem in reuse.problems] == [expected]
    _, reuse, _ = create_fork(origin, plan, is_open=is_open, rerun=["c"])
    assert reuse.problems == []


def test_unstarted_nodes_of_an_open_run_keep_their_keys_until_they_change() -> None:
    nodes = (look_node("a"), write_node("c", tool="put", to="{{a.result}}"), look_node("b", x="{{PLACEHOLDER_x}}"))
    plan = plan_with_tools(*nodes, write_node("d", tool="put", to="{{b.result}}"))
    fork, _, _ = create_fork(ended_scheduler(plan, {}, x=0), plan, is_open=True, x=1)
    start_and_return_scopes(fork)
    fork.complete("a", 1, at=12.0)
    fork.complete("b", 1, at=12.0)
    assert start_and_return_scopes(fork) == {"c": "old-scope", "d": None}


def ended_map_scheduler(
    plan: CompiledPlan,
    *,
    size: int,
    first_failed: int | None = None,
    first_replaced: int | None = None,
    first_running: int | None = None,
) -> RunScheduler:
    """Return the scheduler of a run with one large map.

    Args:
        size: characters of the result of each item.
        first_failed: index of the first item of the failed batch.
        first_replaced: index of the first item of the batch whose items failed and got the value of `on_error`.
        first_running: index of the first item of the batch that still runs.
    """
    scheduler = started_scheduler(plan, at=1.0)
    for task in start_ready_tasks(scheduler, at=1.0):
        assert task.map_batch is not None
        count = task.map_batch.count
        if task.map_batch.first == first_running:
            continue
        if task.map_batch.first == first_failed:
            end = MapBatchEnd(NodeStatus.FAILED, {"failed": count}, error=NodeError("tool_failed", "broken"))
        elif task.map_batch.first == first_replaced:
            error = NodeError("tool_failed", "broken")
            end = MapBatchEnd(NodeStatus.COMPLETED, {"completed": count}, [None] * count, error=error)
        else:
            values = ["x" * size] * count if size < 100 else None
            pieces = () if values is not None else [(f"sha256-{task.map_batch.first}", size * count)]
            end = MapBatchEnd(NodeStatus.COMPLETED, {"completed": count}, values=values, pieces=pieces)
        scheduler.end_map_batch(task.id, end, at=2.0)
    for task in start_ready_tasks(scheduler, at=2.0):
        scheduler.complete(task.id, "joined", at=3.0)
    return scheduler


@pytest.mark.parametrize("tool", ["look", "put", "send"])
@pytest.mark.parametrize("size", [1, 1_000])
def test_large_map_is_reused_with_results_joined_in_the_run_or_by_a_task(tool: str, size: int) -> None:
    plan = plan_with_tools({**write_node("m", tool=tool, to="{{item}}"), "for_each": list(range(1_200))})
    fork, reuse, prediction = create_fork(ended_map_scheduler(plan, size=size), plan)

    assert (reuse.problems, prediction) == ([], ForkPrediction(["m"], {}, [], []))
    assert statuses_of(fork) == {"m": "completed"}
    assert fork.records[0].result == (["x"] * 1_200 if size == 1 else "joined")


@pytest.mark.parametrize(
    ("is_open", "map_batches", "hint"),
    [
        (True, {"first_running": 600}, "let them end first, or add 'm' to `rerun` to run all items again"),
        (True, {"first_failed": 300}, "add 'm' to `rerun` to run all items again"),
        (False, {"first_failed": 300}, "add 'm' to `rerun` to run all items again"),
        (False, {"first_replaced": 300}, "add 'm' to `rerun` to run all items again"),
    ],
)
def test_large_map_with_completed_writes_must_be_selected_to_run_again(
    is_open: bool, map_batches: dict[str, int], hint: str
) -> None:
    plan = plan_with_tools({**write_node("m", to="{{item}}"), "for_each": list(range(1_200))})
    origin = ended_map_scheduler(plan, size=1, **map_batches)
    _, reuse, _ = create_fork(origin, plan, is_open=is_open)
    message = "the items of 'm' run in child runs, and some may have had effects already"
    assert reuse.problems == [f"{message}: {hint}"]
    _, reuse, _ = create_fork(origin, plan, is_open=is_open, rerun=["m"])
    assert reuse.problems == []


COMPENSABLE_TOOLS = {
    "look": TOOLS["look"],
    "book": ToolDeclaration("book", Effects.IDEMPOTENT, version="1", undo="free"),
    "free": ToolDeclaration("free", Effects.IDEMPOTENT, version="1"),
}


def compensating_run(results: Mapping[str, Any]) -> RunScheduler:
    """Return a run of two bookings with compensation. The tasks of the run ended with these results or errors."""
    bookings = (write_node("a", tool="book"), write_node("b", "a", tool="book"))
    plan = plan_with_tools(look_node("r"), *bookings, look_node("end", "b"), tools=COMPENSABLE_TOOLS)
    return ended_scheduler(plan, results, setup={"compensate": True})


def test_compensated_calls_are_made_again_with_a_new_key() -> None:
    results = {"r": 1, "a": 1, "b": 2, "end": tool_error()}
    origin = compensating_run(results | {"undo b": None, "undo a": None})
    plan = without_compensation(origin.plan)
    assert [node.id for node in plan.nodes] == ["r", "a", "b", "end"]
    fork, reuse, prediction = create_fork(origin, plan)
    assert (prediction.reused, prediction.executed) == (["r"], {"a": "was compensated"})
    assert prediction.decided_later == ["b", "end"]
    assert start_and_return_scopes(fork) == {"a": None}
    assert not reuse.problems
    origin = compensating_run(results | {"undo b": tool_error()})
    _, reuse, _ = create_fork(origin, without_compensation(origin.plan), is_open=True)
    assert (reuse.compensated_ids, list(reuse.table.results)) == (frozenset({"a"}), ["r", "b", "end"])
    origin = compensating_run(results | {"undo b": NodeError("timeout", "late"), "undo a": None})
    plan = without_compensation(origin.plan)
    message = "it is unknown whether 'b' was compensated: check it, and add it to `rerun` to run it again"
    assert create_fork(origin, plan)[1].problems == [message]
    assert not create_fork(origin, plan, rerun=["b"])[1].problems
