"""Kills of the command, the worker and the server during `fork`: there is one fork, which repeats no completed work."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from dagwright.core.boundary import wire
from tests.support.chaos import (
    HELD_STARTER,
    ROOT,
    FaultPoints,
    WorkerProcess,
    effect_node,
    environment_of,
    restart_server,
    result_within,
    start_run,
)
from tests.support.chaos_tools import attempts_of, effects_of
from tests.support.eventually import eventually
from tests.support.held_starter import FORK_READ, FORK_STARTED
from tests.support.people import tool_node, wait_for_requests
from tests.support.plan_building import plan_of
from tests.support.programs import RunningProcess, start_program
from tests.support.runs import Handle, check_history
from tests.support.server import LiveServer

pytestmark = [pytest.mark.server, pytest.mark.slow]

_ANSWER = {"request_id": "check", "answer": {"approved": True}, "by": "ann"}


def _write_node(name: str, *after: str) -> dict[str, Any]:
    return tool_node(name, "write_then_hold", *after, arguments={"name": name})


_CHECK = {"id": "check", "human": {"type": "APPROVAL", "prompt": "Continue?"}, "depends_on": ["first"]}
_PLAN = plan_of(
    _write_node("first"),
    _CHECK,
    effect_node("done", "check"),
    effect_node("cut", "done"),
    _write_node("last", "cut"),
    output="{{last.result}}",
)
"""The run is cancelled after the effect of `cut`; the fork repeats `cut` with the same key. Other nodes run once."""


class ForkCommand:
    """Calls of the command `fork` for one run."""

    def __init__(self, server: LiveServer, folder: Path, run_id: str) -> None:
        self._server = server
        self._folder = folder
        self._run_id = run_id

    async def start(self) -> RunningProcess:
        return await start_program(
            (str(HELD_STARTER),),
            ("fork", self._run_id, "--yes", "--json"),
            # This is the folder of the worker. A command in another folder would be rejected.
            folder=ROOT,
            environment=environment_of(self._server.address, self._folder),
        )

    async def run(self) -> dict[str, Any]:
        """Run the command to its end and return its output."""
        return await output_of(await self.start())


async def output_of(process: RunningProcess) -> dict[str, Any]:
    """Return the output of a command that succeeded."""
    stdout, stderr = await asyncio.wait_for(process.communicate(), 240)
    assert process.returncode == 0, stderr.decode()
    output: dict[str, Any] = json.loads(stdout)
    assert output["ok"]
    return output


async def _kill(process: RunningProcess) -> None:
    process.kill()
    await process.communicate()


async def _cancel_after_effect(server: LiveServer, points: FaultPoints, run_id: str) -> None:
    """Start a run, answer its request, and cancel the run after the effect of `cut` and before the result of `cut`."""
    points.hold("cut")
    handle = await start_run(await server.start(), _PLAN, run_id=run_id)
    await handle.execute_update(wire.UPDATE_SUBMIT_FEEDBACK, _ANSWER)
    await points.wait_for_point("cut")
    await handle.signal(wire.CANCEL, {"by": "ann"})
    assert (await result_within(handle, 240))["nodes"]["cut"]["status"] == "cancelled"
    points.forget("cut")


async def _forks_of(server: LiveServer, run_id: str) -> list[str]:
    client = await server.start()
    return [execution.id async for execution in client.list_workflows(f"WorkflowId STARTS_WITH '{run_id}-fork-'")]


async def _assert_fork_finishes_the_run(server: LiveServer, folder: Path, fork_id: str) -> None:
    """Check that a fork did the remaining work, and that it repeated no completed node and no request."""
    handle: Handle = (await server.start()).get_workflow_handle(fork_id)
    document = await result_within(handle, 240)
    assert {
        name: (node["status"], bool(node["lineage"].get("reused"))) for name, node in document["nodes"].items()
    } == {
        "first": ("completed", True),
        "check": ("completed", True),
        "done": ("completed", True),
        "cut": ("completed", False),
        "last": ("completed", False),
    }
    assert effects_of(folder) == ["cut", "done", "first", "last"]
    assert set(attempts_of(folder)) == {"cut", "done", "first", "last"}
    assert [attempts_of(folder).count(name) for name in ("done", "first", "last")] == [1, 1, 1]
    await check_history(await handle.fetch_history())


async def test_concurrent_commands_make_one_fork_after_kills_before_its_start(
    private_server: LiveServer, worker: WorkerProcess, folder: Path, points: FaultPoints
) -> None:
    await _cancel_after_effect(private_server, points, "cut-before-the-start")
    command = ForkCommand(private_server, folder, "cut-before-the-start")
    points.hold(FORK_READ)
    held_process = await command.start()
    await points.wait_for_point(FORK_READ)
    await _kill(held_process)
    await worker.kill()
    await restart_server(private_server)
    assert await _forks_of(private_server, "cut-before-the-start") == []

    points.release(FORK_READ)
    points.release("cut")
    first_output, second_output = await asyncio.gather(command.run(), command.run())
    assert first_output["fork_run_id"] == second_output["fork_run_id"]
    assert first_output["difference"] == second_output["difference"]
    await worker.start()
    await _assert_fork_finishes_the_run(private_server, folder, first_output["fork_run_id"])
    assert await _forks_of(private_server, "cut-before-the-start") == [first_output["fork_run_id"]]


async def test_commands_that_survive_a_kill_of_the_server_make_one_fork(
    private_server: LiveServer, worker: WorkerProcess, folder: Path, points: FaultPoints
) -> None:
    await _cancel_after_effect(private_server, points, "cut-during-the-command")
    command = ForkCommand(private_server, folder, "cut-during-the-command")
    points.hold(FORK_READ)
    processes = [await command.start() for _ in range(2)]
    await eventually(lambda: all((folder / f"{FORK_READ}-{process.pid}").exists() for process in processes))
    await worker.kill()
    await restart_server(private_server)
    points.release("cut")
    points.release(FORK_READ)
    outputs = [await output_of(process) for process in processes]
    assert outputs[0]["fork_run_id"] == outputs[1]["fork_run_id"]
    assert sorted("already" in output["message"] for output in outputs) == [False, True]
    await worker.start()
    await _assert_fork_finishes_the_run(private_server, folder, outputs[0]["fork_run_id"])


async def test_command_after_kills_finds_the_fork_that_was_started(
    private_server: LiveServer, worker: WorkerProcess, folder: Path, points: FaultPoints
) -> None:
    await _cancel_after_effect(private_server, points, "cut-after-the-start")
    command = ForkCommand(private_server, folder, "cut-after-the-start")
    await worker.kill()
    points.hold(FORK_STARTED)
    held_process = await command.start()
    await points.wait_for_point(FORK_STARTED)
    await _kill(held_process)
    await restart_server(private_server)
    points.release(FORK_STARTED)
    points.release("cut")
    output = await command.run()
    assert "was already forked" in output["message"]
    await worker.start()
    await _assert_fork_finishes_the_run(private_server, folder, output["fork_run_id"])
    assert await _forks_of(private_server, "cut-after-the-start") == [output["fork_run_id"]]


async def test_command_after_kills_during_an_effect_finds_the_running_fork(
    private_server: LiveServer, worker: WorkerProcess, folder: Path, points: FaultPoints
) -> None:
    await _cancel_after_effect(private_server, points, "cut-in-the-fork")
    command = ForkCommand(private_server, folder, "cut-in-the-fork")
    first_output = await command.run()
    await points.wait_for_point("cut")
    await worker.kill()
    await restart_server(private_server)
    points.release("cut")
    assert (await command.run())["fork_run_id"] == first_output["fork_run_id"]
    await worker.start()
    await _assert_fork_finishes_the_run(private_server, folder, first_output["fork_run_id"])


async def test_run_and_its_fork_complete_after_kills_before_their_requests_are_answered(
    private_server: LiveServer, worker: WorkerProcess, folder: Path, points: FaultPoints
) -> None:
    plan = {"nodes": [_write_node("first"), _CHECK, effect_node("shared", "check")]}
    client = await private_server.start()
    handle = await start_run(client, plan, run_id="forked-while-it-asks")
    await wait_for_requests(client, handle.id, "check")
    command = ForkCommand(private_server, folder, handle.id)
    fork_id = (await command.run())["fork_run_id"]
    await wait_for_requests(client, fork_id, "check")
    await worker.kill()
    await restart_server(private_server)
    assert (await command.run())["fork_run_id"] == fork_id
    client = await private_server.start()
    runs = [client.get_workflow_handle(run_id) for run_id in (handle.id, fork_id)]
    for run in runs:
        await run.signal(wire.SIGNAL_FEEDBACK, _ANSWER)
    await worker.start()
    for run in runs:
        document = await result_within(run, 240)
        answers = document["nodes"]["check"]["lineage"]["answers"]
        assert [(answer["request_id"], answer["by"]) for answer in answers] == [("check", "ann")]
        assert (document["status"], document["waiting_for"]) == ("completed", [])
        await check_history(await run.fetch_history())
    # The run and its fork both execute the node that had not started, with the same idempotency key.
    assert effects_of(folder) == ["first", "shared"]
    assert attempts_of(folder) == ["first", "shared", "shared"]
