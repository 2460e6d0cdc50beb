"""Handle the commands that people send to a run: apply them at once, or as soon as the run has its plan.

The handlers never await, so that a run can continue as new at any time.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from dagwright.core.boundary import wire
from dagwright.core.model.requests import MessageSource
from dagwright.protocol.commands import CommandHandler, CommandResult
from dagwright.protocol.messages import read_message
from dagwright.protocol.notes import Notes
from dagwright.workflows.timers import now_s

if TYPE_CHECKING:
    from dagwright.workflows.engine import Engine


class CommandMessageHandler:
    """Handler of the commands and answers that people send to a run.

    Args:
        notes: notes of the run.
    """

    def __init__(self, notes: Notes) -> None:
        self._engine: Engine | None = None
        self._command_handler = CommandHandler(notes)

    def start(self, engine: "Engine") -> None:
        """Apply the commands that arrived before the engine existed."""
        self._engine = engine
        engine.apply_commands(lambda scheduler, at: self._command_handler.apply_stored_commands(scheduler, at=at))

    def reject_further_commands(self) -> None:
        """Reject all commands from now on, because the run has ended."""
        self._command_handler.reject_further_commands()

    def handle_signal(self, name: str, message: RawValue) -> None:
        """Apply the command of a signal, or add a note with the reason of its rejection."""
        self._handle(name, message, source="signal")

    def check_update(self, name: str, message: RawValue) -> None:
        """Validate an update without side effects, because a rejected update is not in the history.

        Raises:
            ApplicationError: `Rejected`, with the reason.
        """
        scheduler = self._engine.scheduler if self._engine is not None else None
        read_payload = partial(read_message, message.payload)
        _raise_if_rejected(self._command_handler.rejection_of(name, read_payload, scheduler=scheduler, at=now_s()))

    def handle_update(self, name: str, message: RawValue) -> Mapping[str, Any]:
        """Apply the command of an update and return the confirmation.

        Raises:
            ApplicationError: `Rejected`, with the reason, if the command cannot be applied any more.
        """
        result = self._handle(name, message, source="update")
        _raise_if_rejected(result.rejection)
        return {"ok": True, "message": result.confirmation}

    def _handle(self, name: str, message: RawValue, *, source: MessageSource) -> CommandResult:
        handle = partial(self._command_handler.handle, name, partial(read_message, message.payload), source=source)
        if self._engine is None:
            result = handle(scheduler=None, at=now_s())
        else:
            [result] = self._engine.apply_commands(lambda scheduler, at: [handle(scheduler=scheduler, at=at)])
        if result.error is not None:
            workflow.logger.error(
                "a message was rejected because of a bug", exc_info=result.error, extra={"message_name": name}
            )
        return result


def _raise_if_rejected(rejection: str | None) -> None:
    if rejection is not None:
        raise ApplicationError(rejection, type=wire.ERROR_REJECTED, non_retryable=True)
