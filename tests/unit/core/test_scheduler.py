"""The scheduler: joins, failures, conditions, items, cancellation, and the result of the run."""

from collections import Counter
from typing import Any

import pytest

from dagwright.core.model.states import Attempt, NodeError
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.scheduler import map_items
from dagwright.core.scheduler.readiness import max_calls_of_tool
from dagwright.features.explain.why import why
from dagwright.features.run_scheduler import RunScheduler
from tests.support.plan_building import (
    compiled_plan,
    end_task,
    error_of,
    ids_of,
    node,
    plan_of,
    scheduler_of,
    start_ready_tasks,
    started_run,
    started_scheduler,
    statuses_of,
    tool_error,
)


def run_to_end(scheduler: RunScheduler, **results: Any) -> list[str]:
    """Run all tasks and return their IDs in order.

    `results` maps a node ID to the result or error of its tasks. The default result is the ID of the task.
    """
    order: list[str] = []
    while tasks := start_ready_tasks(scheduler):
        for task in tasks:
            order.append(task.id)
            end_task(scheduler, task, results.get(task.node.id, task.id), at=1.0)
    return order


DIAMOND = (node("a"), node("b", "a"), node("c", "a"), node("d", "b", "c"))


def test_failure_blocks_dependents_and_blocked_nodes_name_failed_nodes_in_plan_order() -> None:
    scheduler = scheduler_of(*DIAMOND, node("e"))
    run_to_end(scheduler, b=tool_error())
    statuses = {"a": "completed", "b": "failed", "c": "completed", "d": "blocked", "e": "completed"}
    assert statuses_of(scheduler) == statuses
    assert error_of(scheduler, "d") == ("dependency_failed", "Waiting for dependency: b failed")
    assert scheduler.records[3].blocked_by == ("b",)
    assert scheduler.status() == "completed_with_failures"
    scheduler = scheduler_of(node("z", "y"), node("x"), node("y", "w", "x"), node("w"))
    run_to_end(scheduler, w=tool_error(), x=tool_error())
    assert scheduler.records[0].blocked_by == ("x", "w")
    assert error_of(scheduler, "z") == ("dependency_failed", "Waiting for dependency: x, w failed")


@pytest.mark.parametrize(
    ("on_error", "expected_statuses", "run_status"),
    [
        ("block", ("failed", "blocked"), "failed"),
        ("skip", ("failed", "skipped"), "failed"),
        ({"value": 7}, ("completed", "completed"), "completed"),
    ],
)
def test_on_error_sets_the_effect_of_a_failure(
    on_error: Any, expected_statuses: tuple[str, str], run_status: str
) -> None:
    scheduler = scheduler_of(node("a", on_error=on_error), node("b", arguments={"x": "{{a.result}}"}))
    arguments = []
    while tasks := start_ready_tasks(scheduler):
        arguments += [task.arguments for task in tasks]
        for task in tasks:
            end_task(scheduler, task, tool_error("no") if task.id == "a" else 1, at=1.0)
    assert tuple(statuses_of(scheduler).values()) == expected_statuses
    assert scheduler.status() == run_status
    assert error_of(scheduler, "a") == ("tool_failed", "no")
    assert arguments[1:] == ([{"x": 7}] if run_status == "completed" else [])


@pytest.mark.parametrize(
    ("join", "statuses_by_ends"),
    [
        ("all", {"CC": "pending", "CCC": "running", "CFC": "blocked", "CSC": "skipped", "FSC": "blocked"}),
        ("any", {"FFC": "running", "FFS": "running", "FFF": "blocked", "C": "running"}),
        ({"at_least": 2}, {"CFC": "running", "CFF": "blocked", "SSF": "running"}),
        ("all_done", {"FFF": "running", "FSC": "running", "FS": "pending"}),
    ],
)
def test_join_depends_on_the_ends_of_the_dependencies(join: Any, statuses_by_ends: dict[str, str]) -> None:
    """C, F and S are completed, failed and skipped dependencies. A dependency without a letter has not ended."""
    assert {ends: _status_after_join(join, ends) for ends in statuses_by_ends} == statuses_by_ends


def _status_after_join(join: Any, ends: str) -> str:
    ids = ["a", "b", "c"]
    # A test can only end tasks, so a skipped dependency is a node with a false condition.
    dependencies = [
        node(node_id, when="false") if letter == "S" else node(node_id)
        for node_id, letter in zip(ids, ends.ljust(3), strict=True)
    ]
    scheduler = started_run(*dependencies, node("z", *ids, join=join))
    for node_id, letter in zip(ids, ends, strict=False):
        if letter == "F":
            scheduler.fail(node_id, tool_error(), at=1.0)
        elif letter == "C":
            scheduler.complete(node_id, 1, at=1.0)
    start_ready_tasks(scheduler)
    return statuses_of(scheduler)["z"]


def test_result_of_a_node_that_did_not_complete_is_null_and_its_error_can_be_read() -> None:
    texts_and_values = {
        "result": ("{{a.result.deep.path}}", None),
        "status": ("{{a.status}}", "failed"),
        "error": ("{{a.error.message}}", "no"),
        "blocked": ("{{b.status}}: {{b.error.code}}", "blocked: dependency_failed"),
        "skipped": ("{{s.result}}", None),
        "none": ("{{s.error}}", None),
    }
    reads = {name: text for name, (text, _) in texts_and_values.items()}
    skipped_node, reader = node("s", when="false"), node("z", join="all_done", arguments=reads)
    scheduler = started_run(node("a"), node("b", "a"), skipped_node, reader)
    scheduler.fail("a", tool_error("no"), at=1.0)
    (task,) = start_ready_tasks(scheduler)
    assert task.arguments == {name: value for name, (_, value) in texts_and_values.items()}


def test_missing_data_fails_the_node_or_the_run() -> None:
    scheduler = scheduler_of(node("fetch"), node("b", arguments={"x": ["{{fetch.result.data[0].emial}}"]}))
    run_to_end(scheduler, fetch={"data": [{"name": "S", "email": "s@x.org"}]})
    message = "Missing data: fetch.result.data[0].emial: 'emial' not found in fetch.result.data[0]; it has email, name"
    assert error_of(scheduler, "b") == ("missing_data", message)
    scheduler = scheduler_of(node("a"), output="{{a.result.x}}")
    run_to_end(scheduler, a={"y": 1})
    error = NodeError("missing_data", "output: Missing data: a.result.x: 'x' not found in a.result; it has y")
    assert (scheduler.status(), scheduler.state.error, scheduler.output()) == ("failed", error, (None, error))


def test_false_condition_skips_dependents_and_non_boolean_condition_fails() -> None:
    scheduler = scheduler_of(node("a"), node("b", when="a.result > 3"), node("c", "b"), node("d", "b", join="any"))
    assert run_to_end(scheduler, a=2) == ["a", "d"]
    assert statuses_of(scheduler) == {"a": "completed", "b": "skipped", "c": "skipped", "d": "completed"}
    assert scheduler.status() == "completed"
    scheduler = scheduler_of(node("a"), node("b", when="a.result + 1"))
    run_to_end(scheduler, a=2)
    assert error_of(scheduler, "b") == ("invalid_condition", "when: 'a.result + 1' is neither true nor false but 3")


def test_items_start_in_order_with_ids_keys_and_paths() -> None:
    arguments = {"path": "{{item.path}}", "at": "{{index}}"}
    scheduler = started_run(
        node("list"),
        node("sum", for_each="{{list.result.files}}", key="{{item.name}}", arguments=arguments),
        node("z", arguments={"all": "{{sum.result}}"}),
    )
    scheduler.complete("list", {"files": [{"name": "n", "path": 1}, {"name": "s", "path": 2}]}, at=1.0)
    assert [(task.id, task.arguments, task.path) for task in start_ready_tasks(scheduler)] == [
        ("sum[n]", {"path": 1, "at": 0}, [["node", "sum"], ["item", "n"]]),
        ("sum[s]", {"path": 2, "at": 1}, [["node", "sum"], ["item", "s"]]),
    ]
    scheduler.complete("sum[s]", "second", at=2.0)
    scheduler.complete("sum[n]", "first", at=3.0)
    assert [task.arguments for task in start_ready_tasks(scheduler)] == [{"all": ["first", "second"]}]


@pytest.mark.parametrize(
    ("value", "status", "code"),
    [
        ([], "completed", None),
        (None, "skipped", None),
        ("text", "failed", "invalid_for_each"),
        ({"a": 1}, "failed", "invalid_for_each"),
        (["a", "b", "a"], "failed", "duplicate_key"),
        (["x"] * 1_001, "failed", "too_large"),
    ],
)
def test_value_of_for_each_determines_the_status_of_its_node(
    value: Any, status: str, code: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_items, "MAX_ITEMS", 1_000)
    key = {"key": "{{item}}"} if value == ["a", "b", "a"] else {}
    scheduler = scheduler_of(node("a"), node("m", for_each="{{a.result}}", **key), node("z", "m", join="all_done"))
    assert run_to_end(scheduler, a=value) == ["a", "z"]
    record = scheduler.records[1]
    assert record.status.value == status
    assert (record.error.code if record.error else None) == code
    assert record.result == ([] if value == [] else None)


def test_key_of_an_item_cannot_create_the_id_of_another_node() -> None:
    scheduler = scheduler_of(node("m", for_each=["x"], key="{{item}}"), node("m[x]"))
    assert run_to_end(scheduler) == ["m[x]"]
    expected = ("duplicate_key", "'m[x]' names two items or nodes; the keys of 'm' must be unique")
    assert error_of(scheduler, "m") == expected


def test_failed_items_fail_the_node_or_have_the_value_of_on_error() -> None:
    scheduler = started_run(node("m", for_each=[1, 2, 3]), node("z", "m"))
    scheduler.fail("m[1]", tool_error("one"), at=1.0)
    scheduler.fail("m[2]", tool_error("two"), at=2.0)
    assert statuses_of(scheduler) == {"m": "running", "z": "pending"}
    scheduler.complete("m[0]", 1, at=3.0)
    assert statuses_of(scheduler) == {"m": "failed", "z": "blocked"}
    assert error_of(scheduler, "m") == ("tool_failed", "2 of 3 items failed; the first: m[1]: one")
    scheduler = started_run(node("m", for_each=[1, 2], on_error={"value": None}))
    scheduler.fail("m[0]", tool_error("one"), at=1.0)
    scheduler.complete("m[1]", 2, at=1.0)
    assert (scheduler.records[0].result, scheduler.status()) == ([None, 2], "completed")
    assert error_of(scheduler, "m[0]") == ("tool_failed", "one")


def test_condition_on_the_item_skips_items_and_condition_on_inputs_skips_the_node() -> None:
    scheduler = scheduler_of(node("m", for_each=[1, 5, 2], when="item > 1 && index < 2"))
    assert run_to_end(scheduler) == ["m[1]"]
    assert scheduler.records[0].result == [None, "m[1]", None]
    assert [item.record.status for item in scheduler.records[0].items] == ["skipped", "completed", "skipped"]
    scheduler = scheduler_of(node("m", for_each=[1, 5], when="inputs.go"), inputs={"go": False})
    assert (run_to_end(scheduler), statuses_of(scheduler)) == ([], {"m": "skipped"})


def test_max_parallel_limits_the_items_of_a_node_and_the_calls_of_a_tool() -> None:
    scheduler = scheduler_of(
        node("m", for_each=[0, 1, 2, 3], max_parallel=2, tool="pair"), node("a", tool="pair"), node("b", tool="pair")
    )
    assert ids_of(start_ready_tasks(scheduler)) == ["m[0]", "m[1]"]
    scheduler.complete("m[0]", 1, at=1.0)
    assert ids_of(start_ready_tasks(scheduler)) == ["m[2]"]
    scheduler.complete("m[2]", 1, at=1.0)
    scheduler.complete("m[1]", 1, at=1.0)
    assert ids_of(start_ready_tasks(scheduler)) == ["m[3]", "a"]
    scheduler.complete("a", 1, at=1.0)
    assert ids_of(start_ready_tasks(scheduler)) == ["b"]


def test_calls_of_a_tool_leave_slots_to_other_tools_but_do_not_delay_map_batches() -> None:
    max_calls = max_calls_of_tool(0)
    small_maps = [node(f"m{number}", for_each=[*range(300)], arguments={"x": "{{item}}"}) for number in range(2)]
    scheduler = scheduler_of(*small_maps, node("other", tool="pair", priority=5))
    assert len(ids_of(start_ready_tasks(scheduler))) == max_calls + 1
    scheduler.complete("other", 1, at=1.0)
    assert (scheduler.in_flight, ids_of(start_ready_tasks(scheduler))) == (max_calls, [])
    scheduler.complete("m0[0]", 1, at=1.0)
    assert ids_of(start_ready_tasks(scheduler)) == ["m1[100]"]
    (reason,) = why(scheduler, "m1[101]", calls={}).reasons
    assert reason.detail == "400 calls of any run; the remaining slots are reserved for other tools"

    # Tools that cannot be paused have no such limit.
    pure_map = node("m", for_each=[*range(max_calls + 50)], tool="typed", arguments={"name": "ann"})
    assert len(ids_of(start_ready_tasks(scheduler_of(pure_map)))) == max_calls + 50

    large_map = node("large", for_each=[*range(600)], arguments={"x": "{{item}}"}, priority=5)
    full_scheduler = scheduler_of(*small_maps, large_map)
    task_ids = ids_of(start_ready_tasks(full_scheduler))
    assert len(task_ids) == 404
    assert next(task_id for task_id in task_ids if task_id.startswith("large")) == "large[0-149]"


def test_calls_of_several_tools_leave_slots_to_another_tool_and_share_released_slots() -> None:
    maps = [node(f"m{number}", for_each=[*range(500)], tool=f"t{number}", arguments={"x": 1}) for number in range(4)]
    late_node = node("late", "first", tool="pair")
    tools = {name: ToolDeclaration(name) for name in ("t0", "t1", "t2", "t3", "pair", "first")}
    scheduler = scheduler_of(*maps, node("first", tool="first", priority=1), late_node, tools=tools)
    running_counts = Counter(task_id.split("[")[0] for task_id in ids_of(start_ready_tasks(scheduler)))
    assert running_counts == {"first": 1, "m0": 399, "m1": 80, "m2": 16, "m3": 3}
    (reason,) = why(scheduler, "m1[80]", calls={}).reasons
    expected = "80 calls of t1 and 419 calls of other tools run; the remaining slots are reserved for other tools"
    assert reason.detail == expected
    # All calls of t0 to t3 keep running, as if these tools were paused. The call of `pair` still starts.
    scheduler.complete("first", 1, at=1.0)
    assert ids_of(start_ready_tasks(scheduler)) == ["m3[3]", "late"]
    # All tools share the released slots.
    for item in range(300):
        scheduler.complete(f"m0[{item}]", 1, at=1.0)
        running_counts.update(task_id.split("[")[0] for task_id in ids_of(start_ready_tasks(scheduler)))
    in_flight = running_counts - Counter(m0=300, first=1) + Counter(m3=1, late=1)
    assert in_flight == {"m0": 120, "m1": 117, "m2": 116, "m3": 116, "late": 1}
    assert scheduler.in_flight == in_flight.total() == 470


def test_slot_of_a_node_whose_argument_fails_is_used_by_the_next_call() -> None:
    scheduler = scheduler_of(
        node("facts"),
        node("first", tool="single"),
        node("wrong", tool="single", arguments={"x": "{{facts.result.none}}"}),
        node("next", tool="single"),
    )
    assert ids_of(start_ready_tasks(scheduler)) == ["facts", "first"]
    scheduler.complete("facts", {}, at=1.0)
    scheduler.complete("first", 1, at=1.0)
    assert ids_of(start_ready_tasks(scheduler)) == ["next"]
    assert statuses_of(scheduler)["wrong"] == "failed"


def test_fail_fast_cancels_unstarted_nodes_and_fails_the_run() -> None:
    nodes = (node("a"), node("b", "a"), node("slow"), node("after", "slow"))
    scheduler = started_run(*nodes, on_failure="fail_fast", output="{{slow.result}}")
    scheduler.fail("a", tool_error("no"), at=1.0)
    assert statuses_of(scheduler) == {"a": "failed", "b": "blocked", "slow": "running", "after": "cancelled"}
    assert scheduler.is_stopped
    scheduler.complete("slow", 1, at=2.0)
    assert (scheduler.is_finished, scheduler.status()) == (True, "failed")
    assert scheduler.state.error == NodeError("fail_fast", "'a' failed: no")
    map_node = node("a", for_each="{{PLACEHOLDER_files}}")
    scheduler = scheduler_of(map_node, node("b"), inputs={"files": 3}, on_failure="fail_fast")
    assert start_ready_tasks(scheduler) == []
    assert statuses_of(scheduler) == {"a": "failed", "b": "cancelled"}
    assert (scheduler.is_finished, scheduler.status()) == (True, "failed")


def test_cancellation_keeps_completed_results_and_a_cancelled_task_blocks_its_dependents() -> None:
    scheduler = started_run(*DIAMOND, node("m", for_each=[1, 2], max_parallel=1))
    scheduler.complete("a", 5, at=1.0)
    assert ids_of(start_ready_tasks(scheduler)) == ["b", "c"]
    scheduler.cancel(2.0, reason="enough")
    statuses = {"a": "completed", "b": "running", "c": "running", "d": "cancelled", "m": "running"}
    assert statuses_of(scheduler) == statuses
    assert start_ready_tasks(scheduler) == []
    scheduler.task_cancelled("b", at=3.0)
    scheduler.complete("c", 6, at=3.0)
    scheduler.task_cancelled("m[0]", at=3.0)
    final_statuses = {"a": "completed", "b": "cancelled", "c": "completed", "d": "cancelled", "m": "cancelled"}
    assert statuses_of(scheduler) == final_statuses
    assert [scheduler.records[number].reason for number in (1, 3)] == [None, "enough"]
    assert (scheduler.is_finished, scheduler.status()) == (True, "cancelled")
    scheduler = started_run(node("a"), node("b", "a"))
    scheduler.task_cancelled("a", at=1.0, reason="not wanted")
    assert statuses_of(scheduler) == {"a": "cancelled", "b": "blocked"}
    assert error_of(scheduler, "b") == ("dependency_failed", "Waiting for dependency: a was cancelled")


@pytest.mark.parametrize(("count", "expected_start"), [(1, 8.0), (3, 5.0)])
def test_record_has_the_attempt_count_the_times_and_the_tool_version(count: int, expected_start: float) -> None:
    """After a single attempt, a record has the start that the worker reports; otherwise, the start of the task."""
    scheduler = scheduler_of(node("a"))
    start_ready_tasks(scheduler, at=5.0)
    scheduler.complete("a", 1, at=9.0, attempt=Attempt(count=count, started_at=8.0, tool_version="v2"))
    record = scheduler.records[0]
    actual = (record.attempts, record.started_at, record.ended_at, record.tool_version)
    assert actual == (count, expected_start, 9.0, "v2")


@pytest.mark.parametrize(
    ("fields", "failing_nodes", "run_status", "output"),
    [
        ({}, (), "completed", {"c": "c", "d": "d"}),
        ({}, ("b",), "completed_with_failures", {"d": "d"}),
        ({}, ("a",), "failed", {}),
        ({"output": "{{a.result}}"}, ("b", "d"), "completed_with_failures", "a"),
        ({"output": {"x": ["{{b.status}}", 1]}}, ("b", "d"), "failed", {"x": ["failed", 1]}),
        ({"output": "{{c.result}}"}, ("c",), "failed", None),
        ({"output": "only text"}, ("c",), "completed_with_failures", "only text"),
    ],
)
def test_status_and_output_after_failures(
    fields: dict[str, Any], failing_nodes: tuple[str, ...], run_status: str, output: Any
) -> None:
    scheduler = scheduler_of(node("a"), node("b", "a"), node("c", "b"), node("d", "a"), **fields)
    run_to_end(scheduler, **{name: tool_error() for name in failing_nodes})
    assert (scheduler.status(), scheduler.output()) == (run_status, (output, None))


def test_default_of_an_input_replaces_a_missing_value() -> None:
    input_schemas = {"n": {"type": "integer", "default": 4}, "m": {"type": "integer", "default": 5}}
    consumer = node("a", arguments={"n": "{{PLACEHOLDER_n}}", "m": "{{PLACEHOLDER_m}}"})
    scheduler = started_scheduler(compiled_plan(plan_of(consumer, inputs=input_schemas)), {"m": 6})
    assert [task.arguments for task in start_ready_tasks(scheduler)] == [{"n": 4, "m": 6}]


def test_worker_tool_that_reports_a_failure_fails_its_node() -> None:
    plan = compiled_plan(plan_of(*map(node, ("ok", "part", "bad", "plain"))), worker_tool_nodes=range(4))
    scheduler = started_scheduler(plan)
    run_to_end(
        scheduler,
        ok={"status": "success", "outputs": {"x": 1}},
        part={"status": "partial", "outputs": {"x": 2}},
        bad={"status": "failed", "error": "no data"},
        plain={"x": 3},
    )
    assert [(record.status, record.result, record.partial) for record in scheduler.records] == [
        ("completed", {"x": 1}, False),
        ("completed", {"x": 2}, True),
        ("failed", None, False),
        ("completed", {"x": 3}, False),
    ]
    assert error_of(scheduler, "bad") == ("worker_failed", "no data")
    # Metadata of a plan does not make its nodes calls of worker tools.
    plain_scheduler = scheduler_of(node("a", metadata={"worker": True}))
    result = {"status": "failed", "outputs": {}, "error": "no data"}
    run_to_end(plain_scheduler, a=result)
    assert (plain_scheduler.records[0].status, plain_scheduler.records[0].result) == ("completed", result)


def test_chain_of_many_nodes_does_not_overflow_the_stack() -> None:
    nodes = [node("n0"), *(node(f"n{number}", f"n{number - 1}") for number in range(1, 5_000))]
    scheduler = started_run(*nodes)
    scheduler.fail("n0", tool_error(), at=1.0)
    assert scheduler.is_finished
    assert scheduler.records[-1].blocked_by == ("n0",)


def test_first_end_of_a_run_is_final() -> None:
    scheduler = started_run(node("a"), node("b", "a"))
    scheduler.cancel(1.0, reason="enough")
    scheduler.abort(NodeError("deadline_exceeded", "too late"), 2.0)
    scheduler.cancel(3.0, reason="again")
    scheduler.task_cancelled("a", at=4.0)
    assert (scheduler.status(), scheduler.state.error, scheduler.records[1].reason) == ("cancelled", None, "enough")
    scheduler = started_run(node("a"), node("b", "a"))
    scheduler.abort(NodeError("deadline_exceeded", "too late"), 1.0)
    scheduler.abort(NodeError("too_large", "no room"), 2.0)
    scheduler.cancel(3.0, reason="enough")
    scheduler.task_cancelled("a", at=4.0)
    assert (scheduler.status(), scheduler.state.error) == ("failed", NodeError("deadline_exceeded", "too late"))
    assert (scheduler.state.cancelled, scheduler.records[1].reason) == (False, "too late")


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("é" * 101, "the key of item 1 has 202 bytes of UTF-8; at most 200 are allowed"),
        ("\ud800", "the key of item 1 holds a lone surrogate, which is not a character"),
    ],
)
def test_key_that_cannot_be_part_of_an_id_fails_the_node(key: str, message: str) -> None:
    map_node = node("m", for_each="{{PLACEHOLDER_items}}", key="{{item}}")
    scheduler = scheduler_of(map_node, inputs={"items": ["é" * 100, key]})
    assert (statuses_of(scheduler), error_of(scheduler, "m")) == ({"m": "failed"}, ("invalid_key", message))
