"""Short calls share an activity, and have the same results as ordinary calls."""

from typing import Any

import pytest
from temporalio import activity

from dagwright.activities import batch_records, call_batch
from dagwright.activities.batch_records import HeartbeatRecords
from dagwright.core.boundary import wire
from dagwright.protocol.call_batches import CallBatchResult
from dagwright.protocol.idempotency import idempotency_key
from dagwright.store.bucket import BucketStore
from tests.support.eventually import eventually
from tests.support.goals import call_node
from tests.support.people import tool_node
from tests.support.plan_building import plan_of
from tests.support.run_views import view_of, wait_for_node
from tests.support.runs import (
    SKIPPED,
    Handle,
    Runs,
    bare_document,
    blocked_node,
    completed_node,
    document_of,
    failed_node,
    without_cache,
)
from tests.support.tools import CallHarness
from tests.workflow.building import Gate
from tests.workflow.test_regions import read_activity_ids

pytestmark = pytest.mark.server


@pytest.fixture
def long_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow more time for a batch, because the machine may be busy."""
    monkeypatch.setattr(call_batch, "CALL_BATCH_S", 60.0)
    monkeypatch.setattr(call_batch, "SLOW_CALL_S", 60.0)


def short_node(node_id: str, name: str, value: Any = 1, **fields: Any) -> dict[str, Any]:
    return {"id": node_id, "tool": "short", "arguments": {"name": f"{name} {node_id}", "value": value}, **fields}


def chain(name: str, length: int) -> list[dict[str, Any]]:
    dependents = [short_node(f"n{n}", name, f"{{{{n{n - 1}.result}}}}") for n in range(1, length)]
    return [short_node("n0", name, 7), *dependents]


async def statuses_of(runs: Runs, handle: Handle) -> dict[str, str]:
    """Return the status of every node as `RunReader` reports it."""
    view = await view_of(runs, handle)
    assert view.scheduler is not None
    return {node.id: record.status.value for node, record in view.scheduler.state.visible_nodes()}


@without_cache
async def test_chain_of_short_calls_runs_in_one_activity(
    runs: Runs, harness: CallHarness, unique_name: str, long_batches: None
) -> None:
    handle = await runs.start({"nodes": chain(unique_name, 50), "output": "{{n49.result}}"})
    document = await document_of(handle)
    assert bare_document(document)["output"] == 7
    assert bare_document(document)["nodes"] == {f"n{n}": completed_node(7) for n in range(50)}
    node = document["nodes"]["n7"]
    assert (node["attempts"], node["tool"], node["lineage"]["inputs"]) == (1, "short", ["n6"])
    assert node["started_at"] <= node["ended_at"]
    assert node["lineage"]["tool_version"] == runs.versions["short"]
    execution_id = handle.first_execution_run_id
    assert execution_id is not None
    for n in range(50):
        assert harness.effects[f"{unique_name} n{n}"] == [idempotency_key(execution_id, [["node", f"n{n}"]])]
    assert await read_activity_ids(handle) == ["~batch from n0"]


async def test_nodes_of_a_batch_can_be_completed_skipped_failed_or_blocked(
    runs: Runs, harness: CallHarness, unique_name: str
) -> None:
    plan = plan_of(
        short_node("a", unique_name, "{{PLACEHOLDER_n}}"),
        short_node("no", unique_name, "{{a.result}}", when="a.result > inputs.n"),
        short_node("yes", unique_name, "{{a.result}}", when="a.result == inputs.n"),
        short_node("skipped", unique_name, "{{no.result}}"),
        short_node("bad", unique_name, "{{a.result.gone}}"),
        short_node("blocked", unique_name, "{{bad.result}}"),
        tool_node("busy", "short_busy", "a", arguments={"succeeds_at": 3}),
        tool_node("always_busy", "short_busy", arguments={"succeeds_at": 9}, retry={"max_attempts": 3}),
        short_node("value", unique_name, "{{a.result.gone}}", on_error={"value": 7}),
        short_node("after", unique_name, "{{value.result}}", depends_on=["yes", "busy"]),
        call_node("rows", "short_table", rows=2_000),
        short_node("row", unique_name, "{{rows.result[1999]}}"),
        short_node("each", unique_name, "{{item}}", for_each=["x", "y"]),
        inputs={"n": {"type": "integer"}},
    )
    document = await document_of(await runs.start(plan, inputs={"n": 1}))
    message = "missing_data: Missing data: a.result.gone: 'gone' not found in a.result; it is a number"
    nodes = bare_document(document)["nodes"]
    assert nodes.pop("rows")["status"] == "completed"
    assert nodes == {
        **{
            "a": completed_node(1),
            "no": SKIPPED,
            "yes": completed_node(1),
            "skipped": SKIPPED,
            "bad": failed_node(message),
        },
        **{
            "blocked": blocked_node("bad"),
            "busy": completed_node(3, attempts=3),
            "always_busy": failed_node("tool_failed: busy", attempts=3),
        },
        **{
            "value": completed_node(7, error=message),
            "after": completed_node(7),
            "row": completed_node("row 1999"),
            "each": completed_node(["x", "y"]),
        },
        **{"each[0]": completed_node("x"), "each[1]": completed_node("y")},
    }
    assert {len(harness.effects[f"{unique_name} {name}"]) for name in ("a", "yes", "after", "row")} == {1}


async def test_slow_call_leaves_its_batch_and_delays_no_other_node(runs: Runs, gate: Gate) -> None:
    hold_node = call_node("slow", "short_hold", name=gate.name)
    plan = plan_of(
        *chain(gate.name, 3),
        hold_node,
        short_node("after slow", gate.name, "{{slow.result}}"),
        tool_node("ordinary", "echo", "n2"),
        hold_node | {"id": "later", "depends_on": ["ordinary"]},
    )
    handle = await runs.start(plan)
    while (await handle.query("node", "ordinary"))["status"] != "completed":
        pass
    await eventually(lambda: gate.call_count == 2)
    expected = {"slow": "running", "after slow": "pending", "later": "running"}
    assert (await statuses_of(runs, handle)).items() >= expected.items()
    gate.open()
    nodes = bare_document(await document_of(handle))["nodes"]
    assert nodes["after slow"] == completed_node(gate.name)
    assert gate.call_count == 2, "the slow call continues in its own activity"
    assert {"slow", "later"} <= {*await read_activity_ids(handle)}


async def test_batches_with_large_arguments_are_split_between_workflow_tasks(runs: Runs, unique_name: str) -> None:
    """Together, the arguments exceed the 4 MB that the server accepts from one workflow task."""
    map_node = tool_node("each", "short", for_each=[f"{unique_name} {n}" for n in range(24)])
    plan = plan_of(
        map_node | {"arguments": {"name": "{{item}}", "value": ["{{PLACEHOLDER_large}}"]}},
        inputs={"large": {"type": "string"}},
    )
    assert (await runs.run(plan, inputs={"large": "x" * 240_000}))["nodes"]["each"]["status"] == "completed"


@without_cache
async def test_slow_call_that_left_its_batch_is_cancelled_with_its_node_or_run(
    runs: Runs, harness: CallHarness, unique_name: str
) -> None:
    nodes = [
        call_node("one", "short_hold", name=unique_name),
        call_node("two", "short_hold", name=unique_name),
        short_node("n", unique_name, "{{one.result}}"),
    ]
    handle = await runs.start({"nodes": nodes})

    async def have_left_the_batch() -> bool:
        return {"one", "two"} <= {*await read_activity_ids(handle)}

    await eventually(have_left_the_batch)
    assert (await handle.execute_update(wire.CANCEL_NODE, {"node_id": "one", "by": "ann"}))["ok"]
    await wait_for_node(runs, handle, "n", "blocked")
    assert harness.clean_ups.count(unique_name) == 1
    await handle.signal(wire.CANCEL, {"by": "ann"})
    document = bare_document(await document_of(handle))
    assert document["status"] == "cancelled"
    expected = {"one": "cancelled", "two": "cancelled", "n": "blocked"}
    assert {name: node["status"] for name, node in document["nodes"].items()} == expected
    assert harness.clean_ups.count(unique_name) == 2


async def test_next_attempt_of_a_batch_continues_from_the_heartbeat_records(
    runs: Runs, harness: CallHarness, unique_name: str, long_batches: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the payload store is a bucket, the records are sent as heartbeats."""
    # The worker then treats the folder of the test like a bucket.
    monkeypatch.setattr(batch_records, "FolderStore", BucketStore)
    original_record = HeartbeatRecords.record

    async def record_or_fail(self: HeartbeatRecords, result: CallBatchResult) -> bool:
        if result.call_ends[-1].task_id == "n2" and activity.info().attempt == 1:
            raise RuntimeError("the attempt is lost")
        return await original_record(self, result)

    monkeypatch.setattr(HeartbeatRecords, "record", record_or_fail)
    document = await document_of(await runs.start({"nodes": chain(unique_name, 5)}))
    expected = {**{f"n{n}": completed_node(7) for n in (0, 1, 3, 4)}, "n2": completed_node(7, attempts=2)}
    assert bare_document(document)["nodes"] == expected
    assert [len(harness.effects[f"{unique_name} n{n}"]) for n in range(5)] == [1, 1, 2, 1, 1]
    assert len({*harness.effects[f"{unique_name} n2"]}) == 1, "both attempts have the same key"
