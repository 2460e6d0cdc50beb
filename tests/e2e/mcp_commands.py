"""The MCP server as a separate process: create its folder with a tool and a plan, and start it over HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.e2e.command import TIMEOUT_S, CommandLine
from tests.support.programs import RunningProcess
from tests.support.server import LiveServer

_NOISY_TOOLS = """
from dagwright.tools import tool

print("printed while imported")


@tool(effects="read")
def shout(text: str) -> str:
    print("printed while called")
    return text.upper()
"""
_SHOUT_PLAN = {"plan": 1, "nodes": [{"id": "a", "tool": "shout", "arguments": {"text": "{{PLACEHOLDER_text}}"}}]}

MCP_ARGUMENTS = ("mcp", "--tools", "noisy.py", "--plans", "plans")


def commands_in_mcp_folder(server: LiveServer, folder: Path) -> CommandLine:
    """Write a tool and a plan to a folder, and return commands that run there with a task queue for this folder."""
    (folder / "noisy.py").write_text(_NOISY_TOOLS, encoding="utf-8")
    (folder / "plans").mkdir()
    (folder / "plans" / "loud.json").write_text(json.dumps({**_SHOUT_PLAN, "output": "{{a.result}}"}), encoding="utf-8")
    return CommandLine(folder, {**server.environment(), "DAGWRIGHT_TASK_QUEUE": f"mcp-{folder.name}"})


@asynccontextmanager
async def http_mcp_server(commands: CommandLine) -> AsyncIterator[tuple[RunningProcess, str]]:
    """Start an MCP server, yield its process and address, and terminate the process if it still runs."""
    process = await commands.start(*MCP_ARGUMENTS, "--http", "--port", "0")
    assert process.stderr is not None
    line = ""
    async with asyncio.timeout(TIMEOUT_S):
        while "MCP server at " not in line:
            line = (await process.stderr.readline()).decode()
            assert line, "the server ended"
    yield process, line.split()[3].removesuffix(";")
    if process.returncode is None:
        process.terminate()
        await asyncio.wait_for(process.communicate(), TIMEOUT_S)
