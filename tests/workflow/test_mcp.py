"""Plans that call tools of MCP servers: activity types, retries of reads and writes, and missing tools."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.mcp_client import LoadedServers
from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset
from dagwright.worker import serving as worker
from tests.support.eventually import eventually
from tests.support.plan_building import plan_of
from tests.support.run_views import wait_for_note
from tests.support.runs import (
    Runs,
    bare_document,
    completed_node,
    document_of,
    failed_node,
    histories_of,
    scheduled_calls,
    serving_runs,
)
from tests.support.tool_servers import calls_of, load, server_entry, without_pids, write_servers

pytestmark = pytest.mark.server


@asynccontextmanager
async def _serve(client: Client, servers: LoadedServers, folder: Path) -> AsyncIterator[Runs]:
    async with serving_runs(client, servers.registry, settings=Settings(state_dir=folder / "state")) as runs:
        try:
            yield runs
        finally:
            await servers.close()


@pytest.fixture(scope="module")
async def calls_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mcp") / "calls"


@pytest.fixture(scope="module")
async def mcp_runs(client: Client, calls_file: Path) -> AsyncIterator[Runs]:
    """Runs of plans that call an MCP server. All runs are checked at the end of the module."""
    servers = await asyncio.to_thread(load, calls_file.parent, srv=server_entry(calls_file))
    async with _serve(client, servers, calls_file.parent) as runs:
        yield runs
        await runs.check_runs()


def _node(tool: str, node_id: str = "n", /, **arguments: Any) -> dict[str, Any]:
    return {"id": node_id, "tool": tool, "arguments": arguments}


async def test_activity_type_of_a_call_is_the_name_of_the_tool(mcp_runs: Runs, client: Client) -> None:
    [history] = await histories_of(client, await mcp_runs.start(plan_of(_node("srv.say", text="x"))))
    [scheduled_call] = scheduled_calls(history)
    assert (scheduled_call.activity_type.name, scheduled_call.activity_id) == ("srv.say", "n")


async def test_failed_read_is_retried_and_failed_write_is_not(mcp_runs: Runs, calls_file: Path) -> None:
    read_node = {**_node("srv.refuse", "read", reason="tired"), "retry": {"max_attempts": 2, "first_delay": "10ms"}}
    write_node = _node("srv.write", "write", text="die")
    earlier_call_count = len(calls_of(calls_file))
    plan = plan_of(read_node, {**write_node, "depends_on": ["read"], "join": "all_done"})
    nodes = (await mcp_runs.run(plan))["nodes"]
    assert nodes == {
        "read": failed_node("tool_failed: Error executing tool refuse: tired", attempts=2),
        "write": failed_node(
            "tool_failed: The MCP server 'srv': the server ended during the call, so the result is unknown; "
            "its last output: the disk is full"
        ),
    }
    expected = [{"refuse": "tired"}, {"refuse": "tired"}, {"write": "die"}]
    assert without_pids(calls_of(calls_file)[earlier_call_count:]) == expected


async def test_read_is_retried_on_a_restarted_server(mcp_runs: Runs, calls_file: Path) -> None:
    handle = await mcp_runs.start(plan_of(_node("srv.slow", seconds=1)))

    def started_calls() -> list[dict[str, Any]]:
        return [call for call in calls_of(calls_file) if call.get("slow") == "started"]

    await eventually(lambda: len(started_calls()) == 1)
    os.kill(started_calls()[0]["pid"], signal.SIGKILL)
    assert bare_document(await document_of(handle))["nodes"] == {"n": completed_node("done", attempts=2)}
    assert len({call["pid"] for call in started_calls()}) == 2


async def test_call_waits_if_no_server_has_its_tool(client: Client, tmp_path: Path, unique_name: str) -> None:
    file = write_servers(tmp_path, srv=server_entry(tmp_path / "calls"))
    toolset = await asyncio.to_thread(load_toolset, Settings(state_dir=tmp_path / "state"), [str(file)])
    declaration = replace(toolset.declarations()["srv.say"], name="srv.gone")
    async with AsyncExitStack() as stack:
        assert toolset.servers is not None
        stack.push_async_callback(toolset.servers.close)
        for queue_worker in worker.create_workers(client, toolset, task_queue=unique_name):
            await stack.enter_async_context(queue_worker)
        runs = Runs(client, task_queue=unique_name, tools={"srv.gone": declaration}, store=toolset.store)
        node = {**_node("srv.gone", text="x"), "retry": {"max_attempts": 2, "first_delay": "10ms"}}
        handle = await runs.start(plan_of(node))
        view = await wait_for_note(client, handle.id, "tool_missing")
        messages = [note["message"] for note in view.notes if note["code"] == "tool_missing"]
        assert "has no tool 'srv.gone'; its call waits" in messages[0]
        await handle.signal("cancel")
        assert (await document_of(handle))["status"] == "cancelled"
        await runs.check_runs()
