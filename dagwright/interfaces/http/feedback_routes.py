"""`/v1/runs/{run_id}/feedback` and `/v1/inbox`: open requests with the schemas of their answers, and answers."""

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from dagwright.client.feedback.inbox import InboxFilter
from dagwright.interfaces.http import examples
from dagwright.interfaces.http.callers import KeyScope
from dagwright.interfaces.http.context import ContextDep, GatewayContext, scope_dependency
from dagwright.interfaces.http.json_route import JsonRoute
from dagwright.interfaces.http.list_pages import Page, PageDep, next_page_fields
from dagwright.interfaces.http.run_documents import json_response
from dagwright.interfaces.http.run_models import (
    AnswerBody,
    CommandResponse,
    FeedbackRequestList,
    InboxList,
    response_docs,
)
from dagwright.interfaces.http.run_steering import answer_run_request, open_requests, request_document

router = APIRouter(tags=["feedback"], route_class=JsonRoute)


async def inbox(context: GatewayContext, page: Page) -> dict[str, Any]:
    """Return a page of the open requests in all runs of the caller."""
    inbox_page = await context.runs.inbox(
        limit=page.limit, inbox_filter=InboxFilter(owner=context.caller.owner), after=page.after
    )
    data = [request_document(request) for request in inbox_page.requests]
    omitted = [{"run_id": run_id, "count": count} for run_id, count in inbox_page.omitted.items()]
    return {"object": "list", "data": data, **next_page_fields(inbox_page.cursor), "omitted": omitted}


@router.get(
    "/v1/inbox",
    summary="List open requests of all runs",
    responses=response_docs(InboxList, examples.INBOX),
)
async def read_inbox(context: ContextDep, page: PageDep) -> Response:
    """List the open requests of the caller's runs, and requests assigned to the caller.

    The first page has the requests of the runs that started last. Within a page, the oldest request comes first.
    """
    return json_response(await inbox(context, page))


@router.get(
    "/v1/runs/{run_id}/feedback",
    summary="List open requests of a run",
    responses=response_docs(FeedbackRequestList, examples.REQUESTS),
)
async def list_requests(run_id: str, context: ContextDep) -> Response:
    """List the open requests of a run and its sub-plans, each with the JSON Schema of its answer."""
    return json_response(await open_requests(context, run_id))


@router.post(
    "/v1/runs/{run_id}/feedback",
    summary="Answer a request of a run",
    dependencies=[scope_dependency(KeyScope.ANSWER)],
    responses=response_docs(CommandResponse, examples.REQUEST_ANSWERED),
)
async def answer_request(run_id: str, body: AnswerBody, context: ContextDep) -> Response:
    """Validate an answer, deliver it, and return the result."""
    return json_response(await answer_run_request(context, run_id, body))
