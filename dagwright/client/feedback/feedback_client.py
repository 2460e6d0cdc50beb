"""Read the requests that runs send to people, and send the answers: the client side of human-in-the-loop requests.

An answer is sent with the update `submit_feedback`, which reports at once whether the run accepts it. If no worker
handles the update, the signal `feedback` adds the answer to the run's history, and the run applies it as soon as a
worker is available.

    FeedbackRejected      the run does not accept the answer; the message has the reason
    └── ItemNotNamed      the path must name one item of a `for_each` node
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from temporalio.client import WorkflowExecution, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from dagwright.client.errors import FeedbackRejected
from dagwright.client.feedback.open_requests import (
    Answer,
    ItemNotNamed,
    OpenRequest,
    RequestRef,
    has_sub_plans,
    requests_in,
    requests_of_node,
    with_path,
)
from dagwright.client.run_lists import quote_literal
from dagwright.client.run_messages import MessageKind, send_message
from dagwright.core.boundary import wire
from dagwright.core.boundary.limits import child_workflow_id
from dagwright.core.model.answers import size_problem
from dagwright.core.model.requests import Request, task_id_without_number
from dagwright.core.scheduler.run_state import last_call_id
from dagwright.core.text import join_first
from dagwright.history.executions import RunClosed, RunNotFound, path_in, root_in
from dagwright.history.run_view import RunView
from dagwright.protocol.node_paths import sub_plan_of_path
from dagwright.protocol.run_labels import keyword, queryable_prefix
from dagwright.server import Connection

if TYPE_CHECKING:
    from dagwright.history.run_reader import RunReader

UPDATE_TIMEOUT_S = 3.0
"""Seconds to wait for the answer's update; after that, the answer is sent as a signal."""
_MAX_CONCURRENT_HISTORIES = 8
"""Maximum number of sub-plan histories that are read concurrently, so that reading does not slow the runs."""
_POLL_INTERVAL_S = 0.2
"""Interval, in seconds, between two checks for the next request of a lookup."""
_MAX_LISTED = 20


_ANSWER = MessageKind(wire.UPDATE_SUBMIT_FEEDBACK, wire.SIGNAL_FEEDBACK, "the answer", FeedbackRejected)


class FeedbackClient:
    """Client for the requests of the runs of one namespace: reads them, and sends answers.

    Args:
        connection: connection to the namespace of the runs.
        open_reader: function that opens the reader of a run by its id.
        timeout_s: seconds to wait for a worker before an answer is sent as a signal.
    """

    def __init__(
        self, connection: Connection, open_reader: "Callable[[str], RunReader]", *, timeout_s: float = UPDATE_TIMEOUT_S
    ) -> None:
        self._open_reader = open_reader
        self._client = connection.client
        self._has_search_attributes = not connection.missing_search_attributes
        self._timeout_s = timeout_s

    async def requests_of(self, run_id: str) -> list[OpenRequest]:
        """Return the open requests of a run and of its sub-plans, oldest first.

        Raises:
            RunNotFound: there is no such run.
        """
        view = await self._open_reader(run_id).read()
        run_requests = _requests_of_run(view)
        if not has_sub_plans(view):
            return run_requests
        return _by_age([*run_requests, *await self.requests_of_sub_plans(run_id)])

    async def requests_of_sub_plans(self, run_id: str) -> list[OpenRequest]:
        """Return the open requests of the sub-plans of a run, at any depth, oldest first."""
        description = await self._client.get_workflow_handle(run_id).describe()
        memo = await description.memo()
        # The run may be a sub-plan itself; its own sub-plans have the same root.
        root_run_id, path = root_in(memo) or run_id, path_in(memo)
        query = f"{wire.RUN_WORKFLOWS_FILTER} AND ExecutionStatus = 'Running' AND "
        if self._has_search_attributes:
            query += (
                f"{wire.SEARCH_AWAITING} IS NOT NULL AND {wire.SEARCH_ROOT} = {quote_literal(keyword(root_run_id))}"
            )
        else:
            root_workflow_id = description.root_id or root_run_id
            prefix = queryable_prefix(root_workflow_id)
            # Runs that only share the prefix are excluded by their memos.
            query += f"RootWorkflowId {'=' if prefix == root_workflow_id else 'STARTS_WITH'} {quote_literal(prefix)}"
        slots = asyncio.Semaphore(_MAX_CONCURRENT_HISTORIES)

        async def requests_in_run(run: WorkflowExecution) -> list[OpenRequest]:
            memo = await run.memo()
            run_path = path_in(memo)
            if root_in(memo) != root_run_id or run_path[: len(path)] != path or run_path == path:
                return []
            # The run may have ended since it was listed.
            with suppress(RunNotFound):
                async with slots:
                    requests = _requests_of_run(await self._open_reader(run.id).read())
                return [with_path(request, run_id, run_path[len(path) :]) for request in requests]
            return []

        runs = [run async for run in self._client.list_workflows(query)]
        return _by_age(
            [
                request
                for open_requests in await asyncio.gather(*map(requests_in_run, runs))
                for request in open_requests
            ]
        )

    async def answer(self, request_ref: RequestRef, answer: Answer) -> str:
        """Send an answer to a run and return a sentence with the outcome.

        Args:
            request_ref: as `request_ref_of` returns it. The ID of a node with `for_each` covers all requests of its
                items.

        Raises:
            FeedbackRejected: the run does not accept the answer.
            RunNotFound: there is no such run.
            RunClosed: the run has ended.
        """
        if (problem := size_problem(answer.content)) is not None:
            # The server accepts 2 MiB. For a larger message, the client library raises an error that looks like a bug.
            raise FeedbackRejected(problem)
        run_id, message = request_ref.run_id, answer.to_json(request_ref.request_id)
        handle, reader = self._client.get_workflow_handle(run_id), self._open_reader(run_id)
        try:
            return await send_message(handle, _ANSWER, message, reader=reader, timeout_s=self._timeout_s)
        except RPCError as error:
            if error.status not in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
                raise
            await _check_exists(handle)
            if error.status is RPCStatusCode.INVALID_ARGUMENT:
                raise
            raise RunClosed(f"the run {run_id!r} has ended") from None

    async def request_after(self, request_ref: RequestRef) -> dict[str, Any] | None:
        """Return the next request that a lookup opens after the answer to a request; `None` without a next request.

        Return `None` also if the lookup does not progress within some seconds, or if the request does not belong to a
        lookup.
        """
        reader = self._open_reader(request_ref.run_id)
        # The accepted answer may end the run and its local server, so errors are ignored.
        with suppress(RPCError, RunNotFound, TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                while (next_request := following_request(await reader.read(), request_ref.request_id)) is None:
                    await asyncio.sleep(_POLL_INTERVAL_S)
                return next_request.to_json(request_ref.run_id) if isinstance(next_request, Request) else None
        return None

    async def request_ref_of(self, run_id: str, request_id: str) -> RequestRef:
        """Return the location of a request, whether or not it is open: it may be closed, or be opened later.

        Args:
            request_id: request ID, or the path to a request of a sub-plan, such as `archive/check`.

        Raises:
            RunNotFound: there is no such run.
            FeedbackRejected: the path leads through a sub-plan that is not running.
            ItemNotNamed: the path leads through a node with a sub-plan for each item and names no item.
        """
        if "/" not in request_id:
            return RequestRef(run_id, request_id)
        view = await self._open_reader(run_id).read()
        if view.scheduler is None:
            return RequestRef(run_id, request_id)
        if (sub_plan := sub_plan_of_path(view.scheduler, request_id)) is None:
            return RequestRef(run_id, request_id)
        task_id, rest = sub_plan
        child = self._client.get_workflow_handle(child_workflow_id(run_id, last_call_id(view.scheduler.state, task_id)))
        try:
            await _check_exists(child)
        except RunNotFound:
            if view.scheduler.state.node_of(task_id).for_each is not None:
                raise await self._item_not_named_error(run_id, task_id, rest) from None
            raise FeedbackRejected(
                f"the sub-plan {task_id!r} of the run {run_id!r} has not started; try again when it has"
            ) from None
        return await self.request_ref_of(child.id, rest)

    async def _item_not_named_error(self, run_id: str, node_id: str, rest: str) -> ItemNotNamed:
        """Return the error for a path through a node whose items each have a sub-plan."""
        open_requests = [
            request.id for request in requests_of_node(await self.requests_of(run_id), f"{node_id}/{rest}")
        ]
        open_text = f"; open requests are {join_first(open_requests, _MAX_LISTED)}" if open_requests else ""
        return ItemNotNamed(
            f"{node_id!r} has a sub-plan for each of its items: name an item, as {node_id}[key]/{rest}{open_text}"
        )


async def _check_exists(handle: WorkflowHandle[Any, Any]) -> None:
    """Check that a run exists.

    Raises:
        RunNotFound: there is no such run.
    """
    try:
        await handle.describe()
    except RPCError as error:
        if error.status not in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
            raise
        raise RunNotFound(f"there is no run {handle.id!r:.200}") from None


def _requests_of_run(view: RunView) -> list[OpenRequest]:
    if view.scheduler is None:
        return []
    scheduler, open_requests = view.scheduler, []
    for document in requests_in(view):
        # Requests for the inputs of the run belong to no node.
        node_id = scheduler.state.node_of(document["node_id"]).id if document["node_id"] else document["request_id"]
        request_ref = RequestRef(view.run_id, str(document["request_id"]))
        open_requests.append(OpenRequest(document, request_ref, str(node_id), title=view.title))
    return open_requests


def following_request(view: RunView, request_id: str) -> Request | Literal["none_follows"] | None:
    """Return the request that a lookup opens after the answer to a request.

    Returns:
        `None` while the lookup may still open a request; `none_follows` if the lookup opens no more requests, or if the
        answered request belongs to another tool, which may run for hours.
    """
    scheduler, task_id = view.scheduler, task_id_without_number(request_id)
    override = scheduler.state.overrides.get(task_id) if scheduler is not None else None
    if scheduler is None or view.is_closed or override is None or scheduler.state.node_of(task_id).kind != "lookup":
        return "none_follows"
    if not override.answers or override.answers[-1]["request_id"] != request_id:
        # The next request was answered as well.
        return "none_follows"
    if (next_request := scheduler.features.feedback.requests.of_task(task_id)) is not None:
        return next_request
    record = scheduler.record_of(task_id)
    return "none_follows" if record is None or record.status.is_final else None


def _by_age(requests: Sequence[OpenRequest]) -> list[OpenRequest]:
    return sorted(requests, key=lambda request: str(request.document["opened_at"]))
