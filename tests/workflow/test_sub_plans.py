"""Sub-plans on the real server: nested, numerous, failed and cancelled sub-plans."""

from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType

from tests.fuzz.checks import check_replay
from tests.support.eventually import eventually
from tests.support.goals import call_node
from tests.support.people import hold_node, tool_node
from tests.support.plan_building import plan_of
from tests.support.runs import (
    Document,
    Runs,
    bare_document,
    blocked_node,
    cancelled_node,
    chain_of,
    completed_node,
    document_of,
    events_of,
    failed_node,
    histories_of,
)
from tests.support.tools import CallHarness
from tests.workflow.building import Gate, pure_node

pytestmark = pytest.mark.server

_DOUBLING_PLAN: dict[str, Any] = plan_of(
    pure_node("twice", "{{PLACEHOLDER_n}}", "{{PLACEHOLDER_n}}"),
    inputs={"n": {"type": "number"}},
    output="{{twice.result}}",
)
"""Plan that adds its input `n` to itself; `{{PLACEHOLDER_n}}` is the reference to the input."""


def _held_node(gate_name: str) -> Document:
    return hold_node("hold", gate_name, heartbeat="1s")


async def test_output_passes_through_nested_sub_plans(runs: Runs) -> None:
    plan = _DOUBLING_PLAN
    for _ in range(3):
        plan = plan_of(
            {"id": "sub", "plan": plan, "arguments": {"n": "{{PLACEHOLDER_n}}"}},
            inputs={"n": {"type": "number"}},
            output="{{sub.result}}",
        )
    handle = await runs.start(plan, inputs={"n": 2})
    assert (await document_of(handle))["output"] == 4.0
    id_suffixes = [history.workflow_id.removeprefix(handle.id) for history in await histories_of(runs.client, handle)]
    assert id_suffixes == ["", "/sub", "/sub/sub", "/sub/sub/sub"]


async def test_failed_sub_plan_fails_its_node_and_partial_sub_plan_completes_its_node(runs: Runs) -> None:
    child_plan = {"nodes": [call_node("x", "fail", message="no luck")]}
    plan = plan_of(
        {"id": "sub", "plan": child_plan},
        tool_node("after", "echo", "sub"),
        {"id": "fallback", "plan": child_plan, "on_error": {"value": 0}},
        {"id": "partial", "plan": {"nodes": [call_node("bad", "fail"), call_node("good", "echo")]}},
    )
    message = "sub_plan_failed: the sub-plan failed: no required node was completed"
    document = await runs.run(plan)
    assert document["nodes"] == {
        "sub": failed_node(message),
        "after": blocked_node("sub"),
        "fallback": completed_node(0, error=message),
        "partial": completed_node({"good": {}}, partial=True),
    }


async def test_cancelled_run_cancels_its_nested_sub_plans(runs: Runs, gate: Gate) -> None:
    plan = plan_of({"id": "outer", "plan": plan_of({"id": "inner", "plan": plan_of(_held_node(gate.name))})})
    handle = await gate.start_run(runs, plan)
    await handle.signal("cancel", {"reason": "enough"})
    assert bare_document(await document_of(handle)) == {
        "status": "cancelled",
        "output": {},
        "nodes": {"outer": cancelled_node("the sub-plan was cancelled")},
        "notes": [{"code": "cancel", "node_id": None, "message": "cancelled: enough"}],
    }
    assert gate.clean_up_count == 1
    child_nodes = [
        (bare_document(await document_of(runs.client.get_workflow_handle(history.workflow_id))))["nodes"]
        for history in (await histories_of(runs.client, handle))[1:]
    ]
    assert child_nodes == [{"inner": cancelled_node("the sub-plan was cancelled")}, {"hold": cancelled_node()}]


async def test_run_that_is_cancelled_at_its_start_leaves_no_open_sub_plan(runs: Runs) -> None:
    plan = {"nodes": [{"id": f"s{number}", "plan": _DOUBLING_PLAN, "arguments": {"n": number}} for number in range(8)]}
    handle = await runs.start(plan)
    await handle.signal("cancel")
    document = bare_document(await document_of(handle))
    statuses = {node["status"] for node in document["nodes"].values()}
    assert statuses <= {"completed", "cancelled"}
    child_histories = (await histories_of(runs.client, handle))[1:]
    started_ids = {history.workflow_id.rpartition("/")[2] for history in child_histories}
    # `histories_of` waits for the end of each sub-plan, so no sub-plan is open.
    for history in child_histories:
        child_document = await document_of(runs.client.get_workflow_handle(history.workflow_id))
        node_id = history.workflow_id.rpartition("/")[2]
        if child_document["status"] == "completed":
            assert document["nodes"][node_id]["status"] == "completed"
    assert started_ids >= {node_id for node_id, node in document["nodes"].items() if node["status"] == "completed"}


async def test_terminated_sub_plan_fails_its_node(runs: Runs, gate: Gate) -> None:
    handle = await gate.start_run(runs, plan_of({"id": "sub", "plan": plan_of(_held_node(gate.name))}))
    await runs.client.get_workflow_handle(f"{handle.id}/sub").terminate("terminated manually")
    gate.open()
    expected = {"sub": failed_node("sub_plan_failed: the sub-plan failed: the sub-plan was terminated")}
    assert bare_document(await document_of(handle))["nodes"] == expected
    await check_replay(await handle.fetch_history(), await document_of(handle))
    runs.exclude_from_checks(handle)


async def test_sub_plan_cancelled_through_temporal_cancels_its_node(runs: Runs, gate: Gate) -> None:
    handle = await gate.start_run(runs, plan_of({"id": "sub", "plan": plan_of(_held_node(gate.name))}))
    await runs.client.get_workflow_handle(f"{handle.id}/sub").cancel()
    assert bare_document(await document_of(handle))["nodes"] == {"sub": cancelled_node("the sub-plan was cancelled")}


async def test_too_large_output_of_a_sub_plan_fails_its_node(runs: Runs) -> None:
    nodes = [call_node(f"t{number}", "text", size=8_000) for number in range(40)]
    child_plan = {"nodes": nodes, "output": [f"{{{{t{number}.result}}}}" for number in range(40)]}
    document = await runs.run({"nodes": [{"id": "sub", "plan": child_plan}]})
    assert document["nodes"] == {
        "sub": failed_node(
            "sub_plan_failed: the sub-plan failed: its output has over 262,144 bytes, "
            "the limit for the output of a sub-plan"
        )
    }


async def test_many_large_sub_plans_start_in_several_workflow_tasks(runs: Runs) -> None:
    long_title = "t" * 100_000
    child_plan = plan_of(pure_node("x", 1, title=long_title), output="{{x.result}}")
    handle = await runs.start({"nodes": [{"id": "each", "for_each": list(range(32)), "plan": child_plan}]})
    assert (await document_of(handle))["output"] == {"each": [2.0] * 32}
    assert len(events_of((await chain_of(runs.client, handle))[0], EventType.EVENT_TYPE_TIMER_STARTED)) >= 2


async def test_sub_plan_whose_workflow_id_is_in_use_fails_its_node(
    runs: Runs, harness: CallHarness, unique_name: str
) -> None:
    sub_plan_node = {"id": "sub", "plan": {"nodes": [call_node("a", "echo")]}, "depends_on": ["hold"]}
    handle = await runs.start(plan_of(_held_node(unique_name), sub_plan_node))
    await eventually(lambda: unique_name in harness.entered)
    conflicting_plan = plan_of(hold_node("a", f"{unique_name} conflict"))
    conflicting_run = await runs.start_raw({"plan": conflicting_plan}, workflow_id=f"{handle.id}/sub")
    harness.open(unique_name)
    document = await document_of(handle)
    harness.open(f"{unique_name} conflict")
    await document_of(conflicting_run)
    expected = failed_node("sub_plan_failed: the sub-plan failed: Workflow execution already started")
    assert bare_document(document)["nodes"]["sub"] == expected
    await check_replay(await handle.fetch_history(), document)


@pytest.mark.parametrize(
    ("node_fields", "plan_fields", "message"),
    [
        ({"timeout": "700ms"}, {}, "'sub' exceeded its timeout of 0.7 s; still running: hold"),
        (
            {"timeout": "1m"},
            {"deadline": "600ms"},
            "'sub' exceeded the deadline of its plan, 0.6 s; still running: hold",
        ),
    ],
    ids=["timeout of the node", "deadline of the sub-plan"],
)
async def test_error_of_a_timed_out_sub_plan_has_its_id_and_limit(
    runs: Runs, unique_name: str, node_fields: dict[str, Any], plan_fields: dict[str, Any], message: str
) -> None:
    child_plan = plan_of(_held_node(unique_name), **plan_fields)
    handle = await runs.start(plan_of({"id": "sub", "plan": child_plan, **node_fields}))
    document = bare_document(await document_of(handle))
    assert document["nodes"]["sub"] == failed_node(f"sub_plan_failed: the sub-plan failed: {message}")
    child_document = bare_document(await document_of(runs.client.get_workflow_handle(f"{handle.id}/sub")))
    assert (child_document["status"], child_document["error"]) == ("failed", f"deadline_exceeded: {message}")
