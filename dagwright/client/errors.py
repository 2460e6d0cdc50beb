"""Errors of requests to runs and sessions that the user can fix."""

from dagwright.core.errors import DagwrightError


class RunIdInUse(DagwrightError):
    """A run with this ID was started with another plan, other inputs or another model."""


class SessionNotFound(DagwrightError):
    """There is no session with this ID, or the session cannot be read; the message says which."""


class TurnRejected(DagwrightError):
    """The session did not start the turn.

    Args:
        code: a code of `TurnRejection`, or one of these. `no_worker`: no worker serves the session. `not_started`: the
            run of the turn could not be started. `invalid`, `too_large`: the turn is invalid or too large.
        run_id: ID of the running run of the session, if that run is the reason.
    """

    def __init__(self, code: str, message: str, run_id: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.run_id = run_id


class FeedbackRejected(DagwrightError):
    """The run does not accept the answer; the message says why."""


class ForkRejected(DagwrightError):
    """The run cannot be forked with these changes; the message has the reason and a hint."""


class RunIdInvalid(DagwrightError):
    """The ID is not valid for a run."""


class CommandRejected(DagwrightError):
    """A run does not accept a command, such as a pause of a paused run; the message says why."""


class ServerRejected(CommandRejected):
    """The server does not accept a message for a run."""


class OptionInvalid(DagwrightError, ValueError):
    """An option of a run, session, list or call limit is invalid. The message names the option and its valid values."""
