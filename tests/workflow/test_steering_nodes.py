"""Commands for nodes: cancel, retry, set a result, add; the reader agrees with the run."""

from typing import Any

import pytest

from dagwright.core.boundary import wire
from dagwright.history.run_reader import RunReader
from tests.support.eventually import eventually
from tests.support.people import refusal_of
from tests.support.runs import Document, Handle, Runs, bare, completed_node, without_cache
from tests.support.tools import Bench
from tests.workflow.building import ended_document

pytestmark = pytest.mark.server


async def _document(runs: Runs, handle: Handle) -> Document:
    """Return the document of a run from the reader; once the run has ended, check that it equals the result."""
    return (await RunReader(runs.client, handle.id).read()).document()


async def _is(runs: Runs, handle: Handle, node: str, status: str) -> None:
    async def has_status() -> bool:
        nodes = (await _document(runs, handle))["nodes"]
        return node in nodes and nodes[node]["status"] == status

    await eventually(has_status)


async def _update(handle: Handle, name: str, **message: Any) -> Any:
    return await handle.execute_update(name, {"by": "ann", **message})


def _hold(node: str, name: str, *needs: str, **more: Any) -> dict[str, Any]:
    return {"id": node, "tool": "hold", "arguments": {"name": name}, "depends_on": list(needs), **more}


def _echo(node: str, *needs: str, **more: Any) -> dict[str, Any]:
    return {"id": node, "tool": "echo", "arguments": {name: f"{{{{{name}.result}}}}" for name in needs}, **more}


# Cancelling.


async def test_items_and_sub_plans_get_the_cancellation(runs: Runs, bench: Bench, unique: str) -> None:
    below = {"plan": 1, "nodes": [_hold("inner", f"{unique} inner")]}
    items = _hold("m", "{{item}}", for_each=[f"{unique} x", f"{unique} y"], key="{{index}}")
    handle = await runs.start({"nodes": [{"id": "sub", "plan": below}, items]})
    names = {f"{unique} {name}" for name in ("inner", "x", "y")}
    await eventually(lambda: names <= set(bench.entered))
    await _update(handle, wire.CANCEL_NODE, node_id="sub")
    await _update(handle, wire.CANCEL_NODE, node_id="m[1]")
    await eventually(lambda: {f"{unique} inner", f"{unique} y"} <= set(bench.cleaned))
    bench.open(f"{unique} x")
    nodes = bare(await ended_document(runs, handle))["nodes"]
    expected = {"sub": "cancelled", "m": "cancelled", "m[0]": "completed", "m[1]": "cancelled"}
    assert {name: node["status"] for name, node in nodes.items()} == expected


async def test_node_of_a_sub_plan_is_cancelled_through_the_parent_run(runs: Runs, bench: Bench, unique: str) -> None:
    below = {"plan": 1, "nodes": [_hold("inner", unique), {"id": "other", "tool": "echo"}], "output": "done"}
    handle = await runs.start({"nodes": [{"id": "sub", "plan": below}]})
    await eventually(lambda: unique in bench.entered)
    result = await _update(handle, wire.CANCEL_NODE, node_id="sub/inner")
    assert result["message"] == "forwarded to the sub-plan 'sub'"
    await eventually(lambda: unique in bench.cleaned)
    assert bare(await ended_document(runs, handle))["nodes"] == {"sub": completed_node("done", partial=True)}
    inner = await _document(runs, runs.client.get_workflow_handle(f"{handle.id}/sub"))
    assert inner["nodes"]["inner"]["reason"] == "cancelled by ann"
    assert inner["nodes"]["inner"]["lineage"]["overrides"][0]["through"] == "signal"


# Trying again.


@without_cache
async def test_failed_node_is_retried_and_blocked_nodes_continue(runs: Runs, bench: Bench, unique: str) -> None:
    first_node = {"id": "a", "tool": "second_time", "arguments": {"name": unique}}
    handle = await runs.start({"nodes": [first_node, _echo("b", "a"), _hold("on", f"{unique} on")]})
    await _is(runs, handle, "b", "blocked")
    assert "'on' is running" in await refusal_of(handle, {"node_id": "on"}, update=wire.RETRY_NODE)
    assert await _update(handle, wire.RETRY_NODE, node_id="a") == {"ok": True, "message": "'a' is retried"}
    await _is(runs, handle, "b", "completed")
    bench.open(f"{unique} on")
    document = await ended_document(runs, handle)
    assert bare(document)["nodes"] == {
        "a": completed_node(unique, attempts=2),
        "b": completed_node({"a": unique}),
        "on": completed_node(f"{unique} on"),
    }
    assert len(bench.effects[unique]) == 2
    assert len(set(bench.effects[unique])) == 1
    (step,) = document["nodes"]["a"]["lineage"]["overrides"]
    expected = ("retry_node", "ann", 1, "not the first time")
    assert (step["command"], step["by"], step["attempts"], step["error"]["message"]) == expected


async def test_sub_plan_is_retried_as_a_separate_run(runs: Runs, bench: Bench, unique: str) -> None:
    inner = {"id": "inner", "tool": "second_time", "arguments": {"name": unique}}
    below = {"plan": 1, "nodes": [inner], "output": "{{inner.result}}"}
    handle = await runs.start({"nodes": [{"id": "sub", "plan": below}, _hold("on", f"{unique} on")]})
    await _is(runs, handle, "sub", "failed")
    await _update(handle, wire.RETRY_NODE, node_id="sub")
    await _is(runs, handle, "sub", "completed")
    bench.open(f"{unique} on")
    assert bare(await ended_document(runs, handle))["nodes"]["sub"] == completed_node(unique, attempts=2)
    assert len(set(bench.effects[unique])) == 1


# Nodes that are added.


async def test_invalid_message_is_refused(runs: Runs, bench: Bench, unique: str) -> None:
    handle = await runs.start({"nodes": [_hold("on", unique)]})
    await eventually(lambda: unique in bench.entered)
    assert await refusal_of(handle, [1], update=wire.RETRY_NODE) == (
        'retry_node must be an object such as {"node_id": "sum", "by": "ann"}'
    )
    assert "'node_id'" in await refusal_of(handle, {}, update=wire.CANCEL_NODE)
    assert "'arguments'" in await refusal_of(handle, {"node_id": "on", "arguments": 1}, update=wire.RETRY_NODE)
    assert "'nodes'" in await refusal_of(handle, {"nodes": {}}, update=wire.ADD_NODES)
    assert "at most" in await refusal_of(handle, {"node_id": "on", "result": "x" * 300_000}, update=wire.SET_RESULT)
    bench.open(unique)
    assert bare(await ended_document(runs, handle))["nodes"] == {"on": completed_node(unique)}
