"""Documents about a run: queries, current details, search attributes, and why a node waits."""

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
from tests.support.runs import Handle, Runs, bare, bare_node, completed_node, document_of, events_of, without_cache
from tests.support.tools import Bench

pytestmark = pytest.mark.server

_STATE = SearchAttributeKey.for_keyword(wire.SEARCH_STATE)


def _plan(name: str) -> dict[str, Any]:
    return {
        "title": "Looked at",
        "nodes": [
            {"id": "first", "title": "The | first", "tool": "add", "arguments": {"left": 1, "right": 1}},
            {"id": "held", "tool": "hold", "arguments": {"name": name}, "depends_on": ["first"]},
            {"id": "each", "tool": "echo", "for_each": ["x"], "key": "{{item}}", "depends_on": ["first"]},
            {"id": "last", "tool": "echo", "depends_on": ["held"]},
        ],
    }


async def _details(handle: Handle) -> str:
    metadata = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    return str(metadata.current_details)


@without_cache
async def test_queries_report_the_progress_of_a_run(runs: Runs, bench: Bench, unique: str) -> None:
    handle = await runs.start(_plan(unique))
    await eventually(lambda: unique in bench.entered)

    async def is_quiet() -> bool:
        node = await handle.query(wire.QUERY_NODE, "each")
        return bool(node["status"] == "completed")

    await eventually(is_quiet)
    assert bare(await handle.query(wire.QUERY_STATUS)) == {
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
    assert await handle.query(wire.QUERY_NODE, "nobody") is None
    with pytest.raises(WorkflowQueryFailedError):
        await handle.query(wire.QUERY_NODE)
    graph = await handle.query(wire.QUERY_GRAPH)
    expected = [("first", "completed"), ("held", "running"), ("each", "completed"), ("last", "pending")]
    assert [(node["node_id"], node["status"]) for node in graph["nodes"]] == expected
    assert graph["edges"] == [["first", "held"], ["first", "each"], ["held", "last"]]
    bench.open(unique)
    await document_of(handle)
    assert bare(await handle.query(wire.QUERY_STATUS)) == bare(await document_of(handle))


async def test_current_details_are_a_live_table(runs: Runs, bench: Bench, unique: str) -> None:
    handle = await runs.start(_plan(unique))
    await eventually(lambda: unique in bench.entered)

    async def is_shown() -> bool:
        return "1 of 1 items" in await _details(handle)

    await eventually(is_shown)
    assert (await _details(handle)).splitlines() == [
        *("**running**: 2 completed, 1 pending, 1 running", "", "| node | state | tool | note |", "|---|---|---|---|"),
        *("| The \\| first | ✅ completed | add |  |", "| held | ▶️ running | hold |  |"),
        *("| each | ✅ completed | echo | 1 of 1 items |", "| last | pending | echo |  |"),
    ]
    bench.open(unique)
    await document_of(handle)
    assert (await _details(handle)).startswith("**completed**: 4 completed")


async def test_run_of_any_starter_has_its_state(runs: Runs, bench: Bench) -> None:
    """As the Temporal UI starts it: with a plan and no search attribute."""
    unique = uuid4().hex
    held = {"id": "held", "tool": "hold", "arguments": {"name": unique}}
    handle = await runs.start_raw({"plan": {"nodes": [held]}})
    await eventually(lambda: unique in bench.entered)
    assert await _written_states(handle) == ["running"]
    bench.open(unique)
    await document_of(handle)
    rejected_run = await runs.start_raw({"plan": {"nodes": [{"id": "a", "tool": "nobody"}]}})
    await document_of(rejected_run)
    assert await _written_states(handle) == ["running", "completed"]
    assert await _written_states(rejected_run) == ["failed"]
    assert (await handle.describe()).typed_search_attributes.get(_STATE) == "completed"


async def _written_states(handle: Handle) -> list[str]:
    upserts = events_of(await handle.fetch_history(), EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES)
    written = [event.upsert_workflow_search_attributes_event_attributes.search_attributes for event in upserts]
    return [json.loads(attributes.indexed_fields[_STATE.name].data) for attributes in written]


# Why a node waits.


def _explaining(runs: Runs) -> RunExplainer:
    return RunExplainer(lambda workflow_id: RunReader(runs.client, workflow_id), runs.store)


def _sub_plan(name: str) -> dict[str, Any]:
    """Return a plan that waits for a held tool in a grandchild run."""
    inner = {"nodes": [{"id": "held", "tool": "hold", "arguments": {"name": name}}]}
    middle = {"nodes": [{"id": "in/ner", "plan": inner}]}
    return {"nodes": [{"id": "outer", "plan": middle}, {"id": "publish", "tool": "echo", "depends_on": ["outer"]}]}


async def _explanation(runs: Runs, handle: Handle, node: str) -> str:
    found = await _explaining(runs).explain_node(handle.id, node)
    return found.describe(lambda _: "then")


async def test_waiting_node_is_followed_into_sub_plans(runs: Runs, bench: Bench, unique: str) -> None:
    handle = await runs.start(_sub_plan(unique))
    await eventually(lambda: unique in bench.entered)

    expected = (
        "publish waits for outer, which runs as a child run since then, which runs as a child run since "
        "then, which runs since then"
    )
    assert await _explanation(runs, handle, "publish") == expected
    assert await _explanation(runs, handle, "outer/in/ner/held") == "outer/in/ner/held runs since then"
    whole = (await _explaining(runs).explain_run(handle.id)).to_json()
    assert [(each["node_id"], each["kind"], each["because"]) for each in whole["chain"]] == [
        ("outer", "run", ["outer/in/ner"]),
        ("outer/in/ner", "run", ["outer/in/ner/held"]),
        ("outer/in/ner/held", "running", []),
    ]
    with pytest.raises(NodeNotFound, match="has no node 'publsh'; did you mean 'publish'"):
        await _explaining(runs).explain_node(handle.id, "publsh")
    bench.open(unique)
    await document_of(handle)


async def test_end_of_a_run_reports_the_failures_of_a_sub_plan(runs: Runs) -> None:
    inner = {"nodes": [{"id": "bad", "tool": "fail", "arguments": {"message": "no such file"}}]}
    handle = await runs.start(
        {"nodes": [{"id": "outer", "plan": inner}, {"id": "after", "tool": "echo", "depends_on": ["outer"]}]}
    )
    await document_of(handle)

    result = await _explaining(runs).explain_run(handle.id)
    expected = [("outer", "failed", ["outer/bad"]), ("outer/bad", "failed", [])]
    assert [(reason.node, reason.kind, [*reason.because]) for reason in result.chain.reasons] == expected
    assert result.describe(lambda _: "then").endswith("no such file)")
    assert (await _explanation(runs, handle, "after")).startswith(
        "after is blocked by outer at then, which failed at then"
    )


@pytest.mark.usefixtures("small_pages")
async def test_nodes_of_large_regions_are_reported(runs: Runs) -> None:
    count = 410
    nodes: list[dict[str, Any]] = [{"id": "n0", "tool": "add", "arguments": {"left": 1, "right": 1}}]
    nodes += [
        {"id": f"n{number}", "tool": "add", "arguments": {"left": f"{{{{n{number - 1}.result}}}}", "right": 1}}
        for number in range(1, count)
    ]
    handle = await runs.start({"nodes": nodes})
    await document_of(handle)

    result = await _explaining(runs).explain_node(handle.id, "n2")
    expected = [("n2", "completed", ["n1"]), ("n1", "completed", ["n0"]), ("n0", "completed", [])]
    assert [(reason.node, reason.kind, [*reason.because]) for reason in result.chain.reasons] == expected
