"""The processes of a benchmark: Dagwright's server, two default servers, and a worker of each kind."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from temporalio.client import Client
from temporalio.service import RPCError

from benchmarks import tools
from dagwright.client.runs import Runs, namespace_runs
from dagwright.server import Connection, LocalServer
from dagwright.server.binary import get_binary
from dagwright.server.local import dial
from dagwright.server.namespace import register_search_attributes
from dagwright.settings import Settings
from tests.support.ports import free_port

BASELINE_QUEUE = "hand-written:workflows"
"""Queue of the hand-written workflows. Its name is as long as the queue name that Dagwright derives from `TOOLS_FILE`,
because each activity event contains the name of its queue, and the sizes of histories are compared."""
ONE_QUEUE = "one-queue"
"""Queue of the Dagwright worker that serves workflows and tools on one queue."""

TOOLS_FILE = str(Path(tools.__file__).resolve())

_ROOT = Path(__file__).resolve().parent.parent
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 15.0
_UNSET_VARIABLES = (
    "TEMPORAL_ADDRESS",
    "TEMPORAL_NAMESPACE",
    "TEMPORAL_PROFILE",
    "TEMPORAL_API_KEY",
    "TEMPORAL_CONFIG_FILE",
)


@dataclass(frozen=True, slots=True)
class Bench:
    """The servers and clients of the rows.

    Args:
        client: client of Dagwright's server, which Dagwright's runs and the baseline share.
        connection: connection to the same server.
        one_queue_runs: starts Dagwright runs on that server, with the tools on the queue of the workflows.
        own_queue_runs: starts Dagwright runs on that server, with the tools on a queue of their own, as for `--tools`.
        default_client: client of a default server with its database in a file, and a baseline worker.
        in_memory_client: client of a default server with its database in memory, and a baseline worker.
        settings: settings of Dagwright's server, with a temporary state folder.
    """

    client: Client
    connection: Connection
    one_queue_runs: Runs
    own_queue_runs: Runs
    default_client: Client
    in_memory_client: Client
    settings: Settings


@asynccontextmanager
async def open_bench(folder: Path) -> AsyncIterator[Bench]:
    """Run three servers and five workers inside the block, with their state in a folder."""
    settings = Settings(state_dir=folder / "state")
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(LocalServer(settings).hold())
        client = await dial(server.address)
        missing_attributes = await register_search_attributes(client)
        default_address = await stack.enter_async_context(
            _default_server(settings, "--db-filename", str(folder / "default.db"))
        )
        in_memory_address = await stack.enter_async_context(_default_server(settings))
        workers = {
            "own-queue": ["worker.py", "--tools", TOOLS_FILE],
            "one-queue": ["-m", "benchmarks.one_queue_worker", server.address],
            "hand-written": ["-m", "benchmarks.baseline_worker", server.address],
            "hand-written-default": ["-m", "benchmarks.baseline_worker", default_address],
            "hand-written-in-memory": ["-m", "benchmarks.baseline_worker", in_memory_address],
        }
        for name, command in workers.items():
            log = folder / f"{name}.log"
            await stack.enter_async_context(run_process([*python_command(settings), *command], log=log))
        connection = Connection(client, server, missing_attributes)
        one_queue_runs = runs_on(connection, settings, queue=ONE_QUEUE)
        own_queue_runs = namespace_runs(connection, settings)
        default_client, in_memory_client = await dial(default_address), await dial(in_memory_address)
        yield Bench(client, connection, one_queue_runs, own_queue_runs, default_client, in_memory_client, settings)


class KillableWorker:
    """A worker process that can be killed and restarted."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command = command
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the worker unless it is running; several engines may share a worker."""
        if self._process is not None and self._process.returncode is None:
            return
        with self._log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, cwd=_ROOT
            )

    async def kill(self) -> None:
        """Kill the worker with SIGKILL."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    def peak_gb(self) -> float:
        """Return the peak memory of the worker, in 10^9 bytes."""
        return _memory_bytes(self.pid, "VmHWM:") / 1e9

    @property
    def pid(self) -> int:
        """Process ID of the worker."""
        assert self._process is not None
        return self._process.pid

    def cpu_s(self) -> float:
        """Return the CPU time of the worker, in seconds."""
        return cpu_s(self.pid)

    async def kill_and_start_again(self) -> None:
        """Kill the worker with SIGKILL and restart it at once."""
        await self.kill()
        await self.start()


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process, in seconds."""
    user, system, *_ = _cpu_ticks(pid)
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _cpu_ticks(pid: int) -> list[str]:
    """Return the user and system time of a process and of its ended children, in ticks of the clock."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    # The times are the 12th to 15th fields after the program name. The program name may contain spaces.
    return stat.rpartition(")")[2].split()[11:15]


def children_cpu_s(pid: int) -> float:
    """Return the CPU time of the children of a process, running and ended, in seconds."""
    running_children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    ended_ticks = sum(map(int, _cpu_ticks(pid)[2:]))
    return ended_ticks / os.sysconf("SC_CLK_TCK") + sum(map(_cpu_s_or_zero, running_children))


def _cpu_s_or_zero(pid: str) -> float:
    try:
        return cpu_s(int(pid))
    except FileNotFoundError:
        return 0.0


def rss_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    return _memory_bytes(pid, "VmRSS:")


def _memory_bytes(pid: int, field: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith(field))) * 1024


@asynccontextmanager
async def run_killable_worker(bench: Bench, queue: str) -> AsyncIterator[KillableWorker]:
    """Run a worker for the tools and workflows on a queue inside the block."""
    address = bench.connection.server.address
    command = [*python_command(bench.settings), "-m", "benchmarks.one_queue_worker", address, queue]
    worker = KillableWorker(command, bench.settings.state_dir.parent / f"{queue}.log")
    await worker.start()
    try:
        yield worker
    finally:
        await worker.kill()


def runs_on(connection: Connection, settings: Settings, *, queue: str) -> Runs:
    """Return a client for runs on a queue."""
    return namespace_runs(connection, settings.model_copy(update={"task_queue": queue}))


def python_command(settings: Settings) -> list[str]:
    """Return the first words of a command that runs Python with the bench's state folder."""
    unset_options = [part for name in _UNSET_VARIABLES for part in ("-u", name)]
    return [
        "env",
        *unset_options,
        f"DAGWRIGHT_STATE_DIR={settings.state_dir}",
        "DAGWRIGHT_LOG_LEVEL=warning",
        sys.executable,
    ]


@asynccontextmanager
async def run_process(command: Sequence[str], *, log: Path) -> AsyncIterator[None]:
    """Run a process inside the block; if it exits early, print the end of its log."""
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, cwd=_ROOT
        )
    try:
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        else:
            last_output = log.read_text(encoding="utf-8", errors="replace")[-2000:]
            sys.stderr.write(f"{log.stem} had ended with exit code {process.returncode}:\n{last_output}\n")
        try:
            await asyncio.wait_for(process.wait(), timeout=_STOP_TIMEOUT_S)
        except TimeoutError:
            process.kill()
            await process.wait()


@asynccontextmanager
async def _default_server(settings: Settings, *options: str) -> AsyncIterator[str]:
    """Run `temporal server start-dev` with default settings except for its port and database."""
    binary = await get_binary(settings.cache_home, preferred_version=None)
    port = free_port()
    address = f"127.0.0.1:{port}"
    command = [str(binary.path), "server", "start-dev", "--headless", "--port", str(port), *options]
    async with run_process(command, log=settings.state_dir.parent / f"default-{port}.log"):
        async with asyncio.timeout(_START_TIMEOUT_S):
            await _wait_for_response(address)
        yield address


async def _wait_for_response(address: str) -> None:
    while True:
        try:
            await (await dial(address)).count_workflows()
            return
        except (RuntimeError, RPCError):
            await asyncio.sleep(0.1)
