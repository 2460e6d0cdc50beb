"""`/v1/call-limits`: limits of calls across all runs, for keys that see the runs of all owners."""

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from dagwright.client.call_limits import NoSuchLimit, read_limits, remove_limit, set_limit
from dagwright.client.service_tools import KnownTools
from dagwright.interfaces.http import examples
from dagwright.interfaces.http.callers import KeyScope
from dagwright.interfaces.http.context import ContextDep, all_owners_dependency, scope_dependency
from dagwright.interfaces.http.error_codes import ErrorCode
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.json_route import JsonRoute
from dagwright.interfaces.http.run_documents import json_response
from dagwright.interfaces.http.run_models import ByField, response_docs

router = APIRouter(
    tags=["call limits"],
    route_class=JsonRoute,
    dependencies=[scope_dependency(KeyScope.OPERATE), all_owners_dependency()],
)
_PATH = "/v1/call-limits/{subject:path}"


class CallLimitBody(BaseModel):
    """A limit to set."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"limit": "20/s concurrency=5", "by": "ann"}]}
    )

    limit: str = Field(
        max_length=200,
        description="A rate such as `20/s`, `concurrency=5`, `tokens=100000` (per minute), a daily budget such as "
        "`money=5/day`, or several of them.",
    )
    by: ByField = None


class CallLimitDocument(BaseModel):
    """A limit of calls across all runs."""

    subject: str = Field(description="`tool:NAME`, `model:NAME`, `owner:NAME` or `template:NAME`.")
    limit: str | None = Field(
        default=None, description="Null if there is no limit, and only `hold_reason` delays the calls."
    )
    is_declared: bool = Field(description="Whether workers declare the limit; otherwise it was set at run time.")
    by: str | None = Field(default=None, description="User name of the person who set the limit, if known.")
    running: int | None = Field(
        default=None,
        description="Calls that run under a concurrency limit; null if the workflow of the limit does not respond.",
    )
    waiting: int | None = Field(default=None, description="Estimated number of calls that wait.")
    hold_reason: str | None = Field(
        default=None, description="Why no call may start now, if a service requested a pause."
    )
    daily_usage: str | None = Field(default=None, description="Usage of the daily budget.")


class CallLimitList(BaseModel):
    """All limits, by subject."""

    object: str = "list"
    data: list[CallLimitDocument]


class RemovedCallLimit(BaseModel):
    """A limit that was removed."""

    subject: str
    limit: str
    declared_limit: str | None = Field(
        default=None, description="The limit that workers declare, which applies instead."
    )


@router.get("/v1/call-limits", summary="List call limits", responses=response_docs(CallLimitList, examples.CALL_LIMITS))
async def list_limits(context: ContextDep) -> Response:
    """Return all limits of calls across runs, with their current usage."""
    limits = await read_limits(context.runs.client)
    return json_response({"object": "list", "data": [asdict(limit) for limit in limits]})


@router.put(_PATH, summary="Set a call limit", responses=response_docs(CallLimitDocument, examples.CALL_LIMIT))
async def put_limit(subject: str, body: CallLimitBody, context: ContextDep) -> Response:
    """Set a limit of calls across all runs, instead of the limit that workers declare.

    Workers apply the new limit within 2 s.
    """
    tools = KnownTools(context.toolset.declarations(), context.toolset.store, context.settings.task_queue)
    by = context.caller.actor_name or body.by
    return json_response(asdict(await set_limit(context.runs.client, subject, body.limit, tools, by=by)))


@router.delete(
    _PATH, summary="Remove a call limit", responses=response_docs(RemovedCallLimit, examples.REMOVED_CALL_LIMIT)
)
async def delete_limit(subject: str, context: ContextDep) -> Response:
    """Remove the limit that was set at run time, or else the declared limit.

    A declared limit applies again as soon as a worker declares it.
    """
    try:
        removed_limit: dict[str, Any] = asdict(await remove_limit(context.runs.client, subject))
    except NoSuchLimit as error:
        raise ApiError(ErrorCode.NOT_FOUND, str(error), param="subject") from None
    return json_response(removed_limit)
