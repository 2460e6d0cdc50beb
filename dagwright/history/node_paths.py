"""Resolution of paths such as `archive/check` to the run that has the node."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagwright.core.boundary.limits import child_workflow_id
from dagwright.core.errors import DagwrightError
from dagwright.core.scheduler.run_state import last_call_id
from dagwright.history.executions import RunNotFound
from dagwright.protocol.node_paths import sub_plan_of_path

if TYPE_CHECKING:
    from dagwright.history.run_reader import RunReader
    from dagwright.history.run_view import RunView


class SubPlanNotStarted(DagwrightError):
    """A sub-plan has not started."""


@dataclass(frozen=True, slots=True)
class ResolvedPath:
    """The run to which a path leads.

    Args:
        view: the run, which may not have a node of this name.
        name: last part of the path.
        path: preceding parts of the path, with a trailing slash; empty for a node of the first run.
    """

    view: "RunView"
    name: str
    path: str = ""


async def resolve_path(view: "RunView", path: str, *, open_reader: "Callable[[str], RunReader]") -> ResolvedPath:
    """Resolve a path from a run.

    Raises:
        SubPlanNotStarted: the path leads into a sub-plan that has not started.
    """
    resolved_path = ResolvedPath(view, path)
    while resolved_path.view.scheduler is not None:
        if (task_and_path := sub_plan_of_path(resolved_path.view.scheduler, resolved_path.name)) is None:
            break
        task_id, remaining_path = task_and_path
        try:
            child = await open_reader(child_run_id(resolved_path.view, task_id)).read()
        except RunNotFound:
            raise SubPlanNotStarted(f"the sub-plan {resolved_path.path + task_id!r} has not started") from None
        resolved_path = ResolvedPath(child, remaining_path, f"{resolved_path.path}{task_id}/")
    return resolved_path


def child_run_id(view: "RunView", task_id: str) -> str:
    """Return the ID of the child run of a task."""
    call = last_call_id(view.scheduler.state, task_id) if view.scheduler is not None else task_id
    return child_workflow_id(view.run_id, call)
