"""Large maps in the scheduler: batches, their limits, their ends, and continue-as-new during a batch."""

from typing import Any

import pytest

from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.states import MapBatch, NodeError, NodeStatus, Task, TaskRef
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.scheduler import map_items
from dagwright.core.scheduler.map_items import MapBatchEnd, MapConcurrency, counts_of_items, map_concurrency
from dagwright.core.scheduler.readiness import Gate, ReadyQueue, gates_of
from dagwright.features.run_scheduler import RunScheduler
from dagwright.protocol.map_batch_messages import map_batch_end_from_json
from dagwright.protocol.map_batch_runs import map_batch_end_to_json
from dagwright.protocol.ready_calls import next_call
from tests.support.plan_building import (
    compiled_plan,
    error_of,
    node,
    plan_of,
    restored_scheduler,
    scheduler_of,
    start_ready_tasks,
    started_run,
    started_scheduler,
    statuses_of,
)

_MAP = node("m", for_each=list(range(1_200)), arguments={"x": "{{item}}"})
_PLAN = compiled_plan(plan_of(_MAP, node("z", "m")))


def _started_large_map(**options: Any) -> RunScheduler:
    return started_scheduler(_PLAN, at=1.0, **options)


def _map_node(node_id: str, count: int) -> dict[str, Any]:
    return node(node_id, for_each=list(range(count)), arguments={"x": "{{item}}"})


def _end_map_batch(scheduler: RunScheduler, task: Task, **end_fields: Any) -> None:
    assert task.map_batch is not None
    counts = {"completed": task.map_batch.count}
    document = {"values": [value * 2 for value in task.map_batch.items], "counts": counts, **end_fields}
    scheduler.end_map_batch(task.id, MapBatchEnd(document.pop("status", NodeStatus.COMPLETED), **document), at=2.0)


@pytest.mark.parametrize(
    ("node_limit", "tool_limit", "run_limit", "expected"),
    [
        (None, None, 500, MapConcurrency(4, 125)),
        (20, None, 500, MapConcurrency(4, 5)),
        (20, 7, 500, MapConcurrency(4, 1)),
        (2, None, 500, MapConcurrency(2, 1)),
        (None, None, 1, MapConcurrency(1, 1)),
    ],
)
def test_map_batches_share_the_smallest_limit(
    node_limit: int | None, tool_limit: int | None, run_limit: int, expected: MapConcurrency
) -> None:
    node, tool = CompiledNode(id="m", max_parallel=node_limit), ToolDeclaration("t", max_parallel=tool_limit)
    assert map_concurrency(node, tool, count=501, max_in_flight=run_limit) == expected


def test_results_of_map_batches_are_joined_in_the_run_or_by_a_task() -> None:
    scheduler = _started_large_map()
    tasks = start_ready_tasks(scheduler)
    assert [task.id for task in tasks] == ["m[0-299]", "m[300-599]", "m[600-899]", "m[900-1199]"]
    assert {(task.is_child_run, str(task.path)) for task in tasks} == {(True, "[['node', 'm']]")}
    for task in reversed(tasks):
        _end_map_batch(scheduler, task)
    assert scheduler.records[0].result == [number * 2 for number in range(1_200)]
    assert [task.id for task in start_ready_tasks(scheduler)] == ["z"]
    scheduler = _started_large_map()
    tasks = start_ready_tasks(scheduler)
    for number, task in enumerate(tasks):
        _end_map_batch(scheduler, task, values=None, pieces=[(f"sha256-{number}", 300)])
    (join_task,) = start_ready_tasks(scheduler)
    assert (join_task.id, join_task.is_child_run, join_task.is_join) == ("m[all]", False, True)
    scheduler.complete(join_task.id, "joined", at=3.0)
    assert scheduler.records[0].result == "joined"
    assert statuses_of(scheduler) == {"m": "completed", "z": "ready"}
    scheduler = _started_large_map()
    tasks = start_ready_tasks(scheduler)
    scheduler.cancel(1.5)
    for task in tasks:
        _end_map_batch(scheduler, task, values=None, pieces=[("sha256-x", 300)])
    assert scheduler.is_finished
    assert statuses_of(scheduler) == {"m": "cancelled", "z": "cancelled"}


def test_failed_items_are_counted_over_all_map_batches() -> None:
    scheduler = _started_large_map()
    ends: list[dict[str, Any]] = [
        {},
        {"status": NodeStatus.FAILED, "counts": {"completed": 298, "failed": 2}, "failed_key": "400"},
        {},
        {"status": NodeStatus.FAILED, "counts": {"completed": 299, "failed": 1}, "failed_key": "1000"},
    ]
    for task, end in zip(start_ready_tasks(scheduler), ends, strict=True):
        error = NodeError("odd", "no luck") if end else None
        _end_map_batch(scheduler, task, **end, error=error)
    record = scheduler.records[0]
    assert record.error == NodeError("odd", "3 of 1200 items failed; the first: m[400]: no luck")
    assert counts_of_items(record) == {"completed": 1_197, "failed": 3}
    assert statuses_of(scheduler) == {"m": "failed", "z": "blocked"}


def test_map_batch_reports_the_error_of_an_item_that_completed_with_its_default() -> None:
    scheduler = scheduler_of(node("m", for_each=["x", "y"], on_error={"value": 0}))
    (first_task, second_task) = start_ready_tasks(scheduler)
    scheduler.complete(first_task.id, 1, at=2.0)
    scheduler.fail(second_task.id, NodeError("odd", "no luck"), at=2.0)
    encoded = map_batch_end_to_json(scheduler, [])["map_batch"]
    error = NodeError("odd", "no luck")
    expected = MapBatchEnd(NodeStatus.COMPLETED, {"completed": 2}, [1, 0], [], error=error)
    assert map_batch_end_from_json(encoded, MapBatch(0, 2)) == expected


@pytest.mark.parametrize("ended_task_count", range(6))
def test_large_map_survives_continue_as_new_after_any_task(ended_task_count: int) -> None:
    scheduler = _started_large_map(max_in_flight=2)

    def continue_as_new() -> RunScheduler:
        successor = restored_scheduler(scheduler, _PLAN, max_in_flight=2)
        assert successor.in_flight == scheduler.in_flight
        return successor

    running_tasks = start_ready_tasks(scheduler)
    for number in range(5):
        if number == ended_task_count:
            scheduler = continue_as_new()
        task = running_tasks.pop(0)
        if task.is_join:
            scheduler.complete(task.id, "joined", at=3.0)
        else:
            _end_map_batch(scheduler, task, values=None, pieces=[("sha256-x", 300)])
        running_tasks += start_ready_tasks(scheduler)
    if ended_task_count == 5:
        scheduler = continue_as_new()
    assert scheduler.records[0].result == "joined"
    assert counts_of_items(scheduler.records[0]) == {"completed": 1_200}


def test_small_map_runs_in_a_child_run_if_the_run_has_many_items(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_items, "MAX_UNBATCHED_ITEMS", 500)
    plan = compiled_plan(plan_of(*(_map_node(f"m{number}", 200) for number in range(4))))
    scheduler = started_scheduler(plan, max_in_flight=500)
    tasks = start_ready_tasks(scheduler)
    assert [task.id for task in tasks if task.is_child_run] == ["m2[0-199]", "m3[0-199]"]
    item_ids = [f"m{number}[{key}]" for number in (0, 1) for key in range(200)]
    assert [task.id for task in tasks if not task.is_child_run] == item_ids
    assert scheduler.state.map_concurrency(2) == MapConcurrency(1, 500)


def test_map_that_exceeds_the_item_limit_of_a_run_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_items, "MAX_RUN_ITEMS", 1_500)
    scheduler = scheduler_of(*(_map_node(f"m{number}", 600) for number in range(3)))
    assert statuses_of(scheduler) == {"m0": "running", "m1": "running", "m2": "failed"}
    assert error_of(scheduler, "m2") == (
        "too_large",
        "for_each has 600 items, and other nodes of the run have 1,200; at most 1,500 are allowed in total: "
        "move some items into sub-plans, which are separate runs",
    )


@pytest.mark.parametrize("continues_as_new", [False, True])
def test_items_of_all_nodes_count_toward_the_limit_even_after_continue_as_new(
    monkeypatch: pytest.MonkeyPatch, continues_as_new: bool
) -> None:
    monkeypatch.setattr(map_items, "MAX_RUN_ITEMS", 1_500)
    nodes = (node("m", for_each=list(range(1_000))), node("a"), node("n", "a", for_each=list(range(600))))
    scheduler = started_run(*nodes)
    if continues_as_new:
        scheduler = restored_scheduler(scheduler)
    scheduler.complete("a", None, at=2.0)
    assert statuses_of(scheduler) == {"m": "running", "a": "completed", "n": "failed"}


def test_failing_items_of_many_maps_run_in_child_runs() -> None:
    maps = [node(f"m{number}", for_each="{{a.result}}", arguments={"x": "{{item.gone}}"}) for number in range(20)]
    scheduler = started_run(node("a"), *maps)
    scheduler.complete("a", [{}] * 9_000, at=1.0)
    tasks = start_ready_tasks(scheduler)
    assert [task.is_child_run for task in tasks] == [True] * 20 * 4
    # Each map has 20 map batches, and one task that joins their results.
    assert [len(record.items) for record in scheduler.records[1:]] == [20 + 1] * 20


def test_keys_or_map_batches_over_the_compute_budget_fail_their_node() -> None:
    scheduler = started_run(node("a"), node("m", for_each="{{a.result}}", key="{{item.k}}"))
    scheduler.complete("a", [{"k": 1}] * 120_000, at=1.0)
    assert error_of(scheduler, "m")[0] == "too_large"
    when = "a.result != '' && item < 400"
    scheduler = started_run(node("a"), node("m", for_each=list(range(501)), when=when, arguments={"x": "{{item}}"}))
    scheduler.complete("a", "x" * 1_600_000, at=1.0)
    assert next_call(scheduler, 1.0) is None
    code, message = error_of(scheduler, "m")
    assert (code, statuses_of(scheduler)["m"]) == ("too_large", "failed")
    assert "501 of 501 items failed; the first: m[0-125]: the items m[0-125] and the values that they read" in message


def test_task_of_width_two_takes_two_slots_of_a_limit() -> None:
    gate = Gate(5, spans_runs=True)
    queue = ReadyQueue([[gate], [gate]], 500, result_bytes=[0, 0])
    queue.set_task_width(0, max_tasks=2, width=2)
    entries = [(3, TaskRef(0, 0)), (3, TaskRef(0, 1)), (3, TaskRef(0, 2)), (4, TaskRef(1, 0)), (4, TaskRef(1, 1))]
    for entry in entries:
        queue.push(entry)
    assert [queue.pop() for _ in range(4)] == [entries[0], entries[1], entries[3], None]
    queue.release(0)
    assert [queue.pop() for _ in range(3)] == [entries[2], None, None]
    for number in (0, 0, 1):
        queue.release(number)
    assert [queue.pop(), queue.pop()] == [entries[4], None]


def test_ready_calls_of_a_tool_leave_slots_for_map_batches() -> None:
    tools = {"t": ToolDeclaration("t", max_parallel=450)}
    plan = compiled_plan(plan_of(node("each", tool="t"), node("wide", tool="t")), tools=tools)
    queue = ReadyQueue(gates_of(plan), 500, result_bytes=[0, 0])
    queue.set_task_width(1, max_tasks=5, width=10)
    for item in range(450):
        queue.push((3, TaskRef(0, item)))
    for item in range(5):
        queue.push((4, TaskRef(1, item)))
    started_nodes = [entry[1].node for entry in iter(queue.pop, None)]
    assert started_nodes == [0] * 400 + [1] * 5


# The default limit of 500 applies to each map, and not to the whole run.
@pytest.mark.parametrize(("run_limit", "max_running"), [(10, 10), (3, 3), (1, 1), (500, 1_501)])
def test_maps_share_the_max_parallel_of_the_run_if_it_is_not_the_default(run_limit: int, max_running: int) -> None:
    maps = [_map_node(f"m{number}", 1_200) for number in range(3)]
    scheduler = started_scheduler(compiled_plan(plan_of(*maps, node("a"))), at=1.0, max_in_flight=run_limit)
    running_tasks, running_counts = start_ready_tasks(scheduler), []
    while running_tasks:
        item_limits = [scheduler.state.map_concurrency(task.ref.node).max_items for task in running_tasks]
        widths = [limit if task.is_child_run else 1 for task, limit in zip(running_tasks, item_limits, strict=True)]
        running_counts.append(sum(widths))
        task = running_tasks.pop(0)
        if task.is_child_run:
            _end_map_batch(scheduler, task, values=None, pieces=[("sha256-x", 300)])
        else:
            scheduler.complete(task.id, "done", at=2.0)
        running_tasks += start_ready_tasks(scheduler)
    assert max(running_counts) == max_running
    assert set(statuses_of(scheduler).values()) == {"completed"}


def test_running_map_batches_keep_their_slots_after_continue_as_new() -> None:
    plan = compiled_plan(plan_of(*(_map_node(f"m{number}", 1_200) for number in range(2))))
    scheduler = started_scheduler(plan, at=1.0, max_in_flight=10)
    ids = [task.id for task in start_ready_tasks(scheduler)]
    assert ids == ["m0[0-299]", "m0[300-599]", "m0[600-899]", "m0[900-1199]", "m1[0-299]"]
    successor = restored_scheduler(scheduler, plan, max_in_flight=10)
    assert start_ready_tasks(successor) == []
    map_batch = successor.state.map_batch_of(ids[0])
    first_task = Task(ids[0], successor.plan.nodes[0], TaskRef(0, 0), {}, [], map_batch=map_batch)
    _end_map_batch(successor, first_task)
    assert [task.id for task in start_ready_tasks(successor)] == ["m1[300-599]"]
