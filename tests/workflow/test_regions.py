"""Regions (groups of pure nodes that share an activity) on the real server."""

from dataclasses import replace

import pytest

from dagwright.core.errors import PlanInvalid
from dagwright.core.model.compiled import plan_to_json
from dagwright.core.model.tools import Effects
from dagwright.plans.preparation import check_plan, prepare_plan
from tests.support.goals import call_node
from tests.support.people import tool_node
from tests.support.plan_building import plan_of
from tests.support.runs import (
    Handle,
    Runs,
    bare_document,
    blocked_node,
    cancelled_node,
    completed_node,
    document_of,
    failed_node,
    scheduled_calls,
)
from tests.support.tools import digest_of, json_of
from tests.workflow.building import Gate, pure_node

pytestmark = pytest.mark.server


async def read_activity_ids(handle: Handle) -> list[str]:
    """Return the IDs of all activities of a run, in order."""
    return [scheduled_call.activity_id for scheduled_call in scheduled_calls(await handle.fetch_history())]


async def test_chain_of_pure_nodes_runs_in_one_activity(runs: Runs) -> None:
    dependents = [pure_node(f"n{n}", f"{{{{n{n - 1}.result}}}}") for n in range(1, 50)]
    handle = await runs.start({"nodes": [pure_node("n0", 1), *dependents], "output": "{{n49.result}}"})
    document = await document_of(handle)
    assert bare_document(document)["output"] == 51
    assert bare_document(document)["nodes"] == {f"n{n}": completed_node(n + 2) for n in range(50)}
    node = document["nodes"]["n7"]
    assert (node["attempts"], node["tool"], node["lineage"]["inputs"]) == (1, "add", ["n6"])
    assert node["started_at"] <= node["ended_at"]
    assert node["lineage"]["tool_version"] == runs.versions["add"]
    assert await read_activity_ids(handle) == ["region:n0"]


async def test_ordinary_node_starts_before_the_region_of_its_dependency_ends(runs: Runs, gate: Gate) -> None:
    plan = plan_of(
        call_node("first", "text", size=8_000),
        *(call_node(f"t{number}", "text", size=8_000) for number in range(40)),
        tool_node("held", "pure_hold", "t9", arguments={"name": gate.name}, timeout="60s"),
        tool_node("ordinary", "echo", "first"),
    )
    handle = await gate.start_run(runs, plan)
    ordinary_node = None
    while ordinary_node is None or ordinary_node["status"] != "completed":
        ordinary_node = await handle.query("node", "ordinary")
    assert (await handle.query("node", "held"))["status"] == "ready"
    gate.open_for_threads()
    assert bare_document(await document_of(handle))["nodes"]["held"] == completed_node(gate.name)
    assert await read_activity_ids(handle) == ["region:first", "ordinary", "region:first#2"]


async def test_region_batch_ends_before_its_results_are_too_large(runs: Runs) -> None:
    text_nodes = [call_node(f"t{n}", "text", size=8_000) for n in range(80)]
    length_node = tool_node("length", "length", "t79", arguments={"text": "{{t0.result}}"})
    handle = await runs.start({"nodes": [*text_nodes, length_node], "output": "{{length.result}}"})
    assert bare_document(await document_of(handle))["output"] == 8_000
    assert await read_activity_ids(handle) == ["region:t0", "region:t0#2", "region:t0#3"]


async def test_long_texts_of_the_plan_do_not_fill_a_region_batch(runs: Runs) -> None:
    length_nodes = [call_node(f"n{n}", "length", text="x" * 300_000 + "{{root.result}}") for n in range(8)]
    handle = await runs.start({"nodes": [call_node("root", "text", size=5), *length_nodes]})
    assert (await document_of(handle))["output"] == {f"n{n}": 300_005 for n in range(8)}
    assert max(event.ByteSize() for event in (await handle.fetch_history()).events) < 600_000


async def test_large_results_read_by_conditions_do_not_fill_the_result_of_a_region_batch(runs: Runs) -> None:
    root_node = call_node("root", "text", size=5)
    text_nodes = [tool_node(f"t{n}", "text", "root", arguments={"size": 140_000}) for n in range(16)]
    conditional_nodes = [tool_node(f"a{n}", "echo", when=f"t{n}.result != ''") for n in range(16)]
    handle = await runs.start({"nodes": [root_node, *text_nodes, *conditional_nodes]})
    assert {node["status"] for node in (await document_of(handle))["nodes"].values()} == {"completed"}
    assert not any(activity_id.startswith("t") for activity_id in await read_activity_ids(handle))
    assert max(event.ByteSize() for event in (await handle.fetch_history()).events) < 600_000


async def test_large_results_inside_and_outside_of_a_region_are_stored(runs: Runs) -> None:
    nodes = [
        call_node("out", "table", rows=500),
        *(tool_node(f"text{n}", "text", "out", arguments={"size": 50_000 + n}) for n in range(40)),
        call_node("inside", "length", text="{{text7.result}}"),
        call_node("outside", "length", text="{{out.result.rows[3].text}}, {{out.result.rows}}"),
        call_node("missing", "length", text="{{out.result.row}}"),
        call_node("after", "digest", value="{{text3.result}}"),
        call_node("last", "length", text="{{text9.result}}{{after.result}}"),
    ]
    handle = await runs.start({"nodes": nodes})
    document = await document_of(handle)
    rows = [{"name": f"row {number}", "text": "x" * 20} for number in range(500)]
    results = {
        node_id: document["nodes"][node_id]["result"] for node_id in ("inside", "outside", "missing", "after", "last")
    }
    # `outside` reads 20 characters, a comma with a blank, and all rows.
    assert results == {
        "inside": 50_007,
        "outside": 22 + len(json_of(rows)),
        "missing": None,
        "after": digest_of("x" * 50_003),
        "last": 50_009 + len(digest_of("x")),
    }
    expected = "Missing data: out.result.row: 'row' not found in out.result; it has n, rows"
    assert document["nodes"]["missing"]["error"]["message"] == expected
    # The text has 50,005 characters, and quotes in JSON.
    assert document["nodes"]["text5"]["result"]["bytes"] == 50_007
    assert (await runs.read_document(handle))["nodes"]["text5"]["result"] == "x" * 50_005
    assert sum(event.ByteSize() for event in (await handle.fetch_history()).events) < 200_000


async def test_pure_tools_reject_secrets_in_plan_documents_and_compiled_plans(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGWRIGHT_SECRET_TOKEN", "very-secret-text")
    monkeypatch.setenv("DAGWRIGHT_SECRET_TOKEN_TOOLS", "*")
    nodes = [call_node("with_secret", "pure_secret", token="a {{secret.TOKEN}}")]
    with pytest.raises(PlanInvalid, match="'pure_secret' takes no secrets"):
        await runs.run({"nodes": nodes})
    tools = {**runs.tools, "pure_secret": replace(runs.tools["pure_secret"], effects=Effects.READ)}
    compiled = plan_to_json(prepare_plan(check_plan({"plan": 1, "nodes": nodes}, tools), {}))
    assert (await runs.run_raw({"compiled": compiled}))["nodes"] == {
        "with_secret": failed_node(
            "secret_not_allowed: 'pure_secret' takes no secrets: its results could expose 'TOKEN'"
        )
    }


async def test_pure_node_over_its_timeout_fails_and_other_nodes_continue(runs: Runs, gate: Gate) -> None:
    nodes = [
        tool_node("slow", "pure_hold", arguments={"name": gate.name}, timeout="200ms"),
        call_node("after", "length", text="{{slow.result}}"),
        pure_node("good", 1, priority=5),
    ]
    document = await runs.run({"nodes": nodes})
    gate.open_for_threads()
    assert document["nodes"] == {
        "slow": failed_node("timeout: pure_hold took over 0.2 s"),
        "after": blocked_node("slow"),
        "good": completed_node(2),
    }


async def test_cancelled_run_keeps_the_results_of_its_region(runs: Runs, gate: Gate) -> None:
    nodes = [
        pure_node("done", 1),
        tool_node("held", "pure_hold", "done", arguments={"name": gate.name}, timeout="60s"),
        call_node("after", "length", text="{{held.result}}"),
    ]
    handle = await gate.start_run(runs, {"nodes": nodes})
    await handle.signal("cancel", {"reason": "enough"})
    document = bare_document(await document_of(handle))
    assert document["status"] == "cancelled"
    expected = {"done": completed_node(2), "held": completed_node(gate.name), "after": cancelled_node("enough")}
    assert document["nodes"] == expected


async def test_region_may_have_long_node_ids(runs: Runs) -> None:
    first_id, second_id = "é" * 100, "ö" * 100
    document = await runs.run({"nodes": [pure_node(first_id, 1), pure_node(second_id, f"{{{{{first_id}.result}}}}")]})
    assert document["nodes"] == {first_id: completed_node(2), second_id: completed_node(3)}
