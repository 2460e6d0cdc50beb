"""Lists of runs and requests on the real server: their rows, and the number of requests to Temporal."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import httpx
import pytest
import temporalio.client

import dagwright
from dagwright import Client, Plan, Worker, tool
from dagwright.client.connecting import create_services
from dagwright.client.errors import OptionInvalid
from dagwright.client.feedback.inbox import InboxFilter
from dagwright.client.run_lists import RunFilter
from dagwright.client.services import Services
from dagwright.interfaces.http.app import create_app
from dagwright.interfaces.http.callers import KeyScope
from dagwright.interfaces.http.context import open_context
from dagwright.server import connection_of
from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset
from tests.support.eventually import eventually
from tests.support.listed_runs import check_filters, check_pages
from tests.support.rpcs import counted_rpcs

pytestmark = pytest.mark.server


@tool(effects="read")
def stock(item: str) -> int:
    """Return the stock of an article."""
    return len(item)


@tool(effects="read")
def give_up(item: str) -> str:
    """Fail."""
    raise dagwright.GiveUp(f"no {item}")


LOOK = {"id": "look", "tool": "stock", "arguments": {"item": "lamp"}}
ASK = {"id": "ask", "human": {"type": "APPROVAL", "prompt": "Buy?", "assignee": "ann"}, "depends_on": ["look"]}
NESTED = {"id": "below", "plan": {"title": "Below", "nodes": [{**ASK, "depends_on": []}]}}
FAILING = {"id": "fail", "tool": "give_up", "arguments": {"item": "lamp"}, "depends_on": ["look"]}


SUM = {"id": "sum", "tool": "calculator", "arguments": {"expression": "1 + 2"}}


@pytest.fixture
async def shop(client: temporalio.client.Client, tmp_path: Path) -> AsyncIterator[Client]:
    """A client with a separate connection and a separate task queue."""
    settings = Settings(state_dir=tmp_path, task_queue=f"lists-{uuid4().hex[:8]}")
    async with Client.from_temporal(client, settings=settings) as connected_client:
        yield connected_client


def _services(shop: Client) -> Services:
    return shop._services


async def _is_listed(shop: Client, tag: str, states: set[str]) -> bool:
    runs = await shop.list_runs(tags={"of": tag})
    return {run.status.value for run in runs} == states


async def test_lists_of_runs_and_requests_read_no_history(shop: Client) -> None:
    tag = uuid4().hex
    async with Worker(shop, tools=[stock, give_up]):
        options: Any = {"tags": {"of": tag}}
        await shop.start({"title": f"{tag} asks", "nodes": [LOOK, ASK]}, **options)
        outer = await shop.start({"title": f"{tag} has a sub-plan", "nodes": [NESTED]}, **options)
        await (await shop.start({"title": f"{tag} looks", "nodes": [LOOK]}, **options)).result()
        failed_run = await shop.start({"title": f"{tag} fails", "nodes": [LOOK, FAILING]}, **options)
        with pytest.raises(dagwright.RunFailed):
            await failed_run.result()
        await eventually(lambda: _is_listed(shop, tag, {"waiting", "running", "completed", "failed"}))
        with counted_rpcs(shop.temporal) as rpcs:
            runs = await shop.list_runs(tags={"of": tag})
            assert rpcs == ["list_workflow_executions"]
        by_title = {(run.title or "").removeprefix(tag): run for run in runs}
        assert {name: (run.status.value, run.nodes_done, run.nodes_total) for name, run in by_title.items()} == {
            " asks": ("waiting", 1, 2),
            # Only the history of the run shows that its sub-plan waits.
            " has a sub-plan": ("running", 0, 1),
            " looks": ("completed", 1, 1),
            " fails": ("failed", 2, 2),
        }
        error = by_title[" fails"].error
        assert error is not None
        assert (error.code, error.message, error.node) == ("node_failed", "'fail' failed: no lamp", "fail")
        waiting_run_id = by_title[" asks"].run_id
        for run_filter in (
            {"title": f"{tag} as"},
            {"title": waiting_run_id},
            {"status": "waiting", "tags": {"of": tag}},
        ):
            assert [run.run_id for run in await shop.list_runs(**cast(Any, run_filter))] == [waiting_run_id]
        assert await shop.list_runs(title=f"{tag} asks", since="2100-01-01") == []
        with pytest.raises(OptionInvalid, match=r"^tags: tag key 'of run' is invalid"):
            await shop.list_runs(tags={"of run": tag})

        run_ids = (waiting_run_id, outer.id)

        async def are_both_listed() -> bool:
            page = await _services(shop).runs.inbox(limit=1_000)
            return {"ask", "below/ask"} == {
                request.id for request in page.requests if request.document["run_id"] in run_ids
            }

        await eventually(are_both_listed)
        with counted_rpcs(shop.temporal) as rpcs:
            page = await _services(shop).runs.inbox(limit=100, inbox_filter=InboxFilter(assignee="ann"))
            assert set(rpcs) == {"list_workflow_executions"}
            assert len(rpcs) <= 3
        by_id = {request.id: request for request in page.requests if request.document["run_id"] in run_ids}
        assert {name: each.title for name, each in by_id.items()} == {"ask": f"{tag} asks", "below/ask": "Below"}
        for name, run in (("ask", shop.get_run(waiting_run_id)), ("below/ask", outer)):
            [request] = await _services(shop).runs.feedback.requests_of(run.id)
            assert (by_id[name].document, by_id[name].request_ref) == (request.document, request.request_ref)
            await run.feedback(name, approved=True)
            assert (await run.result()).status == "completed"


async def test_pages_of_a_list_have_each_run_once(shop: Client) -> None:
    tag = uuid4().hex
    plan = Plan(f"{tag} plan")
    plan.add(stock, item="lamp")
    async with Worker(shop, tools=[stock]):
        for _ in range(5):
            await (await shop.start(plan, tags={"of": tag})).result()

        async def are_listed() -> bool:
            return len(await shop.list_runs(tags={"of": tag}, status="completed")) == 5

        await eventually(are_listed)
    run_ids: list[str] = []
    with counted_rpcs(shop.temporal) as rpcs:
        page = await shop.list_runs(tags={"of": tag}, limit=2)
        while page:
            run_ids += [run.run_id for run in page]
            if (cursor := page[-1].cursor) is None:
                break
            page = await shop.list_runs(tags={"of": tag}, limit=2, after=cursor)
    assert (len(run_ids), len({*run_ids}), rpcs) == (5, 5, ["list_workflow_executions"] * 3)


async def test_start_with_an_api_key_sends_at_most_three_requests(
    client: temporalio.client.Client, tmp_path: Path
) -> None:
    settings = Settings(state_dir=tmp_path, task_queue=f"lists-{uuid4().hex[:8]}")
    connection = await connection_of(client)
    toolset, plan = load_toolset(settings, ()), {"nodes": [SUM]}
    async with open_context(settings, connection, toolset) as context:
        key, text = context.keys.add(f"ann-{uuid4().hex[:8]}", list(KeyScope))
        transport = httpx.ASGITransport(create_app(context))
        headers = {"Authorization": f"Bearer {text}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as http:
            with counted_rpcs(connection.client) as rpcs:
                response = await http.post("/v1/runs", json={"plan": plan})
            assert response.status_code == 201, response.text
            assert len(rpcs) <= 3, rpcs
            run_id, owner = response.json()["run_id"], key.caller.owner
            assert owner is not None

            async def is_counted() -> bool:
                return await create_services(connection, settings).runs.count_open_runs(owner) == 1

            await eventually(is_counted)
            page = (await http.get("/v1/runs")).json()
            assert [line["run_id"] for line in page["data"]] == [run_id]
            run_filter = RunFilter(owner="ann-unknown")
            assert await context.runs.list_runs(run_filter=run_filter) == []
    await client.get_workflow_handle(run_id).terminate()


async def test_run_with_long_names_completes(shop: Client) -> None:
    """The server terminates a workflow that writes over 2,048 bytes of JSON to a search attribute."""
    names = [f"Иван Петров {number}" for number in range(100)]
    ask = {"id": "ask", "for_each": names, "human": {"prompt": "?", "assignee": "{{item}}"}}
    tags = {"of": uuid4().hex, "team": "\U0001f600" * 150}
    async with Worker(shop):
        run = await shop.start({"title": "\U0001f600" * 300, "nodes": [ask]}, tags=tags)
        await eventually(lambda: _is_listed(shop, tags["of"], {"waiting"}))
        assert await shop.inbox(assignee=names[0])
        turn = await shop.start({"nodes": [SUM]}, session=uuid4().hex, tags=tags)
        assert (await turn.result()).output == {"sum": 3}
        await run.cancel()


async def test_run_that_cannot_be_decoded_is_listed(client: temporalio.client.Client, shop: Client) -> None:
    connection = await connection_of(client)
    runs = create_services(connection, shop.settings).runs
    name = f"damaged-{uuid4().hex}"
    await client.start_workflow("RunPlan", {}, id=name, task_queue="nobody", memo={"dagwright_title": {"no": "text"}})

    async def is_listed() -> bool:
        return [(run.run_id, run.status.value) for run in await runs.list_runs(run_filter=RunFilter(title=name))] == [
            (name, "running")
        ]

    await eventually(is_listed)
    await client.get_workflow_handle(name).terminate()

    async def has_ended() -> bool:
        [run] = await runs.list_runs(run_filter=RunFilter(title=name))
        return run.error is not None and run.error.code == "terminated"

    await eventually(has_ended)


async def test_filters_and_pages_select_the_expected_runs(client: temporalio.client.Client) -> None:
    connection = await connection_of(client)
    await check_filters(connection)
    await check_pages(connection)
