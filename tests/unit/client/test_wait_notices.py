"""Output of programs that wait: warnings about queues without workers, and requests that a person must answer."""

import asyncio
import io
import logging
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from dagwright.client.events import AnyRunEvent, FeedbackRequested
from dagwright.client.feedback.feedback_request import FeedbackRequest
from dagwright.client.run_reports import _wait_texts
from dagwright.client.wait_notices import WaitNotices, print_requests, request_text
from tests.unit.interfaces.cli.views import node, view_of

NO_WORKER_NOTE = {
    "code": "no_worker",
    "node_id": "a",
    "message": "no worker serves the queue 'shop' of stock; start one with `x`",
}
REQUEST = FeedbackRequest(
    id="check",
    run_id="refill-1",
    node_id="check",
    type="APPROVAL",
    prompt="Order lamps?",
    opened_at=datetime(2026, 1, 1, tzinfo=UTC),
)


MISSING_TOOL_NOTE = {
    "code": "tool_missing",
    "node_id": "b",
    "message": "order: tool missing: the worker w has no tool 'order'; its call waits; start a worker that has it",
}


def test_each_wait_reason_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    other_note = {**NO_WORKER_NOTE, "code": "other", "message": "else"}
    view, notices = replace(view_of(node("a")), notes=[NO_WORKER_NOTE, other_note]), WaitNotices()
    with caplog.at_level(logging.WARNING, logger="dagwright.client"):
        for current_view in (view, view, replace(view, notes=[NO_WORKER_NOTE, MISSING_TOOL_NOTE])):
            notices.warn(current_view)
    assert [record.getMessage() for record in caplog.records] == [
        f"the run {view.workflow_id!r} waits: {note['message']}; in Python, {remedy}"
        for note, remedy in (
            (NO_WORKER_NOTE, "serve it with Worker(client, tools=[...])"),
            (MISSING_TOOL_NOTE, "add it to the tools of Worker(client, tools=[...])"),
        )
    ]


def test_explanation_has_each_reason_to_wait_once() -> None:
    message = "b waits (tool missing: the worker w has no tool 'order')"
    advice = "its call waits; start a worker that has it"
    assert _wait_texts([NO_WORKER_NOTE, MISSING_TOOL_NOTE, {"code": "other", "message": "else"}], message) == [
        NO_WORKER_NOTE["message"],
        advice,
    ]


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({}, ["dagwright feedback refill-1 check --approve", '.feedback("check", approved=True)']),
        ({"type": "SELECTION", "options": ["a", {"id": "b"}]}, ["Order lamps? ['a', 'b']", "--select OPTION"]),
        ({"type": "INFORMATION"}, ["--data JSON", "data={...}"]),
        ({"type": "GUIDANCE"}, ["--text TEXT", 'text="..."']),
    ],
)
def test_request_is_printed_with_ways_to_answer(changes: dict[str, Any], parts: list[str]) -> None:
    text = request_text(replace(REQUEST, **changes))
    assert text.startswith("the run 'refill-1' waits for a person: Order lamps?")
    assert [part for part in parts if part not in text] == []


async def test_requests_are_printed_while_the_work_runs() -> None:
    print_event = asyncio.Event()

    class Run:
        async def events(self) -> AsyncGenerator[AnyRunEvent, None]:
            yield FeedbackRequested(type="feedback.requested", run_id="refill-1", node_id="check", request=REQUEST)
            print_event.set()
            await asyncio.Event().wait()

    async def work() -> int:
        await print_event.wait()
        return 3

    output = io.StringIO()
    assert await print_requests(Run(), work(), output=output) == 3
    assert output.getvalue() == f"{request_text(REQUEST)}\n"
