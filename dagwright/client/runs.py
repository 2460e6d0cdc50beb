"""Start, find, list and read runs: the client of runs that the command line, HTTP API and MCP server share."""

import logging
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from unicodedata import normalize

from temporalio.client import Client as TemporalClient
from temporalio.client import (
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
)
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from dagwright.client.errors import RunIdInUse
from dagwright.client.feedback.feedback_client import FeedbackClient
from dagwright.client.feedback.inbox import MATCH_EVERY_REQUEST, InboxFilter, InboxPage, read_inbox_page
from dagwright.client.feedback.open_requests import has_sub_plans
from dagwright.client.graph import GraphListing
from dagwright.client.list_cursors import ListCursor, executions_from, page_size_for
from dagwright.client.run_lists import (
    TOP_RUNS_FILTER,
    RunFilter,
    RunSummary,
    owner_in_memo,
    quote_literal,
    readable_memo,
    run_summary,
)
from dagwright.client.starts import (
    EncodedStart,
    StartedRun,
    StartRequest,
    checked_run_id,
    digest_of,
    encode_start,
    new_run_id,
)
from dagwright.core.boundary import wire
from dagwright.core.boundary.limits import WORKFLOW_TASK_S
from dagwright.core.model.call_limits import Subject
from dagwright.history.document_hydration import full_document, hydrated_document, stored_text
from dagwright.history.executions import RunNotFound
from dagwright.history.map_items import view_of_item
from dagwright.history.run_explainer import RunExplainer, RunExplanation
from dagwright.history.run_reader import RunReader, tools_of
from dagwright.history.run_subscriptions import RunSubscriptions
from dagwright.history.run_view import RunView
from dagwright.history.token_streams import TokenStreams
from dagwright.protocol.call_limit_messages import LimitSettings
from dagwright.protocol.fairness import Fairness, fairness_in
from dagwright.protocol.run_attributes import attributes_at_start, fair_priority
from dagwright.protocol.run_labels import keyword, queryable_prefix, tags_in
from dagwright.server import Connection
from dagwright.server.call_limits import read_usage
from dagwright.server.tool_pauses import ToolPause, list_tool_pauses
from dagwright.settings import Settings
from dagwright.store import PayloadStore, open_store

CONNECTION_CHECK_TIMEOUT_S = 3.0
"""Timeout of the connection check, in seconds."""

_MAX_NAMES = 5
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SharedProperties:
    """Properties that a run shares with its forks.

    Args:
        owner: as `Runs.owner_of` returns it.
        tags: name -> value.
        fairness: `None` without a fairness key.
    """

    owner: str | None
    tags: Mapping[str, str]
    fairness: Fairness | None


class Runs:
    """The runs of one namespace.

    Args:
        connection: connection to the namespace.
        task_queue: task queue of the workflows.
        store: stores plans that are too large for the input of a run.
        has_webhook: whether the workers notify a webhook when a run requests feedback.
    """

    def __init__(
        self, connection: Connection, *, task_queue: str, store: PayloadStore, has_webhook: bool = False
    ) -> None:
        self._has_webhook = has_webhook
        self._client = connection.client
        self._store = store
        self._connection = connection
        self._task_queue = task_queue
        self.feedback = FeedbackClient(connection, self.reader)
        """Client for the requests that the runs send to people."""
        self.subscriptions = RunSubscriptions(self.reader)
        """Shared subscriptions to runs."""
        self.token_streams = TokenStreams(self._client, self.subscriptions)
        """Shared subscriptions to the responses that models are writing."""

    async def start(self, request: StartRequest) -> StartedRun:
        """Start a run, or attach to the run with the same ID, plan, inputs and model.

        Raises:
            RunIdInUse: a run with this ID has another plan, other inputs or another model.
            RunIdInvalid: the ID is invalid.
        """
        encoded_start = await self.encode(request)
        run_id = checked_run_id(request.run_id) if request.run_id is not None else new_run_id()
        missing_attributes = self._connection.missing_search_attributes
        try:
            handle = await self._client.start_workflow(
                encoded_start.workflow,
                encoded_start.content,
                id=run_id,
                task_queue=encoded_start.task_queue or self._task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                memo=encoded_start.memo,
                search_attributes=attributes_at_start(encoded_start.memo, missing_attributes=missing_attributes),
                static_summary=encoded_start.title,
                task_timeout=timedelta(seconds=WORKFLOW_TASK_S),
                priority=fair_priority(encoded_start.fairness),
            )
        except WorkflowAlreadyStartedError as error:
            start_error = error
        else:
            return StartedRun(run_id, handle.first_execution_run_id or "", is_new=True)
        # After the `except` block, `RunIdInUse` does not show the server's error as its context.
        existing_run = await self.find_same_run(run_id, encoded_start)
        if existing_run is None:
            raise start_error
        return existing_run

    async def find(self, request: StartRequest) -> StartedRun | None:
        """Return the run that `start` would attach to; `None` if there is no such run. Start nothing.

        Raises:
            RunIdInUse, RunIdInvalid: as `start`.
        """
        return await self.find_same_run(checked_run_id(request.run_id or ""), await self.encode(request))

    async def encode(self, request: StartRequest) -> EncodedStart:
        """Encode a start request; see `encode_start`."""
        return await encode_start(request, self._store, has_webhook=self._has_webhook)

    async def find_same_run(self, run_id: str, encoded_start: EncodedStart) -> StartedRun | None:
        """Return the run with this ID if it has the same plan, inputs and model; `None` if there is no such run.

        Raises:
            RunIdInUse: the run has another plan, other inputs or another model.
        """
        execution = await self._find(run_id)
        if execution is None:
            return None
        digest = (await execution.memo()).get(wire.MEMO_DIGEST)
        if digest != encoded_start.digest:
            raise RunIdInUse(await self._other_run_message(run_id, digest, encoded_start))
        return StartedRun(run_id, execution.run_id, is_new=False)

    async def _other_run_message(self, run_id: str, digest: Any, encoded_start: EncodedStart) -> str:
        """Return the message that says how the existing run with this ID differs from the start request.

        Args:
            digest: fingerprint of plan, inputs and model of the existing run.
            encoded_start: the start request with the same ID.
        """
        source, inputs, model = encoded_start.source, encoded_start.inputs, encoded_start.model
        difference = "another plan, other inputs or another model"
        # A workflow without a digest was not started by a start request.
        view = await self.reader(run_id).read() if isinstance(digest, str) else None
        if view is not None and view.run_input is not None:
            run_inputs = view.run_input.inputs
            names = [name for name in dict.fromkeys([*inputs, *run_inputs]) if _input_differs(name, inputs, run_inputs)]
            names_text = ", ".join(map(repr, names[:_MAX_NAMES])) + (" …" if len(names) > _MAX_NAMES else "")
            other_inputs = f"other inputs ({names_text})"
            differences = {
                "another plan": digest != digest_of(source, run_inputs, view.run_input.model),
                other_inputs: bool(names),
                "another model": model != view.run_input.model,
            }
            difference = (
                " and ".join(message for message, is_difference in differences.items() if is_difference) or difference
            )
        return f"the id {run_id!r} belongs to a run with {difference}; choose another id"

    async def list_runs(self, *, limit: int = 100, run_filter: RunFilter | None = None) -> list[RunSummary]:
        """Return the newest runs, without sub-plans.

        Args:
            run_filter: filter; `None` for all runs.

        Raises:
            SearchAttributesMissing: the namespace lacks search attributes.
        """
        summaries, _ = await self.nonempty_page_of_runs(limit=limit, run_filter=run_filter)
        return summaries

    async def page_of_runs(
        self, *, limit: int, run_filter: RunFilter | None = None, after: ListCursor | None = None
    ) -> tuple[list[RunSummary], ListCursor | None]:
        """Return a page of the runs, without sub-plans, and the cursor of the next page; `None` after the last page.

        A page before the last page may have fewer runs than `limit`, or be empty.

        Args:
            after: where the page starts; `None` for the newest run.

        Complexity: two requests to the server.
        """
        self._connection.require_search_attributes()
        run_filter = run_filter or RunFilter()
        summaries: list[RunSummary] = []
        page_size = page_size_for(limit)
        executions = executions_from(self._client, run_filter.query(), after=after, page_size=page_size)
        run_count, cursor = 0, None
        async for cursor, run in executions:
            run_count += 1
            memo = await readable_memo(run)
            if run_filter.matches(run, memo):
                summaries.append(replace(run_summary(run, memo), cursor=None if cursor is None else str(cursor)))
            # Stop early if the filter excludes most of the runs that the query finds.
            if len(summaries) == limit or run_count - len(summaries) == page_size:
                break
        return summaries, cursor

    async def nonempty_page_of_runs(
        self, *, limit: int, run_filter: RunFilter | None = None, after: ListCursor | None = None
    ) -> tuple[list[RunSummary], ListCursor | None]:
        """Like `page_of_runs`, but skip empty pages."""
        summaries, cursor = await self.page_of_runs(limit=limit, run_filter=run_filter, after=after)
        while cursor is not None and not summaries:
            summaries, cursor = await self.page_of_runs(limit=limit, run_filter=run_filter, after=cursor)
        return summaries, cursor

    async def inbox(
        self, *, limit: int, inbox_filter: InboxFilter = MATCH_EVERY_REQUEST, after: ListCursor | None = None
    ) -> InboxPage:
        """Return a page of the open feedback requests of all runs; see `read_inbox_page`."""
        return await read_inbox_page(self._connection, limit=limit, inbox_filter=inbox_filter, after=after)

    async def count_open_runs(self, owner: str, *, excluded_ids: Collection[str] = ()) -> int:
        """Return the number of open runs of an owner, without sub-plans. The count lags by about a second.

        Args:
            excluded_ids: IDs of runs that are not counted.
        """
        self._connection.require_search_attributes()
        owner_condition = f"{wire.SEARCH_OWNER} = {quote_literal(keyword(owner))}"
        query = f"{TOP_RUNS_FILTER} AND ExecutionStatus = 'Running' AND {owner_condition}"
        if excluded_ids:
            # Some valid IDs cannot be written in a query; runs with such an ID are counted.
            ids = ", ".join(
                quote_literal(run_id) for run_id in sorted(excluded_ids) if run_id == queryable_prefix(run_id)
            )
            query += f" AND WorkflowId NOT IN ({ids})" if ids else ""
        return (await self._client.count_workflows(query)).count

    @property
    def client(self) -> TemporalClient:
        """Client of the connection."""
        return self._client

    async def used_up_budget_text(self, owner: str) -> str | None:
        """Return why runs of an owner may call no model today.

        Returns:
            `None` if the runs may call models, or if the usage of the owner is unknown.
        """
        usage = await read_usage(self._client, LimitSettings(Subject("owner", owner)))
        return usage.used_up_reason

    async def is_open(self, run_id: str) -> bool:
        """Return whether there is an open run with this ID."""
        execution = await self._find(run_id)
        return execution is not None and execution.status is WorkflowExecutionStatus.RUNNING

    async def check_connection(self) -> None:
        """Check that the server responds.

        Raises:
            RPCError: the server does not respond.
        """
        await self._client.service_client.check_health(timeout=timedelta(seconds=CONNECTION_CHECK_TIMEOUT_S))

    async def paused_tools(self) -> list[ToolPause]:
        """Return the pauses of all paused tools."""
        return await list_tool_pauses(self._client)

    async def tools_of(self, run_id: str) -> list[str]:
        """Return the `--tools` values that a run was started with.

        Raises:
            RunNotFound: there is no such run.
        """
        return tools_of(await self._memo_of(run_id))

    async def session_name_of(self, run_id: str) -> str | None:
        """Return the stored name of the session that has the run as a turn; `None` if the run is not a turn.

        Raises:
            RunNotFound: there is no such run.
        """
        session_name = (await self._memo_of(run_id)).get(wire.MEMO_SESSION)
        return session_name if isinstance(session_name, str) else None

    async def exists(self, run_id: str) -> bool:
        """Return whether there is a run with this ID."""
        return await self._find(run_id) is not None

    async def tags_of(self, run_id: str) -> dict[str, str]:
        """Return the tags of a run, name -> value.

        Raises:
            RunNotFound: there is no such run.
        """
        return tags_in(await self._memo_of(run_id), key=wire.MEMO_TAGS)

    async def owner_of(self, run_id: str) -> str | None:
        """Return the owner of the API key that started a run; `None` if it was started without a key.

        Raises:
            RunNotFound: there is no such run.
        """
        return owner_in_memo(await self._memo_of(run_id))

    async def shared_properties_of(self, run_id: str) -> SharedProperties:
        """Return the properties that a run shares with its forks. Complexity: one request to the server.

        Raises:
            RunNotFound: there is no such run.
        """
        execution = await self._existing_run(run_id)
        memo = await execution.memo()
        fairness = fairness_in(execution.raw_description.workflow_execution_info.priority)
        return SharedProperties(owner_in_memo(memo), tags_in(memo, key=wire.MEMO_TAGS), fairness)

    async def document(self, view: RunView, *, full: bool = False, only_node: str | None = None) -> dict[str, Any]:
        """Return the document of a run with its large values loaded; see `hydrated_document`.

        The document includes the open requests of its sub-plans.
        """
        document = await hydrated_document(view, self._store, full=full, only_node=only_node)
        if has_sub_plans(view):
            child_requests = await self.feedback.requests_of_sub_plans(view.run_id)
            document["waiting_for"] = [*document["waiting_for"], *(request.document for request in child_requests)]
        return document

    async def stored_text(self, ref: Mapping[str, Any]) -> str | None:
        """Return a text from the payload store; see `dagwright.history.document_hydration.stored_text`."""
        return await stored_text(self._store, ref)

    async def view_of_item(self, view: RunView, task_id: str) -> RunView:
        """Return the view of the run that has the state of a node or item; see `dagwright.history.map_items`."""
        return await view_of_item(view, task_id, open_reader=self.reader)

    def full_document(self, view: RunView) -> AsyncIterator[tuple[str, Any]]:
        """Yield the document of a run with all nodes and values; see
        `dagwright.history.document_hydration.full_document`."""
        return full_document(view, self._store)

    async def explain(self, run_id: str, node_id: str | None = None) -> RunExplanation:
        """Explain a run or one of its nodes: the reasons why it waits, or the sources of its result.

        Args:
            node_id: ID of a node or item, or the path to it in a sub-plan, such as `archive/check`.

        Raises:
            RunNotFound: there is no such run.
            NodeNotFound: the run has no such node or item yet.
        """
        explainer = RunExplainer(self.reader, self._store)
        if node_id:
            return await explainer.explain_node(run_id, normalize("NFC", node_id))
        return await explainer.explain_run(run_id)

    def graph(self, view: RunView) -> GraphListing:
        return GraphListing(view, self._store)

    def reader(self, run_id: str) -> RunReader:
        """Return the reader of a run."""
        return RunReader(self._client, run_id)

    async def _memo_of(self, run_id: str) -> Mapping[str, Any]:
        return await (await self._existing_run(run_id)).memo()

    async def _existing_run(self, run_id: str) -> WorkflowExecutionDescription:
        execution = await self._find(run_id)
        if execution is None:
            raise RunNotFound(f"there is no run {run_id!r:.200}")
        return execution

    async def _find(self, run_id: str) -> WorkflowExecutionDescription | None:
        try:
            return await self._client.get_workflow_handle(run_id).describe()
        except RPCError as error:
            if error.status in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
                return None
            raise


def _input_differs(name: str, inputs: Mapping[str, Any], other_inputs: Mapping[str, Any]) -> bool:
    return name not in inputs or name not in other_inputs or inputs[name] != other_inputs[name]


def namespace_runs(connection: Connection, settings: Settings) -> Runs:
    """Return the client of the runs of a connection."""
    return Runs(
        connection,
        task_queue=settings.task_queue,
        store=open_store(settings.payload_store, state_dir=settings.state_dir),
        has_webhook=settings.notify_url is not None,
    )
