"""`/v1/runs`: read runs."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response, StreamingResponse

from dagwright.client.node_view import read_node_view
from dagwright.client.run_lists import RunFilter, RunSummary
from dagwright.core.model.states import RunStatus
from dagwright.interfaces.http import examples
from dagwright.interfaces.http.callers import public_session_id, stored_session_name
from dagwright.interfaces.http.context import ContextDep, GatewayContext
from dagwright.interfaces.http.error_codes import ErrorCode
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.json_route import JsonRoute
from dagwright.interfaces.http.list_pages import PageDep, next_page_fields
from dagwright.interfaces.http.request_fields import run_tags
from dagwright.interfaces.http.run_documents import (
    AfterParameter,
    LastEventId,
    event_cursor,
    event_stream,
    graph_document,
    inputs_document,
    json_response,
    run_document,
)
from dagwright.interfaces.http.run_models import (
    EVENT_STREAM_DOCS,
    ExplanationDocument,
    GraphDocument,
    InputsDocument,
    NodeDocument,
    RunDocument,
    RunList,
    response_docs,
)
from dagwright.protocol.sessions import normalized_session_name

router = APIRouter(tags=["runs"], route_class=JsonRoute)
NO_TAGS: list[str] = []


def _run_filter(
    context: ContextDep,
    *,
    status: Annotated[RunStatus | None, Query(description="Filter by state.")] = None,
    session_id: Annotated[str | None, Query(description="Filter by session.")] = None,
    title: Annotated[
        str | None, Query(description="Filter by a prefix of the title or ID; case and spaces matter.")
    ] = None,
    template: Annotated[str | None, Query(description="Filter by the published plan.")] = None,
    tags: Annotated[
        list[str],
        Query(description="Filter by a tag, as `key=value`. Repeat the parameter to filter by several tags."),
    ] = NO_TAGS,
) -> RunFilter:
    session_name = (
        None if session_id is None else normalized_session_name(stored_session_name(context.caller, session_id))
    )
    return RunFilter(context.caller.owner, status, session_name, title, tags=_parse_tags(tags), template=template)


@router.get("/v1/runs", summary="List runs", responses=response_docs(RunList, examples.RUNS))
async def list_runs(
    context: ContextDep, run_filter: Annotated[RunFilter, Depends(_run_filter)], page: PageDep
) -> Response:
    """List the runs of the caller, except runs of sub-plans: open runs first, then closed ones."""
    summaries, cursor = await context.runs.page_of_runs(limit=page.limit, run_filter=run_filter, after=page.after)
    items = [_list_item(context, run) for run in summaries]
    return json_response(
        {"object": "list", "data": items, **next_page_fields(cursor), "ui_url": context.visible_server.runs_url()}
    )


def _list_item(context: GatewayContext, run: RunSummary) -> dict[str, Any]:
    return {**run.to_json(), "session_id": public_session_id(context.caller, run.session_id)}


def _parse_tags(pairs: Sequence[str]) -> dict[str, str]:
    """Parse the tags by which a list is filtered.

    Raises:
        ApiError: a pair is not `key=value`.
    """
    tags = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not (name and separator):
            message = f"tags: must be key=value, such as order=4711, not {pair!r:.80}"
            raise ApiError(ErrorCode.INVALID_VALUE, message, param="tags")
        tags[name] = value
    # `run_tags` rejects values that no run can have, such as control characters.
    return run_tags(tags)


@router.get("/v1/runs/{run_id}", summary="Get a run with its nodes", responses=response_docs(RunDocument, examples.RUN))
async def read_run(run_id: str, context: ContextDep) -> Response:
    """Return the current state of a run. Large values are given as references."""
    return json_response(await run_document(context, await context.visible_run(run_id)))


@router.get(
    "/v1/runs/{run_id}/events",
    summary="Stream the events of a run",
    response_class=StreamingResponse,
    responses=EVENT_STREAM_DOCS,
)
async def stream_events(
    run_id: str, context: ContextDep, last_event_id: LastEventId = None, after: AfterParameter = None
) -> Response:
    """Stream the changes of nodes and of the run until the run ends, from the client's cursor on."""
    cursor = event_cursor(last_event_id, after)
    if cursor is not None and cursor.run_id not in (None, run_id):
        message = f"the event id belongs to the run {cursor.run_id!r:.200}, but the request is for {run_id!r:.200}"
        raise ApiError(ErrorCode.INVALID_VALUE, message, param="after")
    return await event_stream(context, await context.visible_run(run_id), cursor)


@router.get(
    "/v1/runs/{run_id}/inputs",
    summary="Get the inputs of a run",
    responses=response_docs(InputsDocument, examples.INPUTS),
)
async def read_inputs(run_id: str, context: ContextDep) -> Response:
    """Return the inputs of a run and their schema. A fork can change the inputs."""
    return json_response(await inputs_document(context, await context.visible_run(run_id)))


@router.get(
    "/v1/runs/{run_id}/graph", summary="Get the graph of a run", responses=response_docs(GraphDocument, examples.GRAPH)
)
async def read_graph(run_id: str, context: ContextDep) -> Response:
    """Return nodes with their states, and edges."""
    return json_response(await graph_document(context, await context.visible_run(run_id)))


@router.get(
    "/v1/runs/{run_id}/nodes/{node_id:path}",
    summary="Get a node or item",
    responses=response_docs(NodeDocument, examples.NODE),
)
async def read_node(
    run_id: str,
    node_id: str,
    context: ContextDep,
    *,
    full: Annotated[bool, Query(description="Include values of any size.")] = False,
) -> Response:
    """Return arguments, result, attempts and lineage. A node of a sub-plan has a path, such as `archive/check`."""
    view = await read_node_view(context.runs, await context.visible_run(run_id), node_id, full=full)
    return json_response({**view.document, "notes": list(view.notes)})


@router.get(
    "/v1/runs/{run_id}/explain",
    summary="Explain the state of a run",
    responses=response_docs(ExplanationDocument, examples.EXPLANATION),
)
async def explain(
    run_id: str, context: ContextDep, node_id: Annotated[str | None, Query(description="ID of a node or item.")] = None
) -> Response:
    """Explain why a run or a node is in its state, down to the root cause."""
    explanation = await context.runs.explain(await context.visible_run(run_id), node_id)
    return json_response(explanation.to_json())
