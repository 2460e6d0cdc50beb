"""Some workers of one server, and the client that starts runs for them."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import KillableWorker, python_command
from benchmarks.workers import tools
from benchmarks.workers.effects import Document, effects_plan
from benchmarks.workers.networks import WorkerNetwork
from benchmarks.workers.production_server import ProductionServer
from dagwright.client.runs import Runs, namespace_runs
from dagwright.client.starts import StartRequest
from dagwright.core.model.compiled import CompiledPlan
from dagwright.history.run_reader import RunReader
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.server import Connection, Server
from dagwright.server.local import dial
from dagwright.server.namespace import register_search_attributes
from dagwright.settings import Settings, WorkerRole
from dagwright.toolset.toolset import load_toolset

TOOLS_FILE = str(Path(tools.__file__).resolve())
RUN_TIMEOUT_S = 180.0
_READY_TIMEOUT_S = 90.0


@dataclass(frozen=True, slots=True)
class Fleet:
    """Running workers.

    Args:
        workers: the workers.
        roles: role of each worker.
        connection: connection of the client.
        runs: starts runs for the workers.
        plan: the compiled plan of the runs.
        ledger: file to which the calls append their idempotency keys.
    """

    workers: Sequence[KillableWorker]
    roles: Sequence[WorkerRole]
    connection: Connection
    runs: Runs
    plan: CompiledPlan
    ledger: Path

    @property
    def tool_worker_count(self) -> int:
        """Return the number of workers that call tools."""
        return len(self.roles) - self.roles.count("workflows")

    @property
    def name(self) -> str:
        """Return the number of workers, with their roles if they differ."""
        counts = Counter(self.roles)
        return str(len(self.roles)) if len(counts) == 1 else ", ".join(f"{counts[role]} {role}" for role in counts)

    async def run(self) -> tuple[str, Document]:
        """Run the plan; return the ID of its first execution and its result document."""
        started_run = await self.runs.start(StartRequest(self.plan))
        handle = self.connection.client.get_workflow_handle(started_run.run_id)
        await asyncio.wait_for(handle.result(), RUN_TIMEOUT_S)
        return started_run.execution_id, (await RunReader(self.connection.client, started_run.run_id).read()).document()

    def entries(self) -> list[tuple[str, str]]:
        """Return the idempotency key and the process ID of each entry of the ledger."""
        lines = self.ledger.read_text(encoding="ascii").splitlines() if self.ledger.exists() else []
        return [(key, pid) for key, _, pid in (line.partition("\t") for line in lines)]

    async def warm_up(self) -> None:
        """Run plans until each tool worker has executed a call."""
        try:
            async with asyncio.timeout(_READY_TIMEOUT_S):
                while len(Counter(pid for _, pid in self.entries())) < self.tool_worker_count:
                    await asyncio.gather(*(self.run() for _ in range(2 * len(self.workers))))
        except TimeoutError as error:
            logs = [path.read_text(encoding="utf-8")[-500:] for path in sorted(self.ledger.parent.glob("*.log"))]
            raise RuntimeError(
                "\n".join([f"not all of {self.tool_worker_count} workers take calls:", *logs])
            ) from error
        self.ledger.unlink()


@asynccontextmanager
async def open_fleet(
    folder: Path, server: ProductionServer, networks: Sequence[WorkerNetwork], *, roles: Sequence[WorkerRole]
) -> AsyncIterator[Fleet]:
    """Run a worker in each network inside the block.

    Args:
        roles: role of each worker.
    """
    folder.mkdir()
    address, ledger = f"127.0.0.1:{server.port}", folder / "ledger"
    settings = Settings(state_dir=folder / "client", payload_store=str(_payloads(folder)))
    client = await dial(address)
    connection = Connection(
        client, Server(address, namespace=client.namespace), await register_search_attributes(client)
    )
    compiled_plan = prepare_plan(
        check_plan(effects_plan(str(ledger)), load_toolset(settings, [TOOLS_FILE]).declarations()), {}
    )
    workers = [
        _worker(folder, number, server.port, network, role=role)
        for number, (network, role) in enumerate(zip(networks, roles, strict=True))
    ]
    try:
        for worker in workers:
            await worker.start()
        yield Fleet(workers, roles, connection, namespace_runs(connection, settings), compiled_plan, ledger)
    finally:
        for worker in workers:
            await worker.kill()


def _payloads(folder: Path) -> Path:
    """Return the payload store, which all fleets share: a task queue has one store for its whole life."""
    return folder.parent / "payloads"


def _worker(folder: Path, number: int, port: int, network: WorkerNetwork, *, role: WorkerRole) -> KillableWorker:
    *environment, interpreter = python_command(Settings(state_dir=folder / f"state-{number}"))
    variables = [f"TEMPORAL_ADDRESS={network.host}:{port}", f"DAGWRIGHT_PAYLOAD_STORE={_payloads(folder)}"]
    variables.append(f"DAGWRIGHT_SERVE={role}")
    command = [*network.command, *environment, *variables, interpreter, "worker.py", "--tools", TOOLS_FILE]
    return KillableWorker(command, folder / f"worker-{number}.log")
