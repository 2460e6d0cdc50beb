"""Requests that wait for weeks, on a time-skipping server."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.testing import WorkflowEnvironment

from dagwright.core.boundary import wire
from dagwright.settings import Settings
from tests.support.goals import call_node
from tests.support.runs import (
    Handle,
    Runs,
    bare_document,
    checked_runs,
    completed_node,
    document_of,
    events_of,
    failed_node,
)
from tests.support.time_skipping import time_skipping
from tests.support.tools import CallHarness

pytestmark = pytest.mark.java

_DAY_S = 86_400.0
_QUESTION = {"type": "APPROVAL", "prompt": "Publish?", "assignee": "ann", "deadline": "30d", "reminder": "7d"}
_CHECK_NODE = {"id": "check", "human": _QUESTION}
_DEPENDENT_NODE = call_node("after", "echo", check="{{check.result.approved}}")


@pytest.fixture(scope="module")
async def environment() -> AsyncIterator[WorkflowEnvironment]:
    async with time_skipping() as environment:
        yield environment


@pytest.fixture
async def time_skipping_runs(
    environment: WorkflowEnvironment, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Runs]:
    settings = Settings(state_dir=tmp_path_factory.mktemp("far"))
    async with checked_runs(environment.client, CallHarness().registry(), settings=settings) as runs:
        yield runs


async def _days_of_timers(handle: Handle) -> list[float]:
    """Return how many days after the start each timer of the run fired."""
    history = await handle.fetch_history()
    started_at = history.events[0].event_time.ToSeconds()
    fired_timers = events_of(history, EventType.EVENT_TYPE_TIMER_FIRED)
    return [round((event.event_time.ToSeconds() - started_at) / _DAY_S, 2) for event in fired_timers]


async def test_request_without_an_answer_has_four_reminders_and_then_fails(time_skipping_runs: Runs) -> None:
    handle = await time_skipping_runs.start({"nodes": [_CHECK_NODE, _DEPENDENT_NODE]})
    document = bare_document(await document_of(handle))

    assert document["nodes"]["check"] == failed_node("no_answer: 'check' was not answered in time: Publish?")
    assert document["nodes"]["after"]["status"] == "blocked"
    assert await _days_of_timers(handle) == [7.0, 14.0, 21.0, 28.0, 30.0]


async def test_answer_after_three_weeks_is_applied(environment: WorkflowEnvironment, time_skipping_runs: Runs) -> None:
    handle = await time_skipping_runs.start({"nodes": [_CHECK_NODE, _DEPENDENT_NODE]})
    await environment.sleep(timedelta(days=20))
    [request] = await handle.query(wire.QUERY_PENDING)
    answer = {"request_id": "check", "answer": {"approved": True}, "by": "ann"}
    result = await handle.execute_update(wire.UPDATE_SUBMIT_FEEDBACK, answer)

    assert (request["request_id"], request["assignee"]) == ("check", "ann")
    assert result == {"ok": True, "message": "'check' is answered"}
    expected = {"check": completed_node({"approved": True, "reason": None}), "after": completed_node({"check": True})}
    assert bare_document(await document_of(handle))["nodes"] == expected
    assert (await _days_of_timers(handle))[:2] == [7.0, 14.0]


async def test_escalated_request_waits_for_another_month(time_skipping_runs: Runs) -> None:
    question = {**_QUESTION, "on_timeout": {"escalate": "finance"}}
    handle = await time_skipping_runs.start({"nodes": [{"id": "check", "human": question}]})
    document = bare_document(await document_of(handle))

    assert document["nodes"]["check"]["status"] == "failed"
    assert await _days_of_timers(handle) == [7.0, 14.0, 21.0, 28.0, 30.0, 37.0, 44.0, 51.0, 58.0, 60.0]
