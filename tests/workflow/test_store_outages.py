"""A payload store that is unavailable, full or has lost a value: how runs wait, fail and report it."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.activities import store_retry
from dagwright.activities.values import LargeValues
from dagwright.core.boundary.wire import ACTIVITY_AWAIT_STORE
from dagwright.core.scheduler.run_state import offloaded_regions
from dagwright.history.document_hydration import hydrated_document
from dagwright.history.run_reader import RunReader
from dagwright.protocol.outcomes import MAX_STORE_WAITS
from dagwright.settings import Settings
from dagwright.store import StoreUnavailable
from dagwright.store.folder import FolderStore
from dagwright.worker import serving
from tests.support.eventually import eventually
from tests.support.runs import Document, Handle, Runs, assert_replays, bare, completed_node, document_of, serving_runs
from tests.support.tools import Bench, digest_of
from tests.workflow.building import value_of
from tests.workflow.test_insides import COUNT, full_of, node_of, plan

pytestmark = pytest.mark.server

_TABLE = {"id": "table", "tool": "table", "arguments": {"rows": 500}}


@pytest.fixture
async def own_runs(
    client: Client, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Runs]:
    """Runs with a payload store of their own, which is asked often while it does not answer."""
    monkeypatch.setattr(store_retry, "MAX_PAUSE_S", 0.5)
    monkeypatch.setattr(serving, "LargeValues", partial(LargeValues, retry_pauses_s=(0.1,)))
    async with serving_runs(client, bench.registry(), settings=Settings(state_dir=tmp_path)) as runs:
        yield runs
        await runs.check_runs()


@contextmanager
def outage(folder: Path) -> Iterator[None]:
    """Take the payload store away for a while."""
    store, away = folder / "payloads", folder / "away"
    store.rename(away)
    store.write_text("no folder", encoding="ascii")
    try:
        yield
    finally:
        store.unlink()
        away.rename(store)


def held_plan(name: str, *more: Document) -> Document:
    """Return the plan of a large region that starts when a tool is released."""
    made = plan(COUNT, *more)
    hold = {"id": "hold", "tool": "hold", "arguments": {"name": name}}
    made["nodes"][0]["depends_on"] = ["hold"]
    return {**made, "nodes": [hold, *made["nodes"]]}


async def notes_of(runs: Runs, handle: Handle) -> list[tuple[str | None, str]]:
    """Return node and text of the notes that the store does not answer."""
    view = await RunReader(runs.client, handle.id).read()
    return [(note["node_id"], note["message"]) for note in view.notes if note["code"] == "store_unavailable"]


async def wait_for_report(runs: Runs, handle: Handle) -> None:
    """Wait until the run reports that the store does not respond."""

    async def is_reported() -> bool:
        return bool(await notes_of(runs, handle))

    await eventually(is_reported, timeout_s=30)


async def test_region_waits_for_the_store_and_continues(
    own_runs: Runs, bench: Bench, tmp_path: Path, unique: str
) -> None:
    handle = await own_runs.start(held_plan(unique))
    await eventually(lambda: unique in bench.entered)
    with outage(tmp_path):
        bench.open(unique)

        await wait_for_report(own_runs, handle)
        ((node, message),) = await notes_of(own_runs, handle)
        assert node is None
        assert message.startswith(f"a group of pure nodes waits for the payload store: the payload store {tmp_path}")
        assert message.endswith("; it continues by itself when the store responds")
    document = await document_of(handle)
    assert (document["status"], document["output"]) == ("completed", {"early": value_of(5)})
    assert await notes_of(own_runs, handle) == []
    assert bare(await full_of(own_runs, handle))["nodes"]["n77"] == completed_node(value_of(77))


async def test_waiting_region_can_be_cancelled(own_runs: Runs, bench: Bench, tmp_path: Path, unique: str) -> None:
    handle = await own_runs.start(held_plan(unique))
    await eventually(lambda: unique in bench.entered)
    with outage(tmp_path):
        bench.open(unique)

        await wait_for_report(own_runs, handle)
        await handle.signal("cancel", {"reason": "enough"})
        document = await document_of(handle)
    assert document["status"] == "cancelled"
    assert (document["nodes"]["n5"]["status"], document["nodes"]["n5"]["reason"]) == ("cancelled", "enough")
    assert document["nodes_ref"]["counts"] == {"cancelled": COUNT - 1}


async def test_call_that_needs_a_value_waits_for_the_store_without_an_attempt_and_the_run_reports_it(
    own_runs: Runs, bench: Bench, tmp_path: Path, unique: str
) -> None:
    hold = {"id": "hold", "tool": "hold", "arguments": {"name": unique}, "depends_on": ["table"]}
    use = {"id": "use", "tool": "digest", "arguments": {"value": "{{table.result.n}} {{table.result.rows[7]}}"}}
    whole = {"id": "whole", "tool": "digest", "arguments": {"value": "{{table.result}}"}, "depends_on": ["hold"]}
    whole["retry"] = {"max_attempts": 1}
    handle = await own_runs.start({"nodes": [_TABLE, hold, use, whole], "output": "{{whole.result}}"})
    await eventually(lambda: unique in bench.entered)
    with outage(tmp_path):
        bench.open(unique)

        await wait_for_report(own_runs, handle)
        ((node, message),) = await notes_of(own_runs, handle)
        assert node == "whole"
        assert message.startswith(f"whole waits for the payload store: the payload store {tmp_path}")
        assert message.endswith("; it continues by itself when the store responds")
    document = await document_of(handle)
    rows = [{"name": f"row {number}", "text": "x" * 20} for number in range(500)]
    assert document["output"] == digest_of({"n": 500, "rows": rows})
    assert document["nodes"]["whole"]["attempts"] == 1
    await assert_replays(await handle.fetch_history())


async def test_waiting_call_can_be_cancelled(own_runs: Runs, bench: Bench, tmp_path: Path, unique: str) -> None:
    hold = {"id": "hold", "tool": "hold", "arguments": {"name": unique}, "depends_on": ["table"]}
    whole = {"id": "whole", "tool": "digest", "arguments": {"value": "{{table.result}}"}, "depends_on": ["hold"]}
    handle = await own_runs.start({"nodes": [_TABLE, hold, whole]})
    await eventually(lambda: unique in bench.entered)
    with outage(tmp_path):
        bench.open(unique)

        await wait_for_report(own_runs, handle)
        await handle.signal("cancel", {"reason": "enough"})
        document = await document_of(handle)
    assert (document["status"], document["nodes"]["whole"]["status"]) == ("cancelled", "cancelled")
    await assert_replays(await handle.fetch_history())


@pytest.mark.parametrize(("is_gone", "words"), [(True, "is not in the store"), (False, "is damaged")])
async def test_missing_or_damaged_region_fails_its_nodes_with_one_sentence(
    own_runs: Runs, bench: Bench, tmp_path: Path, *, unique: str, is_gone: bool, words: str
) -> None:
    handle = await own_runs.start(held_plan(unique))
    await eventually(lambda: unique in bench.entered)
    view = await RunReader(own_runs.client, handle.id).read()
    assert view.scheduler is not None
    ((_, region),) = offloaded_regions(view.scheduler.plan)
    (path,) = (tmp_path / "payloads").rglob(str(region.inner))
    content = path.read_bytes()
    if is_gone:
        path.unlink()
    else:
        path.write_bytes(b"damaged")
    bench.open(unique)
    document = await document_of(handle)
    assert document["status"] == "failed"
    error = document["nodes"]["n5"]["error"]
    assert error["code"] == "region_lost"
    assert error["message"].startswith(f"the payload {region.inner} ")
    assert words in error["message"]
    assert document["nodes_ref"]["counts"] == {"failed": COUNT - 1}
    path.write_bytes(content)
    assert (await node_of(own_runs, handle, "n77"))["error"] == error


async def test_missing_or_unreachable_values_are_reported_by_the_commands(own_runs: Runs, tmp_path: Path) -> None:
    handle = await own_runs.start(plan())
    await document_of(handle)
    view = await RunReader(own_runs.client, handle.id).read()
    with outage(tmp_path):
        document = await hydrated_document(view, own_runs.store, only="n77")
        assert "n77" not in document["nodes"]
        (note,) = document["notes"]
        message = (
            f"the nodes inside large regions of pure nodes cannot be read: the payload store {tmp_path / 'payloads'}"
        )
        assert (note["code"], note["message"].startswith(message)) == ("region_unreadable", True)
        assert note["message"].endswith("; try again later")
    for stored in (tmp_path / "payloads").rglob("sha256-*"):
        stored.unlink()
    full = await full_of(own_runs, handle)
    assert sorted(full["nodes"]) == ["end", "n5", "start"]
    assert full["nodes_ref"] == {"ref": "regions", "counts": {"completed": COUNT - 1}}
    assert full["output"] == {"early": value_of(5)}
    (note,) = full["notes"]
    assert note["message"].endswith("; the run itself only has their counts by state")


@pytest.fixture
async def runs_refusing_the_table(
    client: Client, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Runs]:
    """Runs whose payload store takes everything but the table, with short pauses."""
    put = FolderStore.put

    async def refuse_table(store: FolderStore, content: bytes) -> str:
        if b'"row 7"' in content:
            raise StoreUnavailable("the store is full")
        return await put(store, content)

    monkeypatch.setattr(FolderStore, "put", refuse_table)
    monkeypatch.setattr("dagwright.protocol.outcomes._STORE_PAUSE_S", 0.01)
    monkeypatch.setattr(LargeValues.__init__, "__kwdefaults__", {"retry_pauses_s": ()})
    async with serving_runs(client, bench.registry(), settings=Settings(state_dir=tmp_path)) as runs:
        yield runs
        await runs.check_runs()


async def _waits_of(handle: Handle) -> list[dict[str, Any]]:
    """Return the messages of the activities that waited for the store."""
    history = await handle.fetch_history()
    scheduled = [event.activity_task_scheduled_event_attributes for event in history.events]
    return [
        json.loads(each.input.payloads[0].data) for each in scheduled if each.activity_type.name == ACTIVITY_AWAIT_STORE
    ]


async def test_call_whose_result_is_never_stored_fails_after_five_repeats(runs_refusing_the_table: Runs) -> None:
    # A result waits for the store until ten seconds before the end of its attempt: here not at all.
    table = {"id": "table", "tool": "table", "arguments": {"rows": 500}, "timeout": "9s", "retry": {"max_attempts": 1}}
    handle = await runs_refusing_the_table.start({"nodes": [table]})
    node = (await document_of(handle))["nodes"]["table"]
    assert (node["status"], node["error"]["code"], node["error"]["retryable"]) == ("failed", "store_unavailable", True)
    assert node["attempts"] == MAX_STORE_WAITS + 1
    waits = await _waits_of(handle)
    assert [wait["pause_s"] for wait in waits] == [0.0, 0.01, 0.02, 0.04, 0.08]
    assert all(wait["size_bytes"] > 10_000 for wait in waits)
    assert (await runs_refusing_the_table.read_document(handle))["nodes"]["table"]["attempts"] == MAX_STORE_WAITS + 1
