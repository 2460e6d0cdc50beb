"""Add nodes to a running plan: nodes that a person sends, and nodes of a plan that a model is still writing."""

from typing import TYPE_CHECKING, Any

from dagwright.core.model.actor import Actor
from dagwright.core.scheduler.extension import Extension
from dagwright.core.scheduler.run_state import ADD_NODES_COMMAND

if TYPE_CHECKING:
    from dagwright.core.scheduler.rebuild import Rebuild
    from dagwright.core.scheduler.scheduler import Scheduler


def add_nodes(scheduler: "Scheduler[Any]", extension: Extension, actor: Actor, *, at: float) -> None:
    """Add nodes that a person sent.

    Raises:
        ComputeBudgetExceeded: the remaining budget is too small; nothing was changed.
    """
    scheduler.rebuild.charge_within_budget(at)
    apply_addition(scheduler.rebuild, extension, actor, at=at)
    scheduler.propagate(at)


def add_nodes_of_unfinished_plan(scheduler: "Scheduler[Any]", extension: Extension, *, at: float) -> None:
    """Add nodes of a plan that a model is still writing.

    Raises:
        ComputeBudgetExceeded: the remaining budget is too small; nothing was changed.
    """
    scheduler.rebuild.charge_within_budget(at)
    scheduler.rebuild.new_edits(at).extend(extension)
    scheduler.propagate(at)


def apply_addition(
    rebuild: "Rebuild", extension: Extension, actor: Actor, *, at: float, request_id: str | None = None
) -> None:
    """Add nodes. The caller must charge the cost before this call, and call `Scheduler.propagate` after this call.

    Args:
        request_id: ID of the request whose answer contained the nodes.
    """
    state = rebuild.state
    for node in extension.nodes:
        if node.supersedes is not None:
            # A node that supersedes another node is a retry with arguments from a person, which counts as approval.
            state.override_of(node.id).approved = True
    rebuild.new_edits(at).extend(extension)
    # The override of a node also records the commands of people for the node.
    for node in extension.nodes:
        details: dict[str, Any] = {} if node.supersedes is None else {"arguments": True, "supersedes": node.supersedes}
        command = ADD_NODES_COMMAND if node.supersedes is None else "retry_node"
        state.override_of(node.id).commands.append(actor.command_entry(command, at, request_id=request_id, **details))
