"""What runs ask of people, and the answers: the client side of requests.

An answer goes by the update `submit_feedback`, which says at once whether it counts. If no worker answers it, the
signal `feedback` leaves it in the run's history, where it counts as soon as a worker is there.

FeedbackRejected      the run does not take the answer; the message says why
└── ItemNotNamed   the request is one of several; the message has their names
"""

import asyncio
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from temporalio.client import WorkflowExecution, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError, RPCStatusCode

from dagwright.client.run_lists import owner_in
from dagwright.core.boundary import wire
from dagwright.core.boundary.limits import child_workflow_id, task_of_child
from dagwright.core.errors import DagwrightError
from dagwright.core.model.answers import size_problem
from dagwright.core.model.requests import ClientChannel, MayAnswer, Request
from dagwright.core.scheduler.map_batches import is_batched
from dagwright.core.scheduler.task_creation import call_of_task, task_of_call
from dagwright.features.feedback.answer_reading import without_number
from dagwright.history.executions import parent_run, root_run
from dagwright.history.run_reader import RunClosed, RunNotFound, RunReader, RunView
from dagwright.protocol.command_handler import CommandHandler
from dagwright.protocol.command_messages import may_await
from dagwright.protocol.node_paths import sub_plan_of_path
from dagwright.protocol.notes import Notes
from dagwright.server import Connection

PATIENCE_S = 3.0
"""How long the update of an answer waits for a worker."""
HISTORIES_AT_ONCE = 8
"""Histories that a list of runs or the inbox reads at once: a thousand readers would slow the runs."""
_PAUSE_S = 0.2
"""Between two looks at what a call does with its answer."""
_LISTED = 20

_AWAITING = SearchAttributeKey.for_keyword_list(wire.SEARCH_AWAITING)

_CHUNK = re.compile(r"\[\d+-\d+\]$")
"""What the id of the run of a part of a large map ends with."""


class FeedbackRejected(DagwrightError):
    """The run does not take an answer, or what else somebody asks of it."""


class ItemNotNamed(FeedbackRejected):
    """A path leads through a node with `for_each`, of which one item must be named."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request is: the run that asks, which may be a sub-plan, and the id of the request there."""

    workflow_id: str
    request: str


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """A request that waits for its answer.

    Args:
        document: the request, with the run that a person knows and the path from there.
        place: where the answer goes.
        node: the node that asks, in the run of `place`, for all of whose items its id stands.
        path: the nodes of the sub-plans above it, `archive/`, or nothing.
        title: of the plan that asks; of a sub-plan its own.
    """

    document: Mapping[str, Any]
    place: Place
    node: str
    path: str = ""
    title: str | None = None

    @property
    def id(self) -> str:
        """Its id, with the path to its sub-plan."""
        return str(self.document["request_id"])

    @property
    def assignee(self) -> str | None:
        """Who is asked; `None` is anyone."""
        return self.document.get("assignee")

    @property
    def full_node(self) -> str:
        """Its node with the path to it; the same for all items, also for those of the sub-plans above it."""
        return f"{self.path}{self.node}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person says.

    Args:
        content: as the type of the request wants it.
        by: who says so.
        note: what else is to be kept.
        through: the channel of a model client that relays the answer; `None` for the inbox.
        may_answer: as `Feedback` has it.
    """

    content: Any
    by: str | None = None
    note: str | None = None
    through: ClientChannel | None = None
    may_answer: MayAnswer = "all"

    def to_json(self, request: str) -> dict[str, Any]:
        """Returns the message to a run."""
        declared: dict[str, Any] = {} if self.through is None else {"through": self.through}
        declared |= {} if self.may_answer == "all" else {"may_answer": self.may_answer}
        return {"request_id": request, "answer": self.content, "by": self.by, "note": self.note, **declared}


class People:
    """The requests of the runs of one namespace.

    Args:
        connection: client and what the namespace lacks.
        patience_s: how long an answer waits for a worker before it goes by signal.
    """

    def __init__(self, connection: Connection, *, patience_s: float = PATIENCE_S) -> None:
        self._client = connection.client
        self._has_awaiting = wire.SEARCH_AWAITING not in connection.missing_search_attributes
        self._patience_s = patience_s

    async def inbox(self, *, owner: str | None = None) -> list[OpenRequest]:
        """Returns the open requests of all runs, the oldest first.

        Args:
            owner: whose key started the runs, or who is the assignee; `None` is for the requests of all.
        """
        return _by_age(await self._requests_of_runs("", top=None, owner=owner))

    async def requests_of(self, workflow_id: str) -> list[OpenRequest]:
        """Returns the open requests of a run and of its sub-plans, the oldest first.

        Raises:
            RunNotFound: there is no such run.
        """
        view = await RunReader(self._client, workflow_id).read()
        own = _asked_in(view)
        if not has_sub_plans(view):
            return own
        return _by_age([*own, *await self.requests_below(workflow_id)])

    async def requests_below(self, workflow_id: str) -> list[OpenRequest]:
        """Returns the open requests of the sub-plans of a run, at any depth, the oldest first."""
        # A sub-plan may be looked at for itself; those below it have the root of all.
        described = await self._client.get_workflow_handle(workflow_id).describe()
        root = (described.root_id or workflow_id).replace("\\", "\\\\").replace("'", "\\'")
        return _by_age(await self._requests_of_runs(f" AND RootWorkflowId = '{root}'", top=workflow_id))

    async def answer(self, place: Place, answer: Answer) -> str:
        """Gives a run an answer and returns a sentence that says what became of it.

        Args:
            place: as `place_of` tells it. For a node with `for_each` its id stands for all that its items ask.

        Raises:
            FeedbackRejected: the run does not take it.
            RunNotFound: there is no such run.
            RunClosed: it has ended.
        """
        if (problem := size_problem(answer.content)) is not None:
            # The server takes 2 MiB, and the client library reports more as a defect.
            raise FeedbackRejected(problem)
        handle = self._client.get_workflow_handle(place.workflow_id)
        try:
            message = answer.to_json(place.request)
            told = await told_by_update(
                handle,
                wire.UPDATE_SUBMIT_FEEDBACK,
                message,
                patience_s=self._patience_s,
                rejection=FeedbackRejected,
            )
            return await self._signal(handle, place, answer) if told is None else told
        except RPCError as error:
            if error.status not in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
                raise
            await _make_sure_of(handle)
            if error.status is RPCStatusCode.INVALID_ARGUMENT:
                raise
            raise RunClosed(f"the run {place.workflow_id!r} has ended") from None

    async def _signal(self, handle: WorkflowHandle[Any, Any], place: Place, answer: Answer) -> str:
        """Leaves an answer in the run's history, if it counts by all that is known without a worker."""
        view = await RunReader(self._client, place.workflow_id).read()
        if view.is_closed:
            raise RunClosed(f"the run {place.workflow_id!r} has ended")
        message = answer.to_json(place.request)
        if (reason := refusal_in(view, wire.SIGNAL_FEEDBACK, message)) is not None:
            raise FeedbackRejected(reason)
        await handle.signal(wire.SIGNAL_FEEDBACK, message)
        return left_by_signal("the answer", place.workflow_id, patience_s=self._patience_s)

    async def asked_after(self, place: Place) -> dict[str, Any] | None:
        """Returns what a lookup asks that went on with the answer to a request; `None` if it asks nothing more.

        So it is too where it has not come so far within some seconds, and where no lookup asked for the answer.
        """
        feed = RunReader(self._client, place.workflow_id)
        # The answer counts already; the run may end of it, and its server with it.
        with suppress(RPCError, RunNotFound, TimeoutError):
            async with asyncio.timeout(self._patience_s):
                while (came := came_of(await feed.read(), place.request)) is None:
                    await asyncio.sleep(_PAUSE_S)
                return came.to_json(place.workflow_id) if isinstance(came, Request) else None
        return None

    async def place_of(self, workflow_id: str, request: str) -> Place:
        """Returns where a request is, be it open or not: it may have been, or be still to come.

        Args:
            request: its id; in a sub-plan the path to it, `archive/check`.

        Raises:
            RunNotFound: there is no such run.
            FeedbackRejected: the path leads through a sub-plan that does not run.
            ItemNotNamed: it leads through one of several, and does not say which.
        """
        if "/" not in request:
            return Place(workflow_id, request)
        view = await RunReader(self._client, workflow_id).read()
        if view.scheduler is None:
            return Place(workflow_id, request)
        if (found := sub_plan_of_path(view.scheduler, request)) is None:
            return Place(workflow_id, request)
        task_id, rest = found
        child = self._client.get_workflow_handle(
            child_workflow_id(workflow_id, call_of_task(view.scheduler.state, task_id))
        )
        try:
            await _make_sure_of(child)
        except RunNotFound:
            if view.scheduler.state.node_of(task_id).for_each is not None:
                raise await self._item_not_named(workflow_id, task_id, rest) from None
            raise FeedbackRejected(
                f"the sub-plan {task_id!r} of the run {workflow_id!r} has not started; try again when it has"
            ) from None
        return await self.place_of(child.id, rest)

    async def _item_not_named(self, workflow_id: str, node: str, rest: str) -> ItemNotNamed:
        """Returns what is told of a path through a node of whose items each has a sub-plan."""
        asked = [request.id for request in of_node(await self.requests_of(workflow_id), f"{node}/{rest}")]
        more = f" and {len(asked) - _LISTED:,} more" if len(asked) > _LISTED else ""
        open_ones = f"; {', '.join(asked[:_LISTED])}{more} ask now" if asked else ""
        return ItemNotNamed(
            f"{node!r} has a sub-plan for each of its items: name one, as {node}[key]/{rest}{open_ones}"
        )

    async def _requests_of_runs(
        self, condition: str, *, top: str | None, owner: str | None = None
    ) -> list[OpenRequest]:
        """Returns the open requests of the runs that wait for people and that a condition finds.

        Args:
            top: the run above them that the person named; `None` is the one above all.
            owner: as `inbox` has it.
        """
        waiting = f" AND {wire.SEARCH_AWAITING} IS NOT NULL" if self._has_awaiting else ""
        query = f"{wire.IS_RUN} AND ExecutionStatus = 'Running'{waiting}{condition}"
        runs = [run async for run in self._client.list_workflows(query)]
        turns = asyncio.Semaphore(HISTORIES_AT_ONCE)

        async def requests_of(run: WorkflowExecution) -> list[OpenRequest]:
            async with turns:
                # It may have ended since it was listed.
                with suppress(RunNotFound):
                    if owner is None or await self._owner_of(run) == owner:
                        return await self._told_from(run, top=top)
                    if self._may_wait_for(run, owner):
                        return [each for each in await self._told_from(run, top=top) if each.assignee == owner]
                return []

        return [request for found in await asyncio.gather(*map(requests_of, runs)) for request in found]

    def _may_wait_for(self, run: WorkflowExecution, name: str) -> bool:
        """Return whether a run may have requests of this assignee."""
        names = run.typed_search_attributes.get(_AWAITING)
        return names is None or may_await(names, name)

    async def _owner_of(self, run: WorkflowExecution) -> str | None:
        """Returns whose key started a run, or the one above all of it."""
        while (above := parent_run(run)) is not None:
            run = await _make_sure_of(self._client.get_workflow_handle(above))
        return owner_in(await run.memo())

    async def _told_from(self, run: WorkflowExecution, *, top: str | None) -> list[OpenRequest]:
        """Returns the open requests of a run in the words of the one above it; none if that is not above it."""
        if run.id == top:
            return []
        asked = _asked_in(await RunReader(self._client, run.id).read())
        found = await self._tasks_from(top, run) if asked else None
        if found is None:
            return []
        above, tasks = found
        path = "".join(f"{task}/" for task in tasks)
        return [
            replace(
                request,
                document={**request.document, "request_id": f"{path}{request.id}", "run_id": above},
                path=_nodes_of(tasks),
            )
            for request in asked
        ]

    async def _tasks_from(self, top: str | None, run: WorkflowExecution) -> tuple[str, list[str]] | None:
        """Returns a run above another one, and the tasks that lead from there, the highest first.

        Args:
            top: the run above; `None` is the one above all.

        Returns:
            `None` if `top` is not above the run.
        """
        tasks: list[str] = []
        child, parent, above = run.id, parent_run(run), top or root_run(run)
        while child != above and parent is not None:
            tasks.insert(0, await self._task_of(parent, child))
            child = parent
            described = await self._client.get_workflow_handle(child).describe() if child != above else None
            parent = parent_run(described) if described is not None else None
        return (child, tasks) if top is None or child == top else None

    async def _task_of(self, workflow_id: str, child_id: str) -> str:
        """Returns the task of a run whose sub-plan has that workflow id."""
        call = task_of_child(workflow_id, child_id)
        if call is not None and "#" not in call:
            return call
        view = await RunReader(self._client, workflow_id).read()
        if call is not None:
            # A later try has an id of its own.
            return (task_of_call(view.scheduler.state, call) if view.scheduler else None) or call
        tasks = _sub_plans_in(view)
        return next((task for task in tasks if child_workflow_id(workflow_id, task) == child_id), child_id)


async def told_by_update(
    handle: WorkflowHandle[Any, Any],
    name: str,
    message: Mapping[str, Any],
    *,
    patience_s: float,
    rejection: type[DagwrightError],
) -> str | None:
    """Send an update and return the message of the run; `None` if no worker handled it in time.

    Args:
        rejection: raised if the run rejects the update.
    """
    sending = asyncio.create_task(handle.execute_update(name, message))
    # One that is given up ends with an error of its own, which nobody waits for.
    sending.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    try:
        done, _ = await asyncio.wait([sending], timeout=patience_s)
        if not done:
            return None
        told = sending.result()
    except WorkflowUpdateFailedError as error:
        raise rejection(str(getattr(error.cause, "message", None) or error.cause)) from None
    except RPCError as error:
        # A run takes so many updates at once, and so many in all.
        if error.status is not RPCStatusCode.RESOURCE_EXHAUSTED:
            raise
        return None
    finally:
        sending.cancel()
    message_of = told.get("message") if isinstance(told, dict) else None
    return str(message_of or "was answered")


def left_by_signal(what: str, workflow_id: str, *, patience_s: float) -> str:
    """Returns the sentence for what was left in the history of a run, and how to make it count."""
    return (
        f"no worker answered within {patience_s:g} s, so {what} was left by signal; it counts as soon as a worker "
        f"serves the run, as `dagwright watch {shlex.quote(workflow_id)}` does"
    )


async def _make_sure_of(handle: WorkflowHandle[Any, Any]) -> WorkflowExecution:
    """Returns a run, for there is one.

    Raises:
        RunNotFound: there is none.
    """
    try:
        return await handle.describe()
    except RPCError as error:
        if error.status not in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
            raise
        raise RunNotFound(f"there is no run {handle.id!r:.200}") from None


def _asked_in(view: RunView) -> list[OpenRequest]:
    if view.scheduler is None:
        return []
    scheduler, found = view.scheduler, []
    for document in requests_in(view):
        # The inputs of the run belong to no node.
        node = scheduler.state.node_of(document["node_id"]).id if document["node_id"] else document["request_id"]
        place = Place(view.workflow_id, str(document["request_id"]))
        found.append(OpenRequest(document, place, str(node), title=view.title))
    return found


def _nodes_of(tasks: Sequence[str]) -> str:
    """Returns the nodes of the sub-plans on a path: `archive/` for `archive[north]`, and for `archive[0-499]` of many
    and `archive[7]` in there.
    """
    nodes = [task.partition("[")[0] if task.endswith("]") else task for task in tasks]
    is_map_batch = [
        _CHUNK.search(task) is not None and nodes[at : at + 1] == nodes[at + 1 : at + 2]
        for at, task in enumerate(tasks)
    ]
    return "".join(f"{node}/" for node, chunk in zip(nodes, is_map_batch, strict=True) if not chunk)


def requests_in(view: RunView) -> list[dict[str, Any]]:
    """Returns the open requests of a run itself, in the order in which they were opened."""
    if view.scheduler is None or view.is_closed:
        return []
    return [request.to_json(view.workflow_id) for request in view.scheduler.features.feedback.requests.open.values()]


def came_of(view: RunView, request: str) -> Request | Literal["nothing"] | None:
    """Returns what a lookup asks next that got the answer to a request, and `nothing` if it will not ask.

    Returns:
        `None` while nobody knows, since the lookup goes on. Other tools may go on for hours with what they were told.
    """
    scheduler, task_id = view.scheduler, without_number(request)
    hand = scheduler.state.overrides.get(task_id) if scheduler is not None else None
    if scheduler is None or view.is_closed or hand is None or scheduler.state.node_of(task_id).kind != "lookup":
        return "nothing"
    if not hand.answers or hand.answers[-1]["request_id"] != request:
        # Somebody has answered the next one too.
        return "nothing"
    if (again := scheduler.features.feedback.requests.of_task(task_id)) is not None:
        return again
    record = scheduler.record_of(task_id)
    return "nothing" if record is None or record.status.is_final else None


def refusal_in(view: RunView, name: str, message: Mapping[str, Any]) -> str | None:
    """Returns why a run will not take a signal, by all that its history tells: others may have left theirs."""
    handler = CommandHandler(Notes())
    # Nobody else has this scheduler.
    for at, left, read in view.pending_commands():
        handler.handle(left, read, through="signal", scheduler=view.scheduler, at=at)
    return handler.refusal_of(name, lambda: message, scheduler=view.scheduler, at=time.time())


def has_sub_plans(view: RunView) -> bool:
    """Tells whether a sub-plan of a run goes on, so that somebody may be asked there."""
    if view.scheduler is None or view.is_closed:
        return False
    shown = view.scheduler.state.shown()
    return any((node.kind == "plan" or is_batched(record)) and not record.status.is_final for node, record in shown)


def of_node(requests: Sequence[OpenRequest], node: str) -> list[OpenRequest]:
    """Returns the requests of a node: `sum`, or `archive/sum` in every run of the sub-plan `archive`."""
    return [request for request in requests if request.full_node == node]


def by_run(requests: Sequence[OpenRequest]) -> list[Place]:
    """Returns where to answer all requests of one node: the items of each run together, in one message."""
    runs: dict[str, list[OpenRequest]] = {}
    for request in requests:
        runs.setdefault(request.place.workflow_id, []).append(request)
    return [
        asked[0].place if len(asked) == 1 else Place(workflow_id, asked[0].node) for workflow_id, asked in runs.items()
    ]


def _by_age(requests: Sequence[OpenRequest]) -> list[OpenRequest]:
    return sorted(requests, key=lambda request: str(request.document["opened_at"]))


def _sub_plans_in(view: RunView) -> list[str]:
    found = []
    for node, record in view.scheduler.state.shown() if view.scheduler else ():
        if node.kind == "plan" or is_batched(record):
            found += [f"{node.id}[{item.key}]" for item in record.items] or [node.id]
    return found
