"""Queues without a worker: reported with the command that starts one, after which the run continues."""

import asyncio
import json
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest

from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset
from tests.e2e.command import CommandLine, line_with, wait_for_exit
from tests.e2e.conftest import Plans, pause
from tests.support.eventually import eventually

pytestmark = pytest.mark.server

_TOOLS = '''
import asyncio
from pathlib import Path
from dagwright.tools import tool

@tool(effects="idempotent")
async def {name}(name: str) -> str:
    """Says who was called."""
    while (Path(__file__).parent / "hold").exists():
        await asyncio.sleep(0.02)
    return f"{name} of {{name}}"
'''


def _write_tools(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "own_tools.py"
    path.write_text(_TOOLS.format(name=name), encoding="utf-8")
    return path


def _own_queue(tools: Path) -> str:
    [queue] = load_toolset(Settings(), [str(tools)]).user_queues
    return queue


async def _status_when_waiting(command_line: CommandLine, run: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    async def is_waiting() -> bool:
        found.update((await command_line("status", run, "--json")).document)
        return bool(found["status"] == "waiting")

    await eventually(is_waiting)
    return found


async def test_two_terminals_with_different_tools(command_line: CommandLine, write_plan: Plans, tmp_path: Path) -> None:
    # The same tool name, other code: with one queue for both, each would do half of the other's work.
    left, right = _write_tools(tmp_path / "left", "mark"), _write_tools(tmp_path / "right", "mark")
    right.write_text(right.read_text().replace("mark of", "the other of"), encoding="utf-8")
    nodes = [{"id": f"n{number}", "tool": "mark", "arguments": {"name": f"{number}"}} for number in range(20)]
    plan = write_plan(*nodes)
    for tools in (left, right):
        (tools.parent / "hold").touch()
    running = [
        await command_line.start("run", plan, "--id", f"two-{number}", "--tools", str(tools), "--json")
        for number, tools in enumerate((left, right))
    ]

    async def are_running() -> bool:
        looks = [await command_line("status", f"two-{number}", "--json") for number in range(2)]
        if any(look.document.get("status") != "running" for look in looks):
            return False
        return all(node["status"] == "running" for look in looks for node in look.document["nodes"].values())

    await eventually(are_running)
    for tools in (left, right):
        (tools.parent / "hold").unlink()
    first_result, second_result = await asyncio.gather(*(wait_for_exit(process) for process in running))

    assert (first_result.code, second_result.code) == (0, 0)
    assert first_result.document["output"] == {f"n{number}": f"mark of {number}" for number in range(20)}
    assert second_result.document["output"] == {f"n{number}": f"the other of {number}" for number in range(20)}
    attempts = [node["attempts"] for end in (first_result, second_result) for node in end.document["nodes"].values()]
    assert attempts == [1] * 40


async def test_node_without_a_worker_explains_it(command_line: CommandLine, write_plan: Plans, tmp_path: Path) -> None:
    served, tools = _write_tools(tmp_path / "served", "mark"), _write_tools(tmp_path / "my tools", "stamp")
    # The run is on the queue of the file that it calls most, so the other file is not needed to continue.
    plan = write_plan(
        {"id": "begin", "tool": "mark", "arguments": {"name": "x"}},
        pause("first", "2s", depends_on=["begin"]),
        {"id": "own", "tool": "stamp", "arguments": {"name": "x"}, "depends_on": ["first"]},
        {"id": "last", "tool": "mark", "arguments": {"name": "x"}, "depends_on": ["own"]},
        title="Waits",
    )
    both = ["--tools", str(served), "--tools", str(tools)]
    running = await command_line.start("run", plan, "--id", "no-worker", *both)
    await line_with(running, "running    first")
    running.send_signal(signal.SIGKILL)
    await wait_for_exit(running)
    plain = await command_line.start("--tools", str(served), "--json", program=("worker.py",))
    try:
        serving = json.loads(await line_with(plain, "serving"))
        assert (serving["status"], serving["task_queues"]) == ("serving", ["dagwright", _own_queue(served)])
        document = await _status_when_waiting(command_line, "no-worker")
        shown, node, listed, graph = await asyncio.gather(
            command_line("status", "no-worker"),
            command_line("node", "no-worker", "own"),
            command_line("list", "--json"),
            command_line("graph", "no-worker", "--format", "json"),
        )
        watching = await command_line.start("watch", "no-worker", "--no-worker")
        assert "waiting    own" in await line_with(watching, "no worker for stamp")
        command = shlex.join(["dagwright", "worker", *both])
        note = (
            f"no worker serves the queue {_own_queue(tools)!r} of stamp; start one with "
            f"`dagwright watch no-worker` or `{command}`"
        )
        assert [(name, item["status"], item["reason"]) for name, item in document["nodes"].items()] == [
            ("begin", "completed", None),
            ("first", "completed", None),
            ("own", "waiting", "no worker for stamp"),
            ("last", "pending", None),
        ]
        assert document["notes"] == [{"code": "no_worker", "node_id": "own", "message": note}]
        assert shown.stdout.startswith("no-worker (Waits): waiting")
        assert f"note: {note}\n" in shown.stdout
        assert (node.code, node.stdout.splitlines()[0]) == (0, "own: waiting")
        assert node.stdout.endswith(f"waits for: no worker for stamp\nnote: {note}\n")
        mine = next(run for run in listed.check_success().document["runs"] if run["run_id"] == "no-worker")
        # Lists show the progress that the run wrote last, at most twice a minute.
        assert (mine["status"], mine["nodes_done"] in (0, 2), mine["nodes_total"]) == ("running", True, 4)
        assert [item["status"] for item in graph.document["nodes"]] == ["completed", "completed", "waiting", "pending"]

        # Exactly the reported command.
        worker = await command_line.start(*shlex.split(command)[1:])
        watched = await wait_for_exit(watching)
        worker.terminate()
        await wait_for_exit(worker)
    finally:
        plain.terminate()
        await wait_for_exit(plain)
    assert (watched.code, "completed  own" in watched.stdout) == (0, True)
