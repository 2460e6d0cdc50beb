"""Documents and event streams of runs and sessions, as the API returns them."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from dagwright.client.sessions import SessionNotFound, SessionView
from dagwright.core.model.times import format_time
from dagwright.core.validation.inputs import schema_of_form
from dagwright.history.run_reader import RunNotFound, RunView
from dagwright.interfaces.http.callers import known_as, session_of
from dagwright.interfaces.http.desk import Desk
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.headers import header_text
from dagwright.interfaces.http.run_events import EventId, first_known, run_events
from dagwright.interfaces.http.streams import NOTHING_MORE, stream_response
from dagwright.protocol.documents import compact_value
from dagwright.protocol.sessions import session_name

NO_HEADERS: Mapping[str, str] = {}


async def run_document(desk: Desk, run: str) -> dict[str, Any]:
    """Return a run with its nodes.

    Raises:
        RunNotFound: there is no such run.
    """
    view = await desk.runs.feed(run).read()
    return await document_of(desk, view)


async def document_of(desk: Desk, view: RunView) -> dict[str, Any]:
    """Return the document of a run with the fields that only the API has."""
    document = await desk.runs.document(view)
    session = known_as(desk.caller, await desk.runs.session_of(view.workflow_id))
    beside: dict[str, Any] = {"started_at": format_time(view.started_at), "ended_at": format_time(view.ended_at)}
    page = desk.shown_server.run_url(view.workflow_id, run_id=view.run_id)
    beside["metadata"] = await desk.runs.tags_of(view.workflow_id)
    return {**document, **beside, "cursor": str(view.offset), "session_id": session, "ui_url": page}


async def graph_document(desk: Desk, run: str) -> dict[str, Any]:
    """Return the nodes and edges of a run, with those inside large regions; raises as `run_document`."""
    view = await desk.runs.feed(run).read()
    listing = desk.runs.graph(view)
    nodes = [node async for node in listing.nodes()]
    edges = [edge async for edge in listing.edges()]
    return {"run_id": run, "cursor": str(view.offset), "nodes": nodes, "edges": edges, "notes": listing.notes}


async def inputs_document(desk: Desk, run: str) -> dict[str, Any]:
    """Return the inputs of a run and their schema; raises as `run_document`."""
    scheduler = (await desk.runs.feed(run).read()).scheduler
    if scheduler is None:
        return {"run_id": run, "schema": schema_of_form({}), "inputs": {}}
    given = {name: compact_value(value, ref=f"input:{name}") for name, value in scheduler.state.inputs.items()}
    return {"run_id": run, "schema": schema_of_form(scheduler.plan.inputs), "inputs": given}


def seen_before(header: str | None, after: str | None) -> EventId | None:
    """Return a client's cursor: a reconnecting browser's header is newer than the query parameter.

    Raises:
        ApiError: it is not an event ID.
    """
    text = header_text(header or "").strip() or (after or "").strip()
    return EventId.parse(text) if text else None


async def stream_of(desk: Desk, run: str, seen: EventId | None, *, named: str | None = None) -> Response:
    """Return the events of a run.

    Args:
        seen: cursor of the client.
        named: the run ID if event IDs must contain it.

    Raises:
        RunNotFound: there is no such run.
    """
    if seen is not None and seen.is_end:
        return Response(status_code=NOTHING_MORE)
    desk.hold_stream()
    updates = await first_known(desk, run, seen.told if seen is not None else None)
    # Headers are ASCII; each event has the run ID unchanged.
    headers = {"X-Run-Id": run} if run.isascii() else {}
    return stream_response(run_events(updates, named=named), desk=desk, headers=headers)


async def session_view(desk: Desk, name: str) -> SessionView:
    """Return a session of the caller.

    Raises:
        SessionNotFound, SessionNameInvalid: there is no such session.
    """
    kept = session_name(session_of(desk.caller, name))
    try:
        return await desk.sessions.look(kept)
    except SessionNotFound as error:
        # Report the name that the caller knows.
        raise SessionNotFound(str(error).replace(repr(kept), repr(name))) from None


async def run_of_session(desk: Desk, name: str, *, seen: EventId | None = None) -> str:
    """Return the run of the current turn of a session, or of its last turn.

    Args:
        seen: cursor of the client. The run is that of the cursor or, if the client has received its end, the next one,
            if the session has them.

    Raises:
        SessionNotFound, SessionNameInvalid: there is no such session.
        ApiError: the session has no turns.
    """
    session = (await session_view(desk, name)).session
    if session.running is not None and not await _is_of(desk, session.running.run, session.name):
        # The turn has the ID of an unrelated run; the session is about to reject it.
        session.drop_turn(session.running.run)
    runs = [turn.run for turn in session.turns]
    if seen is not None and seen.run in runs:
        at = runs.index(seen.run)
        return runs[min(at + seen.is_end, len(runs) - 1)]
    if not runs:
        raise ApiError(404, f"the session {name!r:.80} has no turns", code="not_found")
    return session.running.run if session.running is not None else runs[-1]


async def _is_of(desk: Desk, run: str, session: str) -> bool:
    """Return whether a run is a turn of a session, or has not started yet."""
    try:
        return await desk.runs.session_of(run) == session
    except RunNotFound:
        return True


def told_json(document: Any, *, status: int = 200, headers: Mapping[str, str] = NO_HEADERS) -> Response:
    """Return a JSON response; in ASCII, since results may contain lone surrogates."""
    text = json.dumps(document, separators=(",", ":"))
    return Response(text, status, headers, media_type="application/json")


def created_run(document: Any, run: str) -> Response:
    """Return the response of a request that created a run: 201 with its URL."""
    return told_json(document, status=201, headers={"Location": f"/v1/runs/{quote(run, safe='')}"})
