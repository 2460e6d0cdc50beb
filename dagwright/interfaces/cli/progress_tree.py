"""Progress of a run: rows of a tree, groups for the nodes that do not fit, counts and remaining time.

The functions are pure.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.graph import levels_of
from dagwright.core.model.states import NodeStatus, Record
from dagwright.core.model.times import format_elapsed_time
from dagwright.core.model.worker_results import displayed_status
from dagwright.core.scheduler.map_items import count_ended_items, is_done, listed_items
from dagwright.history.pending_activities import PendingCall
from dagwright.interfaces.cli.node_text import displayed_counts, explain_failure, node_tool_text, record_text

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler
    from dagwright.history.run_view import RunView

MAX_INDENT = 8
"""Maximum indentation. Without a limit, a chain of 50 nodes would leave no room for text."""

LOST = "lost"
"""State of a call whose worker died, while the server has not detected this yet. The call will be retried."""
LOST_WITHOUT_RETRY = "lost_without_retry"
"""Like `LOST`, but the call will not be retried: it is a `write` call, or this was its last attempt."""

_STATES_BY_IMPORTANCE = (
    NodeStatus.FAILED,
    NodeStatus.RUNNING,
    NodeStatus.WAITING,
    NodeStatus.READY,
    NodeStatus.CANCELLED,
    NodeStatus.BLOCKED,
    NodeStatus.COMPLETED,
    NodeStatus.PENDING,
    NodeStatus.SKIPPED,
    NodeStatus.SUPERSEDED,
)
"""States from most to least important. If not all nodes fit, nodes with more important states are shown."""


@dataclass(frozen=True, slots=True)
class Row:
    """Row for a node, an item, or a group of nodes that have no rows of their own.

    Args:
        indent: depth in the tree.
        name: ID of the node or item, or the number of nodes in the group.
        tool_text: tool and title.
        elapsed_s: seconds from the start to the end, or to now.
        detail: progress, error, or the reason why the node waits.
        done, total, eta_s: ended items, all items, and estimated seconds until all have ended; `None` if the
            node has no items.
        order: position in the tree.
    """

    status: NodeStatus
    indent: int
    name: str
    tool_text: str = ""
    attempts: int = 0
    elapsed_s: float | None = None
    detail: str = ""
    done: int | None = None
    total: int | None = None
    eta_s: float | None = None
    order: int = 0


@dataclass(frozen=True, slots=True)
class RunRows:
    """Progress of a run at one time: rows in tree order, groups of nodes without rows, and counts of all nodes."""

    rows: Sequence[Row]
    groups: Sequence[Row]
    counts: Mapping[NodeStatus, int]
    done: int
    total: int
    eta_s: float | None


@dataclass(frozen=True, slots=True)
class TreeNode:
    """Position of a node in the tree.

    Args:
        number: index of the node in the plan.
        indent: depth in the tree, at most `MAX_INDENT`.
    """

    number: int
    indent: int


def tree_of(plan: CompiledPlan) -> list[TreeNode]:
    """Return all nodes as a tree: the parent of a node is its dependency with the highest level."""
    count = plan.visible_count
    dependencies = [[number for number in node.dependencies if number < count] for node in plan.nodes[:count]]
    levels = levels_of(dependencies) or [0] * len(dependencies)
    children: dict[int, list[int]] = {}
    for number, dependency_numbers in enumerate(dependencies):
        parent = max(dependency_numbers, key=lambda dependency: (levels[dependency], -dependency), default=-1)
        children.setdefault(parent, []).append(number)
    tree_nodes = []
    stack = [(number, 0) for number in reversed(children.get(-1, []))]
    while stack:
        number, depth = stack.pop()
        tree_nodes.append(TreeNode(number, min(depth, MAX_INDENT)))
        stack += [(child, depth + 1) for child in reversed(children.get(number, []))]
    return tree_nodes


def progress_of(view: "RunView", tree: Sequence[TreeNode], *, now: float, max_rows: int) -> RunRows:
    """Return the progress of a run.

    Args:
        view: the run, with a known plan.
        tree: result of `tree_of` for the plan of the run.
        now: seconds since the epoch.
        max_rows: number of rows that fit, including groups.
    """
    scheduler = view.scheduler
    assert scheduler is not None
    counts = displayed_counts(scheduler)
    selected_nodes = _select_nodes(scheduler, tree, max_rows=max(max_rows, 4))
    node_rows = [_node_row(view, tree_node, order=order, now=now) for order, tree_node in selected_nodes]
    omitted_counts = counts - Counter(row.status for row in node_rows)
    groups = [
        Row(status, 0, f"{omitted_counts[status]:,} more", detail=status.value)
        for status in _STATES_BY_IMPORTANCE
        if omitted_counts[status]
    ]
    item_rows = _item_rows(view, selected_nodes, now=now, max_rows=max_rows - len(node_rows) - len(groups))
    done = sum(count for status, count in counts.items() if is_done(status))
    return RunRows(
        rows=sorted([*node_rows, *item_rows], key=lambda row: row.order),
        groups=groups,
        counts=counts,
        done=done,
        total=counts.total(),
        eta_s=None if view.is_closed else _eta_s(view.started_at, now, done=done, total=counts.total()),
    )


def _select_nodes(scheduler: "RunScheduler", tree: Sequence[TreeNode], *, max_rows: int) -> list[tuple[int, TreeNode]]:
    """Return the nodes to show, with their positions in the tree.

    If not all nodes fit, return the most important nodes, and leave room for groups.
    """
    tree_nodes = list(enumerate(tree))
    if len(tree_nodes) <= max_rows:
        return tree_nodes
    rank = {status: number for number, status in enumerate(_STATES_BY_IMPORTANCE)}
    limit = max(1, max_rows - len(_STATES_BY_IMPORTANCE) // 2)

    def priority(entry: tuple[int, TreeNode]) -> tuple[int, float, int]:
        record = scheduler.records[entry[1].number]
        # Within a state, the most recently ended nodes are first, and nodes that have not ended are in tree order.
        return rank[displayed_status(record)], -(record.ended_at or 0.0), entry[0]

    return sorted(sorted(tree_nodes, key=priority)[:limit])


def _node_row(view: "RunView", tree_node: TreeNode, *, order: int, now: float) -> Row:
    scheduler = view.scheduler
    assert scheduler is not None
    node, record = scheduler.plan.nodes[tree_node.number], scheduler.records[tree_node.number]
    row = Row(
        status=displayed_status(record),
        indent=tree_node.indent,
        name=node.id,
        tool_text=node_tool_text(node.tool, node.title, kind=node.kind),
        attempts=record.attempts,
        elapsed_s=_elapsed_s(record, now),
        detail=_detail(record, view.pending_calls.get(node.id), now=now),
        order=order * 1_000_000,
    )
    if not record.items:
        pending_call = view.pending_calls.get(node.id)
        return replace(row, attempts=max(row.attempts, pending_call.attempt)) if pending_call else row
    done, total = count_ended_items(record)
    eta_s = None if record.status.is_final else _eta_s(record.started_at, now, done=done, total=total)
    return replace(row, done=done, total=total, eta_s=eta_s)


def _item_rows(
    view: "RunView", selected_nodes: Sequence[tuple[int, TreeNode]], *, now: float, max_rows: int
) -> list[Row]:
    """Return rows of failed and open items, as many as fit."""
    scheduler = view.scheduler
    assert scheduler is not None
    item_rows: list[Row] = []
    for order, tree_node in selected_nodes:
        node, record = scheduler.plan.nodes[tree_node.number], scheduler.records[tree_node.number]
        for index, item in enumerate(listed_items(record)):
            if item.record.status not in (NodeStatus.FAILED, NodeStatus.RUNNING, NodeStatus.WAITING):
                continue
            task_id = f"{node.id}[{item.key}]"
            pending_call = view.pending_calls.get(task_id)
            item_rows.append(
                Row(
                    status=item.record.status,
                    indent=min(tree_node.indent + 1, MAX_INDENT),
                    name=task_id,
                    attempts=max(item.record.attempts, pending_call.attempt if pending_call else 0),
                    elapsed_s=_elapsed_s(item.record, now),
                    detail=_detail(item.record, pending_call, now=now),
                    order=order * 1_000_000 + index + 1,
                )
            )
    item_rows.sort(key=lambda row: (row.status is not NodeStatus.FAILED, row.order))
    return item_rows[: max(max_rows, 0)]


def _detail(record: Record, pending_call: PendingCall | None, *, now: float) -> str:
    if record.status is NodeStatus.RUNNING and pending_call is not None:
        return call_text(pending_call, now=now)
    return record_text(record)


def call_text(call: PendingCall, *, now: float) -> str:
    """Return the state of an open call on the server: last failure and next attempt; may be empty."""
    if call.state == "backing_off":
        wait_s = max(0.0, (call.next_attempt_at or now) - now)
        return f"again in {format_elapsed_time(wait_s)}: {explain_failure(call.last_failure or 'it failed')}"
    if call.state in (LOST, LOST_WITHOUT_RETRY):
        return f"was running when its worker died; {lost_text(call, now=now)}"
    if call.state == "cancelling":
        return "stopping"
    return explain_failure(call.last_failure or "")


def lost_text(call: PendingCall, *, now: float) -> str:
    """Describe when a lost call is retried or fails: as soon as the server detects the missing heartbeat."""
    outcome = "it is retried" if call.state == LOST else "it fails"
    if call.next_attempt_at is None:
        return f"{outcome} when the server detects this"
    return f"{outcome} at the latest in {format_elapsed_time(max(0.0, call.next_attempt_at - now))}"


def _elapsed_s(record: Record, now: float) -> float | None:
    if record.started_at is None:
        return None
    return max(0.0, (record.ended_at if record.ended_at is not None else now) - record.started_at)


def _eta_s(started_at: float | None, now: float, *, done: int, total: int) -> float | None:
    """Return the remaining seconds at the average pace.

    Returns `None` if `total` is below 10, if less than a tenth is done, or if everything is done.
    """
    if started_at is None or total < 10 or done * 10 < total or done == total:
        return None
    return (now - started_at) / done * (total - done)
