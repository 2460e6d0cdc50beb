"""Commands to nodes of a running plan: cancel, retry, set a result, add nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dagwright.core.expressions.compute_budget import TOO_MUCH_AT_ONCE, ComputeBudget, ComputeBudgetExceeded
from dagwright.core.expressions.value_refs import encoded_size
from dagwright.core.model.actor import UNKNOWN_ACTOR, Actor
from dagwright.core.model.argument_checks import problem_of_call
from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.states import NodeStatus, Phase, Record, TaskRef
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.scheduler.extension import Extension
from dagwright.core.validation.worker_tools import slots_rejection
from dagwright.features.commands.steering import (
    COMPENSATING_REJECTION,
    UnparsedCommand,
    ref_or_rejection,
    rejection_of_node_commands,
)
from dagwright.features.feedback.feedback_state import MAX_RUN_ANSWERS_BYTES, SHORT_ANSWER_BYTES
from dagwright.features.plan_edits.extension_checks import (
    rejection_of_extension,
    rejection_of_new_arguments,
    rejection_of_reserved_ids,
    with_new_arguments,
)
from dagwright.features.plan_edits.node_additions import add_nodes

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler

_OPEN_STATUSES = (NodeStatus.READY, NodeStatus.RUNNING, NodeStatus.WAITING)


@dataclass(frozen=True, slots=True)
class CancelNode:
    """Cancel a node or item: tasks that have not started never start, and running tasks are cancelled and awaited.

    Args:
        node_id: id; for a node with `for_each`, all its items that have not ended are cancelled.
        branch: also cancel all descendants that require the node.
        grace_s: seconds to wait for running tasks.
    """

    node_id: str
    branch: bool = False
    grace_s: float = 30.0
    actor: Actor = UNKNOWN_ACTOR

    def rejection_of(self, scheduler: "RunScheduler", *, at: float) -> str | None:  # noqa: ARG002 - a command
        """Return why the command is rejected, or `None`."""
        ref = ref_or_rejection(scheduler, self.node_id)
        if isinstance(ref, str):
            return ref
        status = scheduler.state.record(ref).status
        if status.is_final:
            return f"{self.node_id!r} has ended: {status.value}"
        if self.branch and ref.item is not None:
            return f"an item has no branch: cancel {scheduler.plan.nodes[ref.node].id!r} with its branch instead"
        if all(scheduler.state.id_of(task) in scheduler.state.cancel_deadlines for task in _open_tasks(scheduler, ref)):
            return f"{self.node_id!r} is being stopped already"
        return None

    def apply(self, scheduler: "RunScheduler", *, at: float) -> None:
        """Apply the command."""
        ref = scheduler.state.find(self.node_id)
        assert ref is not None
        reason = self.actor.describe("cancelled")
        scheduler.state.override_of(self.node_id).commands.append(self.actor.command_entry("cancel_node", at))
        tasks_to_end: list[TaskRef] = []
        for task in _open_tasks(scheduler, ref):
            scheduler.state.record(task).reason = reason
            if scheduler.state.record(task).status is NodeStatus.RUNNING:
                scheduler.features.cancellation.cancel(scheduler.state.id_of(task), deadline_at=at + self.grace_s)
            else:
                tasks_to_end.append(task)
        if self.branch:
            for number in _descendants_requiring(scheduler, ref.node):
                record = scheduler.records[number]
                record.reason, record.blocked_by = f"the branch of {self.node_id!r} was {reason}", (self.node_id,)
                tasks_to_end.append(TaskRef(number))
        scheduler.end_tasks(tasks_to_end, NodeStatus.CANCELLED, at=at)


def _open_tasks(scheduler: "RunScheduler", ref: TaskRef) -> list[TaskRef]:
    """Return the open tasks of a node or item: the item, the node, or the node's open items."""
    record = scheduler.records[ref.node]
    if ref.item is not None or not record.items:
        return [ref]
    return [TaskRef(ref.node, index) for index, item in enumerate(record.items) if item.record.status in _OPEN_STATUSES]


def _descendants_requiring(scheduler: "RunScheduler", number: int) -> list[int]:
    """Return the pending nodes that require a node, directly or through other nodes."""
    descendants: dict[int, None] = {}
    unvisited_numbers = [number]
    while unvisited_numbers:
        for dependent in scheduler.state.dependents_of(unvisited_numbers.pop()):
            node, status = scheduler.plan.nodes[dependent], scheduler.records[dependent].status
            is_pending = status is NodeStatus.PENDING and node.kind != "region"
            if is_pending and node.join[0] == "all" and dependent not in descendants:
                descendants[dependent] = None
                unvisited_numbers.append(dependent)
    return list(descendants)


@dataclass(frozen=True, slots=True)
class RetryNode:
    """Retry a node or item that failed or was cancelled; its blocked dependents become pending again.

    Args:
        node_id: id; for a node with `for_each`, all its items that failed or were cancelled are retried.
        arguments: new arguments, set on a new node that supersedes this node. With `None`, this node keeps
            its arguments and its idempotency key.
    """

    node_id: str
    arguments: Mapping[str, Any] | None = None
    actor: Actor = UNKNOWN_ACTOR

    def rejection_of(self, scheduler: "RunScheduler", *, at: float) -> str | None:  # noqa: ARG002 - a command
        """Return why the command is rejected, or `None`."""
        ref = ref_or_rejection(scheduler, self.node_id)
        if isinstance(ref, str):
            return ref
        record, node = scheduler.state.record(ref), scheduler.plan.nodes[ref.node]
        if not _can_be_retried(scheduler, ref):
            return f"{self.node_id!r} is {record.status.value}; only a node that failed or was cancelled can be retried"
        if scheduler.state.regions.is_inside_offloaded(ref.node):
            return f"{self.node_id!r} runs in one call with many other pure nodes; it cannot be retried alone"
        if any(item.map_batch is not None for item in scheduler.records[ref.node].items):
            return f"the items of {node.id!r} run in child runs; they cannot be retried"
        if self.arguments is not None:
            rejection = rejection_of_new_arguments(scheduler.state, ref) or _rejection_of_call(
                scheduler, node, self.arguments
            )
            return rejection or _rejection_of_size(scheduler, self.arguments, "arguments")
        return scheduler.state.rebuild_problem()

    def apply(self, scheduler: "RunScheduler", *, at: float) -> None:
        """Apply the command."""
        ref = scheduler.state.find(self.node_id)
        assert ref is not None
        record = scheduler.state.record(ref)
        attempts, error = record.attempts, record.error
        if self.arguments is not None:
            scheduler.features.feedback.requests.stored_bytes += encoded_size(self.arguments)
            add_nodes(scheduler, with_new_arguments(scheduler.state, ref.node, self.arguments), self.actor, at=at)
            return
        edits = scheduler.rebuild.new_edits(at)
        for retried_ref in _tasks_to_retry(scheduler, ref):
            edits.retry(retried_ref)
        edits.reopen_dependents(ref.node)
        scheduler.rebuild.charge_within_budget(at)
        edits.apply()
        scheduler.propagate(at)
        details = {"attempts": attempts, "error": error.to_json() if error is not None else None}
        scheduler.state.override_of(self.node_id).commands.append(self.actor.command_entry("retry_node", at, **details))


def _rejection_of_size(scheduler: "RunScheduler", sent_value: Any, kind: str) -> str | None:
    """Return why the state of a run has no room for a value that a person sent, or `None`."""
    size, stored_bytes = encoded_size(sent_value), scheduler.features.feedback.requests.stored_bytes
    if size <= SHORT_ANSWER_BYTES or stored_bytes + size <= MAX_RUN_ANSWERS_BYTES:
        return None
    return (
        f"{kind} of {size:,} bytes are too much: people may send {MAX_RUN_ANSWERS_BYTES:,} bytes to a run in total, "
        f"and {stored_bytes:,} are stored; "
        f"a value of up to {SHORT_ANSWER_BYTES:,} bytes, such as a file name, is always accepted"
    )


def _rejection_of_call(scheduler: "RunScheduler", node: CompiledNode, arguments: Mapping[str, Any]) -> str | None:
    """Return why the arguments do not match the known schema of the node's tool, or `None`."""
    tool = scheduler.plan.tools.get(node.tool)
    return problem_of_call(tool, arguments) if tool is not None else None


def _can_be_retried(scheduler: "RunScheduler", ref: TaskRef) -> bool:
    record = scheduler.state.record(ref)
    if record.status in (NodeStatus.FAILED, NodeStatus.CANCELLED):
        return True
    request = scheduler.features.feedback.requests.of_task(scheduler.state.id_of(ref))
    return request is not None and request.purpose == "error"


def _tasks_to_retry(scheduler: "RunScheduler", ref: TaskRef) -> list[TaskRef]:
    """Return the tasks to retry for a node or item."""
    items = scheduler.records[ref.node].items
    if ref.item is not None or not items:
        return [ref]
    retryable_statuses = (NodeStatus.FAILED, NodeStatus.CANCELLED)
    return [
        TaskRef(ref.node, index) for index, item in enumerate(items) if item.record.status in retryable_statuses
    ] or [ref]


@dataclass(frozen=True, slots=True)
class SetResult:
    """Set the result of a node or item that is not running; its dependents continue."""

    node_id: str
    result: Any
    actor: Actor = UNKNOWN_ACTOR

    def rejection_of(self, scheduler: "RunScheduler", *, at: float) -> str | None:  # noqa: ARG002 - a command
        """Return why the command is rejected, or `None`."""
        ref = ref_or_rejection(scheduler, self.node_id)
        if isinstance(ref, str):
            return ref
        record = scheduler.state.record(ref)
        if record.status is NodeStatus.COMPLETED:
            return f"{self.node_id!r} has completed, and other nodes may have used its result"
        if record.status is NodeStatus.RUNNING:
            return f"{self.node_id!r} is running; cancel it first"
        if any(item.map_batch is not None for item in scheduler.records[ref.node].items):
            return f"the items of {scheduler.plan.nodes[ref.node].id!r} run in child runs"
        extender = scheduler.features.extension.extender
        if extender is not None and (rejection := extender.rejection_of_result(self.node_id, self.result)) is not None:
            return rejection
        tool = scheduler.plan.tools.get(scheduler.plan.nodes[ref.node].tool)
        if tool is not None and (rejection := slots_rejection(self.node_id, self.result, tool)) is not None:
            return rejection
        return scheduler.state.rebuild_problem() or _rejection_of_size(scheduler, self.result, "results")

    def apply(self, scheduler: "RunScheduler", *, at: float) -> None:
        """Apply the command."""
        ref = scheduler.state.find(self.node_id)
        assert ref is not None
        old_record = scheduler.state.record(ref)
        edits = scheduler.rebuild.new_edits(at)
        scheduler.features.feedback.requests.stored_bytes += encoded_size(self.result)
        if old_record.status.is_final:
            edits.reopen_dependents(ref.node)
        error = old_record.error.to_json() if old_record.error is not None else None
        new_record = Record(NodeStatus.COMPLETED, self.result, attempts=old_record.attempts, ended_at=at)
        edits.put(ref, new_record)
        scheduler.rebuild.charge_within_budget(at)
        edits.apply()
        scheduler.propagate(at)
        scheduler.state.override_of(self.node_id).commands.append(
            self.actor.command_entry("set_result", at, error=error)
        )


# The plan.


def _rejection_of_new_nodes(scheduler: "RunScheduler") -> str | None:
    """Return why no nodes can be added to the run, or `None`."""
    return rejection_of_node_commands(scheduler) or (
        COMPENSATING_REJECTION if scheduler.state.phase is Phase.COMPENSATING else None
    )


@dataclass(frozen=True, slots=True)
class AddNodes:
    """Add nodes to the plan.

    Args:
        stored_bytes: size of the nodes, which counts towards the run's limit of data sent by people.
    """

    extension: Extension
    actor: Actor = UNKNOWN_ACTOR
    stored_bytes: int = 0

    def rejection_of(self, scheduler: "RunScheduler", *, at: float) -> str | None:  # noqa: ARG002 - a command
        """Return why the command is rejected, or `None`."""
        rejection = _rejection_of_new_nodes(scheduler) or rejection_of_extension(scheduler.state, self.extension)
        return rejection or rejection_of_reserved_ids(scheduler.state, self.extension)

    def apply(self, scheduler: "RunScheduler", *, at: float) -> None:
        """Apply the command."""
        add_nodes(scheduler, self.extension, self.actor, at=at)
        scheduler.features.feedback.requests.stored_bytes += self.stored_bytes


@dataclass(frozen=True, slots=True)
class AddUnparsedNodes(UnparsedCommand):
    """Parse, check and add nodes.

    Args:
        nodes: nodes in the JSON form of a plan.
        tools: declarations of tools that the nodes call and the plan might lack.
    """

    nodes: Sequence[Any]
    tools: Mapping[str, ToolDeclaration] = field(default_factory=dict)
    actor: Actor = UNKNOWN_ACTOR

    def parse_within(self, budget: ComputeBudget, scheduler: "RunScheduler", *, at: float) -> AddNodes | str:
        """Return the parsed command, or why it is rejected; the cost is charged to the budget."""
        rejection = _rejection_of_new_nodes(scheduler) or _rejection_of_size(scheduler, self.nodes, "nodes")
        if rejection is not None:
            return rejection
        budget.start(at)
        try:
            extension = scheduler.features.extension.check_nodes(self.nodes, tools=self.tools, budget=budget)
        except ComputeBudgetExceeded:
            return TOO_MUCH_AT_ONCE
        return extension if isinstance(extension, str) else AddNodes(extension, self.actor, encoded_size(self.nodes))
