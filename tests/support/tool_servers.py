"""Configuration files of MCP servers for tests, and the calls that `mcp_server.py` records."""

import asyncio
import functools
import json
import os
import subprocess
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from dagwright.mcp_client import LoadedServers, load_servers
from dagwright.mcp_client.config import Variables
from dagwright.tools.testing import RecordedCall, tool_context
from tests.support.eventually import eventually
from tests.support.programs import command_folder

ROOT = Path(__file__).parents[2]
SERVER = Path(__file__).with_name("mcp_server.py")


def variables(**values: str) -> Variables:
    """Return the values of `${NAME}`; a name that starts with SECRET is a secret."""
    secrets = {name: value for name, value in values.items() if name.startswith("SECRET")}
    return Variables(secrets.get, values.get)


def server_entry(folder: Path, **fields: Any) -> dict[str, Any]:
    """Return the entry of a server that records its calls in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    # The server is forked from a process that has imported the MCP SDK, which takes over a second of CPU time.
    python = command_folder("mcp.server.mcpserver", "uvicorn") / "python"
    return {"command": str(python), "args": [str(SERVER), str(folder)], **fields}


def write_servers(folder: Path, **entries: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "servers.json"
    file.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
    return file


def load(folder: Path, **entries: Any) -> LoadedServers:
    return load_servers([write_servers(folder, **entries)], variables())


def calls_of(folder: Path) -> list[dict[str, Any]]:
    """Return the recorded calls of a server in order, with their process IDs."""
    file = folder / "calls"
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def without_pids(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in call.items() if name != "pid"} for call in calls]


@functools.cache
def servers_folder() -> Path:
    """Return the folder of the servers from the package registries; install them if they are missing."""
    command = [str(ROOT / "scripts" / "test-packages"), "mcp_servers"]
    result = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return Path(result.stdout.strip())


def node_server(name: str) -> str:
    return str(servers_folder() / "node_modules" / ".bin" / name)


def python_server(name: str) -> str:
    return str(servers_folder() / "python" / "bin" / name)


@asynccontextmanager
async def listening_process(program: str, *arguments: str, port: int, **environment: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        program, *arguments, env={**os.environ, **environment}, stdout=DEVNULL, stderr=DEVNULL
    )

    async def is_listening() -> bool:
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            await writer.wait_closed()
            return True
        return False

    try:
        await eventually(is_listening)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def call_tool(servers: LoadedServers, tool: str, reports: RecordedCall | None = None, /, **arguments: Any) -> Any:
    """Call a tool outside of a run, and append its heartbeats and progress to `reports`."""
    spec = servers.registry[tool]
    assert spec.function is not None
    with tool_context() as recorded_call:
        try:
            return await spec.function(**spec.bind(arguments))
        finally:
            if reports is not None:
                reports.heartbeats += recorded_call.heartbeats
                reports.progress += recorded_call.progress
