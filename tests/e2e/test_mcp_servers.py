"""Plans that call published MCP servers: filesystem, everything, time and fetch."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.core.model.tools import Effects
from dagwright.mcp_client import LoadedServers, load_servers
from dagwright.settings import Settings
from dagwright.tools.testing import RecordedCall
from tests.support.http_servers import serve_handler
from tests.support.ports import free_port
from tests.support.runs import Runs, bare_document, completed_node, document_of, serving_runs
from tests.support.tool_servers import (
    call_tool,
    listening_process,
    load,
    node_server,
    python_server,
    variables,
    write_servers,
)

pytestmark = [pytest.mark.server, pytest.mark.node]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder that the filesystem server may read."""
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
async def servers(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LoadedServers]:
    loaded_servers = await asyncio.to_thread(
        load,
        tmp_path_factory.mktemp("mcp"),
        filesystem={"command": node_server("mcp-server-filesystem"), "args": [str(folder)]},
        everything={"command": node_server("mcp-server-everything"), "env": {"COLOUR": "green"}},
        time={"command": python_server("mcp-server-time")},
        fetch={"command": python_server("mcp-server-fetch"), "args": ["--allow-private-ips"]},
    )
    yield loaded_servers
    await loaded_servers.close()


@pytest.fixture
async def mcp_runs(servers: LoadedServers, client: Client, tmp_path: Path) -> AsyncIterator[Runs]:
    async with serving_runs(client, servers.registry, settings=Settings(state_dir=tmp_path)) as runs:
        yield runs
        await runs.check_runs()


def _node(node_id: str, tool: str, /, *depends_on: str, **arguments: Any) -> dict[str, Any]:
    return {"id": node_id, "tool": tool, "arguments": arguments, "depends_on": list(depends_on)}


def _plan(*nodes: dict[str, Any]) -> dict[str, Any]:
    return {"plan": 1, "nodes": list(nodes)}


def test_effects_come_from_the_annotations_of_the_server(servers: LoadedServers) -> None:
    effects = {spec.name: spec.declaration.effects for spec in servers.registry}
    assert {name: effect for name, effect in effects.items() if name.startswith("filesystem.")} == {
        **{
            f"filesystem.{name}": Effects.READ
            for name in (
                *("read_file", "read_text_file", "read_media_file", "read_multiple_files", "list_directory"),
                *("list_directory_with_sizes", "directory_tree", "search_files"),
                *("get_file_info", "list_allowed_directories"),
            )
        },
        "filesystem.write_file": Effects.IDEMPOTENT,
        "filesystem.create_directory": Effects.IDEMPOTENT,
        "filesystem.edit_file": Effects.WRITE,
        "filesystem.move_file": Effects.WRITE,
    }
    assert effects["time.get_current_time"] is Effects.READ


async def test_a_plan_writes_reads_and_moves_files(mcp_runs: Runs, folder: Path) -> None:
    first_path, second_path = str(folder / "first.txt"), str(folder / "second.txt")
    document = await mcp_runs.run(
        _plan(
            _node("write", "filesystem.write_file", path=first_path, content="two\nlines"),
            _node("read", "filesystem.read_text_file", "write", path=first_path),
            _node("copy", "filesystem.write_file", path=second_path, content="{{read.result.content}} more"),
            _node("moved", "filesystem.move_file", "copy", source=first_path, destination=str(folder / "third.txt")),
            _node("list", "filesystem.list_directory", "moved", path=str(folder)),
        )
    )
    assert document["status"] == "completed", document
    assert document["nodes"]["list"] == completed_node({"content": "[FILE] second.txt\n[FILE] third.txt"})
    assert (folder / "second.txt").read_text() == "two\nlines more"


async def test_error_of_a_server_is_the_error_of_the_node(mcp_runs: Runs) -> None:
    plan = _plan({**_node("n", "filesystem.move_file", source="/etc/hostname", destination="/etc/x")})
    node = (await mcp_runs.run(plan))["nodes"]["n"]
    assert node["status"] == "failed"
    assert node["error"].startswith("tool_failed: Access denied - path outside allowed directories")


async def test_image_and_structured_content_are_unchanged(mcp_runs: Runs) -> None:
    handle = await mcp_runs.start(
        _plan(
            _node("image", "everything.get-tiny-image"),
            _node("weather", "everything.get-structured-content", location="Chicago"),
            _node("sum", "everything.get-sum", a=2, b=3),
            _node("type", "everything.echo", message="{{image.result[1].mimeType}}"),
        )
    )
    nodes = bare_document(await document_of(handle))["nodes"]
    assert nodes["type"] == completed_node("Echo: image/png")
    assert nodes["sum"] == completed_node("The sum of 2 and 3 is 5.")
    assert set(nodes["weather"]["result"]) == {"temperature", "conditions", "humidity"}


async def test_time_is_converted_and_a_local_page_is_fetched(mcp_runs: Runs) -> None:
    with _serve_page("<html><body><h1>Hello</h1><p>from a page</p></body></html>") as address:
        zone_arguments = {"source_timezone": "UTC", "target_timezone": "Asia/Tokyo"}
        clock = _node("clock", "time.convert_time", time="12:00", **zone_arguments)
        document = await mcp_runs.run(_plan(clock, _node("page", "fetch.fetch", url=address)))
    nodes = document["nodes"]
    assert nodes["clock"]["result"]["time_difference"] == "+9.0h"
    assert "Hello" in nodes["page"]["result"]
    assert "from a page" in nodes["page"]["result"]


@contextmanager
def _serve_page(text: str) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            exists = self.path == "/"
            self.send_response(200 if exists else 404)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            if exists:
                self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            pass

    with serve_handler(Handler) as address:
        yield f"{address}/"


async def test_nodejs_server_over_http_reports_progress_and_survives_a_cancelled_call(tmp_path: Path) -> None:
    port = free_port()
    file = write_servers(tmp_path, web={"type": "http", "url": f"http://127.0.0.1:{port}/mcp"})
    program = node_server("mcp-server-everything")
    async with listening_process(program, "streamableHttp", port=port, PORT=str(port)):
        servers = await asyncio.to_thread(load_servers, [file], variables())
        try:
            assert await call_tool(servers, "web.get-sum", a=1, b=2) == "The sum of 1 and 2 is 3."
            call_record = RecordedCall()
            result = await call_tool(servers, "web.trigger-long-running-operation", call_record, duration=1, steps=4)
            assert result == "Long running operation completed. Duration: 1 seconds, Steps: 4."
            assert [(step.done, step.total) for step in call_record.progress][-1] == (4, 4)

            operation = "web.trigger-long-running-operation"
            long_call = asyncio.create_task(call_tool(servers, operation, duration=600, steps=6000))
            short_record = RecordedCall()
            short_call = asyncio.create_task(call_tool(servers, operation, short_record, duration=1, steps=4))
            await short_call
            long_call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await long_call
            assert await call_tool(servers, "web.echo", message="there") == "Echo: there"
        finally:
            await servers.close()
