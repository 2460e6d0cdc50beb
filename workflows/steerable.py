"""Signals and updates with which people answer and control a run: each command is a signal, and an update with a
response.

Names and payloads: docs/reference/messages.md.
"""

from collections.abc import Mapping
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue

from dagwright.core.boundary import wire
from dagwright.workflows.people import FeedbackMessages


class Steerable:
    """Workflow that handles answers and commands of people.

    Args:
        people: handler of the messages.
    """

    def __init__(self, people: FeedbackMessages) -> None:
        self._people = people

    @workflow.signal(name=wire.SIGNAL_FEEDBACK)
    def feedback(self, message: RawValue) -> None:
        """Handle an answer; a refused answer becomes a note."""
        self._people.handle_signal(wire.SIGNAL_FEEDBACK, message)

    @workflow.update(name=wire.UPDATE_SUBMIT_FEEDBACK)
    def submit_feedback(self, message: RawValue) -> Mapping[str, Any]:
        """Handle an answer."""
        return self._people.handle_update(wire.UPDATE_SUBMIT_FEEDBACK, message)

    @submit_feedback.validator
    def _check_feedback(self, message: RawValue) -> None:
        self._people.check_update(wire.UPDATE_SUBMIT_FEEDBACK, message)

    @workflow.signal(name=wire.SIGNAL_PLANNED)
    def planned(self, message: RawValue) -> None:
        """Add nodes of a plan that a model is still writing."""
        self._people.handle_signal(wire.SIGNAL_PLANNED, message)

    @workflow.signal(name=wire.PAUSE)
    def signal_pause(self, message: RawValue) -> None:
        """Pause the run; the payload may be empty."""
        self._people.handle_signal(wire.PAUSE, message)

    @workflow.update(name=wire.PAUSE)
    def pause(self, message: RawValue) -> Mapping[str, Any]:
        """Pause the run; the payload may be empty."""
        return self._people.handle_update(wire.PAUSE, message)

    @pause.validator
    def _check_pause(self, message: RawValue) -> None:
        self._people.check_update(wire.PAUSE, message)

    @workflow.signal(name=wire.RESUME)
    def signal_resume(self, message: RawValue) -> None:
        """Resume a paused run; the payload may be empty."""
        self._people.handle_signal(wire.RESUME, message)

    @workflow.update(name=wire.RESUME)
    def resume(self, message: RawValue) -> Mapping[str, Any]:
        """Resume a paused run; the payload may be empty."""
        return self._people.handle_update(wire.RESUME, message)

    @resume.validator
    def _check_resume(self, message: RawValue) -> None:
        self._people.check_update(wire.RESUME, message)

    @workflow.signal(name=wire.CANCEL)
    def signal_cancel(self, message: RawValue) -> None:
        """Cancel the run; the payload may be empty."""
        self._people.handle_signal(wire.CANCEL, message)

    @workflow.update(name=wire.CANCEL)
    def cancel(self, message: RawValue) -> Mapping[str, Any]:
        """Cancel the run; the payload may be empty."""
        return self._people.handle_update(wire.CANCEL, message)

    @cancel.validator
    def _check_cancel(self, message: RawValue) -> None:
        self._people.check_update(wire.CANCEL, message)

    @workflow.signal(name=wire.CANCEL_NODE)
    def signal_cancel_node(self, message: RawValue) -> None:
        """Cancel a node or item; with `branch` also its dependents."""
        self._people.handle_signal(wire.CANCEL_NODE, message)

    @workflow.update(name=wire.CANCEL_NODE)
    def cancel_node(self, message: RawValue) -> Mapping[str, Any]:
        """Cancel a node or item; with `branch` also its dependents."""
        return self._people.handle_update(wire.CANCEL_NODE, message)

    @cancel_node.validator
    def _check_cancel_node(self, message: RawValue) -> None:
        self._people.check_update(wire.CANCEL_NODE, message)

    @workflow.signal(name=wire.RETRY_NODE)
    def signal_retry_node(self, message: RawValue) -> None:
        """Retry a node or item."""
        self._people.handle_signal(wire.RETRY_NODE, message)

    @workflow.update(name=wire.RETRY_NODE)
    def retry_node(self, message: RawValue) -> Mapping[str, Any]:
        """Retry a node or item."""
        return self._people.handle_update(wire.RETRY_NODE, message)

    @retry_node.validator
    def _check_retry_node(self, message: RawValue) -> None:
        self._people.check_update(wire.RETRY_NODE, message)

    @workflow.signal(name=wire.SET_RESULT)
    def signal_set_result(self, message: RawValue) -> None:
        """Set the result of a node or item."""
        self._people.handle_signal(wire.SET_RESULT, message)

    @workflow.update(name=wire.SET_RESULT)
    def set_result(self, message: RawValue) -> Mapping[str, Any]:
        """Set the result of a node or item."""
        return self._people.handle_update(wire.SET_RESULT, message)

    @set_result.validator
    def _check_set_result(self, message: RawValue) -> None:
        self._people.check_update(wire.SET_RESULT, message)

    @workflow.signal(name=wire.ADD_NODES)
    def signal_add_nodes(self, message: RawValue) -> None:
        """Add nodes to the plan."""
        self._people.handle_signal(wire.ADD_NODES, message)

    @workflow.update(name=wire.ADD_NODES)
    def add_nodes(self, message: RawValue) -> Mapping[str, Any]:
        """Add nodes to the plan."""
        return self._people.handle_update(wire.ADD_NODES, message)

    @add_nodes.validator
    def _check_add_nodes(self, message: RawValue) -> None:
        self._people.check_update(wire.ADD_NODES, message)

    @workflow.signal(name=wire.SET_POLICY)
    def signal_set_policy(self, message: RawValue) -> None:
        """Change which calls need an approval; calls that no longer need one start."""
        self._people.handle_signal(wire.SET_POLICY, message)

    @workflow.update(name=wire.SET_POLICY)
    def set_policy(self, message: RawValue) -> Mapping[str, Any]:
        """Change which calls need an approval; calls that no longer need one start."""
        return self._people.handle_update(wire.SET_POLICY, message)

    @set_policy.validator
    def _check_set_policy(self, message: RawValue) -> None:
        self._people.check_update(wire.SET_POLICY, message)

    @workflow.signal(name=wire.SET_LIMITS)
    def signal_set_limits(self, message: RawValue) -> None:
        """Change the concurrency, the deadline or the budget of the run."""
        self._people.handle_signal(wire.SET_LIMITS, message)

    @workflow.update(name=wire.SET_LIMITS)
    def set_limits(self, message: RawValue) -> Mapping[str, Any]:
        """Change the concurrency, the deadline or the budget of the run."""
        return self._people.handle_update(wire.SET_LIMITS, message)

    @set_limits.validator
    def _check_set_limits(self, message: RawValue) -> None:
        self._people.check_update(wire.SET_LIMITS, message)
