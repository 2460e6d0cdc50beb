"""Validation of answers: whether an answer can be accepted, and which requests it answers.

Validation changes nothing, so an answer can be rejected before the answer is in history.
`dagwright.features.feedback.answer_handling` applies accepted answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from dagwright.core.expressions.compute_budget import TOO_MUCH_AT_ONCE, ComputeBudget, ComputeBudgetExceeded
from dagwright.core.expressions.value_refs import encoded_size
from dagwright.core.model.answers import (
    BadAnswer,
    accepted_answers_key,
    adds_nodes,
    normalize_checked_answer,
    size_problem,
)
from dagwright.core.model.argument_checks import problem_of_call
from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.requests import INPUTS, Closing, Feedback, Request, task_id_without_number
from dagwright.core.model.states import TaskRef
from dagwright.core.model.tools import Effects, ToolDeclaration, effects_of_call
from dagwright.core.name_hints import suggestion
from dagwright.core.validation.inputs import schema_of_missing_inputs
from dagwright.features.feedback.approval_gate import rejection_message
from dagwright.features.feedback.feedback_state import (
    MAX_EARLY_ANSWER_BYTES,
    MAX_EARLY_ANSWERS,
    MAX_RUN_ANSWERS_BYTES,
    SHORT_ANSWER_BYTES,
    FeedbackState,
    RequestRegistry,
)
from dagwright.features.feedback.questions import BadQuestion, request_of
from dagwright.features.plan_edits.extension_checks import NodeCheck, rejection_of_new_arguments, with_new_arguments
from dagwright.features.plan_edits.sent_tools import tools_from_json

if TYPE_CHECKING:
    from dagwright.core.scheduler.extension import Extension
    from dagwright.core.scheduler.run_state import RunState

_MAX_COMPARED_IDS = 100
_MAX_COMPARED_CHARACTERS = 200
"""Longest request id that is compared with existing ids, in characters."""


@dataclass(frozen=True, slots=True)
class AcceptedAnswer:
    """An open request with its accepted answer.

    Args:
        answer: normal form of the answer; nodes in it are replaced with their ids.
        extension: extension that adds the nodes of the answer, or the node with new arguments, to the plan.
    """

    request: Request
    answer: Any
    extension: "Extension | None" = None


class AnswerValidator:
    """Validation of the answers to the requests of one run.

    Args:
        check_nodes: function that checks the nodes in an answer.
    """

    def __init__(self, state: "RunState", feedback: FeedbackState, check_nodes: NodeCheck) -> None:
        self._check_nodes = check_nodes
        self._state = state
        self._feedback = feedback

    @property
    def _requests(self) -> RequestRegistry:
        return self._feedback.requests

    def rejection_of(self, feedback: Feedback, at: float) -> str | None:
        """Return, without side effects, why an answer would be rejected now, or `None` if it would be accepted."""
        try:
            outcome = self.validate(feedback, at, check_budget=self._requests.precheck_budget)
        except ComputeBudgetExceeded:
            return TOO_MUCH_AT_ONCE
        return outcome if isinstance(outcome, str) else None

    def validate(
        self, feedback: Feedback, at: float, *, check_budget: ComputeBudget | None = None
    ) -> list[AcceptedAnswer] | str | None:
        """Match an answer to its open requests.

        Args:
            check_budget: compute budget for nodes in the answer; by default `RequestRegistry.check_budget`.

        Returns:
            The requests with their answers, a text that explains why the answer is rejected, or `None` if the answer
            is early and can be stored.

        Raises:
            ComputeBudgetExceeded: the remaining compute budget is too small.
        """
        request_id, registry = feedback.request_id, self._requests
        check_budget = check_budget or registry.check_budget
        check_budget.start(at)
        if (problem := size_problem([feedback.answer, feedback.by, feedback.note])) is not None:
            return problem
        if (request := registry.open.get(request_id)) is not None:
            return self.validate_for([request], feedback, at, check_budget=check_budget)
        if (closing := registry.closed.get(request_id)) is not None:
            return closing.reason(request_id)
        number = self._state.numbers.get(request_id)
        if number is not None and self._state.plan.nodes[number].for_each is not None:
            requests = self._requests_of_items(number)
            if not requests:
                return f"no item of {request_id!r} asks anything now"
            return self.validate_for(requests, feedback, at, check_budget=check_budget)
        return self._problem_of_early_answer(feedback, check_budget)

    def open_request_count(self, request_id: str) -> int:
        """Return how many open requests one answer with this request id answers.

        A node with `for_each` may have an open request for each item.
        """
        if request_id in self._requests.open:
            return 1
        number = self._state.numbers.get(request_id)
        return 0 if number is None else len(self._requests_of_items(number))

    def _requests_of_items(self, number: int) -> list[Request]:
        node_id = self._state.plan.nodes[number].id
        task_ids = [f"{node_id}[{item.key}]" for item in self._state.records[number].items]
        return [request for task_id in task_ids if (request := self._requests.of_task(task_id)) is not None]

    def _total_size_problem(self, feedback: Feedback, request_count: int) -> str | None:
        """Return why an answer exceeds the limit of stored answers, or `None`; short answers are always accepted."""
        size, stored_bytes = encoded_size(feedback.answer), self._requests.stored_bytes
        if size <= SHORT_ANSWER_BYTES or stored_bytes + size * request_count <= MAX_RUN_ANSWERS_BYTES:
            return None
        requests_text = f" to {request_count:,} requests" if request_count > 1 else ""
        return (
            f"an answer of {size:,} bytes{requests_text} is too much: "
            f"people may send {MAX_RUN_ANSWERS_BYTES:,} bytes to a run in total, and {stored_bytes:,} are stored; "
            f"answers of at most {SHORT_ANSWER_BYTES:,} bytes, such as a file name, are always accepted"
        )

    def validate_for(
        self, requests: list[Request], feedback: Feedback, at: float, *, check_budget: ComputeBudget | None = None
    ) -> list[AcceptedAnswer] | str:
        """Check one answer to several requests; if it is invalid for any of them, return why it is rejected."""
        check_budget = check_budget or self._requests.check_budget
        check_budget.start(at)
        accepted_answers: list[AcceptedAnswer] = []
        answers_by_question: dict[bytes, Any] = {}
        for request in requests:
            if request.deadline_at is not None and request.deadline_at <= at and request.escalates_to is None:
                return Closing("expired", request.deadline_at).reason(request.id)
            if (rejection := request.rejection_of(feedback)) is not None:
                return rejection
            # Items of a map usually have the same question. An answer may be large, so it is checked once per question.
            key = accepted_answers_key(request)
            try:
                if key not in answers_by_question:
                    answers_by_question[key] = normalize_checked_answer(request, feedback.answer)
                    self.check_arguments(request, answers_by_question[key])
                if adds_nodes(request, answers_by_question[key]):
                    size_problem_of_answer = self._total_size_problem(feedback, 1)
                    return size_problem_of_answer or self._with_extension(
                        request, answers_by_question[key], request_count=len(requests), check_budget=check_budget
                    )
            except BadAnswer as error:
                return f"{request.id!r}: {error}"
            accepted_answers.append(AcceptedAnswer(request, answers_by_question[key]))
        return self._total_size_problem(feedback, len(accepted_answers)) or accepted_answers

    def _with_extension(
        self, request: Request, answer: Mapping[str, Any], *, request_count: int, check_budget: ComputeBudget
    ) -> list[AcceptedAnswer]:
        """Return an answer that changes the plan, together with the extension.

        Args:
            request_count: number of requests to which the answer applies.

        Raises:
            BadAnswer: the plan cannot be extended by the nodes.
        """
        if request.purpose == "error":
            return [AcceptedAnswer(request, answer, self._extension_by_arguments(request, answer["arguments"]))]
        if request_count > 1:
            raise BadAnswer(
                f"the nodes in the answer would be added for {request_count:,} items; answer one item, by its own id"
            )
        extension = self._extension_by_nodes(answer, check_budget)
        ids = [node.id for node in extension.nodes]
        return [AcceptedAnswer(request, {"text": answer["text"], "nodes": ids}, extension)]

    def _extension_by_arguments(self, request: Request, arguments: Mapping[str, Any]) -> "Extension":
        ref = self._state.items.ref(request.task)
        if (rejection := rejection_of_new_arguments(self._state, ref)) is not None:
            raise BadAnswer(rejection)
        return with_new_arguments(self._state, ref.node, arguments)

    def _extension_by_nodes(self, answer: Mapping[str, Any], check_budget: ComputeBudget) -> "Extension":
        """Return the extension that adds the nodes of an answer to the current plan.

        Raises:
            BadAnswer: the nodes are invalid.
            ComputeBudgetExceeded: the compute budget of the current activation is used up.
        """
        try:
            tools = tools_from_json(answer.get("tools"))
        except ValueError as error:
            raise BadAnswer(str(error)) from None
        extension = self._check_nodes(answer["nodes"], tools=tools, budget=check_budget)
        if isinstance(extension, str):
            raise BadAnswer(extension)
        return extension

    def check_arguments(self, request: Request, answer: Any) -> None:
        """Check the arguments in an answer to an approval request or to a request about an error.

        Raises:
            BadAnswer: the arguments are not allowed.
        """
        if request.purpose not in ("approval", "error") or "arguments" not in answer:
            return
        node = self._state.node_of(request.task)
        tool = self._state.plan.tools.get(node.tool) or ToolDeclaration(node.tool)
        if node.kind == "tool" and (problem := problem_of_call(tool, answer["arguments"])) is not None:
            raise BadAnswer(problem)
        if request.purpose == "error":
            return
        depends_on_policy = node.kind == "tool" and node.approval == "policy"
        effects = (
            effects_of_call(tool, answer["arguments"]) if isinstance(answer["arguments"], Mapping) else tool.effects
        )
        if (
            depends_on_policy
            and self._state.policy.verdict(replace(tool, effects=effects), lambda: answer["arguments"]) == "deny"
        ):
            raise BadAnswer(rejection_message(node.tool))

    def _problem_of_early_answer(self, feedback: Feedback, check_budget: ComputeBudget) -> str | None:
        """Return why an answer to a request that is not open yet cannot be stored, or `None`."""
        request_id, registry = feedback.request_id, self._requests
        if request_id == INPUTS and self._will_request_inputs():
            return self._early_storage_problem(feedback) or self._total_size_problem(feedback, 1)
        ref = self.find_requester(request_id)
        if ref is None:
            # Only some ids are compared: a run may have 100,000 ids.
            known_ids = [*islice(chain(registry.open, self._state.numbers), _MAX_COMPARED_IDS)]
            can_compare = registry.hint_budget.remaining > 0 and len(request_id) <= _MAX_COMPARED_CHARACTERS
            hint = suggestion(request_id, known_ids) if can_compare else None
            return f"there is no request {request_id!r:.200}" + (f"; {hint}" if hint else "")
        record = self._state.record(ref)
        if record.status.is_final or self._state.is_finished:
            return f"{request_id!r} asks nothing: it is {record.status.value}"
        if self._state.plan.nodes[ref.node].kind == "lookup" and request_id != self._state.id_of(ref):
            # The next question of a lookup is unknown, so an early answer cannot be checked.
            open_request = registry.of_task(self._state.id_of(ref))
            open_text = f"; {open_request.id!r} is open" if open_request is not None else ""
            return f"{request_id!r} is not open: the questions of a lookup depend on earlier answers{open_text}"
        if (reason := self._reason_without_request(self._state.plan.nodes[ref.node])) is not None:
            return f"{request_id!r} never asks: {reason}"
        if (mismatch := _mismatch_with_question(self._state.plan.nodes[ref.node], feedback)) is not None:
            return mismatch
        rejection = self._early_storage_problem(feedback) or self._total_size_problem(feedback, 1)
        return rejection or self._problem_of_nodes(feedback, check_budget)

    def _will_request_inputs(self) -> bool:
        """Return whether the run will request inputs after its plan is approved."""
        run_request = self._requests.of_task("")
        is_plan_open = run_request is not None and run_request.purpose == "plan"
        return is_plan_open and schema_of_missing_inputs(self._state.plan.inputs, self._state.inputs) is not None

    def _early_storage_problem(self, feedback: Feedback) -> str | None:
        request_id, registry = feedback.request_id, self._requests
        if not isinstance(feedback.answer, Mapping):
            return f'{request_id!r} has not asked yet, and an early answer must be an object such as {{"text": "…"}}'
        if request_id in registry.early_answers:
            by = registry.early_answers[request_id].by or "a user without a name"
            return f"{request_id!r} has not asked yet, and an answer of {by} is stored already"
        if len(registry.early_answers) >= MAX_EARLY_ANSWERS:
            return f"{request_id!r} has not asked yet, and the maximum of {MAX_EARLY_ANSWERS:,} early answers is stored"
        return size_problem([feedback.answer, feedback.by, feedback.note], MAX_EARLY_ANSWER_BYTES)

    def _problem_of_nodes(self, feedback: Feedback, check_budget: ComputeBudget) -> str | None:
        """Return why the nodes in an early answer are invalid for the current plan, or `None`."""
        answer = feedback.answer
        if not isinstance(answer, Mapping) or not isinstance(answer.get("nodes"), list) or not answer["nodes"]:
            return None
        try:
            self._extension_by_nodes(answer, check_budget)
        except BadAnswer as error:
            return f"{feedback.request_id!r}: {error}"
        return None

    def _reason_without_request(self, node: CompiledNode) -> str | None:
        """Return why a node opens no request under any policy, or `None`."""
        tool = self._state.plan.tools.get(node.tool)
        if node.on_error == "ask" or node.approval not in ("policy", "never"):
            return None
        if node.kind == "plan":
            return f"answer the node of its sub-plan, such as {node.id}/check"
        return "it calls a `pure` tool" if tool is not None and tool.effects is Effects.PURE else None

    def find_requester(self, request_id: str) -> TaskRef | None:
        """Return the node or item that may open a request with this id; the node if the item is not created yet."""
        for task_id in dict.fromkeys((request_id, task_id_without_number(request_id))):
            if (ref := self._state.items.find(task_id)) is not None:
                return None if self._state.plan.nodes[ref.node].kind == "region" else ref
            start = task_id.find("[")
            while task_id.endswith("]") and start > 0:
                number = self._state.numbers.get(task_id[:start])
                if number is not None and self._state.plan.nodes[number].for_each is not None:
                    return TaskRef(number) if not self._state.records[number].items else None
                start = task_id.find("[", start + 1)
        return None


_ANSWER_FORMAT_FIELDS = ("type", "options", "multiple", "allow_text", "schema", "channel")
"""Fields of a question that determine the valid answers."""


def _mismatch_with_question(node: CompiledNode, feedback: Feedback) -> str | None:
    """Return why an early answer cannot be valid for the question of a node, if the plan determines the question.

    A stored invalid answer would block a valid answer until the node opens its request.
    """
    if node.kind != "human" or any(path[0] in _ANSWER_FORMAT_FIELDS for path, _ in node.bindings):
        return None
    question = {name: node.arguments[name] for name in _ANSWER_FORMAT_FIELDS if name in node.arguments}
    try:
        request = request_of({**question, "prompt": "…"}, feedback.request_id, task=node.id, purpose="answer", at=0.0)
        if (rejection := request.rejection_of(feedback)) is not None:
            return rejection
        normalize_checked_answer(request, feedback.answer)
    except BadQuestion:
        return None
    except BadAnswer as error:
        return f"{feedback.request_id!r} has not asked yet, and its question does not accept this: {error}"
    return None
