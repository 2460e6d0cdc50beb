"""Human feedback of one run: approvals, questions of nodes and tools, requests that belong to no node, and answers.

Each method for a command of a person applies the command, or returns why the command is rejected.
The workflow and the history readers call `Scheduler.advance` with the time before each batch of events, so that a
deadline applies at the same event in both.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from dagwright.core.expressions.compute_budget import TOO_MUCH_AT_ONCE, ComputeBudgetExceeded
from dagwright.core.expressions.references import UnresolvedReference
from dagwright.core.expressions.value_refs import encoded_size
from dagwright.core.model.policy import Policy, allow_tools
from dagwright.core.model.requests import Feedback, RaisedQuestion, Request
from dagwright.core.model.states import Attempt, NodeError, NodeStatus, TaskRef
from dagwright.core.scheduler.component import SchedulerComponent
from dagwright.core.scheduler.propagation import evaluation_error
from dagwright.features.feedback.answer_handling import AnswerHandler
from dagwright.features.feedback.answer_validation import AnswerValidator
from dagwright.features.feedback.approval_gate import ApprovalGate, Question
from dagwright.features.feedback.feedback_state import FeedbackState, RequestRegistry, registry_from_json
from dagwright.features.feedback.request_opening import RequestOpener
from dagwright.features.feedback.run_requests import RunRequests
from dagwright.features.plan_edits.extension_checks import NodeCheck

if TYPE_CHECKING:
    from dagwright.core.scheduler.scheduler import Scheduler

_REQUEST_HOOKS = frozenset({"on_node_ended", "on_node_reset", "after_update"})
"""Hooks that are only needed once there are requests or stored answers."""


class HumanFeedback(SchedulerComponent):
    """Requests of a run to people, and their answers.

    Args:
        check_nodes: function that checks the nodes in an answer.
    """

    def __init__(self, scheduler: "Scheduler[Any]", check_nodes: NodeCheck) -> None:
        self._scheduler = scheduler
        self._state = scheduler.state
        self.state = FeedbackState()
        """State of the feedback; `_state` is the state of the run."""
        self._has_requests = False
        """Whether a request was opened or an early answer stored."""
        self.gate = ApprovalGate(self._state, self.state)
        self._has_gate = self.gate.is_needed
        self._validator = AnswerValidator(self._state, self.state, check_nodes)
        self.opener = RequestOpener(
            self._state, self.state, on_early_answer=self._apply_early_answer, on_open=self._enable_request_hooks
        )
        self._handler = AnswerHandler(
            scheduler.rebuild, self.state, validator=self._validator, gate=self.gate, restart=self._restart
        )
        self.run_requests = RunRequests(
            scheduler, self.state, self.opener, run_answer_appliers=self._handler.run_answer_appliers
        )
        self._state.is_request_id = self._is_request_id

    @property
    def requests(self) -> RequestRegistry:
        """The requests of the run."""
        return self.state.requests

    @property
    def child_policy(self) -> Policy:
        """Policy of child runs: tools that a person approved for the whole run need no approval there."""
        return allow_tools(self._state.policy, self.requests.approved_tools)

    def _is_request_id(self, candidate_id: str) -> bool:
        return candidate_id in self.requests.open or candidate_id in self.requests.closed

    # Hooks.

    def needed_hooks(self) -> Collection[str]:
        """Return the hooks that are needed. Some are only needed once there are requests."""
        unneeded_hooks = set() if self._has_requests else set(_REQUEST_HOOKS)
        if not self._has_gate:
            unneeded_hooks.add("on_node_ready")
        if not self.state.policy_changed:
            unneeded_hooks.add("before_dispatch")
        return self.hooks - unneeded_hooks

    def _enable_request_hooks(self) -> None:
        if not self._has_requests:
            self._has_requests = True
            self._scheduler.update_hooks()

    def on_node_ready(self, ref: TaskRef, at: float) -> bool:
        """Open the request that the node needs before its start, if any; for a `for_each`, each item has a request."""
        if ref.item is None and self._state.plan.nodes[ref.node].for_each is not None:
            return False
        return self._open_request_or_end(ref, at)

    def before_dispatch(self, ref: TaskRef, at: float) -> bool:
        """Check a queued task again, because the policy has changed."""
        return self._open_request_or_end(ref, at)

    def items_may_open_requests(self, number: int) -> bool:
        """Return whether the items of a node may ask people. Such items must not run in batches in child runs."""
        return self.gate.items_may_open_requests(number)

    def on_node_failed(self, ref: TaskRef, error: NodeError, at: float) -> bool:
        """Open a request about a failure, if the node has `on_error: ask`."""
        if self._state.plan.nodes[ref.node].on_error != "ask":
            return False
        return not self._has_to_stop(ref) and self.opener.open_for_error(ref, error, at)

    def on_node_ended(self, ref: TaskRef, at: float) -> None:
        """Close the request of a node or item, and drop its early answers."""
        if self.requests.open:
            self.opener.close(self._state.id_of(ref), at)
        if self.requests.early_ids_by_node:
            self._handler.drop_early(ref)

    def on_node_reset(self, ref: TaskRef, at: float) -> None:
        """Close the request of a node or item that starts again."""
        if self._state.record(ref).status is NodeStatus.WAITING:
            self.opener.close(self._state.id_of(ref), at)

    def on_rebuild(self, base: int, added_count: int) -> None:
        """Update state that depends on the nodes of the plan."""
        self._has_gate = self.gate.is_needed
        if added_count:
            self.requests.move_early(base, added_count)

    def after_update(self, at: float) -> bool:
        """Apply one early answer that adds nodes."""
        if not self.requests.due_answers:
            return False
        self._handler.apply_due(self.requests.due_answers.pop(0), at)
        return True

    def on_stop(self, at: float) -> None:
        """Close the request that the run opened before its first node."""
        self.opener.close("", at)

    @property
    def next_timer(self) -> float | None:
        """Time of the next deadline or reminder."""
        return self.requests.next_alarm

    def on_timer(self, at: float) -> None:
        """Handle every deadline and reminder that is due."""
        self._handler.apply_deadlines(at)

    @property
    def is_waiting(self) -> bool:
        """Whether a request is open."""
        return bool(self.requests.open)

    # Asking.

    def ask(self, task_id: str, raised_question: RaisedQuestion, *, at: float, attempt: Attempt) -> str | None:
        """Open the request of a running tool, which is called again with the answer in `Task.answers`.

        A request of a task that is not running is ignored. A task that is being cancelled ends without a request.

        Returns:
            Why the request is rejected, or `None`.
        """
        ref = self._scheduler.record_end_of_call(task_id, attempt)
        if ref is None:
            return None
        problem: NodeError | None = None
        if self._has_to_stop(ref):
            self._scheduler.propagation.end(ref, NodeStatus.CANCELLED, at)
        elif (problem := self.opener.open_tool_request(ref, raised_question, at=at)) is not None:
            self._scheduler.propagation.end_failed_task(ref, problem, at)
        self._scheduler.propagate(at)
        return problem.message if problem else None

    def _has_to_stop(self, ref: TaskRef) -> bool:
        """Return whether a task or the whole run was cancelled."""
        return self._state.is_stopped or self._state.id_of(ref) in self._state.cancel_deadlines

    def _open_request_or_end(self, ref: TaskRef, at: float) -> bool:
        """Open the request that a task needs before it starts, or end a task that must not run.

        Returns:
            Whether the task does not start now.
        """
        try:
            outcome = self.gate.question_before_start(ref)
            if isinstance(outcome, Question):
                outcome = self.opener.open(ref, outcome.fields, purpose=outcome.purpose, at=at)
            elif outcome is None:
                return False
        except (UnresolvedReference, ComputeBudgetExceeded) as error:
            outcome = evaluation_error(error)
        if outcome is not None:
            self._scheduler.propagation.end_failed_task(ref, outcome, at)
        return True

    def _restart(self, ref: TaskRef, at: float) -> None:
        self._state.record(ref).status = NodeStatus.READY
        if not self._open_request_or_end(ref, at):
            self._scheduler.propagation.enqueue(ref)

    # Commands.

    def answer(self, feedback: Feedback, at: float) -> str | None:
        """Apply an answer, or return why it is rejected."""
        self._scheduler.advance(at)
        requests = self.requests
        requests.hint_budget.start(at)
        try:
            outcome = self._validator.validate(feedback, at)
            if isinstance(outcome, list):
                self._handler.apply_all(outcome, feedback, at)
        except ComputeBudgetExceeded:
            return TOO_MUCH_AT_ONCE
        if isinstance(outcome, str):
            requests.hint_budget.remaining -= 1
            return outcome
        if outcome is None:
            self._enable_request_hooks()
            self._handler.store_early(feedback)
        requests.stored_bytes += encoded_size(feedback.answer) * (1 if outcome is None else len(outcome))
        self._scheduler.propagate(at)
        return None

    def rejection_of(self, feedback: Feedback, at: float) -> str | None:
        """Return, without side effects, why an answer would be rejected now, or `None`."""
        return self._validator.rejection_of(feedback, at)

    def open_request_count(self, request_id: str) -> int:
        """Return how many open requests one answer with this request id answers.

        A node with `for_each` may have an open request for each item.
        """
        return self._validator.open_request_count(request_id)

    def set_policy(self, policy: Policy, at: float, *, by: str = "") -> None:
        """Change the policy. A task that waits for an approval starts if the new policy allows the task, and fails if
        the new policy denies the task."""
        self.restore_policy(policy)
        self._handler.release_approvals(at, by=by, answer="policy changed")
        self._scheduler.propagate(at)

    def restore_policy(self, policy: Policy) -> None:
        """Set a policy that was changed before this scheduler was restored."""
        self._state.policy, self.state.policy_changed = policy, True
        self._has_gate = self._has_gate or not policy.allows_all_calls
        self._scheduler.update_hooks()

    def restore(self, requests: Mapping[str, Any], inputs: Mapping[str, Any], plan_approval: tuple[int, str]) -> None:
        """Restore the state of an earlier execution.

        Args:
            requests: JSON of the requests.
            inputs: inputs that a person provided after the start.
            plan_approval: number of nodes that were approved with the plan, and the user who approved them.
        """
        self.state.requests = registry_from_json(requests)
        self.state.given_inputs.update(inputs)
        self._state.inputs.update(self.state.given_inputs)
        self.state.approved_node_count, self.state.approved_by = plan_approval
        self._has_requests = bool(self.requests.open or self.requests.early_answers or self.requests.early_ids_by_node)
        self._scheduler.update_hooks()

    def _apply_early_answer(self, request: Request, feedback: Feedback, at: float) -> None:
        self._handler.apply_early_answer(request, feedback, at)
