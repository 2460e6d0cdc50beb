"""Lists of runs and of requests to people on the real server: their rows, and the number of calls to Temporal."""

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
from tests.support.goals import call_node
from tests.support.listed_runs import check_filters, check_pages
from tests.support.people import tool_node
from tests.support.rpcs import recorded_rpcs

pytestmark = pytest.mark.server


@tool(effects="read")
def stock(item: str) -> int:
    """Return the stock of an article."""
    return len(item)


@tool(effects="read")
def give_up(item: str) -> str:
    """Fail."""
    raise dagwright.GiveUp(f"no {item}")


LOOK_NODE = call_node("look", "stock", item="lamp")
REQUEST_NODE = {"id": "ask", "human": {"type": "APPROVAL", "prompt": "Buy?", "assignee": "ann"}, "depends_on": ["look"]}
SUB_PLAN_NODE = {"id": "child", "plan": {"title": "Child", "nodes": [{**REQUEST_NODE, "depends_on": []}]}}
FAILING_NODE = tool_node("fail", "give_up", "look", arguments={"item": "lamp"})


SUM_NODE = call_node("sum", "calculator", expression="1 + 2")


@pytest.fixture
async def plan_client(client: temporalio.client.Client, tmp_path: Path) -> AsyncIterator[Client]:
    """A client with a new task queue."""
    settings = Settings(state_dir=tmp_path, task_queue=f"lists-{uuid4().hex[:8]}")
    async with Client.from_temporal(client, settings=settings) as connected_client:
        yield connected_client


def _services(plan_client: Client) -> Services:
    return plan_client._services


async def _runs_have_statuses(plan_client: Client, tag: str, statuses: set[str]) -> bool:
    return {run.status.value for run in await plan_client.list_runs(tags={"test": tag})} == statuses


async def test_lists_of_runs_and_requests_read_no_history(plan_client: Client) -> None:
    tag = uuid4().hex
    async with Worker(plan_client, tools=[stock, give_up]):
        options: Any = {"tags": {"test": tag}}
        await plan_client.start({"title": f"{tag} asks", "nodes": [LOOK_NODE, REQUEST_NODE]}, **options)
        parent_run = await plan_client.start({"title": f"{tag} has a sub-plan", "nodes": [SUB_PLAN_NODE]}, **options)
        await (await plan_client.start({"title": f"{tag} looks", "nodes": [LOOK_NODE]}, **options)).result()
        failed_run = await plan_client.start({"title": f"{tag} fails", "nodes": [LOOK_NODE, FAILING_NODE]}, **options)
        with pytest.raises(dagwright.RunFailed):
            await failed_run.result()
        await eventually(lambda: _runs_have_statuses(plan_client, tag, {"waiting", "running", "completed", "failed"}))
        with recorded_rpcs(plan_client.temporal) as rpcs:
            runs = await plan_client.list_runs(tags={"test": tag})
            assert rpcs == ["list_workflow_executions"]
        runs_by_title = {(run.title or "").removeprefix(tag): run for run in runs}
        assert {title: (run.status.value, run.nodes_done, run.nodes_total) for title, run in runs_by_title.items()} == {
            " asks": ("waiting", 1, 2),
            # Only the history of the run shows that its sub-plan waits.
            " has a sub-plan": ("running", 0, 1),
            " looks": ("completed", 1, 1),
            " fails": ("failed", 2, 2),
        }
        error = runs_by_title[" fails"].error
        assert error is not None
        assert (error.code, error.message, error.node_id) == ("node_failed", "'fail' failed: no lamp", "fail")
        waiting_run_id = runs_by_title[" asks"].run_id
        for run_filter in (
            {"title": f"{tag} as"},
            {"title": waiting_run_id},
            {"status": "waiting", "tags": {"test": tag}},
        ):
            assert [run.run_id for run in await plan_client.list_runs(**cast(Any, run_filter))] == [waiting_run_id]
        assert await plan_client.list_runs(title=f"{tag} asks", since="2100-01-01") == []
        with pytest.raises(OptionInvalid, match=r"^tags: tag key 'test run' is invalid"):
            await plan_client.list_runs(tags={"test run": tag})

        run_ids = (waiting_run_id, parent_run.id)

        async def are_both_requests_listed() -> bool:
            page = await _services(plan_client).runs.inbox(limit=1_000)
            return {"ask", "child/ask"} == {
                request.id for request in page.requests if request.document["run_id"] in run_ids
            }

        await eventually(are_both_requests_listed)
        with recorded_rpcs(plan_client.temporal) as rpcs:
            page = await _services(plan_client).runs.inbox(limit=100, inbox_filter=InboxFilter(assignee="ann"))
            assert set(rpcs) == {"list_workflow_executions"}
            assert len(rpcs) <= 3
        requests_by_id = {request.id: request for request in page.requests if request.document["run_id"] in run_ids}
        expected = {"ask": f"{tag} asks", "child/ask": "Child"}
        assert {request_id: request.title for request_id, request in requests_by_id.items()} == expected
        for request_id, run in (("ask", plan_client.get_run(waiting_run_id)), ("child/ask", parent_run)):
            [request] = await _services(plan_client).runs.feedback.requests_of(run.id)
            listed_request = requests_by_id[request_id]
            assert (listed_request.document, listed_request.request_ref) == (request.document, request.request_ref)
            await run.feedback(request_id, approved=True)
            assert (await run.result()).status == "completed"


async def test_pages_of_a_list_have_each_run_once(plan_client: Client) -> None:
    tag = uuid4().hex
    plan = Plan(f"{tag} plan")
    plan.add(stock, item="lamp")
    async with Worker(plan_client, tools=[stock]):
        for _ in range(5):
            await (await plan_client.start(plan, tags={"test": tag})).result()

        async def are_listed() -> bool:
            return len(await plan_client.list_runs(tags={"test": tag}, status="completed")) == 5

        await eventually(are_listed)
    run_ids: list[str] = []
    with recorded_rpcs(plan_client.temporal) as rpcs:
        page = await plan_client.list_runs(tags={"test": tag}, limit=2)
        while page:
            run_ids += [run.run_id for run in page]
            if (cursor := page[-1].cursor) is None:
                break
            page = await plan_client.list_runs(tags={"test": tag}, limit=2, after=cursor)
    assert (len(run_ids), len({*run_ids}), rpcs) == (5, 5, ["list_workflow_executions"] * 3)


async def test_start_with_an_api_key_makes_at_most_three_calls_to_temporal(
    client: temporalio.client.Client, tmp_path: Path
) -> None:
    settings = Settings(state_dir=tmp_path, task_queue=f"lists-{uuid4().hex[:8]}")
    connection = await connection_of(client)
    toolset, plan = load_toolset(settings, ()), {"nodes": [SUM_NODE]}
    async with open_context(settings, connection, toolset) as context:
        key, key_text = context.keys.add(f"ann-{uuid4().hex[:8]}", list(KeyScope))
        transport = httpx.ASGITransport(create_app(context))
        headers = {"Authorization": f"Bearer {key_text}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as http:
            with recorded_rpcs(connection.client) as rpcs:
                response = await http.post("/v1/runs", json={"plan": plan})
            assert response.status_code == 201, response.text
            assert len(rpcs) <= 3, rpcs
            run_id, owner = response.json()["run_id"], key.caller.owner
            assert owner is not None

            async def is_counted() -> bool:
                return await create_services(connection, settings).runs.count_open_runs(owner) == 1

            await eventually(is_counted)
            assert [run["run_id"] for run in (await http.get("/v1/runs")).json()["data"]] == [run_id]
            assert await context.runs.list_runs(run_filter=RunFilter(owner="ann-unknown")) == []
    await client.get_workflow_handle(run_id).terminate()


async def test_long_title_tags_and_assignees_do_not_terminate_a_run(plan_client: Client) -> None:
    """The server terminates a workflow that writes over 2,048 bytes of JSON to a search attribute."""
    assignees = [f"Иван Петров {number}" for number in range(100)]
    request_node = {"id": "ask", "for_each": assignees, "human": {"prompt": "?", "assignee": "{{item}}"}}
    tags = {"test": uuid4().hex, "team": "\U0001f600" * 150}
    async with Worker(plan_client):
        run = await plan_client.start({"title": "\U0001f600" * 300, "nodes": [request_node]}, tags=tags)
        await eventually(lambda: _runs_have_statuses(plan_client, tags["test"], {"waiting"}))
        assert await plan_client.inbox(assignee=assignees[0])
        turn = await plan_client.start({"nodes": [SUM_NODE]}, session_id=uuid4().hex, tags=tags)
        assert (await turn.result()).output == {"sum": 3}
        await run.cancel()


async def test_run_that_cannot_be_decoded_is_listed(client: temporalio.client.Client, plan_client: Client) -> None:
    runs = create_services(await connection_of(client), plan_client.settings).runs
    run_id = f"damaged-{uuid4().hex}"
    await client.start_workflow(
        "RunPlan", {}, id=run_id, task_queue="queue-without-workers", memo={"dagwright_title": {"no": "text"}}
    )

    async def is_listed() -> bool:
        return [(run.run_id, run.status.value) for run in await runs.list_runs(run_filter=RunFilter(title=run_id))] == [
            (run_id, "running")
        ]

    await eventually(is_listed)
    await client.get_workflow_handle(run_id).terminate()

    async def has_ended() -> bool:
        [run] = await runs.list_runs(run_filter=RunFilter(title=run_id))
        return run.error is not None and run.error.code == "terminated"

    await eventually(has_ended)


async def test_filters_and_pages_select_the_expected_runs(client: temporalio.client.Client) -> None:
    connection = await connection_of(client)
    await check_filters(connection)
    await check_pages(connection)
