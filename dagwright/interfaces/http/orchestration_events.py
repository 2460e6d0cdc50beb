"""Events of a session's turn in the format of `/v1/orchestration`: five types, each with `type`, `node_id` and `data`.

The types are `node_started`, `node_completed` and `node_failed` for changes of nodes, `human_feedback_requested` for
each new request, and `cancelled`. The stream ends with the run. `/v1/sessions/{session_id}/events` has events for all
states.

A run may end without an event of these five types, for example at its deadline. Then no event ID marks the end of the
stream, so `has_received_all` checks whether a client that reconnects has received all events.
"""

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from dagwright.client.feedback.open_requests import requests_in
from dagwright.core.model.states import NodeStatus, RunStatus
from dagwright.history.run_subscriptions import RunUpdate
from dagwright.interfaces.http.run_events import EventId, node_document, wait_for_first_update
from dagwright.interfaces.http.sse import Events, append_error_event, serialize_events

if TYPE_CHECKING:
    from dagwright.interfaces.http.context import GatewayContext

_NODE_EVENT_TYPES = {
    NodeStatus.RUNNING: "node_started",
    NodeStatus.COMPLETED: "node_completed",
    NodeStatus.FAILED: "node_failed",
}

_REQUEST_FIELDS = ("request_id", "type", "prompt")


def orchestration_events(updates: AsyncGenerator[RunUpdate, None], *, session_run_id: str | None = None) -> Events:
    """Yield the events of a run. The events of one update are sent together, and only the last one has an ID.

    Args:
        session_run_id: run ID to include in event IDs; `None` if the URL has the run ID.
    """
    return append_error_event(_orchestration_events(updates, session_run_id))


async def _orchestration_events(updates: AsyncGenerator[RunUpdate, None], session_run_id: str | None) -> Events:
    sent_request_ids: set[str] = set()
    async with aclosing(updates):
        async for update in updates:
            events = [(document["type"], document) for document in _event_documents(update, sent_request_ids)]
            id = str(EventId(update.position, update.view.is_closed, session_run_id))
            if text := serialize_events(events, id=id):
                yield text


async def has_received_all(context: "GatewayContext", run_id: str, cursor: EventId | None) -> bool:
    """Return whether a run has ended, and no event in this format follows the cursor.

    Raises:
        RunNotFound: there is no such run.
    """
    updates = await wait_for_first_update(context, run_id, cursor.position if cursor is not None else None)
    async with aclosing(updates):
        first_update = await anext(updates)
    return first_update.view.is_closed and next(_event_documents(first_update, set()), None) is None


def _event_documents(update: RunUpdate, sent_request_ids: set[str]) -> Iterator[Mapping[str, Any]]:
    for task_id in update.changed_ids:
        node_fields = node_document(update, task_id)
        if (event_type := _NODE_EVENT_TYPES.get(update.states[task_id].status)) is not None:
            data = {name: value for name, value in node_fields.items() if name not in ("run_id", "node_id")}
            yield {"type": event_type, "node_id": task_id, "data": data}
    for request in requests_in(update.view):
        if request["request_id"] not in sent_request_ids:
            sent_request_ids.add(request["request_id"])
            data = {"request": {name: request[name] for name in _REQUEST_FIELDS}}
            yield {"type": "human_feedback_requested", "node_id": request["node_id"], "data": data}
    if update.view.is_closed and update.view.status == RunStatus.CANCELLED:
        yield {"type": "cancelled", "node_id": None, "data": None}
