"""Records on the Temporal server: the retained runs of a namespace, and the payload store of a task queue."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from temporalio import workflow
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker
from temporalio.workflow import ParentClosePolicy

from dagwright.core.boundary import wire
from dagwright.core.model.call_limits import Subject, parse_limit
from dagwright.server.call_limits import set_limit
from dagwright.server.namespace import RETENTION
from dagwright.server.namespace_retention import claim_store, read_retention
from dagwright.server.store_notes import StoreIdentity, adopt_store, check_store, publish_store, published_store
from dagwright.settings import Settings
from dagwright.store import StoreMismatch, StoreUnavailable
from dagwright.store.clean_up import MARGIN, ListedRun, RetentionUnknown, removal_cutoff
from dagwright.store.folder import FolderStore
from dagwright.toolset.toolset import load_toolset
from dagwright.worker.serving import serving
from tests.support.eventually import eventually
from tests.support.server import live_server

pytestmark = pytest.mark.server

STARTED_AT = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
QUEUE = "retained"


@workflow.defn(name=wire.WORKFLOW_RUN_PLAN)
class RunWorkflow:
    """Stand-in for a run: it continues as new once, or starts a sub-plan, or ends immediately."""

    @workflow.run
    async def run(self, options: dict[str, str]) -> None:
        if "started_at" in options:
            memo = {wire.MEMO_STARTED_AT: options["started_at"]} if options["started_at"] else {}
            workflow.continue_as_new({}, memo=memo)
        if "child" in options:
            await workflow.start_child_workflow(
                wire.WORKFLOW_RUN_PLAN,
                {},
                id=options["child"],
                parent_close_policy=ParentClosePolicy.ABANDON,
                memo={wire.MEMO_ROOT: workflow.info().workflow_id},
            )


@workflow.defn(name="ForeignWorkflow")
class ForeignWorkflow:
    """A workflow that is not Dagwright's. It continues as new once."""

    @workflow.run
    async def run(self, is_first: bool) -> None:
        if is_first:
            workflow.continue_as_new(False)


@pytest.fixture
async def separate_client(tmp_path: Path) -> AsyncIterator[Client]:
    """A client of a separate server, which has only the runs of one test."""
    async with live_server(tmp_path / "server") as test_server:
        client = await test_server.start()
        worker = Worker(
            client,
            task_queue=QUEUE,
            workflows=[RunWorkflow, ForeignWorkflow],
            workflow_runner=UnsandboxedWorkflowRunner(),
        )
        async with worker:
            yield client


async def _wait_for_runs(client: Client, count: int) -> list[ListedRun]:
    """Wait until the server lists `count` runs, and return them in the order of workflow ID and start."""

    async def are_listed() -> bool:
        return len([run async for run in client.list_workflows()]) == count

    await eventually(are_listed)
    return sorted((await read_retention(client)).runs, key=lambda run: (run.workflow_id, run.started_at))


async def test_retention_includes_the_start_of_continued_runs_and_sub_plans(separate_client: Client) -> None:
    options = {
        "continued": {"started_at": STARTED_AT.isoformat()},
        "no_start_time": {"started_at": ""},
        "root": {"child": "root/child"},
    }
    # The workflow of a call limit is open for years, but has no stored values.
    await set_limit(separate_client, Subject("tool", "stock"), parse_limit("1/s"), task_queue="unserved", by=None)
    for workflow_id, run_options in options.items():
        await separate_client.execute_workflow(wire.WORKFLOW_RUN_PLAN, run_options, id=workflow_id, task_queue=QUEUE)
    await separate_client.execute_workflow("ForeignWorkflow", True, id="foreign", task_queue=QUEUE)

    (
        first_execution,
        second_execution,
        *foreign_executions,
        first_execution_without_start_time,
        second_execution_without_start_time,
        parent,
        child,
    ) = await _wait_for_runs(separate_client, 9)

    assert first_execution == ListedRun(
        "continued", first_execution.execution_id, first_execution.execution_id, first_execution.started_at
    )
    assert second_execution == ListedRun(
        "continued",
        second_execution.execution_id,
        second_execution.execution_id,
        second_execution.started_at,
        chain_started_at=STARTED_AT,
    )
    assert parent == ListedRun("root", parent.execution_id, parent.execution_id, parent.started_at)
    assert child == ListedRun("root/child", child.execution_id, child.execution_id, child.started_at, root_id="root")
    assert second_execution.earliest_start == STARTED_AT
    assert len(foreign_executions) == 2
    for run in foreign_executions:
        assert (run.workflow_id, run.first_execution_id) == ("foreign", run.execution_id)
    assert max(
        datetime.now(UTC) - run.started_at for run in (first_execution, second_execution, parent, child)
    ) < timedelta(minutes=1)

    retention, now = await read_retention(separate_client), datetime.now(UTC)
    owner_namespaces = [retention.namespace_id]
    partial_retention = replace(
        retention, runs=[first_execution_without_start_time, second_execution_without_start_time, parent, child]
    )
    assert (
        removal_cutoff(partial_retention, owner_namespaces=owner_namespaces, now=now).time <= now - RETENTION - MARGIN
    )
    # The server may have removed the first execution of a run, or the parent of a sub-plan, and still list the second
    # execution or the sub-plan.
    for run, message in (
        (second_execution_without_start_time, "the run 'no_start_time' continues a run that is no longer listed"),
        (child, "the run 'root/child' is a sub-plan of 'root', which is no longer listed"),
    ):
        with pytest.raises(RetentionUnknown, match=message):
            removal_cutoff(replace(retention, runs=[run]), owner_namespaces=owner_namespaces, now=now)


async def test_removal_cutoff_of_a_namespace_is_before_the_oldest_start_of_its_runs(
    separate_client: Client, tmp_path: Path
) -> None:
    store = FolderStore(tmp_path / "payloads")
    await claim_store(store, separate_client)
    description = await separate_client.workflow_service.describe_namespace(
        DescribeNamespaceRequest(namespace=separate_client.namespace)
    )
    owner_namespaces = await store.owner_namespaces()
    assert owner_namespaces == {description.namespace_info.id}
    now = STARTED_AT + timedelta(days=300)

    retention = await read_retention(separate_client)
    assert removal_cutoff(retention, owner_namespaces=owner_namespaces, now=now).time == now - RETENTION - MARGIN

    await separate_client.execute_workflow(
        wire.WORKFLOW_RUN_PLAN, {"started_at": STARTED_AT.isoformat()}, id="continued", task_queue=QUEUE
    )
    await _wait_for_runs(separate_client, 2)
    retention = await read_retention(separate_client)
    assert removal_cutoff(retention, owner_namespaces=owner_namespaces, now=now).time == STARTED_AT - MARGIN


async def test_unreadable_start_time_stops_the_clean_up(separate_client: Client) -> None:
    await separate_client.start_workflow(
        wire.WORKFLOW_RUN_PLAN,
        {},
        id="a",
        task_queue=f"unserved-{uuid4().hex}",
        memo={wire.MEMO_STARTED_AT: "yesterday"},
    )

    async def is_reported() -> bool:
        try:
            await read_retention(separate_client)
        except RetentionUnknown as error:
            return str(error) == "the run 'a' has a start time that cannot be read"
        return False

    await eventually(is_reported)


async def test_every_page_of_runs_is_read(separate_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagwright.server.namespace_retention._MAX_PAGE_SIZE", 3)
    run_ids = [f"run-{number}" for number in range(8)]
    await asyncio.gather(
        *(
            separate_client.execute_workflow(wire.WORKFLOW_RUN_PLAN, {}, id=run_id, task_queue=QUEUE)
            for run_id in run_ids
        )
    )
    assert [run.workflow_id for run in await _wait_for_runs(separate_client, 8)] == run_ids


# The store of a task queue.


@pytest.fixture
def queue() -> str:
    return f"stores-{uuid4().hex}"


async def test_worker_with_another_store_does_not_start(client: Client, queue: str, tmp_path: Path) -> None:
    first_toolset, second_toolset = (
        load_toolset(Settings(state_dir=tmp_path, payload_store=str(tmp_path / name))) for name in ("first", "second")
    )
    async with serving(client, first_toolset, task_queue=queue):
        with pytest.raises(StoreMismatch) as error:
            async with serving(client, second_toolset, task_queue=queue):
                pass
        # The workers of another queue may use another store.
        async with serving(client, second_toolset, task_queue=f"{queue}-other"):
            pass
    store_ids = [(await toolset.store.identify())[:12] for toolset in (first_toolset, second_toolset)]
    assert str(error.value) == (
        f"the workers of task queue '{queue}' in namespace 'default' use the payload store {tmp_path / 'first'} "
        f"(ID {store_ids[0]}), and this process uses {tmp_path / 'second'} (ID {store_ids[1]}): "
        "set DAGWRIGHT_PAYLOAD_STORE to the same store; to move a store, copy it with its file `store-id`; "
        "to use this store without the values of the other store, run `dagwright store adopt --yes`"
    )


async def test_workers_that_start_concurrently_agree_on_one_store(client: Client, queue: str, tmp_path: Path) -> None:
    stores = [FolderStore(tmp_path / str(number)) for number in range(4)]
    outcomes = await asyncio.gather(
        *(publish_store(client, store, task_queue=queue) for store in stores), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes if outcome is not None] == [StoreMismatch] * 3
    accepted_store = stores[outcomes.index(None)]
    expected = StoreIdentity(await accepted_store.identify(), accepted_store.location)
    assert await published_store(client, queue) == expected


async def test_store_that_was_moved_with_its_id_is_accepted(client: Client, queue: str, tmp_path: Path) -> None:
    await publish_store(client, FolderStore(tmp_path / "old"), task_queue=queue)
    (tmp_path / "old").rename(tmp_path / "new")
    await publish_store(client, FolderStore(tmp_path / "new"), task_queue=queue)
    with pytest.raises(StoreMismatch):
        await check_store(client, FolderStore(tmp_path / "old"), task_queue=queue)


async def test_emptied_store_is_distinguished_from_another_store(client: Client, queue: str, tmp_path: Path) -> None:
    await publish_store(client, FolderStore(tmp_path / "store"), task_queue=queue)
    (tmp_path / "store").rename(tmp_path / "away")
    with pytest.raises(StoreMismatch, match=r"has changed from .*: its values were removed, or its disk is not"):
        await publish_store(client, FolderStore(tmp_path / "store"), task_queue=queue)


async def test_adopted_store_replaces_the_previous_store(client: Client, queue: str, tmp_path: Path) -> None:
    old_store, new_store = FolderStore(tmp_path / "old"), FolderStore(tmp_path / "new")
    await check_store(client, new_store, task_queue=queue)
    await publish_store(client, old_store, task_queue=queue)
    previous_store = await adopt_store(client, new_store, task_queue=queue)
    assert previous_store == StoreIdentity(await old_store.identify(), old_store.location)
    await publish_store(client, new_store, task_queue=queue)
    with pytest.raises(StoreMismatch):
        await publish_store(client, old_store, task_queue=queue)


async def test_record_of_a_store_is_not_a_retained_run(client: Client, queue: str, tmp_path: Path) -> None:
    await publish_store(client, FolderStore(tmp_path), task_queue=queue)
    assert not [run for run in (await read_retention(client)).runs if queue in run.workflow_id]


async def test_unavailable_store_is_not_published(client: Client, queue: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable):
        await publish_store(client, FolderStore(tmp_path / "file" / "store"), task_queue=queue)
    assert await published_store(client, queue) is None
