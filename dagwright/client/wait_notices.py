"""Notices for programs that wait for a run: missing workers and tools, and requests that a person must answer."""

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Protocol, TextIO, TypeVar

from dagwright.client.events import AnyRunEvent, FeedbackRequested
from dagwright.client.feedback.feedback_request import FeedbackRequest

if TYPE_CHECKING:
    from dagwright.history.run_view import RunView

Result = TypeVar("Result")
_LOG = logging.getLogger("dagwright.client")
_REMEDIES = {
    "no_worker": "serve it with Worker(client, tools=[...])",
    "tool_missing": "add it to the tools of Worker(client, tools=[...])",
    "tool_paused": "call client.resume_tool(...)",
}
"""Code of a note about a waiting call -> remedy in a Python program."""
_ANSWERS = {
    "APPROVAL": ("--approve", "approved=True"),
    "SELECTION": ("--select OPTION", 'selected="OPTION"'),
    "INFORMATION": ("--data JSON", "data={...}"),
}
"""Type of a request -> option of the command line and argument in Python that answer it."""
_TEXT_ANSWER = ("--text TEXT", 'text="..."')
_MAX_PROMPT_CHARACTERS = 500


class RequestSource(Protocol):
    """The method of `Run` that `print_requests` uses."""

    def events(self) -> AsyncGenerator[AnyRunEvent, None]:
        """Yield the events of the run."""
        ...


class WaitNotices:
    """Warns once about each missing tool, each paused tool, and each queue without workers that a run waits for.

    The warnings go to the logger `dagwright.client`.
    """

    def __init__(self) -> None:
        self._reported_reasons: set[str] = set()

    def warn(self, view: "RunView") -> None:
        """Warn about each reason why the run waits, once per reason."""
        for note in view.notes:
            message, remedy = str(note["message"]), _REMEDIES.get(str(note["code"]))
            if remedy is not None and (reason := message.partition(";")[0]) not in self._reported_reasons:
                self._reported_reasons.add(reason)
                _LOG.warning("the run %r waits: %s; in Python, %s", view.run_id, message, remedy)


async def print_requests(run: RequestSource, work: Awaitable[Result], *, output: TextIO | None = None) -> Result:
    """Print the requests for feedback of a run, with the ways to answer them, until `work` is done.

    Args:
        output: stderr by default.

    Returns:
        The result of the work.
    """

    async def follow() -> None:
        async with aclosing(run.events()) as events:
            async for event in events:
                if isinstance(event, FeedbackRequested) and event.is_open:
                    print(request_text(event.request), file=output or sys.stderr, flush=True)

    follower = asyncio.create_task(follow())
    try:
        return await work
    finally:
        follower.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await follower


def request_text(request: FeedbackRequest) -> str:
    """Return the text that describes a request, and how to answer it from another terminal or program."""
    option, argument = _ANSWERS.get(request.type, _TEXT_ANSWER)
    choices_text = f" {[choice.get('id') if isinstance(choice, dict) else choice for choice in request.options or ()]}"
    return (
        f"the run {request.run_id!r} waits for a person: {request.prompt[:_MAX_PROMPT_CHARACTERS]}"
        f"{choices_text if request.options else ''}\n"
        f"  in another terminal: dagwright feedback {request.run_id} {request.request_id} {option}\n"
        f'  in another program:  client.get_run("{request.run_id}").feedback("{request.request_id}", {argument})'
    )
