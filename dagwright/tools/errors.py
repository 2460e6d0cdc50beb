"""Exceptions that tools raise, and errors around tools.

ToolError                 subclasses differ in what happens next
├── RetryLater            retried, after a delay that the tool gives
├── NotStarted            retried: the change had not started, so even a `write` may be repeated
├── GiveUp                final
├── AskPerson             a person decides; then the call is repeated with the answer in `context().answers`
├── RemoteFailed          retried unless the tool is a `write`: the remote server failed, or the outcome is unknown
├── ToolChanged           final: check the plan again
├── InvalidArguments      final: fix the plan
├── InvalidResult         final: fix the tool
├── ResultTooLarge        final: return less
├── MissingSecret         final: set the variable
├── SecretNotAllowed      final: bind the secret to the tool or to the host
├── MissingPart           final: the stored value has no value at the path of a reference
├── ValueLost             final: a stored value is missing from the payload store, or damaged
├── ArgumentNotLoaded     retried: the payload store did not respond, and nothing had started
├── ResultNotStored       retried unless the tool is a `write`: the payload store did not accept the result
└── NotInRegion           repeated as an activity: a pure tool calls a model, which is impossible inside a region
ToolLoadError             a `--tools` value without usable tools; the message is one sentence for the user
NoToolContext             `context()` was called outside of a tool
"""

from datetime import timedelta
from typing import Any

from dagwright.core.errors import DagwrightError


class ToolError(DagwrightError):
    """Base of the exceptions that a tool or the code around it raises on purpose."""


class RetryLater(ToolError):
    """The call failed now and may succeed later.

    Args:
        message: the reason.
        after: delay before the next attempt, at most one day; with `None`, the retry policy determines the delay.
        requested_by: status and host of the service that requested the delay, such as `429 from api.example.org`.
            If `after` and `requested_by` are set, the service rejected the call before doing anything, so the attempt
            does not count.
    """

    def __init__(self, message: str = "", after: timedelta | None = None, *, requested_by: str | None = None) -> None:
        super().__init__(message)
        self.after = after
        self.requested_by = requested_by


class NotStarted(ToolError):
    """The call failed before it changed anything, so the call may be repeated, even if the tool is a `write`."""


class GiveUp(ToolError):
    """The call failed, and another attempt cannot help."""


class RemoteFailed(ToolError):
    """A remote server that runs the tool reports a failure, or cannot report the outcome."""


class ToolChanged(ToolError):
    """The tool has changed since the plan was checked against it."""


class AskPerson(ToolError):
    """A person has to decide before the call can continue.

    The call ends without counting as failed. It is repeated with the same idempotency key and the answer in
    `context().answers`.

    Args:
        request: a text, or a JSON object with the fields of `human` in a plan.
        checkpoint: JSON, at most 64 KiB together with the request; the repeated call finds it in `context().checkpoint`
            and need not repeat completed work.
    """

    def __init__(self, request: Any, *, checkpoint: Any = None) -> None:
        super().__init__(request if isinstance(request, str) else "A person has to decide")
        self.request = request
        self.checkpoint = checkpoint


class InvalidArguments(ToolError, ValueError):
    """The arguments do not match the tool. The message names each invalid path as a JSON pointer, never the value."""


class InvalidResult(ToolError, ValueError):
    """The returned value is not JSON. The message names the path and the type."""


class ResultTooLarge(ToolError):
    """The JSON of the returned value exceeds the size limit of results."""


class MissingSecret(ToolError):
    """The plan names a secret that the worker's environment does not have."""


class SecretNotAllowed(ToolError):
    """A secret is not bound to the tool that would receive it, or to the host that it would be sent to."""


class MissingPart(ToolError):
    """A stored value has no value at the path of a reference."""


class ValueLost(ToolError):
    """A stored value of the arguments is missing or damaged."""


class ArgumentNotLoaded(ToolError):
    """A stored value of the arguments could not be loaded now; the tool was not called."""


class ResultNotStored(ToolError):
    """The tool succeeded, but its large result could not be put into the payload store.

    Args:
        size_bytes: size of the result.
    """

    def __init__(self, message: str = "", *, size_bytes: int = 0) -> None:
        super().__init__(message)
        self.size_bytes = size_bytes


class NotInRegion(ToolError):
    """A pure tool inside a region does something that requires an activity of its own."""


class ToolLoadError(DagwrightError):
    """A module or file of tools cannot be loaded; the message is one sentence for the user."""


class NoToolContext(DagwrightError, RuntimeError):
    """`context()` was called by code that is not running inside a tool."""
