"""Documents about a run: queries, current details, search attributes, and explanations."""

import json
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import WorkflowQueryFailedError
from temporalio.common import SearchAttributeKey

from dagwright.core.boundary import wire
from dagwright.history.executions import NodeNotFound
from dagwright.history.run_explainer import RunExplainer
from dagwright.history.run_reader import RunReader
from tests.support.eventually import eventually
from tests.support.goals import call_node
from tests.support.people import hold_node, tool_node
from tests.support.plan_building import plan_of
from tests.support.run_views import wait_for_node
from tests.support.runs import (
    Handle,
    Runs,
    bare_document,
    bare_node,
    completed_node,
    document_of,
    events_of,
    without_cache,
)
from tests.support.tools import CallHarness
from tests.workflow.building import Gate, pure_node

pytestmark = pytest.mark.server

_STATE_KEY = SearchAttributeKey.for_keyword(wire.SEARCH_STATE)


def _plan(gate_name: str) -> dict[str, Any]:
    return plan_of(
        pure_node("first", 1, title="The | first"),
        hold_node("held", gate_name, "first"),
        tool_node("each", "echo", "first", for_each=["x"], key="{{item}}"),
        tool_node("last", "echo", "held"),
        title="Queried",
    )


async def _read_details(handle: Handle) -> str:
    return str((await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)).current_details)


@without_cache
async def test_queries_report_the_progress_of_a_run(runs: Runs, gate: Gate) -> None:
    handle = await gate.start_run(runs, _plan(gate.name))
    await wait_for_node(runs, handle, "each", "completed")
    assert bare_document(await handle.query(wire.QUERY_STATUS)) == {
        "status": "running",
        "output": None,
        "nodes": {
            "first": completed_node(2.0),
            "held": {"status": "running"},
            "each": completed_node([{}]),
            "each[x]": completed_node({}),
            "last": {"status": "pending"},
        },
    }
    assert bare_node(await handle.query(wire.QUERY_NODE, "each[x]")) == completed_node({})
    assert await handle.query(wire.QUERY_NODE, "unknown") is None
    with pytest.raises(WorkflowQueryFailedError):
        await handle.query(wire.QUERY_NODE)
    graph = await handle.query(wire.QUERY_GRAPH)
    expected = [("first", "completed"), ("held", "running"), ("each", "completed"), ("last", "pending")]
    assert [(node["node_id"], node["status"]) for node in graph["nodes"]] == expected
    assert graph["edges"] == [["first", "held"], ["first", "each"], ["held", "last"]]
    gate.open()
    await document_of(handle)
    assert bare_document(await handle.query(wire.QUERY_STATUS)) == bare_document(await document_of(handle))


async def test_current_details_are_a_table_of_the_nodes(runs: Runs, gate: Gate) -> None:
    handle = await gate.start_run(runs, _plan(gate.name))

    async def is_shown() -> bool:
        return "1 of 1 items" in await _read_details(handle)

    await eventually(is_shown)
    assert (await _read_details(handle)).splitlines() == [
        *("**running**: 2 completed, 1 pending, 1 running", "", "| node | state | tool | note |", "|---|---|---|---|"),
        *("| The \\| first | ✅ completed | add |  |", "| held | ▶️ running | hold |  |"),
        *("| each | ✅ completed | echo | 1 of 1 items |", "| last | pending | echo |  |"),
    ]
    gate.open()
    await document_of(handle)
    assert (await _read_details(handle)).startswith("**completed**: 4 completed")


async def test_raw_run_has_its_status_as_a_search_attribute(runs: Runs, harness: CallHarness) -> None:
    """The run is started as in the Temporal UI: with a plan, and without search attributes."""
    gate_name = uuid4().hex
    handle = await runs.start_raw({"plan": {"nodes": [hold_node("held", gate_name)]}})
    await eventually(lambda: gate_name in harness.entered)
    assert await _read_state_values(handle) == ["running"]
    harness.open(gate_name)
    await document_of(handle)
    rejected_handle = await runs.start_raw({"plan": {"nodes": [call_node("a", "unknown_tool")]}})
    await document_of(rejected_handle)
    assert await _read_state_values(handle) == ["running", "completed"]
    assert await _read_state_values(rejected_handle) == ["failed"]
    assert (await handle.describe()).typed_search_attributes.get(_STATE_KEY) == "completed"


async def _read_state_values(handle: Handle) -> list[str]:
    upserts = events_of(await handle.fetch_history(), EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES)
    attributes_of_upserts = [
        event.upsert_workflow_search_attributes_event_attributes.search_attributes for event in upserts
    ]
    return [json.loads(attributes.indexed_fields[_STATE_KEY.name].data) for attributes in attributes_of_upserts]


# Explanations.


def _create_explainer(runs: Runs) -> RunExplainer:
    return RunExplainer(lambda run_id: RunReader(runs.client, run_id), runs.store)


def _plan_with_nested_sub_plans(gate_name: str) -> dict[str, Any]:
    """Return a plan that waits for a held tool in a grandchild run."""
    middle_plan = {"nodes": [{"id": "in/ner", "plan": {"nodes": [hold_node("held", gate_name)]}}]}
    return {"nodes": [{"id": "outer", "plan": middle_plan}, tool_node("publish", "echo", "outer")]}


async def _explain_node(runs: Runs, handle: Handle, node_id: str) -> str:
    """Return the explanation of a node as a text in which `then` replaces each time."""
    return (await _create_explainer(runs).explain_node(handle.id, node_id)).describe(lambda _: "then")


async def test_explanation_of_a_waiting_node_follows_sub_plans(runs: Runs, gate: Gate) -> None:
    handle = await gate.start_run(runs, _plan_with_nested_sub_plans(gate.name))

    expected = (
        "publish waits for outer, which runs as a child run since then, which runs as a child run since "
        "then, which runs since then"
    )
    assert await _explain_node(runs, handle, "publish") == expected
    assert await _explain_node(runs, handle, "outer/in/ner/held") == "outer/in/ner/held runs since then"
    run_explanation = (await _create_explainer(runs).explain_run(handle.id)).to_json()
    assert [(reason["node_id"], reason["kind"], reason["causes"]) for reason in run_explanation["chain"]] == [
        ("outer", "run", ["outer/in/ner"]),
        ("outer/in/ner", "run", ["outer/in/ner/held"]),
        ("outer/in/ner/held", "running", []),
    ]
    with pytest.raises(NodeNotFound, match="has no node 'publsh'; did you mean 'publish'"):
        await _create_explainer(runs).explain_node(handle.id, "publsh")
    gate.open()
    await document_of(handle)


async def test_explanation_of_a_failed_run_names_the_failure_in_a_sub_plan(runs: Runs) -> None:
    inner_plan = {"nodes": [call_node("bad", "fail", message="no such file")]}
    handle = await runs.start({"nodes": [{"id": "outer", "plan": inner_plan}, tool_node("after", "echo", "outer")]})
    await document_of(handle)

    result = await _create_explainer(runs).explain_run(handle.id)
    expected = [("outer", "failed", ["outer/bad"]), ("outer/bad", "failed", [])]
    assert [(reason.node_id, reason.kind, [*reason.causes]) for reason in result.chain.reasons] == expected
    assert result.describe(lambda _: "then").endswith("no such file)")
    assert (await _explain_node(runs, handle, "after")).startswith(
        "after is blocked by outer at then, which failed at then"
    )


@pytest.mark.usefixtures("small_pages")
async def test_explanation_of_a_node_in_an_offloaded_region_has_its_dependencies(runs: Runs) -> None:
    nodes = [pure_node(f"n{n}", f"{{{{n{n - 1}.result}}}}" if n else 1) for n in range(410)]
    handle = await runs.start({"nodes": nodes})
    await document_of(handle)

    result = await _create_explainer(runs).explain_node(handle.id, "n2")
    expected = [("n2", "completed", ["n1"]), ("n1", "completed", ["n0"]), ("n0", "completed", [])]
    assert [(reason.node_id, reason.kind, [*reason.causes]) for reason in result.chain.reasons] == expected
