"""Call batches: which calls of `batch` tools share an activity.

A batch contains calls that may start now, and *followers*: calls that can start as soon as other calls of the batch
have ended. A follower waits only for its dependencies: it has no approval, budget or manual override, and a fork does
not reuse its result.

Replay: the history records the batches that the workflow has formed, so these rules may change between versions.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.states import NodeStatus, Phase, Task
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.core.scheduler.readiness import MAX_IN_FLIGHT
from dagwright.features.regions.batches import BatchNodes, BatchTooLarge

if TYPE_CHECKING:
    from dagwright.core.scheduler.scheduler import Scheduler
    from dagwright.features.run_scheduler import RunScheduler

MAX_CALLS = 250
"""Maximum number of calls in one batch. A batch starts calls only during its first 0.2 s, which is enough for about 200
calls of 1 ms."""
MAX_PARALLEL = 100
"""Maximum number of calls of one batch that run at once: the default number of concurrent activities of a worker."""
MAX_BATCH_ATTEMPTS = 3
"""Maximum number of attempts of a batch. Each attempt of the batch may start a call again, so a call may be in a batch
only if its own retry policy allows at least this number of attempts."""
_MIN_TIMEOUT_S = 1.0
"""Shortest timeout of a call in a batch: a batch notices only after 200 ms that a call is slow."""


def can_share_activity(node: CompiledNode, tool: ToolDeclaration | None) -> bool:
    """Return whether the calls of a node may share an activity with other calls."""
    return (
        tool is not None
        and tool.batch
        and tool.effects in (Effects.READ, Effects.IDEMPOTENT)
        and not (tool.is_foreign or tool.is_pinned or tool.uses_models or tool.worker is not None)
        and tool.max_parallel is None
        and node.kind == "tool"
        and node.effects is None
        and node.max_parallel is None
        and node.heartbeat_s is None
        and node.compensates is None
        and node.activity_timeout_s >= _MIN_TIMEOUT_S
        and node.retry.max_attempts >= MAX_BATCH_ATTEMPTS
    )


def can_start_batch(scheduler: "Scheduler[Any]", task: Task) -> bool:
    """Return whether a task that may start now may be the first call of a batch."""
    is_plain = task.map_batch is None and not task.answers and task.call_number == 1
    return is_plain and can_share_activity(task.node, scheduler.plan.tools.get(task.node.tool))


def max_parallel_calls(scheduler: "Scheduler[Any]", *, call_count: int) -> int:
    """Return how many calls of a batch may run at once.

    If the run has a lower `max_in_flight` than the default, each running call needs a slot, and the batch has only
    `call_count` slots.

    Args:
        call_count: number of calls that may start now; each call occupies a slot of the run until the batch ends.
    """
    return MAX_PARALLEL if scheduler.state.max_in_flight >= MAX_IN_FLIGHT else min(call_count, MAX_PARALLEL)


def followers_of(
    scheduler: "RunScheduler", tasks: Sequence[Task], *, task_queue: str | None, separate_tools: Collection[str]
) -> tuple[list[str], bytes]:
    """Return the ids of the followers in an order in which the followers can run, and the encoded nodes of the
    followers.

    Args:
        tasks: the calls of the batch that may start now.
        task_queue: task queue of the tools of all calls in the batch.
        separate_tools: names of tools that may not share an activity.

    Complexity: O(E) over the edges of the batch.
    """
    state = scheduler.state
    first_numbers = [task.ref.node for task in tasks if task.ref.item is None and task.node.supersedes is None]
    batch = BatchNodes(scheduler, awaited_numbers=first_numbers)
    open_dependency_counts: dict[int, int] = {}
    numbers_to_visit, followers = list(first_numbers), list[int]()
    has_budget_or_reuse = scheduler.features.budget.budget is not None or scheduler.features.reuse.table is not None
    if state.phase is not Phase.ACTIVE or has_budget_or_reuse:
        numbers_to_visit = []
    for number in numbers_to_visit:
        for dependent in state.dependents_of(number):
            if dependent not in open_dependency_counts:
                open_dependency_counts[dependent] = _open_dependency_count(
                    scheduler, dependent, task_queue=task_queue, separate_tools=separate_tools
                )
            open_dependency_counts[dependent] -= 1
            if not open_dependency_counts[dependent] and _try_to_add(batch, dependent):
                numbers_to_visit.append(dependent)
                followers.append(dependent)
            if len(tasks) + len(followers) >= MAX_CALLS:
                return [state.plan.nodes[follower].id for follower in followers], batch.encode()
    return [state.plan.nodes[follower].id for follower in followers], batch.encode()


def _try_to_add(batch: BatchNodes, number: int) -> bool:
    try:
        return batch.add(number)
    except BatchTooLarge:
        return False


_CANNOT_FOLLOW = 1 << 60
"""Count of open dependencies for a node that cannot be a follower. The count never becomes 0."""


def _open_dependency_count(
    scheduler: "RunScheduler", number: int, *, task_queue: str | None, separate_tools: Collection[str]
) -> int:
    """Return how many dependencies of a node have not ended; `_CANNOT_FOLLOW` if the node cannot be a follower."""
    state, records = scheduler.state, scheduler.records
    node, counts = state.plan.nodes[number], state.dependency_counts[number]
    tool = state.plan.tools.get(node.tool)
    can_follow = (
        records[number].status is NodeStatus.PENDING
        and tool is not None
        and can_share_activity(node, tool)
        and tool.task_queue == task_queue
        and tool.name not in separate_tools
        and node.join[0] == "all"
        and not (counts.has_failure or counts.skipped)
        and node.for_each is None
        and node.supersedes is None
        and node.id not in state.overrides
        and not scheduler.features.feedback.gate.items_may_open_requests(number)
    )
    if not can_follow:
        return _CANNOT_FOLLOW
    return counts.remaining
