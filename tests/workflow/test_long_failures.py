"""Failures with long texts: history has the first part, and the payload store has the full text and the traceback."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from dagwright.core.boundary.limits import MAX_FAILURE_MESSAGE_BYTES
from dagwright.history.document_hydration import hydrated_document
from dagwright.server.namespace_retention import claim_store, read_retention
from dagwright.settings import Settings
from dagwright.store.clean_up import removal_cutoff, remove_payloads
from dagwright.tools import GiveUp, ToolRegistry, tool
from tests.support.goals import call_node
from tests.support.people import tool_node
from tests.support.run_views import view_of
from tests.support.runs import Document, Handle, Runs, checked_runs, document_of, events_of, serving_runs
from tests.support.tools import CallHarness

pytestmark = pytest.mark.server


def _registry_with_long_failures(harness: CallHarness) -> ToolRegistry:
    @tool(effects="read", secrets=["TOKEN"])
    def long_failure(size: int, secret: str = "") -> None:
        raise GiveUp(f"begin {secret}" + "x" * size + "end")

    @tool(effects="pure")
    def pure_long_failure(size: int) -> None:
        raise ValueError("begin " + "y" * size + "end")

    return harness.registry().merge(ToolRegistry.of(long_failure, pure_long_failure))


async def _read_error_and_notes(runs: Runs, handle: Handle, node_id: str) -> Document:
    document = await hydrated_document(await view_of(runs, handle), runs.store, only_node=node_id)
    return {"error": document["nodes"][node_id]["error"], "notes": document["notes"]}


def _failing_node(node_id: str, **arguments: Any) -> Document:
    return {"id": node_id, "tool": "long_failure", "arguments": {"size": 10_000, **arguments}}


async def test_document_of_a_node_has_the_full_text_of_its_failure(
    client: Client, harness: CallHarness, tmp_path: Path
) -> None:
    text = "begin ***" + "x" * 10_000 + "end"
    nodes = [
        _failing_node("bad", secret="{{secret.TOKEN}}"),
        tool_node("reader", "echo", arguments={"why": "{{bad.error.message}}"}, join="all_done"),
        call_node("short", "long_failure", size=4_000),
        call_node("pure", "pure_long_failure", size=10_000),
        call_node("short pure", "pure_long_failure", size=10),
    ]
    with patch.dict("os.environ", {"DAGWRIGHT_SECRET_TOKEN": "hunter22-hunter22"}):
        async with serving_runs(
            client, _registry_with_long_failures(harness), settings=Settings(state_dir=tmp_path)
        ) as runs:
            handle = await runs.start({"nodes": nodes})
            document = await document_of(handle)
            await runs.check_runs()
            short_error = document["nodes"]["bad"]["error"]
            assert short_error["message"] == text[: MAX_FAILURE_MESSAGE_BYTES - 3] + "…"
            assert document["nodes"]["reader"]["result"] == {"why": short_error["message"]}
            for failure in events_of(await handle.fetch_history(), EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED):
                assert failure.ByteSize() < MAX_FAILURE_MESSAGE_BYTES + 3_000
            result = await _read_error_and_notes(runs, handle, "bad")
            assert (result["error"]["message"], result["notes"]) == (text, [])
            assert "raise GiveUp(" in result["error"]["traceback"]
            pure_result = await _read_error_and_notes(runs, handle, "pure")
            assert pure_result["error"]["message"] == "begin " + "y" * 10_000 + "end"
            assert "raise ValueError(" in pure_result["error"]["traceback"]
            for node_id in ("short", "short pure"):
                error = (await _read_error_and_notes(runs, handle, node_id))["error"]
                assert (error.keys(), error["message"][-3:]) == ({"code", "message", "retryable"}, "end")
    payloads = [path.read_bytes() for path in (tmp_path / "payloads").rglob("sha256-*")]
    # Only the texts of `bad` and `pure` are longer than the limit for the history.
    assert len(payloads) == 2
    assert not any(b"hunter22" in content for content in payloads)


async def test_clean_up_keeps_the_full_text_and_a_damaged_text_adds_a_note(
    client: Client, harness: CallHarness, tmp_path: Path
) -> None:
    async with checked_runs(
        client, _registry_with_long_failures(harness), settings=Settings(state_dir=tmp_path)
    ) as runs:
        handle = await runs.start({"nodes": [_failing_node("bad")]})
        short_error = (await document_of(handle))["nodes"]["bad"]["error"]
        await claim_store(runs.store, client)
        retention = await read_retention(client)
        clean_up_time = datetime.now(UTC) + timedelta(days=300)
        cutoff = removal_cutoff(retention, owner_namespaces=await runs.store.owner_namespaces(), now=clean_up_time)
        assert (await remove_payloads(runs.store, cutoff)).count == 0
        assert (await _read_error_and_notes(runs, handle, "bad"))["error"]["message"].endswith("end")
        for path in (tmp_path / "payloads").rglob("sha256-*"):
            path.write_bytes(b"something else")
        result = await _read_error_and_notes(runs, handle, "bad")
        assert result["error"] == short_error
        assert [note["code"] for note in result["notes"]] == ["value_lost"]
        assert result["notes"][0]["message"].startswith(
            f"bad: the full error: the payload {short_error['ref']} in the store "
        )


async def test_failure_during_an_outage_of_the_store_has_only_a_short_text(
    client: Client, harness: CallHarness, tmp_path: Path
) -> None:
    async with checked_runs(
        client, _registry_with_long_failures(harness), settings=Settings(state_dir=tmp_path)
    ) as runs:
        (tmp_path / "payloads").mkdir(exist_ok=True)
        (tmp_path / "payloads").rename(tmp_path / "away")
        (tmp_path / "payloads").write_text("no folder", encoding="ascii")
        error = (await document_of(await runs.start({"nodes": [_failing_node("bad")]})))["nodes"]["bad"]["error"]
        assert error["message"].startswith("begin xxx")
        assert error.keys() == {"code", "message", "retryable"}
