"""Processes that are killed in the middle of a run: workers and their server."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.client import Client

from dagwright.core.boundary import wire
from dagwright.core.boundary.limits import WORKFLOW_TASK_S
from dagwright.core.model.tools import ToolDeclaration
from dagwright.plans.pages import split_for_transfer
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.protocol.run_input import RunInput, run_input_to_json
from dagwright.settings import Settings
from dagwright.testing import ModelServer
from dagwright.toolset.toolset import load_toolset
from tests.support.chaos_tools import FOLDER_VARIABLE, value_of
from tests.support.eventually import eventually
from tests.support.programs import RunningProcess, start_program
from tests.support.runs import Handle, document_of
from tests.support.server import LiveServer

ROOT = Path(__file__).parents[2]
TOOLS_FILE = Path(__file__).with_name("chaos_tools.py")
# Programs of workers, and of a command line. Their modules describe how they differ from `worker.py` and `starter.py`.
WRONG_WORKER = Path(__file__).with_name("wrong_worker.py")
SHORT_HEARTBEAT_WORKER = Path(__file__).with_name("short_heartbeat_worker.py")
HELD_WORKER = Path(__file__).with_name("held_worker.py")
SHORT_LEASE_WORKER = Path(__file__).with_name("short_lease_worker.py")
DYING_WORKER = Path(__file__).with_name("dying_worker.py")
HELD_STARTER = Path(__file__).with_name("held_starter.py")

_EXIT_S = 60.0
STARTED_LOG_TEXT = '"worker started"'

RETRY = {"max_attempts": 10, "first_delay": "100ms", "factor": 1.0}
"""Retry policy of nodes whose worker dies, with short delays."""


def effect_node(name: str, *dependencies: str, heartbeat: str = "1s") -> dict[str, Any]:
    """Return a node that has an effect, then waits at a fault point, and is retried if its worker dies.

    Args:
        heartbeat: heartbeat timeout. On a busy machine, 1 s may be too short for the calls of a running worker.
    """
    call = {"id": name, "tool": "effect_then_hold", "arguments": {"name": name}}
    return {**call, "depends_on": [*dependencies], "retry": RETRY, "heartbeat": heartbeat}


def environment_of(address: str, folder: Path) -> dict[str, str]:
    """Return the environment of the processes that share a server, a payload store and the folder of the tools."""
    return {
        **os.environ,
        "TEMPORAL_ADDRESS": address,
        "DAGWRIGHT_STATE_DIR": str(folder / "state"),
        "PYTHONPATH": str(ROOT),
        "DAGWRIGHT_LOG_FORMAT": "json",
        FOLDER_VARIABLE: str(folder),
    }


def model_environment(server: ModelServer) -> dict[str, str]:
    """Return the environment of processes that call a scripted model."""
    return {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "key", "DAGWRIGHT_MODEL": "small"}


class WorkerProcess:
    """A process of a worker, which a test can kill and start again. The test and the tools share `folder`."""

    def __init__(
        self,
        address: str,
        folder: Path,
        *,
        environment: dict[str, str] | None = None,
        program: Path = ROOT / "worker.py",
    ) -> None:
        self._folder = folder
        self._program = program
        self._environment = {**environment_of(address, folder), **(environment or {})}
        self._process: RunningProcess | None = None

    @property
    def log(self) -> str:
        """Output of the worker so far."""
        return (self._folder / "worker.log").read_text(errors="replace")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def memory_mb(self) -> float:
        """Current memory of the worker, in 10^6 bytes."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="utf-8")
        resident_kb = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(resident_kb) * 1024 / 1e6

    async def start(self) -> None:
        """Start the worker; runs continue as soon as it polls."""
        program, options = (str(self._program),), ("--tools", str(TOOLS_FILE))
        with (self._folder / "worker.log").open("ab") as log:
            self._process = await start_program(
                program, options, folder=ROOT, environment=self._environment, stdout=log, stderr=log
            )

    async def start_and_wait_until_ready(self) -> None:
        start_count = self.log.count(STARTED_LOG_TEXT)
        await self.start()
        await eventually(lambda: self.log.count(STARTED_LOG_TEXT) > start_count)

    async def kill(self) -> None:
        assert self._process is not None
        assert self._process.returncode is None, self.log
        self._process.send_signal(signal.SIGKILL)
        await self._process.wait()

    async def restart(self) -> None:
        """Kill the worker and start it again immediately."""
        await self.kill()
        await self.start()

    async def wait_for_death(self) -> None:
        assert self._process is not None
        await asyncio.wait_for(self._process.wait(), _EXIT_S)

    async def stop(self) -> None:
        if self._process is None or self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), _EXIT_S)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def worker_process(
    address: str, folder: Path, *, environment: dict[str, str] | None = None, program: Path = ROOT / "worker.py"
) -> AsyncIterator[WorkerProcess]:
    process = WorkerProcess(address, folder, environment=environment, program=program)
    await process.start()
    try:
        yield process
    finally:
        await process.stop()


class FaultPoints:
    """Hold tools at fault points, and detect when a tool reaches its point."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def hold(self, name: str) -> None:
        (self._folder / f"hold-{name}").touch()

    def release(self, name: str) -> None:
        (self._folder / f"hold-{name}").unlink(missing_ok=True)

    async def wait_for_point(self, name: str) -> None:
        await eventually((self._folder / f"reached-{name}").exists)

    def forget(self, name: str) -> None:
        """Forget that a tool has reached the point, to detect when a tool reaches it again."""
        (self._folder / f"reached-{name}").unlink(missing_ok=True)


@asynccontextmanager
async def killed_at(point: str, points: FaultPoints, worker: WorkerProcess) -> AsyncIterator[None]:
    """Kill a worker at a fault point; at the end of the block, release the point and start the worker again."""
    await points.wait_for_point(point)
    await worker.kill()
    yield
    points.release(point)
    await worker.start()


async def start_workflow(
    client: Client, run_input: RunInput, *, run_id: str, workflow_type: str = wire.WORKFLOW_RUN_PLAN
) -> Handle:
    """Start a workflow with the workflow task timeout of the command line.

    With the default of the server, a run would wait 10 s after its worker was killed in a workflow task.
    """
    return await client.start_workflow(
        workflow_type,
        run_input_to_json(run_input),
        id=run_id,
        task_queue=wire.DEFAULT_TASK_QUEUE,
        task_timeout=timedelta(seconds=WORKFLOW_TASK_S),
    )


async def start_run(
    client: Client,
    plan: Any,
    *,
    run_id: str,
    foreign_tools: Mapping[str, ToolDeclaration] | None = None,
    **options: Any,
) -> Handle:
    """Start a run of a plan. `foreign_tools` are tools of workers that do not use Dagwright."""
    toolset = load_toolset(Settings(), [str(TOOLS_FILE)])
    compiled_plan = prepare_plan(check_plan(plan, {**toolset.declarations(), **(foreign_tools or {})}), {})
    return await start_workflow(client, RunInput(compiled=compiled_plan, **options), run_id=run_id)


async def start_large_run(client: Client, plan: Any, *, run_id: str, folder: Path) -> Handle:
    """Start a run of a plan as the command `run` does: a large plan goes into the payload store."""
    toolset = load_toolset(Settings(state_dir=folder / "state"), [str(TOOLS_FILE)])
    compiled_plan = prepare_plan(check_plan(plan, toolset.declarations()), {})
    transfer = await split_for_transfer(compiled_plan, toolset.store)
    return await start_workflow(client, RunInput(compiled=transfer.plan, pages=transfer.pages), run_id=run_id)


async def result_within(handle: Handle, seconds: float) -> dict[str, Any]:
    """Return the document of a run with any status; raise TimeoutError if the run does not end in time."""
    async with asyncio.timeout(seconds):
        return await document_of(handle)


async def restart_server(server: LiveServer) -> None:
    await server.kill()
    await server.start()


def random_graph(size: int, *, seed: int) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a random plan whose nodes use values of other nodes, and the expected value of every node."""
    generator = random.Random(seed)
    nodes: list[dict[str, Any]] = []
    values: dict[str, str] = {}
    for number in range(size):
        name = f"n{number}"
        dependencies = sorted(generator.sample(range(number), min(number, generator.randint(0, 3))))
        tool = "effect_then_hold" if number % 10 == 9 else "compute"
        dependency_ids = [f"n{dependency}" for dependency in dependencies]
        arguments: dict[str, Any] = {"name": name}
        if tool == "compute":
            arguments["values"] = [f"{{{{{dependency_id}.result}}}}" for dependency_id in dependency_ids]
            values[name] = value_of(name, [values[dependency_id] for dependency_id in dependency_ids])
        else:
            values[name] = name
        node = {"id": name, "tool": tool, "arguments": arguments, "retry": RETRY, "heartbeat": "2s"}
        nodes.append(node if tool == "compute" else {**node, "depends_on": dependency_ids})
    return {"nodes": nodes, "output": {name: f"{{{{{name}.result}}}}" for name in values}}, values
