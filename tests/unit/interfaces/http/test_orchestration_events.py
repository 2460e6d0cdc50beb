"""Events in the format of `/v1/orchestration`: feedback requests, and runs that end without an event."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from dagwright.core.model.states import NodeStatus
from dagwright.history.executions import Cursor
from dagwright.history.run_subscriptions import RunUpdate, SubscriptionCursor
from dagwright.history.run_view import RunView
from dagwright.interfaces.http.context import GatewayContext
from dagwright.interfaces.http.orchestration_events import has_received_all, orchestration_events
from dagwright.interfaces.http.run_events import EventId
from tests.support.gateway import NamedEvent, named_events_of
from tests.unit.interfaces.cli.views import scheduler_of, view_of
from tests.unit.interfaces.http.conftest import async_updates, run_update

ENDED_RUN = RunView("run-1", "first", "failed", "A plan", None, {}, None, None, is_closed=True, cursor=Cursor(1, 9))
ID_AT_EVENT_5 = EventId(SubscriptionCursor(Cursor(1, 5)), run_id="run-1")


async def events_of(*updates: RunUpdate) -> list[NamedEvent]:
    texts = orchestration_events(async_updates(*updates), session_run_id="run-1")
    return named_events_of("".join([text async for text in texts]))


def gateway_that_sends(update: RunUpdate) -> GatewayContext:
    def subscribe(_: str, *, after: SubscriptionCursor | None) -> AsyncGenerator[RunUpdate, None]:
        assert after == ID_AT_EVENT_5.position
        return async_updates(update)

    runs = SimpleNamespace(subscriptions=SimpleNamespace(subscribe=subscribe))
    return cast(GatewayContext, SimpleNamespace(runs=runs))


async def test_request_event_has_the_waiting_node() -> None:
    human = {"type": "APPROVAL", "prompt": "Publish?"}
    view = replace(view_of({"id": "check", "human": human}), cursor=Cursor(1, 5))
    (request,) = scheduler_of(view).features.feedback.requests.open.values()
    request.id = "check#2"
    (event,) = await events_of(run_update(view))
    assert (event.id, event.name, event.content["node_id"]) == ("run-1/1-5", "human_feedback_requested", "check")
    assert event.content["data"] == {"request": {"request_id": "check#2", "type": "APPROVAL", "prompt": "Publish?"}}
    request.task = ""
    (event,) = await events_of(run_update(view))
    assert event.content["node_id"] is None


@pytest.mark.parametrize(
    ("last_update", "expected"),
    [
        (run_update(ENDED_RUN), True),
        (run_update(ENDED_RUN, a=NodeStatus.CANCELLED, b=NodeStatus.SKIPPED), True),
        (run_update(ENDED_RUN, a=NodeStatus.FAILED), False),
        (run_update(replace(ENDED_RUN, status="cancelled")), False),
        (run_update(replace(ENDED_RUN, status="running", is_closed=False)), False),
    ],
)
async def test_stream_is_complete_if_the_run_ends_without_another_event(last_update: RunUpdate, expected: bool) -> None:
    assert await has_received_all(gateway_that_sends(last_update), "run-1", ID_AT_EVENT_5) is expected
    first_update = run_update(replace(ENDED_RUN, is_closed=False), a=NodeStatus.RUNNING)
    last_id = (await events_of(first_update, last_update))[-1].id
    # Without an event at the end, only `has_received_all` knows that the stream is complete.
    assert last_id is not None
    assert last_id.endswith("e") is (last_update.view.is_closed and not expected)
