"""Commands that cancel and retry nodes, and the rejection of invalid commands."""

from typing import Any

import pytest

from dagwright.core.boundary import wire
from tests.support.eventually import eventually
from tests.support.goals import call_node
from tests.support.people import echo_node, hold_node, rejection_of
from tests.support.run_views import view_of, wait_for_node
from tests.support.runs import Handle, Runs, bare_document, completed_node, without_cache
from tests.support.tools import CallHarness
from tests.workflow.building import Gate, ended_document

pytestmark = pytest.mark.server


async def _send_command(handle: Handle, command: str, **message: Any) -> Any:
    return await handle.execute_update(command, {"by": "ann", **message})


async def test_calls_of_cancelled_items_and_sub_plans_are_cancelled(
    runs: Runs, harness: CallHarness, unique_name: str
) -> None:
    child_plan = {"plan": 1, "nodes": [hold_node("inner", f"{unique_name} inner")]}
    map_node = hold_node("m", "{{item}}", for_each=[f"{unique_name} x", f"{unique_name} y"], key="{{index}}")
    handle = await runs.start({"nodes": [{"id": "sub", "plan": child_plan}, map_node]})
    gate_names = {f"{unique_name} {suffix}" for suffix in ("inner", "x", "y")}
    await eventually(lambda: gate_names <= set(harness.entered))
    await _send_command(handle, wire.CANCEL_NODE, node_id="sub")
    await _send_command(handle, wire.CANCEL_NODE, node_id="m[1]")
    await eventually(lambda: {f"{unique_name} inner", f"{unique_name} y"} <= set(harness.clean_ups))
    harness.open(f"{unique_name} x")
    nodes = bare_document(await ended_document(runs, handle))["nodes"]
    expected = {"sub": "cancelled", "m": "cancelled", "m[0]": "completed", "m[1]": "cancelled"}
    assert {node_id: node["status"] for node_id, node in nodes.items()} == expected


async def test_node_of_a_sub_plan_is_cancelled_through_its_parent(runs: Runs, gate: Gate) -> None:
    child_plan = {"plan": 1, "nodes": [hold_node("inner", gate.name), call_node("sibling", "echo")], "output": "done"}
    handle = await gate.start_run(runs, {"nodes": [{"id": "sub", "plan": child_plan}]})
    result = await _send_command(handle, wire.CANCEL_NODE, node_id="sub/inner")
    assert result["message"] == "forwarded to the sub-plan 'sub'"
    await eventually(lambda: gate.clean_up_count == 1)
    assert bare_document(await ended_document(runs, handle))["nodes"] == {"sub": completed_node("done", partial=True)}
    child_view = await view_of(runs, runs.client.get_workflow_handle(f"{handle.id}/sub"))
    inner_node = child_view.document()["nodes"]["inner"]
    assert inner_node["reason"] == "cancelled by ann"
    assert inner_node["lineage"]["overrides"][0]["source"] == "signal"


@without_cache
async def test_failed_node_is_retried_and_blocked_nodes_continue(
    runs: Runs, harness: CallHarness, unique_name: str
) -> None:
    first_node = call_node("a", "fail_at_first_call", name=unique_name)
    handle = await runs.start({"nodes": [first_node, echo_node("b", "a"), hold_node("held", f"{unique_name} held")]})
    await wait_for_node(runs, handle, "b", "blocked")
    assert "'held' is running" in await rejection_of(handle, {"node_id": "held"}, update=wire.RETRY_NODE)
    assert await _send_command(handle, wire.RETRY_NODE, node_id="a") == {"ok": True, "message": "'a' is retried"}
    await wait_for_node(runs, handle, "b", "completed")
    harness.open(f"{unique_name} held")
    document = await ended_document(runs, handle)
    assert bare_document(document)["nodes"] == {
        "a": completed_node(unique_name, attempts=2),
        "b": completed_node({"a": unique_name}),
        "held": completed_node(f"{unique_name} held"),
    }
    assert len(harness.effects[unique_name]) == 2
    assert len(set(harness.effects[unique_name])) == 1
    (override,) = document["nodes"]["a"]["lineage"]["overrides"]
    expected = ("retry_node", "ann", 1, "not the first time")
    values = (override["command"], override["by"], override["attempts"], override["error"]["message"])
    assert values == expected


async def test_retried_sub_plan_keeps_the_idempotency_keys(runs: Runs, harness: CallHarness, unique_name: str) -> None:
    inner_node = call_node("inner", "fail_at_first_call", name=unique_name)
    child_plan = {"plan": 1, "nodes": [inner_node], "output": "{{inner.result}}"}
    handle = await runs.start({"nodes": [{"id": "sub", "plan": child_plan}, hold_node("held", f"{unique_name} held")]})
    await wait_for_node(runs, handle, "sub", "failed")
    await _send_command(handle, wire.RETRY_NODE, node_id="sub")
    await wait_for_node(runs, handle, "sub", "completed")
    harness.open(f"{unique_name} held")
    assert bare_document(await ended_document(runs, handle))["nodes"]["sub"] == completed_node(unique_name, attempts=2)
    assert len(set(harness.effects[unique_name])) == 1


async def test_invalid_command_is_rejected_and_the_run_continues(runs: Runs, gate: Gate) -> None:
    handle = await gate.start_run(runs, {"nodes": [hold_node("held", gate.name)]})
    expected = 'retry_node must be an object such as {"node_id": "sum", "by": "ann"}'
    assert await rejection_of(handle, [1], update=wire.RETRY_NODE) == expected
    assert "'node_id'" in await rejection_of(handle, {}, update=wire.CANCEL_NODE)
    assert "'arguments'" in await rejection_of(handle, {"node_id": "held", "arguments": 1}, update=wire.RETRY_NODE)
    assert "'nodes'" in await rejection_of(handle, {"nodes": {}}, update=wire.ADD_NODES)
    assert "at most" in await rejection_of(handle, {"node_id": "held", "result": "x" * 300_000}, update=wire.SET_RESULT)
    gate.open()
    assert bare_document(await ended_document(runs, handle))["nodes"] == {"held": completed_node(gate.name)}
