"""Large maps on the real server: over 500 items, each chunk of them a run of its own."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from dagwright.contracts.idempotency import idempotency_key
from dagwright.settings import Settings
from dagwright.tools import ToolRegistry, context, tool
from tests.support.eventually import eventually
from tests.support.runs import Runs, bare, blocked, document_of, done, events_of, failed, histories_of, serving_runs
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

    @tool(effects="read", max_parallel=3)
    async def metered_narrow(n: int) -> int:
        return await metered(n)

    registry = ToolRegistry.of(*bench.registry(), square, odd_only, keep_key, metered, metered_narrow)
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
    assert waits == {"table": 3.0, "load_items": 3.0, "echo": 3.0, "put_blob": 3.0, "join_items": 10.0}


@pytest.mark.parametrize(("node", "most"), [({"max_parallel": 10}, 10), ({"tool": "metered_narrow"}, 3)])
async def test_limits_hold_over_the_whole_map(runs: Runs, meter: Meter, node: dict[str, Any], most: int) -> None:
    meter.most = 0
    document = await document_of(await runs.start(_over(list(range(600)), **{"tool": "metered", **node})))
    assert document["nodes"]["m"]["result"] == list(range(600))
    assert 2 <= meter.most <= most


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


async def test_deadline_reaches_every_chunk(runs: Runs, unique: str) -> None:
    plan = _over(list(range(600)), tool="hold", arguments={"name": unique}, heartbeat="500ms", max_parallel=8)
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
    plan = _over(list(range(600)), tool="hold", arguments={"name": unique}, heartbeat="500ms", max_parallel=40)
    handle = await runs.start(plan)
    await eventually(lambda: bench.entered.count(unique) == 40, timeout_s=30)
    await handle.signal("cancel", {"reason": "enough"})
    document = await document_of(handle)
    assert document["status"] == "cancelled"
    assert document["nodes"]["m"]["items"] == {"cancelled": 600}
    assert bare(document)["nodes"]["m"] == {"status": "cancelled"}


async def test_terminated_chunk_fails_its_items(runs: Runs, bench: Bench, unique: str) -> None:
    plan = _over(list(range(600)), tool="hold", arguments={"name": unique}, heartbeat="500ms")
    handle = await runs.start(plan)
    await eventually(lambda: bench.entered.count(unique) >= 1, timeout_s=30)
    await runs.client.get_workflow_handle(f"{handle.id}/m[0-149]").terminate("by hand")
    bench.open(unique)
    document = await document_of(handle)
    assert document["nodes"]["m"]["items"] == {"completed": 450, "failed": 150}
    failure = "150 of 600 items failed; the first: m[0-149]: the sub-plan failed: the sub-plan was terminated"
    assert bare(document)["nodes"]["m"] == failed(f"sub_plan_failed: {failure}")
    runs.forget(handle)
