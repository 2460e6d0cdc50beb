"""Follow the reasons of nodes to their roots: why a run does not continue, or how a result came about.

The functions are pure: the caller passes the scheduler rebuilt from history, and the state of calls in flight.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.states import NodeStatus
from dagwright.core.model.times import parse_time
from dagwright.core.scheduler.component import UNRESOLVED_REASON
from dagwright.features.explain.reasons import Reason, ServerCall, open_task_ids, reason_of

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler

MAX_REASONS = 200
"""Maximum number of nodes and items in one chain: a node may depend on thousands of other nodes."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Reasons, one per node: the requested nodes first, then their causes in breadth-first order.

    Args:
        omitted: number of nodes and items that the chain omits.
    """

    reasons: Sequence[Reason]
    omitted: int = 0

    def start_reasons(self) -> Iterator[Reason]:
        """Yield the reasons that are not causes of other reasons."""
        causes = {name for reason in self.reasons for name in reason.causes}
        return (reason for reason in self.reasons if reason.node_id not in causes)


def why(scheduler: "RunScheduler", task_id: str, *, calls: Mapping[str, ServerCall]) -> Chain:
    """Return the chain of reasons for the state of a node or item, back to the roots.

    Args:
        calls: task id -> its call in flight.

    Raises:
        KeyError: there is no such node or item.
    """
    scheduler.state.node_of(task_id)
    return _chain_from(scheduler, [task_id], calls=calls)


def blocking_chain(scheduler: "RunScheduler", *, calls: Mapping[str, ServerCall]) -> Chain:
    """Return the reasons of all open tasks; for a run that has ended, of the nodes that caused its end.

    The fact `blocks` is the number of nodes that a failure blocks.
    """
    task_ids = [*(_roots_of_end(scheduler) if scheduler.is_finished else _open_tasks(scheduler))]
    blocked_counts = Counter(node_id for record in scheduler.records for node_id in record.blocked_by)
    direct_reasons = [reason_of(scheduler, task_id, call=calls.get(task_id)) for task_id in task_ids[:MAX_REASONS]]
    reasons = [
        replace(reason, facts={**reason.facts, "blocks": blocked_counts[reason.node_id]})
        if blocked_counts[reason.node_id]
        else reason
        for reason in direct_reasons
    ]
    return Chain(reasons, max(0, len(task_ids) - MAX_REASONS))


def sentence(chain: Chain, start: Reason, *, time_formatter: Callable[[float], str]) -> str:
    """Format a reason and the chain of first causes, such as `publish waits for check, which waits for ann`.

    Args:
        time_formatter: function that formats a time.
    """
    reasons = {reason.node_id: reason for reason in chain.reasons}
    clauses = [f"{start.node_id} {_clause(start, time_formatter)}"]
    visited_ids = {start.node_id}
    while (cause := _first_cause(start, reasons, visited_ids)) is not None and cause.kind != "completed":
        visited_ids.add(cause.node_id)
        subject = "which" if len(start.causes) == 1 else cause.node_id
        clauses.append(f"{subject} {_clause(cause, time_formatter)}")
        start = cause
    return ", ".join(clauses)


def _first_cause(start: Reason, reasons: Mapping[str, Reason], visited_ids: set[str]) -> Reason | None:
    return next((reasons[cause] for cause in start.causes if cause in reasons and cause not in visited_ids), None)


def _clause(reason: Reason, time_formatter: Callable[[float], str]) -> str:
    message = reason.message
    if reason.since is not None:
        message += f" {'at' if reason.status.is_final else 'since'} {time_formatter(reason.since)}"
    if reason.until is not None:
        message += f" until {time_formatter(reason.until)}"
    if "escalations" in reason.facts:
        message += f", {_escalation_text(reason.facts, time_formatter)}"
    return f"{message} ({reason.detail})" if reason.detail else message


def _escalation_text(facts: Mapping[str, Any], time_formatter: Callable[[float], str]) -> str:
    """Format the recipients of a request: `requested from ann at …, escalated to boss at …`."""
    first_text = (
        f"requested from {facts['requested_from'] or 'anyone'} at {time_formatter(parse_time(facts['requested_at']))}"
    )
    escalation_texts = (
        f"escalated to {escalation['to']} at {time_formatter(parse_time(escalation['at']))}"
        for escalation in facts["escalations"]
    )
    return ", ".join([first_text, *escalation_texts])


def _chain_from(scheduler: "RunScheduler", start_ids: Iterable[str], *, calls: Mapping[str, ServerCall]) -> Chain:
    queue = deque(start_ids)
    known_ids = set(queue)
    reasons: list[Reason] = []
    while queue and len(reasons) < MAX_REASONS:
        task_id = queue.popleft()
        reason = reason_of(scheduler, task_id, call=calls.get(task_id))
        reasons.append(reason)
        causes = [cause for cause in reason.causes if cause not in known_ids and scheduler.record_of(cause) is not None]
        known_ids.update(causes)
        queue.extend(causes)
    return Chain(reasons, len(queue))


def _open_tasks(scheduler: "RunScheduler") -> Iterator[str]:
    for node, record in scheduler.state.visible_nodes():
        yield from open_task_ids(record, node)


def _roots_of_end(scheduler: "RunScheduler") -> Sequence[str]:
    """Return the nodes that failed or were cancelled without another node as the cause.

    If there are no such nodes, return the skipped nodes that do not depend on a skipped node.
    """
    # Nodes that did not run because of unresolved lookups are omitted: the error of the run reports these lookups.
    candidates = [
        (node, record)
        for node, record in scheduler.state.visible_nodes()
        if not record.blocked_by and record.reason != UNRESOLVED_REASON
    ]
    failed_ids = [node.id for node, record in candidates if record.status in (NodeStatus.FAILED, NodeStatus.CANCELLED)]
    if failed_ids:
        return failed_ids
    return [
        node.id
        for node, record in candidates
        if record.status is NodeStatus.SKIPPED and not _follows_skip(scheduler, node)
    ]


def _follows_skip(scheduler: "RunScheduler", node: CompiledNode) -> bool:
    records = scheduler.records
    return any(records[number].status is NodeStatus.SKIPPED for number in scheduler.state.visible_dependencies(node))
