"""Facts about one moment of a run, copied because the history reader may change the scheduler at any time."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from dagwright.core.model.requests import Closing, Request
from dagwright.core.model.states import NodeError, NodeStatus, Record
from dagwright.core.model.times import cut_to_ms
from dagwright.core.scheduler.map_items import listed_items
from dagwright.core.scheduler.run_state import ActivePause

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler


class TaskState(NamedTuple):
    """Fields of a node or item that change while the run continues."""

    status: NodeStatus
    attempts: int
    reason: str | None


class TaskFacts(NamedTuple):
    """Facts of a node or item for the events that are sent to clients, in addition to `TaskState`.

    Times are seconds since the epoch.

    Args:
        number: number of the node in the plan.
        item: number of the item; `None` for a node.
        history_status: status as the history shows it. If the task waits for a worker, `TaskState.status` is `waiting`
            instead.
    """

    number: int
    item: int | None
    history_status: NodeStatus
    title: str | None
    tool: str
    started_at: float | None
    ended_at: float | None
    error: NodeError | None


@dataclass(frozen=True, slots=True)
class MomentFacts:
    """Facts of a run at one moment, in addition to the `TaskState` of each node and item.

    Args:
        tasks: facts of nodes and items.
        open_requests: request ID -> open request, in the order in which the requests were opened. Requests of sub-plans
            are omitted.
        closings: request ID -> how the request was closed.
    """

    tasks: Mapping[str, TaskFacts] = field(default_factory=dict)
    open_requests: Mapping[str, Request] = field(default_factory=dict)
    closings: Mapping[str, Closing] = field(default_factory=dict)
    paused: ActivePause | None = None


NO_FACTS = MomentFacts()
NO_STATUSES: Mapping[str, NodeStatus] = {}


def facts_of(
    scheduler: "RunScheduler | None",
    tasks: Iterable[str],
    *,
    previous: MomentFacts = NO_FACTS,
    history_statuses: Mapping[str, NodeStatus] = NO_STATUSES,
) -> MomentFacts:
    """Copy the facts of some tasks.

    Args:
        history_statuses: task id -> status as the history shows it. Contains only tasks that wait for a worker: the
            records of such tasks have the status `waiting` instead.
        previous: facts of the run at an earlier moment. If the requests have not changed, the result shares
            the mappings of requests with `previous`.
    """
    if scheduler is None:
        return replace(previous, tasks={})
    facts = {task: _facts(scheduler, task, history_statuses.get(task)) for task in tasks}
    registry = scheduler.features.feedback.requests
    are_requests_unchanged = registry.open.keys() == previous.open_requests.keys() and len(registry.closed) == len(
        previous.closings
    )
    requests, closings = (
        (previous.open_requests, previous.closings)
        if are_requests_unchanged
        else ({**registry.open}, {**registry.closed})
    )
    return MomentFacts(facts, requests, closings, scheduler.state.paused)


def _facts(scheduler: "RunScheduler", task: str, history_status: NodeStatus | None) -> TaskFacts:
    node, record = scheduler.state.node_of(task), scheduler.record_of(task) or Record()
    ref = scheduler.state.items.ref(task)
    # The result document has times in milliseconds, so the records of an ended run have no microseconds.
    started_at, ended_at = (None if at is None else cut_to_ms(at) for at in (record.started_at, record.ended_at))
    return TaskFacts(
        ref.node, ref.item, history_status or record.status, node.title, node.tool, started_at, ended_at, record.error
    )


def states_of(scheduler: "RunScheduler | None") -> dict[str, TaskState]:
    """Return the states of all nodes and items that are no longer pending: task id -> state, in plan order."""
    states: dict[str, TaskState] = {}
    if scheduler is None:
        return states
    for node, record in scheduler.state.visible_nodes():
        for item in listed_items(record):
            states[f"{node.id}[{item.key}]"] = _state(item.record)
        if record.status is not NodeStatus.PENDING:
            states[node.id] = _state(record)
    return states


def started_tasks(scheduler: "RunScheduler | None") -> set[str]:
    """Return the ids of the nodes and items that have started, whatever their outcome."""
    states = states_of(scheduler)
    records = {task: scheduler.record_of(task) for task in states} if scheduler is not None else {}
    return {task for task, record in records.items() if record is not None and has_started(states[task], record)}


def has_started(state: TaskState, record: Record) -> bool:
    """Return whether a node or item has started.

    Args:
        record: record of the same or a later moment.
    """
    if state.status is NodeStatus.RUNNING or state.attempts:
        return True
    # If the task waited at the moment of `state` but no longer waits in `record`, then `record.started_at` may be later
    # than the moment of `state`.
    started_at_is_valid = state.status is not NodeStatus.WAITING or record.status is NodeStatus.WAITING
    return (
        started_at_is_valid
        and state.status not in (NodeStatus.PENDING, NodeStatus.READY)
        and record.started_at is not None
    )


def _state(record: Record) -> TaskState:
    return TaskState(record.status, record.attempts, record.reason)
