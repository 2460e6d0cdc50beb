"""The way from a run to the nodes and requests of its sub-plans: `archive/check`."""

from dagwright.core.model.states import NodeStatus
from dagwright.features.feedback.answer_reading import without_number
from dagwright.features.run_scheduler import RunScheduler
from dagwright.protocol.outcomes import is_sub_plan


def into_sub_plan(scheduler: RunScheduler, path: str) -> tuple[str, str] | None:
    """Returns the task of a run through whose sub-plan a path leads, and the rest of the path, which belongs there.

    It may have ended, not have started, or be a node with one for each of its items. Ids of nodes may hold slashes too:
    the longest one counts. `None` if the path names something of the run itself, or leads nowhere.
    """
    if any(scheduler.record_of(name) is not None for name in (path, without_number(path))):
        return None
    parts = path.split("/")
    for length in range(len(parts) - 1, 0, -1):
        task_id = "/".join(parts[:length])
        if scheduler.record_of(task_id) is None:
            continue
        if scheduler.state.node_of(task_id).kind == "plan" or is_sub_plan(scheduler, task_id):
            return task_id, "/".join(parts[length:])
    return None


def way_down(scheduler: RunScheduler, path: str) -> tuple[str, str] | None:
    """Returns the same, as long as that sub-plan runs."""
    found = into_sub_plan(scheduler, path)
    if found is None or not is_sub_plan(scheduler, found[0]):
        return None
    record = scheduler.record_of(found[0])
    return found if record is not None and record.status is NodeStatus.RUNNING else None
