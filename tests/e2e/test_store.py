"""`store show` and `store prune` on a real server, and the errors of commands if the store cannot be used."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dagwright.core.model.times import format_time
from dagwright.store import ref_of
from dagwright.store.folder import FolderStore
from tests.e2e.command import CommandLine, wait_for_exit
from tests.e2e.conftest import WritePlan, calculation

pytestmark = pytest.mark.server


def _days_ago(days: int) -> datetime:
    return datetime.now(UTC).replace(microsecond=0) - timedelta(days=days)


async def _put_payload(folder: Path, content: bytes, *, renewed_at: datetime) -> None:
    ref = await FolderStore(folder).put(content)
    (path,) = folder.rglob(ref)
    os.utime(path, (0, renewed_at.timestamp()))


async def _stored_refs(folder: Path) -> set[str]:
    return {entry.ref async for entry in FolderStore(folder).list_payloads()}


async def test_prune_removes_only_unneeded_payloads(
    commands_with_private_server: CommandLine, write_plan: WritePlan
) -> None:
    folder = commands_with_private_server.folder / "state" / "payloads"
    # Each payload has as many bytes as its age in days.
    oldest = _days_ago(300)
    for days in (300, 150, 90, 60):
        await _put_payload(folder, b"x" * days, renewed_at=oldest + timedelta(days=300 - days))

    await FolderStore(folder).put_cache_entry("a" * 64, b"old", expires_at=_days_ago(1))
    await FolderStore(folder).put_cache_entry("b" * 64, b"new!", expires_at=_days_ago(-1))

    result_without_worker = await commands_with_private_server("store", "prune", "--yes", "--json")
    assert (result_without_worker.code, result_without_worker.document["code"]) == (1, "needed_values_unknown")
    assert result_without_worker.document["message"].startswith(
        "nothing is removed: no worker of the namespace default ("
    )

    await commands_with_private_server("up", "--json")
    assert (
        await commands_with_private_server("run", write_plan(calculation("a", "1 + 1", cache="off")), "--json")
    ).code == 0
    show_document = {**(await commands_with_private_server("store", "show", "--json")).document, "renewed_before": None}
    assert show_document == {
        "store": str(folder),
        "payloads": 4,
        "bytes": 600,
        "oldest": format_time(oldest.timestamp()),
        "removable": {"payloads": 2, "bytes": 450},
        "renewed_before": None,
        "reason": "the namespace default retains runs for 90 days, and a day is added",
        "cached": {"results": 2, "bytes": 7, "expired": {"results": 1, "bytes": 3}},
    }
    dry_run_document = (await commands_with_private_server("store", "prune", "--json")).document
    unchanged_counts = {"removed": {"payloads": 0, "bytes": 0}, "removed_cached": {"results": 0, "bytes": 0}}
    assert {**dry_run_document, "renewed_before": None} == {**show_document, **unchanged_counts, "status": "dry_run"}
    assert len(await _stored_refs(folder)) == 4

    prune_document = (await commands_with_private_server("store", "prune", "--yes", "--json")).document
    removed_counts = {"removed": {"payloads": 2, "bytes": 450}, "removed_cached": {"results": 1, "bytes": 3}}
    assert {**prune_document, "renewed_before": None} == {**show_document, **removed_counts, "status": "cleaned"}
    assert await _stored_refs(folder) == {ref_of(b"x" * days) for days in (90, 60)}

    second_prune_result = await commands_with_private_server("store", "prune")
    lines = ["cache: 1 cached result, 4 bytes; 0 expired", "can be removed: nothing"]
    assert second_prune_result.stdout.splitlines()[1:3] == lines


async def test_store_is_shown_even_if_no_server_is_reachable(commands: CommandLine) -> None:
    folder = commands.folder / "payloads"
    await _put_payload(folder, b"x" * 2_500, renewed_at=_days_ago(300))
    commands.environment |= {"DAGWRIGHT_PAYLOAD_STORE": "payloads", "TEMPORAL_ADDRESS": "127.0.0.1:9"}

    show_result = await commands("store", "show")
    prune_result = await commands("store", "prune", "--yes", "--json")

    first_line, second_line = show_result.stdout.splitlines()
    assert (show_result.code, prune_result.code) == (0, 1)
    assert first_line.startswith(f"{folder}: 1 payload, 2.5 kB, the oldest written or renewed on ")
    assert second_line.startswith("it is unknown how much can be removed: the Temporal server at 127.0.0.1:9 ")
    assert prune_result.document["code"] == "needed_values_unknown"
    assert len(await _stored_refs(folder)) == 1


async def test_unusable_store_starts_no_run(commands: CommandLine, write_plan: WritePlan) -> None:
    (commands.folder / "file").write_text("", encoding="ascii")
    commands.environment["DAGWRIGHT_PAYLOAD_STORE"] = "file/payloads"
    plan = write_plan(calculation("a", "1 + 1"))

    run_result = await commands("run", plan, "--id", "no-store", "--json")
    status_result = await commands("status", "no-store", "--json")
    show_result = await commands("store", "show", "--json")

    assert (run_result.code, run_result.document["code"]) == (1, "store_unavailable")
    assert run_result.document["message"].startswith(
        f"the payload store {commands.folder}/file/payloads is not a folder ({commands.folder}/file"
    )
    assert (status_result.code, status_result.document["code"]) == (2, "not_found")
    assert (show_result.code, show_result.document["code"]) == (1, "store_unavailable")


async def test_processes_with_another_store_are_rejected_until_it_is_adopted(
    commands_with_private_server: CommandLine, write_plan: WritePlan
) -> None:
    plan = write_plan(calculation("a", "1 + 1"))
    assert (await commands_with_private_server("run", plan, "--json", "--keep-server")).code == 0
    commands_with_private_server.environment["DAGWRIGHT_PAYLOAD_STORE"] = "other"
    worker_result = await wait_for_exit(await commands_with_private_server.start("--json", program=("worker.py",)))
    gateway_result = await commands_with_private_server("serve", "--no-worker", "--port", "0", "--json")
    preview_result = await commands_with_private_server("store", "adopt", "--json")
    for each in (worker_result, gateway_result):
        assert (each.code, each.document["code"]) == (2, "store_differs")
        assert "set DAGWRIGHT_PAYLOAD_STORE to the same store" in each.document["message"]
    assert preview_result.document["before"]["store"] == str(commands_with_private_server.folder / "state" / "payloads")

    adopt_result = await commands_with_private_server("store", "adopt", "--yes", "--json")
    assert (adopt_result.code, adopt_result.document["status"]) == (0, "adopted")
    assert (await commands_with_private_server("run", plan, "--json")).code == 0
    await commands_with_private_server("down")
