"""Sub-plans on the real server: nested, many, failing, and stopped from above."""

from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType

from tests.fuzz.checks import check_replay
from tests.support.eventually import eventually
from tests.support.runs import (
    Runs,
    bare,
    blocked_node,
    cancelled_node,
    chain_of,
    completed_node,
    document_of,
    events_of,
    failed_node,
    histories_of,
)
from tests.support.tools import Bench

pytestmark = pytest.mark.server

_DOUBLE: dict[str, Any] = {
    "inputs": {"n": {"type": "number"}},
    "nodes": [{"id": "twice", "tool": "add", "arguments": {"left": "{{PLACEHOLDER_n}}", "right": "{{PLACEHOLDER_n}}"}}],
    "output": "{{twice.result}}",
}


async def test_sub_plans_nest(runs: Runs) -> None:
    plan = _DOUBLE
    for _ in range(3):
        plan = {
            "inputs": {"n": {"type": "number"}},
            "nodes": [{"id": "sub", "plan": plan, "arguments": {"n": "{{PLACEHOLDER_n}}"}}],
            "output": "{{sub.result}}",
        }
    handle = await runs.start(plan, inputs={"n": 2})
    assert (await document_of(handle))["output"] == 4.0
    names = [history.workflow_id.removeprefix(handle.id) for history in await histories_of(runs.client, handle)]
    assert names == ["", "/sub", "/sub/sub", "/sub/sub/sub"]


async def test_failed_sub_plan_fails_its_node_and_one_with_failures_completes_in_part(runs: Runs) -> None:
    sub = {"nodes": [{"id": "x", "tool": "fail", "arguments": {"message": "no luck"}}]}
    plan = {
        "nodes": [
            {"id": "sub", "plan": sub},
            {"id": "after", "tool": "echo", "depends_on": ["sub"]},
            {"id": "value", "plan": sub, "on_error": {"value": 0}},
            {"id": "part", "plan": {"nodes": [{"id": "bad", "tool": "fail"}, {"id": "good", "tool": "echo"}]}},
        ]
    }
    message = "sub_plan_failed: the sub-plan failed: no required node was completed"
    document = await runs.run(plan)
    assert document["nodes"] == {
        "sub": failed_node(message),
        "after": blocked_node("sub"),
        "value": completed_node(0, error=message),
        "part": completed_node({"good": {}}, partial=True),
    }


async def test_cancel_reaches_the_lowest_sub_plan(runs: Runs, bench: Bench, unique: str) -> None:
    hold = {"id": "hold", "tool": "hold", "arguments": {"name": unique}, "heartbeat": "1s"}
    plan = {"nodes": [{"id": "one", "plan": {"nodes": [{"id": "two", "plan": {"nodes": [hold]}}]}}]}
    handle = await runs.start(plan)
    await eventually(lambda: unique in bench.entered)
    await handle.signal("cancel", {"reason": "enough"})
    assert bare(await document_of(handle)) == {
        "status": "cancelled",
        "output": {},
        "nodes": {"one": cancelled_node("the sub-plan was cancelled")},
        "notes": [{"code": "cancel", "node_id": None, "message": "cancelled: enough"}],
    }
    assert bench.cleaned.count(unique) == 1
    ends = [
        (bare(await document_of(runs.client.get_workflow_handle(history.workflow_id))))["nodes"]
        for history in (await histories_of(runs.client, handle))[1:]
    ]
    assert ends == [{"two": cancelled_node("the sub-plan was cancelled")}, {"hold": cancelled_node()}]


async def test_cancel_at_the_very_start_leaves_no_sub_plan(runs: Runs) -> None:
    plan = {"nodes": [{"id": f"s{number}", "plan": _DOUBLE, "arguments": {"n": number}} for number in range(8)]}
    handle = await runs.start(plan)
    await handle.signal("cancel")
    document = bare(await document_of(handle))
    statuses = {node["status"] for node in document["nodes"].values()}
    assert statuses <= {"completed", "cancelled"}
    below = (await histories_of(runs.client, handle))[1:]
    started = {history.workflow_id.rpartition("/")[2] for history in below}
    # histories_of waits for the end of each sub-plan, so none is open; nodes of cancelled children were cancelled too.
    for history in below:
        child = await document_of(runs.client.get_workflow_handle(history.workflow_id))
        name = history.workflow_id.rpartition("/")[2]
        if child["status"] == "completed":
            assert document["nodes"][name]["status"] == "completed"
    assert started >= {name for name, node in document["nodes"].items() if node["status"] == "completed"}


async def test_terminated_sub_plan_fails_its_node(runs: Runs, bench: Bench, unique: str) -> None:
    sub = {"nodes": [{"id": "hold", "tool": "hold", "arguments": {"name": unique}, "heartbeat": "1s"}]}
    handle = await runs.start({"nodes": [{"id": "sub", "plan": sub}]})
    await eventually(lambda: unique in bench.entered)
    child = runs.client.get_workflow_handle(f"{handle.id}/sub")
    await child.terminate("by hand")
    bench.open(unique)
    assert bare(await document_of(handle))["nodes"] == {
        "sub": failed_node("sub_plan_failed: the sub-plan failed: the sub-plan was terminated")
    }
    await check_replay(await handle.fetch_history(), await document_of(handle))
    runs.forget(handle)


async def test_sub_plan_cancelled_in_temporal_is_so_in_its_parent(runs: Runs, bench: Bench, unique: str) -> None:
    sub = {"nodes": [{"id": "hold", "tool": "hold", "arguments": {"name": unique}, "heartbeat": "1s"}]}
    handle = await runs.start({"nodes": [{"id": "sub", "plan": sub}]})
    await eventually(lambda: unique in bench.entered)
    await runs.client.get_workflow_handle(f"{handle.id}/sub").cancel()
    assert bare(await document_of(handle))["nodes"] == {"sub": cancelled_node("the sub-plan was cancelled")}


async def test_output_of_a_sub_plan_that_is_too_large_in_sum_fails_its_node(runs: Runs) -> None:
    nodes = [{"id": f"t{number}", "tool": "text", "arguments": {"size": 8_000}} for number in range(40)]
    sub = {"nodes": nodes, "output": [f"{{{{t{number}.result}}}}" for number in range(40)]}
    document = await runs.run({"nodes": [{"id": "sub", "plan": sub}]})
    assert document["nodes"] == {
        "sub": failed_node(
            "sub_plan_failed: the sub-plan failed: its output has over 262,144 bytes, which is too large for a report"
        )
    }


async def test_many_large_sub_plans_start_in_several_workflow_tasks(runs: Runs) -> None:
    title = "t" * 100_000
    sub = {
        "nodes": [{"id": "x", "tool": "add", "arguments": {"left": 1, "right": 1}, "title": title}],
        "output": "{{x.result}}",
    }
    plan = {"nodes": [{"id": "each", "for_each": list(range(32)), "plan": sub}]}
    handle = await runs.start(plan)
    assert (await document_of(handle))["output"] == {"each": [2.0] * 32}
    first = (await chain_of(runs.client, handle))[0]
    timers = events_of(first, EventType.EVENT_TYPE_TIMER_STARTED)
    assert len(timers) >= 2


async def test_sub_plan_that_cannot_start_fails_its_node(runs: Runs, bench: Bench, unique: str) -> None:
    hold = {"id": "hold", "tool": "hold", "arguments": {"name": unique}, "heartbeat": "1s"}
    sub = {"id": "sub", "plan": {"nodes": [{"id": "a", "tool": "echo"}]}, "depends_on": ["hold"]}
    handle = await runs.start({"nodes": [hold, sub]})
    await eventually(lambda: unique in bench.entered)
    held = {"nodes": [{"id": "a", "tool": "hold", "arguments": {"name": f"{unique} before"}}]}
    before = await runs.start_raw({"plan": held}, workflow_id=f"{handle.id}/sub")
    bench.open(unique)
    document = await document_of(handle)
    bench.open(f"{unique} before")
    await document_of(before)
    assert bare(document)["nodes"]["sub"] == failed_node(
        "sub_plan_failed: the sub-plan failed: Workflow execution already started"
    )
    await check_replay(await handle.fetch_history(), document)


@pytest.mark.parametrize(
    ("limits", "reported"),
    [
        (({"timeout": "700ms"}, {}), "'held' exceeded its timeout of 0.7 s; still running: hold"),
        (
            ({"timeout": "1m"}, {"deadline": "600ms"}),
            "'held' exceeded the deadline of its plan, 0.6 s; still running: hold",
        ),
    ],
    ids=["of the node", "of its plan"],
)
async def test_sub_plan_that_takes_too_long_is_named_with_its_limit(
    runs: Runs, unique: str, limits: tuple[dict[str, Any], dict[str, Any]], reported: str
) -> None:
    of_node, of_plan = limits
    hold = {"id": "hold", "tool": "hold", "arguments": {"name": unique}, "heartbeat": "1s"}
    handle = await runs.start({"nodes": [{"id": "held", "plan": {"nodes": [hold], **of_plan}, **of_node}]})
    document = bare(await document_of(handle))
    assert document["nodes"]["held"] == failed_node(f"sub_plan_failed: the sub-plan failed: {reported}")
    below = bare(await document_of(runs.client.get_workflow_handle(f"{handle.id}/held")))
    assert (below["status"], below["error"]) == ("failed", f"deadline_exceeded: {reported}")
