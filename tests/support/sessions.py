"""Sessions in tests, served by the workers of this process. The tool `name_fund` sets the context name `@cbu`."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from temporalio.client import Client

from dagwright.client.runs import Runs as ClientRuns
from dagwright.client.sessions import PreparedTurn, PrepareTurn, Sessions
from dagwright.client.starts import StartRequest
from dagwright.core.model.policy import Policy
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.protocol.sessions import SessionRecord, session_workflow_id
from dagwright.server import Connection, Server
from dagwright.settings import Settings
from dagwright.tools import ToolRegistry, tool
from tests.support.runs import Handle, Runs, serving_runs
from tests.support.tools import CallHarness


@tool(effects="idempotent", sets="cbu")
def name_fund(*, name: str, padding: int = 0) -> dict[str, Any]:
    """Make a fund; `padding` makes the result large."""
    return {"id": f"id-{name}", "name": name, "kind": "fund", "more": "x" * padding}


class SessionHarness:
    """Sessions on the test server, and the runs of the same worker."""

    def __init__(self, client: Client, runs: Runs, harness: CallHarness) -> None:
        self.client = client
        self.runs = runs
        self.tool_harness = harness
        # `Connection` sends all requests to `client`; the address of `Server` is only shown in messages.
        connection = Connection(client, Server("nowhere", "default"), frozenset())
        self.client_runs = ClientRuns(connection, task_queue=runs.task_queue, store=runs.store)
        self.sessions = Sessions(connection, self.client_runs, task_queue=runs.task_queue)

    def turn(
        self, *nodes: Mapping[str, Any], request: str = "Do it.", policy: Policy | None = None, output: Any = None
    ) -> PrepareTurn:
        """Return a function that prepares a turn.

        In the arguments of its nodes, `@NAME` is replaced by the ID of the entity with this name in the session.
        """

        async def prepare(session: SessionRecord) -> PreparedTurn:
            ids = {name: str(entity["id"]) for name, entity in session.names.items()}
            plan: dict[str, Any] = {"plan": 1, "nodes": [_fill_arguments(node, ids) for node in nodes]}
            plan |= {} if output is None else {"output": output}
            compiled_plan = prepare_plan(check_plan(plan, self.runs.tools), {})
            return PreparedTurn(request, await self.client_runs.encode(StartRequest(compiled_plan, plan)), policy)

        return prepare

    async def wait_for_turn_end(self, name: str, run_id: str) -> SessionRecord:
        await self.client.get_workflow_handle(run_id).result()
        await self.sessions.wait_for_turn_end(name, run_id)
        session = (await self.sessions.find(name)).session
        turn = session.turn_of(run_id)
        assert turn is not None
        assert turn.ended_at is not None, turn
        return session

    async def close(self, name: str) -> Handle:
        await self.sessions.end(name)
        handle = self.client.get_workflow_handle(session_workflow_id(name))
        self.runs.include_in_checks(handle)
        return handle


def _fill_arguments(node: Mapping[str, Any], ids: Mapping[str, str]) -> dict[str, Any]:
    arguments = {
        key: ids.get(value.removeprefix("@"), value) if isinstance(value, str) else value
        for key, value in node.get("arguments", {}).items()
    }
    return {**node, "arguments": arguments}


@asynccontextmanager
async def session_harness(
    client: Client, folder: Path, *, has_workflow_cache: bool = True
) -> AsyncIterator[SessionHarness]:
    """Serve sessions. At the end of the block, check and replay closed sessions."""
    harness = CallHarness()
    registry = ToolRegistry.of(*harness.registry(), name_fund)
    async with serving_runs(
        client, registry, settings=Settings(state_dir=folder), has_workflow_cache=has_workflow_cache
    ) as runs:
        yield SessionHarness(client, runs, harness)
        await runs.check_runs()
