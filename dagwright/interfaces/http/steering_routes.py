"""Commands to runs: cancel, pause, resume, fork, and commands to nodes."""

from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from dagwright.client.fork_runs import ForkOptions, ForkWish, draft_of, start_fork
from dagwright.client.forks import Forks
from dagwright.client.steering import PAUSE, RESUME, Actor, Command, CommandRejected
from dagwright.core.model.states import RunStatus
from dagwright.history.run_reader import RunClosed
from dagwright.interfaces.http import examples
from dagwright.interfaces.http.callers import Scope
from dagwright.interfaces.http.desk import Desk, PlansDesk, TheDesk, needs
from dagwright.interfaces.http.looking import created_run, told_json
from dagwright.interfaces.http.posted import checked_beside, posted_of, with_sub_plans
from dagwright.interfaces.http.request_bodies import JsonRoute
from dagwright.interfaces.http.run_models import (
    ActBody,
    AppendBody,
    CancelNodeBody,
    Done,
    ForkBody,
    ForkDocument,
    OptionalAct,
    OptionalCancelNode,
    OptionalRetry,
    ResultBody,
    RetryBody,
    answered,
    created,
)

router = APIRouter(tags=["steering"], route_class=JsonRoute, dependencies=[needs(Scope.OPERATE)])
NOBODY = ActBody()
"""Default for requests without a body."""
_DONE = answered(Done, examples.PAUSED)


async def cancelled(desk: Desk, run: str, body: ActBody | None) -> dict[str, Any]:
    """Cancel a run. A run that is stopping or cancelled is not changed.

    Raises:
        RunNotFound, RunClosed, CommandRejected: it cannot be cancelled.
    """
    try:
        return _done(run, await desk.steering.cancel(run, actor_of(desk, body)))
    except (RunClosed, CommandRejected):
        view = await desk.runs.feed(run).read()
        is_stopping = not view.is_closed and view.scheduler is not None and view.scheduler.is_stopped
        if not is_stopping and view.status != RunStatus.CANCELLED:
            raise
        state = "is being stopped" if is_stopping else "is cancelled"
        return {**_done(run, f"the run {state} already"), "status": view.status}


@router.post("/v1/runs/{run_id}/cancel", summary="Cancel a run", responses=answered(Done, examples.CANCELLED))
async def cancel(run_id: str, desk: TheDesk, body: OptionalAct = None) -> Response:
    """Request cancellation of a run. Its running calls are notified and can clean up before they stop."""
    return told_json(await cancelled(desk, await desk.own(run_id), body))


@router.post("/v1/runs/{run_id}/pause", summary="Pause a run", responses=_DONE)
async def pause(run_id: str, desk: TheDesk, body: OptionalAct = None) -> Response:
    """Pause a run: no new nodes start; running nodes finish."""
    return told_json(await send(desk, run_id, PAUSE, body))


@router.post("/v1/runs/{run_id}/resume", summary="Resume a paused run", responses=_DONE)
async def resume(run_id: str, desk: TheDesk, body: OptionalAct = None) -> Response:
    """Resume a paused run."""
    return told_json(await send(desk, run_id, RESUME, body))


@router.post("/v1/runs/{run_id}/nodes/{node:path}/cancel", summary="Cancel a node", responses=_DONE)
async def cancel_node(run_id: str, node: str, desk: TheDesk, body: OptionalCancelNode = None) -> Response:
    """Cancel a node and, with `branch`, its dependents."""
    body = body or CancelNodeBody()
    return told_json(await send(desk, run_id, Command.cancel_node(node, branch=body.branch), body))


@router.post("/v1/runs/{run_id}/nodes/{node:path}/retry", summary="Retry a node", responses=_DONE)
async def retry(run_id: str, node: str, desk: TheDesk, body: OptionalRetry = None) -> Response:
    """Retry a node. With other arguments, a new node is added."""
    body = body or RetryBody()
    return told_json(await send(desk, run_id, Command.retry_node(node, arguments=body.arguments), body))


@router.post("/v1/runs/{run_id}/nodes/{node:path}/result", summary="Set the result of a node", responses=_DONE)
async def set_result(run_id: str, node: str, body: ResultBody, desk: TheDesk) -> Response:
    """Set the result of a node manually."""
    return told_json(await send(desk, run_id, Command.set_result(node, result=body.result), body))


@router.post("/v1/runs/{run_id}/nodes", summary="Add nodes", responses=_DONE)
async def append(run_id: str, body: AppendBody, desk: PlansDesk) -> Response:
    """Validate nodes and add them to the plan of an open run."""
    tools = desk.toolset.declarations()
    run = await desk.own(run_id)
    nodes = with_sub_plans(desk, body.nodes)
    async with desk.checks.turn(desk.caller.key):
        by = actor_of(desk, body).by
        return told_json(_done(run, await desk.steering.add_nodes(run, nodes, tools=tools, by=by)))


@router.post("/v1/runs/{run_id}/fork", summary="Fork a run", responses=created(ForkDocument, examples.FORK))
async def fork(run_id: str, body: ForkBody, desk: PlansDesk, request: Request) -> Response:
    """Return the changes of a fork and, with `start`, start it. The same fork requested twice is one run."""
    forks = Forks(desk.runs.feed, desk.toolset.store)
    plans = () if body.plan is None else (posted_of(desk, body.plan),)
    wish = ForkWish(plans, body.inputs, body.rerun, apart=partial(checked_beside, desk, request))
    run = await desk.own(run_id)
    draft = await draft_of(run, wish, runs=desk.runs, forks=forks, tools=desk.toolset.declarations())
    if body.start:
        async with desk.room_for_run(draft.workflow_id):
            await start_fork(draft, runs=desk.runs, forks=forks, options=ForkOptions(desk.toolset.references))
    told = {"run_id": run, "fork_run_id": draft.workflow_id, "started": body.start, "difference": draft.to_json()}
    return created_run(told, draft.workflow_id) if body.start else told_json(told)


async def send(desk: Desk, run: str, command: Command, body: ActBody | None) -> dict[str, Any]:
    """Send a command to a run of the caller, and return its result.

    Raises:
        RunNotFound, RunClosed, CommandRejected: the command was not accepted.
    """
    return _done(run, await desk.steering.send(await desk.own(run), command, actor_of(desk, body)))


def actor_of(desk: Desk, body: ActBody | None) -> Actor:
    """Return the actor of a command, with a key its owner, and the reason."""
    told = body or NOBODY
    return Actor(desk.caller.acts_as or told.by, told.reason)


def _done(run: str, message: str) -> dict[str, Any]:
    return {"run_id": run, "ok": True, "message": message}
