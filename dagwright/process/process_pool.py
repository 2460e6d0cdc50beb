"""Run functions in separate processes, which are killed when their results are no longer needed.

A thread cannot be stopped, and holds the interpreter lock. Work whose cost depends on a caller, such as the check
of a plan of several megabytes, therefore runs in this pool: the work takes no time from the event loop and the
heartbeats of this process, and a timeout or a cancelled request really frees the CPU. The address space of each
process is limited to `MEMORY_BYTES`.

    ProcessLost         the process ended without a result, for example because it reached its memory limit
"""

import asyncio
import json
import os
import pickle
import resource
import signal
import struct
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_PROCESS_COUNT = 2
"""Default number of processes, each for one function. More processes would only take CPU time from runs."""
MEMORY_BYTES = 2 * 1024**3
"""Maximum address space of a process; checks of the largest plans (8 MiB) use up to 0.45 GiB of it."""
_OUT_OF_MEMORY_EXIT_CODE = 71
_NICENESS = 5
"""A pool process gives way to the processes that execute runs and serve requests."""
_LENGTH_HEADER = struct.Struct(">Q")
"""Header of each message: its length in bytes. Messages are pickles, because both processes run this module."""
_CHILD_PROGRAM = (
    "import sys; from json import loads; sys.path[:] = loads(sys.argv[1]); "
    "from dagwright.process.process_pool import serve; serve()"
)
"""Program of a pool process. Python runs the program with `-I`, so that neither the current folder nor variables affect
imports."""


class ProcessLost(Exception):
    """The process of a function ended without a result."""


@dataclass(slots=True)
class ProcessPool:
    """A few processes, started on demand and reused; `close` kills them.

    Args:
        timeout_s: running time after which the process of a function is killed.
        size: maximum number of processes.
    """

    timeout_s: float
    size: int = DEFAULT_PROCESS_COUNT
    _idle_processes: list[Process] = field(default_factory=list)
    _busy_processes: set[Process] = field(default_factory=set)
    _slots: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.size)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a module-level function; on cancellation, the process of the function is killed.

        Args:
            args: must be picklable, like the result.

        Raises:
            Exception: the exception of the function.
            TimeoutError: the function exceeds the timeout.
            ProcessLost: the process ended without a result.
        """
        request = await asyncio.to_thread(pickle.dumps, (function, args, kwargs))
        async with self._slots, asyncio.timeout(self.timeout_s):
            response = await self._run_request(request)
        is_result, value = await asyncio.to_thread(pickle.loads, response)
        if is_result:
            return value  # type: ignore[no-any-return]
        raise value

    async def _run_request(self, request: bytes) -> bytes:
        idle_process = self._take_idle_process()
        if idle_process is not None:
            # An idle process may have ended, for example because the machine was out of memory.
            with suppress(ProcessLost):
                return await self._run_in(idle_process, request)
        return await self._run_in(await _start_process(), request)

    def _take_idle_process(self) -> Process | None:
        while self._idle_processes:
            process = self._idle_processes.pop()
            if process.returncode is None:
                return process
        return None

    async def _run_in(self, process: Process, request: bytes) -> bytes:
        self._busy_processes.add(process)
        try:
            response = await _send_and_receive(process, request)
        except BaseException:
            await _kill(process)
            raise
        finally:
            self._busy_processes.discard(process)
        self._idle_processes.append(process)
        return response

    async def close(self) -> None:
        """Kill all processes."""
        await asyncio.gather(*map(_kill, [*self._idle_processes, *self._busy_processes]))
        self._idle_processes.clear()


async def _start_process() -> Process:
    command = [sys.executable, "-I", "-c", _CHILD_PROGRAM, json.dumps(sys.path)]
    # In a separate session: Ctrl-C in the terminal ends this process, which then ends the child.
    return await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, start_new_session=True)


async def _send_and_receive(process: Process, request: bytes) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(_LENGTH_HEADER.pack(len(request)) + request)
        await process.stdin.drain()
        (length,) = _LENGTH_HEADER.unpack(await process.stdout.readexactly(_LENGTH_HEADER.size))
        return await process.stdout.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise ProcessLost("the process ended without a result") from error


async def _kill(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await asyncio.shield(process.wait())


def serve() -> None:
    """Run the functions received on standard input until it is closed: the main function of a pool process."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.nice(_NICENESS)
    _limit_memory()
    requests = os.fdopen(os.dup(0), "rb")
    results = os.fdopen(os.dup(1), "wb")
    # The output of a function must not mix with the results.
    os.dup2(2, 1)
    while (head := requests.read(_LENGTH_HEADER.size)) and len(head) == _LENGTH_HEADER.size:
        (length,) = _LENGTH_HEADER.unpack(head)
        _execute(requests.read(length), results)


def _limit_memory() -> None:
    _, hard_limit = resource.getrlimit(resource.RLIMIT_AS)
    limit = MEMORY_BYTES if hard_limit == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard_limit)
    # macOS does not support a limit of the address space.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard_limit))


def _execute(request: bytes, results: BinaryIO) -> None:
    try:
        function, args, kwargs = pickle.loads(request)
        response = pickle.dumps((True, function(*args, **kwargs)))
    except MemoryError:
        # The process is no longer usable: the caller receives ProcessLost.
        os._exit(_OUT_OF_MEMORY_EXIT_CODE)
    # The outermost handler of the process: each error is returned to the caller.
    except Exception as error:
        response = _encode_error(error)
    results.write(_LENGTH_HEADER.pack(len(response)) + response)
    results.flush()


def _encode_error(error: Exception) -> bytes:
    """Pickle an error. An error that cannot be pickled and loaded again becomes a `RuntimeError`."""
    try:
        response = pickle.dumps((False, error))
        pickle.loads(response)
    except Exception:
        return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))
    return response
