"""The document of one node or item in a run or its sub-plans, for the command `node` and the HTTP API."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

from dagwright.core.expressions.compute_budget import ComputeBudgetExceeded
from dagwright.core.expressions.references import UnresolvedReference
from dagwright.core.expressions.value_refs import format_value_refs, ref_for_display
from dagwright.core.model.states import NodeStatus
from dagwright.core.scheduler.run_state import RunState
from dagwright.history.executions import NodeNotFound
from dagwright.history.map_items import ItemNotStarted, failed_map_batches
from dagwright.history.node_paths import SubPlanNotStarted, resolve_path
from dagwright.history.offloaded_regions import REGION_UNREADABLE
from dagwright.history.queues import WAITING_NOTE_CODES

if TYPE_CHECKING:
    from dagwright.client.runs import Runs
    from dagwright.history.run_view import RunView

_STATUSES_WITH_ARGUMENTS = (NodeStatus.READY, NodeStatus.RUNNING, NodeStatus.WAITING)


@dataclass(frozen=True, slots=True)
class NodeView:
    """The current state of a node or item.

    Args:
        document: has the requested `node_id`, and `run_id` if the node belongs to a child run.
        notes: notes of the run about the node.
    """

    document: Mapping[str, Any]
    notes: Sequence[Mapping[str, Any]]


async def read_node_view(runs: "Runs", run_id: str, node_id: str, *, full: bool = False) -> NodeView:
    """Return a node or item of a run.

    Args:
        node_id: node ID, or the path to a node of a sub-plan, such as `archive/check`.
        full: include values of any size.

    Raises:
        RunNotFound: there is no such run.
        NodeNotFound: the run has no such node or item yet.
    """
    name = normalize("NFC", node_id)
    top_view = await runs.reader(run_id).read()
    try:
        location = await resolve_path(top_view, name, open_reader=runs.reader)
        view = await runs.view_of_item(location.view, location.name)
    except (ItemNotStarted, SubPlanNotStarted) as error:
        raise NodeNotFound(str(error)) from None
    document = await runs.document(view, full=full, only_node=location.name)
    node_document = document["nodes"].get(location.name)
    if node_document is None:
        raise NodeNotFound(_no_node_message(document, location.name, view.run_id))
    child_run_field = {} if view.run_id == top_view.run_id else {"run_id": view.run_id}
    arguments = None if view.scheduler is None else arguments_for_display(view.scheduler.state, location.name)
    full_document = {
        "node_id": name,
        **child_run_field,
        **_failed_items(view, location.name),
        **node_document,
        "arguments": arguments,
    }
    return NodeView(
        full_document, [note for note in document["notes"] if _is_about(note, location.name, full_document)]
    )


def _is_about(note: Mapping[str, Any], name: str, node_document: Mapping[str, Any]) -> bool:
    """Return whether a note of a run is about a node."""
    return note["node_id"] == name or (note["code"] in WAITING_NOTE_CODES and node_document["status"] == "waiting")


def _failed_items(view: "RunView", node_id: str) -> dict[str, Any]:
    """Return the additional fields of a node's document if items of a large map have failed."""
    record = view.scheduler.record_of(node_id) if view.scheduler is not None else None
    failures = failed_map_batches(node_id, record, run_id=view.run_id) if record is not None else []
    return {"failed_items": failures} if failures else {}


def _no_node_message(document: Mapping[str, Any], name: str, run_id: str) -> str:
    """Return the message for a node or item that has no document, with a hint."""
    for note in document["notes"]:
        if note["code"] == REGION_UNREADABLE:
            # The unreadable region may contain the node.
            return f"{name!r} is not shown: {note['message']}"
    matches = get_close_matches(name, list(document["nodes"]), 1)
    hint = f"; did you mean {matches[0]!r}?" if matches else ""
    return f"the run {run_id!r} has no node {name!r}{hint}"


def arguments_for_display(state: RunState, task_id: str) -> Any:
    """Return the arguments of a node or item as users see them: secrets by name, stored values by reference.

    Returns:
        `None` if the node has not started, or if each of its items has its own arguments.
    """
    ref = state.find(task_id)
    if ref is None or state.map_batch(ref) is not None:
        return None
    if ref.item is None and state.plan.nodes[ref.node].for_each is not None:
        return None
    record = state.record(ref)
    if not record.attempts and record.status not in _STATUSES_WITH_ARGUMENTS:
        return None
    try:
        return format_value_refs(state.arguments_of(ref), ref_for_display)
    except (UnresolvedReference, ComputeBudgetExceeded):
        return None
