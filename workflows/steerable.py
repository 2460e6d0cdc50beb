"""Signals and updates with which people answer and control a run: each command is a signal, and an update with a
response.

Names and payloads: docs/reference/messages.md.
"""

from typing import Any

from temporalio import workflow
from temporalio.common import RawValue

from dagwright.core.boundary import wire
from dagwright.workflows.people import FeedbackMessages

_COMMANDS = (
    wire.PAUSE,
    wire.RESUME,
    wire.CANCEL,
    wire.CANCEL_NODE,
    wire.RETRY_NODE,
    wire.SET_RESULT,
    wire.ADD_NODES,
    wire.SET_POLICY,
    wire.SET_LIMITS,
)


def _with_commands(workflow_type: type["Steerable"]) -> type["Steerable"]:
    """Add a signal and an update for each command; Temporal finds handlers among the attributes of the class."""
    for name in _COMMANDS:
        setattr(workflow_type, f"signal_{name}", _signal(name))
        setattr(workflow_type, name, _update(name))
    setattr(workflow_type, wire.UPDATE_SUBMIT_FEEDBACK, _update(wire.UPDATE_SUBMIT_FEEDBACK))
    return workflow_type


# The SDK recognizes a method by its parameter `self` without an annotation.
def _signal(name: str) -> Any:
    def handle(self, message: RawValue) -> None:  # type: ignore[no-untyped-def] # see above
        self.people.handle_signal(name, message)

    return workflow.signal(name=name)(handle)


def _update(name: str) -> Any:
    def handle(self, message: RawValue) -> Any:  # type: ignore[no-untyped-def] # see above
        return self.people.handle_update(name, message)

    def check(self, message: RawValue) -> None:  # type: ignore[no-untyped-def] # see above
        self.people.check_update(name, message)

    update = workflow.update(name=name)(handle)
    update.validator(check)
    return update


@_with_commands
class Steerable:
    """Workflow that handles answers and commands of people.

    Args:
        people: handler of the messages.
    """

    def __init__(self, people: FeedbackMessages) -> None:
        self.people = people

    @workflow.signal(name=wire.SIGNAL_FEEDBACK)
    def feedback(self, message: RawValue) -> None:
        """Handle an answer; a refused answer becomes a note."""
        self.people.handle_signal(wire.SIGNAL_FEEDBACK, message)

    @workflow.signal(name=wire.SIGNAL_PLANNED)
    def planned(self, message: RawValue) -> None:
        """Add nodes of a plan that a model is still writing."""
        self.people.handle_signal(wire.SIGNAL_PLANNED, message)
