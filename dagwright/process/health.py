"""Liveness and readiness of a process: `/livez` and `/readyz`, for orchestrators and load balancers.

`/livez` fails if the event loop does not respond: restart the process. `/readyz` fails if a dependency of the
process, such as Temporal, does not respond: send no work to the process, and do not restart it. The gateway serves both
endpoints from its event loop. A worker serves them from a thread, so a blocked event loop is reported instead of a mere
timeout.
"""

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

T = TypeVar("T")

LIVEZ, READYZ = "/livez", "/readyz"
LOOP_TIMEOUT_S = 5.0
"""An event loop without a step for this long is stuck; on a loaded machine a step may wait for 3 s."""
CHECK_TIMEOUT_S = 2.5
RESULT_MAX_AGE_S = 1.0
"""How long a result is reused, so that frequent probes do not cause more checks."""
RETRY_AFTER_S = 2
DRAINING = "draining"
"""Status of a process that was requested to stop and waits for running calls."""
_SHUTDOWN_S = 2.0

_LOG = structlog.stdlib.get_logger("dagwright.process.health")

Check = Callable[[], Awaitable[object]]
"""Raises an error if the check fails."""


class Readiness:
    """Runs the checks of a process; belongs to one event loop.

    Args:
        checks: name -> check.
        stop_event: set when the process starts to drain.
    """

    def __init__(self, checks: Mapping[str, Check], *, stop_event: asyncio.Event | None = None) -> None:
        self._stop_event = stop_event
        self._checks = checks
        self._lock = asyncio.Lock()
        self._checked_at = float("-inf")
        self._problems: dict[str, str] = {}

    @property
    def is_draining(self) -> bool:
        """Whether the process accepts no new work and waits for running calls."""
        return self._stop_event is not None and self._stop_event.is_set()

    async def problems(self) -> Mapping[str, str]:
        """Failed checks: name of the check -> reason."""
        async with self._lock:
            if time.monotonic() - self._checked_at >= RESULT_MAX_AGE_S:
                results = await asyncio.gather(*map(_run_check, self._checks.values()))
                problems = {
                    name: message for name, message in zip(self._checks, results, strict=True) if message is not None
                }
                self._log_changes(problems)
                self._problems, self._checked_at = problems, time.monotonic()
            return self._problems

    async def response(self) -> JSONResponse:
        """Return the response of `/readyz`, without reasons: callers need no API key. The reasons are logged."""
        headers = {"Retry-After": str(RETRY_AFTER_S)}
        if self.is_draining:
            return JSONResponse({"status": DRAINING}, status_code=503, headers=headers)
        problems = await self.problems()
        checks = {name: "failed" if name in problems else "ok" for name in self._checks}
        if not problems:
            return JSONResponse({"status": "ok", "checks": checks})
        return JSONResponse({"status": "unavailable", "checks": checks}, status_code=503, headers=headers)

    def _log_changes(self, problems: Mapping[str, str]) -> None:
        for name in self._checks:
            if name in problems and name not in self._problems:
                _LOG.warning("not ready", check=name, reason=problems[name])
            elif name in self._problems and name not in problems:
                _LOG.info("ready again", check=name)


async def _run_check(check: Check) -> str | None:
    """Return the reason why a check fails; `None` if it succeeds."""
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            await check()
    except TimeoutError:
        return f"no response within {CHECK_TIMEOUT_S:g} s"
    # The outermost handler of the probe: the error of a check is the reason that the probe logs.
    except Exception as error:
        return str(error) or type(error).__name__
    return None


@asynccontextmanager
async def serving_health(listener: socket.socket, readiness: Readiness) -> AsyncIterator[None]:
    """Serve `/livez` and `/readyz` of the running event loop from a thread until the block ends.

    Args:
        listener: an open socket; it is closed at the end.
    """
    config = uvicorn.Config(
        _app(asyncio.get_running_loop(), readiness),
        loop="asyncio",
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=round(_SHUTDOWN_S),
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=asyncio.run, args=(server.serve([listener]),), name="health", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        # With a timeout: the exit of the process ends the thread in any case.
        await asyncio.to_thread(thread.join, _SHUTDOWN_S + 1)
        listener.close()


def _app(loop: asyncio.AbstractEventLoop, readiness: Readiness) -> Starlette:
    """Return an application that checks `loop`. The application itself runs on another event loop."""

    async def livez(_: Request) -> JSONResponse:
        try:
            await _run_on(loop, asyncio.sleep(0))
        except TimeoutError:
            return _stuck_response()
        return JSONResponse({"status": "ok"})

    async def readyz(_: Request) -> JSONResponse:
        try:
            return await _run_on(loop, readiness.response())
        except TimeoutError:
            return _stuck_response()

    return Starlette(routes=[Route(LIVEZ, livez), Route(READYZ, readyz)])


async def _run_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on another event loop and return its result.

    Raises:
        TimeoutError: the other loop does not respond, or stops.
    """
    try:
        return await asyncio.wait_for(asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop)), LOOP_TIMEOUT_S)
    except RuntimeError as error:
        work.close()
        raise TimeoutError from error


def _stuck_response() -> JSONResponse:
    message = f"the event loop has not responded for {LOOP_TIMEOUT_S:g} s"
    return JSONResponse({"status": "stuck", "message": message}, status_code=503)
