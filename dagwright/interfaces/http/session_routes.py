"""`/v1/sessions`: sessions, and the current or last turn of a session. `/v1/orchestration` is an alias.

The alias differs only in the format of its events (`orchestration_events`).
"""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from starlette.responses import Response, StreamingResponse

from dagwright.client.sessions import SessionView
from dagwright.history.executions import START
from dagwright.history.run_subscriptions import SubscriptionCursor
from dagwright.interfaces.http import examples
from dagwright.interfaces.http.callers import KeyScope, public_session_id, stored_session_name
from dagwright.interfaces.http.context import ContextDep, GatewayContext, scope_dependency
from dagwright.interfaces.http.event_models import ORCHESTRATION_EVENTS
from dagwright.interfaces.http.headers import header_descriptions
from dagwright.interfaces.http.json_route import JsonRoute
from dagwright.interfaces.http.list_pages import PageDep, next_page_fields
from dagwright.interfaces.http.orchestration_events import has_received_all, orchestration_events
from dagwright.interfaces.http.run_documents import (
    AfterParameter,
    EventSerializer,
    LastEventId,
    event_cursor,
    event_stream,
    graph_document,
    json_response,
    run_document,
    run_of_session,
    session_view,
)
from dagwright.interfaces.http.run_events import EventId, run_events
from dagwright.interfaces.http.run_models import (
    EVENT_STREAM_DOCS,
    AnswerBody,
    CommandResponse,
    FeedbackRequestList,
    GraphDocument,
    OptionalCommand,
    SessionDocument,
    SessionList,
    response_docs,
    stream_docs,
)
from dagwright.interfaces.http.run_steering import answer_run_request, cancel_run, open_requests

router = APIRouter(tags=["sessions"], route_class=JsonRoute)
orchestration_router = APIRouter(tags=["sessions"])
"""Routes of `/v1/orchestration` that differ from those of `router`."""
_ORCHESTRATION_EVENT_DOCS: dict[int | str, dict[str, Any]] = {
    **EVENT_STREAM_DOCS,
    200: {
        "description": "Server-sent events with `type`, `node_id` and `data`.",
        "content": stream_docs(examples.ORCHESTRATION_EVENTS, data=ORCHESTRATION_EVENTS),
        "headers": header_descriptions("X-Run-Id"),
    },
}


async def _turn_run_id(session_id: str, context: ContextDep) -> str:
    return await run_of_session(context, session_id)


TurnRunId = Annotated[str, Depends(_turn_run_id)]
"""ID of the run of the current or last turn of the session in the path."""


@router.get("", summary="List sessions", responses=response_docs(SessionList, examples.SESSIONS))
async def list_sessions(context: ContextDep, page: PageDep) -> Response:
    """List the sessions of the caller: open sessions first, then closed ones."""
    # The owner is part of the stored name, so the prefix selects the caller's sessions.
    sessions, cursor = await context.sessions.page_of_sessions(
        limit=page.limit, prefix=stored_session_name(context.caller, ""), after=page.after
    )
    items = [_public_document(context, view, view.to_list_entry()) for view in sessions]
    return json_response({"object": "list", "data": items, **next_page_fields(cursor)})


@router.get(
    "/{session_id}",
    summary="Get a session",
    responses=response_docs(SessionDocument, examples.SESSION),
)
async def read_session(session_id: str, context: ContextDep) -> Response:
    """Return a session with its turns and the run of its current turn."""
    view = await session_view(context, session_id)
    current_turn = view.session.running_turn
    run = None if current_turn is None else await run_document(context, current_turn.run_id)
    return json_response({**_public_document(context, view, view.to_json()), "run": run})


@router.get(
    "/{session_id}/events",
    summary="Stream the events of the current turn",
    response_class=StreamingResponse,
    responses=EVENT_STREAM_DOCS,
)
async def stream_events(
    session_id: str, context: ContextDep, last_event_id: LastEventId = None, after: AfterParameter = None
) -> Response:
    """Stream the events of the current turn. A client that has received the last event of a turn gets the next turn."""
    return await _stream(session_id, context, event_cursor(last_event_id, after))


@router.get(
    "/{session_id}/graph",
    summary="Get the graph of the current turn",
    responses=response_docs(GraphDocument, examples.GRAPH),
)
async def read_graph(run_id: TurnRunId, context: ContextDep) -> Response:
    """Return nodes with their states, and edges."""
    return json_response(await graph_document(context, run_id))


@router.get(
    "/{session_id}/feedback",
    summary="List open requests of the current turn",
    responses=response_docs(FeedbackRequestList, examples.REQUESTS),
)
async def list_requests(run_id: TurnRunId, context: ContextDep) -> Response:
    """List the open requests, each with the JSON Schema of its answer."""
    return json_response(await open_requests(context, run_id))


@router.post(
    "/{session_id}/feedback",
    summary="Answer a request of the current turn",
    dependencies=[scope_dependency(KeyScope.ANSWER)],
    responses=response_docs(CommandResponse, examples.REQUEST_ANSWERED),
)
async def answer_request(run_id: TurnRunId, body: AnswerBody, context: ContextDep) -> Response:
    """Validate an answer, deliver it, and return the result."""
    return json_response(await answer_run_request(context, run_id, body))


@router.post(
    "/{session_id}/cancel",
    summary="Cancel the current turn",
    dependencies=[scope_dependency(KeyScope.OPERATE)],
    responses=response_docs(CommandResponse, examples.RUN_CANCELLED),
)
async def cancel_turn(run_id: TurnRunId, context: ContextDep, body: OptionalCommand = None) -> Response:
    """Request cancellation of the turn's run; the session stays open."""
    return json_response(await cancel_run(context, run_id, body))


@orchestration_router.get(
    "/{session_id}/events",
    summary="Stream the events of the current turn in the format of `/v1/orchestration`",
    response_class=StreamingResponse,
    responses=_ORCHESTRATION_EVENT_DOCS,
)
async def stream_orchestration_events(
    session_id: str, context: ContextDep, last_event_id: LastEventId = None, after: AfterParameter = None
) -> Response:
    """Stream starts, completions and failures of nodes, feedback requests, and the cancellation of the run."""
    cursor = event_cursor(last_event_id, after)
    run_id = await run_of_session(context, session_id, cursor=cursor)
    run_cursor = cursor if cursor is not None and cursor.run_id == run_id else None
    if (run_cursor is None or not run_cursor.is_end) and await has_received_all(context, run_id, run_cursor):
        cursor = EventId(run_cursor.position if run_cursor is not None else SubscriptionCursor(START), True, run_id)
    return await _stream(session_id, context, cursor, serialize=orchestration_events)


async def _stream(
    session_id: str, context: GatewayContext, cursor: EventId | None, *, serialize: EventSerializer = run_events
) -> Response:
    run_id = await run_of_session(context, session_id, cursor=cursor)
    # The position in a cursor of another turn is not a position in this run.
    is_cursor_of_run = cursor is not None and cursor.run_id == run_id
    return await event_stream(
        context, run_id, cursor if is_cursor_of_run else None, session_run_id=run_id, serialize=serialize
    )


def _public_document(context: GatewayContext, view: SessionView, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of a session with the names of the API, without its Temporal workflow ID."""
    document = {name: value for name, value in document.items() if name not in ("session_id", "workflow_id")}
    return {"session_id": public_session_id(context.caller, view.session.name), **document}
