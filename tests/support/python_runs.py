"""Handles of the Python API for the runs of a test."""

from pathlib import Path
from typing import Any

from dagwright.client.run import Run
from dagwright.client.runs import Runs as ClientRuns
from dagwright.client.services import Services
from dagwright.client.sessions import Sessions
from dagwright.client.steering import Steering
from dagwright.server import Connection, Server
from dagwright.settings import Settings
from dagwright.toolset.toolset import Toolset, load_toolset
from tests.support.runs import Handle, Runs, with_tools
from tests.support.tools import CallHarness


def services_of(runs: Runs, folder: Path) -> Services:
    """Return the services of a separate client, as another process would have.

    Args:
        folder: state folder of the client.
    """
    settings = Settings(state_dir=folder, task_queue=runs.task_queue)
    connection = Connection(runs.client, Server("nowhere", runs.client.namespace), frozenset())
    client_runs = ClientRuns(connection, task_queue=runs.task_queue, store=runs.store)
    return Services(
        connection=connection,
        settings=settings,
        store=runs.store,
        runs=client_runs,
        steering=Steering(connection),
        sessions=Sessions(connection, client_runs, task_queue=runs.task_queue),
    )


class HarnessTools:
    """The toolset of a client: the built-in tools, and the tools of a harness."""

    def __init__(self, harness: CallHarness, services: Services) -> None:
        self._toolset = with_tools(
            load_toolset(services.settings), harness.registry(), queue=f"{services.settings.task_queue}-tools"
        )

    async def toolset(self) -> Toolset:
        return self._toolset


class PythonRuns:
    """Create handles of runs, each with a separate client.

    Args:
        harness: tools that the clients know in addition to the built-in ones.
        folder: state folder of the clients.
    """

    def __init__(self, runs: Runs, harness: CallHarness, folder: Path) -> None:
        self.runs = runs
        self._harness = harness
        self._folder = folder

    async def start(self, plan: Any) -> Run:
        """Start a run, and return a handle of a new client."""
        return self.handle_of(await self.runs.start(plan))

    def handle_of(self, run: Handle | str) -> Run:
        """Return a handle of a new client that shares only the server and the store with other clients."""
        services = services_of(self.runs, self._folder)
        run_id = run if isinstance(run, str) else run.id
        return Run(lambda: services, run_id, tools=HarnessTools(self._harness, services))
