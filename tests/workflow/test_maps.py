"""Large maps on the real server. A map is a node with `for_each`, and each batch of its items is a child run.

These tests split maps of over 20 items. In production, the limit is 500 items.
"""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from dagwright.core.expressions import projection
from dagwright.core.scheduler import map_items
from dagwright.history.document_hydration import hydrated_document
from dagwright.history.map_items import ItemNotStarted, view_of_item
from dagwright.history.run_reader import RunReader
from dagwright.protocol import map_batch_runs
from dagwright.settings import Settings
from dagwright.store.folder import FolderStore
from dagwright.tools import ToolRegistry, tool
from tests.support.eventually import eventually
from tests.support.goals import call_node
from tests.support.people import tool_node
from tests.support.plan_building import plan_of
from tests.support.runs import (
    Document,
    Runs,
    bare_document,
    bare_node,
    completed_node,
    document_of,
    failed_node,
    histories_of,
    scheduled_calls,
    serving_runs,
)
from tests.support.tools import CallHarness
from tests.workflow.building import Gate

pytestmark = pytest.mark.server

PRODUCTION_BATCH_ITEMS = map_items.MAP_BATCH_ITEMS
"""Maximum number of items in a map batch in production."""


class Meter:
    """A counter of concurrent calls and of their maximum number."""

    def __init__(self) -> None:
        self.running = 0
        self.max_running = 0


@pytest.fixture(autouse=True)
def _small_map_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Split maps of over 20 items."""
    monkeypatch.setattr(map_items, "MAP_BATCH_ITEMS", 20)


@pytest.fixture(scope="module")
def meter() -> Meter:
    return Meter()


@pytest.fixture(scope="module")
async def map_runs(
    client: Client, harness: CallHarness, meter: Meter, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Runs]:
    @tool(effects="read")
    async def square(n: int) -> int:
        return n * n

    @tool(effects="read")
    async def measured_call(n: int) -> int:
        meter.running += 1
        meter.max_running = max(meter.max_running, meter.running)
        await asyncio.sleep(0.02)
        meter.running -= 1
        return n

    @tool(effects="read")
    def wide_table(rows: int, size: int) -> dict[str, Any]:
        return {"rows": [{"name": f"row {number}", "text": "x" * size} for number in range(rows)]}

    registry = ToolRegistry.of(*harness.registry(), square, measured_call, wide_table)
    settings = Settings(state_dir=tmp_path_factory.mktemp("maps"))
    async with serving_runs(client, registry, settings=settings) as runs:
        yield runs


@pytest.fixture
async def runs(map_runs: Runs) -> AsyncIterator[Runs]:
    """Runs of a worker. At the end of each test, their histories are checked and replayed."""
    yield map_runs
    await map_runs.check_runs()


def _map_plan(items: Any, *extra_nodes: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a plan of `extra_nodes` and a map over `items`. `fields` are fields of the map."""
    map_node = tool_node("m", "square", for_each=items, arguments={"n": "{{item}}"})
    return {"nodes": [{**map_node, **fields}, *extra_nodes]}


async def test_results_are_joined_in_the_order_of_the_items(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_items, "MAP_BATCH_ITEMS", PRODUCTION_BATCH_ITEMS)
    size = PRODUCTION_BATCH_ITEMS + 1
    dependent_node = call_node("after", "echo", ends=["{{m.result[0]}}", f"{{{{m.result[{size - 1}]}}}}"])
    plan = _map_plan(list(range(size)), dependent_node, tool="echo", arguments={"n": "{{item}}", "index": "{{index}}"})
    handle = await runs.start(plan)
    document = await document_of(handle)
    assert document["output"] == {"after": {"ends": [{"n": 0, "index": 0}, {"n": size - 1, "index": size - 1}]}}
    assert list(document["nodes"]) == ["m", "after"]
    assert document["nodes"]["m"]["items"] == {"completed": size}
    full_document = await runs.read_document(handle, full=True)
    assert full_document["nodes"]["m"]["result"] == [{"n": number, "index": number} for number in range(size)]
    assert full_document["nodes"]["m"]["items"] == {"completed": size}


async def test_condition_of_a_map_is_evaluated_for_each_item(runs: Runs) -> None:
    limit = call_node("limit", "echo", n=14)
    plan = {**_map_plan(list(range(24)), limit, when="item >= limit.result.n && index != 19 && item < inputs.max")}
    plan["inputs"] = {"max": {"type": "integer"}}
    document = await document_of(await runs.start(plan, inputs={"max": 23}))
    assert document["nodes"]["m"]["error"] is None
    assert document["nodes"]["m"]["items"] == {"completed": 8, "skipped": 16}
    results = [number**2 if 14 <= number < 23 and number != 19 else None for number in range(24)]
    assert document["nodes"]["m"]["result"] == results


async def test_items_read_other_nodes_and_inputs(runs: Runs) -> None:
    nodes = [call_node("bad", "fail", message="no luck"), call_node("table", "table", rows=300)]
    arguments = {
        "why": "{{bad.error.message}}",
        "row": "{{table.result.rows[7].name}} of {{index}}",
        "unit": "{{PLACEHOLDER_unit}}",
    }
    plan = {
        **_map_plan(list(range(21)), *nodes, tool="echo", arguments=arguments, join="all_done"),
        "inputs": {"unit": {"type": "string"}},
        "output": ["{{m.result[0]}}", "{{m.result[20]}}"],
    }
    document = await document_of(await runs.start(plan, inputs={"unit": "g"}))
    assert document["output"] == [{"why": "no luck", "row": f"row 7 of {index}", "unit": "g"} for index in (0, 20)]


@pytest.mark.parametrize("rows", [18, 24], ids=["items of the run", "map batches"])
async def test_items_of_a_list_in_the_store_have_keys(runs: Runs, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """The list, and the items of a batch, are too large to be inline in a run."""
    monkeypatch.setattr(projection, "MAX_DECISION_PARTS_BYTES", 2_000)
    table = call_node("table", "wide_table", rows=rows, size=2_000)
    arguments = {"name": "{{item.name}}", "index": "{{index}}"}
    plan = _map_plan("{{table.result.rows}}", table, tool="echo", arguments=arguments, key="{{item.name}} of {{index}}")
    handle = await runs.start({**plan, "output": ["{{m.result[7]}}", f"{{{{m.result[{rows - 1}]}}}}"]})
    document = await document_of(handle)
    assert document["nodes"]["m"]["error"] is None
    assert document["output"] == [{"name": f"row {index}", "index": index} for index in (7, rows - 1)]
    _, item_document = await _find_item(runs, handle.id, f"m[row {rows - 1} of {rows - 1}]")
    assert item_document == completed_node({"name": f"row {rows - 1}", "index": rows - 1})


async def test_map_with_too_large_keys_fails_as_too_large(runs: Runs) -> None:
    table = call_node("table", "wide_table", rows=2_000, size=190)
    document = await runs.run(_map_plan("{{table.result.rows}}", table, tool="echo", key="{{item.text}}"))
    assert document["nodes"]["m"] == failed_node(
        "too_large: the key of item 0 needs a part of the item that is in the payload store, where the run itself "
        "cannot read it: for lists over 192 KiB, `key` may read at most 192 KiB in total, and only parts that every "
        "item has; omit `key`, or make a smaller list in a tool"
    )


async def test_each_activity_of_a_map_has_a_heartbeat_timeout(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "MAX_DECISION_PARTS_BYTES", 2_000)
    monkeypatch.setattr(map_batch_runs, "MAX_INLINE_BATCH_RESULTS_BYTES", 10)
    table = call_node("table", "wide_table", rows=24, size=500)
    plan = _map_plan("{{table.result.rows}}", table, tool="echo", arguments={"n": "{{index}}"}, when="index % 10 == 0")
    handle = await runs.start(plan)
    await document_of(handle)
    timeouts_s = {}
    for history in await histories_of(runs.client, handle):
        for scheduled_call in scheduled_calls(history):
            timeout_s = scheduled_call.heartbeat_timeout.ToTimedelta().total_seconds()
            timeouts_s[scheduled_call.activity_type.name] = timeout_s
    assert timeouts_s == {"wide_table": 3.0, "load_items": 15.0, "echo": 3.0, "put_blob": 3.0, "join_items": 15.0}


async def test_map_batches_share_the_parallel_limit_of_their_run(runs: Runs, meter: Meter) -> None:
    meter.max_running = 0
    (map_node,) = _map_plan(list(range(24)), tool="measured_call")["nodes"]
    plan = plan_of(map_node, {**map_node, "id": "n"}, call_node("alone", "measured_call", n=7))
    document = await document_of(await runs.start_raw({"plan": plan, "options": {"max_parallel": 6}}))
    expected = dict.fromkeys(("m", "n", "alone"), "completed")
    assert {node_id: node["status"] for node_id, node in document["nodes"].items()} == expected
    assert 2 <= meter.max_running <= 6


async def test_sub_plans_of_many_items_are_started_by_map_batches(runs: Runs) -> None:
    child_plan = plan_of(
        call_node("x", "square", n="{{PLACEHOLDER_n}}"), inputs={"n": {"type": "integer"}}, output="{{x.result}}"
    )
    node = {"id": "m", "plan": child_plan, "for_each": list(range(21)), "arguments": {"n": "{{item}}"}}
    handle = await runs.start({"nodes": [{**node, "when": "item in [0, 12, 20]"}]})
    document = await document_of(handle)
    assert document["nodes"]["m"]["items"] == {"completed": 3, "skipped": 18}
    assert document["nodes"]["m"]["result"] == [n**2 if n in (0, 12, 20) else None for n in range(21)]
    id_suffixes = {history.workflow_id.removeprefix(handle.id) for history in await histories_of(runs.client, handle)}
    assert {"/m[0-5]/m[0]", "/m[11-15]/m[12]", "/m[16-20]/m[20]"} <= id_suffixes


async def _find_item(runs: Runs, run_id: str, task_id: str) -> tuple[str, Document | None]:
    """Find a node or item. Return the suffix of the ID of its run, and its bare document."""
    reader = partial(RunReader, runs.client)
    view = await view_of_item(await reader(run_id).read(), task_id, open_reader=reader)
    node_document = (await hydrated_document(view, runs.store, only_node=task_id))["nodes"].get(task_id)
    return view.run_id.removeprefix(run_id), node_document and bare_node(node_document)


async def test_item_is_found_by_its_key_in_the_run_of_its_map_batch(runs: Runs) -> None:
    items = [{"name": f"item {number}"} for number in range(22)]
    handle = await runs.start(_map_plan(items, tool="echo", key="{{item.name}}", arguments={"n": "{{index}}"}))
    await document_of(handle)
    assert await _find_item(runs, handle.id, "m[item 13]") == ("/m[12-16]", completed_node({"n": 13}))
    assert await _find_item(runs, handle.id, "m[item 22]") == ("", None)
    assert (await _find_item(runs, handle.id, "m"))[0] == ""


async def test_item_of_a_map_batch_that_has_not_started_is_unknown(
    runs: Runs, harness: CallHarness, unique_name: str
) -> None:
    items = [str(number) for number in range(84)]
    node = {"tool": "hold", "arguments": {"name": unique_name}, "heartbeat": "1s", "max_parallel": 4}
    keyed_map, unkeyed_map = ({"id": node_id, "for_each": items, **node} for node_id in ("by_key", "by_index"))
    handle = await runs.start({"nodes": [{**keyed_map, "key": "k{{item}}"}, unkeyed_map]})
    await eventually(lambda: harness.entered.count(unique_name) == 8, timeout_s=30)
    message = r"'by_key\[k80\]' is not known yet: the items of 'by_key\[44-53\]' and 3 more batches have not started"
    with pytest.raises(ItemNotStarted, match=f"^{message}$"):
        await _find_item(runs, handle.id, "by_key[k80]")
    message = r"'by_index\[80\]' is not known yet: the items of 'by_index\[74-83\]' have not started"
    with pytest.raises(ItemNotStarted, match=f"^{message}$"):
        await _find_item(runs, handle.id, "by_index[80]")
    assert (await _find_item(runs, handle.id, "by_key[k0]"))[0] == "/by_key[0-10]"
    await handle.signal("cancel", {})
    await document_of(handle)


async def test_cancellation_reaches_every_map_batch(runs: Runs, harness: CallHarness, unique_name: str) -> None:
    plan = _map_plan(list(range(24)), tool="hold", arguments={"name": unique_name}, heartbeat="1s", max_parallel=8)
    handle = await runs.start(plan)
    await eventually(lambda: harness.entered.count(unique_name) == 8, timeout_s=30)
    await handle.signal("cancel", {"reason": "enough"})
    document = await document_of(handle)
    assert document["status"] == "cancelled"
    assert document["nodes"]["m"]["items"] == {"cancelled": 24}
    assert bare_document(document)["nodes"]["m"] == {"status": "cancelled"}


async def test_terminated_map_batch_fails_its_items(runs: Runs, gate: Gate) -> None:
    plan = _map_plan(list(range(24)), tool="hold", arguments={"name": gate.name}, heartbeat="1s")
    handle = await runs.start(plan)
    await eventually(lambda: gate.call_count >= 1, timeout_s=30)
    await runs.client.get_workflow_handle(f"{handle.id}/m[0-5]").terminate("terminated manually")
    gate.open()
    document = await document_of(handle)
    assert document["nodes"]["m"]["items"] == {"completed": 18, "failed": 6}
    failure = "6 of 24 items failed; the first: m[0-5]: the sub-plan failed: the sub-plan was terminated"
    assert bare_document(document)["nodes"]["m"] == failed_node(f"sub_plan_failed: {failure}")
    runs.exclude_from_checks(handle)


async def test_map_batches_whose_results_the_store_rejects_fail_as_store_rejected(runs: Runs) -> None:
    """Guard F21: a store that permanently rejects results is not reported as a bug."""
    error = ApplicationError("given up manually", non_retryable=True)
    with patch.object(FolderStore, "put", side_effect=error):
        document = await runs.run(_map_plan(list(range(24)), tool="echo", arguments={"text": "x" * 1_000}))
    message = "the items are done, but the payload store permanently rejected their results: given up manually"
    failure = f"store_rejected: 24 of 24 items failed; the first: m[0-5]: {message}"
    assert (document["status"], document["nodes"]["m"]) == ("failed", failed_node(failure))
