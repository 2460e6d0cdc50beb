"""Tool loop of an agent as a plan extender: a turn, its tool calls in parallel, the next turn, and so on.

The next turn and its messages depend on the plan and the records alone. IDs: the turns are `turn1`, `turn2`…; the tool
calls of turn 2 are `turn2.1`, `turn2.2`… in call order. If the answer of turn 2 asks a person, that request is
`turn2.ask`; a request to a person to review the answer is `turn2.check`. A turn with an invalid answer is repeated as a
node that supersedes the turn.

Replay: IDs, order and content of the nodes are part of a run's history.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dagwright.core.expressions.references import ResultOf, TemplatePart
from dagwright.core.model.compiled import Binding, CompiledNode
from dagwright.core.model.states import NodeError, NodeStatus, Record
from dagwright.core.model.tools import with_compensating_tools
from dagwright.core.scheduler.extension import Extension
from dagwright.features.plan_edits.extension_checks import free_id
from dagwright.features.plan_extension.extender import GoalUnreachable
from dagwright.planning.agent_loop.feedback_markers import parse_answer
from dagwright.planning.agent_loop.spec import (
    MAX_TOOL_CALLS,
    MIN_RESULT_CHARACTERS,
    TURN_RESULTS_CHARACTERS,
    AgentSpec,
    output_of_turn,
    turn_id,
)
from dagwright.planning.agent_loop.tool_calls import (
    ToolCallInvalid,
    UnknownTool,
    human_node,
    node_of_call,
    unknown_tool_message,
)
from dagwright.planning.model_calls.model_failure import ModelError
from dagwright.planning.model_calls.model_requests import Message, model_node, user
from dagwright.planning.model_calls.response_summary import ResponseSummary, summarize_response, usage_of_response

if TYPE_CHECKING:
    from dagwright.core.scheduler.run_state import RunState

_RESERVED_ID = re.compile(r"turn[0-9]+(\.([0-9]+|ask|check))?(#[0-9]+)?")
MAX_CORRECTIONS = 2
"""Maximum number of repeats of a turn with an invalid answer."""
_LAST_TURN_MESSAGE = "No more tool calls are allowed.\nAnswer now from the existing results.\nName missing information."
_TOKENS_SPENT_MESSAGE = "Not called: the agent has used its limit of {limit:,} tokens."
_TOO_MANY_CALLS_MESSAGE = f"Not called: one turn may call at most {MAX_TOOL_CALLS} tools."


class AgentLoop:
    """Extends a run with the turns of one agent and their tool calls."""

    def __init__(self, spec: AgentSpec) -> None:
        self._spec = spec

    def next_extension(self, state: "RunState") -> Extension | None:
        """Return the next extension of the agent.

        Raises:
            GoalUnreachable: the last turn failed permanently, or a person rejected its answer and no turn is left.
        """
        count = 1
        while state.number_of(turn_id(count + 1)) is not None:
            count += 1
        turn = _Turn(state, self._spec, count)
        # This runs after each event: parse the answer once all tool calls have ended, not for each call that ends.
        if not turn.record.status.is_final or turn.has_running_calls:
            return None
        if turn.record.status is not NodeStatus.COMPLETED:
            return turn.repeated_turn_extension()
        if turn.calls and not turn.is_last:
            return turn.extension_after_calls()
        return turn.extension_after_answer()

    def goal_error(self, state: "RunState") -> NodeError | None:  # noqa: ARG002 - interface of extenders
        """Return `None`: the errors of the run are the errors of its nodes."""
        return None

    def is_reserved(self, node_id: str) -> bool:
        """Check whether a node ID belongs to a turn, a tool call of a turn, or a request of a turn."""
        return _RESERVED_ID.fullmatch(node_id) is not None

    def rejection_of_result(self, node_id: str, result: Any) -> str | None:
        """Return why a result cannot be set: the result of a turn must be a model response."""
        if not self.is_reserved(node_id) or "." in node_id:
            return None
        try:
            summarize_response(result)
        except ValueError as error:
            return f"the result of {node_id!r} must be a model response: {error}"
        return None


class _Turn:
    """The newest turn of an agent.

    Args:
        number: number of the turn, starting at 1.
    """

    def __init__(self, state: "RunState", spec: AgentSpec, number: int) -> None:
        self._state = state
        self._spec = spec
        self._turn_number = number
        self._turn_id = turn_id(number)
        self.record = self._record(self._turn_id)
        self._node_number = self._number_of(self._turn_id)
        self._cached_summary: ResponseSummary | None = None

    def _record(self, node_id: str) -> Record:
        return self._state.records[self._number_of(node_id)]

    def _number_of(self, node_id: str) -> int:
        """Return the number of a node, or of the newest node that supersedes it."""
        number = self._state.number_of(self._state.newest_id(node_id))
        assert number is not None
        return number

    @property
    def _node(self) -> CompiledNode:
        return self._state.plan.nodes[self._node_number]

    @property
    def is_last(self) -> bool:
        """Whether this is the last turn, which may not call tools."""
        return self._turn_number >= self._spec.max_turns or self._node.arguments.get("tool_choice") == "none"

    @property
    def has_running_calls(self) -> bool:
        """Whether a tool call of the turn has not ended."""
        call_ids = (f"{self._turn_id}.{index}" for index in range(1, MAX_TOOL_CALLS + 1))
        existing_ids = (node_id for node_id in call_ids if self._state.number_of(node_id) is not None)
        return not all(self._record(node_id).status.is_final for node_id in existing_ids)

    @property
    def calls(self) -> Sequence[Any]:
        """Tool calls that the model requested."""
        return self._summary.tool_calls

    @property
    def _summary(self) -> ResponseSummary:
        if self._cached_summary is None:
            try:
                self._cached_summary = summarize_response(self.record.result)
            except ValueError as error:
                message = f"the result of {self._turn_id!r} is not a model response: {error}"
                raise GoalUnreachable(NodeError("invalid_result", message)) from None
        return self._cached_summary

    # A failed turn.

    def repeated_turn_extension(self) -> Extension:
        """Return an extension that repeats the turn, and reports the problem of the answer to the model."""
        error = self.record.error
        if self.record.status is not NodeStatus.FAILED or error is None:
            reason = f": {self.record.reason}" if self.record.reason else ""
            raise GoalUnreachable(
                NodeError("agent_stopped", f"{self._turn_id!r} was {self.record.status.value}{reason}")
            )
        if error.code != ModelError.OUTPUT_INVALID or self._correction_count() >= MAX_CORRECTIONS:
            raise GoalUnreachable(error)
        text = f"Your last answer is invalid: {error.message}.\nFix it and answer again."
        node = self._node
        messages = [*node.arguments["messages"], user(text).to_json()]
        repeated_turn = replace(
            node,
            id=free_id(self._state, self._node_number),
            arguments={**node.arguments, "messages": messages},
            supersedes=node.id,
        )
        return Extension(self._state.plan.visible_count, (repeated_turn,))

    def _correction_count(self) -> int:
        count, node = 0, self._node
        while node.supersedes is not None:
            count, node = count + 1, self._state.node_of(node.supersedes)
        return count

    # A turn with tool calls.

    def extension_after_calls(self) -> Extension | None:
        """Return the nodes of the tool calls, or the next turn once the calls have ended."""
        if self._has_used_token_limit():
            message = _TOKENS_SPENT_MESSAGE.format(limit=self._spec.max_tokens)
            return self._next_turn(
                [(self._tool_message(call.id, message), None) for call in self.calls], [self._node_number]
            )
        call_nodes, errors = self._nodes_and_errors()
        if call_nodes and self._state.number_of(call_nodes[0].id) is None:
            known_tools = {**self._spec.compensating_tools, **self._spec.tools}
            names = with_compensating_tools([node.tool for node in call_nodes if node.kind == "tool"], known_tools)
            tools = {name: known_tools[name] for name in names if name in known_tools}
            return Extension(self._state.plan.visible_count, tuple(call_nodes), tools)
        if not all(self._record(node.id).status.is_final for node in call_nodes):
            return None
        replies = [
            (self._tool_message(call.id, errors[node_id]), None)
            if node_id in errors
            else (self._tool_message(call.id, ""), self._reply(node_id))
            for node_id, call in self._calls_with_ids()
        ]
        return self._next_turn(replies, [self._number_of(node.id) for node in call_nodes] or [self._node_number])

    def _calls_with_ids(self) -> list[tuple[str, Any]]:
        return [(f"{self._turn_id}.{index}", call) for index, call in enumerate(self.calls, start=1)]

    def _nodes_and_errors(self) -> tuple[list[CompiledNode], dict[str, str]]:
        call_nodes: list[CompiledNode] = []
        calls_with_ids = self._calls_with_ids()
        errors = {node_id: _TOO_MANY_CALLS_MESSAGE for node_id, _ in calls_with_ids[MAX_TOOL_CALLS:]}
        is_tool_list_sent = False
        for node_id, call in calls_with_ids[:MAX_TOOL_CALLS]:
            try:
                call_nodes.append(node_of_call(call, self._spec, node_id=node_id, turn_node_number=self._node_number))
            except UnknownTool as error:
                errors[node_id] = str(error) if is_tool_list_sent else unknown_tool_message(call.name, self._spec)
                is_tool_list_sent = True
            except ToolCallInvalid as error:
                errors[node_id] = str(error)
        return call_nodes, errors

    def _reply(self, node_id: str) -> tuple[TemplatePart, ...]:
        """Return the tool message for a call, as a template."""
        record = self._record(node_id)
        match record.status:
            case NodeStatus.COMPLETED:
                return ("", ResultOf(node_id, "result"))
            case NodeStatus.FAILED if record.error is not None and record.error.code == "rejected":
                return (f"A person rejected this call: {record.error.message}",)
            case NodeStatus.FAILED if record.error is not None:
                return (f"Failed ({record.error.code}): {record.error.message}",)
            case NodeStatus.CANCELLED:
                return (f"Cancelled{f': {record.reason}' if record.reason else ''}",)
        return (f"Not completed: {record.status.value}",)

    @staticmethod
    def _tool_message(call_id: str, text: str) -> Message:
        return Message(role="tool", content=text, tool_call_id=call_id)

    # A turn with an answer.

    def extension_after_answer(self) -> Extension | None:
        """Return the request to a person, the next turn after the answer, or the answer as the output of the run."""
        text = self._summary.text
        parsed_answer = parse_answer(text, self._spec) if isinstance(text, str) else None
        # If the text is in the payload store, the summary has only the feedback marker of the text.
        answer = parsed_answer or parse_answer(self._summary.marker or "", self._spec)
        if answer.problem and not self.is_last:
            message = f"No request was sent: {answer.problem}.\nAsk again or answer without asking."
            return self._next_turn([(user(message), None)], [self._node_number])
        if answer.request is not None and not self.is_last:
            return self._extension_after_request(answer.request)
        if self._spec.feedback_policy == "always" and self._has_answer():
            return self._extension_after_review()
        if parsed_answer is not None and parsed_answer.text != text:
            return self._output_extension((parsed_answer.text, ()))
        if self.calls and not self._has_answer():
            message = f"the model was asked to finish without tools in {self._turn_id!r}, but called tools"
            raise GoalUnreachable(NodeError("agent_unfinished", message))
        return None

    def _has_answer(self) -> bool:
        answer = self._summary.text if self._spec.output is None else self._summary.output
        return answer is not None and answer != ""

    def _extension_after_request(self, request: Mapping[str, Any]) -> Extension | None:
        node_id = f"{self._turn_id}.ask"
        if self._state.number_of(node_id) is None:
            return Extension(self._state.plan.visible_count, (human_node(request, node_id, self._node_number),))
        if not self._record(node_id).status.is_final:
            return None
        prompt = str(request["prompt"])
        parts: tuple[TemplatePart, ...] = (f"A person was asked: {prompt}\nThe answer: ", *self._reply(node_id))
        return self._next_turn([(user(""), parts)], [self._number_of(node_id)])

    def _extension_after_review(self) -> Extension | None:
        """Return the review request for the answer, or the next turn if a person rejects the answer."""
        node_id = f"{self._turn_id}.check"
        if self._state.number_of(node_id) is None:
            _, template = output_of_turn(self._spec, self._turn_id)
            prompt = (f"{self._spec.name} answers:\n\n", *template, "\n\nIs that good?")
            node = human_node({"type": "APPROVAL", "prompt": None}, node_id, self._node_number)
            review = replace(node, bindings=((("prompt",), prompt),))
            return Extension(self._state.plan.visible_count, (review,))
        record = self._record(node_id)
        if not record.status.is_final or record.status is not NodeStatus.COMPLETED:
            # Wait for the review. If the review has failed, such as by a timeout, use the answer without a review; the
            # run reports the failed node.
            return None
        verdict = record.result if isinstance(record.result, Mapping) else {}
        if verdict.get("approved", True):
            return None
        reason = f": {verdict['reason']}" if verdict.get("reason") else ""
        if self.is_last:
            raise GoalUnreachable(NodeError("rejected", f"a person rejected the answer{reason}, and no turn is left"))
        text = f"A person rejected this answer{reason}.\nWrite a better answer."
        return self._next_turn([(user(text), None)], [self._number_of(node_id)])

    def _output_extension(self, output: tuple[Any, Sequence[Binding]]) -> Extension | None:
        plan = self._state.plan
        if (plan.output, tuple(plan.output_bindings)) == output:
            return None
        return Extension(plan.visible_count, (), output=output)

    # The next turn.

    def _next_turn(
        self,
        messages_with_templates: Sequence[tuple[Message, tuple[TemplatePart, ...] | None]],
        dependencies: Sequence[int],
    ) -> Extension:
        """Return the next turn.

        Args:
            messages_with_templates: messages, each with the template of its content, if it has one.
            dependencies: numbers of the nodes that the turn depends on.
        """
        is_last = self._turn_number + 1 >= self._spec.max_turns or self._has_used_token_limit()
        messages = [message for message, _ in messages_with_templates]
        if is_last:
            messages.append(user(_LAST_TURN_MESSAGE))
        characters = max(MIN_RESULT_CHARACTERS, TURN_RESULTS_CHARACTERS // len(messages_with_templates))
        request = self._spec.request(
            messages,
            is_last=is_last,
            previous_conversation=self._summary.conversation,
            cuts=dict.fromkeys(range(len(messages_with_templates)), characters),
        )
        next_id = turn_id(self._turn_number + 1)
        node = model_node(
            next_id,
            request,
            title=f"{self._spec.name}: turn {self._turn_number + 1}",
            dependencies=tuple(dict.fromkeys(dependencies)),
            bindings=[
                (("messages", index, "content"), template)
                for index, (_, template) in enumerate(messages_with_templates)
                if template is not None
            ],
        )
        # The turn starts even if calls have failed, because the model sees the failures.
        node = replace(node, join=("all_done", 0), projections=self._node.projections)
        output = (None, (output_of_turn(self._spec, next_id),))
        return Extension(self._state.plan.visible_count, (node,), output=output)

    def _has_used_token_limit(self) -> bool:
        """Check whether the turns so far have used the token limit of the agent, as far as the servers report usage."""
        max_tokens = self._spec.max_tokens
        if max_tokens is None:
            return False
        turns = range(1, self._turn_number + 1)
        return sum(usage_of_response(self._record(turn_id(number)).result).tokens for number in turns) >= max_tokens
