"""The messages by which people answer and steer a run: each a signal, and an update that says whether it counts.

It stands apart from the run itself. Names and payloads: docs/internals/messages.md.
"""

from collections.abc import Mapping
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue

from dagwright.core.boundary import wire
from dagwright.workflows.people import People


class Steerable:
    """A workflow that people can answer and steer.

    Args:
        people: takes the messages.
    """

    def __init__(self, people: People) -> None:
        self._people = people

    @workflow.signal(name=wire.SIGNAL_FEEDBACK)
    def feedback(self, message: RawValue) -> None:
        """Takes an answer; one that is refused becomes a note."""
        self._people.take_signal(wire.SIGNAL_FEEDBACK, message)

    @workflow.update(name=wire.UPDATE_SUBMIT_FEEDBACK)
    def submit_feedback(self, message: RawValue) -> Mapping[str, Any]:
        """Takes an answer."""
        return self._people.take_update(wire.UPDATE_SUBMIT_FEEDBACK, message)

    @submit_feedback.validator
    def _check_feedback(self, message: RawValue) -> None:
        self._people.check_update(wire.UPDATE_SUBMIT_FEEDBACK, message)

    @workflow.signal(name=wire.SIGNAL_PLANNED)
    def planned(self, message: RawValue) -> None:
        """Takes nodes of a plan that a model still writes."""
        self._people.take_signal(wire.SIGNAL_PLANNED, message)

    @workflow.signal(name=wire.PAUSE)
    def signal_pause(self, message: RawValue) -> None:
        """Lets nothing new start; an empty payload works too."""
        self._people.take_signal(wire.PAUSE, message)

    @workflow.update(name=wire.PAUSE)
    def pause(self, message: RawValue) -> Mapping[str, Any]:
        """Lets nothing new start; an empty payload works too."""
        return self._people.take_update(wire.PAUSE, message)

    @pause.validator
    def _check_pause(self, message: RawValue) -> None:
        self._people.check_update(wire.PAUSE, message)

    @workflow.signal(name=wire.RESUME)
    def signal_resume(self, message: RawValue) -> None:
        """Lets what is ready start again; an empty payload works too."""
        self._people.take_signal(wire.RESUME, message)

    @workflow.update(name=wire.RESUME)
    def resume(self, message: RawValue) -> Mapping[str, Any]:
        """Lets what is ready start again; an empty payload works too."""
        return self._people.take_update(wire.RESUME, message)

    @resume.validator
    def _check_resume(self, message: RawValue) -> None:
        self._people.check_update(wire.RESUME, message)

    @workflow.signal(name=wire.CANCEL)
    def signal_cancel(self, message: RawValue) -> None:
        """Stops the run; an empty payload works too."""
        self._people.take_signal(wire.CANCEL, message)

    @workflow.update(name=wire.CANCEL)
    def cancel(self, message: RawValue) -> Mapping[str, Any]:
        """Stops the run; an empty payload works too."""
        return self._people.take_update(wire.CANCEL, message)

    @cancel.validator
    def _check_cancel(self, message: RawValue) -> None:
        self._people.check_update(wire.CANCEL, message)

    @workflow.signal(name=wire.CANCEL_NODE)
    def signal_cancel_node(self, message: RawValue) -> None:
        """Stops a node or an item, with `branch` all that needs it too."""
        self._people.take_signal(wire.CANCEL_NODE, message)

    @workflow.update(name=wire.CANCEL_NODE)
    def cancel_node(self, message: RawValue) -> Mapping[str, Any]:
        """Stops a node or an item, with `branch` all that needs it too."""
        return self._people.take_update(wire.CANCEL_NODE, message)

    @cancel_node.validator
    def _check_cancel_node(self, message: RawValue) -> None:
        self._people.check_update(wire.CANCEL_NODE, message)

    @workflow.signal(name=wire.RETRY_NODE)
    def signal_retry_node(self, message: RawValue) -> None:
        """Has a node or item tried again."""
        self._people.take_signal(wire.RETRY_NODE, message)

    @workflow.update(name=wire.RETRY_NODE)
    def retry_node(self, message: RawValue) -> Mapping[str, Any]:
        """Has a node or item tried again."""
        return self._people.take_update(wire.RETRY_NODE, message)

    @retry_node.validator
    def _check_retry_node(self, message: RawValue) -> None:
        self._people.check_update(wire.RETRY_NODE, message)

    @workflow.signal(name=wire.SET_RESULT)
    def signal_set_result(self, message: RawValue) -> None:
        """Gives a node or item its result by hand."""
        self._people.take_signal(wire.SET_RESULT, message)

    @workflow.update(name=wire.SET_RESULT)
    def set_result(self, message: RawValue) -> Mapping[str, Any]:
        """Gives a node or item its result by hand."""
        return self._people.take_update(wire.SET_RESULT, message)

    @set_result.validator
    def _check_set_result(self, message: RawValue) -> None:
        self._people.check_update(wire.SET_RESULT, message)

    @workflow.signal(name=wire.ADD_NODES)
    def signal_append_nodes(self, message: RawValue) -> None:
        """Adds nodes to the plan."""
        self._people.take_signal(wire.ADD_NODES, message)

    @workflow.update(name=wire.ADD_NODES)
    def add_nodes(self, message: RawValue) -> Mapping[str, Any]:
        """Adds nodes to the plan."""
        return self._people.take_update(wire.ADD_NODES, message)

    @add_nodes.validator
    def _check_append_nodes(self, message: RawValue) -> None:
        self._people.check_update(wire.ADD_NODES, message)

    @workflow.signal(name=wire.SET_POLICY)
    def signal_set_policy(self, message: RawValue) -> None:
        """Changes which calls people are asked about; what waits for an approval no more goes on."""
        self._people.take_signal(wire.SET_POLICY, message)

    @workflow.update(name=wire.SET_POLICY)
    def set_policy(self, message: RawValue) -> Mapping[str, Any]:
        """Changes which calls people are asked about; what waits for an approval no more goes on."""
        return self._people.take_update(wire.SET_POLICY, message)

    @set_policy.validator
    def _check_set_policy(self, message: RawValue) -> None:
        self._people.check_update(wire.SET_POLICY, message)

    @workflow.signal(name=wire.SET_LIMITS)
    def signal_set_limits(self, message: RawValue) -> None:
        """Changes how much of the run runs at once, or how long it may take."""
        self._people.take_signal(wire.SET_LIMITS, message)

    @workflow.update(name=wire.SET_LIMITS)
    def set_limits(self, message: RawValue) -> Mapping[str, Any]:
        """Changes how much of the run runs at once, or how long it may take."""
        return self._people.take_update(wire.SET_LIMITS, message)

    @set_limits.validator
    def _check_set_limits(self, message: RawValue) -> None:
        self._people.check_update(wire.SET_LIMITS, message)
