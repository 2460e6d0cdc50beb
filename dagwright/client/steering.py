"""Send commands to runs: pause, resume, cancel, and changes of nodes, limits and policy.

A command is sent as an update, which reports at once whether the run accepts it. If no worker handles the update,
the signal of the same name adds the command to the history of the run, and the run applies it as soon as a worker is
available.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from temporalio.service import RPCError, RPCStatusCode

from dagwright.client.errors import CommandRejected, FeedbackRejected, OptionInvalid, ServerRejected
from dagwright.client.feedback.feedback_client import UPDATE_TIMEOUT_S, FeedbackClient
from dagwright.client.feedback.open_requests import RequestRef
from dagwright.client.run_messages import MessageKind, send_message
from dagwright.core.boundary import wire
from dagwright.core.errors import PlanInvalid, Problem
from dagwright.core.expressions.value_refs import encoded_size
from dagwright.core.model.answers import size_problem
from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.tools import ToolDeclaration
from dagwright.features.commands.steering import MAX_COMMAND_BYTES
from dagwright.features.plan_edits.edits import extension_of
from dagwright.features.plan_edits.sent_tools import find_tool_names, tools_to_json
from dagwright.history.executions import RunClosed, RunNotFound
from dagwright.history.run_reader import RunReader
from dagwright.history.run_view import RunView
from dagwright.protocol.command_messages import RUN_MESSAGES, actor_from_json
from dagwright.protocol.messages import MessageInvalid
from dagwright.server import Connection

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler

_NO_RUN_STATUSES = (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT)
"""gRPC statuses for an ID that no run has or could have."""


@dataclass(frozen=True, slots=True)
class CommandAuthor:
    """Author and reason of a command. Both are recorded in the notes of the run."""

    by: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """A command to a run.

    Args:
        name: name of the update and of the signal.
        arguments: payload without author and reason; `node_id` may be a path into a sub-plan, such as
            `archive/check`.
        has_reason: whether the command accepts a reason.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    has_reason: bool = True

    @classmethod
    def cancel_node(cls, node_id: str, *, branch: bool) -> Self:
        """Return the command that cancels a node; with `branch`, also its descendants."""
        return cls(wire.CANCEL_NODE, {"node_id": node_id, "branch": branch})

    @classmethod
    def retry_node(cls, node_id: str, *, arguments: Any) -> Self:
        """Return the command that retries a node; `arguments` replace those in the plan, unless they are `None`."""
        return cls(wire.RETRY_NODE, {"node_id": node_id, "arguments": arguments}, has_reason=False)

    @classmethod
    def set_result(cls, node_id: str, *, result: Any) -> Self:
        """Return the command that sets the result of a node."""
        return cls(wire.SET_RESULT, {"node_id": node_id, "result": result})

    @classmethod
    def set_limits(cls, limits: Mapping[str, Any]) -> Self:
        """Return the command that changes `max_parallel`, `deadline` or `budget` of a run; `None` removes a limit."""
        return cls(wire.SET_LIMITS, limits)

    @classmethod
    def set_policy(cls, policy: Mapping[str, Any]) -> Self:
        """Return the command that changes which calls of a run require approval."""
        return cls(wire.SET_POLICY, {"policy": policy}, has_reason=False)

    def to_json(self, author: CommandAuthor) -> dict[str, Any]:
        """Return the message to the run."""
        reason = {"reason": author.reason} if self.has_reason else {}
        return {**self.arguments, "by": author.by, **reason}


PAUSE = Command(wire.PAUSE)
RESUME = Command(wire.RESUME)
_CANCEL = Command(wire.CANCEL)
NO_AUTHOR = CommandAuthor()


class PlanNotLoaded(RunNotFound):
    """The run has not loaded its plan yet."""


async def read_scheduler(reader: RunReader) -> "RunScheduler":
    """Return the scheduler of a run.

    Raises:
        PlanNotLoaded: the plan is not loaded yet.
        RunNotFound: there is no such run.
    """
    view = await reader.read()
    if view.scheduler is None:
        raise PlanNotLoaded(f"the run {view.run_id!r} has no plan yet")
    return view.scheduler


class Steering:
    """Sender of commands to the runs of one namespace.

    Args:
        connection: connection to the namespace.
        timeout_s: seconds to wait for a worker before a command is sent as a signal.
    """

    def __init__(self, connection: Connection, *, timeout_s: float = UPDATE_TIMEOUT_S) -> None:
        self._client = connection.client
        self._feedback = FeedbackClient(connection, partial(RunReader, connection.client))
        self._timeout_s = timeout_s

    async def cancel(self, run_id: str, author: CommandAuthor = NO_AUTHOR) -> str:
        """Request the cancellation of a run; return the run's reply. Raises the same errors as `send`."""
        try:
            return await self.send(run_id, _CANCEL, author)
        except (RPCError, ServerRejected):
            # A run accepts at most 10,000 signals; Temporal's own cancel request has no such limit
            # (docs/contributing/guards.md S13).
            await self._client.get_workflow_handle(run_id).cancel()
            return "the run accepts no more messages; it was cancelled through Temporal"

    async def send(self, run_id: str, command: Command, author: CommandAuthor = NO_AUTHOR) -> str:
        """Send a command to a run, or to the sub-plan with the command's node; return the run's reply.

        Raises:
            OptionInvalid: the limits or the policy are invalid.
            CommandRejected: the run does not accept the command.
            RunNotFound: there is no such run.
            RunClosed: the run has ended.
        """
        return await self._send(run_id, command.name, command.to_json(author))

    async def _send(self, run_id: str, name: str, message: Mapping[str, Any]) -> str:
        _reject_invalid_message(name, message)
        target_ref = RequestRef(run_id, "")
        if "node_id" in message:
            # A path to a node has the form of a path to a request.
            try:
                target_ref = await self._feedback.request_ref_of(run_id, str(message["node_id"]))
            except FeedbackRejected as error:
                raise CommandRejected(str(error)) from None
            message = {**message, "node_id": target_ref.request_id}
        kind, target_id = MessageKind(name, name, "the command", CommandRejected), target_ref.run_id
        handle, reader = self._client.get_workflow_handle(target_id), RunReader(self._client, target_id)
        try:
            return await send_message(handle, kind, message, reader=reader, timeout_s=self._timeout_s)
        except RPCError as error:
            if error.status not in _NO_RUN_STATUSES:
                raise
            raise await self._closed_or_missing_error(target_id, root=run_id, error=error) from None

    async def add_nodes(
        self, run_id: str, nodes: Sequence[Any], *, tools: Mapping[str, ToolDeclaration], by: str | None
    ) -> str:
        """Add nodes to the plan of a run; return the run's reply.

        Args:
            nodes: as in a plan.
            tools: tools that the nodes may call.

        Raises:
            PlanInvalid: the nodes are invalid.
            CommandRejected, RunNotFound, RunClosed: as in `send`.
        """
        view = await self._open_view(run_id)
        # The check of many nodes must not block the event loop.
        nodes_message = await asyncio.to_thread(_nodes_message, view, nodes, tools=tools)
        return await self._send(run_id, wire.ADD_NODES, {**nodes_message, "by": by})

    async def nodes_of_answer(
        self, request_ref: RequestRef, nodes: Sequence[Any], *, tools: Mapping[str, ToolDeclaration]
    ) -> dict[str, Any]:
        """Return nodes, and the declarations of their tools, as a part of the answer to a request.

        Args:
            nodes: as in a plan.
            tools: tools that the nodes may call.

        Raises:
            PlanInvalid: the nodes are invalid.
            FeedbackRejected: the request has been answered.
            RunNotFound, RunClosed: as in `send`.
        """
        view = await self._open_view(request_ref.run_id)
        if (
            view.scheduler is not None
            and (closing := view.scheduler.features.feedback.requests.closed.get(request_ref.request_id)) is not None
        ):
            raise FeedbackRejected(closing.reason(request_ref.request_id))
        return await asyncio.to_thread(_nodes_message, view, nodes, tools=tools)

    async def _open_view(self, run_id: str) -> RunView:
        view = await RunReader(self._client, run_id).read()
        if view.is_closed:
            raise await self._closed_or_missing_error(run_id)
        return view

    async def _closed_or_missing_error(
        self, run_id: str, *, root: str | None = None, error: RPCError | None = None
    ) -> RunClosed | RunNotFound | CommandRejected:
        try:
            await self._client.get_workflow_handle(run_id).describe()
        except RPCError as describe_error:
            if describe_error.status in _NO_RUN_STATUSES:
                return RunNotFound(f"there is no run {run_id!r:.200}")
            raise
        if error is not None and error.status is RPCStatusCode.INVALID_ARGUMENT:
            return ServerRejected(f"the server rejected the command: {error.message}")
        if root is not None and root != run_id:
            return RunClosed(f"the sub-plan {run_id!r} has ended; retry its node in the run {root!r}")
        return RunClosed(f"the run {run_id!r} has ended")


def _reject_invalid_message(name: str, message: Mapping[str, Any]) -> None:
    """Reject a message that no run accepts.

    The server would accept a message of up to 2 MiB, and a cancellation would truncate a long reason without an error.

    Raises:
        CommandRejected: the message is too large, or the reason or the author is too long.
        OptionInvalid: the limits or the policy are invalid.
    """
    if (problem := size_problem(dict(message), MAX_COMMAND_BYTES, value_name="the message")) is not None:
        raise CommandRejected(problem)
    try:
        actor_from_json(message, source="update")
    except MessageInvalid as error:
        raise CommandRejected(str(error)) from None
    if name in (wire.SET_LIMITS, wire.SET_POLICY):
        try:
            RUN_MESSAGES[name](message, source="update")
        except MessageInvalid as error:
            raise OptionInvalid(str(error)) from None


def _nodes_message(view: RunView, nodes: Sequence[Any], *, tools: Mapping[str, ToolDeclaration]) -> dict[str, Any]:
    """Check nodes; return the message that adds them, with the declarations of tools that the run might lack.

    Raises:
        PlanInvalid: the nodes are invalid, or too large for a message to a run.
    """
    if (size := encoded_size(list(nodes))) > MAX_COMMAND_BYTES:
        message = f"the nodes have {size:,} bytes; at most {MAX_COMMAND_BYTES:,} can be added at once"
        raise PlanInvalid([Problem("too_large", message, "/nodes", hint="add them in parts")])
    if view.scheduler is None:
        # The run checks the nodes after it has loaded its plan.
        tool_names = find_tool_names(nodes)
    else:
        tool_names = _tools_of(extension_of(nodes, view.scheduler.state, tools=tools).nodes)
    return {"nodes": list(nodes), "tools": tools_to_json(dict.fromkeys(tool_names), tools)}


def _tools_of(nodes: Sequence[CompiledNode]) -> Sequence[str]:
    """Return the names of the tools of nodes, including the nodes of their sub-plans."""
    tool_names: list[str] = []
    for node in nodes:
        tool_names.append(node.tool)
        if node.sub_plan is not None:
            tool_names += _tools_of(node.sub_plan.nodes)
    return tool_names
