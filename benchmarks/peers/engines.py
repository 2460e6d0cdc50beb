"""The compared engines: each runs a graph by name, and its processes can be killed and started again."""

import asyncio
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowHandle

from benchmarks.peers import graphs
from benchmarks.peers.plans import plan_of
from benchmarks.peers.temporal_graphs import QUEUE, WORKFLOWS
from benchmarks.processes import KillableWorker, cpu_s
from dagwright.client.runs import Runs
from dagwright.client.starts import StartRequest
from dagwright.core.boundary.limits import WORKFLOW_TASK_S
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.tools import ToolDeclaration
from dagwright.plans.preparation import check_plan, prepare_plan

_ROOT = Path(__file__).resolve().parents[2]
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Seconds from the start of a run to its result, and the result."""

    seconds: float
    result: int


class Engine(ABC):
    """An engine with running processes.

    Args:
        name: name in the table.
        ledger: file to which the steps with effects append.
    """

    def __init__(self, name: str, ledger: Path) -> None:
        self.name = name
        self.ledger = ledger

    @abstractmethod
    async def run(self, graph: str, run_id: str) -> Outcome:
        """Run a graph to its result."""

    @abstractmethod
    async def resume(self, run_id: str) -> Outcome:
        """Return the result of a chain of effects whose process was killed and started again."""

    @abstractmethod
    async def kill(self) -> None:
        """Send SIGKILL to the process that runs the steps."""

    @abstractmethod
    async def start(self) -> None:
        """Start the process that runs the steps."""

    @abstractmethod
    def cpu_s(self) -> float:
        """Return the CPU time of all processes that take part, in seconds."""


class TemporalEngine(Engine):
    """An engine on Dagwright's local Temporal server.

    Args:
        client: client of the server.
        server_pid: process ID of the server.
    """

    def __init__(self, name: str, ledger: Path, *, client: Client, server_pid: int, worker: KillableWorker) -> None:
        super().__init__(name, ledger)
        self._client = client
        self._server_pid = server_pid
        self._worker = worker

    async def resume(self, run_id: str) -> Outcome:
        started_at = time.perf_counter()
        result = await asyncio.wait_for(self._client.get_workflow_handle(run_id).result(), _TIMEOUT_S)
        return Outcome(time.perf_counter() - started_at, self._value_of(result))

    async def kill(self) -> None:
        await self._worker.kill()

    async def start(self) -> None:
        await self._worker.start()

    def cpu_s(self) -> float:
        return time.process_time() + self._worker.cpu_s() + cpu_s(self._server_pid)

    def _value_of(self, result: Any) -> int:
        return int(result)


class HandWrittenEngine(TemporalEngine):
    """The graphs as hand-written workflows."""

    async def run(self, graph: str, run_id: str) -> Outcome:
        arguments = [str(self.ledger)] if graph == graphs.EFFECT_CHAIN else []
        started_at = time.perf_counter()
        handle: WorkflowHandle[Any, Any] = await self._client.start_workflow(
            WORKFLOWS[graph].run,
            args=arguments,
            id=run_id,
            task_queue=QUEUE,
            task_timeout=timedelta(seconds=WORKFLOW_TASK_S),
        )
        result = await asyncio.wait_for(handle.result(), _TIMEOUT_S)
        return Outcome(time.perf_counter() - started_at, self._value_of(result))


class DagwrightEngine(TemporalEngine):
    """The graphs as compiled plans.

    Args:
        runs: client of the runs.
        tools: declarations of the tools.
        prefix: prefix of the tool names in the plans.
    """

    def __init__(
        self,
        name: str,
        ledger: Path,
        *,
        runs: Runs,
        tools: Mapping[str, ToolDeclaration],
        prefix: str,
        **temporal_options: Any,
    ) -> None:
        super().__init__(name, ledger, **temporal_options)
        self._runs = runs
        self._plans: dict[str, CompiledPlan] = {
            graph: prepare_plan(check_plan(plan_of(graph, prefix=prefix, ledger=str(ledger)), tools), {})
            for graph in WORKFLOWS
        }

    async def run(self, graph: str, run_id: str) -> Outcome:
        started_at = time.perf_counter()
        started_run = await self._runs.start(StartRequest(self._plans[graph], run_id=run_id))
        handle = self._client.get_workflow_handle(started_run.run_id)
        document = await asyncio.wait_for(handle.result(), _TIMEOUT_S)
        return Outcome(time.perf_counter() - started_at, self._value_of(document))

    def _value_of(self, result: Any) -> int:
        return int(result["output"])


class EmbeddedEngine(Engine):
    """An engine in a process with a separate virtual environment. The process reads requests and writes responses."""

    def __init__(self, name: str, ledger: Path, command: Sequence[str]) -> None:
        super().__init__(name, ledger)
        self._command = command
        self._log_path = ledger.parent / "log"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self._log_path.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log, cwd=_ROOT
            )
        await self._read()

    async def run(self, graph: str, run_id: str) -> Outcome:
        return await self._request({"graph": graph, "id": run_id})

    async def resume(self, run_id: str) -> Outcome:
        return await self._request({"graph": graphs.EFFECT_CHAIN, "id": run_id, "resume": True})

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    def cpu_s(self) -> float:
        assert self._process is not None
        return cpu_s(self._process.pid)

    async def _request(self, request: dict[str, object]) -> Outcome:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        response = await self._read()
        return Outcome(response["seconds"], response["result"])

    async def _read(self) -> Any:
        assert self._process is not None
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), _TIMEOUT_S)
        if not line:
            last_output = self._log_path.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise RuntimeError(f"{self.name} ended:\n{last_output}")
        return json.loads(line)
