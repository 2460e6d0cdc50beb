"""Task queues of tool files: runs with different files share no calls, and a queue without a worker is reported."""

import asyncio
import json
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest

from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset
from tests.e2e.command import CommandLine, read_line_with, wait_for_exit
from tests.e2e.conftest import WritePlan, pause
from tests.support.eventually import eventually

pytestmark = pytest.mark.server

_TOOLS = '''
import asyncio
from pathlib import Path
from dagwright.tools import tool

@tool(effects="idempotent")
async def {name}(name: str) -> str:
    """Returns the name of the tool and the argument."""
    while (Path(__file__).parent / "hold").exists():
        await asyncio.sleep(0.02)
    return f"{name} of {{name}}"
'''


def _write_tools(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "user_tools.py"
    path.write_text(_TOOLS.format(name=name), encoding="utf-8")
    return path


def _queue_of(tools: Path) -> str:
    [queue] = load_toolset(Settings(), [str(tools)]).user_queues
    return queue


async def _status_when_waiting(command_line: CommandLine, run_id: str) -> dict[str, Any]:
    document: dict[str, Any] = {}

    async def is_waiting() -> bool:
        document.update((await command_line("status", run_id, "--json")).document)
        return bool(document["status"] == "waiting")

    await eventually(is_waiting)
    return document


async def test_runs_with_different_tools_of_the_same_name_do_not_share_calls(
    command_line: CommandLine, write_plan: WritePlan, tmp_path: Path
) -> None:
    # The tools have the same name and different code. On a shared queue, a worker would execute calls of the other run.
    left_tools, right_tools = _write_tools(tmp_path / "left", "mark"), _write_tools(tmp_path / "right", "mark")
    right_tools.write_text(right_tools.read_text().replace("mark of", "the other of"), encoding="utf-8")
    nodes = [{"id": f"n{number}", "tool": "mark", "arguments": {"name": f"{number}"}} for number in range(20)]
    plan = write_plan(*nodes)
    for tools in (left_tools, right_tools):
        (tools.parent / "hold").touch()
    processes = [
        await command_line.start("run", plan, "--id", f"two-{number}", "--tools", str(tools), "--json")
        for number, tools in enumerate((left_tools, right_tools))
    ]

    async def are_all_nodes_running() -> bool:
        results = [await command_line("status", f"two-{number}", "--json") for number in range(2)]
        if any(each.document.get("status") != "running" for each in results):
            return False
        return all(node["status"] == "running" for each in results for node in each.document["nodes"].values())

    await eventually(are_all_nodes_running)
    for tools in (left_tools, right_tools):
        (tools.parent / "hold").unlink()
    first_result, second_result = await asyncio.gather(*(wait_for_exit(process) for process in processes))

    assert (first_result.code, second_result.code) == (0, 0)
    assert first_result.document["output"] == {f"n{number}": f"mark of {number}" for number in range(20)}
    assert second_result.document["output"] == {f"n{number}": f"the other of {number}" for number in range(20)}
    attempts = [node["attempts"] for each in (first_result, second_result) for node in each.document["nodes"].values()]
    assert attempts == [1] * 40


async def test_node_without_a_worker_reports_the_command_that_starts_a_worker(
    command_line: CommandLine, write_plan: WritePlan, tmp_path: Path
) -> None:
    served_tools, unserved_tools = (
        _write_tools(tmp_path / "served", "mark"),
        _write_tools(tmp_path / "my tools", "stamp"),
    )
    # A run uses the queue of the file with the most calls. So a worker with only `served_tools` continues the run.
    plan = write_plan(
        {"id": "start", "tool": "mark", "arguments": {"name": "x"}},
        pause("first", "2s", depends_on=["start"]),
        {"id": "stamp", "tool": "stamp", "arguments": {"name": "x"}, "depends_on": ["first"]},
        {"id": "last", "tool": "mark", "arguments": {"name": "x"}, "depends_on": ["stamp"]},
        title="Waits",
    )
    tool_options = ["--tools", str(served_tools), "--tools", str(unserved_tools)]
    run_process = await command_line.start("run", plan, "--id", "no-worker", *tool_options)
    await read_line_with(run_process, "running    first")
    run_process.send_signal(signal.SIGKILL)
    await wait_for_exit(run_process)
    first_worker = await command_line.start("--tools", str(served_tools), "--json", program=("worker.py",))
    try:
        worker_document = json.loads(await read_line_with(first_worker, "serving"))
        assert (worker_document["status"], worker_document["task_queues"]) == (
            "serving",
            ["dagwright", _queue_of(served_tools)],
        )
        document = await _status_when_waiting(command_line, "no-worker")
        status_result, node_result, list_result, graph_result = await asyncio.gather(
            command_line("status", "no-worker"),
            command_line("node", "no-worker", "stamp"),
            command_line("list", "--json"),
            command_line("graph", "no-worker", "--format", "json"),
        )
        watch_process = await command_line.start("watch", "no-worker", "--no-worker")
        assert "waiting    stamp" in await read_line_with(watch_process, "no worker for stamp")
        command = shlex.join(["dagwright", "worker", *tool_options])
        note = (
            f"no worker serves the queue {_queue_of(unserved_tools)!r} of stamp; start one with "
            f"`dagwright watch no-worker` or `{command}`"
        )
        assert [(name, item["status"], item["reason"]) for name, item in document["nodes"].items()] == [
            ("start", "completed", None),
            ("first", "completed", None),
            ("stamp", "waiting", "no worker for stamp"),
            ("last", "pending", None),
        ]
        assert document["notes"] == [{"code": "no_worker", "node_id": "stamp", "message": note}]
        assert status_result.stdout.startswith("no-worker (Waits): waiting")
        assert f"note: {note}\n" in status_result.stdout
        assert (node_result.code, node_result.stdout.splitlines()[0]) == (0, "stamp: waiting")
        assert node_result.stdout.endswith(f"waits for: no worker for stamp\nnote: {note}\n")
        listed_run = next(run for run in list_result.check_success().document["runs"] if run["run_id"] == "no-worker")
        # A run writes its progress for lists at most twice a minute, so the list may show the progress of the start.
        assert (listed_run["status"], listed_run["nodes_done"] in (0, 2), listed_run["nodes_total"]) == (
            "running",
            True,
            4,
        )
        assert [item["status"] for item in graph_result.document["nodes"]] == [
            "completed",
            "completed",
            "waiting",
            "pending",
        ]

        # Start exactly the reported command.
        second_worker = await command_line.start(*shlex.split(command)[1:])
        watch_result = await wait_for_exit(watch_process)
        second_worker.terminate()
        await wait_for_exit(second_worker)
    finally:
        first_worker.terminate()
        await wait_for_exit(first_worker)
    assert (watch_result.code, "completed  stamp" in watch_result.stdout) == (0, True)
