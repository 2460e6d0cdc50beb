"""`/v1/plans` and `POST /v1/runs`: plans in requests, and published plans."""

import asyncio
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from starlette.responses import Response

from dagwright.client.starts import RunStartOptions, StartRequest, new_run_id
from dagwright.core.errors import PlanInvalid
from dagwright.core.model.answers import size_problem
from dagwright.core.model.policy import Policy, policy_from_json
from dagwright.core.name_hints import suggestion
from dagwright.features.commands.steering import MAX_COMMAND_BYTES
from dagwright.interfaces.http import examples
from dagwright.interfaces.http.callers import KeyScope
from dagwright.interfaces.http.context import GatewayContext, PlansContextDep, scope_dependency
from dagwright.interfaces.http.error_codes import ErrorCode
from dagwright.interfaces.http.errors import ApiError, plan_error
from dagwright.interfaces.http.json_route import JsonRoute
from dagwright.interfaces.http.posted_plans import posted_plan_of, run_plan_check
from dagwright.interfaces.http.request_fields import duration_seconds, run_tags
from dagwright.interfaces.http.run_documents import created_run_response, json_response
from dagwright.interfaces.http.run_models import (
    PlanBody,
    PlanCheck,
    PublishedPlan,
    RunBody,
    StartedRun,
    created_docs,
    response_docs,
)
from dagwright.interfaces.http.run_preparation import run_id_of_key
from dagwright.interfaces.http.targets import reject_unusable_plan
from dagwright.plans.posted_plans import (
    PreparedPlan,
    RejectedPlan,
    check_response,
    compile_for_requests,
    prepare_posted_plan,
)
from dagwright.plans.preparation import policy_problems
from dagwright.plans.templates import Template

router = APIRouter(tags=["plans"], route_class=JsonRoute)
IdempotencyKeyHeader = Annotated[
    str | None,
    Header(alias="Idempotency-Key", description="Requests with the same key start one run."),
]


@router.post("/v1/plans/check", summary="Check a plan", responses=response_docs(PlanCheck, examples.PLAN_CHECK))
async def check(body: PlanBody, context: PlansContextDep, request: Request) -> Response:
    """Check a plan and list its problems, each with its JSON Pointer. No run is started."""
    posted_plan, tools = posted_plan_of(context, body.plan, body.dialect), context.toolset.declarations()
    return json_response(await run_plan_check(context, request, check_response, posted_plan, tools))


@router.post(
    "/v1/runs",
    summary="Start a run of a plan",
    dependencies=[scope_dependency(KeyScope.RUN)],
    responses=created_docs(StartedRun, examples.STARTED_RUN),
)
async def start(
    body: RunBody, context: PlansContextDep, request: Request, idempotency_key: IdempotencyKeyHeader = None
) -> Response:
    """Start a run and return at once. The run asks for missing inputs."""
    run_id = run_id_of_key(idempotency_key, owner=context.caller.owner) if idempotency_key else new_run_id()
    prepared_plan, title = await _prepare(context, body, request)
    deadline_s = duration_seconds("deadline", body.deadline)
    options = RunStartOptions(
        deadline_s,
        _policy(body),
        owner=context.caller.run_owner,
        tags=run_tags(body.tags),
        fairness=context.caller.fairness,
    )
    start_request = StartRequest(
        prepared_plan.compiled,
        prepared_plan.source,
        body.inputs,
        options,
        run_id,
        body.title or title,
        template=body.template,
        tools=context.toolset.references,
    )
    async with context.reserve_run(run_id):
        start_result = await context.runs.start(start_request)
    status = "running" if start_result.is_new else (await context.runs.reader(start_result.run_id).read()).status
    document = {"run_id": start_result.run_id, "status": status, "created": start_result.is_new}
    return created_run_response(document, start_result.run_id) if start_result.is_new else json_response(document)


@router.get(
    "/v1/plans/{name}", summary="Get a published plan", responses=response_docs(PublishedPlan, examples.PUBLISHED_PLAN)
)
async def read_plan(name: str, context: PlansContextDep) -> Response:
    """Return a plan as it was written, with the files of its sub-plans inlined."""
    template = _find_published_plan(context, name, param="name")
    document: dict[str, Any] = {
        "name": template.name,
        "title": template.title,
        "description": template.description,
        "dialect": template.checked.dialect,
        "input_schema": template.input_schema,
        "plan": template.document,
    }
    return json_response(document)


def _find_published_plan(context: GatewayContext, name: str, *, param: str) -> Template:
    """Return a published plan.

    Raises:
        ApiError: no plan with this name is published, or it cannot be used.
    """
    template = context.templates.get(name)
    if template is None:
        reject_unusable_plan(context, name, param=param)
        hint = suggestion(name, list(context.templates)) or "GET /v1/models lists the published plans as plan/NAME"
        raise ApiError(ErrorCode.NOT_FOUND, f"no plan {name!r:.80} is published: {hint}", param=param)
    return template


async def _prepare(context: GatewayContext, body: RunBody, request: Request) -> tuple[PreparedPlan, str | None]:
    """Return the plan of a request, ready to run, and its default title.

    Raises:
        ApiError: the request has no plan or two plans, or its plan is invalid.
        PlanInvalid: the inputs are invalid, or the policy does not fit the plan.
    """
    if (body.template is None) == (body.plan is None):
        raise ApiError(ErrorCode.INVALID_VALUE, "send either `template` or `plan`", param="plan")
    policy = _policy(body)
    if body.template is None:
        posted_plan, tools = posted_plan_of(context, body.plan, body.dialect), context.toolset.declarations()
        prepare = partial(prepare_posted_plan, inputs=body.inputs, policy=policy)
        prepared_plan = await run_plan_check(context, request, prepare, posted_plan, tools)
        if isinstance(prepared_plan, RejectedPlan):
            raise replace(plan_error(prepared_plan.invalid), param=None, errors=prepared_plan.errors)
        return prepared_plan, None
    template = _find_published_plan(context, body.template, param="template")
    if policy is not None and (problems := policy_problems(template.checked, policy)):
        raise PlanInvalid(problems)
    compiled_plan = await asyncio.to_thread(compile_for_requests, template.checked, body.inputs)
    return PreparedPlan(compiled_plan, template.source), template.file_name


def _policy(body: RunBody) -> Policy | None:
    if body.policy is None:
        return None
    if (problem := size_problem(body.policy, MAX_COMMAND_BYTES, value_name="the policy")) is not None:
        raise ApiError(ErrorCode.TOO_LARGE, f"policy: {problem}", param="policy")
    try:
        return policy_from_json(body.policy)
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_VALUE, f"policy: {error}", param="policy") from None
