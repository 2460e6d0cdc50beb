"""Handling of messages to a run: commands of people, reports of sub-plans, and unknown signals.

The workflow and the history reader use the same handler, so both have the same state and the same notes. The handler
catches unexpected exceptions: a single message never ends a run or stops a reader.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from dagwright.core.boundary import wire
from dagwright.core.model.requests import EARLY_ANSWERS, Through
from dagwright.protocol.command_messages import COMMAND_ID, LENIENT_COMMANDS
from dagwright.protocol.commands import (
    PLAIN_CANCEL,
    CommandResult,
    RoutedCommand,
    decode_command,
    execute_command,
    is_command,
    refusal_of_command,
)
from dagwright.protocol.messages import MessageInvalid, SubPlanEnd, sub_plan_end_from_json
from dagwright.protocol.node_paths import sub_plan_task
from dagwright.protocol.notes import Notes, ReadMessage, bug_message

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler


_EARLY = "stored until the run has loaded its plan"
_ENDED = "the run has ended"
_ACCEPTED = "the run has this command already"
_REMEMBERED_IDS = 200
"""Accepted commands whose repetition is detected: many more than arrive within the timeout of an update."""


def is_command_signal(name: str) -> bool:
    """Return whether a signal of that name is a command."""
    return is_command(name) and name != wire.UPDATE_SUBMIT_FEEDBACK


def read_command(name: str, read: ReadMessage, *, through: Through) -> RoutedCommand:
    """Decode the command of a message.

    Raises:
        MessageInvalid: the message differs from docs/reference/messages.md.
    """
    try:
        message = read()
    except MessageInvalid:
        if name not in LENIENT_COMMANDS:
            raise
        message = None
    return decode_command(name, message, through=through)


def _command_id(read: ReadMessage) -> str | None:
    """Return the ID of the command in a message; `None` if it has none."""
    try:
        message = read()
    # The process edge: an unreadable message is refused with its reason when it is applied.
    except Exception:
        return None
    command_id = message.get(COMMAND_ID) if isinstance(message, Mapping) else None
    return command_id if isinstance(command_id, str) else None


class CommandHandler:
    """Handler of the commands to one run; commands that arrive before the run has its plan are stored.

    Args:
        notes: notes of the run. Commands become notes, and so do refused signals, whose sender gets no response.
    """

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._early = EarlyCommands()
        self._accepted_ids: dict[str, None] = {}
        """IDs of the newest accepted commands, oldest first."""
        self._has_ended = False

    def end(self) -> None:
        """Refuse all commands from now on, because the run has ended and only reports its end.

        It must be called in the workflow task in which the run ended, after all messages of that task.
        """
        self._has_ended = True

    def refusal_of(self, name: str, read: ReadMessage, *, scheduler: "RunScheduler | None", at: float) -> str | None:
        """Return why an update is refused, without side effects.

        Args:
            scheduler: scheduler of the run; `None` while it has no plan.
        """
        if self._has_ended:
            return _ENDED
        read = cache(read)
        if _command_id(read) in self._accepted_ids:
            # `handle` confirms a command that is sent twice.
            return None
        try:
            command = read_command(name, read, through="update")
            if scheduler is None:
                return self._early.refusal_of(name)
            return refusal_of_command(command, scheduler, at=at)
        except MessageInvalid as error:
            return str(error)
        # The process edge: an exception in a validator would be retried without end.
        except Exception as error:
            return bug_message(error)

    def handle(
        self, name: str, read: ReadMessage, *, through: Through, scheduler: "RunScheduler | None", at: float
    ) -> CommandResult:
        """Apply or store the command of a message, and add its notes; apply a command that is sent twice only once.

        Args:
            scheduler: scheduler of the run; `None` while it has no plan.
        """
        # A message may have 2 MB, so it is decoded once.
        read = cache(read)
        command_id = _command_id(read)
        if command_id in self._accepted_ids:
            return CommandResult(confirmation=_EARLY if scheduler is None else _ACCEPTED)
        try:
            command = self._read_command(name, read, through=through)
            if self._has_ended:
                result = CommandResult(_ENDED)
            elif scheduler is None:
                result = CommandResult(self._early.store(name, command), confirmation=_EARLY)
            else:
                result = execute_command(command, scheduler, at=at)
        except MessageInvalid as error:
            result = CommandResult(str(error))
        # The process edge: an exception in a handler would be retried without end, and stop every history reader.
        except Exception as error:
            result = CommandResult(bug_message(error), error=error)
        self._note(result)
        if result.refusal is None:
            self._remember(command_id)
        elif through == "signal":
            # The sender of an update gets the refusal as the response.
            self._notes.refuse(name, result.refusal)
        return result

    def _remember(self, command_id: str | None) -> None:
        if command_id is None:
            return
        self._accepted_ids[command_id] = None
        if len(self._accepted_ids) > _REMEMBERED_IDS:
            del self._accepted_ids[next(iter(self._accepted_ids))]

    def apply_stored(self, scheduler: "RunScheduler", *, at: float) -> Sequence[CommandResult]:
        """Apply the commands that arrived before the run had its plan, in order; their senders get no response."""
        results = []
        for name, command in self._early.pop_all():
            try:
                result = execute_command(command, scheduler, at=at)
            # The process edge, as in `handle`.
            except Exception as error:
                result = CommandResult(bug_message(error), error=error)
            self._note(result)
            self._notes.refuse(name, result.refusal)
            results.append(result)
        return results

    def _read_command(self, name: str, read: ReadMessage, *, through: Through) -> RoutedCommand:
        try:
            return read_command(name, read, through=through)
        except MessageInvalid:
            raise
        # The process edge: a cancel message always cancels, whatever its content.
        except Exception as error:
            if name != wire.CANCEL:
                raise
            self._notes.refuse(name, bug_message(error))
            return PLAIN_CANCEL

    def _note(self, result: CommandResult) -> None:
        if result.note is not None:
            self._notes.add(*result.note)


class EarlyCommands:
    """Commands that arrived before the run had its plan.

    Several answers to one request are all stored, because only the plan shows which answer is valid.
    """

    def __init__(self) -> None:
        self._commands: list[tuple[str, RoutedCommand]] = []

    def refusal_of(self, name: str) -> str | None:
        """Return why a command cannot be stored, or `None`.

        Args:
            name: name of the message.
        """
        # A flood of other messages must not prevent the cancellation of a run.
        if len(self._commands) >= (2 * EARLY_ANSWERS if name in LENIENT_COMMANDS else EARLY_ANSWERS):
            return f"the run has not loaded its plan, and stores at most {EARLY_ANSWERS:,} messages until then"
        return None

    def store(self, name: str, command: RoutedCommand) -> str | None:
        """Store a command, or return why it cannot be stored.

        Args:
            name: name of the message.
        """
        refusal = self.refusal_of(name)
        if refusal is None:
            self._commands.append((name, command))
        return refusal

    def pop_all(self) -> list[tuple[str, RoutedCommand]]:
        """Remove and return all commands with the names of their messages, in order."""
        commands, self._commands = self._commands, []
        return commands


# Signals that are not commands.


def read_sub_plan_report(read: ReadMessage, notes: Notes) -> SubPlanEnd | None:
    """Return the report of a sub-plan; an invalid report becomes a note."""
    try:
        return sub_plan_end_from_json(read())
    except MessageInvalid as error:
        notes.refuse(wire.SIGNAL_SUB_PLAN_ENDED, str(error))
    # The process edge, as in `CommandHandler.handle`.
    except Exception as error:
        notes.refuse(wire.SIGNAL_SUB_PLAN_ENDED, bug_message(error))
    return None


def is_expected_report(end: SubPlanEnd, scheduler: "RunScheduler", notes: Notes) -> bool:
    """Return whether a report is about a sub-plan of this run; any other report becomes a note."""
    if sub_plan_task(scheduler, end.task) is not None:
        return True
    notes.refuse(wire.SIGNAL_SUB_PLAN_ENDED, f"{end.task[:200]!r} is not a sub-plan of this run")
    return False


def note_unknown_signal(name: str, notes: Notes) -> None:
    """Add a note about a signal that runs do not handle."""
    notes.add("refused", f"{name[:200]!r} is not a signal of a run")
