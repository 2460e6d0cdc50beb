"""Forks on the real server: reused results, executed nodes, idempotency keys and predictions."""

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from dagwright.client.errors import ForkRejected
from dagwright.client.forks import ForkDraft, Forks, with_current_tools
from dagwright.core.scheduler import map_items
from dagwright.history.run_reader import RunReader
from dagwright.history.run_view import RunView
from dagwright.plans.pages import split_for_transfer
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.protocol.run_input import RunInput, run_input_to_json
from tests.support.goals import call_node
from tests.support.plan_building import plan_of
from tests.support.run_views import view_of
from tests.support.runs import Document, Handle, Runs, document_of
from tests.support.tools import CallHarness
from tests.workflow.building import Gate

pytestmark = pytest.mark.server

Plan = dict[str, Any]


async def fork(
    runs: Runs,
    handle: Handle,
    plan: Plan | None = None,
    *,
    inputs: Mapping[str, Any] | None = None,
    rerun: Collection[str] = (),
) -> tuple[ForkDraft, Handle]:
    """Fork a run as the command `fork` does."""
    forks = Forks(lambda run_id: RunReader(runs.client, run_id), runs.store)
    view = await view_of(runs, handle)
    draft = await forks.draft(view, compile_fork(runs, view, plan, inputs), inputs=inputs or {}, rerun=rerun)
    run_input = await forks.create_run_input(draft)
    sent_plan = await split_for_transfer(draft.plan, runs.store)
    message = run_input_to_json(
        RunInput(
            compiled=sent_plan.plan,
            pages=sent_plan.pages,
            inputs=draft.inputs,
            snapshot=run_input.snapshot,
            known_entities=run_input.known_entities,
            max_in_flight=run_input.max_in_flight,
            model=run_input.model,
        )
    )
    return draft, await runs.start_raw(message, workflow_id=draft.run_id)


def compile_fork(runs: Runs, view: RunView, plan: Plan | None, inputs: Mapping[str, Any] | None) -> Any:
    if plan is not None:
        return prepare_plan(check_plan(plan, runs.tools), inputs or {})
    assert view.scheduler is not None
    return with_current_tools(view.scheduler.plan, runs.tools)


def outcomes_of(document: Document) -> dict[str, Any]:
    """Return the status and the result of each node, and the node from which the result was reused."""
    return {
        name: (node["status"], node["result"], (node["lineage"].get("reused") or {}).get("node_id"))
        for name, node in document["nodes"].items()
    }


async def test_fork_with_changed_input_executes_only_affected_nodes(
    runs: Runs, harness: CallHarness, unique_name: str
) -> None:
    plan = plan_of(
        call_node("a", "plus", left="{{PLACEHOLDER_x}}", right=1),
        call_node("unaffected", "write", name=f"{unique_name} unaffected"),
        call_node("b", "write", name=unique_name + " {{a.result}}"),
        inputs={"x": {"type": "number"}},
        output="{{b.result}}",
    )
    first_run = await runs.start(plan, inputs={"x": 1})
    await document_of(first_run)
    draft, second_run = await fork(runs, first_run, inputs={"x": 2})
    document = await document_of(second_run)

    expected = (["unaffected"], {"a": "reads something that has changed"}, ["b"])
    assert (draft.prediction.reused, draft.prediction.executed, draft.prediction.reused_if_unchanged) == expected
    assert outcomes_of(document) == {
        "a": ("completed", 3.0, None),
        "unaffected": ("completed", f"{unique_name} unaffected", "unaffected"),
        "b": ("completed", f"{unique_name} 3.0", None),
    }
    assert [len(harness.effects[f"{unique_name} {name}"]) for name in ("unaffected", "2.0", "3.0")] == [1, 1, 1]
    assert document["notes"][0]["message"] == f"a fork of the run {first_run.id!r}; 1 result reused"
    source = document["nodes"]["unaffected"]["lineage"]["reused"]
    assert source == {"run_id": first_run.id, "node_id": "unaffected"}
    assert outcomes_of((await RunReader(runs.client, second_run.id).read()).document()) == outcomes_of(document)


async def test_fork_of_a_failed_run_keeps_the_idempotency_keys_of_failed_calls(
    runs: Runs, harness: CallHarness, unique_name: str
) -> None:
    plan = plan_of(
        call_node("done", "return_key", name=f"{unique_name} done"),
        {
            **call_node("each", "return_key", name="{{item.name}}", succeeds_at="{{item.succeeds_at}}"),
            "key": "{{item.name}}",
            "for_each": [
                {"name": f"{unique_name} x", "succeeds_at": 1},
                {"name": f"{unique_name} y", "succeeds_at": 9},
            ],
        },
        {**call_node("after", "echo"), "depends_on": ["each", "done"]},
    )
    plan["nodes"][1]["retry"] = {"max_attempts": 2, "first_delay": "10ms"}
    first_run = await runs.start(plan)
    assert (await document_of(first_run))["nodes"]["each"]["status"] == "failed"
    draft, second_run = await fork(runs, first_run)
    await document_of(second_run)

    keys = {name: harness.effects[f"{unique_name} {name}"] for name in ("done", "x", "y")}
    # Each of the two runs makes two attempts of the item `y`.
    assert [len(node_keys) for node_keys in keys.values()] == [1, 1, 4]
    assert len(set(keys["y"])) == 1
    assert draft.prediction.executed == {f"each[{unique_name} y]": "had failed"}
    _, third_run = await fork(runs, second_run, rerun=["done"])
    await document_of(third_run)
    assert len(set(harness.effects[f"{unique_name} done"])) == 2
    assert len(set(harness.effects[f"{unique_name} y"])) == 1


async def test_fork_reuses_results_inside_sub_plans(runs: Runs, harness: CallHarness, unique_name: str) -> None:
    child_plan = plan_of(
        call_node("written", "write", name=f"{unique_name} written"),
        {
            **call_node("failing", "return_key", name=f"{unique_name} failing", succeeds_at=9),
            "retry": {"max_attempts": 1},
        },
    )
    plan = {"nodes": [{"id": "sub", "plan": child_plan}, {**call_node("after", "echo"), "depends_on": ["sub"]}]}
    first_run = await runs.start(plan)
    await document_of(first_run)
    _, second_run = await fork(runs, first_run)
    await document_of(second_run)
    assert [len(harness.effects[f"{unique_name} {name}"]) for name in ("written", "failing")] == [1, 2]
    assert len(set(harness.effects[f"{unique_name} failing"])) == 1
    child = await RunReader(runs.client, f"{second_run.id}/sub").read()
    expected = {"run_id": f"{first_run.id}/sub", "node_id": "written"}
    assert child.document()["nodes"]["written"]["lineage"]["reused"] == expected

    _, third_run = await fork(runs, second_run, rerun=["sub/written"])
    await document_of(third_run)
    assert len(set(harness.effects[f"{unique_name} written"])) == 2
    assert len(set(harness.effects[f"{unique_name} failing"])) == 1


async def test_node_in_the_sub_plan_of_an_item_can_be_selected_to_run_again(
    runs: Runs, harness: CallHarness, unique_name: str
) -> None:
    child_plan = plan_of(
        call_node("written", "write", name=unique_name + " {{PLACEHOLDER_i}}"),
        call_node("failing", "fail"),
        inputs={"i": {"type": "integer"}},
    )
    map_node = {"id": "m", "for_each": [0, 1], "plan": child_plan, "arguments": {"i": "{{item}}"}}
    first_run = await runs.start({"nodes": [map_node, {"id": "sub", "plan": {"nodes": [call_node("a", "echo")]}}]})
    await document_of(first_run)
    for unknown_node in ("m[2]/written", "m[1]/writer", "sub/b", "sub/a/b"):
        with pytest.raises(ForkRejected, match="the fork has no such node or item"):
            await fork(runs, first_run, rerun=[unknown_node])
    draft, second_run = await fork(runs, first_run, rerun=["m[1]/written"])
    await document_of(second_run)
    assert draft.prediction.executed == {"m[0]": "had failed in part", "m[1]": "was selected to run again"}
    assert [len(harness.effects[f"{unique_name} {item}"]) for item in (0, 1)] == [1, 2]
    assert len(set(harness.effects[f"{unique_name} 1"])) == 2


async def test_results_of_pure_nodes_and_large_maps_are_reused(
    cached_runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_items, "MAP_BATCH_ITEMS", 20)
    plan = plan_of(
        call_node("big", "table", rows=2_000),
        call_node("one", "add", left="{{big.result.n}}", right=1),
        call_node("two", "add", left="{{one.result}}", right=1),
        {**call_node("many", "echo", value="{{item}}"), "for_each": [f"{number} {'x' * 500}" for number in range(21)]},
        output="{{two.result}}",
    )
    first_run = await cached_runs.start(plan)
    first_document = await document_of(first_run)
    plan_with_new_node = {
        **plan,
        "nodes": [*plan["nodes"], call_node("name", "echo", name="{{big.result.rows[7].name}}")],
    }
    draft, second_run = await fork(cached_runs, first_run, plan_with_new_node)
    forked_document = await document_of(second_run)

    assert draft.prediction.reused == ["big", "one", "two", "many"]
    assert draft.prediction.executed == {"name": "is new"}
    assert forked_document["nodes"]["name"]["result"] == {"name": "row 7"}
    assert (forked_document["output"], first_document["output"]) == (2002.0, 2002.0)
    map_results = [
        (await cached_runs.read_document(handle, full=True))["nodes"]["many"]["result"]
        for handle in (first_run, second_run)
    ]
    assert map_results[0] == map_results[1]
    await cached_runs.check_runs()


async def test_fork_with_a_large_snapshot_reuses_all_results(runs: Runs) -> None:
    # The results have over 700 KB together, so the snapshot of the fork goes through the payload store.
    nodes = [call_node(f"n{number}", "echo", text=f"{number} " * 2_000) for number in range(120)]
    first_run = await runs.start({"nodes": [{**node, "tool": "echo"} for node in nodes]})
    await document_of(first_run)
    draft, second_run = await fork(runs, first_run)
    document = await document_of(second_run)

    assert len(draft.prediction.reused) == 120
    assert {node["status"] for node in document["nodes"].values()} == {"completed"}
    assert {node["lineage"]["reused"]["run_id"] for node in document["nodes"].values()} == {first_run.id}


@pytest.mark.usefixtures("small_pages")
async def test_region_whose_nodes_are_in_the_payload_store_runs_again_in_a_fork(runs: Runs) -> None:
    node_count = 410
    nodes: list[Plan] = [call_node("look", "echo", n=1), call_node("n0", "add", left="{{look.result.n}}", right=1)]
    nodes += [
        call_node(f"n{number}", "add", left=f"{{{{n{number - 1}.result}}}}", right=1) for number in range(1, node_count)
    ]
    first_run = await runs.start({"nodes": nodes, "output": f"{{{{n{node_count - 1}.result}}}}"})
    first_document = await document_of(first_run)
    draft, second_run = await fork(runs, first_run)

    assert draft.prediction.reused == ["look"]
    # The run contains only the last node of the region.
    assert draft.prediction.executed == {f"n{node_count - 1}": "belongs to an offloaded region of pure nodes"}
    assert (await document_of(second_run))["output"] == first_document["output"] == node_count + 1.0


async def test_child_run_cannot_be_forked_alone(runs: Runs) -> None:
    first_run = await runs.start({"nodes": [{"id": "sub", "plan": {"nodes": [call_node("a", "echo")]}}]})
    await document_of(first_run)
    with pytest.raises(ForkRejected, match=f"is a part of the run '{first_run.id}': fork the run"):
        await fork(runs, runs.client.get_workflow_handle(f"{first_run.id}/sub"))


async def test_run_with_a_running_write_cannot_be_forked_until_the_write_ends(runs: Runs, gate: Gate) -> None:
    plan = {"nodes": [call_node("held", "hold_write", name=gate.name), call_node("done", "echo")]}
    first_run = await gate.start_run(runs, plan)
    with pytest.raises(ForkRejected, match="'held' is a write that is running"):
        await fork(runs, first_run)
    gate.open()
    await document_of(first_run)
    _, second_run = await fork(runs, first_run)
    assert outcomes_of(await document_of(second_run))["held"] == ("completed", gate.name, "held")
    assert len(gate.effects) == 1
