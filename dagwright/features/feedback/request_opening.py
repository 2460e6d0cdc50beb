"""Opening of requests to people: by a node, by a running tool, after a failure, or for the whole run.

Replay: a request opens while the run handles the event that made the node ready, so the event determines the id, the
deadline and the order of requests. History readers derive the same requests from the same events.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dagwright.core.model.answers import ERROR_ACTIONS, size_problem
from dagwright.core.model.requests import Closing, Feedback, Purpose, RaisedQuestion, Request
from dagwright.core.model.states import NodeError, NodeStatus, TaskRef
from dagwright.features.feedback.feedback_state import MAX_CHECKPOINT_BYTES, FeedbackState
from dagwright.features.feedback.questions import BadQuestion, request_of, validate_question_fields

if TYPE_CHECKING:
    from dagwright.core.scheduler.run_state import RunState

MAX_REQUESTS_OF_CALL = 100
"""Maximum number of requests of one call. Without a limit, a tool that always asks and gets default answers would
never end."""
MAX_CALL_ANSWERS_BYTES = 512 * 1024
"""Size limit of all answers to one call, because each repetition of the call receives all of them."""
_FINAL_ERRORS = frozenset({"rejected", "not_allowed", "no_answer", "invalid_condition", "deadline_exceeded"})
"""Failures that do not open a request, because people or the plan have already decided."""

_NO_REQUESTS = "no requests to people are opened while a question is answered in rounds"
_APPROVAL_REJECTION = (
    f"the policy of the run requires an approval, but {_NO_REQUESTS}; add a rule that lets the tool run"
)
_REJECTION_OF_PURPOSE: Mapping[str, str] = {
    "approval": _APPROVAL_REJECTION,
    "raised": f"it asks a person, but {_NO_REQUESTS}",
    "answer": f"it asks a person, but {_NO_REQUESTS}",
    "error": _NO_REQUESTS,
}
"""Purpose of a request -> error message of a non-interactive run."""

EarlyAnswerHandler = Callable[[Request, Feedback, float], None]


class RequestOpener:
    """Opening and closing of the requests of one run.

    Args:
        on_early_answer: handler of an answer that arrived before its request.
        on_open: function that is called before a request is added.
    """

    def __init__(
        self,
        state: "RunState",
        feedback: FeedbackState,
        *,
        on_early_answer: EarlyAnswerHandler,
        on_open: Callable[[], None],
    ) -> None:
        self._state = state
        self._feedback = feedback
        self._on_early_answer = on_early_answer
        self._on_open = on_open

    def open(
        self, ref: TaskRef, question: Mapping[str, Any], *, purpose: Purpose, at: float, checkpoint: Any = None
    ) -> NodeError | None:
        """Open a request, and apply an early answer to it; return the error if the request is rejected."""
        state = self._state
        if state.plan.is_non_interactive:
            return NodeError("not_allowed", _REJECTION_OF_PURPOSE[purpose])
        node, record, task_id = state.plan.nodes[ref.node], state.record(ref), state.id_of(ref)
        tool = (node.tool or node.title or node.id) if purpose == "approval" else ""
        try:
            request_id = self.free_id(task_id, task_id)
            request = request_of(question, request_id, task=task_id, purpose=purpose, tool=tool, at=at)
        except BadQuestion as error:
            return error.error
        if purpose == "approval":
            request.arguments = state.arguments_of(ref)
            entities = state.options.resolver.entities_in_call(node, request.arguments, state.record_of)
            request.entities = entities or None
        request.checkpoint = checkpoint
        record.status, record.reason = NodeStatus.WAITING, request.waiting_reason
        if purpose == "answer":
            record.started_at = at
            if state.records[ref.node].started_at is None:
                state.records[ref.node].started_at = at
        self.add(request)
        self.apply_early_answer(request, at)
        return None

    def add(self, request: Request) -> None:
        """Add a request."""
        self._on_open()
        self._feedback.requests.add(request)

    def apply_early_answer(self, request: Request, at: float) -> None:
        """Apply an early answer to a request, if there is one."""
        if (early_answer := self._feedback.requests.early_answers.pop(request.id, None)) is not None:
            self._on_early_answer(request, early_answer, at)

    def open_tool_request(self, ref: TaskRef, raised_question: RaisedQuestion, *, at: float) -> NodeError | None:
        """Open the request of a running tool; return the error if the request is rejected."""
        state, task_id = self._state, self._state.id_of(ref)
        override = state.overrides.get(task_id)
        answers = override.answers if override is not None else []
        if len(answers) >= MAX_REQUESTS_OF_CALL:
            return NodeError("too_many_human_requests", f"it asked {MAX_REQUESTS_OF_CALL} times, and asks again")
        if size_problem(answers, MAX_CALL_ANSWERS_BYTES) is not None:
            return NodeError(
                "answers_too_large", f"its answers have over {MAX_CALL_ANSWERS_BYTES:,} bytes, and it asks again"
            )
        if (problem := size_problem(raised_question.checkpoint, MAX_CHECKPOINT_BYTES)) is not None:
            return NodeError("invalid_human_request", f"its checkpoint cannot be stored: {problem}")
        try:
            question = validate_question_fields(raised_question.request)
        except BadQuestion as error:
            return error.error
        if state.plan.nodes[ref.node].kind == "lookup":
            use_text = state.options.resolver.describe_use(state.plan, task_id)
            question["prompt"] = f"{question['prompt']} {use_text}" if use_text else question["prompt"]
        return self.open(ref, question, purpose="raised", at=at, checkpoint=raised_question.checkpoint)

    def open_for_error(self, ref: TaskRef, error: NodeError, at: float) -> bool:
        """Open a request about a failure if people can decide about it; return whether a request was opened."""
        state = self._state
        is_for_each_node = ref.item is None and state.plan.nodes[ref.node].for_each is not None
        if is_for_each_node or error.code in _FINAL_ERRORS or state.map_batch(ref) is not None:
            return False
        prompt = f"{state.id_of(ref)!r} failed: {error.message}. What should be done?"
        question = {"type": "SELECTION", "prompt": prompt, "options": [*ERROR_ACTIONS]}
        state.record(ref).error = error
        return self.open(ref, question, purpose="error", at=at) is None

    def free_id(self, task_id: str, base_id: str) -> str:
        """Return an unused id for the next request of a task: `base_id`, or `base_id` with a number, such as `check#2`.

        Args:
            base_id: id without a number: the task id, except for requests of the run.
        """
        registry = self._feedback.requests
        count = registry.request_counts.get(task_id, 0)
        request_id = base_id if not count else f"{base_id}#{count + 1}"
        while (
            request_id in registry.open
            or request_id in registry.closed
            or (count and self._state.items.find(request_id))
        ):
            count += 1
            request_id = f"{base_id}#{count + 1}"
        registry.request_counts[task_id] = count
        return request_id

    def close(self, task_id: str, at: float) -> None:
        """Close the unanswered request of a task that has ended, if there is one."""
        if (request := self._feedback.requests.of_task(task_id)) is not None:
            self._feedback.requests.close(request, Closing("closed", at))
