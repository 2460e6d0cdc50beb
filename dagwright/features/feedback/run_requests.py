"""Requests that belong to no node: approval of the plan, missing inputs, and requests of other components."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dagwright.core.compiler.plan_text import plan_summary
from dagwright.core.model.requests import INPUTS, PLAN, Feedback, Purpose
from dagwright.core.validation.inputs import schema_of_missing_inputs
from dagwright.features.feedback.approval_gate import rejection_error
from dagwright.features.feedback.feedback_state import FeedbackState, RunAnswerApplier
from dagwright.features.feedback.questions import BadQuestion, request_of

if TYPE_CHECKING:
    from dagwright.core.scheduler.scheduler import Scheduler
    from dagwright.features.feedback.request_opening import RequestOpener


class RunRequests:
    """Requests of a run that do not belong to a node.

    Args:
        run_answer_appliers: purpose of the request -> function that applies its answer; other components add entries.
    """

    def __init__(
        self,
        scheduler: "Scheduler[Any]",
        feedback: FeedbackState,
        opener: "RequestOpener",
        *,
        run_answer_appliers: dict[Purpose, RunAnswerApplier],
    ) -> None:
        self._scheduler = scheduler
        self._state = scheduler.state
        self._feedback = feedback
        self._opener = opener
        self.run_answer_appliers = run_answer_appliers
        run_answer_appliers["plan"], run_answer_appliers["inputs"] = self._apply_plan_answer, self._apply_inputs

    def ask_for_approval(self, at: float) -> None:
        """Request the approval of the plan; the answer starts the run."""
        request_id = PLAN if PLAN not in self._state.numbers else f"{PLAN}#0"
        question = {"type": "APPROVAL", "prompt": f"{plan_summary(self._state.plan)}\nMay it run?"}
        self._opener.add(request_of(question, request_id, task="", purpose="plan", at=at))

    def start_or_request_inputs(self, at: float) -> None:
        """Start the run, or request all missing inputs in one form first."""
        missing_schema = schema_of_missing_inputs(self._state.plan.inputs, self._state.inputs)
        if missing_schema is None:
            self._scheduler.start(at)
        else:
            self._ask_for_inputs(missing_schema, at)

    def _ask_for_inputs(self, schema: Mapping[str, Any], at: float) -> None:
        """Request the missing inputs; the answer starts the run.

        Args:
            schema: JSON Schema of an object with the missing inputs.
        """
        names = ", ".join(schema.get("required", ()))
        question = {"type": "INFORMATION", "prompt": f"The plan needs {names}", "schema": schema}
        try:
            request = request_of(question, INPUTS, task="", purpose="inputs", at=at)
        except BadQuestion as error:
            self._scheduler.abort(error.error, at)
            return
        self._opener.add(request)
        self._opener.apply_early_answer(request, at)

    def approve_plan(self, by: str) -> None:
        """Record that a person approved the plan, so that the policy requires no approval of its nodes."""
        self._feedback.approved_node_count, self._feedback.approved_by = self._state.plan.visible_count, by

    def _apply_plan_answer(self, answer: Any, feedback: Feedback, at: float) -> None:
        if answer["approved"]:
            self.approve_plan(feedback.by)
            self.start_or_request_inputs(at)
        else:
            self._scheduler.abort(rejection_error(answer, feedback), at)

    def _apply_inputs(self, answer: Any, feedback: Feedback, at: float) -> None:  # noqa: ARG002 - a RunAnswerApplier
        self._feedback.given_inputs.update(answer["data"])
        self._state.inputs.update(answer["data"])
        self._scheduler.start(at)

    def is_asking(self, task: str) -> bool:
        """Return whether a task has an open request. Requests of the run have reserved task names."""
        return self._feedback.requests.of_task(task) is not None

    def ask_for_run(self, question: Mapping[str, Any], *, task: str, base_id: str, purpose: Purpose, at: float) -> None:
        """Open a request that belongs to the run, not to a node.

        Args:
            task: reserved name that the request has in place of the id of a task; it identifies the kind of request.
            base_id: id of the first request for the task; later ids have a number too, such as `budget#2`.
        """
        self._opener.add(request_of(question, self._opener.free_id(task, base_id), task=task, purpose=purpose, at=at))

    def close_request(self, task: str, at: float) -> None:
        """Close the open request of a task, if there is one."""
        self._opener.close(task, at)
