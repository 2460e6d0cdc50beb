"""The public handle of a run."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, TypedDict, Unpack

from dagwright.client.errors import OptionInvalid
from dagwright.client.event_stream import EventStream
from dagwright.client.events import AnyRunEvent, EventCursor
from dagwright.client.feedback.feedback_request import FeedbackAnswer, FeedbackRequest, RunFeedback, to_feedback_request
from dagwright.client.fork_runs import ForkChanges, ForkOptions, draft_fork, start_fork
from dagwright.client.forks import ForkDraft, Forks
from dagwright.client.live_progress import show_progress
from dagwright.client.node_view import read_node_view
from dagwright.client.options import PolicyOption, read_policy, validate_tags
from dagwright.client.plan_starts import PlanSource, read_plan
from dagwright.client.results import MAX_RESULT_BYTES, NodeResult, RunResult, node_of, read_nodes, read_result
from dagwright.client.run_drawing import read_drawing
from dagwright.client.run_follower import wait_for_end
from dagwright.client.run_reports import (
    Explanation,
    ForkPreview,
    Lineage,
    explanation_of,
    lineage_of,
    preview_of,
)
from dagwright.client.run_tools import RunTools, ToolsetSource
from dagwright.client.server_errors import reports_server_errors
from dagwright.client.services import Services
from dagwright.client.steering import PAUSE, RESUME, Command, CommandAuthor, read_scheduler
from dagwright.client.wait_notices import WaitNotices
from dagwright.core.boundary.arguments import checks_methods, json_argument
from dagwright.core.model.states import RunStatus
from dagwright.core.model.times import Duration, format_duration, utc_datetime
from dagwright.features.commands.steering import limits_to_json, policy_to_json
from dagwright.history.executions import RunClosed
from dagwright.history.run_view import RunView
from dagwright.plans.drawing import Drawing
from dagwright.plans.posted_plans import PostedPlan


class Limits(TypedDict, total=False):
    """New limits of a run.

    Args:
        max_parallel: maximum number of nodes that run at the same time.
        deadline: how long the whole run may take, counted from its start; `None` removes the deadline.
        budget: changed limits of the budget. For example, `{"tokens": 90000, "money": None}` sets the limit for tokens
            and removes the limit for money.
    """

    max_parallel: int
    deadline: Duration | None
    budget: Mapping[str, Any]


@checks_methods
@reports_server_errors
class Run:
    """A run of a plan: watch it, answer its requests, steer it and read its result.

    The handle sends no request before a method is called. `Client.start` and `Client.ask` return a
    handle; `Client.get_run` returns a handle in any process.

    Every method raises `RunNotFound` if there is no such run, `ServerUnreachable` if the server does not respond, and
    `ServerError` if the server rejects a request.

    Args:
        find_services: returns the services of the connection; raises if the client is closed, or was connected in
            another event loop.
        run_id: ID of the run.
        tools: tools of the client. Forks, and nodes that are added to the run, can call them.
    """

    def __init__(
        self, find_services: Callable[[], Services], run_id: str, *, tools: ToolsetSource | None = None
    ) -> None:
        self._find_services = find_services
        self._id = run_id
        self._tools = tools

    @property
    def _services(self) -> Services:
        return self._find_services()

    @property
    def _address(self) -> str:
        return self._services.connection.server.address

    @property
    def id(self) -> str:
        """ID of the run."""
        return self._id

    def __repr__(self) -> str:
        return f"Run({self._id!r})"

    # Watching.

    async def status(self) -> RunStatus:
        """Return the status of the run now."""
        return RunStatus((await self._view()).status)

    async def result(self, *, raise_on_failure: bool = True, max_bytes: int | None = MAX_RESULT_BYTES) -> RunResult:
        """Wait until the run has ended and return its result.

        If the run waits for a worker, or for a tool that is missing or paused, the logger `dagwright.client` logs a
        warning with the name of the queue or tool.

        Args:
            raise_on_failure: raise an error if the run did not complete.
            max_bytes: maximum size of all node results together, as JSON; `None` for no limit. The output is always
                complete.

        Raises:
            RunFailed: the run failed; `failures` has the reasons, `result` has the completed nodes.
            RunCancelled: the run was cancelled.
            OptionInvalid: `max_bytes` is negative.
        """
        view = await wait_for_end(self._services.runs, self._id, on_update=WaitNotices().warn)
        result = await read_result(view, self._services.store, max_bytes=max_bytes)
        return result.raise_on_failure() if raise_on_failure else result

    async def watch(self, *, raise_on_failure: bool = True, max_bytes: int | None = MAX_RESULT_BYTES) -> RunResult:
        """Show the progress of the run until it has ended, and return its result.

        In a notebook, the output of the cell is a drawing of the run; elsewhere, a line is printed for each change.

        Args:
            raise_on_failure: as in `result`.
            max_bytes: as in `result`.

        Raises:
            RunFailed, RunCancelled, OptionInvalid: as in `result`.
        """
        await show_progress(self)
        return await self.result(raise_on_failure=raise_on_failure, max_bytes=max_bytes)

    async def snapshot(self, *, max_bytes: int | None = MAX_RESULT_BYTES) -> RunResult:
        """Return the results of the run so far, in the form of `result`, without waiting for its end.

        Raises:
            OptionInvalid: `max_bytes` is negative.
        """
        return await read_result(await self._view(), self._services.store, max_bytes=max_bytes)

    async def document(self) -> dict[str, Any]:
        """Return the current state of the run as the JSON document of `dagwright result --json`."""
        return await self._services.runs.document(await self._view())

    async def node(self, node_id: str) -> NodeResult:
        """Return the current state of one node or item, with its whole result.

        Args:
            node_id: ID of the node, or the path to a node of a sub-plan, such as `archive/check`.

        Raises:
            NodeNotFound: the run has no such node or item yet.
        """
        document = (await read_node_view(self._services.runs, self._id, node_id, full=True)).document
        return node_of(str(document["node_id"]), document)

    async def nodes(self) -> AsyncGenerator[NodeResult, None]:
        """Yield the current nodes and items one by one, with their complete results. Use it for runs of any size."""
        async with aclosing(read_nodes(await self._view(), self._services.store)) as nodes:
            async for node in nodes:
                yield node

    async def events(self, *, after: str | None = None, text: bool = False) -> AsyncGenerator[AnyRunEvent, None]:
        """Yield the events of the run until it has ended.

        Every event has a `cursor`. A client can continue after a cursor without missing an event, in any process and
        even after the end of the run. Events from the history of the run are not repeated. Other events, such as a
        node waiting for a worker, may be repeated.

        Args:
            after: cursor of the last event that was received; `None` is the start of the run.
            text: also yield the text that models write, as events of the type `text.delta`.

        Raises:
            CursorInvalid: `after` is not a cursor.
        """
        cursor = EventCursor() if after is None else EventCursor.parse(after)
        stream = EventStream(self._services.runs, self._id, run=self, after=cursor, has_text=text)
        async with aclosing(stream.events()) as events:
            async for event in events:
                yield event

    async def ui_url(self) -> str | None:
        """Return the address of the page of the run in the Temporal UI; `None` if no UI is known."""
        view = await self._view()
        return self._services.connection.server.run_url(self._id, execution_id=view.execution_id)

    # Feedback.

    async def feedback_requests(self) -> list[FeedbackRequest]:
        """Return the open requests for feedback of the run and its sub-plans, the oldest first."""
        return [
            to_feedback_request(request, self) for request in await self._services.runs.feedback.requests_of(self._id)
        ]

    async def feedback(self, request_id: str | None = None, /, **answer: Unpack[FeedbackAnswer]) -> str:
        """Answer a request for feedback; return the run's reply.

        Args:
            request_id: ID of the request or of its node; `None` if the run has a single open request. An answer to a
                request that is not open yet is stored until the request opens.
            answer: fields of the answer, such as `approved=True`, `selected="retry"`, `text="..."` or `data={...}`; see
                `FeedbackAnswer`.

        Raises:
            FeedbackRejected: the run rejects the answer and keeps the request open, or the run has ended.
            PlanInvalid: the `nodes` of the answer are invalid.
        """
        services, nodes = self._services, answer.get("nodes", ())
        tools = await RunTools(services, self._id, self._tools).publish_and_declare(nodes) if nodes else {}
        return await RunFeedback(services.runs.feedback, services.steering, self._id, tools).send(request_id, answer)

    # Steering.

    async def cancel(self, *, reason: str | None = None, by: str | None = None) -> str:
        """Cancel the run and return at once. Running nodes may clean up before they end.

        Raises:
            RunClosed: the run has ended.
        """
        return await self._services.steering.cancel(self._id, CommandAuthor(by, reason))

    async def pause(self, *, reason: str | None = None, by: str | None = None) -> str:
        """Start no more nodes until `resume`; running nodes finish.

        Raises:
            CommandRejected: the run does not accept the command, such as when it is paused already.
            RunClosed: the run has ended.
        """
        return await self._send(PAUSE, CommandAuthor(by, reason))

    async def resume(self, *, reason: str | None = None, by: str | None = None) -> str:
        """Continue a paused run. Raises the same errors as `pause`."""
        return await self._send(RESUME, CommandAuthor(by, reason))

    async def cancel_node(
        self, node_id: str, *, branch: bool = False, reason: str | None = None, by: str | None = None
    ) -> str:
        """Cancel a node. Its dependents are blocked. Raises the same errors as `pause`.

        Args:
            branch: also cancel the descendants of the node.
        """
        return await self._send(Command.cancel_node(node_id, branch=branch), CommandAuthor(by, reason))

    async def retry(self, node_id: str, *, arguments: Mapping[str, Any] | None = None, by: str | None = None) -> str:
        """Retry a node that has ended, and run its dependents. Raises the same errors as `pause`.

        Args:
            arguments: new arguments, instead of those in the plan.
        """
        new_arguments = json_argument(arguments, "arguments", function="retry")
        return await self._send(Command.retry_node(node_id, arguments=new_arguments), CommandAuthor(by))

    async def set_result(self, node_id: str, result: Any, *, reason: str | None = None, by: str | None = None) -> str:
        """Set the result of a node that has not completed. Raises the same errors as `pause`."""
        value = json_argument(result, "result", function="set_result")
        return await self._send(Command.set_result(node_id, result=value), CommandAuthor(by, reason))

    async def add_nodes(self, nodes: Sequence[Mapping[str, Any]], *, by: str | None = None) -> str:
        """Add nodes to the plan of the run.

        Args:
            nodes: as in a plan; they may depend on existing nodes.

        Raises:
            PlanInvalid: the nodes are invalid.
            CommandRejected, RunClosed: as in `pause`.
        """
        tools = await RunTools(self._services, self._id, self._tools).publish_and_declare(nodes)
        node_list = json_argument([*nodes], "nodes", function="add_nodes")
        return await self._services.steering.add_nodes(self._id, node_list, tools=tools, by=by)

    async def set_limits(self, *, reason: str | None = None, by: str | None = None, **limits: Unpack[Limits]) -> str:
        """Change limits of the run.

        Args:
            limits: `max_parallel`, `deadline` and `budget`; see `Limits`.

        Raises:
            TypeError: no limit is given.
            OptionInvalid: a limit is invalid.
            CommandRejected, RunClosed: as in `pause`.
        """
        if not limits:
            raise TypeError("set_limits() needs at least one of max_parallel, deadline and budget")
        new_limits: dict[str, Any] = {**limits}
        if (deadline := limits.get("deadline")) is not None:
            try:
                new_limits["deadline"] = format_duration(deadline)
            except ValueError as error:
                raise OptionInvalid(f"deadline: {error}") from None
        return await self._send(Command.set_limits(new_limits), CommandAuthor(by, reason))

    async def set_policy(self, policy: PolicyOption, *, by: str | None = None) -> str:
        """Change which calls require approval.

        Raises:
            OptionInvalid: the policy is invalid.
            CommandRejected, RunClosed: as in `pause`.
        """
        return await self._send(Command.set_policy(read_policy(policy).to_json()), CommandAuthor(by))

    async def limits(self) -> Mapping[str, Any]:
        """Return `max_parallel`, `deadline` (a time, or `None`), and `budget` if the run has a budget."""
        scheduler = await read_scheduler(self._services.runs.reader(self._id))
        deadline_at = scheduler.features.deadline.deadline.at
        return {**limits_to_json(scheduler), "deadline": None if deadline_at is None else utc_datetime(deadline_at)}

    async def policy(self) -> Mapping[str, Any]:
        """Return which calls require approval, in the form that `set_policy` accepts."""
        policy: Mapping[str, Any] = policy_to_json(await read_scheduler(self._services.runs.reader(self._id)))["policy"]
        return policy

    # Forks and reports.

    async def fork(
        self,
        plan: PlanSource | None = None,
        *,
        inputs: Mapping[str, Any] | None = None,
        rerun: Sequence[str] = (),
        run_id: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> "Run":
        """Start a new run that reuses all results that the changes do not affect.

        If the same fork exists, return its run.

        Args:
            plan: plan of the fork; by default the plan of this run.
            inputs: changed inputs; all other inputs are the inputs of this run.
            rerun: nodes and items to run again.
            run_id: ID of the fork; by default it is derived from this run and the change.
            tags: tags of the fork; by default those of this run.

        Raises:
            PlanInvalid: the plan or the inputs are invalid.
            RunIdInUse: the ID belongs to another run, or the same fork was started with other tags than `tags`.
            OptionInvalid: a tag is invalid.
            ForkRejected: the fork would repeat an effect that must not happen twice, or a result that it would reuse is
                no longer in the payload store.
        """
        services, tools = self._services, RunTools(self._services, self._id, self._tools)
        draft = await self._draft(_fork_changes(plan, inputs, rerun), tools)
        forks = Forks(services.runs.reader, services.store)
        fork_tags = None if tags is None else validate_tags(tags)
        options = ForkOptions(tools=await tools.tool_references(), run_id=run_id, tags=fork_tags)
        started_run = await start_fork(draft, runs=services.runs, forks=forks, options=options)
        return Run(self._find_services, started_run.run_id, tools=self._tools)

    async def preview_fork(
        self,
        plan: PlanSource | None = None,
        *,
        inputs: Mapping[str, Any] | None = None,
        rerun: Sequence[str] = (),
    ) -> ForkPreview:
        """Return what `fork` with these arguments would do. Raises the same errors as `fork`."""
        tools = RunTools(self._services, self._id, self._tools)
        return preview_of(await self._draft(_fork_changes(plan, inputs, rerun), tools))

    async def explain(self, node_id: str | None = None) -> Explanation:
        """Explain why the run or a node is waiting or has failed, or list the sources of the result.

        Raises:
            NodeNotFound: as in `node`.
        """
        return explanation_of(await self._services.runs.explain(self._id, node_id))

    async def lineage(self, node_id: str) -> Lineage:
        """Return the sources of the result of a node.

        Raises:
            NodeNotFound: as in `node`.
        """
        return lineage_of((await read_node_view(self._services.runs, self._id, node_id)).document)

    async def draw(self) -> Drawing:
        """Return the current graph of the run, with states, as a drawing that notebooks show."""
        return await read_drawing(self._services.runs, self._id)

    async def _view(self) -> RunView:
        return await self._services.runs.reader(self._id).read()

    async def _send(self, command: Command, author: CommandAuthor) -> str:
        try:
            return await self._services.steering.send(self._id, command, author)
        except RunClosed as error:
            raise RunClosed(f"{error}; `run.fork()` starts a new run that reuses its results") from None

    async def _draft(self, changes: ForkChanges, tools: RunTools) -> ForkDraft:
        runs = self._services.runs
        forks = Forks(runs.reader, self._services.store)
        nodes = [node for posted_plan in changes.plans for node in _nodes_of(posted_plan)]
        declarations = await tools.publish_and_declare(nodes)
        return await draft_fork(self._id, changes, runs=runs, forks=forks, tools=declarations)


def _fork_changes(plan: PlanSource | None, inputs: Mapping[str, Any] | None, rerun: Sequence[str]) -> ForkChanges:
    changes = ForkChanges(inputs=json_argument(inputs or {}, "inputs", function="fork"), rerun=rerun)
    if plan is None:
        return changes
    written_plan = read_plan(plan)
    return replace(changes, plans=(PostedPlan(written_plan.document, written_plan.dialect),))


def _nodes_of(posted_plan: PostedPlan) -> Sequence[Any]:
    nodes = posted_plan.plan.get("nodes") if isinstance(posted_plan.plan, Mapping) else None
    return nodes if isinstance(nodes, list) else []
