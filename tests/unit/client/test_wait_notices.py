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
from tests.support.plan_building import node
from tests.unit.interfaces.cli.views import view_of

NO_WORKER_NOTE = {"code": "no_worker", "node_id": "a", "message": "no worker serves the queue; start one with `x`"}
ADVICE = "its call waits; start a worker that has it"
MISSING_TOOL_MESSAGE = f"order: tool missing: the worker w has no tool 'order'; {ADVICE}"
MISSING_TOOL_NOTE = {"code": "tool_missing", "node_id": "b", "message": MISSING_TOOL_MESSAGE}
OTHER_NOTE = {"code": "other", "message": "else"}
REQUEST = FeedbackRequest(
    request_id="check",
    run_id="refill-1",
    node_id="check",
    type="APPROVAL",
    prompt="Order lamps?",
    opened_at=datetime(2026, 1, 1, tzinfo=UTC),
)


def test_each_wait_reason_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    view, notices = replace(view_of(node("a")), notes=[NO_WORKER_NOTE, OTHER_NOTE]), WaitNotices()
    with caplog.at_level(logging.WARNING, logger="dagwright.client"):
        for current_view in (view, view, replace(view, notes=[NO_WORKER_NOTE, MISSING_TOOL_NOTE])):
            notices.warn(current_view)
    first_text = f"{NO_WORKER_NOTE['message']}; in Python, serve it with Worker(client, tools=[...])"
    second_text = f"{MISSING_TOOL_MESSAGE}; in Python, add it to the tools of Worker(client, tools=[...])"
    assert caplog.messages == [f"the run 'run-1' waits: {text}" for text in (first_text, second_text)]


def test_wait_texts_omit_reasons_that_the_explanation_has() -> None:
    explanation = "b waits (tool missing: the worker w has no tool 'order')"
    actual = _wait_texts([NO_WORKER_NOTE, MISSING_TOOL_NOTE, OTHER_NOTE], explanation)
    assert actual == [NO_WORKER_NOTE["message"], ADVICE]


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
