"""Start, find, list and read runs: the client of runs that the command line, HTTP API and MCP server share."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from unicodedata import normalize

from temporalio.client import (
    WorkflowExecution,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowHistoryEventFilterType,
)
from temporalio.common import SearchAttributeKey, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from dagwright.client.feedback import HISTORIES_AT_ONCE, People, has_sub_plans
from dagwright.client.graph import GraphListing
from dagwright.client.run_lists import RunFilter, RunPlace, RunSummary, owner_in
from dagwright.client.starts import EncodedStart, StartRequest, checked_id, digest_of, encode_start, made_id
from dagwright.core.boundary import wire
from dagwright.core.boundary.limits import WORKFLOW_TASK_S, summary_of
from dagwright.core.errors import DagwrightError
from dagwright.core.model.errors import Problem, problem_from_error
from dagwright.core.model.states import RunStatus
from dagwright.core.model.times import time_of
from dagwright.history.closing_event import closing_document, read_recorded_document
from dagwright.history.executions import is_top_run
from dagwright.history.explaining import Explanation, RunExplainer
from dagwright.history.hydration import error_with_inner_nodes, full_document, hydrated_document, stored_text
from dagwright.history.map_items import view_of_item
from dagwright.history.run_reader import RunNotFound, RunReader, RunView, tools_of
from dagwright.history.run_subscriptions import RunSubscriptions
from dagwright.history.token_streams import TokenStreams
from dagwright.protocol.conversion import decode_payloads
from dagwright.protocol.documents import nodes_ended
from dagwright.protocol.failures import NODE_FAILED, run_error_of
from dagwright.protocol.messages import MessageInvalid
from dagwright.protocol.run_attributes import attributes_at_start
from dagwright.protocol.run_labels import tags_in
from dagwright.server import Connection
from dagwright.server.tool_pauses import ToolPause, list_paused_tools
from dagwright.settings import Settings
from dagwright.store import PayloadStore, open_store

LISTED_AT_ONCE = 500
"""Page size of the server request if the filter may exclude most runs."""
REACH_S = 3.0
"""Timeout of the connection check, in seconds."""

_NAMES_TOLD = 5
_LOG = logging.getLogger(__name__)

_STATE = SearchAttributeKey.for_keyword(wire.SEARCH_STATE)

_STATUS_OF_EXECUTION = {
    WorkflowExecutionStatus.COMPLETED: RunStatus.COMPLETED,
    WorkflowExecutionStatus.CANCELED: RunStatus.CANCELLED,
    WorkflowExecutionStatus.FAILED: RunStatus.FAILED,
    WorkflowExecutionStatus.TERMINATED: RunStatus.FAILED,
    WorkflowExecutionStatus.TIMED_OUT: RunStatus.FAILED,
}
"""Statuses of closed executions; every other execution is running."""


class RunIdInUse(DagwrightError):
    """A run with this ID was started with another plan or other inputs."""


@dataclass(frozen=True, slots=True)
class Started:
    """A new run, or an existing run with the same ID, plan, inputs and model."""

    workflow_id: str
    run_id: str
    is_new: bool


class Runs:
    """The runs of one namespace.

    Args:
        connection: client, and the features that the namespace lacks.
        task_queue: task queue of the workflows.
        store: stores plans that are too large for the input of a run.
        notifies: whether the runs send webhook notifications about requests through their workers.
    """

    def __init__(self, connection: Connection, *, task_queue: str, store: PayloadStore, notifies: bool = False) -> None:
        self._notifies = notifies
        self._client = connection.client
        self._store = store
        self._missing_attributes = connection.missing_search_attributes
        self._task_queue = task_queue
        self.people = People(connection)
        """Requests of the runs to people."""
        self.feeds = RunSubscriptions(self.feed)
        """Shared subscriptions to runs."""
        self.texts = TokenStreams(self._client, self.feeds)
        """Shared subscriptions to the responses that models are writing."""

    async def start(self, request: StartRequest) -> Started:
        """Start a run, or attach to the run with the same ID, plan, inputs and model.

        Raises:
            RunIdInUse: a run with this ID has another plan, other inputs or another model.
            IdInvalid: the ID is invalid.
        """
        encoded = await self.encode(request)
        chosen = checked_id(request.workflow_id) if request.workflow_id is not None else made_id()
        existing = await self.same(chosen, encoded) if request.workflow_id is not None else None
        if existing is not None:
            return existing
        try:
            handle = await self._client.start_workflow(
                encoded.workflow,
                encoded.content,
                id=chosen,
                task_queue=encoded.task_queue or self._task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                memo=encoded.memo,
                search_attributes=attributes_at_start(encoded.memo, missing=self._missing_attributes),
                static_summary=encoded.title,
                task_timeout=timedelta(seconds=WORKFLOW_TASK_S),
            )
        except WorkflowAlreadyStartedError:
            existing = await self.same(chosen, encoded)
            if existing is None:
                raise
            return existing
        return Started(chosen, handle.first_execution_run_id or "", is_new=True)

    async def find(self, request: StartRequest) -> Started | None:
        """Return the run that `start` would attach to; `None` if there is no such run. Start nothing.

        Raises:
            RunIdInUse, IdInvalid: as `start`.
        """
        return await self.same(checked_id(request.workflow_id or ""), await self.encode(request))

    async def encode(self, request: StartRequest) -> EncodedStart:
        """Encode a start request; see `encode_start`."""
        return await encode_start(request, self._store, notifies=self._notifies)

    async def same(self, workflow_id: str, encoded: EncodedStart) -> Started | None:
        """Return the run with this ID if it has the same plan, inputs and model; `None` if there is no such run.

        Raises:
            RunIdInUse: the run has another plan, other inputs or another model.
        """
        there = await self._find(workflow_id)
        if there is None:
            return None
        digest = (await there.memo()).get(wire.MEMO_DIGEST)
        if digest != encoded.digest:
            raise RunIdInUse(await self._words_of_other(workflow_id, digest, encoded))
        return Started(workflow_id, there.run_id, is_new=False)

    async def _words_of_other(self, workflow_id: str, digest: Any, encoded: EncodedStart) -> str:
        """Return how the existing run with this ID differs from the start request.

        Args:
            digest: fingerprint of plan, inputs and model of the existing run.
            encoded: the start request for that ID.
        """
        source, inputs, model = encoded.source, encoded.inputs, encoded.model
        what = "another plan, other inputs or another model"
        # A workflow without a digest was not started as a run of a start request.
        view = await self.feed(workflow_id).read() if isinstance(digest, str) else None
        if view is not None and view.run_input is not None:
            given = view.run_input.inputs
            names = [name for name in dict.fromkeys([*inputs, *given]) if _differ(name, inputs, given)]
            listed = ", ".join(map(repr, names[:_NAMES_TOLD])) + (" …" if len(names) > _NAMES_TOLD else "")
            other = f"other inputs ({listed})"
            differences = {
                "another plan": digest != digest_of(source, given, view.run_input.model),
                other: bool(names),
                "another model": model != view.run_input.model,
            }
            what = " and ".join(words for words, is_there in differences.items() if is_there) or what
        return f"the id {workflow_id!r} belongs to a run with {what}; choose another id"

    async def list_runs(self, *, limit: int = 100, wanted: RunFilter | None = None) -> list[RunSummary]:
        """Return the newest runs, without sub-plans.

        Args:
            wanted: filter; `None` for all runs.
        """
        found, _ = await self.page_of_runs(limit=limit, wanted=wanted)
        return found

    async def page_of_runs(
        self, *, limit: int, wanted: RunFilter | None = None, after: RunPlace | None = None
    ) -> tuple[list[RunSummary], RunPlace | None]:
        """Return a page of runs as `list_runs`, and the cursor of the next page; `None` on the last page.

        Args:
            after: where the page starts; `None` for the newest run.
        """
        wanted = wanted or RunFilter()
        place = after or RunPlace(page=limit if wanted.is_by_state else max(limit, LISTED_AT_ONCE))
        found: list[RunSummary] = []
        runs: list[tuple[WorkflowExecution, RunPlace | None]] = []
        query = wanted.query(missing=self._missing_attributes)
        async for next_place, run in self._executions_from(place, query):
            if is_top_run(run) and (wanted.is_by_state or await _is_wanted(run, wanted)):
                runs.append((run, next_place))
            if len(found) + len(runs) == limit:
                found += await self._summaries(runs, wanted)
                runs = []
            if len(found) == limit:
                return found, next_place
        return [*found, *await self._summaries(runs, wanted)], None

    async def _executions_from(
        self, place: "RunPlace", query: str
    ) -> AsyncIterator[tuple[RunPlace | None, WorkflowExecution]]:
        """Yield the listed executions from a cursor on, each with the cursor after it; `None` after the last one."""
        token, index = place.token, place.index
        while True:
            listing = self._client.list_workflows(query, page_size=place.page, next_page_token=token)
            await listing.fetch_next_page()
            there, following = listing.current_page or (), listing.next_page_token
            for number, run in enumerate(there[index:], index + 1):
                is_last = number == len(there)
                if is_last and not following:
                    yield None, run
                else:
                    yield RunPlace(place.page, following, 0) if is_last else RunPlace(place.page, token, number), run
            if not following:
                return
            token, index = following, 0

    async def _summaries(
        self, runs: Sequence[tuple[WorkflowExecution, RunPlace | None]], wanted: RunFilter
    ) -> list[RunSummary]:
        turns = asyncio.Semaphore(HISTORIES_AT_ONCE)

        async def summary(run: WorkflowExecution, next_place: RunPlace | None) -> RunSummary | None:
            async with turns:
                found = await self._summary_if_kept(run)
            cursor = None if next_place is None else str(next_place)
            return None if found is None else replace(found, cursor=cursor)

        found = await asyncio.gather(*(summary(run, place) for run, place in runs))
        return [each for each in found if each is not None and wanted.status in (None, each.status)]

    async def open_runs_of(self, owner: str) -> set[str]:
        """Return the IDs of the open runs of an owner, without sub-plans; the list lags by about a second."""
        query = f"{wire.IS_RUN} AND ExecutionStatus = 'Running'"
        return {run.id async for run in self._client.list_workflows(query) if owner_in(await run.memo()) == owner}

    async def is_open(self, workflow_id: str) -> bool:
        """Return whether there is an open run with this ID."""
        there = await self._find(workflow_id)
        return there is not None and there.status is WorkflowExecutionStatus.RUNNING

    async def reach(self) -> None:
        """Check that the server responds.

        Raises:
            RPCError: the server does not respond.
        """
        await self._client.service_client.check_health(timeout=timedelta(seconds=REACH_S))

    async def paused_tools(self) -> list[ToolPause]:
        """Return the pauses of all paused tools."""
        return await list_paused_tools(self._client)

    async def tools_of(self, workflow_id: str) -> list[str]:
        """Return the `--tools` values that a run was started with.

        Raises:
            RunNotFound: there is no such run.
        """
        return tools_of(await self._memo_of(workflow_id))

    async def session_of(self, workflow_id: str) -> str | None:
        """Return the name of the session that has the run as a turn; `None` if the run is not a turn.

        Raises:
            RunNotFound: there is no such run.
        """
        name = (await self._memo_of(workflow_id)).get(wire.MEMO_SESSION)
        return name if isinstance(name, str) else None

    async def is_there(self, workflow_id: str) -> bool:
        """Return whether there is a run with this ID."""
        return await self._find(workflow_id) is not None

    async def tags_of(self, workflow_id: str) -> dict[str, str]:
        """Return the tags of a run, name -> value.

        Raises:
            RunNotFound: there is no such run.
        """
        return tags_in(await self._memo_of(workflow_id), key=wire.MEMO_TAGS)

    async def owner_of(self, workflow_id: str) -> str | None:
        """Return the owner of the API key that started a run; `None` if it was started without a key.

        Raises:
            RunNotFound: there is no such run.
        """
        return owner_in(await self._memo_of(workflow_id))

    async def document(self, view: RunView, *, full: bool = False, only: str | None = None) -> dict[str, Any]:
        """Return the document of a run with its large values loaded; see `hydrated_document`.

        The document includes the open requests of its sub-plans.
        """
        document = await hydrated_document(view, self._store, full=full, only=only)
        if has_sub_plans(view):
            below = await self.people.requests_below(view.workflow_id)
            document["waiting_for"] = [*document["waiting_for"], *(request.document for request in below)]
        return document

    async def stored_text(self, place: Mapping[str, Any]) -> str | None:
        """Return a text of the payload store; see `dagwright.history.hydration.stored_text`."""
        return await stored_text(self._store, place)

    async def view_of_item(self, view: RunView, task_id: str) -> RunView:
        """Return the view of the run that has the state of a node or item; see `dagwright.history.map_items`."""
        return await view_of_item(view, task_id, open_reader=self.feed)

    def full_document(self, view: RunView) -> AsyncIterator[tuple[str, Any]]:
        """Yield the document of a run with all nodes and values; see `dagwright.history.hydration.full_document`."""
        return full_document(view, self._store)

    async def explain(self, workflow_id: str, node: str | None = None) -> Explanation:
        """Explain a run or one of its nodes: the reasons why it waits, or the sources of its result.

        Args:
            node: ID of a node or item; in a sub-plan the path to it, `archive/check`.

        Raises:
            RunNotFound: there is no such run.
            NodeUnknown: the run has no such node, or does not know it yet.
        """
        explaining = RunExplainer(self.feed, self._store)
        if node:
            return await explaining.of_node(workflow_id, normalize("NFC", node))
        return await explaining.of_run(workflow_id)

    def graph(self, view: RunView) -> GraphListing:
        return GraphListing(view, self._store)

    def feed(self, workflow_id: str) -> RunReader:
        """Return the reader of a run."""
        return RunReader(self._client, workflow_id)

    async def _memo_of(self, workflow_id: str) -> Mapping[str, Any]:
        there = await self._find(workflow_id)
        if there is None:
            raise RunNotFound(f"there is no run {workflow_id!r:.200}")
        return await there.memo()

    async def _find(self, workflow_id: str) -> WorkflowExecutionDescription | None:
        try:
            return await self._client.get_workflow_handle(workflow_id).describe()
        except RPCError as error:
            if error.status in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
                return None
            raise

    async def _summary_if_kept(self, run: WorkflowExecution) -> RunSummary | None:
        """Return the summary of a listed run; `None` if the server has deleted the run since it was listed.

        If the history or values of a run cannot be read, or not in time, the summary has the status of its execution:
        one damaged run must not hide all others.
        """
        try:
            return await self._summary(run)
        except RunNotFound:
            return None
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            if error.status is RPCStatusCode.UNAVAILABLE:
                raise
            return _unreadable(run, error)
        except (DagwrightError, MessageInvalid, LookupError, ValueError, TypeError, AttributeError) as error:
            return _unreadable(run, error)

    async def _summary(self, run: WorkflowExecution) -> RunSummary:
        memo = await run.memo()
        total, title, session = (memo.get(name) for name in (wire.MEMO_NODES, wire.MEMO_TITLE, wire.MEMO_SESSION))
        document = await self._closing_document(run) if run.close_time is not None else None
        done = None if document is None else nodes_ended(document, total=total)
        status, error = run.typed_search_attributes.get(_STATE), None if document is None else run_error_of(document)
        if run.status is WorkflowExecutionStatus.CANCELED and document is not None:
            status = RunStatus.CANCELLED.value
        if done is None or status in (None, "running"):
            view = await RunReader(self._client, run.id, run_id=run.run_id).read()
            total = total if view.nodes_total is None else view.nodes_total
            title, done, status = title or summary_of(view.title or "") or None, view.nodes_done, view.status
            error = view.document_with_refs()["error"]
        if error is not None and error["code"] == NODE_FAILED and error["node_id"] is None:
            # Only nodes in regions failed; the payload store has their errors.
            view = await RunReader(self._client, run.id, run_id=run.run_id).read()
            error = await error_with_inner_nodes(view.document_with_refs(), view, self._store)
        return RunSummary(
            run_id=run.id,
            status=RunStatus(status),
            title=title if isinstance(title, str) else None,
            started_at=time_of(_began_at(memo) or run.start_time.timestamp()),
            ended_at=run.close_time,
            nodes_done=done,
            nodes_total=total if isinstance(total, int) else 0,
            session=session if isinstance(session, str) else None,
            error=problem_from_error(error) if status == "failed" else None,
            tags=tags_in(memo, key=wire.MEMO_TAGS),
        )

    async def _closing_document(self, run: WorkflowExecution) -> Mapping[str, Any] | None:
        """Return the result document at the end of the history of a closed run; `None` if it has none."""
        if run.status is WorkflowExecutionStatus.CANCELED:
            return await read_recorded_document(self._client, run.id, run.run_id)
        handle = self._client.get_workflow_handle(run.id, run_id=run.run_id)
        async for event in handle.fetch_history_events(event_filter_type=WorkflowHistoryEventFilterType.CLOSE_EVENT):
            await decode_payloads(event, self._client.data_converter)
            return closing_document(event)
        return None


def _differ(name: str, some: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    return name not in some or name not in others or some[name] != others[name]


async def _is_wanted(run: WorkflowExecution, wanted: RunFilter) -> bool:
    memo = await run.memo()
    started_at = None if wanted.since is None else _began_at(memo) or run.start_time.timestamp()
    return wanted.takes(run.id, memo, started_at=started_at)


def _unreadable(run: WorkflowExecution, error: Exception) -> RunSummary:
    message = f"the history of the run cannot be read: {error!r:.500}"
    _LOG.warning("%s: %s", run.id, message)
    status = _STATUS_OF_EXECUTION.get(run.status or WorkflowExecutionStatus.RUNNING, RunStatus.RUNNING)
    return RunSummary(
        run_id=run.id,
        status=status,
        title=None,
        started_at=run.start_time,
        ended_at=run.close_time,
        nodes_done=0,
        nodes_total=0,
        error=Problem("unreadable", message) if status is RunStatus.FAILED else None,
    )


def _began_at(memo: Mapping[str, Any]) -> float | None:
    """Return the start of the first execution of a run that continued as new, in seconds since the epoch."""
    started_at = memo.get(wire.MEMO_STARTED_AT)
    return datetime.fromisoformat(started_at).timestamp() if isinstance(started_at, str) else None


def open_runs(connection: Connection, settings: Settings) -> Runs:
    """Return the runs of the namespace in the settings."""
    return Runs(
        connection,
        task_queue=settings.task_queue,
        store=open_store(settings.payload_store, state_dir=settings.state_dir),
        notifies=settings.notify_url is not None,
    )
