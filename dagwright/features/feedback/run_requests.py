"""Requests of the run itself: whether its plan may run, inputs that are missing, and what other components ask."""

from collections.abc import Mapping
from typing import Any

from dagwright.core.expressions.questions import BadQuestion, request_of
from dagwright.core.model.requests import INPUTS, PLAN, Feedback, Purpose
from dagwright.core.scheduler.scheduler import Scheduler
from dagwright.core.validation.inputs import schema_of_missing
from dagwright.features.feedback.answer_handling import RunAnswer, rejection
from dagwright.features.feedback.plan_text import plan_words
from dagwright.features.feedback.request_opening import RequestOpener
from dagwright.features.feedback.state import FeedbackState


class RunRequests:
    """Opens the requests of a run that belong to none of its nodes.

    Args:
        run_answers: purpose of such a request -> what applies its answer; other components add theirs.
    """

    def __init__(
        self,
        scheduler: Scheduler[Any],
        feedback: FeedbackState,
        opener: RequestOpener,
        *,
        run_answers: dict[Purpose, RunAnswer],
    ) -> None:
        self._scheduler = scheduler
        self._state = scheduler.state
        self._feedback = feedback
        self._opener = opener
        self.run_answers = run_answers
        run_answers["plan"], run_answers["inputs"] = self._apply_plan_answer, self._apply_inputs

    def ask_for_approval(self, at: float) -> None:
        """Ask whether the plan may run, instead of `Scheduler.begin`, which comes with the answer."""
        request_id = PLAN if PLAN not in self._state.numbers else f"{PLAN}#0"
        question = {"type": "APPROVAL", "prompt": f"{plan_words(self._state.plan)}\nMay it run?"}
        self._opener.add(request_of(question, request_id, task="", purpose="plan", at=at))

    def begin(self, at: float) -> None:
        """Start the run, or ask in one form for all inputs that are missing before anything runs."""
        missing = schema_of_missing(self._state.plan.inputs, self._state.inputs)
        if missing is None:
            self._scheduler.begin(at)
        else:
            self._ask_for_inputs(missing, at)

    def _ask_for_inputs(self, schema: Mapping[str, Any], at: float) -> None:
        """Ask for inputs, instead of `Scheduler.begin`, which comes with the answer.

        Args:
            schema: JSON Schema of an object with the inputs that are missing.
        """
        names = ", ".join(schema.get("required", ()))
        question = {"type": "INFORMATION", "prompt": f"The plan needs {names}", "schema": schema}
        try:
            request = request_of(question, INPUTS, task="", purpose="inputs", at=at)
        except BadQuestion as error:
            self._scheduler.abort(error.error, at)
            return
        self._opener.add(request)
        self._opener.apply_early(request, at)

    def approve_plan(self, by: str) -> None:
        """Record that a person approved the plan as it is: the policy then asks about none of its nodes."""
        self._feedback.approved_nodes, self._feedback.approved_by = self._state.plan.written_count, by

    def _apply_plan_answer(self, answer: Any, feedback: Feedback, at: float) -> None:
        if answer["approved"]:
            self.approve_plan(feedback.by)
            self.begin(at)
        else:
            self._scheduler.abort(rejection(answer, feedback), at)

    def _apply_inputs(self, answer: Any, feedback: Feedback, at: float) -> None:  # noqa: ARG002 - a RunAnswer
        self._feedback.given_inputs.update(answer["data"])
        self._state.inputs.update(answer["data"])
        self._scheduler.begin(at)

    def is_asking(self, task: str) -> bool:
        """Tell whether a task, or the run under the name of one, has an open request."""
        return self._feedback.requests.of_task(task) is not None

    def ask_for_run(self, question: Mapping[str, Any], *, task: str, name: str, purpose: Purpose, at: float) -> None:
        """Open a request of the run.

        Args:
            task: stands for the run where the request has its task.
            name: base of the id of the request.
        """
        self._opener.add(request_of(question, self._opener.free_id(task, name), task=task, purpose=purpose, at=at))

    def close_request(self, task: str, at: float) -> None:
        """Close the open request of a task, if it has one."""
        self._opener.close(task, at)
