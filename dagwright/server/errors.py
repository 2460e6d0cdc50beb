"""The one error of this package, in a module of its own so that every other module can raise it."""

from temporalio.service import RPCStatusCode

from dagwright.core.errors import DagwrightError

NO_ANSWER = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED)
"""What the client of Temporal says if nobody answered."""


class NoServer(DagwrightError):
    """No Temporal server could be had; the text is one sentence that says why and what to do."""
