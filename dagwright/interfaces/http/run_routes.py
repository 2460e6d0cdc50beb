"""`/v1/runs`: looks at runs by their ids."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query
from starlette.responses import Response, StreamingResponse

from dagwright.client.node_view import look_at_node
from dagwright.client.run_lists import MOST_AT_ONCE, RunFilter, RunPlace, RunSummary
from dagwright.core.model.states import RunStatus
from dagwright.interfaces.http import examples
from dagwright.interfaces.http.bodies import metadata_of
from dagwright.interfaces.http.callers import known_as, session_of
from dagwright.interfaces.http.desk import Desk, TheDesk
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.event_models import RUN_EVENTS
from dagwright.interfaces.http.headers import header_descriptions
from dagwright.interfaces.http.looking import (
    graph_document,
    inputs_document,
    run_document,
    seen_before,
    stream_of,
    told_json,
)
from dagwright.interfaces.http.naming import named, named_node
from dagwright.interfaces.http.request_bodies import JsonRoute
from dagwright.interfaces.http.run_models import (
    GraphDocument,
    InputsDocument,
    NodeDocument,
    RunDocument,
    RunList,
    WhyDocument,
    answered,
    streamed,
)
from dagwright.protocol.sessions import session_name

router = APIRouter(tags=["runs"], route_class=JsonRoute)
LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", description="Id of the last event that was seen.")]
After = Annotated[str | None, Query(description="The same, for clients that cannot set headers.")]
NO_METADATA: list[str] = []
EVENTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events: `nodes` (what has changed), `run` (the run as it stands), `end` (last).",
        "content": streamed(examples.EVENTS, data=RUN_EVENTS),
        "headers": header_descriptions("X-Run-Id"),
    },
    204: {"description": "The client has seen the end already."},
}


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a list.

    Args:
        after: where it begins; `None` is at the newest run.
    """

    limit: int
    after: RunPlace | None


def _page(
    limit: Annotated[int, Query(ge=1, le=MOST_AT_ONCE)] = 100,
    cursor: Annotated[str | None, Query(description="`next` of the page before.")] = None,
) -> Page:
    return Page(limit, _place(cursor))


ThePage = Annotated[Page, Depends(_page)]


@router.get("/v1/runs", summary="Runs, open ones first", responses=answered(RunList, examples.RUNS))
async def list_runs(
    desk: TheDesk,
    *,
    status: Annotated[RunStatus | None, Query(description="Only those of this state.")] = None,
    session_id: Annotated[str | None, Query(description="Only the turns of this session.")] = None,
    title: Annotated[str | None, Query(description="Only those with this text in their title or id.")] = None,
    metadata: Annotated[
        list[str], Query(description="`key=value`: only those with this metadata; several: with all of them.")
    ] = NO_METADATA,
    page: ThePage,
) -> Response:
    """Lists the runs of the caller, without sub-plans: those that go on first, then those that have ended."""
    session = None if session_id is None else session_name(session_of(desk.caller, session_id))
    wanted = RunFilter(desk.caller.owner, status, session, title, tags=_metadata(metadata))
    found, following = await desk.runs.page_of_runs(limit=page.limit, wanted=wanted, after=page.after)
    lines = [_line(desk, run) for run in found]
    beyond = None if following is None else str(following)
    more = {"has_more": following is not None, "next": beyond}
    return told_json({"object": "list", "data": lines, **more, "ui_url": desk.shown_server.runs_url()})


def _line(desk: Desk, run: RunSummary) -> dict[str, Any]:
    line = named(run.to_json())
    metadata = line.pop("tags")
    return {**line, "session_id": known_as(desk.caller, run.session), "metadata": metadata}


def _metadata(pairs: Sequence[str]) -> dict[str, str]:
    """Return the metadata that a list is filtered by.

    Raises:
        ApiError: a pair is not `key=value`.
    """
    found = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not (name and separator):
            words = f"metadata: must be key=value, such as order=4711, not {pair!r:.80}"
            raise ApiError(400, words, param="metadata", code="invalid_value")
        found[name] = value
    # What no run can have, such as control characters, the server cannot search for.
    return metadata_of(found)


@router.get("/v1/runs/{run_id}", summary="A run with its nodes", responses=answered(RunDocument, examples.RUN))
async def read_run(run_id: str, desk: TheDesk) -> Response:
    """Tells a run as it is now; large values stand there by reference."""
    return told_json(await run_document(desk, await desk.own(run_id)))


@router.get(
    "/v1/runs/{run_id}/events",
    summary="What happens in a run, as it happens",
    response_class=StreamingResponse,
    responses=EVENTS,
)
async def events(run_id: str, desk: TheDesk, last_event_id: LastEventId = None, after: After = None) -> Response:
    """Streams each change of a node once, up to the end of the run; goes on where a client stopped."""
    seen = seen_before(last_event_id, after)
    if seen is not None and seen.run not in (None, run_id):
        words = f"the id of an event is one of the run {seen.run!r:.200}, and the request is one of {run_id!r:.200}"
        raise ApiError(400, words, param="after", code="invalid_value")
    return await stream_of(desk, await desk.own(run_id), seen)


@router.get(
    "/v1/runs/{run_id}/inputs", summary="What it was started with", responses=answered(InputsDocument, examples.INPUTS)
)
async def inputs(run_id: str, desk: TheDesk) -> Response:
    """Tells its inputs, and what they may be: of those a fork may have others."""
    return told_json(await inputs_document(desk, await desk.own(run_id)))


@router.get("/v1/runs/{run_id}/graph", summary="Its graph", responses=answered(GraphDocument, examples.GRAPH))
async def graph(run_id: str, desk: TheDesk) -> Response:
    """Tells nodes with their states, and edges."""
    return told_json(await graph_document(desk, await desk.own(run_id)))


@router.get(
    "/v1/runs/{run_id}/nodes/{node:path}", summary="One node or item", responses=answered(NodeDocument, examples.NODE)
)
async def read_node(
    run_id: str,
    node: str,
    desk: TheDesk,
    *,
    full: Annotated[bool, Query(description="With values of any size.")] = False,
) -> Response:
    """Tells arguments, result, attempts and lineage; a node of a sub-plan is `archive/check`."""
    look = await look_at_node(desk.runs, await desk.own(run_id), node, full=full)
    return told_json({**named_node(look.document), "notes": list(look.notes)})


@router.get("/v1/runs/{run_id}/why", summary="Why it is where it is", responses=answered(WhyDocument, examples.WHY))
async def why(
    run_id: str, desk: TheDesk, node: Annotated[str | None, Query(description="Of one node or item.")] = None
) -> Response:
    """Says what a run or a node waits for, down to the root of it, or what is behind a result."""
    told = await desk.runs.explain(await desk.own(run_id), node)
    return told_json(named(told.to_json()))


def _place(cursor: str | None) -> RunPlace | None:
    try:
        return RunPlace.parse(cursor) if cursor else None
    except ValueError:
        words = "`cursor` is not what `next` of a page said; leave it out to begin with the first page"
        raise ApiError(400, words, param="cursor", code="invalid_value") from None
