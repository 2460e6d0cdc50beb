"""Commands to runs: cancel, pause, resume, fork, and commands to nodes."""

from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import Response

from dagwright.client.fork_runs import ForkChanges, ForkOptions, draft_fork, start_fork
from dagwright.client.forks import Forks
from dagwright.client.steering import PAUSE, RESUME, Command
from dagwright.interfaces.http import examples
from dagwright.interfaces.http.callers import KeyScope
from dagwright.interfaces.http.context import ContextDep, PlansContextDep, scope_dependency
from dagwright.interfaces.http.json_route import JsonRoute
from dagwright.interfaces.http.posted_plans import include_sub_plans, posted_plan_of, run_plan_check
from dagwright.interfaces.http.run_documents import created_run_response, json_response
from dagwright.interfaces.http.run_models import (
    AddNodesBody,
    CancelNodeBody,
    CommandResponse,
    ForkBody,
    ForkDocument,
    OptionalCancelNode,
    OptionalCommand,
    OptionalRetry,
    ResultBody,
    RetryBody,
    created_docs,
    response_docs,
)
from dagwright.interfaces.http.run_steering import cancel_run, command_author, command_result, send_command

router = APIRouter(tags=["steering"], route_class=JsonRoute, dependencies=[scope_dependency(KeyScope.OPERATE)])
_COMMAND_DOCS = response_docs(CommandResponse, examples.RUN_PAUSED)


@router.post(
    "/v1/runs/{run_id}/cancel", summary="Cancel a run", responses=response_docs(CommandResponse, examples.RUN_CANCELLED)
)
async def cancel(run_id: str, context: ContextDep, body: OptionalCommand = None) -> Response:
    """Request cancellation of a run. Its running calls are notified and can clean up before they stop."""
    return json_response(await cancel_run(context, await context.visible_run(run_id), body))


@router.post("/v1/runs/{run_id}/pause", summary="Pause a run", responses=_COMMAND_DOCS)
async def pause(run_id: str, context: ContextDep, body: OptionalCommand = None) -> Response:
    """Pause a run: no new nodes start; running nodes finish."""
    return json_response(await send_command(context, run_id, PAUSE, body))


@router.post("/v1/runs/{run_id}/resume", summary="Resume a paused run", responses=_COMMAND_DOCS)
async def resume(run_id: str, context: ContextDep, body: OptionalCommand = None) -> Response:
    """Resume a paused run."""
    return json_response(await send_command(context, run_id, RESUME, body))


@router.post("/v1/runs/{run_id}/nodes/{node_id:path}/cancel", summary="Cancel a node", responses=_COMMAND_DOCS)
async def cancel_node(run_id: str, node_id: str, context: ContextDep, body: OptionalCancelNode = None) -> Response:
    """Cancel a node and, with `branch`, its dependents."""
    body = body or CancelNodeBody()
    return json_response(await send_command(context, run_id, Command.cancel_node(node_id, branch=body.branch), body))


@router.post("/v1/runs/{run_id}/nodes/{node_id:path}/retry", summary="Retry a node", responses=_COMMAND_DOCS)
async def retry(run_id: str, node_id: str, context: ContextDep, body: OptionalRetry = None) -> Response:
    """Retry a node. If the request has `arguments`, a new node with these arguments replaces the node."""
    body = body or RetryBody()
    return json_response(
        await send_command(context, run_id, Command.retry_node(node_id, arguments=body.arguments), body)
    )


@router.post(
    "/v1/runs/{run_id}/nodes/{node_id:path}/result", summary="Set the result of a node", responses=_COMMAND_DOCS
)
async def set_result(run_id: str, node_id: str, body: ResultBody, context: ContextDep) -> Response:
    """Set the result of a node manually."""
    return json_response(await send_command(context, run_id, Command.set_result(node_id, result=body.result), body))


@router.post("/v1/runs/{run_id}/nodes", summary="Add nodes", responses=_COMMAND_DOCS)
async def add_nodes(run_id: str, body: AddNodesBody, context: PlansContextDep) -> Response:
    """Validate nodes and add them to the plan of an open run."""
    tools = context.toolset.declarations()
    run = await context.visible_run(run_id)
    nodes = include_sub_plans(context, body.nodes)
    async with context.plan_checks.hold_lock(context.caller.key_id):
        by = command_author(context, body).by
        return json_response(command_result(run, await context.steering.add_nodes(run, nodes, tools=tools, by=by)))


@router.post("/v1/runs/{run_id}/fork", summary="Fork a run", responses=created_docs(ForkDocument, examples.FORK))
async def fork(run_id: str, body: ForkBody, context: PlansContextDep, request: Request) -> Response:
    """Return the changes of a fork and, with `start`, start the fork. A repeated request starts no second run."""
    forks = Forks(context.runs.reader, context.toolset.store)
    plans = () if body.plan is None else (posted_plan_of(context, body.plan),)
    changes = ForkChanges(plans, body.inputs, body.rerun, check_runner=partial(run_plan_check, context, request))
    run = await context.visible_run(run_id)
    draft = await draft_fork(run, changes, runs=context.runs, forks=forks, tools=context.toolset.declarations())
    if body.start:
        async with context.reserve_run(draft.run_id):
            await start_fork(draft, runs=context.runs, forks=forks, options=ForkOptions(context.toolset.references))
    document = {"run_id": run, "fork_run_id": draft.run_id, "started": body.start, "difference": draft.to_json()}
    return created_run_response(document, draft.run_id) if body.start else json_response(document)
