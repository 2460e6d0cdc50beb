"""Commands of people to a run: decoded from a signal or update, validated, then applied to the scheduler.

The workflow applies a command when its message arrives, and the history reader when it reads the event, so both have
the same state. Nothing else that a person sends changes a run. `dagwright.protocol.command_handler` handles the
messages.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from dagwright.core.boundary import wire
from dagwright.core.model.actor import UNKNOWN_ACTOR
from dagwright.core.model.requests import Feedback, Through
from dagwright.features.commands.steering import CommandMessage, apply_command
from dagwright.protocol.command_messages import (
    RUN_MESSAGES,
    cancel_message,
    feedback_from_json,
    feedback_to_json,
    node_command_from_json,
)
from dagwright.protocol.node_paths import running_sub_plan_of
from dagwright.protocol.planned_nodes import planned_from_json

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler

Apply = Callable[["RunScheduler", float], str | None]
"""Function of the scheduler and the time that returns a refusal, or `None`."""


@dataclass(frozen=True, slots=True)
class ChildSignal:
    """A signal to sub-plans.

    Args:
        task: task whose sub-plan gets the signal; `None` means all sub-plans.
    """

    signal: str
    message: Mapping[str, Any]
    task: str | None = None


def _not_stored(_: "RunScheduler") -> str | None:
    return None


def _not_forwarded(_: "RunScheduler") -> ChildSignal | None:
    return None


@dataclass(frozen=True, slots=True)
class RoutedCommand:
    """A decoded command with its effects on the run and its sub-plans.

    Args:
        refusal_of: returns why the command is refused, without side effects.
        apply: applies the command, or returns why it is refused.
        confirmation: returns the confirmation for the sender; it must be called before `apply`.
        forwarded: returns the signal that forwards the command, if it belongs to a running sub-plan.
        stored_confirmation: returns the confirmation if the command was only stored for a later request.
        note: code and text of the note about the applied command.
        broadcast: signal to all sub-plans after the command was applied.
    """

    refusal_of: Apply
    apply: Apply
    confirmation: Callable[["RunScheduler"], str]
    forwarded: Callable[["RunScheduler"], ChildSignal | None] = _not_forwarded
    stored_confirmation: Callable[["RunScheduler"], str | None] = _not_stored
    note: tuple[str, str] | None = None
    broadcast: ChildSignal | None = None


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Result of a command.

    Args:
        refusal: why the command was refused.
        confirmation: confirmation for the sender of an accepted command.
        note: code and text of the note.
        child_signal: signal to sub-plans.
        error: unexpected exception that was raised.
    """

    refusal: str | None = None
    confirmation: str = ""
    note: tuple[str, str] | None = None
    child_signal: ChildSignal | None = None
    error: Exception | None = None


def execute_command(command: RoutedCommand, scheduler: "RunScheduler", *, at: float) -> CommandResult:
    """Apply a command to this run, or forward it to a sub-plan, which may still refuse it."""
    scheduler.advance(at)
    if (forwarded := command.forwarded(scheduler)) is not None:
        return CommandResult(
            confirmation=f"forwarded to the sub-plan {forwarded.task!r}",
            child_signal=forwarded,
        )
    confirmation = command.confirmation(scheduler)
    if (refusal := command.apply(scheduler, at)) is not None:
        return CommandResult(refusal)
    return CommandResult(
        confirmation=command.stored_confirmation(scheduler) or confirmation,
        note=command.note,
        child_signal=command.broadcast,
    )


def refusal_of_command(command: RoutedCommand, scheduler: "RunScheduler", *, at: float) -> str | None:
    """Return why a command is refused, without side effects; a sub-plan itself refuses a forwarded command."""
    return command.refusal_of(scheduler, at) if command.forwarded(scheduler) is None else None


def _feedback_command(message: Any, *, through: Through) -> RoutedCommand:
    feedback = feedback_from_json(message, through=through)
    return RoutedCommand(
        refusal_of=lambda scheduler, at: scheduler.features.feedback.refusal_of(feedback, at),
        apply=lambda scheduler, at: scheduler.features.feedback.answer(feedback, at),
        confirmation=partial(_confirmation_of_answer, feedback.request),
        forwarded=partial(_forwarded_answer, feedback),
        stored_confirmation=partial(_confirmation_of_stored_answer, feedback.request),
    )


def _confirmation_of_answer(request: str, scheduler: "RunScheduler") -> str:
    count = scheduler.features.feedback.open_request_count(request)
    return f"{count:,} requests of {request!r} are answered" if count > 1 else f"{request!r} is answered"


def _confirmation_of_stored_answer(request: str, scheduler: "RunScheduler") -> str | None:
    is_stored = request in scheduler.features.feedback.requests.early
    return f"{request!r} has not asked yet; the answer is stored until it does" if is_stored else None


def _forwarded_answer(feedback: Feedback, scheduler: "RunScheduler") -> ChildSignal | None:
    sub_plan = running_sub_plan_of(scheduler, feedback.request)
    if sub_plan is None:
        return None
    task_id, request = sub_plan
    return ChildSignal(wire.SIGNAL_FEEDBACK, feedback_to_json(feedback, request=request), task_id)


def _routed(name: str, message: CommandMessage) -> RoutedCommand:
    return RoutedCommand(
        refusal_of=lambda scheduler, at: message.command.refusal_of(scheduler, at=at),
        apply=lambda scheduler, at: apply_command(message.command, scheduler, at=at),
        confirmation=lambda _: message.confirmation,
        forwarded=partial(_forwarded_command, name, message),
        note=None if message.note is None else (name, message.note),
        broadcast=ChildSignal(name, message.content) if message.is_broadcast else None,
    )


def _forwarded_command(name: str, message: CommandMessage, scheduler: "RunScheduler") -> ChildSignal | None:
    sub_plan = running_sub_plan_of(scheduler, message.node) if message.node is not None else None
    if sub_plan is None:
        return None
    task_id, node = sub_plan
    return ChildSignal(name, {**message.content, "node_id": node}, task_id)


PLAIN_CANCEL = _routed(wire.CANCEL, cancel_message(UNKNOWN_ACTOR))
"""Cancel command for a message that cannot be decoded."""

_OF_NODES = (wire.CANCEL_NODE, wire.RETRY_NODE, wire.SET_RESULT, wire.ADD_NODES)
_ANSWERS = (wire.SIGNAL_FEEDBACK, wire.UPDATE_SUBMIT_FEEDBACK)


def is_command(name: str) -> bool:
    """Return whether a signal or update of that name is a command."""
    return name in _OF_NODES or name in RUN_MESSAGES or name in _ANSWERS or name == wire.SIGNAL_PLANNED


def decode_command(name: str, message: Any, *, through: Through) -> RoutedCommand:
    """Decode a command.

    Args:
        name: name of the signal or update.
        message: its JSON value.
        through: whether it is a signal or an update.

    Raises:
        MessageInvalid: the message differs from docs/reference/messages.md.
    """
    if name in _ANSWERS:
        return _feedback_command(message, through=through)
    if name in RUN_MESSAGES:
        return _routed(name, RUN_MESSAGES[name](message, through=through))
    if name == wire.SIGNAL_PLANNED:
        return _routed(name, planned_from_json(message))
    return _routed(name, node_command_from_json(name, message, through=through))
