"""Failed model call, as raised to callers in activities, tools and agents."""

from datetime import timedelta

from dagwright.core.boundary.usage_reports import Usage
from dagwright.core.errors import DagwrightError
from dagwright.planning.model_calls.model_requests import ModelError


class ModelFailure(DagwrightError):
    """A model call failed; `action` is what to do about it.

    Args:
        delay: delay after which the same call may be retried, if the server sent one.

    Attributes:
        asked_by: the service that asked for the delay, such as `429 from api.example.org`; `None` if the delay follows
            another failure.
        model: name of the model; empty if it is not known.
        partial: text that the model wrote before the failure.
        usage: usage of the failed call.
    """

    def __init__(self, error: ModelError, message: str, *, advice: str = "", delay: timedelta | None = None) -> None:
        super().__init__(f"{message.removesuffix('.')}; {advice}" if advice else message)
        self.error = error
        self.action = error.action
        self.advice = advice
        self.delay = delay
        self.asked_by: str | None = None
        self.model = ""
        self.partial = ""
        self.usage = Usage()
