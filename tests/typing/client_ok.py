"""A program that starts runs and uses them, without type errors."""

from datetime import timedelta
from typing import Any, assert_type

from dagwright import Client, DagwrightError, Plan, Run, RunFailed, RunResult, Session, SyncClient, Worker, run, tool
from dagwright.errors import Problem
from dagwright.types import Inbox, RunSummary


@tool(effects="read")
def stock(item: str) -> dict[str, int]:
    """Return the stock of an article."""
    return {item: 3}


async def work(plan: Plan) -> None:
    """Start runs in every way."""
    async with (
        Client.connect("localhost:7233", namespace="shop") as client,
        Worker(client, tools=[stock, "shop.tools"]),
    ):
        run = await client.start(plan, inputs={"net": 100}, run_id="refill-1", deadline=timedelta(hours=2))
        assert_type(run, Run)
        await client.start("refill.yaml", tags={"team": "a"}, budget={"tokens": 1000}, approve_plan=True)
        await client.start({"nodes": []}, policy={"rules": []}, compensate=True, interactive=False)
        assert_type(await client.ask("Refill the lamps", profile="rounds", max_rounds=2), Run)
        assert_type(await client.list_runs(status="failed", since="2h"), list[RunSummary])
        assert_type(await client.inbox(type="APPROVAL"), Inbox)
        assert_type(client.session("mine"), Session)
        try:
            result = await run.result()
        except RunFailed as failed:
            problems: list[Problem] = [*failed.failures]
            raise DagwrightError(str(problems)) from failed
        assert_type(result, RunResult)
    second_client = await Client.connect()
    await second_client.close()


with SyncClient.connect() as client, client.worker(tools=[stock]):
    handle = client.start("refill.yaml", inputs={"net": 100}, deadline="2h")
    assert_type(handle.result(raise_on_failure=False), RunResult)
    handle.pause(reason="stocktaking")
    events: list[Any] = list(handle.events(after="1-2"))
    assert_type(client.list_runs(limit=3), list[RunSummary])

assert_type(run("refill.yaml", tools=[stock], inputs={"net": 100}, tags={"team": "a"}), RunResult)
