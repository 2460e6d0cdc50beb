"""Limits and policy of runs: read and change them."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from dagwright.client.steering import Command, read_scheduler
from dagwright.features.commands.steering import limits_to_json, policy_to_json
from dagwright.interfaces.http import examples
from dagwright.interfaces.http.callers import KeyScope
from dagwright.interfaces.http.context import ContextDep, scope_dependency
from dagwright.interfaces.http.event_models import JsonObject
from dagwright.interfaces.http.json_route import JsonRoute
from dagwright.interfaces.http.request_fields import duration_seconds
from dagwright.interfaces.http.run_documents import json_response
from dagwright.interfaces.http.run_models import ByField, CommandBody, CommandResponse, response_docs
from dagwright.interfaces.http.run_steering import send_command

router = APIRouter(tags=["steering"], route_class=JsonRoute)


class LimitsBody(CommandBody):
    """A request to change limits of a run; null removes a limit, an omitted field changes nothing."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"max_parallel": 8, "deadline": "4h", "reason": "more data", "by": "ann"}]},
    )

    max_parallel: int | None = Field(default=None, ge=1, description="Maximum number of running nodes, 1 to 500.")
    deadline: str | None = Field(default=None, description="Maximum duration from the start of the run, such as `4h`.")
    budget: JsonObject | None = Field(
        default=None, description='New limits of the budget, such as `{"tokens": 90000}`; null removes a limit.'
    )


class LimitsDocument(BaseModel):
    """The limits of a run."""

    run_id: str
    max_parallel: int = Field(description="Maximum number of running nodes.")
    deadline: str | None = Field(default=None, description="Time at which the run fails; null for no deadline.")
    budget: JsonObject | None = Field(default=None, description="Only for a run that was started with a budget.")


class PolicyBody(BaseModel):
    """A request to change which calls of a run need approval."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"policy": {"rules": [{"effects": ["write"], "then": "ask"}]}, "by": "ann"}]},
    )

    policy: JsonObject
    by: ByField = None


class PolicyDocument(BaseModel):
    """Which calls of a run need approval."""

    run_id: str
    policy: JsonObject


@router.get(
    "/v1/runs/{run_id}/limits",
    summary="Get the limits of a run",
    responses=response_docs(LimitsDocument, examples.LIMITS),
)
async def read_limits(run_id: str, context: ContextDep) -> Response:
    """Return the parallelism, deadline and budget of a run."""
    run = await context.visible_run(run_id)
    return json_response({"run_id": run, **limits_to_json(await read_scheduler(context.runs.reader(run)))})


@router.post(
    "/v1/runs/{run_id}/limits",
    summary="Change the limits of a run",
    dependencies=[scope_dependency(KeyScope.OPERATE)],
    responses=response_docs(CommandResponse, examples.LIMITS_CHANGED),
)
async def set_limits(run_id: str, body: LimitsBody, context: ContextDep) -> Response:
    """Change the parallelism, deadline or budget of a run."""
    duration_seconds("deadline", body.deadline)
    changed_limits: dict[str, Any] = body.model_dump(exclude_unset=True, exclude={"reason", "by"})
    param = "budget" if body.budget is not None else None
    return json_response(await send_command(context, run_id, Command.set_limits(changed_limits), body, param=param))


@router.get(
    "/v1/runs/{run_id}/policy",
    summary="Get the policy of a run",
    responses=response_docs(PolicyDocument, examples.POLICY),
)
async def read_policy(run_id: str, context: ContextDep) -> Response:
    """Return which calls of a run need approval."""
    run = await context.visible_run(run_id)
    return json_response({"run_id": run, **policy_to_json(await read_scheduler(context.runs.reader(run)))})


@router.post(
    "/v1/runs/{run_id}/policy",
    summary="Change the policy of a run",
    dependencies=[scope_dependency(KeyScope.OPERATE)],
    responses=response_docs(CommandResponse, examples.POLICY_CHANGED),
)
async def set_policy(run_id: str, body: PolicyBody, context: ContextDep) -> Response:
    """Change which calls of a run need approval. A waiting call continues if it needs no approval any more."""
    command = Command.set_policy(body.policy)
    return json_response(await send_command(context, run_id, command, CommandBody(by=body.by), param="policy"))
