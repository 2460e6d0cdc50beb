"""Looks at a run for one call: tells its progress, asks the person behind the client, and knows when to return.

A call never holds a run: that it ends, is given up or loses its server changes nothing about the run.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError, NoBackChannelError

from dagwright.client.answering import answer_request
from dagwright.client.feedback import Answer, FeedbackRejected
from dagwright.client.following import RunMoment, follow
from dagwright.client.runs import Runs
from dagwright.core.model.states import NodeStatus, RunStatus
from dagwright.history.reader import TaskState, states_of
from dagwright.history.run_reader import RunClosed, RunNotFound, RunView
from dagwright.interfaces.mcp.asking import Asking, filled_in, is_asked_between
from dagwright.interfaces.mcp.forms import NotJson, Request, answer_in

ASKING_S = 3600.0
"""How long a form stays open: a client may have gone without a word."""
_SILENT = (NodeStatus.PENDING, NodeStatus.READY)
_BEGUN = 0.5
"""What a node counts that has begun, of the one that it counts when it has ended: progress only ever goes up."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A run as a call leaves it.

    Args:
        view: the run now.
        said: what became of answers that the run did not take.
        interim: the forms with which the call ends for now, if there are any.
    """

    view: RunView
    said: str = ""
    interim: types.InputRequiredResult | None = None


async def followed(runs: Runs, workflow_id: str, asking: Asking, *, wait_s: float, by: str) -> Seen:
    """Looks at a run until it has ended, only people can move it whom the client does not ask, or the time is up.

    Args:
        asking: of the call.
        wait_s: seconds; a form that a person is filling in is waited for beyond that.
        by: who answers through this client.

    Raises:
        RunNotFound: there is no such run.
        RPCError: the server has not answered for a minute.
    """
    following = _Following(runs, workflow_id, asking, by=by)
    try:
        return await following.until(time.monotonic() + wait_s)
    finally:
        await following.close()


class _Following:
    def __init__(self, runs: Runs, workflow_id: str, asking: Asking, *, by: str) -> None:
        self._runs = runs
        self._workflow_id = workflow_id
        self._asking = asking
        self._by = by
        self._progress = ProgressOfRun()
        self._moments: AsyncGenerator[RunMoment, None] = follow(runs, workflow_id)
        self._next: asyncio.Task[RunMoment] | None = None
        self._form: asyncio.Task[None] | None = None
        self._open_form = ""
        """Id of the request whose form is open."""

    async def until(self, end: float) -> Seen:
        """Looks until there is a reason to return; `end` is a time of the monotonic clock."""
        last: RunMoment | None = None
        while True:
            moment = await self._update(end if last is not None else None)
            if moment is not None:
                last = moment
                await self._tell(moment)
            assert last is not None
            view = last.view
            said = " ".join(self._asking.said)
            if view.is_closed:
                return Seen(view, said)
            # What was answered just now may still be open in the history that was read.
            requests = [each for each in last.requests if each["request_id"] not in self._asking.taken]
            if (interim := self._interim(requests)) is not None:
                return Seen(view, said, interim)
            self._ask(requests)
            # Nothing moves before a person has answered whom this client does not ask.
            is_stuck = bool(requests) and view.status == RunStatus.WAITING
            if self._form is None and (is_stuck or time.monotonic() >= end):
                return Seen(view, said)

    async def close(self) -> None:
        """Looks no more, and takes an open form back."""
        for task in (self._form, self._next):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task
        await self._moments.aclose()

    async def _update(self, end: float | None) -> RunMoment | None:
        """Returns what is new, waiting for it; `None` if the time is up, or a form was closed, before there is."""
        if self._next is None:
            self._next = asyncio.ensure_future(anext(self._moments))
        waits: list[asyncio.Task[Any]] = [self._next, *([self._form] if self._form is not None else [])]
        left = None if end is None or self._form is not None else max(0.0, end - time.monotonic())
        await asyncio.wait(waits, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if self._form is not None and self._form.done():
            form, self._form = self._form, None
            if not form.cancelled():
                form.result()
        if not self._next.done():
            return None
        found, self._next = self._next, None
        return found.result()

    async def _tell(self, moment: RunMoment) -> None:
        for news in self._progress.news(moment):
            await self._asking.context.session.report_progress(news.done, news.total, news.message)

    def _interim(self, requests: Sequence[Mapping[str, Any]]) -> types.InputRequiredResult | None:
        if not is_asked_between(self._asking.context):
            return None
        return self._asking.interim(self._workflow_id, requests)

    def _ask(self, requests: Sequence[Mapping[str, Any]]) -> None:
        """Opens the next form if none is open, and takes one back whose request is answered otherwise."""
        if self._form is not None:
            if self._open_form not in {request["request_id"] for request in requests}:
                self._form.cancel()
            return
        if not is_asked_between(self._asking.context) and (found := self._asking.next_of(requests)) is not None:
            request, form = found
            self._open_form = str(request["request_id"])
            self._form = asyncio.create_task(self._fill_in(request, form))

    async def _fill_in(self, request: Request, form: types.ElicitRequestFormParams) -> None:
        """Has the client show a form, and answers with what was filled in."""
        self._asking.left.add(str(request["request_id"]))
        context = self._asking.context
        try:
            async with asyncio.timeout(ASKING_S):
                filled = await context.session.elicit_form(
                    form.message, form.requested_schema, related_request_id=context.request_id
                )
        except (TimeoutError, MCPError, NoBackChannelError):
            # The client shows no form, or nobody fills it in: others may answer.
            return
        await _take(filled, self._asking, request, self._runs, workflow_id=self._workflow_id, by=self._by)


async def take_responses(
    responses: Mapping[str, Any], asking: Asking, runs: Runs, *, workflow_id: str, by: str
) -> None:
    """Answer the open requests of a run with the forms that a client sends: id of a request -> its response."""
    asked = {str(request.id): request for request in await runs.people.requests_of(workflow_id)}
    for name, response in responses.items():
        asking.left.add(name)
        request, filled = asked.get(name), filled_in(response)
        if request is not None and filled is not None:
            await _take(filled, asking, request.document, runs, workflow_id=workflow_id, by=by)


async def _take(
    filled: types.ElicitResult, asking: Asking, request: Request, runs: Runs, *, workflow_id: str, by: str
) -> None:
    """Gives a run what was filled into the form of a request, if it was; the call tells what the run does not take."""
    asking.left.add(str(request["request_id"]))
    if filled.action != "accept":
        return
    try:
        answer = Answer(answer_in(request, filled.content or {}), by, through="mcp")
        await answer_request(runs.people, workflow_id, str(request["request_id"]), answer)
    except (FeedbackRejected, RunClosed, RunNotFound, NotJson) as error:
        asking.said.append(f"The answer to {request['request_id']!r} was not taken: {error}.")
    else:
        asking.taken.add(str(request["request_id"]))


@dataclass(frozen=True, slots=True)
class Progress:
    """One notification.

    Args:
        done: nodes and items that have ended, and half of each that has begun.
        total: those that are known; more may come.
        message: which node is in which state now.
    """

    done: float
    total: float
    message: str


@dataclass(slots=True)
class ProgressOfRun:
    """What of a run was told already."""

    told: dict[str, float] = field(default_factory=dict)
    """Id of a node or item -> what it counts."""
    last: float = -1.0

    def news(self, moment: RunMoment) -> Iterator[Progress]:
        """Yields what is new, one notification for each node or item, each with more progress than the one before."""
        states = states_of(moment.view.scheduler)
        total = _total_of(moment.view, states)
        for task in moment.changed:
            state = states.get(task)
            if state is None or state.status in _SILENT:
                continue
            self.told[task] = max(self.told.get(task, 0.0), 1.0 if state.status.is_final else _BEGUN)
            done = sum(self.told.values())
            # Another attempt or reason is no progress, which may not be told twice.
            if done > self.last:
                self.last = done
                yield Progress(done, max(total, done), _words(task, state))


def _total_of(view: RunView, states: dict[str, TaskState]) -> float:
    nodes = sum(1 for _ in view.scheduler.state.shown()) if view.scheduler is not None else 0
    return float(nodes + sum(task.endswith("]") for task in states))


def _words(task: str, state: TaskState) -> str:
    reason = f": {state.reason}" if state.reason and not state.status.is_final else ""
    return f"{task} {state.status.value}{reason}"
