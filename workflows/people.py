"""What people ask of a run while it runs: result at once, or as soon as the run has its plan.

The handlers never await, so that a run may always go on in a new execution.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from dagwright.core.boundary import wire
from dagwright.core.model.requests import Through
from dagwright.protocol.command_handler import CommandHandler
from dagwright.protocol.commands import CommandResult
from dagwright.protocol.messages import read_message
from dagwright.protocol.notes import Notes
from dagwright.workflows.engine import Engine
from dagwright.workflows.timers import now_s


class People:
    """Takes the messages of people.

    Args:
        notes: of the run.
    """

    def __init__(self, notes: Notes) -> None:
        self._engine: Engine | None = None
        self._commands = CommandHandler(notes)

    def begin(self, engine: Engine) -> None:
        """Takes what came before there was an engine."""
        self._engine = engine
        engine.apply_commands(lambda scheduler, at: self._commands.apply_stored(scheduler, at=at))

    def end(self) -> None:
        """Takes nothing from now on: the run has ended."""
        self._commands.end()

    def take_signal(self, name: str, message: RawValue) -> None:
        """Does what a signal asks for, or notes why not."""
        self._take(name, message, through="signal")

    def check_update(self, name: str, message: RawValue) -> None:
        """Looks whether an update can be done; it changes nothing, for a refused one is in no history.

        Raises:
            ApplicationError: `Refused`, with the reason.
        """
        scheduler = self._engine.scheduler if self._engine is not None else None
        read = partial(read_message, message.payload)
        _raise_refused(self._commands.refusal_of(name, read, scheduler=scheduler, at=now_s()))

    def take_update(self, name: str, message: RawValue) -> Mapping[str, Any]:
        """Does what an update asks for, and says so.

        Raises:
            ApplicationError: `Refused`, with the reason, if it cannot be done any more.
        """
        result = self._take(name, message, through="update")
        _raise_refused(result.refusal)
        return {"ok": True, "message": result.confirmation}

    def _take(self, name: str, message: RawValue, *, through: Through) -> CommandResult:
        take = partial(self._commands.handle, name, partial(read_message, message.payload), through=through)
        if self._engine is None:
            result = take(scheduler=None, at=now_s())
        else:
            [result] = self._engine.apply_commands(lambda scheduler, at: [take(scheduler=scheduler, at=at)])
        if result.error is not None:
            workflow.logger.error(
                "a message was refused by a defect", exc_info=result.error, extra={"message_name": name}
            )
        return result


def _raise_refused(refusal: str | None) -> None:
    if refusal is not None:
        raise ApplicationError(refusal, type=wire.ERROR_REFUSED, non_retryable=True)
