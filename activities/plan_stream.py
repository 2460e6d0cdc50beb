"""Send each node of a plan to the run as soon as the node is complete, while the model still writes the plan.

Sent nodes are final: a later attempt or call of the planning node finds the sent nodes in the history of the run, adds
them to the prompt, and lets the model write the rest. Nodes that are not sent here are read with the complete plan, so
sending is optional. This module must not import workflows.
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
from dagwright.dialects.plan_streaming import JsonStepParser
from dagwright.features.plan_edits.accepted_nodes import without_nulls
from dagwright.llm.client import ModelStream
from dagwright.planner.plan_parser import can_start_early
from dagwright.planner.schema import MAX_PLANNED_NODES
from dagwright.planning.model_calls.model_requests import PlanStreamOptions
from dagwright.planning.plan_and_execute.goal_spec import decode_tools
from dagwright.protocol.conversion import decode_payloads
from dagwright.protocol.messages import MessageInvalid, read_message
from dagwright.protocol.planned_nodes import planned_message

MESSAGE_INTERVAL_S = 0.25
"""Interval of messages: a complete node waits at most this long, and a run receives at most four messages a second."""
_NODES_KEY = "nodes"
"""Key of the nodes in a response. Other dialects have other keys; their nodes are read when the plan is complete."""
_MAX_CANDIDATES = 20
"""Maximum number of nodes that wait for other nodes; each may refer to a node that is not written yet."""
_MAX_ACCEPTED_NODES = 50
"""Number of accepted nodes at which no more nodes are sent before the plan is complete. Accepted nodes are final, and a
repair of the plan must be able to add nodes."""

Node = Mapping[str, Any]


class PlanStream:
    """Nodes of a plan that are sent to the run while the model writes; use it as `async with` around the model call.

    Args:
        planning: the tools that the plan may use, and the accepted nodes of earlier plans.
        node_id: ID of the node that writes the plan; the repeated calls of the node have other IDs.
        info: information about the attempt.
    """

    def __init__(self, planning: PlanStreamOptions, *, node_id: str, info: activity.Info) -> None:
        self._tools = decode_tools(list(planning.tools))
        self._node_id = node_id
        self._replan_context = planning.replan_context
        self._info = info
        self._accepted_nodes: dict[str, Node] = {str(node["id"]): node for node in planning.accepted_nodes}
        self._sent_count = 0
        """Number of nodes that this attempt has sent."""
        self._step_parser = JsonStepParser()
        self._node_count = 0
        """Number of nodes in this response."""
        self._candidates: list[Node] = []
        """Complete nodes that are not sent yet."""
        self._new_nodes_event, self._end_event = asyncio.Event(), asyncio.Event()
        self._send_task: asyncio.Task[None] | None = None

    @property
    def accepted_nodes(self) -> Sequence[Node]:
        """Return the accepted nodes, as the model wrote them."""
        return tuple(self._accepted_nodes.values())

    async def resume(self) -> Sequence[Node]:
        """Return the nodes that earlier attempts and calls have sent.

        First send an empty message. From then on, the run ignores messages of earlier attempts and calls.
        """
        if self._info.attempt == 1 and self._info.activity_id == self._node_id:
            return ()
        accepted_ids = set(self._accepted_nodes)
        await self._signal([])
        async for event in self._run_handle().fetch_history_events():
            await decode_payloads(event, activity.client().data_converter)
            message = _planned_message_of(event)
            call = message.get("call")
            if call == self._info.activity_id and message.get("attempt") == self._info.attempt:
                break
            if not isinstance(call, str) or not self._is_call_of_node(call):
                continue
            nodes = message["nodes"]
            self._accepted_nodes |= {node["id"]: node for node in nodes if isinstance(node, dict) and _has_id(node)}
        return tuple(node for node_id, node in self._accepted_nodes.items() if node_id not in accepted_ids)

    def _is_call_of_node(self, call: str) -> bool:
        """Return whether a call belongs to this node. The ID of a repeated call is the node's ID, `#` and a number."""
        node_id, _, number = call.rpartition("#")
        return call == self._node_id or (node_id == self._node_id and number.isdecimal())

    def feed(self, stream: ModelStream, text: str) -> None:
        """Feed the next piece of the plan."""
        if len(self._accepted_nodes) >= _MAX_ACCEPTED_NODES or self._node_count >= MAX_PLANNED_NODES:
            return
        new_steps = [step.value for step in self._step_parser.feed(text)][:MAX_PLANNED_NODES]
        self._node_count += len(new_steps)
        if not new_steps or self._step_parser.key != _NODES_KEY:
            return
        response = stream.from_strict({_NODES_KEY: new_steps})
        for node in response[_NODES_KEY] if isinstance(response, dict) else ():
            if len(self._candidates) < _MAX_CANDIDATES and self._is_candidate(node):
                self._candidates.append(without_nulls(node))
        self._new_nodes_event.set()

    def _is_candidate(self, node: Any) -> bool:
        if not isinstance(node, dict) or not isinstance(node.get("id"), str) or not isinstance(node.get("tool"), str):
            return False
        tool = self._tools.get(node["tool"])
        if tool is None:
            return False
        arguments = node.get("arguments")
        return effects_of_call(tool, arguments if isinstance(arguments, dict) else {}).changes_nothing

    async def __aenter__(self) -> Self:
        self._send_task = asyncio.create_task(self._send_all())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._send_task is not None
        # Wait for the message in flight: only then are the accepted nodes known.
        self._end_event.set()
        self._new_nodes_event.set()
        await self._send_task

    async def _send_all(self) -> None:
        while True:
            await self._new_nodes_event.wait()
            self._new_nodes_event.clear()
            if self._end_event.is_set():
                return
            try:
                await self._send()
            # Sending early is optional: an error here must neither discard the response nor replace an error of the
            # model call.
            except Exception as error:
                # The complete plan will contain everything that was not sent.
                structlog.get_logger("dagwright.activities").warning(
                    "the nodes of a plan cannot be sent before it is complete",
                    node=self._info.activity_id,
                    message=str(error),
                )
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._end_event.wait(), MESSAGE_INTERVAL_S)

    async def _send(self) -> None:
        candidates, self._candidates = self._candidates, []
        startable_nodes = await asyncio.to_thread(self._startable_nodes, candidates)
        ids = {node["id"] for node in startable_nodes}
        self._candidates = [node for node in candidates if node.get("id") not in ids] + self._candidates
        if startable_nodes:
            # The nodes are accepted from now on, whether or not the signal is acknowledged.
            self._accepted_nodes |= {str(node["id"]): node for node in startable_nodes}
            await self._signal(startable_nodes)

    def _startable_nodes(self, candidates: Sequence[Node]) -> list[Node]:
        """Return the nodes that may start now, each after the nodes that it refers to."""
        accepted_nodes, startable_nodes, remaining_candidates = (
            [*self._accepted_nodes.values()],
            list[Node](),
            [*candidates],
        )
        has_progress = True
        while has_progress:
            has_progress = False
            for node in [*remaining_candidates]:
                if len(accepted_nodes) + len(startable_nodes) >= _MAX_ACCEPTED_NODES:
                    return startable_nodes
                if node["id"] not in self._accepted_nodes and self._can_start(
                    [*accepted_nodes, *startable_nodes, node]
                ):
                    startable_nodes.append(node)
                    remaining_candidates.remove(node)
                    has_progress = True
        return startable_nodes

    def _can_start(self, nodes: Sequence[Node]) -> bool:
        return can_start_early(nodes, self._tools, replan_context=self._replan_context)

    async def _signal(self, nodes: Sequence[Node]) -> None:
        message = planned_message(self._info.activity_id, self._info.attempt, offset=self._sent_count, nodes=nodes)
        self._sent_count += len(nodes)
        await self._run_handle().signal(wire.SIGNAL_PLANNED, message)

    def _run_handle(self) -> WorkflowHandle[Any, Any]:
        run_id = self._info.workflow_id
        assert run_id is not None
        return activity.client().get_workflow_handle(run_id, run_id=self._info.workflow_run_id)


def _has_id(node: Mapping[str, Any]) -> bool:
    return isinstance(node.get("id"), str)


def _planned_message_of(event: HistoryEvent) -> Mapping[str, Any]:
    """Return the message of an event about a plan in progress; an empty object for other events."""
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
