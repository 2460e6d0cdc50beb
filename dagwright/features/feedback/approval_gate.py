"""Approval gate: which nodes need an answer of a person before they start. It has no side effects."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dagwright.core.expressions.references import resolve_bindings
from dagwright.core.expressions.stored_values import find_value_refs
from dagwright.core.model.argument_checks import problem_of_call
from dagwright.core.model.compiled import inline_tools, tool_of
from dagwright.core.model.policy import INLINE_AGENT, INLINE_AGENT_HINT, INLINE_AGENT_NOT_ALLOWED
from dagwright.core.model.requests import (
    Feedback,
    Purpose,
)
from dagwright.core.model.states import NodeError, TaskRef
from dagwright.features.feedback.feedback_state import FeedbackState

if TYPE_CHECKING:
    from dagwright.core.scheduler.run_state import RunState


def rejection_message(tool: str) -> str:
    """Return the message for a call that the policy denies."""
    return f"the policy of the run denies this call of {tool!r}"


@dataclass(frozen=True, slots=True)
class Question:
    """Question that a node asks before it starts."""

    purpose: Purpose
    fields: Mapping[str, Any]


class ApprovalGate:
    """Decision whether a node of a run has to ask a person before it starts."""

    def __init__(self, state: "RunState", feedback: FeedbackState) -> None:
        self._state = state
        self._feedback = feedback

    @property
    def is_needed(self) -> bool:
        """Whether the plan has nodes that may ask before they start."""
        nodes = self._state.plan.nodes
        return not self._state.policy.allows_all_calls or any(
            node.kind == "human" or node.approval != "policy" for node in nodes
        )

    def question_before_start(self, ref: TaskRef) -> Question | NodeError | None:
        """Return the question that a task asks before it starts, its error if it must not start, or `None`.

        Raises:
            UnresolvedReference, ComputeBudgetExceeded: the question or the arguments cannot be resolved.
        """
        state = self._state
        node = state.plan.nodes[ref.node]
        if node.kind == "human":
            return Question("answer", resolve_bindings(node.arguments, node.bindings, scope=state.scope_of(ref)))
        override = state.overrides.get(state.id_of(ref))
        may_need_approval = node.kind in ("tool", "plan") and state.map_batch(ref) is None
        # The compensation of an allowed call needs no approval, so that it cannot stop halfway.
        if not may_need_approval or node.compensates is not None:
            return None
        verdict = self.verdict(ref)
        # The plan decides about approvals, but cannot allow a call that the policy of the run denies.
        if verdict == "deny":
            message = (
                rejection_message(node.tool)
                if node.kind == "tool"
                else f"{INLINE_AGENT_NOT_ALLOWED}; {INLINE_AGENT_HINT}"
            )
            return NodeError("not_allowed", message)
        if node.approval == "never" or (node.approval == "policy" and verdict == "run"):
            return None
        if override is not None and override.approved:
            return None
        if (problem := self._problem_of_arguments(ref)) is not None:
            # Do not ask people about a call that the tool would reject.
            return NodeError("invalid_arguments", problem)
        question: Mapping[str, Any] = {}
        if isinstance(node.approval, Mapping):
            question = resolve_bindings(node.approval, node.approval_bindings, scope=state.scope_of(ref))
        return Question("approval", question)

    def _problem_of_arguments(self, ref: TaskRef) -> str | None:
        """Return why the arguments of a node do not match the known schema of its tool, or `None`.

        Raises:
            UnresolvedReference, ComputeBudgetExceeded: the arguments cannot be resolved.
        """
        node = self._state.plan.nodes[ref.node]
        tool = self._state.plan.tools.get(node.tool)
        if node.kind != "tool" or tool is None or tool.input_schema is None:
            return None
        arguments = self._state.arguments_of(ref)
        return problem_of_call(tool, arguments, unknown_paths=[path for path, _ in find_value_refs(arguments)])

    def verdict(self, ref: TaskRef) -> str:
        """Return the verdict of the policy on a call: `run`, `ask` or `deny`.

        Raises:
            UnresolvedReference, ComputeBudgetExceeded: a rule depends on arguments that cannot be resolved.
        """
        state = self._state
        node = state.plan.nodes[ref.node]
        if node.kind == "tool":
            tool = tool_of(node, state.plan.tools)
            verdict: str = state.policy.verdict(tool, lambda: state.arguments_of(ref))
        else:
            # The nodes of a sub-plan are checked one by one in its child run.
            tools_of_agent = inline_tools(node)
            verdict = "run" if tools_of_agent is None else state.policy.verdict_on_inline_agent(tools_of_agent)
        is_approved = (
            ref.node < self._feedback.approved_node_count or node.tool in self._feedback.requests.approved_tools
        )
        return "run" if verdict == "ask" and is_approved else verdict

    def items_may_open_requests(self, number: int) -> bool:
        """Return whether the items of a node may ask people. Such items must not run in batches in child runs."""
        node = self._state.plan.nodes[number]
        if node.kind == "human" or node.on_error == "ask" or node.approval not in ("policy", "never"):
            return True
        if inline_tools(node) is not None:
            return self._state.policy.may_stop_call(INLINE_AGENT)
        return node.kind == "tool" and self._state.policy.may_stop_call(tool_of(node, self._state.plan.tools))


def rejection_error(answer: Mapping[str, Any], feedback: Feedback) -> NodeError:
    """Return the error of a node that a person, or a default answer, did not approve."""
    reason = f": {answer['reason']}" if answer["reason"] else ""
    if feedback.source == "deadline":
        return NodeError("rejected", f"not answered in time, so the plan rejects it{reason}")
    return NodeError("rejected", f"rejected by {feedback.by or 'a person'}{reason}")
