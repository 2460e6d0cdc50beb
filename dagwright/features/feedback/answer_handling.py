"""Apply accepted answers, which end the requesting node, restart it or add nodes; apply deadlines of requests.

Replay: the order in which answers start tasks is the order in which the workflow starts activities. A changed order
breaks the replay of open runs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dagwright.core.expressions.compute_budget import TOO_MUCH_AT_ONCE, ComputeBudgetExceeded
from dagwright.core.expressions.references import UnresolvedReference
from dagwright.core.model.answers import BadAnswer, adds_nodes, default_answer, normalize_answer, shorten_arguments
from dagwright.core.model.requests import Closing, Feedback, MessageSource, Purpose, Request, task_id_without_number
from dagwright.core.model.states import NodeError, NodeStatus, TaskRef
from dagwright.features.feedback.approval_gate import rejection_error
from dagwright.features.feedback.feedback_state import FeedbackState, Notification, RequestRegistry, RunAnswerApplier
from dagwright.features.plan_edits.node_additions import apply_addition

if TYPE_CHECKING:
    from dagwright.core.scheduler.extension import Extension
    from dagwright.core.scheduler.propagation import Propagation
    from dagwright.core.scheduler.rebuild import Rebuild
    from dagwright.features.feedback.answer_validation import AcceptedAnswer, AnswerValidator
    from dagwright.features.feedback.approval_gate import ApprovalGate

Restart = Callable[[TaskRef, float], None]
"""Function that restarts a waiting task. The restarted task may open another request."""


class AnswerHandler:
    """Handler of the answers to the requests of one run.

    Args:
        restart: function that restarts a waiting task.
    """

    def __init__(
        self,
        rebuild: "Rebuild",
        feedback: FeedbackState,
        *,
        validator: "AnswerValidator",
        gate: "ApprovalGate",
        restart: Restart,
    ) -> None:
        self._rebuild = rebuild
        self._propagation: Propagation = rebuild.propagation
        self._state = rebuild.state
        self._feedback = feedback
        self._validator = validator
        self._gate = gate
        self._restart = restart
        self.run_answer_appliers: dict[Purpose, RunAnswerApplier] = {}
        """Purpose of a request that belongs to the run, not to a node -> function that applies the person's answer."""

    @property
    def _requests(self) -> RequestRegistry:
        return self._feedback.requests

    # Early answers.

    def store_early(self, feedback: Feedback) -> None:
        """Store an answer until its request is opened."""
        ref = self._validator.find_requester(feedback.request_id)
        # A request for inputs belongs to the run, not to a node.
        self._requests.store_early(feedback, None if ref is None else ref.node)

    def drop_early(self, ref: TaskRef) -> None:
        """Drop the stored answers for a node or item that has ended; if all nodes have ended, drop all answers."""
        registry = self._requests
        request_ids = registry.early_ids_by_node.get(ref.node, ())
        if ref.item is not None:
            task_id = self._state.id_of(ref)
            request_ids = [
                request_id for request_id in request_ids if task_id in (request_id, task_id_without_number(request_id))
            ]
        elif not self._state.unfinished_count:
            request_ids = [*registry.early_answers]
        for request_id in request_ids:
            registry.drop_early(request_id)
        if ref.item is None:
            registry.early_ids_by_node.pop(ref.node, None)

    def apply_early_answer(self, request: Request, feedback: Feedback, at: float) -> None:
        """Apply an answer that arrived before its request, or record why the answer is invalid."""
        try:
            if (problem := request.rejection_of(feedback)) is not None:
                raise BadAnswer(problem)
            answer = normalize_answer(request, feedback.answer)
            self._validator.check_arguments(request, answer)
        except BadAnswer as error:
            by = feedback.by or "a user without a name"
            self._requests.rejections.append(f"the early answer of {by} to {request.id!r} is invalid: {error}")
            return
        if adds_nodes(request, answer):
            # Nodes are being updated now, so the plan must not change; the answer is applied afterwards.
            self._requests.due_answers.append(replace(feedback, request_id=request.id))
        else:
            self.apply(request, answer, feedback, at)

    def apply_due(self, feedback: Feedback, at: float) -> None:
        """Apply an early answer that adds nodes. If the answer is invalid, record the reason and keep the request
        open."""
        if (request := self._requests.open.get(feedback.request_id)) is None:
            return
        by = feedback.by or "a user without a name"
        try:
            accepted_answers = self._validator.validate_for([request], feedback, at)
            if not isinstance(accepted_answers, str):
                self.apply_all(accepted_answers, feedback, at)
                return
            rejection_text = f"is invalid: {accepted_answers}"
        except ComputeBudgetExceeded:
            rejection_text = f"to {request.id!r} was not accepted: {TOO_MUCH_AT_ONCE}"
        self._requests.rejections.append(f"the early answer of {by} {rejection_text}")

    # Answers.

    def apply_all(self, accepted_answers: "Sequence[AcceptedAnswer]", feedback: Feedback, at: float) -> None:
        """Apply an answer to one or more requests.

        Raises:
            ComputeBudgetExceeded: the compute budget of the current activation is used up; nothing has changed.
        """
        for accepted_answer in accepted_answers:
            if accepted_answer.extension is not None:
                self._rebuild.charge_within_budget(at)
            if accepted_answer.request.id in self._requests.open:
                self.apply(
                    accepted_answer.request, accepted_answer.answer, feedback, at, extension=accepted_answer.extension
                )

    def apply(
        self, request: Request, answer: Any, feedback: Feedback, at: float, *, extension: "Extension | None" = None
    ) -> None:
        """Apply a valid answer to its request."""
        answer_word = _closing_word(request, answer)
        arguments = shorten_arguments(answer["arguments"]) if "arguments" in answer else None
        closing = Closing("answered", at, feedback.by, feedback.source, answer_word, feedback.note, arguments)
        self._requests.close(request, closing)
        if extension is not None:
            apply_addition(self._rebuild, extension, feedback.author, at=at, request_id=request.id)
        if (apply_run_answer := self.run_answer_appliers.get(request.purpose)) is not None:
            apply_run_answer(answer, feedback, at)
            return
        ref = self._state.items.ref(request.task)
        record = self._state.record(ref)
        record.reason = None
        self._state.compute_budget.start(at)
        match request.purpose:
            case "answer":
                record.result = answer
                self._propagation.end(ref, NodeStatus.COMPLETED, at)
            case "approval":
                self._apply_approval(ref, request, answer, feedback, at)
            case "error":
                self._apply_choice(ref, request, answer, at)
            case "raised":
                self._apply_tool_answer(ref, request, answer, at)

    def _apply_tool_answer(self, ref: TaskRef, request: Request, answer: Any, at: float) -> None:
        """Repeat the call that opened the request, with the answer."""
        override = self._state.override_of(request.task)
        checkpoint = {} if request.checkpoint is None else {"checkpoint": request.checkpoint}
        if checkpoint:
            # The next call gets all answers, but only reads the last checkpoint.
            override.answers = [
                {"request_id": entry["request_id"], "answer": entry["answer"]} for entry in override.answers
            ]
        override.answers.append({"request_id": request.id, "answer": answer, **checkpoint})
        self._try_again(ref, request, at)

    def _apply_approval(
        self, ref: TaskRef, request: Request, answer: Mapping[str, Any], feedback: Feedback, at: float
    ) -> None:
        if not answer["approved"]:
            self._propagation.end_failed_task(ref, rejection_error(answer, feedback), at)
            return
        override = self._state.override_of(request.task)
        override.approved = True
        if (arguments := answer.get("arguments")) is not None:
            # For a generated node, people only provide some arguments; the run provides the others.
            node = self._state.plan.nodes[ref.node]
            override.arguments = {**node.arguments, **arguments} if self._state.is_generated_id(node.id) else arguments
        self._restart(ref, at)
        if answer.get("remember") and request.tool not in self._requests.approved_tools:
            self._requests.approved_tools[request.tool] = feedback.by
            self.release_approvals(at, by=feedback.by, answer="approved")

    def _apply_choice(self, ref: TaskRef, request: Request, answer: Mapping[str, Any], at: float) -> None:
        record = self._state.record(ref)
        match answer["action"]:
            case "value":
                record.result = answer["value"]
                self._propagation.end(ref, NodeStatus.COMPLETED, at)
            case "skip":
                self._propagation.end(ref, NodeStatus.SKIPPED, at)
            case "stop":
                self._propagation.end(ref, NodeStatus.FAILED, at)
            case _ if "arguments" in answer:
                # The node was superseded by a node with the new arguments.
                pass
            case _:
                record.error = None
                self._try_again(ref, request, at)

    def _try_again(self, ref: TaskRef, request: Request, at: float) -> None:
        override = self._state.override_of(request.task)
        override.retries, override.attempts = override.retries + 1, self._state.record(ref).attempts
        self._restart(ref, at)

    def release_approvals(self, at: float, *, by: str, answer: str) -> None:
        """Restart all tasks that wait for an approval no longer required by the policy."""
        for request in [*self._requests.open.values()]:
            if request.purpose != "approval" or request.id not in self._requests.open:
                continue
            ref = self._state.items.ref(request.task)
            if self._state.plan.nodes[ref.node].approval != "policy":
                continue
            self._state.compute_budget.start(at)
            try:
                verdict = self._gate.verdict(ref)
            except (UnresolvedReference, ComputeBudgetExceeded):
                continue
            if verdict != "ask":
                self._requests.close(request, Closing("answered", at, by, "policy", answer=answer))
                self._state.record(ref).reason = None
                self._restart(ref, at)

    # Time.

    def apply_deadlines(self, at: float) -> None:
        """Handle every deadline and reminder that is due."""
        while (request := self._requests.take_due(at)) is not None:
            if request.deadline_at is not None and request.deadline_at <= at:
                self._expire(request, at)
            else:
                self._remind(request, at)

    def _expire(self, request: Request, at: float) -> None:
        if (assignee := request.escalates_to) is not None and request.deadline_s is not None:
            request.escalate(assignee, at)
            if request.task:
                self._state.record(self._state.items.ref(request.task)).reason = request.waiting_reason
            self._requests.schedule_alarm(request)
            self._requests.notifications.append(Notification("escalated", request, at))
            return
        if isinstance(request.on_timeout, Mapping):
            source: MessageSource = "deadline"
            feedback = Feedback(request.id, request.on_timeout["default"], source=source)
            self.apply(request, default_answer(request), feedback, at)
            return
        self._requests.close(request, Closing("expired", at, source="deadline"))
        ref = self._state.items.ref(request.task)
        self._state.record(ref).reason = None
        message = f"{request.id!r} was not answered in time: {request.prompt}"
        self._propagation.end_failed_task(ref, NodeError("no_answer", message), at)

    def _remind(self, request: Request, at: float) -> None:
        assert request.next_reminder_at is not None
        assert request.reminder_s is not None
        missed_count = int((at - request.next_reminder_at) // request.reminder_s)
        request.next_reminder_at += (missed_count + 1) * request.reminder_s
        self._requests.schedule_alarm(request)
        self._requests.notifications.append(Notification("reminded", request, at))


def _closing_word(request: Request, answer: Any) -> str:
    if request.purpose == "budget":
        return "finish" if "finish" in answer else "more"
    if request.purpose == "error":
        return str(answer["action"])
    if request.type == "APPROVAL":
        return "approved" if answer["approved"] else "rejected"
    return "answered"
