"""Signals and updates with which people answer and control a run: each command exists as a signal, and as an
update with a response.

Names and payloads: docs/reference/messages.md.
"""

from collections.abc import Mapping
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue

from dagwright.core.boundary import wire
from dagwright.workflows.command_messages import CommandMessageHandler

_COMMANDS: Mapping[str, str] = {
    wire.PAUSE: "Pause the run; the payload may be empty.",
    wire.RESUME: "Resume a paused run; the payload may be empty.",
    wire.CANCEL: "Cancel the run; the payload may be empty.",
    wire.CANCEL_NODE: "Cancel a node or item; with `branch` also its dependents.",
    wire.RETRY_NODE: "Retry a node or item.",
    wire.SET_RESULT: "Set the result of a node or item.",
    wire.ADD_NODES: "Add nodes to the plan.",
    wire.SET_POLICY: "Change which calls need an approval. Calls that no longer need an approval start.",
    wire.SET_LIMITS: "Change the concurrency, the deadline or the budget of the run.",
}
"""Command -> description, from which the reference is generated."""


def _add_commands(workflow_type: type["Steerable"]) -> type["Steerable"]:
    """Add a signal and an update for each command; Temporal finds handlers among the attributes of the class."""
    for name, description in _COMMANDS.items():
        setattr(workflow_type, f"signal_{name}", _signal_handler(name, description))
        setattr(workflow_type, name, _update_handler(name, description))
    setattr(
        workflow_type, wire.UPDATE_SUBMIT_FEEDBACK, _update_handler(wire.UPDATE_SUBMIT_FEEDBACK, "Handle an answer.")
    )
    return workflow_type


# The SDK recognizes a method by its parameter `self` without an annotation.
def _signal_handler(name: str, description: str) -> Any:
    def handle(self, message: RawValue) -> None:  # type: ignore[no-untyped-def] # see above
        self.message_handler.handle_signal(name, message)

    handle.__doc__ = description
    return workflow.signal(name=name)(handle)


def _update_handler(name: str, description: str) -> Any:
    def handle(self, message: RawValue) -> Any:  # type: ignore[no-untyped-def] # see above
        return self.message_handler.handle_update(name, message)

    def check(self, message: RawValue) -> None:  # type: ignore[no-untyped-def] # see above
        self.message_handler.check_update(name, message)

    handle.__doc__ = description
    update = workflow.update(name=name)(handle)
    update.validator(check)
    return update


@_add_commands
class Steerable:
    """Workflow that handles answers and commands of people.

    Args:
        message_handler: handler of the commands and answers.
    """

    def __init__(self, message_handler: CommandMessageHandler) -> None:
        self.message_handler = message_handler

    @workflow.signal(name=wire.SIGNAL_FEEDBACK)
    def feedback(self, message: RawValue) -> None:
        """Handle an answer; a rejected answer becomes a note."""
        self.message_handler.handle_signal(wire.SIGNAL_FEEDBACK, message)

    @workflow.signal(name=wire.SIGNAL_PLANNED)
    def add_planned_nodes(self, message: RawValue) -> None:
        """Add nodes of a plan that a model is still writing."""
        self.message_handler.handle_signal(wire.SIGNAL_PLANNED, message)
