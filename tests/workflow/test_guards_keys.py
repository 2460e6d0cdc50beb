"""Guards of effects: an effect keeps its key after a retry or reset, and one server owns a database file.

The numbers of guards refer to docs/contributing/guards.md.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest

from dagwright.server import LocalServer, open_connection
from dagwright.settings import Settings
from tests.support.plan_building import plan_of
from tests.support.runs import Handle, Runs, document_of, events_of
from tests.support.server import live_server
from tests.support.tools import CallHarness

pytestmark = pytest.mark.server


def _keyed_node(node_id: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"id": node_id, "tool": "return_key", "arguments": {"name": name}, **fields}


async def test_second_run_with_the_same_id_repeats_the_effects(
    runs: Runs, harness: CallHarness, unique_name: str
) -> None:
    """Guard F4: with keys from the workflow ID, the second run would have no effects."""
    run_id = f"again-{uuid4().hex}"
    message = {"plan": {"nodes": [_keyed_node("a", unique_name)]}}
    for _ in range(2):
        assert (await document_of(await runs.start_raw(message, workflow_id=run_id)))["status"] == "completed"
    assert len(set(harness.effects[unique_name])) == 2


async def test_effects_of_nodes_items_and_sub_plans_have_different_keys(
    runs: Runs, harness: CallHarness, unique_name: str
) -> None:
    """Guard F4: node `b` in the sub-plan `x/a` and node `a/b` in the sub-plan `x` have different effects."""

    def sub_plan(*nodes: Any) -> dict[str, Any]:
        return {"nodes": list(nodes)}

    nodes = [
        {"id": "x/a", "plan": sub_plan(_keyed_node("b", unique_name))},
        {
            "id": "x",
            "plan": sub_plan(
                _keyed_node("a/b", unique_name), {"id": "a", "plan": sub_plan(_keyed_node("b", unique_name))}
            ),
        },
        _keyed_node("x/a/b", unique_name),
        _keyed_node("m", unique_name, for_each=["b", "a/b"], key="{{item}}"),
        _keyed_node("[m]", unique_name),
        _keyed_node("m/b", unique_name),
    ]
    assert (await runs.run({"nodes": nodes}))["status"] == "completed"
    assert len(harness.effects[unique_name]) == 8
    assert len(set(harness.effects[unique_name])) == 8


async def test_reset_run_keeps_the_keys_of_its_effects(
    cached_runs: Runs, harness: CallHarness, unique_name: str
) -> None:
    """Guard F4: a reset starts new child runs, whose keys come from the root run."""
    plan = plan_of(
        _keyed_node("plain", f"{unique_name} plain"),
        _keyed_node("each", f"{unique_name} each", for_each=["x"], key="{{item}}"),
        {"id": "sub_plan", "plan": {"nodes": [_keyed_node("inner", f"{unique_name} inner")]}},
    )
    handle = await cached_runs.start(plan)
    assert (await document_of(handle))["status"] == "completed"
    assert (await document_of(await _reset(cached_runs, handle)))["status"] == "completed"
    effects: Mapping[str, list[str]] = {
        name: harness.effects[f"{unique_name} {name}"] for name in ("plain", "each", "inner")
    }
    assert {name: len(keys) for name, keys in effects.items()} == {"plain": 2, "each": 2, "inner": 2}
    assert {name: len(set(keys)) for name, keys in effects.items()} == {"plain": 1, "each": 1, "inner": 1}
    await cached_runs.check_runs()


async def _reset(runs: Runs, handle: Handle) -> Handle:
    """Reset a run to its start, and return the handle of the new execution."""
    [first_completion, *_] = events_of(await handle.fetch_history(), EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED)
    request = ResetWorkflowExecutionRequest(
        namespace=runs.client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=handle.id, run_id=handle.first_execution_run_id or ""),
        reason="again",
        workflow_task_finish_event_id=first_completion.event_id,
        request_id=str(uuid4()),
    )
    response = await runs.client.workflow_service.reset_workflow_execution(request)
    return runs.client.get_workflow_handle(handle.id, run_id=response.run_id)


async def test_server_without_its_record_is_replaced_and_not_duplicated(state_dir: Path) -> None:
    """Guard F3: two servers on one database file would take tasks from each other, and runs would never end."""
    async with live_server(state_dir) as live:
        first_pid = live.server.pid
        (state_dir / "server.json").unlink()
        async with open_connection(Settings(state_dir=state_dir)) as connection:
            server = LocalServer(Settings(state_dir=state_dir)).find()
            assert server is not None
            assert server.pid == connection.server.pid != first_pid
