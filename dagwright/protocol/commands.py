"""Commands of people to a run: decoded from a signal or update, validated, then applied to the scheduler.

The workflow applies a command when its message arrives. The history reader applies the command when it reads the event
of the message. So both have the same state and the same notes. Nothing else that a person sends changes a run.
`CommandHandler` catches unexpected exceptions: a single message never ends a run or stops a history reader. The
functions at the end of the module handle reports of sub-plans and unknown signals.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from dagwright.core.boundary import wire
from dagwright.core.model.actor import UNKNOWN_ACTOR
from dagwright.core.model.requests import Feedback, MessageSource
from dagwright.features.commands.steering import CommandMessage, apply_command
from dagwright.features.feedback.feedback_state import MAX_EARLY_ANSWERS
from dagwright.protocol.command_messages import (
    ANY_PAYLOAD_COMMANDS,
    COMMAND_ID,
    RUN_MESSAGES,
    cancel_message,
    feedback_from_json,
    feedback_to_json,
    node_command_from_json,
)
from dagwright.protocol.messages import MessageInvalid, SubPlanEnd, sub_plan_end_from_json
from dagwright.protocol.node_paths import running_sub_plan_of, sub_plan_task
from dagwright.protocol.notes import Notes, ReadMessage, bug_message
from dagwright.protocol.planned_nodes import planned_from_json

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler

CommandFunction = Callable[["RunScheduler", float], str | None]
"""Function (scheduler, time) -> rejection or `None`. It checks or applies a command."""


@dataclass(frozen=True, slots=True)
class ChildSignal:
    """A signal to the child runs of a run, which are its sub-plans.

    Args:
        task: task whose sub-plan gets the signal; `None` means all sub-plans.
    """

    signal: str
    message: Mapping[str, Any]
    task: str | None = None


def _no_confirmation(_: "RunScheduler") -> str | None:
    return None


def _no_child_signal(_: "RunScheduler") -> ChildSignal | None:
    return None


@dataclass(frozen=True, slots=True)
class RoutedCommand:
    """A decoded command, with the functions that apply the command to the run or forward it to a sub-plan.

    Args:
        rejection_of: returns why the command is rejected, without side effects.
        apply: applies the command, or returns why it is rejected.
        confirmation_of: returns the confirmation for the sender. It must be called before `apply`, because the
            confirmation of an answer counts the requests that are still open.
        forwarded_signal_of: returns the signal that forwards the command, if the command is for a running sub-plan.
        stored_confirmation_of: returns the confirmation of an answer that `apply` only stored, because its request is
            not open yet; `None` for an answer or command that was applied.
        note: code and text of the note about the applied command.
        broadcast: signal to all sub-plans after the command was applied.
    """

    rejection_of: CommandFunction
    apply: CommandFunction
    confirmation_of: Callable[["RunScheduler"], str]
    forwarded_signal_of: Callable[["RunScheduler"], ChildSignal | None] = _no_child_signal
    stored_confirmation_of: Callable[["RunScheduler"], str | None] = _no_confirmation
    note: tuple[str, str] | None = None
    broadcast: ChildSignal | None = None


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Result of a command.

    Args:
        rejection: why the command was rejected.
        confirmation: confirmation for the sender of an accepted command.
        note: code and text of the note.
        child_signal: signal to sub-plans.
        error: unexpected exception that was raised.
    """

    rejection: str | None = None
    confirmation: str = ""
    note: tuple[str, str] | None = None
    child_signal: ChildSignal | None = None
    error: Exception | None = None


def execute_command(command: RoutedCommand, scheduler: "RunScheduler", *, at: float) -> CommandResult:
    """Apply a command to this run, or forward it to a sub-plan, which may still reject it."""
    scheduler.advance(at)
    if (forwarded_signal := command.forwarded_signal_of(scheduler)) is not None:
        return CommandResult(
            confirmation=f"forwarded to the sub-plan {forwarded_signal.task!r}",
            child_signal=forwarded_signal,
        )
    confirmation = command.confirmation_of(scheduler)
    if (rejection := command.apply(scheduler, at)) is not None:
        return CommandResult(rejection)
    return CommandResult(
        confirmation=command.stored_confirmation_of(scheduler) or confirmation,
        note=command.note,
        child_signal=command.broadcast,
    )


def rejection_of_command(command: RoutedCommand, scheduler: "RunScheduler", *, at: float) -> str | None:
    """Return why this run rejects a command, or `None`, without side effects.

    A command that is forwarded to a sub-plan is not checked here: the sub-plan checks the command, and may reject it.
    """
    return command.rejection_of(scheduler, at) if command.forwarded_signal_of(scheduler) is None else None


def _feedback_command(message: Any, *, source: MessageSource) -> RoutedCommand:
    feedback = feedback_from_json(message, source=source)
    return RoutedCommand(
        rejection_of=lambda scheduler, at: scheduler.features.feedback.rejection_of(feedback, at),
        apply=lambda scheduler, at: scheduler.features.feedback.answer(feedback, at),
        confirmation_of=partial(_confirmation_of_answer, feedback.request_id),
        forwarded_signal_of=partial(_forwarded_answer, feedback),
        stored_confirmation_of=partial(_confirmation_of_stored_answer, feedback.request_id),
    )


def _confirmation_of_answer(request_id: str, scheduler: "RunScheduler") -> str:
    count = scheduler.features.feedback.open_request_count(request_id)
    return f"{count:,} requests of {request_id!r} are answered" if count > 1 else f"{request_id!r} is answered"


def _confirmation_of_stored_answer(request_id: str, scheduler: "RunScheduler") -> str | None:
    is_stored = request_id in scheduler.features.feedback.requests.early_answers
    return f"{request_id!r} has not asked yet; the answer is stored until {request_id!r} asks" if is_stored else None


def _forwarded_answer(feedback: Feedback, scheduler: "RunScheduler") -> ChildSignal | None:
    sub_plan = running_sub_plan_of(scheduler, feedback.request_id)
    if sub_plan is None:
        return None
    task_id, request_id = sub_plan
    return ChildSignal(wire.SIGNAL_FEEDBACK, feedback_to_json(feedback, request_id=request_id), task_id)


def _routed_command(name: str, message: CommandMessage) -> RoutedCommand:
    return RoutedCommand(
        rejection_of=lambda scheduler, at: message.command.rejection_of(scheduler, at=at),
        apply=lambda scheduler, at: apply_command(message.command, scheduler, at=at),
        confirmation_of=lambda _: message.confirmation,
        forwarded_signal_of=partial(_forwarded_command, name, message),
        note=None if message.note is None else (name, message.note),
        broadcast=ChildSignal(name, message.content) if message.is_broadcast else None,
    )


def _forwarded_command(name: str, message: CommandMessage, scheduler: "RunScheduler") -> ChildSignal | None:
    sub_plan = running_sub_plan_of(scheduler, message.node_id) if message.node_id is not None else None
    if sub_plan is None:
        return None
    task_id, node_id = sub_plan
    return ChildSignal(name, {**message.content, "node_id": node_id}, task_id)


CANCEL_BY_UNKNOWN_ACTOR = _routed_command(wire.CANCEL, cancel_message(UNKNOWN_ACTOR))
"""Cancel command for a message that cannot be decoded."""

_NODE_COMMANDS = (wire.CANCEL_NODE, wire.RETRY_NODE, wire.SET_RESULT, wire.ADD_NODES)
_ANSWERS = (wire.SIGNAL_FEEDBACK, wire.UPDATE_SUBMIT_FEEDBACK)


def is_command(name: str) -> bool:
    """Return whether a signal or update of that name is a command."""
    return name in _NODE_COMMANDS or name in RUN_MESSAGES or name in _ANSWERS or name == wire.SIGNAL_PLANNED


def decode_command(name: str, message: Any, *, source: MessageSource) -> RoutedCommand:
    """Decode a command from a JSON value.

    Args:
        name: name of the signal or update.
        message: JSON value of the payload.
        source: channel that carried the message, a signal or an update.

    Raises:
        MessageInvalid: the message differs from docs/reference/messages.md.
    """
    if name in _ANSWERS:
        return _feedback_command(message, source=source)
    if name in RUN_MESSAGES:
        return _routed_command(name, RUN_MESSAGES[name](message, source=source))
    if name == wire.SIGNAL_PLANNED:
        return _routed_command(name, planned_from_json(message))
    return _routed_command(name, node_command_from_json(name, message, source=source))


_STORED_EARLY = "stored until the run has loaded its plan"
_RUN_ENDED = "the run has ended"
_ALREADY_ACCEPTED = "the run has already accepted this command"
_MAX_REMEMBERED_IDS = 200
"""Number of the newest commands whose repetition is detected. A repetition arrives within the timeout of an update, and
far fewer commands arrive within this time."""


def is_command_signal(name: str) -> bool:
    """Return whether a signal of that name is a command."""
    return is_command(name) and name != wire.UPDATE_SUBMIT_FEEDBACK


def read_command(name: str, read_message: ReadMessage, *, source: MessageSource) -> RoutedCommand:
    """Decode a command from a message that may be unreadable: pause, resume and cancel are accepted with any payload.

    Raises:
        MessageInvalid: the message differs from docs/reference/messages.md.
    """
    try:
        message = read_message()
    except MessageInvalid:
        if name not in ANY_PAYLOAD_COMMANDS:
            raise
        message = None
    return decode_command(name, message, source=source)


def _command_id(read_message: ReadMessage) -> str | None:
    """Return the ID of the command in a message; `None` if the message has no ID."""
    try:
        message = read_message()
    # Catch all exceptions: the caller decodes the message again, and then handles the exception.
    except Exception:
        return None
    command_id = message.get(COMMAND_ID) if isinstance(message, Mapping) else None
    return command_id if isinstance(command_id, str) else None


class CommandHandler:
    """Handler of the commands to one run. Commands that arrive before the run has its plan are stored.

    Args:
        notes: notes of the run. Commands to the whole run become notes. Rejected signals also become notes, because
            their senders get no response.
    """

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._early_commands = EarlyCommands()
        self._accepted_ids: dict[str, None] = {}
        """IDs of the newest accepted commands, oldest first."""
        self._has_ended = False

    def has_accepted(self, command_id: str) -> bool:
        """Return whether a command with this ID was accepted, or is stored until the run has its plan."""
        return command_id in self._accepted_ids

    def reject_further_commands(self) -> None:
        """Reject all commands from now on: the run has ended, and its workflow only sends notifications and reports.

        This must be called in the workflow task in which the run ended, after all messages of that task.
        """
        self._has_ended = True

    def rejection_of(
        self, name: str, read_message: ReadMessage, *, scheduler: "RunScheduler | None", at: float
    ) -> str | None:
        """Return why an update is rejected, without side effects.

        Args:
            scheduler: scheduler of the run; `None` while it has no plan.
        """
        if self._has_ended:
            return _RUN_ENDED
        read_message = cache(read_message)
        if _command_id(read_message) in self._accepted_ids:
            # `handle` confirms a command that is sent twice.
            return None
        try:
            command = read_command(name, read_message, source="update")
            if scheduler is None:
                return self._early_commands.rejection_of(name)
            return rejection_of_command(command, scheduler, at=at)
        except MessageInvalid as error:
            return str(error)
        # Catch all exceptions: an exception in a validator would be retried without end.
        except Exception as error:
            return bug_message(error)

    def handle(
        self,
        name: str,
        read_message: ReadMessage,
        *,
        source: MessageSource,
        scheduler: "RunScheduler | None",
        at: float,
    ) -> CommandResult:
        """Apply or store the command of a message, and add its notes. A command that is sent twice is applied once.

        Args:
            scheduler: scheduler of the run; `None` while it has no plan.
        """
        # A message may have 2 MB, so it is decoded once.
        read_message = cache(read_message)
        command_id = _command_id(read_message)
        if command_id in self._accepted_ids:
            return CommandResult(confirmation=_STORED_EARLY if scheduler is None else _ALREADY_ACCEPTED)
        try:
            command = self._read_command(name, read_message, source=source)
            if self._has_ended:
                result = CommandResult(_RUN_ENDED)
            elif scheduler is None:
                result = CommandResult(self._early_commands.store(name, command), confirmation=_STORED_EARLY)
            else:
                result = execute_command(command, scheduler, at=at)
        except MessageInvalid as error:
            result = CommandResult(str(error))
        # Catch all exceptions: an exception in a handler would be retried without end, and stop every history reader.
        except Exception as error:
            result = CommandResult(bug_message(error), error=error)
        self._add_note(result)
        if result.rejection is None:
            self._record_accepted_id(command_id)
        elif source == "signal":
            # The sender of an update gets the rejection as the response.
            self._notes.add_rejection(name, result.rejection)
        return result

    def _record_accepted_id(self, command_id: str | None) -> None:
        if command_id is None:
            return
        self._accepted_ids[command_id] = None
        if len(self._accepted_ids) > _MAX_REMEMBERED_IDS:
            del self._accepted_ids[next(iter(self._accepted_ids))]

    def apply_stored_commands(self, scheduler: "RunScheduler", *, at: float) -> Sequence[CommandResult]:
        """Apply the commands that arrived before the run had its plan, in order; their senders get no response."""
        results = []
        for name, command in self._early_commands.pop_all():
            try:
                result = execute_command(command, scheduler, at=at)
            # Catch all exceptions, as in `handle`.
            except Exception as error:
                result = CommandResult(bug_message(error), error=error)
            self._add_note(result)
            # For an accepted command, `rejection` is `None`, and `add_rejection` adds no note.
            self._notes.add_rejection(name, result.rejection)
            results.append(result)
        return results

    def _read_command(self, name: str, read_message: ReadMessage, *, source: MessageSource) -> RoutedCommand:
        """Decode a command as `read_command`. A cancel command that cannot be decoded gets an unknown actor."""
        try:
            return read_command(name, read_message, source=source)
        except MessageInvalid:
            raise
        # Catch all exceptions: a cancel message always cancels, whatever its content.
        except Exception as error:
            if name != wire.CANCEL:
                raise
            self._notes.add_rejection(name, bug_message(error))
            return CANCEL_BY_UNKNOWN_ACTOR

    def _add_note(self, result: CommandResult) -> None:
        if result.note is not None:
            self._notes.add(*result.note)


class EarlyCommands:
    """Commands that arrived before the run had its plan.

    Several answers to one request are all stored, because only the plan shows which answer is valid.
    """

    def __init__(self) -> None:
        self._commands: list[tuple[str, RoutedCommand]] = []

    def rejection_of(self, name: str) -> str | None:
        """Return why a command cannot be stored, or `None`.

        Args:
            name: name of the message.
        """
        # The double limit leaves room for a cancel command, even if other messages have reached the single limit.
        if len(self._commands) >= (2 * MAX_EARLY_ANSWERS if name in ANY_PAYLOAD_COMMANDS else MAX_EARLY_ANSWERS):
            return f"the run has not loaded its plan, and stores at most {MAX_EARLY_ANSWERS:,} messages until then"
        return None

    def store(self, name: str, command: RoutedCommand) -> str | None:
        """Store a command, or return why it cannot be stored.

        Args:
            name: name of the message.
        """
        rejection = self.rejection_of(name)
        if rejection is None:
            self._commands.append((name, command))
        return rejection

    def pop_all(self) -> list[tuple[str, RoutedCommand]]:
        """Remove and return all commands with the names of their messages, in order."""
        commands, self._commands = self._commands, []
        return commands


# Signals that are not commands.


def read_sub_plan_report(read_message: ReadMessage, notes: Notes) -> SubPlanEnd | None:
    """Return the report of a sub-plan. An invalid report becomes a note."""
    try:
        return sub_plan_end_from_json(read_message())
    except MessageInvalid as error:
        notes.add_rejection(wire.SIGNAL_SUB_PLAN_ENDED, str(error))
    # Catch all exceptions, as in `CommandHandler.handle`.
    except Exception as error:
        notes.add_rejection(wire.SIGNAL_SUB_PLAN_ENDED, bug_message(error))
    return None


def accept_sub_plan_report(end: SubPlanEnd, scheduler: "RunScheduler", notes: Notes) -> bool:
    """Return whether a report is about a sub-plan of this run; add a note about any other report."""
    if sub_plan_task(scheduler, end.call_id) is not None:
        return True
    notes.add_rejection(wire.SIGNAL_SUB_PLAN_ENDED, f"{end.call_id[:200]!r} is not a sub-plan of this run")
    return False


def note_unknown_signal(name: str, notes: Notes) -> None:
    """Add a note about a signal that runs do not handle."""
    notes.add("message_rejected", f"{name[:200]!r} is not a signal of a run")
