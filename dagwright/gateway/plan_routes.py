"""`/v1/plans` and `POST /v1/runs`: plans that stand in a request, or are published by name."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Header
from starlette.responses import Response

from dagwright.client import Origin, Terms, made_id
from dagwright.dialects.reading import read_text
from dagwright.dialects.written_lines import lines_of_problems
from dagwright.gateway import examples
from dagwright.gateway.bodies import seconds_of
from dagwright.gateway.callers import Scope
from dagwright.gateway.desk import Desk, TheDesk, needs
from dagwright.gateway.errors import ApiError
from dagwright.gateway.jobs import id_of_key
from dagwright.gateway.looking import told_json
from dagwright.gateway.run_models import CheckedPlan, PlanBody, PublishedPlan, RunBody, StartedRun, answered
from dagwright.plan.errors import PlanInvalid
from dagwright.plan.inputs import schema_of_form
from dagwright.plan.policy import Policy, policy_from_json
from dagwright.plan.references import suggestion
from dagwright.plan.validation import Checked
from dagwright.preparation import check_plan, check_size, policy_problems, prepare_to_ask, unused_inputs
from dagwright.templates import Template

router = APIRouter(tags=["plans"])
Key = Annotated[str | None, Header(alias="Idempotency-Key", description="Sent twice, it is one run.")]


@router.post("/v1/plans/check", summary="Whether a plan can run", responses=answered(CheckedPlan, examples.CHECKED))
async def check(body: PlanBody, desk: TheDesk) -> Response:
    """Tells everything that is wrong with a plan, each with its place; nothing is started."""
    try:
        # A large plan takes a second or some, in which others are answered.
        checked, _ = await asyncio.to_thread(_checked, desk, body.plan, body.dialect)
        await asyncio.to_thread(check_size, checked)
    except PlanInvalid as invalid:
        errors = await asyncio.to_thread(_problems_in, body.plan, invalid)
        nothing = {"dialect": None, "title": None, "inputs": None, "nodes": 0}
        return told_json({"status": "invalid", **nothing, "errors": errors})
    told: dict[str, Any] = {
        "status": "valid",
        "dialect": checked.dialect,
        "title": checked.plan.title,
        "inputs": schema_of_form(checked.inputs),
        "nodes": len(checked.nodes),
        "errors": [],
    }
    return told_json(told)


@router.post(
    "/v1/runs",
    summary="Start a plan",
    dependencies=[needs(Scope.RUN)],
    responses=answered(StartedRun, examples.STARTED),
)
async def start(body: RunBody, desk: TheDesk, idempotency_key: Key = None) -> Response:
    """Starts a run and returns at once; the run asks for inputs that are missing."""
    run = id_of_key(idempotency_key, owner=desk.caller.owner) if idempotency_key else made_id()
    checked, source, title = await asyncio.to_thread(_named, desk, body)
    policy = _policy(body, checked)
    if unused := unused_inputs(checked, body.inputs):
        raise PlanInvalid(unused)
    compiled = await asyncio.to_thread(prepare_to_ask, checked, body.inputs)
    terms = Terms(seconds_of("deadline", body.deadline), policy, owner=desk.caller.starts_for)
    async with desk.room_for_run(run):
        started = await desk.runs.start(
            compiled,
            body.inputs,
            workflow_id=run,
            origin=Origin(source, body.title or title),
            tools=desk.toolset.references,
            terms=terms,
        )
    status = "running" if started.is_new else (await desk.runs.feed(started.workflow_id).read()).status
    return told_json({"run_id": started.workflow_id, "status": status, "is_new": started.is_new})


def _problems_in(plan: Any, invalid: PlanInvalid) -> list[dict[str, Any]]:
    """Returns what is wrong with a plan; of a text with the lines where that stands."""
    told = [problem.to_json() for problem in invalid.problems]
    if not isinstance(plan, str):
        return told
    lines = lines_of_problems(plan, invalid.problems)
    return [{**problem, "line": line} for problem, line in zip(told, lines, strict=True)]


@router.get("/v1/plans/{name}", summary="A published plan", responses=answered(PublishedPlan, examples.PUBLISHED))
async def read_plan(name: str, desk: TheDesk) -> Response:
    """Tells a plan as it was written, with the files of its sub-plans put in."""
    template = _published(desk, name, param="name")
    told: dict[str, Any] = {
        "name": template.name,
        "title": template.title,
        "description": template.description,
        "dialect": template.checked.dialect,
        "inputs": template.input_schema,
        "plan": template.written,
    }
    return told_json(told)


def _published(desk: Desk, name: str, *, param: str) -> Template:
    """Returns a template.

    Raises:
        ApiError: there is none of that name.
    """
    template = desk.templates.get(name)
    if template is None:
        near = suggestion(name, list(desk.templates)) or "GET /v1/models lists them as plan/NAME"
        raise ApiError(404, f"no plan {name!r:.80} is published: {near}", param=param, code="not_found")
    return template


def _named(desk: Desk, body: RunBody) -> tuple[Checked, dict[str, Any], str | None]:
    """Returns the plan of a request: checked, what tells it from others, and what lists call it.

    Raises:
        ApiError: it names none, or two.
        PlanInvalid: it is wrong.
    """
    if (body.template is None) == (body.plan is None):
        raise ApiError(400, "give either `template` or `plan`", param="plan", code="invalid_value")
    if body.template is None:
        checked, written = _checked(desk, body.plan, body.dialect)
        return checked, {"plan": written, "dialect": checked.dialect, "context": {}}, None
    template = _published(desk, body.template, param="template")
    return template.checked, template.source, template.file


def _checked(desk: Desk, plan: Any, dialect: str | None) -> tuple[Checked, Any]:
    written = read_text(plan, name="the plan") if isinstance(plan, str) else plan
    return check_plan(written, desk.toolset.declarations(), dialect=dialect), written


def _policy(body: RunBody, checked: Checked) -> Policy | None:
    if body.policy is None:
        return None
    try:
        policy = policy_from_json(body.policy)
    except ValueError as error:
        raise ApiError(400, f"policy: {error}", param="policy", code="invalid_value") from None
    if refused := policy_problems(checked, policy):
        raise PlanInvalid(refused)
    return policy
