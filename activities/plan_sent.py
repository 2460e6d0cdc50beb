"""A plan on its way to the run while a model still writes it: each node that may start is sent as soon as it is whole.

What is sent stands: a later attempt, or the call that somebody makes of the same node when this one has failed, finds
it in the history of the run, tells the model, and lets it write the rest. Whatever is not sent here is read with the
whole plan, so nothing has to be. This module must not import workflows.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import structlog
from temporalio import activity
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHandle

from dagwright.core.boundary import wire
from dagwright.core.model.tools import effects_of_call
from dagwright.dialects.streaming import JsonSteps
from dagwright.features.plan_edits.accepted_nodes import without_nulls
from dagwright.llm.client import ModelStream
from dagwright.planner.reading import fits_early
from dagwright.planner.schema import MAX_PLANNED_NODES
from dagwright.planning.model_calls.calls import Planning
from dagwright.planning.plan_and_execute.goals import HARMLESS, tools_read
from dagwright.protocol.conversion import decode_payloads
from dagwright.protocol.messages import MessageInvalid, read_message
from dagwright.protocol.planned_nodes import planned_message

BATCH_S = 0.25
"""Between two messages: what is whole is sent at most so much later, and a run gets no more than four a second."""
_KEY = "nodes"
"""Steps of other dialects mean other things; they are read when all of them are there."""
_OPEN = 20
"""Nodes that are looked at again when others have come; each may refer to one that is not written yet."""
_MOST = 50
"""Nodes that are sent before their plan is whole. They stand, so a repair of a plan that is too large needs room."""

Node = Mapping[str, Any]


class PlanSent:
    """The nodes of a plan that are sent to the run while it is written; used as `async with` around the writing.

    Args:
        planning: what the plan may use, and what stands of earlier plans.
        node: id of the node that writes the plan; its later calls have others.
        info: of the attempt.
    """

    def __init__(self, planning: Planning, *, node: str, info: activity.Info) -> None:
        self._tools = tools_read(list(planning.tools))
        self._node = node
        self._so_far = planning.so_far
        self._info = info
        self._standing: dict[str, Node] = {str(node["id"]): node for node in planning.accepted}
        self._count = 0
        """Nodes that this attempt has sent."""
        self._steps = JsonSteps()
        self._seen = 0
        """Nodes of this answer."""
        self._open: list[Node] = []
        self._has_come, self._is_over = asyncio.Event(), asyncio.Event()
        self._sending: asyncio.Task[None] | None = None

    @property
    def accepted(self) -> Sequence[Node]:
        """Returns the nodes that stand, as they were written."""
        return tuple(self._standing.values())

    async def begin(self) -> Sequence[Node]:
        """Returns what earlier attempts and calls have sent; from here on nothing of theirs counts any more."""
        if self._info.attempt == 1 and self._info.activity_id == self._node:
            return ()
        before = set(self._standing)
        await self._tell([])
        async for event in self._run().fetch_history_events():
            await decode_payloads(event, activity.client().data_converter)
            message = _message_of(event)
            call = message.get("call")
            if call == self._info.activity_id and message.get("attempt") == self._info.attempt:
                break
            if not isinstance(call, str) or not self._is_own(call):
                continue
            nodes = message["nodes"]
            self._standing |= {node["id"]: node for node in nodes if isinstance(node, dict) and _has_id(node)}
        return tuple(node for node_id, node in self._standing.items() if node_id not in before)

    def _is_own(self, call: str) -> bool:
        """Tells whether a call is one of this node: no other node has its id with a number behind."""
        node, _, number = call.rpartition("#")
        return call == self._node or (node == self._node and number.isdecimal())

    def take(self, stream: ModelStream, words: str) -> None:
        """Takes the next piece of the plan."""
        if len(self._standing) >= _MOST or self._seen >= MAX_PLANNED_NODES:
            return
        found = [step.value for step in self._steps.feed(words)][:MAX_PLANNED_NODES]
        self._seen += len(found)
        if not found or self._steps.key != _KEY:
            return
        restored = stream.restored({_KEY: found})
        for node in restored[_KEY] if isinstance(restored, dict) else ():
            if len(self._open) < _OPEN and self._may_fit(node):
                self._open.append(without_nulls(node))
        self._has_come.set()

    def _may_fit(self, node: Any) -> bool:
        if not isinstance(node, dict) or not isinstance(node.get("id"), str) or not isinstance(node.get("tool"), str):
            return False
        tool = self._tools.get(node["tool"])
        if tool is None:
            return False
        arguments = node.get("arguments")
        return effects_of_call(tool, arguments if isinstance(arguments, dict) else {}) in HARMLESS

    async def __aenter__(self) -> Self:
        self._sending = asyncio.create_task(self._send_all())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._sending is not None
        # What is being sent goes out, so that it is known what stands.
        self._is_over.set()
        self._has_come.set()
        await self._sending

    async def _send_all(self) -> None:
        while True:
            await self._has_come.wait()
            self._has_come.clear()
            if self._is_over.is_set():
                return
            try:
                await self._send()
            # Sending early is optional: it must neither lose an answer that is paid for nor hide why there is none.
            except Exception as error:
                # The plan is read when it is whole, with all that was not sent.
                structlog.get_logger("dagwright.activities").warning(
                    "the nodes of a plan cannot be sent before it is whole",
                    node=self._info.activity_id,
                    message=str(error),
                )
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_over.wait(), BATCH_S)

    async def _send(self) -> None:
        candidates, self._open = self._open, []
        found = await asyncio.to_thread(self._fitting, candidates)
        ids = {node["id"] for node in found}
        self._open = [node for node in candidates if node.get("id") not in ids] + self._open
        if found:
            # It stands from here on, whether anybody hears that it was taken or not.
            self._standing |= {str(node["id"]): node for node in found}
            await self._tell(found)

    def _fitting(self, candidates: Sequence[Node]) -> list[Node]:
        """Returns the nodes that may start now, in an order in which each follows what it refers to."""
        standing, found, left = [*self._standing.values()], list[Node](), [*candidates]
        is_moving = True
        while is_moving:
            is_moving = False
            for node in [*left]:
                if len(standing) + len(found) >= _MOST:
                    return found
                if node["id"] not in self._standing and self._fits([*standing, *found, node]):
                    found.append(node)
                    left.remove(node)
                    is_moving = True
        return found

    def _fits(self, nodes: Sequence[Node]) -> bool:
        return fits_early(nodes, self._tools, so_far=self._so_far)

    async def _tell(self, nodes: Sequence[Node]) -> None:
        message = planned_message(self._info.activity_id, self._info.attempt, offset=self._count, nodes=nodes)
        self._count += len(nodes)
        await self._run().signal(wire.SIGNAL_PLANNED, message)

    def _run(self) -> WorkflowHandle[Any, Any]:
        workflow_id = self._info.workflow_id
        assert workflow_id is not None
        return activity.client().get_workflow_handle(workflow_id, run_id=self._info.workflow_run_id)


def _has_id(node: Mapping[str, Any]) -> bool:
    return isinstance(node.get("id"), str)


def _message_of(event: HistoryEvent) -> Mapping[str, Any]:
    """Returns what an event says of a plan that is being written; nothing if it does not."""
    if event.event_type != EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
        return {}
    signal = event.workflow_execution_signaled_event_attributes
    if signal.signal_name != wire.SIGNAL_PLANNED or len(signal.input.payloads) != 1:
        return {}
    try:
        message = read_message(signal.input.payloads[0])
    except MessageInvalid:
        return {}
    return message if isinstance(message, dict) and isinstance(message.get("nodes"), list) else {}
