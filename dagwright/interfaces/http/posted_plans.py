"""Plans in requests: add their published sub-plans, and check them outside the event loop."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from fastapi import Request

from dagwright.interfaces.http.context import GatewayContext
from dagwright.interfaces.http.disconnects import unless_disconnected
from dagwright.interfaces.http.errors import CLIENT_CLOSED_REQUEST, ApiError
from dagwright.plans.posted import PostedPlan, posted_plan, with_published

P = ParamSpec("P")
T = TypeVar("T")


def posted_plan_of(context: GatewayContext, plan: Any, dialect: str | None = None) -> PostedPlan:
    """Return the plan of a request, with the published plans that its sub-plans may name."""
    return posted_plan(plan, dialect, context.templates)


def with_sub_plans(context: GatewayContext, nodes: list[Any]) -> list[Any]:
    """Return new nodes for a run with the published plans that their sub-plans name.

    Raises:
        PlanInvalid: a sub-plan is not published.
    """
    posted = posted_plan_of(context, {"nodes": nodes})
    completed: list[Any] = with_published(posted.plan, posted.published, names=posted.names)["nodes"]
    return completed


async def check_in_pool(
    context: GatewayContext, request: Request, function: Callable[P, T], *args: P.args, **named: P.kwargs
) -> T:
    """Check the plan of a request and return the result; cancelled if the client disconnects.

    Raises:
        PlanInvalid: as the function, or the plan takes too long to check.
        ApiError: the caller checks too many plans, or has disconnected.
    """
    size_bytes = len(await request.body())
    result = await unless_disconnected(_checked_in_pool(context, size_bytes, function, *args, **named), request)
    if result is None:
        raise ApiError(None, "the client has disconnected", status=CLIENT_CLOSED_REQUEST)
    return result[0]


async def _checked_in_pool(
    context: GatewayContext, size_bytes: int, function: Callable[P, T], *args: P.args, **named: P.kwargs
) -> tuple[T]:
    return (await context.plan_checks.run(context.caller.key, size_bytes, function, *args, **named),)
