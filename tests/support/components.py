"""A scheduler with a single component, for the tests of that component."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from dagwright.core.model.policy import ALLOW_ALL, Policy
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.scheduler.component import RunOptions, SchedulerComponent
from dagwright.core.scheduler.run_state import RunState
from dagwright.core.scheduler.scheduler import Scheduler
from tests.support.plan_building import TOOLS, compiled_plan, plan_of

Component = TypeVar("Component", bound=SchedulerComponent)


def state_of(
    *nodes: Mapping[str, Any],
    policy: Policy = ALLOW_ALL,
    options: RunOptions | None = None,
    tools: Mapping[str, ToolDeclaration] = TOOLS,
    **fields: Any,
) -> RunState:
    return RunState(compiled_plan(plan_of(*nodes, **fields), tools=tools), {}, policy=policy, options=options)


def single_component_scheduler(
    state: RunState, create: Callable[[Scheduler[Any]], Component]
) -> tuple[Scheduler[Any], Component]:
    """Return a scheduler with a single component, and the component."""
    scheduler: Scheduler[Any] = Scheduler(state)
    component = create(scheduler)
    scheduler.attach(None, [component])
    return scheduler, component


def start_tasks(scheduler: Scheduler[Any], *, at: float = 0.0) -> list[str]:
    """Start all tasks that may start now, and return their ids in order."""
    task_ids: list[str] = []
    while (task := scheduler.next_task(at)) is not None:
        task_ids.append(task.id)
    return task_ids


def statuses_of(scheduler: Scheduler[Any]) -> dict[str, str]:
    """Return node id -> status."""
    return {node.id: record.status.value for node, record in scheduler.state.visible_nodes()}
