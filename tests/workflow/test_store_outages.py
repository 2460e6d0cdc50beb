"""Runs with a payload store that is unavailable, is full or lacks values."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
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
from dagwright.history.run_view import RunView
from dagwright.protocol.outcomes import MAX_STORE_WAITS
from dagwright.settings import Settings
from dagwright.store import StoreUnavailable
from dagwright.store.folder import FolderStore
from dagwright.worker import serving
from tests.support.goals import call_node
from tests.support.people import hold_node, tool_node
from tests.support.run_views import view_of, wait_for_view
from tests.support.runs import (
    Document,
    Handle,
    Runs,
    bare_document,
    checked_runs,
    completed_node,
    document_of,
    scheduled_calls,
)
from tests.support.tools import CallHarness, digest_of
from tests.workflow.building import Gate, binary_tree_value
from tests.workflow.test_offloaded_regions import REGION_NODE_COUNT, read_full_document, read_node
from tests.workflow.test_offloaded_regions import plan as region_plan

pytestmark = pytest.mark.server

_TABLE_NODE = call_node("table", "table", rows=500)
_DIGEST_NODE = tool_node("digest", "digest", "hold", arguments={"value": "{{table.result}}"})


@pytest.fixture
async def outage_runs(
    client: Client, harness: CallHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Runs]:
    """Runs with a new payload store and short pauses between the attempts to reach the store."""
    monkeypatch.setattr(store_retry, "MAX_PAUSE_S", 0.5)
    monkeypatch.setattr(serving, "LargeValues", partial(LargeValues, retry_pauses_s=(0.1,)))
    async with checked_runs(client, harness.registry(), settings=Settings(state_dir=tmp_path)) as runs:
        yield runs


@contextmanager
def outage(folder: Path) -> Iterator[None]:
    """Make the payload store unavailable in the block."""
    store, moved_store = folder / "payloads", folder / "away"
    store.rename(moved_store)
    store.write_text("no folder", encoding="ascii")
    try:
        yield
    finally:
        store.unlink()
        moved_store.rename(store)


def plan_with_held_region(gate_name: str) -> Document:
    """Return a plan whose large region starts when the gate is opened."""
    plan = region_plan(REGION_NODE_COUNT)
    plan["nodes"][0]["depends_on"] = ["hold"]
    return {**plan, "nodes": [hold_node("hold", gate_name), *plan["nodes"]]}


def store_notes_of(view: RunView) -> list[tuple[str | None, str]]:
    """Return the node ID and the message of each note about the unavailable store."""
    return [(note["node_id"], note["message"]) for note in view.notes if note["code"] == "store_unavailable"]


@asynccontextmanager
async def outage_during_run(runs: Runs, gate: Gate, plan: Document, *, folder: Path) -> AsyncIterator[Handle]:
    """Start a run. While a node waits at the gate, make the store unavailable. Open the gate, and wait for a note."""
    handle = await gate.start_run(runs, plan)
    with outage(folder):
        gate.open()
        await wait_for_view(runs.client, handle.id, lambda view: bool(store_notes_of(view)))
        yield handle


async def test_region_continues_when_the_store_responds(outage_runs: Runs, gate: Gate, tmp_path: Path) -> None:
    plan = plan_with_held_region(gate.name)
    async with outage_during_run(outage_runs, gate, plan, folder=tmp_path) as handle:
        ((node_id, message),) = store_notes_of(await view_of(outage_runs, handle))
        assert node_id is None
        reason = f"the payload store {tmp_path}"
        assert message.startswith(f"a group of pure nodes waits for the payload store: {reason}")
        assert message.endswith("; it continues by itself when the store responds")
    document = await document_of(handle)
    assert (document["status"], document["output"]) == ("completed", {"n5": binary_tree_value(5)})
    assert store_notes_of(await view_of(outage_runs, handle)) == []
    assert bare_document(await read_full_document(outage_runs, handle))["nodes"]["n77"] == completed_node(
        binary_tree_value(77)
    )


async def test_region_that_waits_for_the_store_can_be_cancelled(outage_runs: Runs, gate: Gate, tmp_path: Path) -> None:
    plan = plan_with_held_region(gate.name)
    async with outage_during_run(outage_runs, gate, plan, folder=tmp_path) as handle:
        await handle.signal("cancel", {"reason": "enough"})
        document = await document_of(handle)
    assert document["status"] == "cancelled"
    assert (document["nodes"]["n5"]["status"], document["nodes"]["n5"]["reason"]) == ("cancelled", "enough")
    # The document has `n5`, which another node reads, and only counts of the other nodes of the region.
    assert document["nodes_ref"]["counts"] == {"cancelled": REGION_NODE_COUNT - 1}


async def test_call_that_waits_for_the_store_has_a_note_and_needs_no_second_attempt(
    outage_runs: Runs, gate: Gate, tmp_path: Path
) -> None:
    digest_node = {**_DIGEST_NODE, "retry": {"max_attempts": 1}}
    nodes = [_TABLE_NODE, hold_node("hold", gate.name, "table"), digest_node]
    plan = {"nodes": nodes, "output": "{{digest.result}}"}
    async with outage_during_run(outage_runs, gate, plan, folder=tmp_path) as handle:
        ((node_id, message),) = store_notes_of(await view_of(outage_runs, handle))
        assert node_id == "digest"
        assert message.startswith(f"digest waits for the payload store: the payload store {tmp_path}")
        assert message.endswith("; it continues by itself when the store responds")
    document = await document_of(handle)
    rows = [{"name": f"row {number}", "text": "x" * 20} for number in range(500)]
    assert document["output"] == digest_of({"n": 500, "rows": rows})
    assert document["nodes"]["digest"]["attempts"] == 1


async def test_call_that_waits_for_the_store_can_be_cancelled(outage_runs: Runs, gate: Gate, tmp_path: Path) -> None:
    plan = {"nodes": [_TABLE_NODE, hold_node("hold", gate.name, "table"), _DIGEST_NODE]}
    async with outage_during_run(outage_runs, gate, plan, folder=tmp_path) as handle:
        await handle.signal("cancel", {"reason": "enough"})
        document = await document_of(handle)
    assert (document["status"], document["nodes"]["digest"]["status"]) == ("cancelled", "cancelled")


@pytest.mark.parametrize(("is_missing", "reason"), [(True, "is not in the store"), (False, "is damaged")])
async def test_missing_or_damaged_region_fails_its_nodes(
    outage_runs: Runs, gate: Gate, tmp_path: Path, *, is_missing: bool, reason: str
) -> None:
    handle = await gate.start_run(outage_runs, plan_with_held_region(gate.name))
    view = await view_of(outage_runs, handle)
    assert view.scheduler is not None
    ((_, region),) = offloaded_regions(view.scheduler.plan)
    # A payload is a file whose name is its reference. `inner` is the reference of the nodes of the region.
    (path,) = (tmp_path / "payloads").rglob(str(region.inner))
    content = path.read_bytes()
    if is_missing:
        path.unlink()
    else:
        path.write_bytes(b"damaged")
    gate.open()
    document = await document_of(handle)
    assert document["status"] == "failed"
    error = document["nodes"]["n5"]["error"]
    assert error["code"] == "region_lost"
    assert error["message"].startswith(f"the payload {region.inner} ")
    assert reason in error["message"]
    assert document["nodes_ref"]["counts"] == {"failed": REGION_NODE_COUNT - 1}
    path.write_bytes(content)
    assert (await read_node(outage_runs, handle, "n77"))["error"] == error


async def test_document_has_a_note_about_missing_or_unavailable_values(outage_runs: Runs, tmp_path: Path) -> None:
    handle = await outage_runs.start(region_plan())
    await document_of(handle)
    view = await view_of(outage_runs, handle)
    with outage(tmp_path):
        document = await hydrated_document(view, outage_runs.store, only_node="n77")
        assert "n77" not in document["nodes"]
        (note,) = document["notes"]
        message = (
            f"the nodes inside large regions of pure nodes cannot be read: the payload store {tmp_path / 'payloads'}"
        )
        assert (note["code"], note["message"].startswith(message)) == ("region_unreadable", True)
        assert note["message"].endswith("; try again later")
    for payload_file in (tmp_path / "payloads").rglob("sha256-*"):
        payload_file.unlink()
    full_document = await read_full_document(outage_runs, handle)
    assert sorted(full_document["nodes"]) == ["end", "n5", "start"]
    assert full_document["nodes_ref"] == {"ref": "regions", "counts": {"completed": REGION_NODE_COUNT - 1}}
    assert full_document["output"] == {"n5": binary_tree_value(5)}
    (note,) = full_document["notes"]
    assert note["message"].endswith("; the run has only their counts by state")


@pytest.fixture
async def full_store_runs(
    client: Client, harness: CallHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Runs]:
    """Runs whose payload store rejects only the table, with short pauses between the attempts."""
    original_put = FolderStore.put

    async def reject_table(store: FolderStore, content: bytes) -> str:
        if b'"row 7"' in content:
            raise StoreUnavailable("the store is full")
        return await original_put(store, content)

    monkeypatch.setattr(FolderStore, "put", reject_table)
    monkeypatch.setattr("dagwright.protocol.outcomes._STORE_PAUSE_S", 0.01)
    monkeypatch.setattr(LargeValues.__init__, "__kwdefaults__", {"retry_pauses_s": ()})
    async with checked_runs(client, harness.registry(), settings=Settings(state_dir=tmp_path)) as runs:
        yield runs


async def _read_store_waits(handle: Handle) -> list[dict[str, Any]]:
    """Return the inputs of the activities that waited for the store."""
    return [
        json.loads(scheduled_call.input.payloads[0].data)
        for scheduled_call in scheduled_calls(await handle.fetch_history())
        if scheduled_call.activity_type.name == ACTIVITY_AWAIT_STORE
    ]


async def test_call_whose_result_cannot_be_stored_fails_after_five_repeats(full_store_runs: Runs) -> None:
    # An attempt may wait for the store until ten seconds before its timeout. With a timeout of 9 s, it does not wait at
    # all: it fails, and the run waits for the store before each of the five repeats.
    table_node = tool_node("table", "table", arguments={"rows": 500}, timeout="9s", retry={"max_attempts": 1})
    handle = await full_store_runs.start({"nodes": [table_node]})
    node = (await document_of(handle))["nodes"]["table"]
    assert (node["status"], node["error"]["code"], node["error"]["retryable"]) == ("failed", "store_unavailable", True)
    assert node["attempts"] == MAX_STORE_WAITS + 1
    store_waits = await _read_store_waits(handle)
    assert [store_wait["pause_s"] for store_wait in store_waits] == [0.0, 0.01, 0.02, 0.04, 0.08]
    assert all(store_wait["size_bytes"] > 10_000 for store_wait in store_waits)
    assert (await full_store_runs.read_document(handle))["nodes"]["table"]["attempts"] == MAX_STORE_WAITS + 1
