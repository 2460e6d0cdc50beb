"""Plans in requests: add their published sub-plans, and check them outside the event loop."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from fastapi import Request

from dagwright.interfaces.http.desk import Desk
from dagwright.interfaces.http.disconnects import unless_gone
from dagwright.interfaces.http.errors import CLIENT_GONE, ApiError
from dagwright.plans.posted import PostedPlan, posted_plan, with_published

P = ParamSpec("P")
T = TypeVar("T")


def posted_of(desk: Desk, plan: Any, dialect: str | None = None) -> PostedPlan:
    """Return the plan of a request, with the published plans that its sub-plans may name."""
    return posted_plan(plan, dialect, desk.templates)


def with_sub_plans(desk: Desk, nodes: list[Any]) -> list[Any]:
    """Return new nodes for a run with the published plans that their sub-plans name.

    Raises:
        PlanInvalid: a sub-plan is not published.
    """
    posted = posted_of(desk, {"nodes": nodes})
    completed: list[Any] = with_published(posted.plan, posted.published, names=posted.names)["nodes"]
    return completed


async def checked_beside(desk: Desk, request: Request, function: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Check the plan of a request and return the result; cancelled if the client disconnects.

    Raises:
        PlanInvalid: as the function, or the plan takes too long to check.
        ApiError: the caller checks too many plans, or has disconnected.
    """
    size_bytes = len(await request.body())
    found = await unless_gone(_checked_in_pool(desk, size_bytes, function, *args, **named), request)
    if found is None:
        raise ApiError(CLIENT_GONE, "the client has disconnected")
    return found[0]


async def _checked_in_pool(
    desk: Desk, size_bytes: int, function: Callable[P, T], *args: P.args, **named: P.kwargs
) -> tuple[T]:
    return (await desk.checks.run(desk.caller.key, size_bytes, function, *args, **named),)
