"""Large maps on the real server: over 500 items, each chunk of them a run of its own."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from dagwright.chunk_items import ItemNotBegun, view_of_item
from dagwright.contracts.idempotency import idempotency_key
from dagwright.feed import RunFeed
from dagwright.restoring import restored_document
from dagwright.settings import Settings
from dagwright.store.folder import FolderStore
from dagwright.tools import ToolRegistry, context, tool
from tests.support.eventually import eventually
from tests.support.runs import (
    Document,
    Runs,
    bare,
    bare_node,
    blocked,
    document_of,
    done,
    events_of,
    failed,
    histories_of,
    serving_runs,
)
from tests.support.tools import Bench

pytestmark = pytest.mark.server

SIZE = 1_300


class Meter:
    """How many calls run at once."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0


@pytest.fixture(scope="module")
def meter() -> Meter:
    return Meter()


@pytest.fixture(scope="module")
async def runs_of_maps(
    client: Client, bench: Bench, meter: Meter, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Runs]:
    @tool(effects="read")
    async def square(n: int) -> int:
        return n * n

    @tool(effects="read")
    async def odd_only(n: int, wrong: list[int]) -> int:
        if n in wrong:
            raise ValueError(f"{n} is wrong")
        return n

    @tool(effects="idempotent")
    async def keep_key(n: int) -> str:
        return context().idempotency_key

    @tool(effects="read")
    async def metered(n: int) -> int:
        meter.running += 1
        meter.most = max(meter.most, meter.running)
        await asyncio.sleep(0.002)
        meter.running -= 1
        return n

    @tool(effects="read")
    def wide_table(rows: int, size: int) -> dict[str, Any]:
        return {"rows": [{"name": f"row {number}", "text": "x" * size} for number in range(rows)]}

    @tool(effects="read", max_parallel=3)
    async def metered_narrow(n: int) -> int:
        return await metered(n)

    registry = ToolRegistry.of(*bench.registry(), square, odd_only, keep_key, metered, metered_narrow, wide_table)
    settings = Settings(state_dir=tmp_path_factory.mktemp("maps"))
    async with serving_runs(client, registry, settings=settings) as runs:
        yield runs


@pytest.fixture
async def runs(runs_of_maps: Runs) -> AsyncIterator[Runs]:
    """Runs of a worker with memory; every history of a test replays."""
    yield runs_of_maps
    await runs_of_maps.check_ended()


def _over(items: Any, *more: dict[str, Any], **node: Any) -> dict[str, Any]:
    """Returns a plan with a map over items, and more nodes."""
    base = {"id": "m", "tool": "square", "for_each": items, "arguments": {"n": "{{item}}"}}
    return {"nodes": [{**base, **node}, *more]}


async def test_results_are_joined_in_the_order_of_the_items(runs: Runs) -> None:
    after = {"id": "after", "tool": "echo", "arguments": {"ends": ["{{m.result[0]}}", f"{{{{m.result[{SIZE - 1}]}}}}"]}}
    plan = _over(list(range(SIZE)), after, tool="echo", arguments={"n": "{{item}}", "at": "{{index}}"})
    handle = await runs.start(plan)
    document = await document_of(handle)
    last = {"n": SIZE - 1, "at": SIZE - 1}
    assert document["output"] == {"after": {"ends": [{"n": 0, "at": 0}, last]}}
    assert list(document["nodes"]) == ["m", "after"]
    assert document["nodes"]["m"]["items"] == {"completed": SIZE}
    restored = await runs.restored(handle, full=True)
    assert restored["nodes"]["m"]["result"] == [{"n": number, "at": number} for number in range(SIZE)]
    assert restored["nodes"]["m"]["items"] == {"completed": SIZE}


async def test_small_results_stand_in_the_run(runs: Runs) -> None:
    handle = await runs.start(_over(list(range(600))))
    document = await document_of(handle)
    assert document["nodes"]["m"]["result"] == [number**2 for number in range(600)]
    names = [history.workflow_id.removeprefix(handle.id) for history in await histories_of(runs.client, handle)]
    assert sorted(names) == ["", "/m[0-149]", "/m[150-299]", "/m[300-449]", "/m[450-599]"]


async def test_failed_items_fail_the_map_with_their_count_and_the_first(runs: Runs) -> None:
    after = {"id": "after", "tool": "echo", "depends_on": ["m"]}
    wrong = {"n": "{{item}}", "wrong": [700, 701, 1200]}
    document = await runs.run(_over(list(range(SIZE)), after, tool="odd_only", arguments=wrong))
    assert document["nodes"] == {
        "m": failed("tool_failed: 3 of 1300 items failed; the first: m[700]: 700 is wrong"),
        "after": blocked("m"),
    }


async def test_value_stands_in_for_failed_items(runs: Runs) -> None:
    wrong = {"n": "{{item}}", "wrong": [0, 599]}
    plan = _over(list(range(600)), tool="odd_only", arguments=wrong, on_error={"value": "none"})
    document = await runs.run(plan)
    assert document["nodes"]["m"] == done(["none", *range(1, 599), "none"])


async def test_items_keep_the_keys_that_they_would_have_in_one_run(runs: Runs) -> None:
    items = [{"name": f"item {number}"} for number in range(510)]
    plan = _over(items, tool="keep_key", key="{{item.name}}", arguments={"n": "{{index}}"})
    handle = await runs.start(plan)
    await document_of(handle)
    restored = await runs.restored(handle, full=True)
    scope = str(handle.first_execution_run_id)
    paths = [[["node", "m"], ["item", item["name"]]] for item in items]
    assert restored["nodes"]["m"]["result"] == [idempotency_key(scope, path) for path in paths]


async def test_keys_must_differ_over_the_whole_map(runs: Runs) -> None:
    items = [*range(600), 0]
    document = await runs.run(_over(items, key="{{item}}"))
    assert document["nodes"]["m"] == failed(
        "duplicate_key: 'm[0]' names two items or nodes; the keys of 'm' must differ from each other"
    )


async def test_condition_of_items_is_asked_for_each(runs: Runs) -> None:
    limit = {"id": "limit", "tool": "echo", "arguments": {"n": 590}}
    plan = {**_over(list(range(600)), limit, when="item >= limit.result.n && index != 595 && item < inputs.most")}
    plan["inputs"] = {"most": {"type": "integer"}}
    document = await document_of(await runs.start(plan, inputs={"most": 599}))
    assert document["nodes"]["m"]["error"] is None
    assert document["nodes"]["m"]["items"] == {"completed": 8, "skipped": 592}
    results = [number**2 if 590 <= number < 599 and number != 595 else None for number in range(600)]
    assert document["nodes"]["m"]["result"] == results


async def test_items_read_other_nodes_and_inputs(runs: Runs) -> None:
    nodes = [
        {"id": "bad", "tool": "fail", "arguments": {"message": "no luck"}},
        {"id": "table", "tool": "table", "arguments": {"rows": 300}},
    ]
    arguments = {
        "why": "{{bad.error.message}}",
        "row": "{{table.result.rows[7].name}} of {{index}}",
        "given": "{{PLACEHOLDER_given}}",
    }
    plan = {
        **_over(list(range(501)), *nodes, tool="echo", arguments=arguments, join="all_done"),
        "inputs": {"given": {"type": "string"}},
        "output": ["{{m.result[0]}}", "{{m.result[500]}}"],
    }
    document = await document_of(await runs.start(plan, inputs={"given": "g"}))
    assert document["output"] == [{"why": "no luck", "row": f"row 7 of {index}", "given": "g"} for index in (0, 500)]


async def test_list_in_the_store_is_taken_in_chunks(runs: Runs) -> None:
    table = {"id": "table", "tool": "table", "arguments": {"rows": 3_000}}
    arguments = {"name": "{{item.name}}", "at": "{{index}}"}
    plan = _over("{{table.result.rows}}", table, tool="echo", arguments=arguments, when="index % 10 == 0")
    handle = await runs.start(plan)
    document = await document_of(handle)
    assert document["nodes"]["m"]["error"] is None
    assert document["nodes"]["m"]["items"] == {"completed": 300, "skipped": 2_700}
    restored = await runs.restored(handle, full=True)
    expected = [{"name": f"row {at}", "at": at} if at % 10 == 0 else None for at in range(3_000)]
    assert restored["nodes"]["m"]["result"] == expected


@pytest.mark.parametrize(("rows", "size"), [(400, 600), (1_200, 2_000)], ids=["items of the run", "chunks"])
async def test_items_of_a_list_in_the_store_have_keys(runs: Runs, rows: int, size: int) -> None:
    """They are so large that neither the list nor an item of a chunk stands in a run."""
    table = {"id": "table", "tool": "wide_table", "arguments": {"rows": rows, "size": size}}
    arguments = {"name": "{{item.name}}", "at": "{{index}}"}
    plan = _over("{{table.result.rows}}", table, tool="echo", arguments=arguments, key="{{item.name}} of {{index}}")
    handle = await runs.start({**plan, "output": ["{{m.result[7]}}", f"{{{{m.result[{rows - 1}]}}}}"]})
    document = await document_of(handle)
    assert document["nodes"]["m"]["error"] is None
    assert document["output"] == [{"name": f"row {at}", "at": at} for at in (7, rows - 1)]
    found = await _found(runs, handle.id, f"m[row {rows - 1} of {rows - 1}]")
    assert found[1] == done({"name": f"row {rows - 1}", "at": rows - 1})


async def test_keys_that_are_too_large_to_be_told_are_refused_in_a_sentence(runs: Runs) -> None:
    table = {"id": "table", "tool": "wide_table", "arguments": {"rows": 2_000, "size": 190}}
    plan = _over("{{table.result.rows}}", table, tool="echo", key="{{item.text}}")
    document = await runs.run(plan)
    assert document["nodes"]["m"] == failed(
        "too_large: the key of item 0 needs a part of it that lies in the payload store, where the run itself cannot "
        "read it: the list is over 192 KiB, and what its keys read is too, or is not in every item; leave out `key`, "
        "or let a tool make a smaller list"
    )


async def test_death_of_a_worker_is_soon_noticed_in_every_activity_of_a_map(runs: Runs) -> None:
    table = {"id": "table", "tool": "table", "arguments": {"rows": 6_000}}
    plan = _over("{{table.result.rows}}", table, tool="echo", arguments={"n": "{{index}}"}, when="index % 200 == 0")
    handle = await runs.start(plan)
    await document_of(handle)
    waits = {}
    for history in await histories_of(runs.client, handle):
        for event in events_of(history, EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED):
            scheduled = event.activity_task_scheduled_event_attributes
            waits[scheduled.activity_type.name] = scheduled.heartbeat_timeout.ToTimedelta().total_seconds()
    assert waits == {"table": 3.0, "load_items": 15.0, "echo": 3.0, "put_blob": 3.0, "join_items": 15.0}


@pytest.mark.parametrize(("node", "most"), [({"max_parallel": 10}, 10), ({"tool": "metered_narrow"}, 3)])
async def test_limits_hold_over_the_whole_map(runs: Runs, meter: Meter, node: dict[str, Any], most: int) -> None:
    meter.most = 0
    document = await document_of(await runs.start(_over(list(range(600)), **{"tool": "metered", **node})))
    assert document["nodes"]["m"]["result"] == list(range(600))
    assert 2 <= meter.most <= most


async def test_maps_share_the_limit_of_their_run(runs: Runs, meter: Meter) -> None:
    meter.most = 0
    (first,) = _over(list(range(600)), tool="metered")["nodes"]
    plan = {"nodes": [first, {**first, "id": "n"}, {"id": "alone", "tool": "metered", "arguments": {"n": 7}}]}
    document = await document_of(await runs.start_raw({"plan": plan, "options": {"max_parallel": 6}}))
    assert {name: node["status"] for name, node in document["nodes"].items()} == dict.fromkeys(
        ("m", "n", "alone"), "completed"
    )
    assert 2 <= meter.most <= 6


async def test_sub_plans_of_many_items_are_started_by_chunks(runs: Runs) -> None:
    below = {
        "inputs": {"n": {"type": "integer"}},
        "nodes": [{"id": "x", "tool": "square", "arguments": {"n": "{{PLACEHOLDER_n}}"}}],
        "output": "{{x.result}}",
    }
    node = {"id": "m", "plan": below, "for_each": list(range(501)), "arguments": {"n": "{{item}}"}}
    handle = await runs.start({"nodes": [{**node, "when": "item in [0, 300, 500]"}]})
    document = await document_of(handle)
    assert document["nodes"]["m"]["items"] == {"completed": 3, "skipped": 498}
    assert document["nodes"]["m"]["result"] == [n**2 if n in (0, 300, 500) else None for n in range(501)]
    names = {history.workflow_id.removeprefix(handle.id) for history in await histories_of(runs.client, handle)}
    assert {"/m[0-125]/m[0]", "/m[251-375]/m[300]", "/m[376-500]/m[500]"} <= names


async def test_run_of_a_chunk_shows_its_items(runs: Runs) -> None:
    handle = await runs.start(_over(list(range(501)), tool="odd_only", arguments={"n": "{{item}}", "wrong": [130]}))
    await document_of(handle)
    below = await runs.restored(runs.client.get_workflow_handle(f"{handle.id}/m[126-250]"))
    assert list(below["nodes"]) == ["m", *(f"m[{number}]" for number in range(126, 251))]
    assert bare(below)["nodes"]["m[130]"] == failed("tool_failed: 130 is wrong")
    assert bare(below)["nodes"]["m[131]"] == done(131)


async def _found(runs: Runs, run_id: str, task_id: str) -> tuple[str, Document | None]:
    """Returns the run that knows a node or item, without the beginning of its id, and what it tells of it."""
    feed = partial(RunFeed, runs.client)
    view = await view_of_item(await feed(run_id).read(), task_id, feed=feed)
    found = (await restored_document(view, runs.store, only=task_id))["nodes"].get(task_id)
    return view.workflow_id.removeprefix(run_id), found and bare_node(found)


async def test_item_is_found_by_its_key_in_the_run_of_its_chunk(runs: Runs) -> None:
    items = [{"name": f"item {number}"} for number in range(510)]
    handle = await runs.start(_over(items, tool="echo", key="{{item.name}}", arguments={"n": "{{index}}"}))
    await document_of(handle)
    assert await _found(runs, handle.id, "m[item 300]") == ("/m[256-382]", done({"n": 300}))
    assert await _found(runs, handle.id, "m[item 510]") == ("", None)
    assert (await _found(runs, handle.id, "m"))[0] == ""


async def test_item_of_a_chunk_that_has_not_begun_is_not_known_yet(runs: Runs, bench: Bench, unique: str) -> None:
    items = [str(number) for number in range(2_100)]
    node = {"tool": "hold", "arguments": {"name": unique}, "heartbeat": "1s", "max_parallel": 4}
    by_key, by_place = ({"id": name, "for_each": items, **node} for name in ("by_key", "by_place"))
    handle = await runs.start({"nodes": [{**by_key, "key": "k{{item}}"}, by_place]})
    await eventually(lambda: bench.entered.count(unique) == 8, timeout_s=30)
    told = r"'by_key\[k2000\]' is not known yet: the items of 'by_key\[1052-1313\]' and of 3 more have not begun"
    with pytest.raises(ItemNotBegun, match=f"^{told}$"):
        await _found(runs, handle.id, "by_key[k2000]")
    told = r"'by_place\[2000\]' is not known yet: the items of 'by_place\[1838-2099\]' have not begun"
    with pytest.raises(ItemNotBegun, match=f"^{told}$"):
        await _found(runs, handle.id, "by_place[2000]")
    assert (await _found(runs, handle.id, "by_key[k0]"))[0] == "/by_key[0-262]"
    await handle.signal("cancel", {})
    await document_of(handle)


async def test_deadline_reaches_every_chunk(runs: Runs, unique: str) -> None:
    plan = _over(list(range(600)), tool="hold", arguments={"name": unique}, heartbeat="1s", max_parallel=8)
    document = await document_of(await runs.start({**plan, "deadline": "2s"}))
    assert (document["status"], document["error"]["code"]) == ("failed", "deadline_exceeded")
    assert document["nodes"]["m"]["items"] == {"cancelled": 600}


async def test_item_that_fails_leaves_its_dependents_and_the_others(runs: Runs) -> None:
    after = {"id": "after", "tool": "echo", "arguments": {"state": "{{m.status}}"}, "join": "all_done"}
    plan = _over(list(range(501)), after, tool="odd_only", arguments={"n": "{{item}}", "wrong": [7]}, on_error="skip")
    document = await document_of(await runs.start(plan))
    assert document["nodes"]["m"]["items"] == {"completed": 500, "failed": 1}
    assert document["nodes"]["after"]["result"] == {"state": "failed"}


async def test_cancel_reaches_every_chunk(runs: Runs, bench: Bench, unique: str) -> None:
    plan = _over(list(range(600)), tool="hold", arguments={"name": unique}, heartbeat="1s", max_parallel=40)
    handle = await runs.start(plan)
    await eventually(lambda: bench.entered.count(unique) == 40, timeout_s=30)
    await handle.signal("cancel", {"reason": "enough"})
    document = await document_of(handle)
    assert document["status"] == "cancelled"
    assert document["nodes"]["m"]["items"] == {"cancelled": 600}
    assert bare(document)["nodes"]["m"] == {"status": "cancelled"}


async def test_terminated_chunk_fails_its_items(runs: Runs, bench: Bench, unique: str) -> None:
    plan = _over(list(range(600)), tool="hold", arguments={"name": unique}, heartbeat="1s")
    handle = await runs.start(plan)
    await eventually(lambda: bench.entered.count(unique) >= 1, timeout_s=30)
    await runs.client.get_workflow_handle(f"{handle.id}/m[0-149]").terminate("by hand")
    bench.open(unique)
    document = await document_of(handle)
    assert document["nodes"]["m"]["items"] == {"completed": 450, "failed": 150}
    failure = "150 of 600 items failed; the first: m[0-149]: the sub-plan failed: the sub-plan was terminated"
    assert bare(document)["nodes"]["m"] == failed(f"sub_plan_failed: {failure}")
    runs.forget(handle)


async def test_chunks_whose_results_are_refused_for_good_fail_with_the_reason(runs: Runs) -> None:
    """Guard: nothing that the store or an operator answers is a defect of ours."""
    refused = ApplicationError("given up by hand", non_retryable=True)
    with patch.object(FolderStore, "put", side_effect=refused):
        document = await runs.run(_over(list(range(600)), tool="echo", arguments={"text": "x" * 100}))
    told = "the items are done, and the payload store refused their results for good: given up by hand"
    failure = f"store_refused: 600 of 600 items failed; the first: m[0-149]: {told}"
    assert (document["status"], document["nodes"]["m"]) == ("failed", failed(failure))
