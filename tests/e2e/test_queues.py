"""Task queues of tool files: runs with different files share no calls, and a queue without a worker is reported."""

import asyncio
import json
import shlex
from pathlib import Path

import pytest

from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset
from tests.e2e.command import (
    CommandLine,
    kill_process,
    read_line_with,
    stop_process,
    wait_for_exit,
    wait_for_run_status,
)
from tests.e2e.conftest import WritePlan, wait_node
from tests.support.eventually import eventually
from tests.support.goals import call_node

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


async def test_runs_with_different_tools_of_the_same_name_do_not_share_calls(
    commands: CommandLine, write_plan: WritePlan, tmp_path: Path
) -> None:
    # The tools have the same name and different code. On a shared queue, a worker would execute calls of the other run.
    left_tools, right_tools = _write_tools(tmp_path / "left", "mark"), _write_tools(tmp_path / "right", "mark")
    right_tools.write_text(right_tools.read_text().replace("mark of", "the other of"), encoding="utf-8")
    plan = write_plan(*(call_node(f"n{number}", "mark", name=f"{number}") for number in range(20)))
    for tools in (left_tools, right_tools):
        (tools.parent / "hold").touch()
    processes = [
        await commands.start("run", plan, "--id", f"two-{number}", "--tools", str(tools), "--json")
        for number, tools in enumerate((left_tools, right_tools))
    ]

    async def are_all_nodes_running() -> bool:
        results = [await commands("status", f"two-{number}", "--json") for number in range(2)]
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
    commands: CommandLine, write_plan: WritePlan, tmp_path: Path
) -> None:
    served_tools = _write_tools(tmp_path / "served", "mark")
    unserved_tools = _write_tools(tmp_path / "my tools", "stamp")
    # A run uses the queue of the file with the most calls. So a worker with only `served_tools` continues the run.
    plan = write_plan(
        call_node("start", "mark", name="x"),
        wait_node("first", "2s", depends_on=["start"]),
        {**call_node("stamp", "stamp", name="x"), "depends_on": ["first"]},
        {**call_node("last", "mark", name="x"), "depends_on": ["stamp"]},
        title="Waits",
    )
    tool_options = ["--tools", str(served_tools), "--tools", str(unserved_tools)]
    run_process = await commands.start("run", plan, "--id", "no-worker", *tool_options)
    await read_line_with(run_process, "running    first")
    await kill_process(run_process)
    first_worker = await commands.start("--tools", str(served_tools), "--json", program=("worker.py",))
    try:
        worker_document = json.loads(await read_line_with(first_worker, "serving"))
        assert worker_document["status"] == "serving"
        assert worker_document["task_queues"] == ["dagwright", _queue_of(served_tools)]
        document = await wait_for_run_status(commands, "no-worker", "waiting")
        status_result, node_result, list_result, graph_result = await asyncio.gather(
            commands("status", "no-worker"),
            commands("node", "no-worker", "stamp"),
            commands("list", "--json"),
            commands("graph", "no-worker", "--format", "json"),
        )
        watch_process = await commands.start("watch", "no-worker", "--no-worker")
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
        assert listed_run["status"] == "running"
        assert listed_run["nodes_done"] in (0, 2)
        assert listed_run["nodes_total"] == 4
        node_statuses = [item["status"] for item in graph_result.document["nodes"]]
        assert node_statuses == ["completed", "completed", "waiting", "pending"]

        # Start exactly the reported command.
        second_worker = await commands.start(*shlex.split(command)[1:])
        watch_result = await wait_for_exit(watch_process)
        await stop_process(second_worker)
    finally:
        await stop_process(first_worker)
    assert (watch_result.code, "completed  stamp" in watch_result.stdout) == (0, True)
