"""Resolution of paths such as `archive/check` from a run to the nodes and requests of its sub-plans."""

from typing import TYPE_CHECKING

from dagwright.core.model.requests import task_id_without_number
from dagwright.core.model.states import NodeStatus
from dagwright.core.scheduler.run_state import task_of_call

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler


def sub_plan_of_path(scheduler: "RunScheduler", path: str) -> tuple[str, str] | None:
    """Return the task whose sub-plan contains the target of a path, and the rest of the path within the sub-plan.

    The sub-plan may have any status, and may be an item of a node. Ids of nodes may contain slashes; the longest
    matching id is used.

    Returns:
        `None` if the path names a node or request of the run itself, or if nothing has this path.
    """
    if any(scheduler.record_of(name) is not None for name in (path, task_id_without_number(path))):
        return None
    parts = path.split("/")
    for length in range(len(parts) - 1, 0, -1):
        task_id = "/".join(parts[:length])
        if scheduler.record_of(task_id) is None:
            continue
        if scheduler.state.node_of(task_id).kind == "plan" or is_sub_plan(scheduler, task_id):
            return task_id, "/".join(parts[length:])
    return None


def running_sub_plan_of(scheduler: "RunScheduler", path: str) -> tuple[str, str] | None:
    """Return the task and the rest of the path, as `sub_plan_of_path`; `None` if the sub-plan is not running."""
    sub_plan = sub_plan_of_path(scheduler, path)
    if sub_plan is None or not is_sub_plan(scheduler, sub_plan[0]):
        return None
    record = scheduler.record_of(sub_plan[0])
    return sub_plan if record is not None and record.status is NodeStatus.RUNNING else None


def is_sub_plan(scheduler: "RunScheduler", task_id: str) -> bool:
    """Return whether a child run executes a task. Child runs report their end by signal."""
    if scheduler.record_of(task_id) is None:
        return False
    node, map_batch = scheduler.state.node_of(task_id), scheduler.state.map_batch_of(task_id)
    if map_batch is not None:
        return map_batch.count > 0
    # Each item of a node with `for_each` has a child run, but the node itself has none.
    return node.kind == "plan" and (node.for_each is None or task_id != node.id)


def sub_plan_task(scheduler: "RunScheduler", call: str) -> str | None:
    """Return the task whose last call is the child run `call`; `None` if there is no such task."""
    task_id = task_of_call(scheduler.state, call)
    return task_id if task_id is not None and is_sub_plan(scheduler, task_id) else None
