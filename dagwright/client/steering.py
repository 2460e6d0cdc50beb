"""Sends what people do to a running plan: the acts of `dagwright.features.commands.steering`, from outside.

An act on nodes goes by update, which says at once whether it counts; if no worker answers it, the signal of the same
name leaves it in the history of the run, where it counts as soon as a worker is there.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from dagwright.client.feedback import (
    PATIENCE_S,
    AnswerRefused,
    People,
    Place,
    left_by_signal,
    refusal_in,
    told_by_update,
)
from dagwright.core.boundary import wire
from dagwright.core.model.answers import size_problem
from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.errors import PlanInvalid, Problem
from dagwright.core.model.tools import AGENT_PREFIX, ToolDeclaration
from dagwright.features.commands.plan_edits import extension_of
from dagwright.features.commands.sent_tools import tools_to_json
from dagwright.history.run_reader import RunClosed, RunFeed, RunNotFound, RunView
from dagwright.protocol.command_messages import MESSAGE_BYTES, by_from_json
from dagwright.protocol.documents import encoded_size
from dagwright.protocol.messages import MessageInvalid
from dagwright.server import Connection

_NO_RUN = (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT)
"""What the server says of an id that no run has, or could have."""


class ServerRefused(AnswerRefused):
    """The server does not take a message for a run, whatever the run would say."""


class Steering:
    """Steers the runs of one namespace.

    Args:
        connection: client and what the namespace lacks.
        patience_s: how long an act waits for a worker before it goes by signal.
    """

    def __init__(self, connection: Connection, *, patience_s: float = PATIENCE_S) -> None:
        self._client = connection.client
        self._people = People(connection)
        self._patience_s = patience_s

    async def cancel(self, workflow_id: str, *, message: Mapping[str, Any]) -> str:
        """Asks a run to stop, and returns a sentence that says so; raises as `steer`."""
        try:
            return await self.steer(workflow_id, wire.CANCEL, message=message)
        except (RPCError, ServerRefused):
            # A run takes 10,000 signals; Temporal's own cancel request has no such limit (docs/guards.md S13).
            await self._client.get_workflow_handle(workflow_id).cancel()
            return "the run takes no more messages; it was cancelled through Temporal"

    async def steer(self, workflow_id: str, name: str, *, message: Mapping[str, Any]) -> str:
        """Does something to a run, or to the nodes of it or of a sub-plan of it; returns a sentence that says what.

        Args:
            name: of the update, and of the signal.
            message: its payload; a `node` may be the path to one of a sub-plan, `archive/check`.

        Raises:
            AnswerRefused: the run does not take it.
            RunNotFound: there is no such run.
            RunClosed: it has ended.
        """
        _refuse_invalid(message)
        place = Place(workflow_id, "")
        if "node" in message:
            place = await self._people.place_of(workflow_id, str(message["node"]))
            message = {**message, "node": place.request}
        handle = self._client.get_workflow_handle(place.workflow_id)
        try:
            told = await told_by_update(handle, name, message, patience_s=self._patience_s)
            return await self._leave(handle, name, message) if told is None else told
        except RPCError as error:
            if error.status not in _NO_RUN:
                raise
            raise await self._why_not(place.workflow_id, root=workflow_id, error=error) from None

    async def append(
        self, workflow_id: str, nodes: Sequence[Any], *, tools: Mapping[str, ToolDeclaration], by: str | None
    ) -> str:
        """Adds nodes to the plan of a run and returns a sentence that says so.

        Args:
            nodes: as in a plan.
            tools: those that they may name.

        Raises:
            PlanInvalid: something is wrong with them.
            AnswerRefused, RunNotFound, RunClosed: as `steer`.
        """
        view = await self._open_view(workflow_id)
        # Nobody else waits for as long as many nodes are checked.
        checked = await asyncio.to_thread(_checked, view, nodes, tools=tools)
        return await self.steer(workflow_id, wire.APPEND_NODES, message={**checked, "by": by})

    async def nodes_of_answer(
        self, place: Place, nodes: Sequence[Any], *, tools: Mapping[str, ToolDeclaration]
    ) -> dict[str, Any]:
        """Returns nodes as a part of the answer to a request: with the declarations of the tools that they name.

        Args:
            nodes: as in a plan.
            tools: those that they may name.

        Raises:
            PlanInvalid: something is wrong with them.
            AnswerRefused: the request has been answered.
            RunNotFound, RunClosed: as `steer`.
        """
        view = await self._open_view(place.workflow_id)
        if (
            view.scheduler is not None
            and (closing := view.scheduler.features.feedback.requests.closed.get(place.request)) is not None
        ):
            raise AnswerRefused(closing.told(place.request))
        return await asyncio.to_thread(_checked, view, nodes, tools=tools)

    async def _open_view(self, workflow_id: str) -> RunView:
        view = await RunFeed(self._client, workflow_id).read()
        if view.is_closed:
            raise await self._why_not(workflow_id)
        return view

    async def _leave(self, handle: WorkflowHandle[Any, Any], name: str, message: Mapping[str, Any]) -> str:
        """Leaves an act in the history of a run, if it counts by all that is known without a worker."""
        view = await self._open_view(handle.id)
        if (refusal := refusal_in(view, name, message)) is not None:
            raise AnswerRefused(refusal)
        await handle.signal(name, message)
        return left_by_signal("it", handle.id, patience_s=self._patience_s)

    async def _why_not(
        self, workflow_id: str, *, root: str | None = None, error: RPCError | None = None
    ) -> RunClosed | RunNotFound | AnswerRefused:
        try:
            await self._client.get_workflow_handle(workflow_id).describe()
        except RPCError as unknown:
            if unknown.status in _NO_RUN:
                return RunNotFound(f"there is no run {workflow_id!r:.200}")
            raise
        if error is not None and error.status is RPCStatusCode.INVALID_ARGUMENT:
            return ServerRefused(f"the server does not take it: {error.message}")
        if root is not None and root != workflow_id:
            return RunClosed(f"the sub-plan {workflow_id!r} has ended; try its node again in the run {root!r}")
        return RunClosed(f"the run {workflow_id!r} has ended")


def _refuse_invalid(message: Mapping[str, Any]) -> None:
    """Refuse a message that no run accepts.

    The Temporal server accepts 2 MiB, and a cancel truncates a long reason without an error.

    Raises:
        AnswerRefused: it is too large, or its reason or author too long.
    """
    if (problem := size_problem(dict(message), MESSAGE_BYTES, what="the message")) is not None:
        raise AnswerRefused(problem)
    try:
        by_from_json(message, through="update")
    except MessageInvalid as error:
        raise AnswerRefused(str(error)) from None


def _checked(view: RunView, nodes: Sequence[Any], *, tools: Mapping[str, ToolDeclaration]) -> dict[str, Any]:
    """Returns nodes as they are sent, with what a run may not know of the tools that they name.

    Raises:
        PlanInvalid: something is wrong with them, or they are too large for a message to a run.
    """
    if (size := encoded_size(list(nodes))) > MESSAGE_BYTES:
        message = f"the nodes have {size:,} bytes; at most {MESSAGE_BYTES:,} can be added at once"
        raise PlanInvalid([Problem("too_large", message, "/nodes", hint="add them in parts")])
    if view.scheduler is None:
        # The run has yet to read its plan, and checks them then.
        named = _tools_written(nodes)
    else:
        named = _tools_of(extension_of(nodes, view.scheduler.state, tools=tools).nodes)
    return {"nodes": list(nodes), "tools": tools_to_json(dict.fromkeys(named), tools)}


def _tools_written(nodes: Sequence[Any]) -> Sequence[str]:
    """Returns the tools that nodes name as they are written."""
    found: list[str] = []
    for node in nodes:
        written = node if isinstance(node, Mapping) else {}
        agent, below = written.get("agent"), written.get("plan")
        names = [written.get("tool"), *([AGENT_PREFIX + agent, agent] if isinstance(agent, str) else [])]
        found += [name for name in names if isinstance(name, str)]
        inside = below.get("nodes") if isinstance(below, Mapping) else None
        found += _tools_written(inside if isinstance(inside, list) else [])
    return found


def _tools_of(nodes: Sequence[CompiledNode]) -> Sequence[str]:
    """Returns the tools that nodes name, and the nodes of their sub-plans."""
    found: list[str] = []
    for node in nodes:
        found.append(node.tool)
        if node.sub_plan is not None:
            found += _tools_of(node.sub_plan.nodes)
    return found
