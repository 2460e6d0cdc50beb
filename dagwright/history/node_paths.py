"""The run that knows a node which is named by the path to it, `archive/check`, for whoever looks.

SubPlanNotBegun    the path leads through a sub-plan of which nothing is known yet
"""

from collections.abc import Callable
from dataclasses import dataclass

from dagwright.core.boundary.limits import child_workflow_id
from dagwright.core.errors import DagwrightError
from dagwright.core.scheduler.task_creation import call_of_task
from dagwright.history.run_reader import RunFeed, RunNotFound, RunView
from dagwright.protocol.node_paths import sub_plan_of_path


class SubPlanNotBegun(DagwrightError):
    """Nothing of a sub-plan is known yet."""


@dataclass(frozen=True, slots=True)
class Found:
    """Where a path leads.

    Args:
        view: the run that the rest of the path belongs to, whether or not it has such a node.
        name: that rest.
        path: what stands before it, with a slash at its end; empty in the run itself.
    """

    view: RunView
    name: str
    path: str = ""


async def follow(view: RunView, path: str, *, feed: Callable[[str], RunFeed]) -> Found:
    """Returns where a path leads from a run.

    Raises:
        SubPlanNotBegun: it leads through a sub-plan that has not started.
    """
    found = Found(view, path)
    while found.view.scheduler is not None:
        if (way := sub_plan_of_path(found.view.scheduler, found.name)) is None:
            break
        task_id, rest = way
        try:
            below = await feed(child_of(found.view, task_id)).read()
        except RunNotFound:
            raise SubPlanNotBegun(
                f"the sub-plan {found.path + task_id!r} has not started, so nothing of it is known"
            ) from None
        found = Found(below, rest, f"{found.path}{task_id}/")
    return found


def child_of(view: RunView, task_id: str) -> str:
    """Returns the workflow id of the run that does a task."""
    call = call_of_task(view.scheduler.state, task_id) if view.scheduler is not None else task_id
    return child_workflow_id(view.workflow_id, call)
