"""The public `Client`, `Worker`, `SyncClient` and `run` on the real server."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
import temporalio.client
from pydantic import SecretStr

import dagwright
from dagwright import Client, Plan, PlanInvalid, Run, SyncClient, Worker, ask_human, tool
from dagwright.client.client import WrongEventLoop
from dagwright.client.errors import OptionInvalid
from dagwright.errors import ClientClosed, RunIdInUse
from dagwright.settings import Settings
from dagwright.testing import ModelServer
from dagwright.tools import ToolLoadError
from tests.support.eventually import eventually
from tests.support.goals import call_node
from tests.support.plan_building import plan_of
from tests.support.server import LiveServer

pytestmark = pytest.mark.server

MAX_WAIT_S = 60.0
"""Maximum time until a worker has started, or a list has its expected entries."""
ORDERS: list[tuple[str, int]] = []


@tool(effects="read")
def stock(item: str) -> dict[str, int]:
    """Return the stock of an article."""
    return {"left": len(item)}


@tool(effects="idempotent")
async def order(item: str, amount: int) -> str:
    """Order pieces of an article."""
    ORDERS.append((item, amount))
    return f"{amount} x {item}"


@tool(effects="read")
def give_up(item: str) -> str:
    """Fail."""
    raise dagwright.GiveUp(f"no {item}")


LAMP_PLAN = plan_of(call_node("lamps", "stock", item="lamp"), output="{{lamps.result.left}}")


def create_settings(folder: Path) -> Settings:
    """Return settings with a new task queue."""
    return Settings(state_dir=folder, task_queue=f"python-{uuid4().hex[:8]}")


@pytest.fixture
async def plan_client(client: temporalio.client.Client, tmp_path: Path) -> AsyncIterator[Client]:
    """A client with a new task queue."""
    async with Client.from_temporal(client, settings=create_settings(tmp_path)) as connected_client:
        yield connected_client


async def test_plan_built_in_python_runs(plan_client: Client) -> None:
    plan = Plan("Refill")
    amount = plan.input("amount", type=int)
    lamps = plan.add(stock, item="lamp", id="lamps")
    plan.add(order, item="lamp", amount=amount, when=lamps["left"] < 10, id="order")
    async with Worker(plan_client, tools=[stock, order]):
        run = await plan_client.start(plan, inputs={"amount": 20}, run_id=(refill_id := f"refill-{uuid4()}"))
        events = [event async for event in run.events()]
        result = await run.result()
    assert (run.id, events[0].type, events[-1].type) == (refill_id, "run.started", "run.completed")
    expected = {"lamps": {"left": 4}, "order": "20 x lamp"}
    assert {node_id: node.result for node_id, node in result.nodes.items()} == expected
    assert ORDERS == [("lamp", 20)]


async def test_start_with_the_same_id_returns_the_same_run(plan_client: Client) -> None:
    run_id = f"lamps-{uuid4()}"
    async with Worker(plan_client, tools=[stock]):
        for _ in range(2):
            run = await plan_client.start(LAMP_PLAN, run_id=run_id)
            result = await run.result()
            assert result.output == 4
        with pytest.raises(RunIdInUse, match="belongs to a run with another plan") as error:
            await plan_client.start({**LAMP_PLAN, "title": "Other"}, run_id=run_id)
        # With the error of the server as context, Python would print two more tracebacks.
        assert error.value.__context__ is None
    assert [run.run_id for run in await plan_client.list_runs(title=run_id)] == [run_id]


async def test_two_workers_of_one_client_serve_their_queues(plan_client: Client) -> None:
    async with (
        Worker(plan_client, tools=[stock]) as first_worker,
        Worker(plan_client, tools=[order], task_queue="orders") as second_worker,
    ):
        assert second_worker.task_queues == (plan_client.settings.task_queue, "orders")
        assert first_worker.task_queues[0] == plan_client.settings.task_queue
        plan = {"nodes": [*LAMP_PLAN["nodes"], call_node("buy", "order", item="a", amount=1)]}
        result = await (await plan_client.start(plan)).result()
    assert [node.result for node in result.nodes.values()] == [{"left": 4}, "1 x a"]


WORKER_SCRIPT = """
import asyncio, sys
from dagwright import Client, Worker

async def main():
    async with Client.connect() as client:
        await Worker(client, tools=[sys.argv[1]]).run()

asyncio.run(main())
"""
TOOLS_FILE_TEXT = """
from dagwright import tool

@tool(effects="read")
def shelf(item: str) -> str:
    return f"shelf of {item}"
"""


async def test_worker_in_another_process_serves_its_tools_until_sigterm(server: LiveServer, tmp_path: Path) -> None:
    settings = Settings(state_dir=server.settings.state_dir, task_queue=f"python-{uuid4().hex[:8]}")
    (tools_file := tmp_path / "shelves.py").write_text(TOOLS_FILE_TEXT)
    environment = {**server.environment(), "DAGWRIGHT_TASK_QUEUE": settings.task_queue, "DAGWRIGHT_LOG_LEVEL": "error"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER_SCRIPT, str(tools_file), env=environment
    )
    try:
        async with Client.connect(settings=settings) as client:
            run = await _start_when_the_tools_are_published(client, {"nodes": [call_node("a", "shelf", item="x")]})
            assert (await run.result()).nodes["a"].result == "shelf of x"
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


async def _start_when_the_tools_are_published(client: Client, plan: dict[str, object]) -> Run:
    """Start a plan as soon as a worker has published the tools of the plan. Until then, the plan is invalid."""
    async with asyncio.timeout(MAX_WAIT_S):
        while True:
            with contextlib.suppress(PlanInvalid):
                return await client.start(plan)
            await asyncio.sleep(0.2)


async def test_listed_request_can_be_answered_and_lists_can_be_filtered(plan_client: Client) -> None:
    plan = Plan("Publish")
    plan.add(ask_human("Publish it?", assignee="ann"), id="check")
    async with Worker(plan_client):
        run = await plan_client.start(plan, tags={"team": (team := uuid4().hex)})
        async with asyncio.timeout(MAX_WAIT_S):
            while not (
                requests := [request for request in await plan_client.inbox(assignee="ann") if request.run_id == run.id]
            ):
                await asyncio.sleep(0.1)
        assert (requests[0].node_id, requests[0].prompt) == ("check", "Publish it?")
        assert [request for request in await plan_client.inbox(type="SELECTION") if request.run_id == run.id] == []
        await requests[0].answer(approved=True)
        await run.result()
        async with asyncio.timeout(MAX_WAIT_S):
            while [run.run_id for run in await plan_client.list_runs(status="completed", tags={"team": team})] != [
                run.id
            ]:
                await asyncio.sleep(0.1)
    assert await plan_client.list_runs(tags={"team": "no such team"}) == []
    with pytest.raises(OptionInvalid, match="status: 'finished' is not one of running, waiting"):
        await plan_client.list_runs(status="finished")


async def test_text_requests_and_plans_are_turns_of_a_session(client: temporalio.client.Client, tmp_path: Path) -> None:
    plan_text = '{"nodes": [{"id": "a", "tool": "stock", "arguments": {"item": "lamp"}}]}'
    async with ModelServer(plan_text, "There are 4.") as models:
        model = {"model": "small", "openai_base_url": models.base_url, "openai_api_key": SecretStr("key")}
        settings = create_settings(tmp_path).model_copy(update=model)
        async with Client.from_temporal(client, settings=settings) as plan_client, Worker(plan_client, tools=[stock]):
            session = plan_client.session(f"session-{uuid4()}")
            first_turn = await session.ask("How many lamps are left?")
            assert (await first_turn.result()).output == "There are 4."
            second_turn = await session.start(LAMP_PLAN)
            assert (await second_turn.result()).output == 4
            assert [turn.run_id for turn in await session.turns()] == [first_turn.id, second_turn.id]

            async def is_listed() -> bool:
                run_ids = [
                    turn.run_id
                    for listed_session in await plan_client.list_sessions(prefix=session.id)
                    for turn in listed_session.turns
                ]
                return run_ids == [first_turn.id, second_turn.id]

            await eventually(is_listed)
            assert await plan_client.list_sessions(prefix=f"no-{session.id}") == []
            await session.end()


async def test_invalid_plan_and_inputs_are_rejected_before_the_start(plan_client: Client) -> None:
    with pytest.raises(PlanInvalid) as error:
        await plan_client.start(LAMP_PLAN)
    assert [problem.code for problem in error.value.problems] == ["unknown_tool"]
    # A run can be started with the declaration of a tool that another process serves.
    await (await plan_client.start(LAMP_PLAN, tools=[stock])).cancel()
    with pytest.raises(PlanInvalid, match="no input 'net'"):
        await plan_client.start(LAMP_PLAN, tools=[stock], inputs={"net": 1})
    plan_with_input = {**LAMP_PLAN, "inputs": {"net": {"type": "number"}}, "output": "{{PLACEHOLDER_net}}"}
    with pytest.raises(PlanInvalid, match="net"):
        await plan_client.start(plan_with_input, tools=[stock])


async def test_misuse_of_clients_and_workers_raises_immediately(
    plan_client: Client, client: temporalio.client.Client, tmp_path: Path
) -> None:
    with pytest.raises(dagwright.RunNotFound, match="there is no run 'no-such-run'"):
        await plan_client.get_run("no-such-run").result()
    with pytest.raises(WrongEventLoop, match="another event loop"):
        await asyncio.to_thread(asyncio.run, plan_client.list_runs())
    with pytest.raises(WrongEventLoop, match="another event loop"):
        await asyncio.to_thread(asyncio.run, plan_client.get_run("a").status())
    closed_client = await Client.from_temporal(client, settings=create_settings(tmp_path))
    run, worker = closed_client.get_run("a"), await Worker(closed_client, tools=[stock]).__aenter__()
    await closed_client.close()
    assert worker.task_queues == ()
    with pytest.raises(ClientClosed, match="the client is closed"):
        await run.result()
    with pytest.raises(TypeError, match="start\\(\\) got an unexpected argument 'deadlin'; did you mean 'deadline'"):
        await cast("Any", plan_client).start(LAMP_PLAN, deadlin="2h")
    with pytest.raises(ClientClosed, match="the client is closed"):
        await closed_client.__aenter__()
    for create in (lambda: closed_client.get_run("a"), lambda: Worker(closed_client)):
        with pytest.raises(ClientClosed, match="the client is closed"):
            create()

    @tool(name="stock", effects="read")
    def second_stock(item: str) -> str:
        return item

    async with Worker(plan_client, tools=[stock]):
        with pytest.raises(ToolLoadError, match="Duplicate tool 'stock'"):
            async with Worker(plan_client, tools=[second_stock]):
                pass
        with pytest.raises(ToolLoadError, match=r"with different tools \(order, stock\): give all tools to one Worker"):
            async with Worker(plan_client, tools=[order]):
                pass


async def test_blocking_client_works_in_an_event_loop(server: LiveServer, capsys: pytest.CaptureFixture[str]) -> None:
    """The test runs in an event loop, like code in a notebook."""
    settings = Settings(state_dir=server.settings.state_dir, task_queue=f"python-{uuid4().hex[:8]}")
    assert dagwright.run(LAMP_PLAN, tools=[stock], settings=settings).output == 4
    with SyncClient.connect(settings=settings) as client, client.worker(tools=[stock, give_up]):
        run = client.start(LAMP_PLAN, run_id=(run_id := f"sync-{uuid4()}"))
        assert run.watch().output == 4
        assert "completed  lamps  stock" in capsys.readouterr().out
        assert run.draw().status == "completed"
        assert f"/workflows/{run_id}/" in (run.ui_url() or "")
        events = [*run.events()]
        assert [*run.events(after=events[-2].cursor)] == events[-1:]
        assert client.get_run(run_id).status() == "completed"
        failing_run = client.start({"nodes": [call_node("a", "give_up", item="lamp")]})
        with pytest.raises(dagwright.RunFailed, match="no lamp") as error:
            failing_run.result()
        assert [problem.node_id for problem in error.value.failures] == ["a"]
    with pytest.raises(ClientClosed, match=r"the client is closed: connect again with SyncClient\.connect\(\)"):
        run.status()
