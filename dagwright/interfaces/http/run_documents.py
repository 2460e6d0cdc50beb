"""Documents and event streams of runs and sessions, as the API returns them."""

import json
from collections.abc import AsyncGenerator, Mapping
from typing import Annotated, Any, Protocol
from urllib.parse import quote

from fastapi import Header, Query
from starlette.responses import Response

from dagwright.client.errors import SessionNotFound
from dagwright.client.sessions import SessionView
from dagwright.core.model.times import format_time
from dagwright.core.validation.inputs import schema_of_form
from dagwright.history.executions import RunNotFound
from dagwright.history.run_subscriptions import RunUpdate
from dagwright.history.run_view import RunView
from dagwright.interfaces.http.callers import public_session_id, stored_session_name
from dagwright.interfaces.http.context import GatewayContext
from dagwright.interfaces.http.error_codes import ErrorCode
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.headers import header_text
from dagwright.interfaces.http.run_events import EventId, run_events, wait_for_first_update
from dagwright.interfaces.http.sse import NO_MORE_EVENTS_STATUS, Events, stream_response
from dagwright.protocol.compact_documents import compact_value
from dagwright.protocol.sessions import normalized_session_name

NO_HEADERS: Mapping[str, str] = {}


async def run_document(context: GatewayContext, run_id: str) -> dict[str, Any]:
    """Return a run with its nodes.

    Raises:
        RunNotFound: there is no such run.
    """
    view = await context.runs.reader(run_id).read()
    return await _document_of_view(context, view)


async def _document_of_view(context: GatewayContext, view: RunView) -> dict[str, Any]:
    """Return the document of a run with the fields that only the API has."""
    document = await context.runs.document(view)
    session_id = public_session_id(context.caller, await context.runs.session_name_of(view.run_id))
    return {
        **document,
        "started_at": format_time(view.started_at),
        "ended_at": format_time(view.ended_at),
        "tags": await context.runs.tags_of(view.run_id),
        "cursor": str(view.cursor),
        "session_id": session_id,
        "ui_url": context.visible_server.run_url(view.run_id, execution_id=view.execution_id),
    }


async def graph_document(context: GatewayContext, run_id: str) -> dict[str, Any]:
    """Return all nodes and edges of a run, including large regions. Raises the same errors as `run_document`."""
    view = await context.runs.reader(run_id).read()
    listing = context.runs.graph(view)
    nodes = [node async for node in listing.nodes()]
    edges = [edge async for edge in listing.edges()]
    return {"run_id": run_id, "cursor": str(view.cursor), "nodes": nodes, "edges": edges, "notes": listing.notes}


async def inputs_document(context: GatewayContext, run_id: str) -> dict[str, Any]:
    """Return the inputs of a run and their schema. Raises the same errors as `run_document`."""
    scheduler = (await context.runs.reader(run_id).read()).scheduler
    if scheduler is None:
        return {"run_id": run_id, "input_schema": schema_of_form({}), "inputs": {}}
    inputs = {name: compact_value(value, ref=f"input:{name}") for name, value in scheduler.state.inputs.items()}
    return {"run_id": run_id, "input_schema": schema_of_form(scheduler.plan.inputs), "inputs": inputs}


def event_cursor(header: str | None, after: str | None) -> EventId | None:
    """Return a client's cursor. The header has precedence, because browsers reconnect with the same query parameter.

    Raises:
        ApiError: the cursor is not an event ID.
    """
    text = header_text(header or "").strip() or (after or "").strip()
    return EventId.parse(text) if text else None


class EventSerializer(Protocol):
    """Serializes the updates of a run as server-sent events."""

    def __call__(self, updates: AsyncGenerator[RunUpdate, None], *, session_run_id: str | None = None) -> Events: ...


async def event_stream(
    context: GatewayContext,
    run_id: str,
    cursor: EventId | None,
    *,
    session_run_id: str | None = None,
    serialize: EventSerializer = run_events,
) -> Response:
    """Return the events of a run.

    Args:
        cursor: cursor of the client.
        session_run_id: run ID to include in event IDs; `None` if the URL has the run ID.
        serialize: serializes the updates of the run as events.

    Raises:
        RunNotFound: there is no such run.
    """
    if cursor is not None and cursor.is_end:
        return Response(status_code=NO_MORE_EVENTS_STATUS)
    context.reserve_stream()
    updates = await wait_for_first_update(context, run_id, cursor.position if cursor is not None else None)
    # Headers are ASCII. A run ID with other characters is only in the events.
    headers = {"X-Run-Id": run_id} if run_id.isascii() else {}
    return stream_response(serialize(updates, session_run_id=session_run_id), context=context, headers=headers)


async def session_view(context: GatewayContext, session_id: str) -> SessionView:
    """Return a session of the caller.

    Raises:
        SessionNotFound, SessionIdInvalid: there is no such session.
    """
    session_name = normalized_session_name(stored_session_name(context.caller, session_id))
    try:
        return await context.sessions.find(session_name)
    except SessionNotFound as error:
        # Report the ID that the caller knows.
        raise SessionNotFound(str(error).replace(repr(session_name), repr(session_id))) from None


async def run_of_session(context: GatewayContext, session_id: str, *, cursor: EventId | None = None) -> str:
    """Return the run of the current turn of a session, or of its last turn if no turn is running.

    Args:
        cursor: cursor of the client. If the run of the cursor is a turn of the session, return that run. If the client
            has received the last event of that run, return the next run.

    Raises:
        SessionNotFound, SessionIdInvalid: there is no such session.
        ApiError: the session has no turns.
    """
    session = (await session_view(context, session_id)).session
    if session.running_turn is not None and not await _may_be_turn_of(
        context, session.running_turn.run_id, session.name
    ):
        # The turn has the ID of an unrelated run; the session will reject the turn.
        session.drop_turn(session.running_turn.run_id)
    runs = [turn.run_id for turn in session.turns]
    if cursor is not None and cursor.run_id in runs:
        index = runs.index(cursor.run_id) + (1 if cursor.is_end else 0)
        return runs[min(index, len(runs) - 1)]
    if not runs:
        raise ApiError(ErrorCode.NOT_FOUND, f"the session {session_id!r:.80} has no turns")
    return session.running_turn.run_id if session.running_turn is not None else runs[-1]


async def _may_be_turn_of(context: GatewayContext, run_id: str, session_name: str) -> bool:
    """Return whether a run is a turn of a session, or has not started yet."""
    try:
        return await context.runs.session_name_of(run_id) == session_name
    except RunNotFound:
        return True


def json_response(document: Any, *, status: int = 200, headers: Mapping[str, str] = NO_HEADERS) -> Response:
    """Return a JSON response, in ASCII: UTF-8 cannot encode the lone surrogates that results may contain."""
    text = json.dumps(document, separators=(",", ":"))
    return Response(text, status, headers, media_type="application/json")


def created_run_response(document: Any, run_id: str) -> Response:
    """Return the response of a request that created a run: 201 with its URL."""
    return json_response(document, status=201, headers={"Location": f"/v1/runs/{quote(run_id, safe='')}"})


LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", description="ID of the last received event.")]


AfterParameter = Annotated[
    str | None, Query(description="Same as `Last-Event-ID`, for clients that cannot set headers.")
]
