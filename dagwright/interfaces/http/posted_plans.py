"""Plans in requests: add the published sub-plans, and check the plans outside the event loop."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from fastapi import Request

from dagwright.client.feedback.open_requests import RequestRef
from dagwright.core.model.requests import MayAnswer
from dagwright.interfaces.http.callers import KeyScope
from dagwright.interfaces.http.disconnects import await_unless_disconnected
from dagwright.interfaces.http.error_codes import ErrorCode
from dagwright.interfaces.http.errors import CLIENT_CLOSED_REQUEST_STATUS, ApiError
from dagwright.plans.posted_plans import PostedPlan, include_published_plans, posted_plan

if TYPE_CHECKING:
    from dagwright.interfaces.http.context import GatewayContext

P = ParamSpec("P")
T = TypeVar("T")


def posted_plan_of(context: "GatewayContext", plan: Any, dialect: str | None = None) -> PostedPlan:
    """Return the plan of a request, with the published plans that its nodes may name as sub-plans."""
    return posted_plan(plan, dialect, context.templates)


def include_sub_plans(context: "GatewayContext", nodes: list[Any]) -> list[Any]:
    """Return nodes to add to a run, with the published plans that the nodes name as sub-plans.

    Raises:
        PlanInvalid: a sub-plan is not published.
    """
    nodes_plan = posted_plan_of(context, {"nodes": nodes})
    complete_plan = include_published_plans(nodes_plan.plan, nodes_plan.published, names=nodes_plan.names)
    complete_nodes: list[Any] = complete_plan["nodes"]
    return complete_nodes


async def run_plan_check(
    context: "GatewayContext", request: Request, function: Callable[P, T], *args: P.args, **keywords: P.kwargs
) -> T:
    """Call a function that checks the plan of a request, and return its result. A disconnect cancels the check.

    Raises:
        PlanInvalid: the function raised it, or the check of the plan takes too long.
        ApiError: too many plans of the caller wait for their check, or the client has disconnected.
    """
    size_bytes = len(await request.body())

    async def check() -> tuple[T]:
        # The function may return `None`. The tuple distinguishes this result from a disconnect.
        return (await context.plan_checks.run(context.caller.key_id, size_bytes, function, *args, **keywords),)

    result = await await_unless_disconnected(check(), request)
    if result is None:
        raise ApiError(None, "the client has disconnected", status=CLIENT_CLOSED_REQUEST_STATUS)
    return result[0]


def reject_forbidden_added_nodes(
    context: "GatewayContext", content: Mapping[str, Any], *, answerable_requests: MayAnswer
) -> None:
    """Raise `ApiError` if an answer adds nodes to the run, and the caller may not add nodes.

    Nodes run with the rights of the run's owner, so adding them requires the scope of `POST /v1/runs/ID/nodes`.
    """
    if not content.get("nodes"):
        return
    # Only a caller who does not own the run is limited to assigned requests.
    if answerable_requests == "assigned":
        message = (
            "an answer to a run of another owner cannot have `nodes`: they would run with that owner's rights; "
            "send the text only"
        )
    elif KeyScope.OPERATE not in context.caller.scopes:
        message = (
            "`nodes` in an answer change the run, and this key lacks the scope 'operate'; send the text only, or use "
            "a key with that scope"
        )
    else:
        return
    raise ApiError(ErrorCode.INSUFFICIENT_SCOPE, message, param="answer")


async def added_nodes_with_tools(
    context: "GatewayContext", request_ref: RequestRef, content: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the nodes that an answer adds to the run, with the declarations of their tools."""
    nodes = content.get("nodes")
    if not isinstance(nodes, list) or not nodes:
        return {}
    complete_nodes = include_sub_plans(context, nodes)
    async with context.plan_checks.hold_lock(context.caller.key_id):
        return await context.steering.nodes_of_answer(request_ref, complete_nodes, tools=context.toolset.declarations())
