"""Rules for extensions: whether a run can be extended by some nodes or by a node with new arguments.

The rules do not change the run; `dagwright.core.scheduler.rebuild` adds the nodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from dagwright.core.model.states import TaskRef
from dagwright.core.scheduler.extension import Extension, extend_plan
from dagwright.core.scheduler.run_state import call_ids, task_of_call

if TYPE_CHECKING:
    from dagwright.core.expressions.compute_budget import ComputeBudget
    from dagwright.core.model.tools import ToolDeclaration
    from dagwright.core.scheduler.run_state import RunState


class NodeCheck(Protocol):
    """Check of nodes as JSON before they extend the plan of a run (`plan_edits.edits.checked_extension`)."""

    def __call__(
        self, nodes: Sequence[Any], *, tools: Mapping[str, "ToolDeclaration"], budget: "ComputeBudget"
    ) -> Extension | str:
        """Return the extension that adds these nodes, or why the nodes are rejected."""


def rejection_of_extension(state: "RunState", extension: Extension) -> str | None:
    """Return why a run cannot be extended, or `None`."""
    if (rejection := state.rebuild_problem()) is not None:
        return rejection
    for node in extension.nodes:
        if state.find(node.id) is not None or task_of_call(state, node.id) is not None:
            return f"the run has a node or item {node.id!r} already"
    try:
        extend_plan(state.plan, extension)
    except ValueError as error:
        return str(error)
    return None


def rejection_of_reserved_ids(state: "RunState", extension: Extension) -> str | None:
    """Return why a client may not send nodes with these ids, or `None`. Ids of generated nodes are reserved."""
    reserved_id = next((node.id for node in extension.nodes if state.is_generated_id(node.id)), None)
    return (
        None
        if reserved_id is None
        else f"the id {reserved_id!r} is reserved for nodes that the run adds: choose another id"
    )


def rejection_of_new_arguments(state: "RunState", ref: TaskRef) -> str | None:
    """Return why a node cannot be retried with new arguments, or `None`."""
    node = state.plan.nodes[ref.node]
    if (rejection := state.rebuild_problem()) is not None:
        return rejection
    if node.for_each is not None or ref.item is not None:
        return f"the items of {node.id!r} take their arguments from the plan; retry them without arguments"
    if node.compensates is not None:
        return f"the arguments of {node.id!r} cannot be changed: they come from the call of {node.compensates!r}"
    if node.kind == "human":
        return f"{node.id!r} is a request to a person and has no arguments"
    if any(state.plan.nodes[dependent].inner is not None for dependent in state.dependents_of(ref.node)):
        return f"a large region of pure nodes depends on {node.id!r}; it can only be retried without arguments"
    return None


def with_new_arguments(state: "RunState", number: int, arguments: Mapping[str, Any]) -> Extension:
    """Return the extension that replaces a node with a node with new arguments."""
    node = state.plan.nodes[number]
    kind = "tool" if node.kind == "external" else node.kind
    replacement = replace(
        node, id=free_id(state, number), kind=kind, arguments=dict(arguments), bindings=(), supersedes=node.id
    )
    return Extension(state.plan.visible_count, (replacement,))


def free_id(state: "RunState", number: int) -> str:
    """Return an id for the replacement of a node: `a#2`, `a#3`, ... for `a`.

    Ids of earlier calls and requests are excluded, because an answer names its request by id.
    """
    base_id, count = state.reference_id(number), 2
    while _is_taken(state, base_id, f"{base_id}#{count}"):
        count += 1
    return f"{base_id}#{count}"


def _is_taken(state: "RunState", base_id: str, node_id: str) -> bool:
    is_used = state.is_request_id(node_id) or state.find(node_id) is not None
    return is_used or node_id in call_ids(state, base_id)
