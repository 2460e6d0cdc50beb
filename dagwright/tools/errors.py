"""What a tool may raise, and what goes wrong around tools.

ToolError                 sorted by what happens next
├── RetryLater            tried again, after a delay the tool names
├── NotStarted            tried again: the change had not begun, so even a `write` may repeat it
├── GiveUp                final
├── AskPerson             a person decides; then called again with the answer in `context().answers`
├── RemoteFailed          tried again unless the tool is a `write`: a server said so, or nobody knows
├── ToolChanged           final: check the plan again
├── InvalidArguments      final: fix the plan
├── InvalidResult         final: fix the tool
├── ResultTooLarge        final: return less
├── MissingSecret         final: set the variable
├── MissingPart           final: a reference of the plan leads nowhere in a stored value
├── ValueLost             final: a stored value is not in the payload store any more, or damaged
├── ValueNotLoaded        tried again: the payload store did not answer, and nothing had begun
├── ResultNotKept         the payload store did not take the result; a `write` is not repeated for that
└── NotInRegion           called again by itself: a pure tool asks a model, which cannot be done among many others
ToolsUnreadable           a `--tools` value that gives no tools; the message is one sentence for the user
NoToolContext             `context()` was called outside a tool
"""

from datetime import timedelta
from typing import Any

from dagwright.core.errors import DagwrightError


class ToolError(DagwrightError):
    """Base of what a tool or the code around it raises on purpose."""


class RetryLater(ToolError):
    """The call did not work now and may work later.

    Args:
        message: why.
        after: how long to wait before the next attempt; `None` leaves it to the retry policy. Cut to one day.
    """

    def __init__(self, message: str = "", after: timedelta | None = None) -> None:
        super().__init__(message)
        self.after = after


class NotStarted(ToolError):
    """The call failed before it changed anything, so it may be repeated, even if the tool is a `write`."""


class GiveUp(ToolError):
    """The call failed and no other attempt can help."""


class RemoteFailed(ToolError):
    """A server that does the work of the tool says that the call failed, or cannot say how it ended."""


class ToolChanged(ToolError):
    """The tool is not any more what the plan was checked against."""


class AskPerson(ToolError):
    """A person has to decide before the call can go on.

    The call ends, without counting as failed, and is made again, under the same idempotency key, with the answer in
    `context().answers`.

    Args:
        request: the question, a text, or a JSON object with the fields of `human` in a plan.
        checkpoint: JSON, at most 64 KiB with the request; the next call finds it in `context().checkpoint`, so that
            what is done already need not be done again.
    """

    def __init__(self, request: Any, *, checkpoint: Any = None) -> None:
        super().__init__(request if isinstance(request, str) else "A person has to decide")
        self.request = request
        self.checkpoint = checkpoint


class InvalidArguments(ToolError, ValueError):
    """The arguments do not fit the tool; the message names each place as a JSON pointer, never the value."""


class InvalidResult(ToolError, ValueError):
    """The returned value is not JSON; the message names the place and the type."""


class ResultTooLarge(ToolError):
    """The returned value has more bytes as JSON than a result may have."""


class MissingSecret(ToolError):
    """The plan names a secret that the worker's environment does not have."""


class SecretRefused(ToolError):
    """The plan gives a secret to a tool, or sends it to a host, that the secret is not bound to."""


class MissingPart(ToolError):
    """A reference leads nowhere in a stored value."""


class ValueLost(ToolError):
    """A stored value that the arguments need is gone or damaged."""


class ValueNotLoaded(ToolError):
    """A stored value that the arguments need could not be read now; the tool has not been called."""


class ResultNotKept(ToolError):
    """The tool has done its work, but its large result could not be put into the payload store.

    Args:
        size_bytes: of the result.
    """

    def __init__(self, message: str = "", *, size_bytes: int = 0) -> None:
        super().__init__(message)
        self.size_bytes = size_bytes


class NotInRegion(ToolError):
    """A pure tool that runs together with others wants to do what only a call of its own can do."""


class ToolsUnreadable(DagwrightError):
    """A module or file of tools cannot be used; the message is one sentence for the user."""


class NoToolContext(DagwrightError, RuntimeError):
    """`context()` was called by code that is not running inside a tool."""
