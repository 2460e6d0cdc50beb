"""Follow a run for an MCP call: report progress, show forms to the client, and return when there is a result.

A run does not depend on the call: it continues if the call ends or is cancelled, or if the MCP server stops.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.shared.exceptions import MCPError, NoBackChannelError

from dagwright.client.errors import FeedbackRejected
from dagwright.client.feedback.answer_sending import answer_request
from dagwright.client.feedback.open_requests import Answer
from dagwright.client.run_follower import RunMoment, follow
from dagwright.core.model.states import NodeStatus, RunStatus
from dagwright.history.executions import RunClosed, RunNotFound
from dagwright.history.moment_facts import TaskState, states_of
from dagwright.interfaces.mcp.elicitation import Elicitations, parse_form_response, uses_interim_results
from dagwright.interfaces.mcp.request_forms import InvalidJson, RequestDocument, answer_of

if TYPE_CHECKING:
    from dagwright.client.runs import Runs
    from dagwright.history.run_view import RunView

FORM_TIMEOUT_S = 3600.0
"""Maximum time that a form stays open: clients may disappear without notice."""
_STATUSES_WITHOUT_PROGRESS = (NodeStatus.PENDING, NodeStatus.READY)
_STARTED_SHARE = 0.5
"""Progress of a started node; the progress of an ended node is 1."""


@dataclass(frozen=True, slots=True)
class FollowResult:
    """The state of a run at the end of a call.

    Args:
        view: view of the run.
        rejections: messages about answers that the run rejected.
        interim_result: forms for open requests, if the call ends with forms.
    """

    view: "RunView"
    rejections: str = ""
    interim_result: types.InputRequiredResult | None = None


async def follow_run(
    runs: "Runs", run_id: str, elicitations: Elicitations, *, wait_s: float, author: str
) -> FollowResult:
    """Follow a run until it has ended or waits for an answer that this client cannot give, or until the time is up.

    Args:
        elicitations: forms of the call.
        wait_s: maximum seconds, extended while a form is open.
        author: name recorded with answers of this client.

    Raises:
        RunNotFound: there is no such run.
        RPCError: the server has not responded for a minute.
    """
    follower = _RunFollower(runs, run_id, elicitations, author=author)
    try:
        return await follower.follow_until(time.monotonic() + wait_s)
    finally:
        await follower.close()


class _RunFollower:
    def __init__(self, runs: "Runs", run_id: str, elicitations: Elicitations, *, author: str) -> None:
        self._runs = runs
        self._run_id = run_id
        self._elicitations = elicitations
        self._author = author
        self._progress = RunProgress()
        self._moments: AsyncGenerator[RunMoment, None] = follow(runs, run_id)
        self._moment_task: asyncio.Task[RunMoment] | None = None
        self._form_task: asyncio.Task[None] | None = None
        self._open_form_id = ""
        """ID of the request whose form is open."""

    async def follow_until(self, deadline: float) -> FollowResult:
        """Follow the run until the call can return.

        Args:
            deadline: time of the monotonic clock.
        """
        last_moment: RunMoment | None = None
        while True:
            moment = await self._next_moment(deadline if last_moment is not None else None)
            if moment is not None:
                last_moment = moment
                await self._report_progress(moment)
            assert last_moment is not None
            view = last_moment.view
            rejections = " ".join(self._elicitations.rejections)
            if view.is_closed:
                return FollowResult(view, rejections)
            # The view may be older than the answers of this call, so omit the answered requests.
            requests = [
                request
                for request in last_moment.requests
                if request["request_id"] not in self._elicitations.answered_ids
            ]
            if (interim_result := self._interim_result(requests)) is not None:
                return FollowResult(view, rejections, interim_result)
            self._open_next_form(requests)
            # The run waits for an answer that this client cannot give.
            is_stuck = bool(requests) and view.status == RunStatus.WAITING
            if self._form_task is None and (is_stuck or time.monotonic() >= deadline):
                return FollowResult(view, rejections)

    async def close(self) -> None:
        """Stop following, and close an open form."""
        for task in (self._form_task, self._moment_task):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task
        await self._moments.aclose()

    async def _next_moment(self, deadline: float | None) -> RunMoment | None:
        """Return the next moment; `None` if the time is up or a form was closed first."""
        if self._moment_task is None:
            self._moment_task = asyncio.ensure_future(anext(self._moments))
        tasks: list[asyncio.Task[Any]] = [
            self._moment_task,
            *([self._form_task] if self._form_task is not None else []),
        ]
        timeout_s = None if deadline is None or self._form_task is not None else max(0.0, deadline - time.monotonic())
        await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if self._form_task is not None and self._form_task.done():
            form_task, self._form_task = self._form_task, None
            if not form_task.cancelled():
                form_task.result()
        if not self._moment_task.done():
            return None
        moment_task, self._moment_task = self._moment_task, None
        return moment_task.result()

    async def _report_progress(self, moment: RunMoment) -> None:
        for notification in self._progress.notifications(moment):
            await self._elicitations.context.session.report_progress(
                notification.done, notification.total, notification.message
            )

    def _interim_result(self, requests: Sequence[Mapping[str, Any]]) -> types.InputRequiredResult | None:
        if not uses_interim_results(self._elicitations.context):
            return None
        return self._elicitations.interim_result(self._run_id, requests)

    def _open_next_form(self, requests: Sequence[Mapping[str, Any]]) -> None:
        """Open the next form if no form is open; close a form whose request was answered elsewhere."""
        if self._form_task is not None:
            if self._open_form_id not in {request["request_id"] for request in requests}:
                self._form_task.cancel()
            return
        if (
            not uses_interim_results(self._elicitations.context)
            and (next_form := self._elicitations.next_form(requests)) is not None
        ):
            request, form = next_form
            self._open_form_id = str(request["request_id"])
            self._form_task = asyncio.create_task(self._show_form(request, form))

    async def _show_form(self, request: RequestDocument, form: types.ElicitRequestFormParams) -> None:
        """Show a form, and answer the request with the content of the form."""
        self._elicitations.skipped_ids.add(str(request["request_id"]))
        context = self._elicitations.context
        try:
            async with asyncio.timeout(FORM_TIMEOUT_S):
                form_result = await context.session.elicit_form(
                    form.message, form.requested_schema, related_request_id=context.request_id
                )
        except (TimeoutError, MCPError, NoBackChannelError):
            # The client cannot show the form, or no person fills it in. The request stays open.
            return
        await _answer_with_form(
            form_result, self._elicitations, request, self._runs, run_id=self._run_id, author=self._author
        )


async def answer_with_forms(
    responses: Mapping[str, Any], elicitations: Elicitations, runs: "Runs", *, run_id: str, author: str
) -> None:
    """Answer the open requests of a run with the forms that a client has filled in.

    Args:
        responses: request ID -> the response of the client to the form.
    """
    open_requests = {str(request.id): request for request in await runs.feedback.requests_of(run_id)}
    for request_id, response in responses.items():
        elicitations.skipped_ids.add(request_id)
        request, form_result = open_requests.get(request_id), parse_form_response(response)
        if request is not None and form_result is not None:
            await _answer_with_form(form_result, elicitations, request.document, runs, run_id=run_id, author=author)


async def _answer_with_form(
    form_result: types.ElicitResult,
    elicitations: Elicitations,
    request: RequestDocument,
    runs: "Runs",
    *,
    run_id: str,
    author: str,
) -> None:
    """Answer a request with the content of its form if the person submitted the form.

    If the run rejects the answer, `elicitations` gets a message for the result of the call.
    """
    elicitations.skipped_ids.add(str(request["request_id"]))
    if form_result.action != "accept":
        return
    try:
        answer = Answer(answer_of(request, form_result.content or {}), author, source="mcp")
        await answer_request(runs.feedback, run_id, str(request["request_id"]), answer)
    except (FeedbackRejected, RunClosed, RunNotFound, InvalidJson) as error:
        elicitations.rejections.append(f"The answer to {request['request_id']!r} was rejected: {error}.")
    else:
        elicitations.answered_ids.add(str(request["request_id"]))


@dataclass(frozen=True, slots=True)
class ProgressNotification:
    """A progress notification.

    Args:
        done: number of nodes and items that have ended, plus half the number of running nodes and items.
        total: number of known nodes and items; more may be added.
        message: the node and its new state.
    """

    done: float
    total: float
    message: str


@dataclass(slots=True)
class RunProgress:
    """The progress of a run that was reported to the client."""

    progress_of_tasks: dict[str, float] = field(default_factory=dict)
    """ID of a node or item -> its progress."""
    last_done: float = -1.0
    """`done` of the last notification."""

    def notifications(self, moment: RunMoment) -> Iterator[ProgressNotification]:
        """Yield a notification for each changed node or item that increases the progress of the run."""
        states = states_of(moment.view.scheduler)
        total = _total_of(moment.view, states)
        for task_id in moment.changed_ids:
            state = states.get(task_id)
            if state is None or state.status in _STATUSES_WITHOUT_PROGRESS:
                continue
            share = 1.0 if state.status.is_final else _STARTED_SHARE
            self.progress_of_tasks[task_id] = max(self.progress_of_tasks.get(task_id, 0.0), share)
            done = sum(self.progress_of_tasks.values())
            # The protocol forbids notifications without progress, for example about another attempt.
            if done > self.last_done:
                self.last_done = done
                yield ProgressNotification(done, max(total, done), _message_of(task_id, state))


def _total_of(view: "RunView", states: dict[str, TaskState]) -> float:
    node_count = sum(1 for _ in view.scheduler.state.visible_nodes()) if view.scheduler is not None else 0
    return float(node_count + sum(task_id.endswith("]") for task_id in states))


def _message_of(task_id: str, state: TaskState) -> str:
    reason = f": {state.reason}" if state.reason and not state.status.is_final else ""
    return f"{task_id} {state.status.value}{reason}"
