"""Runs with fairness keys on the real server: the owners of a backlog are served in proportion to their weights."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio import activity
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.worker import Worker

from dagwright.client.runs import Runs as ClientRuns
from dagwright.client.starts import RunStartOptions, StartRequest
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.protocol.fairness import Fairness
from tests.support.eventually import eventually
from tests.support.foreign import with_tools
from tests.support.goals import call_node
from tests.support.people import tool_node
from tests.support.python_runs import PythonRuns, services_of
from tests.support.runs import Runs
from tests.support.tools import CallHarness

pytestmark = pytest.mark.server

CALLS_BY_OWNER = {"ann": 60, "bob": 10, "cleo": 10}
MAX_CALLS_OF_RUN = 20
"""Maximum number of concurrent calls of a foreign tool in a run, because each call may add 2 MB to the history."""


def _plan(owner: str, call_count: int) -> dict[str, Any]:
    """Return a plan whose calls are in a child run, which inherits the fairness of its parent."""
    map_node = tool_node("each", "count", for_each=list(range(call_count)), arguments={"by": owner})
    return {"nodes": [{"id": "in", "plan": {"nodes": [map_node]}}]}


async def _has_backlog(client: Client, queue: str, call_count: int) -> bool:
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
        report_stats=True,
    )
    description = await client.workflow_service.describe_task_queue(request, retry=True)
    return description.stats.approximate_backlog_count >= call_count


async def _start(client_runs: ClientRuns, runs: Runs, owner: str, weight: float) -> None:
    for offset in range(0, CALLS_BY_OWNER[owner], MAX_CALLS_OF_RUN):
        call_count = min(MAX_CALLS_OF_RUN, CALLS_BY_OWNER[owner] - offset)
        plan = prepare_plan(check_plan(_plan(owner, call_count), runs.tools), {})
        options = RunStartOptions(owner=owner, fairness=None if weight == 1 else Fairness(owner, weight))
        run = await client_runs.start(StartRequest(plan, options=options))
        runs.include_in_checks(runs.client.get_workflow_handle(run.run_id))


async def test_owners_with_a_backlog_are_served_in_proportion_to_their_weights(
    client: Client, runs: Runs, tmp_path: Path
) -> None:
    queue, called_owners = f"count-{uuid4().hex}", list[str]()

    @activity.defn(name="count")
    async def count(arguments: dict[str, str]) -> None:
        called_owners.append(arguments["by"])

    declaration = ToolDeclaration("count", effects=Effects.READ, task_queue=queue, is_foreign=True)
    runs_with_tool = with_tools(runs, {"count": declaration})
    client_runs = services_of(runs, tmp_path).runs
    for owner, weight in (("ann", 1), ("bob", 1), ("cleo", 3)):
        await _start(client_runs, runs_with_tool, owner, weight)
        # The owners start in alphabetical order.
        backlog_count = sum(call_count for name, call_count in CALLS_BY_OWNER.items() if name <= owner)
        await eventually(partial(_has_backlog, client, queue, backlog_count))
    async with Worker(client, task_queue=queue, activities=[count], max_concurrent_activities=1):
        await runs_with_tool.check_runs()
    assert {owner: called_owners.count(owner) for owner in CALLS_BY_OWNER} == CALLS_BY_OWNER
    # Ann's 60 calls were scheduled first, but all calls of the other owners are in the first half.
    last_positions = {owner: len(called_owners) - called_owners[::-1].index(owner) for owner in CALLS_BY_OWNER}
    assert last_positions["cleo"] < last_positions["bob"] < 40 < last_positions["ann"], called_owners


async def test_fork_keeps_the_fairness_of_the_forked_run(runs: Runs, harness: CallHarness, tmp_path: Path) -> None:
    services = services_of(runs, tmp_path)
    plan = prepare_plan(check_plan({"nodes": [call_node("a", "echo", text="x")]}, runs.tools), {})
    options = RunStartOptions(fairness=Fairness("group", 2.5))
    started_run = await services.runs.start(StartRequest(plan, options=options))
    runs.include_in_checks(runs.client.get_workflow_handle(started_run.run_id))
    run = PythonRuns(runs, harness, tmp_path).handle_of(started_run.run_id)
    await asyncio.wait_for(run.result(), 60)
    fork = await run.fork(rerun=["a"])
    runs.include_in_checks(runs.client.get_workflow_handle(fork.id))
    await asyncio.wait_for(fork.result(), 60)
    properties = [await services.runs.shared_properties_of(run_id) for run_id in (run.id, fork.id)]
    assert [properties_of_run.fairness for properties_of_run in properties] == [Fairness("group", 2.5)] * 2
