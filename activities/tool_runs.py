"""Run the function of a tool once, as a task if the function is async, else in a thread; catch every exception.

A tool may raise anything (SystemExit, KeyboardInterrupt, StopIteration). On an event loop, these would end the worker
or be lost, so the function that calls the tool converts each exception to an `Outcome`.
"""

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import structlog
from temporalio import activity

from dagwright.activities.errors import WorkerStopped
from dagwright.process.event_loop import short_switch_interval
from dagwright.tools import ToolSpec
from dagwright.tools.context import Cancellation, ToolContext, active_context

_MAX_SHORT_SIZE = 1_000
"""Maximum size of a result that is encoded on the event loop: each value, and each 100 characters, counts 1."""
SHUTDOWN_WAIT_S = 5.0
"""How long a stopping worker waits for a tool after it has requested the tool to stop. The worker requests this when
Temporal's grace period is over."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a call: an encoded result or an error.

    Args:
        cpu_s: CPU time of the call's thread in seconds; `None` for a call without a thread.
        used_model: whether the tool called a model, so that an equal call may have another outcome.
    """

    result: bytes = b""
    error: BaseException | None = None
    cpu_s: float | None = None
    used_model: bool = False


@dataclass(frozen=True, slots=True)
class ToolRun:
    """One call of a tool, ready to run.

    Args:
        spec: the tool.
        keywords: the arguments of its function.
        context: the result of `context()` inside the tool.
        cancellation: the stop request for the tool.
        encode: encodes the function's return value as JSON, or raises.
        drain_s: returns how long the call may continue after its worker stops and cancels it.
    """

    spec: ToolSpec
    keywords: Mapping[str, Any]
    context: ToolContext
    cancellation: Cancellation
    encode: Callable[[Any], bytes]
    drain_s: Callable[[], float] = field(default=lambda: 0.0)


async def run_tool(run: ToolRun) -> Outcome:
    """Run a tool and return the outcome of the call.

    Raises:
        asyncio.CancelledError: the call was cancelled and the tool has stopped.
    """
    return await (_run_in_task(run) if run.spec.is_async else _run_in_thread(run))


async def _run_in_task(run: ToolRun) -> Outcome:
    task = asyncio.create_task(_await_function(run))
    if not await _wait_until_ended(task, run, stop=task.cancel):
        return Outcome(error=_worker_stopped_error())
    if run.cancellation.is_requested:
        # A result returned after the cancellation comes from the tool's clean-up, so it is ignored.
        error = None if task.cancelled() else task.result().error
        if error is not None:
            structlog.get_logger("dagwright.activities").warning(
                "clean-up of a cancelled tool failed", error=repr(error)
            )
        return _handle_cancellation()
    return task.result()


async def _run_in_thread(run: ToolRun) -> Outcome:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Outcome] = loop.create_future()
    context_copy = contextvars.copy_context()

    def work() -> None:
        with short_switch_interval:
            outcome = context_copy.run(_call_function, run)
        # The loop may be gone if the worker stopped without waiting for this thread.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_deliver, future, outcome)

    # Each call has a separate thread, so the activity slots of the worker limit the number of threads. The threads are
    # daemons, so that a hanging tool does not keep a stopped worker alive.
    threading.Thread(target=work, name=f"tool-{run.spec.name}", daemon=True).start()
    if not await _wait_until_ended(future, run, stop=lambda: None):
        return Outcome(error=_worker_stopped_error())
    if run.cancellation.was_noticed:
        return _handle_cancellation()
    # A tool that never checked for cancellation has done all its work, so its result is returned.
    return future.result()


async def _wait_until_ended(future: "asyncio.Future[Outcome]", run: ToolRun, *, stop: Callable[[], Any]) -> bool:
    """Wait for `future`; at the first cancellation, request that the tool stops. Return whether the tool ended.

    If the worker stops and the tool may continue, the stop request is delayed.
    """
    timeout_s: float | None = None
    is_draining = False
    while True:
        try:
            if timeout_s is None:
                # `shield` takes half the time of `asyncio.wait`, and this runs for every call.
                await asyncio.shield(future)
                return True
            done, _ = await asyncio.wait({future}, timeout=timeout_s)
            if done or not is_draining:
                return bool(done)
        except asyncio.CancelledError:
            if future.done():
                return True
            if _is_worker_stopping() and not run.cancellation.is_requested and (drain_s := run.drain_s()) > 0:
                structlog.get_logger("dagwright.activities").info(
                    "write continues while the worker stops", left_s=round(drain_s)
                )
                timeout_s, is_draining = drain_s, True
                continue
        is_draining = False
        if not run.cancellation.is_requested:
            run.cancellation.request()
            stop()
        if _is_worker_stopping():
            timeout_s = SHUTDOWN_WAIT_S


def _call_function(run: ToolRun) -> Outcome:
    assert run.spec.function is not None
    started_s = time.thread_time()
    try:
        with active_context(run.context):
            result = run.encode(run.spec.function(**run.keywords))
            return Outcome(result, cpu_s=time.thread_time() - started_s)
    except BaseException as error:
        return Outcome(error=error)


async def _await_function(run: ToolRun) -> Outcome:
    assert run.spec.function is not None
    try:
        with active_context(run.context):
            value = await run.spec.function(**run.keywords)
            if not _is_slow_to_encode(value):
                return Outcome(run.encode(value))
            # Encoding 100 MB takes seconds; on the event loop it would delay the heartbeats of all other calls.
            return Outcome(await asyncio.to_thread(run.encode, value))
    except asyncio.CancelledError as error:
        if run.cancellation.is_requested:
            raise
        # A task inside the tool was cancelled, not the call.
        return Outcome(error=error)
    except GeneratorExit:
        raise
    except BaseException as error:
        return Outcome(error=error)


def _is_slow_to_encode(value: Any) -> bool:
    """Estimate quickly whether encoding may block the event loop for milliseconds."""
    remaining_size, stack = _MAX_SHORT_SIZE, [value]
    while stack and remaining_size > 0:
        current_value = stack.pop()
        remaining_size -= 1
        if isinstance(current_value, str):
            remaining_size -= len(current_value) // 100
        elif isinstance(current_value, list | dict):
            if len(current_value) > remaining_size:
                return True
            stack += current_value.values() if isinstance(current_value, dict) else current_value
        elif not isinstance(current_value, int | float | None):
            # The value has another type, such as a pydantic model. Only an encoder knows the parts of the value.
            remaining_size -= _MAX_SHORT_SIZE // 10
    return remaining_size <= 0


def _deliver(future: "asyncio.Future[Outcome]", outcome: Outcome) -> None:
    if not future.done():
        future.set_result(outcome)


def _handle_cancellation() -> Outcome:
    if _is_worker_stopping():
        return Outcome(error=_worker_stopped_error())
    raise asyncio.CancelledError


def _is_worker_stopping() -> bool:
    details = activity.cancellation_details()
    return details is not None and details.worker_shutdown


def _worker_stopped_error() -> WorkerStopped:
    return WorkerStopped("The worker was stopped while the tool ran")
