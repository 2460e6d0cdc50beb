"""Handles of the Python API for the runs of a test."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from dagwright.client.requests import TextRequest, TurnRequest, prepare_request, start_turn
from dagwright.client.run import Run
from dagwright.client.runs import Runs as StartedRuns
from dagwright.client.services import Services
from dagwright.client.sessions import Sessions
from dagwright.client.starts import StartRequest
from dagwright.client.steering import Steering
from dagwright.core.model.tools import ToolDeclaration
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.server import Connection, Server
from dagwright.settings import Settings
from dagwright.toolset.toolset import Toolset, load_toolset
from tests.support.runs import Handle, Runs, with_tools
from tests.support.tools import Bench


def services_of(runs: Runs, folder: Path) -> Services:
    """Return the use cases of a separate connection, as another process would have it.

    Args:
        folder: state folder of the client.
    """
    settings = Settings(state_dir=folder, task_queue=runs.task_queue)
    connection = Connection(runs.client, Server("nowhere", runs.client.namespace), frozenset())
    started = StartedRuns(connection, task_queue=runs.task_queue, store=runs.store)
    return Services(
        connection=connection,
        settings=settings,
        store=runs.store,
        runs=started,
        steering=Steering(connection),
        sessions=Sessions(connection, started, task_queue=runs.task_queue),
    )


class BenchTools:
    """Tools of a client whose worker has the tools of a bench."""

    def __init__(self, bench: Bench, services: Services) -> None:
        self._toolset = with_tools(
            load_toolset(services.settings), bench.registry(), queue=f"{services.settings.task_queue}-tools"
        )

    async def toolset(self) -> Toolset:
        return self._toolset


class PythonRuns:
    """Handles of runs, each with a separate client.

    Args:
        bench: tools that the clients know in addition to the built-in ones.
        folder: state folder of the clients.
    """

    def __init__(self, runs: Runs, bench: Bench, folder: Path) -> None:
        self.runs = runs
        self._bench = bench
        self._folder = folder

    def of(self, started: Handle | str) -> Run:
        """Return a handle of a client that shares only the server and the store with others."""
        services = services_of(self.runs, self._folder)
        run_id = started if isinstance(started, str) else started.id
        return Run(lambda: services, run_id, tools=BenchTools(self._bench, services))


class TurnClient:
    """A client that starts turns of sessions as `Client` does."""

    def __init__(self, runs: Runs, bench: Bench, folder: Path) -> None:
        self._services = services_of(runs, folder)
        self._tools = BenchTools(bench, self._services)

    async def start(self, plan: Any, *, session: str, **_: Any) -> Run:
        """Start a run of a plan as a turn."""
        tools = (await self._tools.toolset()).declarations()
        return await self._start(TurnRequest(session, "", lambda _: _start_of(plan, tools)))

    async def ask(self, text: str, *, session: str, **_: Any) -> Run:
        """Start a run of a request as a turn."""
        toolset = await self._tools.toolset()
        prepare = partial(prepare_request, TextRequest(text), toolset)
        return await self._start(TurnRequest(session, text, lambda state: prepare(state).start))

    async def _start(self, turn: TurnRequest) -> Run:
        started, _ = await start_turn(turn, self._services.runs, self._services.sessions, busy=lambda _: None)
        return Run(lambda: self._services, started.workflow_id, tools=self._tools)


def _start_of(plan: Any, tools: Mapping[str, ToolDeclaration]) -> StartRequest:
    return StartRequest(prepare_plan(check_plan(plan, tools), {}), plan)
