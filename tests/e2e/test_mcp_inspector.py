"""Test the MCP server with the command line of the MCP Inspector, over stdio and HTTP, in both protocol eras."""

import asyncio
import functools
import json
import os
import subprocess
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.command import ROOT, TIMEOUT_S, CommandLine, ProcessResult, wait_for_exit
from tests.e2e.mcp_commands import MCP_ARGUMENTS, commands_in_mcp_folder, http_mcp_server
from tests.support.server import LiveServer

pytestmark = [pytest.mark.server, pytest.mark.node]

_PLAN = {"plan": 1, "nodes": [{"id": "a", "tool": "shout", "arguments": {"text": "abc"}}], "output": "{{a.result}}"}


@functools.cache
def _inspector() -> list[str]:
    """Install the inspector if it is missing, and return its command."""
    command = [str(ROOT / "scripts" / "test-packages"), "mcp_inspector"]
    result = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    modules = Path(result.stdout.strip()) / "node_modules"
    bundled_node = next(iter(modules.glob("node-linux-*/bin/node")), None)
    program = modules / "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
    return [str(bundled_node or "node"), str(program)]


@pytest.fixture
def commands(server: LiveServer, tmp_path: Path) -> CommandLine:
    return commands_in_mcp_folder(server, tmp_path)


async def _inspect(commands: CommandLine, *arguments: str, entry: dict[str, Any]) -> ProcessResult:
    config = commands.folder / "inspector.json"
    config.write_text(json.dumps({"mcpServers": {"dagwright": entry}}), encoding="utf-8")
    options = ["--cli", "--config", str(config), "--server", "dagwright", "--quiet", "--format", "json"]
    options += ["--connect-timeout", str(int(TIMEOUT_S * 1_000))]
    process = await asyncio.create_subprocess_exec(
        *(*_inspector(), *options, *arguments),
        cwd=commands.folder,
        env={**os.environ, "HOME": str(commands.folder)},
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
    )
    return await wait_for_exit(process)


def _stdio_entry(commands: CommandLine) -> dict[str, Any]:
    program = {"command": sys.executable, "args": [str(ROOT / "starter.py"), *MCP_ARGUMENTS]}
    return {"type": "stdio", **program, "env": commands.environment, "cwd": str(commands.folder)}


async def test_inspector_accepts_the_tools(commands: CommandLine) -> None:
    result = await _inspect(commands, "--method", "tools/list", "--strict", entry=_stdio_entry(commands))
    result.check_success()
    names = [tool["name"] for tool in result.document["result"]["tools"]]
    assert names == ["run_plan", "check_plan", "ask", "get_run", "list_runs", "answer_feedback", "cancel", "loud"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_inspector_runs_a_plan_over_http(commands: CommandLine, era: str) -> None:
    call_options = ["--method", "tools/call", "--tool-name", "run_plan", "--protocol-era", era]
    call_options += ["--tool-args-json", json.dumps({"plan": _PLAN})]
    async with http_mcp_server(commands) as (_, address):
        result = await _inspect(commands, *call_options, entry={"type": "http", "url": address})
    result.check_success()
    assert result.document["result"]["structuredContent"]["output"] == "ABC"
