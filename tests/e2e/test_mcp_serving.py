"""The command `mcp` as a process: clients of the official SDK over stdio and HTTP, stdout, and the exit."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client as McpClient
from mcp.client.stdio import StdioServerParameters, stdio_client

from dagwright.testing import ModelServer
from tests.e2e.command import ROOT, TIMEOUT_S, CommandLine, read_line_with, stop_process, with_model
from tests.e2e.conftest import APPROVAL_NODE, plan_of, wait_node
from tests.e2e.mcp_commands import MCP_ARGUMENTS, commands_in_mcp_folder, http_mcp_server
from tests.support.goals import call_node, plan_text
from tests.support.mcp_clients import MODES, Person, ToolCaller
from tests.support.programs import command_folder
from tests.support.server import LiveServer

pytestmark = pytest.mark.server


@pytest.fixture
def commands(server: LiveServer, tmp_path: Path) -> CommandLine:
    return commands_in_mcp_folder(server, tmp_path)


@asynccontextmanager
async def _stdio_tools(commands: CommandLine, mode: str, person: Person | None = None) -> AsyncIterator[ToolCaller]:
    command, arguments = str(command_folder() / "python"), [str(ROOT / "starter.py"), *MCP_ARGUMENTS]
    program = StdioServerParameters(command=command, args=arguments, env=commands.environment, cwd=commands.folder)
    elicit = person.elicit if person is not None else None
    async with McpClient(stdio_client(program), mode=mode, elicitation_callback=elicit) as client:
        yield ToolCaller(client)


@asynccontextmanager
async def _http_tools(address: str, mode: str, person: Person | None = None) -> AsyncIterator[ToolCaller]:
    elicit = person.elicit if person is not None else None
    async with McpClient(address, mode=mode, elicitation_callback=elicit) as client:
        yield ToolCaller(client)


@pytest.mark.parametrize("mode", MODES)
async def test_stdio_client_runs_plans_asks_a_model_and_answers_requests(commands: CommandLine, mode: str) -> None:
    plan = plan_text(call_node("sum", "calculator", expression="1 + 2"))
    person = Person(lambda _: {"approved": True})
    async with (
        ModelServer(plan, "It is 3.", plan, "Three.") as model,
        _stdio_tools(with_model(commands, model), mode, person) as tools,
    ):
        template_result = await tools("loud", text="abc")
        ask_result = await tools("ask", request="What is 1 + 2?")
        session_result = await tools("ask", request="And again?", session_id=commands.folder.name)
        plan_result = await tools("run_plan", plan=plan_of(APPROVAL_NODE))
    assert (template_result["status"], template_result["output"]) == ("completed", "ABC")
    assert (ask_result["status"], ask_result["output"]) == ("completed", "It is 3.")
    assert (session_result["status"], session_result["output"]) == ("completed", "Three.")
    assert (plan_result["status"], [prompt for prompt, _ in person.forms]) == ("completed", ["Publish?"])


@pytest.mark.parametrize("mode", MODES)
async def test_http_client_runs_plans_and_answers_requests(commands: CommandLine, mode: str) -> None:
    person = Person(lambda _: {"approved": True})
    async with http_mcp_server(commands) as (_, address), _http_tools(address, mode, person) as tools:
        template_result = await tools("loud", text="abc")
        plan_result = await tools("run_plan", plan=plan_of(APPROVAL_NODE))
        progress = [message for _, _, message in tools.progress]
    assert (template_result["status"], template_result["output"]) == ("completed", "ABC")
    assert (plan_result["status"], len(person.forms)) == ("completed", 1)
    assert "a completed" in progress
    assert "check completed" in progress


async def test_run_continues_after_its_server_was_killed_and_is_read_by_a_new_server(commands: CommandLine) -> None:
    plan = plan_of(
        wait_node("pause", "3s"),
        APPROVAL_NODE,
        output="{{check.result.approved}}",
    )
    run_id = f"killed-{commands.folder.name}"
    async with http_mcp_server(commands) as (process, address):
        async with _http_tools(address, "2026-07-28") as tools:
            started_result = await tools("run_plan", plan=plan, run_id=run_id, wait_s=0)
        process.send_signal(signal.SIGKILL)
        await process.wait()
    async with http_mcp_server(commands) as (_, address), _http_tools(address, "2026-07-28") as tools:
        result = await tools("get_run", run_id=run_id, wait_s=120)
        repeated_result = await tools("run_plan", plan=plan, run_id=run_id, wait_s=0)
        final_result = await tools("answer_feedback", run_id=run_id, approved=True)
    assert (started_result["status"], result["status"]) == ("running", "waiting")
    assert repeated_result["run_id"] == run_id
    assert (final_result["status"], final_result["output"]) == ("completed", True)


async def _send_messages(process: Process, *messages: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(b"".join(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in messages))
    await process.stdin.drain()


def _tool_call_message(number: int, tool: str, **arguments: Any) -> dict[str, Any]:
    return {"id": number, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


@pytest.mark.parametrize("ending", ["stdin", "SIGTERM"])
async def test_stdout_has_only_protocol_messages_until_the_server_ends(commands: CommandLine, ending: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "starter.py"),
        *MCP_ARGUMENTS,
        cwd=commands.folder,
        env=commands.environment,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        start_new_session=True,
    )
    client_fields = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    await _send_messages(
        process,
        {"id": 1, "method": "initialize", "params": client_fields},
        {"method": "notifications/initialized"},
        _tool_call_message(2, "loud", text="abc"),
    )
    assert process.stdout is not None
    assert process.stdin is not None
    lines: list[Any] = []
    async with asyncio.timeout(TIMEOUT_S):
        while not lines or lines[-1].get("id") != 2:
            lines.append(json.loads(await process.stdout.readline()))
    # A run that continues does not delay the exit.
    approval_message = _tool_call_message(3, "run_plan", plan=plan_of(APPROVAL_NODE))
    await _send_messages(process, approval_message, {"id": 4, "method": "ping"})
    async with asyncio.timeout(TIMEOUT_S):
        while lines[-1].get("id") not in (3, 4):
            lines.append(json.loads(await process.stdout.readline()))
    if ending == "stdin":
        process.stdin.close()
    else:
        process.terminate()
    remaining_output, errors = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
    for line in remaining_output.splitlines():
        assert json.loads(line)["jsonrpc"] == "2.0", line
    assert await process.wait() == (0 if ending == "stdin" else 130)
    assert lines[1]["result"]["structuredContent"]["output"] == "ABC"
    assert b"printed while imported" in errors
    assert b"printed while called" in errors
    # The processes that the server started are in its process group, and none of them is left.
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


@pytest.mark.parametrize("options", [[], ["--no-worker"]])
async def test_server_starts_while_another_process_has_a_worker(
    server: LiveServer, tmp_path: Path, options: list[str]
) -> None:
    commands = commands_in_mcp_folder(server, tmp_path)
    # Clients start the server in a folder of their own, with only the documented variables.
    (client_folder := tmp_path / "elsewhere").mkdir()
    names = {"DAGWRIGHT_STATE_DIR", "DAGWRIGHT_TASK_QUEUE", "PATH", "HOME"}
    variables = {name: value for name, value in commands.environment.items() if name in names}
    command = str(command_folder() / "dagwright")
    program = StdioServerParameters(command=command, args=["mcp", *options], env=variables, cwd=client_folder)
    plan = plan_text(call_node("sum", "calculator", expression="1 + 2"))
    with (tmp_path / "stderr.txt").open("w+", encoding="utf-8") as errors:
        async with ModelServer(plan, "It is 3.") as model:
            process = await with_model(commands, model).start("serve", "--port", "0", "--json")
            await read_line_with(process, '"status"')
            async with McpClient(stdio_client(program, errlog=errors), mode="legacy") as client:
                answer = await ToolCaller(client)("ask", request="What is 1 + 2?")
            await stop_process(process)
        errors.seek(0)
        error_output = errors.read()
    assert (answer["status"], answer["output"]) == ("completed", "It is 3.")
    assert (error_output == "") == bool(options)
    if not options:
        assert error_output.startswith(
            "starting without a worker, because another process does the work: a command that serves runs"
        )
        setting_names = "DAGWRIGHT_FILES_ROOT (not set here, so it is the current folder, "
        assert (
            f"another value of {setting_names}{client_folder}), DAGWRIGHT_MODEL, OPENAI_API_KEY and OPENAI_BASE_URL"
            in error_output
        )


async def test_invalid_plan_files_and_options_are_reported(commands: CommandLine) -> None:
    (commands.folder / "plans" / "bad.yaml").write_text("plan: 1\nnodes: [{id: a, tool: unknown}]", encoding="utf-8")
    bad_plan_result = await commands(*MCP_ARGUMENTS)
    bad_option_result = await commands("mcp", "--port", "1")
    # The invalid plan is reported, and the other plans are served until standard input ends.
    assert (bad_plan_result.code, bad_plan_result.stdout) == (0, "")
    assert "bad.yaml: unknown_tool at /nodes/0/tool" in bad_plan_result.stderr
    assert (bad_option_result.code, bad_option_result.stdout) == (2, "")
    assert "--host and --port need --http" in bad_option_result.stderr
