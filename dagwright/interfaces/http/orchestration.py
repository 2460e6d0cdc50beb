"""`/v1/orchestration`: sessions, and the current or last turn of a session."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response, StreamingResponse

from dagwright.client.run_lists import MOST_AT_ONCE
from dagwright.client.sessions import SessionView
from dagwright.interfaces.http import examples
from dagwright.interfaces.http.callers import Scope, known_as, session_of
from dagwright.interfaces.http.desk import Desk, TheDesk, needs
from dagwright.interfaces.http.feedback import answer_run, asked_of
from dagwright.interfaces.http.looking import (
    graph_document,
    run_document,
    run_of_session,
    seen_before,
    session_view,
    stream_of,
    told_json,
)
from dagwright.interfaces.http.request_bodies import JsonRoute
from dagwright.interfaces.http.run_models import (
    AnswerBody,
    Done,
    GraphDocument,
    OptionalAct,
    Requests,
    SessionDocument,
    SessionList,
    answered,
)
from dagwright.interfaces.http.run_routes import EVENTS, After, LastEventId
from dagwright.interfaces.http.steering_routes import cancelled

router = APIRouter(tags=["sessions"], route_class=JsonRoute)


async def _turn_of(session_id: str, desk: TheDesk) -> str:
    return await run_of_session(desk, session_id)


TurnOfSession = Annotated[str, Depends(_turn_of)]
"""The run of the current or last turn of the session in the path."""


@router.get("/v1/orchestration", summary="List sessions", responses=answered(SessionList, examples.SESSIONS))
async def list_sessions(desk: TheDesk, *, limit: Annotated[int, Query(ge=1, le=MOST_AT_ONCE)] = 100) -> Response:
    """List the sessions of the caller: open sessions first, then closed ones."""
    # The owner is part of the stored name, so the prefix selects the caller's sessions.
    found = await desk.sessions.list(limit=limit + 1, prefix=session_of(desk.caller, ""))
    lines = [_named(desk, view, view.to_line()) for view in found[:limit]]
    return told_json({"object": "list", "data": lines, "has_more": len(found) > limit})


@router.get(
    "/v1/orchestration/{session_id}",
    summary="Get a session",
    responses=answered(SessionDocument, examples.SESSION),
)
async def read_session(session_id: str, desk: TheDesk) -> Response:
    """Return a session with its turns and the run of its current turn."""
    view = await session_view(desk, session_id)
    running = view.session.running
    run = None if running is None else await run_document(desk, running.run)
    return told_json({**_named(desk, view, view.to_json()), "run": run})


@router.get(
    "/v1/orchestration/{session_id}/events",
    summary="Stream the events of the current turn",
    response_class=StreamingResponse,
    responses=EVENTS,
)
async def events(session_id: str, desk: TheDesk, last_event_id: LastEventId = None, after: After = None) -> Response:
    """Stream the events of the turn's run. A client that has received its end gets the next turn, if there is one."""
    seen = seen_before(last_event_id, after)
    run = await run_of_session(desk, session_id, seen=seen)
    if seen is not None and seen.run != run:
        # The cursor belongs to another turn.
        seen = None
    return await stream_of(desk, run, seen, named=run)


@router.get(
    "/v1/orchestration/{session_id}/graph",
    summary="Get the graph of the current turn",
    responses=answered(GraphDocument, examples.GRAPH),
)
async def graph(run: TurnOfSession, desk: TheDesk) -> Response:
    """Return nodes with their states, and edges."""
    return told_json(await graph_document(desk, run))


@router.get(
    "/v1/orchestration/{session_id}/feedback",
    summary="List open requests of the current turn",
    responses=answered(Requests, examples.REQUESTS),
)
async def requests(run: TurnOfSession, desk: TheDesk) -> Response:
    """List the open requests, each with the JSON Schema of its answer."""
    return told_json(await asked_of(desk, run))


@router.post(
    "/v1/orchestration/{session_id}/feedback",
    summary="Answer a request of the current turn",
    dependencies=[needs(Scope.ANSWER)],
    responses=answered(Done, examples.ANSWERED),
)
async def answer(run: TurnOfSession, body: AnswerBody, desk: TheDesk) -> Response:
    """Validate an answer, deliver it, and return the result."""
    return told_json(await answer_run(desk, run, body))


@router.post(
    "/v1/orchestration/{session_id}/cancel",
    summary="Cancel the current turn",
    dependencies=[needs(Scope.OPERATE)],
    responses=answered(Done, examples.CANCELLED),
)
async def cancel(run: TurnOfSession, desk: TheDesk, body: OptionalAct = None) -> Response:
    """Request cancellation of the turn's run; the session stays open."""
    return told_json(await cancelled(desk, run, body))


def _named(desk: Desk, view: SessionView, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of a session with the names of the API, without its Temporal workflow ID."""
    told = {name: value for name, value in document.items() if name not in ("session_id", "workflow_id")}
    return {"session_id": known_as(desk.caller, view.session.name), **told}
