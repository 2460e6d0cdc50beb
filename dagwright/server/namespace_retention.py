"""Read the runs that a namespace retains, and record which namespaces use a store, for the clean-up of payloads."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, DescribeNamespaceResponse
from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError, RPCStatusCode

from dagwright.core.boundary import wire
from dagwright.store import PayloadStore
from dagwright.store.clean_up import ListedRun, NamespaceRetention, RetentionUnknown

_RPC_TIMEOUT = timedelta(seconds=10)
_MAX_PAGE_SIZE = 1_000
"""Maximum page size of the server."""
_MAX_CONCURRENT_DESCRIPTIONS = 20


async def claim_store(store: PayloadStore, client: Client) -> None:
    """Record in a store that the client's namespace uses the store.

    Nothing is recorded if the API key of the client may not describe the namespace.

    Raises:
        StoreUnavailable: the store is not writable.
    """
    try:
        description = await _describe(client)
    except RPCError:
        # Without this record the store is not cleaned up, so no value is lost.
        return
    await store.claim(description.namespace_info.id)


async def read_retention(client: Client) -> NamespaceRetention:
    """Return the runs that the namespace of a client retains, and its retention period.

    Raises:
        RetentionUnknown: the server does not report the runs or the period.
    """
    try:
        description = await _describe(client)
        runs = [run async for run in _list_runs(client)]
    except RPCError as error:
        raise RetentionUnknown(f"the server does not report which runs it keeps: {error}") from error
    return NamespaceRetention(
        namespace=client.namespace,
        namespace_id=description.namespace_info.id,
        retention_period=description.config.workflow_execution_retention_ttl.ToTimedelta(),
        runs=runs,
    )


async def _describe(client: Client) -> DescribeNamespaceResponse:
    request = DescribeNamespaceRequest(namespace=client.namespace)
    return await client.workflow_service.describe_namespace(request, timeout=_RPC_TIMEOUT)


async def _list_runs(client: Client) -> AsyncIterator[ListedRun]:
    page: list[WorkflowExecution] = []
    async for execution in client.list_workflows(page_size=_MAX_PAGE_SIZE):
        page.append(execution)
        if len(page) == _MAX_PAGE_SIZE:
            for run in await _retained_runs(client, page):
                yield run
            page = []
    for run in await _retained_runs(client, page):
        yield run


async def _retained_runs(client: Client, page: Sequence[WorkflowExecution]) -> list[ListedRun]:
    slots = asyncio.Semaphore(_MAX_CONCURRENT_DESCRIPTIONS)

    async def read_when_free(execution: WorkflowExecution) -> ListedRun | None:
        async with slots:
            return await _retained_run(client, execution)

    runs = await asyncio.gather(*(read_when_free(execution) for execution in page))
    return [run for run in runs if run is not None]


async def _retained_run(client: Client, execution: WorkflowExecution) -> ListedRun | None:
    """Return the properties of a run that the clean-up needs; `None` if the run was deleted or has no stored values."""
    if execution.workflow_type in (wire.WORKFLOW_SESSION, wire.WORKFLOW_CALL_LIMIT):
        # A session or a limit may be open for years. Only runs have values in the store.
        return None
    if execution.workflow_type in wire.NOTE_WORKFLOWS:
        return None
    # Only runs need the start of their chain: a workflow of another application has a reference to a stored value only
    # if a person passed the reference to this execution.
    first_execution_id: str | None = execution.run_id
    chain_started_at = None
    root_id = None
    if execution.workflow_type in wire.WORKFLOWS:
        chain_started_at = await _chain_started_at(client, execution)
        if chain_started_at is None:
            first_execution_id = await _first_execution_id(client, execution)
        root_id = await _root_id_of(client, execution)
    if first_execution_id is None:
        return None
    return ListedRun(
        workflow_id=execution.id,
        execution_id=execution.run_id,
        first_execution_id=first_execution_id,
        started_at=execution.start_time,
        chain_started_at=chain_started_at,
        root_id=root_id,
    )


async def _root_id_of(client: Client, execution: WorkflowExecution) -> str | None:
    """Return the ID of the root run of a sub-plan's run; `None` for a root run.

    Raises:
        RetentionUnknown: the memo has an invalid value.
    """
    root_id = await _text_in_memo(client, execution, wire.MEMO_ROOT, field="root")
    return None if root_id == execution.id else root_id


async def _first_execution_id(client: Client, execution: WorkflowExecution) -> str | None:
    """Return the ID of the first execution in a run's chain; `None` if the run has been deleted.

    Lists of runs do not include this ID.
    """
    try:
        description = await client.get_workflow_handle(execution.id, run_id=execution.run_id).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise
    if not description.raw_info.first_run_id:
        raise RetentionUnknown(
            "the server is too old to report which run an execution continues; version 1.27 or newer reports it"
        )
    return description.raw_info.first_run_id


async def _chain_started_at(client: Client, execution: WorkflowExecution) -> datetime | None:
    """Return the start of the chain of executions, from the memo; `None` if the memo has no start time.

    Raises:
        RetentionUnknown: the memo has an invalid time.
    """
    text = await _text_in_memo(client, execution, wire.MEMO_STARTED_AT, field="start time")
    if text is None:
        return None
    try:
        chain_started_at = datetime.fromisoformat(text)
    except ValueError as error:
        raise RetentionUnknown(f"the run {execution.id!r} has a start time that cannot be read") from error
    return chain_started_at if chain_started_at.tzinfo is not None else chain_started_at.replace(tzinfo=UTC)


async def _text_in_memo(client: Client, execution: WorkflowExecution, name: str, *, field: str) -> str | None:
    """Return a text of the memo; `None` if there is no such field.

    Raises:
        RetentionUnknown: the value is not a text.
    """
    payload = execution.raw_info.memo.fields.get(name)
    if payload is None:
        return None
    try:
        (text,) = await client.data_converter.decode([payload], [str])
    # Other applications may write any memo, and their codec may fail in any way.
    except Exception as error:
        raise RetentionUnknown(f"the run {execution.id!r} has a {field} that cannot be read") from error
    return str(text)
