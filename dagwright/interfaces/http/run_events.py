"""Events of a run as server-sent events, with the names of `dagwright.events`.

    event: node.started      a node or item in its new state; also `node.completed`, `node.failed`, `node.waiting`, ...
    event: run.running       the state of the run, sent at the start and after each change; also `run.waiting`, ...
    event: run.completed     how the run ended; also `run.failed` and `run.cancelled`. This is the last event.

Events of the same moment are sent together. The last of them has an `id`, which is a position in the history of the
run. A client that reconnects with this ID to any gateway receives the later events.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from dagwright.client.events import run_event_type
from dagwright.core.model.states import NodeStatus
from dagwright.core.model.times import format_time
from dagwright.history.moment_facts import TaskState
from dagwright.history.run_subscriptions import RunUpdate, SubscriptionCursor
from dagwright.history.run_view import RunView
from dagwright.interfaces.http.error_codes import ErrorCode
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.sse import Events, append_error_event, serialize_event, serialize_events
from dagwright.protocol.compact_documents import compact_value

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler
    from dagwright.interfaces.http.context import GatewayContext

_END = "e"
_SEPARATOR = "/"


@dataclass(frozen=True, slots=True)
class EventId:
    """The `id` of an event: `1-145`, or with a run ID: `run-1/1-145`.

    Args:
        position: position in the history.
        is_end: whether the event is the last event of the run.
        run_id: ID of the run of the turn, for events of a session; `None` if the URL of the stream has the run ID.
    """

    position: SubscriptionCursor
    is_end: bool = False
    run_id: str | None = None

    def __str__(self) -> str:
        run = f"{self.run_id}{_SEPARATOR}" if self.run_id is not None else ""
        return f"{run}{self.position}{_END if self.is_end else ''}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an event ID.

        Raises:
            ApiError: the text is not an event ID.
        """
        run_id, separator, cursor = text.rpartition(_SEPARATOR)
        try:
            return cls(
                SubscriptionCursor.parse(cursor.removesuffix(_END)),
                cursor.endswith(_END),
                run_id if separator else None,
            )
        except ValueError as error:
            message = f"{error}; send the id of the last received event, or omit it"
            raise ApiError(ErrorCode.INVALID_VALUE, message, param="after") from None


def run_events(updates: AsyncGenerator[RunUpdate, None], *, session_run_id: str | None = None) -> Events:
    """Yield the events of a run until it ends. The events of one update are sent together.

    Args:
        updates: updates of the run, from `RunSubscriptions.subscribe`.
        session_run_id: run ID to include in event IDs; `None` if the URL has the run ID.
    """
    return append_error_event(_run_events(updates, session_run_id))


async def _run_events(updates: AsyncGenerator[RunUpdate, None], session_run_id: str | None) -> Events:
    previous_state: Mapping[str, Any] = {}
    async with aclosing(updates):
        async for update in updates:
            state = current_state(update)
            is_changed, previous_state = state != previous_state, state
            # All clients of a run get the same text: it is serialized once per update.
            key = ("events", session_run_id, update.changed_ids, is_changed)
            if text := update.derive_once(
                key, partial(_events_of, update, state if is_changed else None, session_run_id)
            ):
                yield text


def _events_of(update: RunUpdate, run_state: Mapping[str, Any] | None, session_run_id: str | None) -> str:
    """Serialize the events of an update.

    Args:
        run_state: the state of the run if it has changed.
    """
    view = update.view
    changes: list[tuple[str, Mapping[str, Any]]] = [
        (_node_event_type(update, task_id), node_document(update, task_id)) for task_id in update.changed_ids
    ]
    if run_state is not None and not view.is_closed:
        changes.append((run_event_type(view.status), run_state))
    text = serialize_events(changes, id=str(EventId(update.position, run_id=session_run_id)))
    if not view.is_closed:
        return text
    end_id = str(EventId(update.position, True, session_run_id))
    return text + serialize_event(_end_document(view), id=end_id, name=run_event_type(view.status))


def _node_event_type(update: RunUpdate, task_id: str) -> str:
    status = update.states[task_id].status
    return "node.started" if status is NodeStatus.RUNNING else f"node.{status.value}"


async def wait_for_first_update(
    context: "GatewayContext", run_id: str, after: SubscriptionCursor | None
) -> AsyncGenerator[RunUpdate, None]:
    """Wait for the first update of a run, and return all updates.

    The response starts after the first update, so an error before the first update can still set the HTTP status.

    Raises:
        RunNotFound: there is no such run.
        RPCError: the server does not respond.
    """
    updates = context.runs.subscriptions.subscribe(run_id, after=after)
    try:
        first_update = await anext(updates)
    except BaseException:
        await updates.aclose()
        raise
    return _all_updates(first_update, updates)


async def _all_updates(
    first_update: RunUpdate, updates: AsyncGenerator[RunUpdate, None]
) -> AsyncGenerator[RunUpdate, None]:
    async with aclosing(updates):
        yield first_update
        async for update in updates:
            yield update


def node_document(update: RunUpdate, task_id: str) -> dict[str, Any]:
    """Return the document of a node or item that changed."""
    state = update.states[task_id]
    fields: dict[str, Any] = {"run_id": update.view.run_id, "node_id": task_id}
    fields |= {"status": state.status.value, "attempts": state.attempts}
    if state.reason:
        fields["reason"] = state.reason
    scheduler = update.view.scheduler
    return fields if scheduler is None else {**fields, **_record_fields(scheduler, task_id, state)}


def _record_fields(scheduler: "RunScheduler", task_id: str, state: TaskState) -> dict[str, Any]:
    record, node = scheduler.record_of(task_id), scheduler.state.node_of(task_id)
    fields: dict[str, Any] = {"title": node.title, "tool": node.tool}
    # If the scheduler is newer than this update, the fields of its record belong to a later event.
    if record is not None and record.status is state.status and record.attempts == state.attempts:
        fields |= {"started_at": format_time(record.started_at), "ended_at": format_time(record.ended_at)}
        if record.error is not None and state.status is NodeStatus.FAILED:
            fields["error"] = {"code": record.error.code, "message": record.error.message}
    return fields


def current_state(update: RunUpdate) -> Mapping[str, Any]:
    """Return the document of the current state of a run. The document is created once for all clients."""
    return update.derive_once("run", partial(_state_document, update.view))


def _state_document(view: RunView) -> dict[str, Any]:
    feedback = view.scheduler.features.feedback if view.scheduler is not None and not view.is_closed else None
    open_requests = feedback.requests.open.values() if feedback is not None else ()
    return {
        "run_id": view.run_id,
        "status": str(view.status),
        "title": view.title,
        "node_counts": view.node_counts,
        "waiting_for": [
            {"request_id": open_request.id, "type": open_request.type, "prompt": open_request.prompt}
            for open_request in open_requests
        ],
        "notes": list(view.notes),
    }


def _end_document(view: RunView) -> dict[str, Any]:
    document = view.document_with_refs()
    output = compact_value(document["output"], ref="output")
    return {**_state_document(view), "error": document["error"], "output": output}
