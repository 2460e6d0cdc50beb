"""Send messages to runs: as updates, which report at once whether the run accepts them, or else as signals.

If no worker handles an update in time, the signal adds the message to the history of the run, and the run applies it as
soon as a worker is available.
"""

import asyncio
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError
from temporalio.service import RPCError, RPCStatusCode

from dagwright.core.errors import DagwrightError
from dagwright.history.executions import RunClosed
from dagwright.protocol.command_messages import COMMAND_ID
from dagwright.protocol.commands import CommandHandler
from dagwright.protocol.notes import Notes

if TYPE_CHECKING:
    from dagwright.history.run_reader import RunReader
    from dagwright.history.run_view import RunView


@dataclass(frozen=True, slots=True)
class MessageKind:
    """A kind of message to a run, such as an answer.

    Args:
        update, signal: names of the update and of the signal.
        subject: the message as the subject of a sentence, such as `the answer`.
        error_class: class of the error that is raised if the run rejects the message.
    """

    update: str
    signal: str
    subject: str
    error_class: type[DagwrightError]


async def send_message(
    handle: WorkflowHandle[Any, Any],
    kind: MessageKind,
    message: Mapping[str, Any],
    *,
    reader: "RunReader",
    timeout_s: float,
) -> str:
    """Send a message to a run; return the run's reply, or a sentence that reports that a signal was sent.

    Args:
        reader: reader of the run, which is used if the message is sent as a signal.
        timeout_s: seconds to wait for a worker before the message is sent as a signal.

    Raises:
        DagwrightError: the run rejects the message; the class of the error is `kind.error_class`.
        RunClosed: the run has ended.
        RPCError: there is no such run, or the server rejects the message.
    """
    command_id = uuid4().hex
    message = {**message, COMMAND_ID: command_id}
    reply = await _send_as_update(handle, kind, message, timeout_s=timeout_s)
    if reply is not None:
        return reply
    view = await reader.read()
    if view.has_accepted_command(command_id):
        # A worker has handled the update late.
        return _accepted_reply(kind.subject)
    if view.is_closed:
        raise RunClosed(f"the run {handle.id!r} has ended")
    if (rejection := _expected_rejection(view, kind.signal, message)) is not None:
        raise kind.error_class(rejection)
    await handle.signal(kind.signal, message)
    view = await reader.read()
    if view.has_accepted_command(command_id):
        return _accepted_reply(kind.subject)
    # Another client may have sent a message since the history was read.
    if (rejection := rejection_of_pending_signal(view, kind.signal, message)) is not None:
        raise kind.error_class(rejection)
    return _signal_reply(kind.subject, handle.id, timeout_s=timeout_s)


async def _send_as_update(
    handle: WorkflowHandle[Any, Any],
    kind: MessageKind,
    message: Mapping[str, Any],
    *,
    timeout_s: float,
) -> str | None:
    """Send an update and return the run's reply; `None` if no worker handled the update in time."""
    update_task = asyncio.create_task(handle.execute_update(kind.update, message))
    # A cancelled update fails later, when no caller awaits it. Retrieve the error, so that asyncio does not log it.
    update_task.add_done_callback(lambda task: task.cancelled() or task.exception())
    try:
        ended_tasks, _ = await asyncio.wait([update_task], timeout=timeout_s)
        if not ended_tasks:
            return None
        response = update_task.result()
    except WorkflowUpdateFailedError as error:
        raise kind.error_class(str(getattr(error.cause, "message", None) or error.cause)) from None
    except RPCError as error:
        # A run accepts a limited number of concurrent updates, and of updates in total.
        if error.status is not RPCStatusCode.RESOURCE_EXHAUSTED:
            raise
        return None
    finally:
        update_task.cancel()
    reply = response.get("message") if isinstance(response, dict) else None
    return str(reply or _accepted_reply(kind.subject))


def _accepted_reply(subject: str) -> str:
    return f"the run accepted {subject}"


def _signal_reply(subject: str, run_id: str, *, timeout_s: float) -> str:
    """Return the reply for a message sent as a signal: why it is a signal, and when the run applies it."""
    return (
        f"no worker responded within {timeout_s:g} s, so {subject} was sent as a signal; it is applied as soon as a "
        f"worker serves the run; `dagwright watch {shlex.quote(run_id)}` starts a worker"
    )


def _expected_rejection(view: "RunView", name: str, message: Mapping[str, Any]) -> str | None:
    """Apply the pending signals to a copy of the run; return why the run would then reject this signal.

    Returns:
        `None` if the run would accept the signal.
    """
    handler = CommandHandler(Notes())
    # The scheduler is not shared, so it can be changed here.
    for at, pending_name, read_message in view.pending_commands():
        handler.handle(pending_name, read_message, source="signal", scheduler=view.scheduler, at=at)
    return handler.rejection_of(name, lambda: message, scheduler=view.scheduler, at=time.time())


def rejection_of_pending_signal(view: "RunView", name: str, message: Mapping[str, Any]) -> str | None:
    """Apply the earlier pending signals to a copy of the run; return why the run would reject this pending signal.

    Returns:
        `None` if the run would accept the signal, or if a worker has handled the signal already.
    """
    handler = CommandHandler(Notes())
    for at, pending_name, read_message in view.pending_commands():
        result = handler.handle(pending_name, read_message, source="signal", scheduler=view.scheduler, at=at)
        if (pending_name, read_message()) == (name, message):
            return result.rejection
    return None
