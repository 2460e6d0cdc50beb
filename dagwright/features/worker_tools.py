"""Worker tools in a run: check the slots of a call, and unwrap the WorkerResult that it returns."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from dagwright.core.model.states import Task, TaskRef
from dagwright.core.model.worker_results import unwrap_worker_result
from dagwright.core.scheduler.component import SchedulerComponent, TaskResult
from dagwright.core.validation.worker_tools import prepare_call

if TYPE_CHECKING:
    from dagwright.core.scheduler.scheduler import Scheduler


class WorkerTools(SchedulerComponent):
    """Preparation of calls of worker tools, and processing of their results."""

    def __init__(self, scheduler: "Scheduler[Any]") -> None:
        self._state = scheduler.state

    def needed_hooks(self) -> Collection[str]:
        """Return no hooks if the plan has no worker tools."""
        plan = self._state.plan
        has_worker_tools = any(tool.worker is not None for tool in plan.tools.values())
        return self.hooks if has_worker_tools or any(node.is_worker for node in plan.nodes) else ()

    def before_start(self, task: Task, at: float) -> bool:  # noqa: ARG002 - a hook
        """Check that every required slot has a value, and add the sub-goal to the arguments.

        Raises:
            PreconditionMissing: a required slot is missing.
        """
        task.arguments = prepare_call(task, self._state.plan.tools).arguments
        return False

    def on_result(self, ref: TaskRef, value: Any) -> TaskResult | None:
        """Unwrap a WorkerResult: its outputs are the result of the node."""
        node = self._state.plan.nodes[ref.node]
        if not node.is_worker or self._state.map_batch(ref) is not None:
            return None
        tool = self._state.plan.tools.get(node.tool)
        worker_result = unwrap_worker_result(value, tool.worker if tool is not None else None)
        return TaskResult(worker_result.outputs, worker_result.error, worker_result.is_partial, worker_result.message)
