"""Kills of the command, of the worker and of the server during `fork`: one fork, nothing asked, lost or done twice."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from dagwright.core.boundary import wire
from dagwright.history.run_reader import RunReader
from tests.chaos.building import assert_whole
from tests.support.chaos import (
    HELD_STARTER,
    ROOT,
    FaultPoints,
    WorkerProcess,
    effect,
    environment_of,
    restart,
    result_within,
    start_run,
)
from tests.support.chaos_tools import attempts_of, effects_of
from tests.support.eventually import eventually
from tests.support.held_starter import READ, STARTED
from tests.support.programs import Running, start_program
from tests.support.runs import Handle
from tests.support.server import LiveServer

pytestmark = [pytest.mark.server, pytest.mark.slow]

_ANSWER = {"request_id": "check", "answer": {"approved": True}, "by": "ann"}


def _write(name: str, *after: str) -> dict[str, Any]:
    return {"id": name, "tool": "write_then_hold", "arguments": {"name": name}, "depends_on": [*after]}


_CHECK = {"id": "check", "human": {"type": "APPROVAL", "prompt": "Go on?"}, "depends_on": ["first"]}
_PLAN = {
    "nodes": [_write("first"), _CHECK, effect("done", "check"), effect("cut", "done"), _write("last", "cut")],
    "output": "{{last.result}}",
}
"""`first`, `done` and `last` change the world once; `cut` is stopped after its effect, and done again with its key."""


class Forker:
    """Request the same fork several times."""

    def __init__(self, server: LiveServer, folder: Path, run: str) -> None:
        self._server = server
        self._folder = folder
        self._run = run

    async def start(self) -> Running:
        return await start_program(
            (str(HELD_STARTER),),
            ("fork", self._run, "--yes", "--json"),
            # Where its worker runs too: a command from another folder is rejected beside it.
            folder=ROOT,
            environment=environment_of(self._server.address, self._folder),
        )

    async def __call__(self) -> dict[str, Any]:
        """Run the command to its end and return its output."""
        return await output_of(await self.start())


async def output_of(process: Running) -> dict[str, Any]:
    """Return the output of a command that succeeded."""
    stdout, stderr = await asyncio.wait_for(process.communicate(), 240)
    assert process.returncode == 0, stderr.decode()
    actual: dict[str, Any] = json.loads(stdout)
    assert actual["ok"]
    return actual


async def _kill(process: Running) -> None:
    process.kill()
    await process.communicate()


async def _cut_off(server: LiveServer, points: FaultPoints, run: str) -> None:
    """Create a run with an answered request that was cancelled between an effect and its end."""
    points.hold("cut")
    client = await server.start()
    handle = await start_run(client, _PLAN, workflow_id=run)
    await handle.execute_update(wire.UPDATE_SUBMIT_FEEDBACK, _ANSWER)
    await points.wait_for_point("cut")
    await handle.signal(wire.CANCEL, {"by": "ann"})
    assert (await result_within(handle, 240))["nodes"]["cut"]["status"] == "cancelled"
    points.forget("cut")


async def _forks_of(server: LiveServer, run: str) -> list[str]:
    client = await server.start()
    return [found.id async for found in client.list_workflows(f"WorkflowId STARTS_WITH '{run}-fork-'")]


async def _assert_done_once(server: LiveServer, folder: Path, fork: str) -> None:
    """Check that a fork did the remaining work, and that neither run repeated completed work or questions."""
    handle: Handle = (await server.start()).get_workflow_handle(fork)
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
    await assert_whole(handle)


async def test_all_killed_between_reading_the_old_run_and_starting_the_new_one(
    own_server: LiveServer, worker: WorkerProcess, folder: Path, points: FaultPoints
) -> None:
    await _cut_off(own_server, points, "cut-before-the-start")
    fork = Forker(own_server, folder, "cut-before-the-start")
    points.hold(READ)
    held = await fork.start()
    await points.wait_for_point(READ)
    await _kill(held)
    await worker.kill()
    await restart(own_server)
    assert await _forks_of(own_server, "cut-before-the-start") == []

    points.release(READ)
    points.release("cut")
    first, second = await asyncio.gather(fork(), fork())
    assert first["fork_run_id"] == second["fork_run_id"]
    assert first["difference"] == second["difference"]
    await worker.start()
    await _assert_done_once(own_server, folder, first["fork_run_id"])
    assert await _forks_of(own_server, "cut-before-the-start") == [first["fork_run_id"]]


async def test_server_killed_under_two_commands_that_have_read_the_old_run(
    own_server: LiveServer, worker: WorkerProcess, folder: Path, points: FaultPoints
) -> None:
    await _cut_off(own_server, points, "cut-under-the-command")
    fork = Forker(own_server, folder, "cut-under-the-command")
    points.hold(READ)
    commands = [await fork.start() for _ in range(2)]
    await eventually(lambda: all((folder / f"{READ}-{command.pid}").exists() for command in commands))
    await worker.kill()
    await restart(own_server)
    points.release("cut")
    points.release(READ)
    entries = [await output_of(command) for command in commands]
    assert entries[0]["fork_run_id"] == entries[1]["fork_run_id"]
    assert sorted("already" in entry["message"] for entry in entries) == [False, True]
    await worker.start()
    await _assert_done_once(own_server, folder, entries[0]["fork_run_id"])


async def test_all_killed_when_the_fork_has_been_started_without_a_record(
    own_server: LiveServer, worker: WorkerProcess, folder: Path, points: FaultPoints
) -> None:
    await _cut_off(own_server, points, "cut-behind-the-start")
    fork = Forker(own_server, folder, "cut-behind-the-start")
    await worker.kill()
    points.hold(STARTED)
    held = await fork.start()
    await points.wait_for_point(STARTED)
    await _kill(held)
    await restart(own_server)
    points.release(STARTED)
    points.release("cut")
    again = await fork()
    assert "was already forked" in again["message"]
    await worker.start()
    await _assert_done_once(own_server, folder, again["fork_run_id"])
    assert await _forks_of(own_server, "cut-behind-the-start") == [again["fork_run_id"]]


async def test_both_killed_while_the_fork_makes_an_effect_and_it_is_asked_for_again(
    own_server: LiveServer, worker: WorkerProcess, folder: Path, points: FaultPoints
) -> None:
    await _cut_off(own_server, points, "cut-in-the-fork")
    fork = Forker(own_server, folder, "cut-in-the-fork")
    first = await fork()
    await points.wait_for_point("cut")
    await worker.kill()
    await restart(own_server)
    points.release("cut")
    second = await fork()
    assert second["fork_run_id"] == first["fork_run_id"]
    await worker.start()
    await _assert_done_once(own_server, folder, first["fork_run_id"])


async def test_both_killed_between_the_question_of_a_running_run_and_the_answers_of_it_and_its_fork(
    own_server: LiveServer, worker: WorkerProcess, folder: Path, points: FaultPoints
) -> None:
    plan = {"nodes": [_write("first"), _CHECK, effect("shared", "check")]}
    handle = await start_run(await own_server.start(), plan, workflow_id="forked-while-it-asks")
    await _asks(own_server, handle.id)
    fork = Forker(own_server, folder, handle.id)
    name = (await fork())["fork_run_id"]
    await _asks(own_server, name)
    await worker.kill()
    await restart(own_server)
    assert (await fork())["fork_run_id"] == name
    client = await own_server.start()
    runs = [client.get_workflow_handle(run) for run in (handle.id, name)]
    for run in runs:
        await run.signal(wire.SIGNAL_FEEDBACK, _ANSWER)
    await worker.start()
    for run in runs:
        document = await result_within(run, 240)
        answers = document["nodes"]["check"]["lineage"]["answers"]
        assert [(answer["request_id"], answer["by"]) for answer in answers] == [("check", "ann")]
        assert (document["status"], document["waiting_for"]) == ("completed", [])
        await assert_whole(run)
    # Both execute the nodes that had not started, under one key.
    assert effects_of(folder) == ["first", "shared"]
    assert attempts_of(folder) == ["first", "shared", "shared"]


async def _asks(server: LiveServer, run: str) -> None:
    client = await server.start()

    async def does() -> bool:
        waiting = (await RunReader(client, run).read()).document()["waiting_for"]
        return [request["request_id"] for request in waiting] == ["check"]

    await eventually(does)
