"""MCP servers of a file on the command line: runs call the servers, and the servers end with the worker."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.command import CommandLine, kill_process
from tests.e2e.conftest import WritePlan
from tests.support.eventually import eventually
from tests.support.tool_servers import ROOT, calls_of, server_entry, write_servers

pytestmark = pytest.mark.server


_SAY_NODE = {"id": "say", "tool": "srv.say", "arguments": {"text": "hello"}}


@pytest.fixture
def calls_file(tmp_path: Path) -> Path:
    return tmp_path / "calls"


@pytest.fixture
def servers_file(tmp_path: Path, calls_file: Path) -> str:
    """Name of a file with one server, in the folder of the test."""
    return write_servers(tmp_path, srv=server_entry(calls_file)).name


async def test_server_answers_a_call_of_a_run_and_ends_with_the_worker(
    commands: CommandLine, write_plan: WritePlan, servers_file: str, calls_file: Path
) -> None:
    result = await commands("run", write_plan(_SAY_NODE), "--tools", servers_file, "--json")
    assert (result.code, result.document["output"]) == (0, {"say": "hello"})
    [call] = calls_of(calls_file)
    with pytest.raises(ProcessLookupError):
        os.kill(call["pid"], 0)


async def test_detached_run_calls_a_server(
    commands_with_private_server: CommandLine, write_plan: WritePlan, servers_file: str, calls_file: Path
) -> None:
    plan = write_plan(_SAY_NODE)
    run_arguments = ("run", plan, "--tools", servers_file, "--id", "mcp-detached", "--detach", "--json")
    (await commands_with_private_server(*run_arguments)).check_success()
    watch_result = await commands_with_private_server("watch", "mcp-detached", "--no-worker", "--json")
    assert (watch_result.code, watch_result.document["output"]) == (0, {"say": "hello"})
    assert len(calls_of(calls_file)) == 1


async def test_server_ends_if_its_worker_is_killed_and_the_run_continues_with_a_new_server(
    commands: CommandLine, write_plan: WritePlan, servers_file: str, calls_file: Path
) -> None:
    plan = write_plan({"id": "slow", "tool": "srv.slow", "arguments": {"seconds": 1}})
    run_process = await commands.start("run", plan, "--tools", servers_file, "--id", "mcp-killed", "--json")
    await eventually(lambda: len(calls_of(calls_file)) == 1)
    server_pid = calls_of(calls_file)[0]["pid"]
    await kill_process(run_process)

    def has_ended() -> bool:
        # An ended process is a zombie until its parent process waits for it.
        command = ["ps", "-o", "stat=", "-p", str(server_pid)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        return result.stdout.strip()[:1] in ("", "Z")

    await eventually(has_ended)
    watch_result = await commands("watch", "mcp-killed", "--json")
    assert (watch_result.code, watch_result.document["output"]) == (0, {"slow": "done"})
    started_pids = [call["pid"] for call in calls_of(calls_file) if call["slow"] == "started"]
    assert (started_pids[0], len(set(started_pids))) == (server_pid, 2)


def test_mcp_sdk_is_not_imported_without_servers() -> None:
    program = (
        "import json, sys\nimport dagwright.__main__, dagwright.worker.serving\n"
        "from dagwright.settings import Settings\n"
        "from dagwright.toolset.toolset import load_toolset\nload_toolset(Settings(), [])\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {"mcp", "mcp_types", "starlette"} & set(json.loads(result.stdout)) == set()
