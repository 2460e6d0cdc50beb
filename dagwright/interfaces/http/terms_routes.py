"""The terms on which a run goes on: its limits and its policy, looked at and changed as `limits` and `policy` do."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from dagwright.client.steering import Command, read_scheduler
from dagwright.features.commands.steering import limits_to_json, policy_to_json
from dagwright.interfaces.http import examples
from dagwright.interfaces.http.callers import Scope
from dagwright.interfaces.http.desk import TheDesk, needs
from dagwright.interfaces.http.looking import told_json
from dagwright.interfaces.http.request_bodies import JsonRoute
from dagwright.interfaces.http.run_models import ActBody, ByField, Done, JsonObject, answered
from dagwright.interfaces.http.steering_routes import send

router = APIRouter(tags=["steering"], route_class=JsonRoute)


class LimitsBody(ActBody):
    """Changes limits of a run: those that are named; null takes one away."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"max_parallel": 8, "deadline": "4h", "reason": "more data", "by": "ann"}]},
    )

    max_parallel: int | None = Field(default=None, description="How many steps run at once, 1 to 500.")
    deadline: str | None = Field(default=None, description="Such as `4h`, from the start of the run.")
    budget: JsonObject | None = Field(
        default=None, description='New limits of its budget, such as `{"tokens": 90000}`; null takes one of these away.'
    )


class LimitsDocument(BaseModel):
    """The limits of a run."""

    run_id: str
    max_parallel: int = Field(description="How many steps run at once.")
    deadline: str | None = Field(default=None, description="The time at which it fails; null for none.")
    budget: JsonObject | None = Field(default=None, description="Only of a run that was started with one.")


class PolicyBody(BaseModel):
    """Changes which calls a run asks people about."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"policy": {"rules": [{"effects": ["write"], "then": "ask"}]}, "by": "ann"}]},
    )

    policy: JsonObject
    by: ByField = None


class PolicyDocument(BaseModel):
    """Which calls a run asks people about."""

    run_id: str
    policy: JsonObject


@router.get("/v1/runs/{run_id}/limits", summary="Its limits", responses=answered(LimitsDocument, examples.LIMITS))
async def read_limits(run_id: str, desk: TheDesk) -> Response:
    """Tells how much of a run runs at once, how long it may take, and its budget."""
    run = await desk.own(run_id)
    return told_json({"run_id": run, **limits_to_json(await read_scheduler(desk.runs.feed(run)))})


@router.post(
    "/v1/runs/{run_id}/limits",
    summary="Change its limits",
    dependencies=[needs(Scope.OPERATE)],
    responses=answered(Done, examples.LIMITED),
)
async def set_limits(run_id: str, body: LimitsBody, desk: TheDesk) -> Response:
    """Changes how much of a run runs at once, how long it may take, or its budget."""
    named: dict[str, Any] = body.model_dump(exclude_unset=True, exclude={"reason", "by"})
    return told_json(await send(desk, run_id, Command.set_limits(named), body))


@router.get("/v1/runs/{run_id}/policy", summary="Its policy", responses=answered(PolicyDocument, examples.POLICY))
async def read_policy(run_id: str, desk: TheDesk) -> Response:
    """Tells which calls a run asks people about."""
    run = await desk.own(run_id)
    return told_json({"run_id": run, **policy_to_json(await read_scheduler(desk.runs.feed(run)))})


@router.post(
    "/v1/runs/{run_id}/policy",
    summary="Change its policy",
    dependencies=[needs(Scope.OPERATE)],
    responses=answered(Done, examples.POLICY_CHANGED),
)
async def set_policy(run_id: str, body: PolicyBody, desk: TheDesk) -> Response:
    """Changes which calls a run asks people about; what waits for an approval that is not asked for goes on."""
    return told_json(await send(desk, run_id, Command.set_policy(body.policy), ActBody(by=body.by)))
