"""Webhook notifications about requests: they are signed, sent once, and never delay the run."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pydantic import SecretStr
from temporalio.client import Client
from temporalio.common import RetryPolicy

from dagwright.core.boundary import limits, wire
from dagwright.history.run_view import RunView
from dagwright.settings import Settings
from dagwright.workflows import notifying
from tests.support.eventually import eventually
from tests.support.goals import call_node
from tests.support.people import answer, human_node
from tests.support.receiver import SECRET, Receiver, webhook_receiver
from tests.support.run_views import wait_for_view
from tests.support.runs import Handle, Runs, bare_document, checked_runs, completed_node, document_of, scheduled_calls
from tests.support.tools import CallHarness
from tests.workflow.building import ended_document, wait_for_continue_as_new

pytestmark = pytest.mark.server


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with webhook_receiver() as receiver:
        yield receiver


@pytest.fixture
async def notifying_runs(
    client: Client, harness: CallHarness, tmp_path: Path, receiver: Receiver
) -> AsyncIterator[Runs]:
    settings = Settings(
        state_dir=tmp_path,
        notify_url=receiver.url,
        notify_secret=SecretStr(SECRET),
        ui_url="https://temporal.example.com",
    )
    async with checked_runs(client, harness.registry(), settings=settings) as runs:
        yield runs


async def _approve(handle: Handle, request_id: str) -> None:
    await answer(handle, request_id, {"approved": True}, note="fine")


async def _wait_for_notifications(receiver: Receiver, *names: str) -> None:
    """Wait until the webhook has accepted exactly these notifications, in any order."""
    await eventually(lambda: sorted(receiver.accepted_names) == sorted(names))


def _webhook_notes_of(view: RunView) -> list[str]:
    return [note["message"] for note in view.document()["notes"] if note["code"] == "notify"]


async def test_webhook_receives_signed_notifications_of_requests_and_answers(
    notifying_runs: Runs, receiver: Receiver
) -> None:
    plan = {"title": "Report", "nodes": [human_node("check", assignee="ann", deadline="2d"), human_node("odd id")]}
    handle = await notifying_runs.start(plan, notifies=True)
    await _wait_for_notifications(receiver, "check opened", "odd id opened")
    [first_delivery, second_delivery] = receiver.deliveries
    request = (await handle.query(wire.QUERY_PENDING))[0]
    run_id = handle.first_execution_run_id
    page = f"https://temporal.example.com/namespaces/default/workflows/{handle.id}/{run_id}/history"
    assert first_delivery.notification == {
        "kind": "opened",
        "at": request["opened_at"],
        "run_id": handle.id,
        "execution_id": run_id,
        "title": "Report",
        "request": request,
        "closing": None,
        "links": {"answer": f"dagwright feedback {handle.id} check", "run": page},
    }
    assert second_delivery.notification["links"]["answer"] == f"dagwright feedback {handle.id} 'odd id'"
    await _approve(handle, "check")
    await _wait_for_notifications(receiver, "check opened", "odd id opened", "check answered")
    notification = receiver.deliveries[-1].notification
    requested_at = notification["closing"].pop("requested_at")
    assert requested_at <= notification["at"]
    assert notification["closing"] == {
        **{"outcome": "answered", "at": notification["at"], "by": "ann", "source": "update", "answer": "approved"},
        **{"note": "fine", "requested_from": "ann", "escalations": []},
    }
    await handle.signal(wire.CANCEL)
    await document_of(handle)
    # The notification about a request that the cancellation closes is sent before the run closes.
    assert receiver.accepted_names[-1] == "odd id closed"
    assert all(delivery.is_signed for delivery in receiver.deliveries)
    assert Counter(delivery.id for delivery in receiver.deliveries).most_common(1)[0][1] == 1


async def test_webhook_receives_reminders_escalations_and_expiries(notifying_runs: Runs, receiver: Receiver) -> None:
    deadline_fields: dict[str, Any] = {"deadline": "500ms", "assignee": "ann", "on_timeout": {"escalate": "eve"}}
    plan = {"nodes": [human_node("late", **deadline_fields), human_node("slow", reminder="500ms")]}
    handle = await notifying_runs.start(plan, notifies=True)
    await eventually(lambda: {"late expired", "slow reminded"} <= set(receiver.accepted_names))
    await _approve(handle, "slow")
    await document_of(handle)
    late_notifications = [delivery.notification for delivery in receiver.deliveries if delivery.name.startswith("late")]
    expected = [("opened", "ann"), ("escalated", "eve"), ("expired", "eve")]
    assert [
        (notification["kind"], notification["request"]["assignee"]) for notification in late_notifications
    ] == expected
    assert late_notifications[-1]["closing"]["outcome"] == "expired"
    kinds = [delivery.notification["kind"] for delivery in receiver.deliveries if delivery.name.startswith("slow")]
    assert kinds == ["opened", *["reminded"] * (len(kinds) - 2), "answered"]
    assert len({delivery.id for delivery in receiver.deliveries}) == len(receiver.deliveries)


async def test_rejected_notifications_are_repeated_with_the_same_id(notifying_runs: Runs, receiver: Receiver) -> None:
    statuses = {"b opened": [500, 503]}
    receiver.status_of = lambda name: statuses[name].pop(0) if statuses.get(name) else 204
    handle = await notifying_runs.start({"nodes": [human_node("a"), human_node("b"), human_node("c")]}, notifies=True)
    await _wait_for_notifications(receiver, "a opened", "b opened", "c opened")
    names = [delivery.name for delivery in receiver.deliveries]
    assert names == ["a opened", "b opened", "c opened", "b opened", "b opened"]
    assert len({delivery.id for delivery in receiver.deliveries if delivery.name == "b opened"}) == 1
    assert all(delivery.is_signed for delivery in receiver.deliveries)
    for request_id in ("a", "b", "c"):
        await _approve(handle, request_id)
    assert (await document_of(handle))["notes"] == []


async def test_webhook_that_does_not_respond_does_not_delay_the_run(notifying_runs: Runs, receiver: Receiver) -> None:
    with patch.object(limits, "NOTIFY_GRACE_S", 0.5):
        # With status 0, the receiver sends no response.
        receiver.status_of = lambda name: 0
        plan = {"nodes": [human_node("check"), call_node("independent", "echo")]}
        handle = await notifying_runs.start(plan, notifies=True)
        await eventually(lambda: bool(receiver.deliveries))
        await _approve(handle, "check")
        document = await ended_document(notifying_runs, handle)
        expected = dict.fromkeys(("check", "independent"), "completed")
        assert {node_id: node["status"] for node_id, node in document["nodes"].items()} == expected
        message = "2 notifications were not sent: the webhook did not accept them within 0.5 s of the end of the run"
        assert [note["message"] for note in document["notes"]] == [message]
        await notifying_runs.check_runs()


@pytest.fixture
def single_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit notifications to one attempt: the retry interval exceeds the time for all attempts."""
    monkeypatch.setattr(limits, "NOTIFICATION_RETRY_S", 100.0)
    monkeypatch.setattr(notifying, "UNLIMITED_ATTEMPTS", RetryPolicy(initial_interval=timedelta(seconds=200)))


@pytest.mark.usefixtures("single_attempt")
async def test_webhook_that_responds_with_status_410_adds_a_note_to_the_run(
    notifying_runs: Runs, receiver: Receiver
) -> None:
    receiver.status_of = lambda name: 410
    handle = await notifying_runs.start({"nodes": [human_node("check"), human_node("second")]}, notifies=True)
    message = "check opened and 1 more: the webhook at 127.0.0.1 responds 410"
    await wait_for_view(notifying_runs.client, handle.id, lambda view: _webhook_notes_of(view) == [message])
    receiver.status_of = lambda name: 204
    await _approve(handle, "check")
    await _approve(handle, "second")
    document = await ended_document(notifying_runs, handle)
    assert [note["message"] for note in document["notes"]] == [message]
    # The URL of the webhook has the token `hidden`.
    assert "hidden" not in str(document)
    assert sorted(receiver.accepted_names) == ["check answered", "second answered"]


@pytest.mark.usefixtures("single_attempt")
async def test_note_explains_how_to_set_a_missing_webhook(runs: Runs) -> None:
    handle = await runs.start({"nodes": [human_node("check")]}, notifies=True)
    await wait_for_view(
        runs.client, handle.id, lambda view: "set DAGWRIGHT_NOTIFY_URL" in " ".join(_webhook_notes_of(view))
    )
    await _approve(handle, "check")
    expected = {"check": completed_node({"approved": True, "reason": None})}
    assert bare_document(await document_of(handle))["nodes"] == expected


async def test_run_without_notifications_calls_no_webhook(notifying_runs: Runs, receiver: Receiver) -> None:
    handle = await notifying_runs.start({"nodes": [human_node("check")]})
    await _wait_and_approve(handle, "check")
    await document_of(handle)
    assert (scheduled_calls(await handle.fetch_history()), receiver.deliveries) == ([], [])


async def test_sub_plans_of_a_raw_plan_notify_the_webhook(notifying_runs: Runs, receiver: Receiver) -> None:
    sub_plan_node = {"id": "archive", "plan": {"nodes": [human_node("check")]}}
    handle = await notifying_runs.start_raw({"plan": {"nodes": [sub_plan_node]}})
    await _wait_for_notifications(receiver, "check opened")
    assert receiver.deliveries[0].notification["run_id"] == f"{handle.id}/archive"
    await _approve(handle, "archive/check")
    await document_of(handle)
    assert receiver.accepted_names == ["check opened", "check answered"]


async def _wait_and_approve(handle: Handle, request_id: str) -> None:
    async def has_request() -> bool:
        return [request["request_id"] for request in await handle.query(wire.QUERY_PENDING)] == [request_id]

    await eventually(has_request)
    await _approve(handle, request_id)


async def test_unsent_notifications_are_sent_with_the_same_id_after_continue_as_new(
    notifying_runs: Runs, receiver: Receiver
) -> None:
    receiver.status_of = lambda name: 500
    handle = await notifying_runs.start({"nodes": [human_node("check")]}, notifies=True)
    await eventually(lambda: bool(receiver.deliveries))
    with patch.object(limits, "DRAIN_AT_SIGNALS", 1):
        await handle.signal(wire.SIGNAL_FEEDBACK, {"request_id": "unknown", "answer": {}})
        newest_execution = await wait_for_continue_as_new(notifying_runs, handle)
        receiver.status_of = lambda name: 204
        await _wait_for_notifications(receiver, "check opened")
        assert len({delivery.id for delivery in receiver.deliveries}) == 1
        assert (
            receiver.deliveries[-1].notification["execution_id"] != receiver.deliveries[0].notification["execution_id"]
        )
        await _wait_and_approve(newest_execution, "check")
        await document_of(handle)
        await notifying_runs.check_runs()
