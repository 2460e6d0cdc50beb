"""Functions in separate processes: results, errors, and killed processes."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dagwright.core.errors import PlanInvalid, Problem
from dagwright.process.process_pool import MEMORY_BYTES, ProcessLost, ProcessPool
from tests.support.eventually import eventually

pytestmark = pytest.mark.waits


def _write_pid_and_sleep(path: str, seconds: float) -> int:
    Path(path).write_text(str(os.getpid()), encoding="ascii")
    print("printed")  # noqa: T201 - the output must not be mixed with the results
    time.sleep(seconds)
    return os.getpid()


def _raise_plan_invalid() -> None:
    raise PlanInvalid([Problem("cycle", "no", "/nodes")], document={"nodes": 1})


def _exit() -> None:
    os._exit(3)


def _allocate_too_much_memory() -> int:
    return len(bytearray(MEMORY_BYTES))


def _exit_in_first_process(path: str) -> int:
    file = Path(path)
    with file.open("a", encoding="ascii") as calls:
        calls.write(f"{os.getpid()}\n")
    if len(file.read_text(encoding="ascii").splitlines()) == 1:
        os._exit(3)
    return os.getpid()


@pytest.fixture
async def pool() -> AsyncIterator[ProcessPool]:
    pool = ProcessPool(timeout_s=30.0, size=1)
    yield pool
    await pool.close()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_process_is_reused_and_ends_with_the_pool(pool: ProcessPool, tmp_path: Path) -> None:
    first_pid, second_pid = [await pool.run(_write_pid_and_sleep, str(tmp_path / "pid"), 0.0) for _ in range(2)]
    assert (first_pid == second_pid, first_pid != os.getpid(), _is_alive(first_pid)) == (True, True, True)
    await pool.close()
    assert not _is_alive(first_pid)


async def test_error_of_a_function_is_raised_and_a_process_that_died_is_replaced(pool: ProcessPool) -> None:
    with pytest.raises(PlanInvalid) as error:
        await pool.run(_raise_plan_invalid)
    assert (error.value.problems, error.value.document) == ((Problem("cycle", "no", "/nodes"),), {"nodes": 1})
    # A process ends when it needs more memory than its limit.
    for function in (_exit, _allocate_too_much_memory):
        with pytest.raises(ProcessLost):
            await pool.run(function)
        assert await pool.run(os.getpid)


async def test_idle_process_that_has_ended_is_replaced(pool: ProcessPool) -> None:
    first_pid = await pool.run(os.getpid)
    (idle_process,) = pool._idle_processes
    os.kill(first_pid, signal.SIGKILL)
    await idle_process.wait()
    assert await pool.run(os.getpid) != first_pid


async def test_function_is_repeated_once_when_its_reused_process_ends(pool: ProcessPool, tmp_path: Path) -> None:
    first_pid = await pool.run(os.getpid)
    calls_file = tmp_path / "calls"
    assert await pool.run(_exit_in_first_process, str(calls_file)) != first_pid
    assert [int(pid) == first_pid for pid in calls_file.read_text().splitlines()] == [True, False]


@pytest.mark.parametrize(("timeout_s", "error"), [(30.0, asyncio.CancelledError), (3.0, TimeoutError)])
async def test_process_is_killed_when_its_caller_is_cancelled_or_times_out(
    pool: ProcessPool, tmp_path: Path, timeout_s: float, error: type[BaseException]
) -> None:
    pid_file = tmp_path / "pid"
    pool.timeout_s = timeout_s
    run_task = asyncio.create_task(pool.run(_write_pid_and_sleep, str(pid_file), 60.0))
    await eventually(lambda: pid_file.exists() and bool(pid_file.read_text()))
    if error is asyncio.CancelledError:
        run_task.cancel()
    with pytest.raises(error):
        await run_task
    assert not _is_alive(int(pid_file.read_text()))
