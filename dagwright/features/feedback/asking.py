"""How a run asks people: which node asks first, what tools ask while they run, and what a run asks for itself.

What answers do is `dagwright.features.feedback.answering`, which builds on this.

Replay: a request opens in the event that made its node ready; ids, deadlines and order follow from that.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dagwright.core.expressions.compute_budget import TooMuchWork
from dagwright.core.expressions.questions import BadQuestion, request_of
from dagwright.core.expressions.resolution import MissingData, resolve_holes
from dagwright.core.expressions.stored_values import unfilled_places
from dagwright.core.model.answers import ERROR_CHOICES, size_problem
from dagwright.core.model.argument_checks import problem_of_call
from dagwright.core.model.compiled import inline_tools, tool_of
from dagwright.core.model.errors import NodeError
from dagwright.core.model.policy import INLINE_AGENT, LETTING_INLINE, REFUSED_INLINE, Policy, letting_run
from dagwright.core.model.requests import INPUTS, PLAN, Closing, Feedback, Purpose, Request
from dagwright.core.model.states import Attempt, NodeStatus, Record
from dagwright.core.scheduler.run_end import unreadable
from dagwright.core.validation.human_fields import question_raised
from dagwright.core.validation.inputs import schema_of_missing
from dagwright.features.explain.plan_text import plan_words
from dagwright.features.feedback.answer_reading import EARLY_BYTES, AnswerReader, refused_words
from dagwright.features.lookups.lookups import parties_of_call
from dagwright.features.lookups.uses import for_what

QUESTIONS_OF_A_CALL = 100
"""What one call may ask, one thing after the other: a tool that always asks, and a default that answers, never end."""
ANSWERS_BYTES = 512 * 1024
"""What one call may have been answered before it asks again: all of it goes out with the call."""
_FINAL_ERRORS = frozenset({"rejected", "refused", "no_answer", "invalid_condition", "deadline_exceeded"})
"""Failures that nobody is asked about: people or the plan have decided already."""

_NOBODY = "nobody is asked while a question is answered in rounds"
_BY_POLICY = f"the policy of the run wants an approval, and {_NOBODY}; a rule that lets the tool run lets it run"
_ASKS_NOBODY: Mapping[str, str] = {
    "approval": _BY_POLICY, "raised": f"it asks a person, and {_NOBODY}", "answer": f"it asks a person, and {_NOBODY}",
    "error": _NOBODY,
}  # fmt: skip
"""Purpose of a request -> why it is not opened."""


@dataclass(frozen=True, slots=True)
class Raised:
    """What a tool asked while it ran.

    Args:
        request: a text, or an object with the fields of `human` in a plan.
        checkpoint: JSON for its next call.
    """

    request: Any
    checkpoint: Any = None


class Asking(AnswerReader, ABC):
    """The part of a scheduler that asks people."""

    # What Readiness does.

    @abstractmethod
    def begin(self, at: float) -> None:
        """Makes the nodes ready that wait for nothing."""

    @abstractmethod
    def abort(self, error: NodeError, at: float, *, reason: str | None = None) -> None:
        """Ends the run with an error of its own."""

    @abstractmethod
    def _end(self, number: int, item: int, status: NodeStatus, at: float, *, error: NodeError | None = None) -> None:
        """Ends a node or an item."""

    @abstractmethod
    def _end_failed(self, number: int, item: int, error: NodeError, at: float) -> None:
        """Takes the failure of a node or an item."""

    @abstractmethod
    def settle(self, at: float) -> None:
        """Lets everything move on until nothing moves; an event ends with it."""

    @abstractmethod
    def _take_attempt(self, task_id: str, attempt: Attempt) -> tuple[int, int, Record] | None:
        """Takes what is told of the attempts of a running task, and gives back its slots."""

    # What Answering does.

    @abstractmethod
    def _take_early(self, request: Request, feedback: Feedback, at: float) -> None:
        """Takes an answer that was there before its request."""

    # What a driver asks.

    @property
    def next_alarm(self) -> float | None:
        """When `advance` is needed next, in seconds since the epoch."""
        return self.requests.next_alarm

    @property
    def policy_below(self) -> Policy:
        """The policy for sub-plans: what somebody approved for the whole run is not asked about there."""
        return letting_run(self.policy, self.requests.remembered)

    # Acts.

    def ask(self, task_id: str, asked: Raised, *, at: float, attempt: Attempt) -> str | None:
        """Takes the question of a running tool, which is started again with the answer in `Task.answers`.

        Returns:
            Why it cannot be asked, or `None`. An event for a task that is not running is ignored; one that was told to
            stop asks nobody, and is cancelled.
        """
        ended = self._take_attempt(task_id, attempt)
        if ended is None:
            return None
        number, item, _ = ended
        if self._is_told_to_stop(number, item):
            self._end(number, item, NodeStatus.CANCELLED, at)
            self.settle(at)
            return None
        problem = self._open_raised(number, item, asked, at=at)
        if problem is not None:
            self._end_failed(number, item, problem, at)
        self.settle(at)
        return problem.message if problem else None

    def ask_for_inputs(self, schema: Mapping[str, Any], at: float) -> None:
        """Asks for inputs, instead of `begin`, which comes with the answer.

        Args:
            schema: JSON Schema of an object with the inputs that are missing.
        """
        names = ", ".join(schema.get("required", ()))
        question = {"type": "INFORMATION", "prompt": f"The plan needs {names}", "schema": schema}
        try:
            request = request_of(question, INPUTS, task="", purpose="inputs", at=at)
        except BadQuestion as error:
            self.abort(error.error, at)
            return
        self.requests.add(request)
        if (early := self.requests.early.pop(INPUTS, None)) is not None:
            self._take_early(request, early, at)

    def begin_with_inputs(self, at: float) -> None:
        """Begins, or asks in one form for all inputs that are missing before anything runs."""
        missing = schema_of_missing(self.plan.inputs, self.inputs)
        if missing is None:
            self.begin(at)
        else:
            self.ask_for_inputs(missing, at)

    def ask_for_leave(self, at: float) -> None:
        """Asks whether the plan as it is may run, instead of `begin`, which comes with the answer."""
        request_id = PLAN if PLAN not in self._numbers else f"{PLAN}#0"
        question = {"type": "APPROVAL", "prompt": f"{plan_words(self.plan)}\nMay it run?"}
        self.requests.add(request_of(question, request_id, task="", purpose="plan", at=at))

    def cover(self, by: str) -> None:
        """Takes note that somebody approved the plan as it is: its nodes are not asked about one by one by policy."""
        self.changes.covered, self.changes.covered_by = self.plan.written_count, by

    def go_on_with_policy(self, policy: Policy) -> None:
        """Takes a policy that was changed already, before this scheduler was restored."""
        self.policy, self.policy_changed = policy, True
        self._may_ask = self._may_ask or not policy.lets_all_run

    # Asking.

    def _start(self, number: int, item: int, at: float) -> None:
        """Makes a task ready, or asks first if somebody has to be asked."""
        if self._may_ask and self._asks_first(number, item, at):
            return
        self._record(number, item).status = NodeStatus.READY
        self._queue.push((self.plan.nodes[number].priority, number, item))

    def _asks_first(self, number: int, item: int, at: float) -> bool:
        """Tells whether a task that could start asks somebody instead, or may not run at all."""
        try:
            asked = self._gate(number, item, at)
        except (MissingData, TooMuchWork) as error:
            asked = unreadable(error)
        if isinstance(asked, NodeError):
            self._end_failed(number, item, asked, at)
        return asked is not False

    def _gate(self, number: int, item: int, at: float) -> NodeError | bool:
        """Asks what a task has to ask before it starts; returns why it must not start, or whether it asked.

        Raises:
            MissingData, TooMuchWork: the question or the arguments cannot be resolved.
        """
        node = self.plan.nodes[number]
        if node.kind == "human":
            asked = resolve_holes(node.arguments, node.holes, scope=self.scope_of(number, item))
            return self._open(number, item, asked, purpose="answer", at=at) or True
        hand = self.by_hand.get(self.id_of((number, item)))
        is_asked = node.kind in ("tool", "plan") and self._chunk(number, item) is None
        # What a call did that could run may be taken back too; refused, half of it would stand.
        if not is_asked or node.undoes is not None:
            return False
        verdict = self._verdict_on(number, item)
        # Whoever wrote the plan says what is asked; what the policy of the run refuses stays refused.
        if verdict == "refuse":
            words = refused_words(node.tool) if node.kind == "tool" else f"{REFUSED_INLINE}; {LETTING_INLINE}"
            return NodeError("refused", words)
        if node.approval == "never" or (node.approval == "policy" and verdict == "run"):
            return False
        if hand is not None and hand.approved:
            return False
        if (problem := self._problem_of_arguments(number, item)) is not None:
            # Nobody is asked about what the tool would refuse.
            return NodeError("invalid_arguments", problem)
        question: Mapping[str, Any] = {}
        if isinstance(node.approval, Mapping):
            question = resolve_holes(node.approval, node.approval_holes, scope=self.scope_of(number, item))
        return self._open(number, item, question, purpose="approval", at=at) or True

    def _problem_of_arguments(self, number: int, item: int) -> str | None:
        """Returns why the tool of a node would not take its arguments, as far as the run knows.

        Raises:
            MissingData, TooMuchWork: they cannot be resolved.
        """
        node = self.plan.nodes[number]
        tool = self.plan.tools.get(node.tool)
        if node.kind != "tool" or tool is None or tool.input_schema is None:
            return None
        arguments = self._arguments_of(number, item)
        return problem_of_call(tool, arguments, unknown=[path for path, _ in unfilled_places(arguments)])

    def _can_ask(self, number: int) -> bool:
        """Tells whether the items of a node may ask people, which only the run itself can."""
        node = self.plan.nodes[number]
        if node.kind == "human" or node.on_error == "ask" or node.approval not in ("policy", "never"):
            return True
        if inline_tools(node) is not None:
            return self.policy.can_hold(INLINE_AGENT)
        tool = tool_of(node, self.plan.tools)
        return node.kind == "tool" and self.policy.can_hold(tool)

    def _verdict_on(self, number: int, item: int) -> str:
        node = self.plan.nodes[number]
        if node.kind == "tool":
            tool = tool_of(node, self.plan.tools)
            verdict = self.policy.verdict(tool, lambda: self._arguments_of(number, item))
        else:
            # The nodes of a sub-plan are asked about one by one.
            inside = inline_tools(node)
            verdict = "run" if inside is None else self.policy.verdict_on_inline(inside)
        is_approved = number < self.changes.covered or node.tool in self.requests.remembered
        return "run" if verdict == "ask" and is_approved else verdict

    def _open(
        self,
        number: int,
        item: int,
        question: Mapping[str, Any],
        *,
        purpose: Purpose,
        at: float,
        checkpoint: Any = None,
    ) -> NodeError | None:
        """Opens a request, and takes the answer if it is there already; returns why it cannot be asked."""
        if self.plan.asks_nobody:
            return NodeError("refused", _ASKS_NOBODY[purpose])
        node, record, task_id = self.plan.nodes[number], self._record(number, item), self.id_of((number, item))
        tool = (node.tool or node.title or node.id) if purpose == "approval" else ""
        try:
            request = request_of(
                question, self._free_id(task_id, task_id), task=task_id, purpose=purpose, tool=tool, at=at
            )
            if purpose == "approval":
                request.arguments = self._arguments_of(number, item)
                request.parties = parties_of_call(node, request.arguments, record_of=self.record_of) or None
        except BadQuestion as error:
            return error.error
        request.checkpoint = checkpoint
        record.status, record.reason = NodeStatus.WAITING, request.waits_for
        if purpose == "answer":
            record.started_at = at
            if self.records[number].started_at is None:
                self.records[number].started_at = at
        self.requests.add(request)
        if (early := self.requests.early.pop(request.id, None)) is not None:
            self._take_early(request, early, at)
        return None

    def _open_raised(self, number: int, item: int, asked: Raised, *, at: float) -> NodeError | None:
        """Opens the request of a tool that asks while it runs; returns why it cannot be asked."""
        task_id = self.id_of((number, item))
        hand = self.by_hand.get(task_id)
        answers = hand.answers if hand is not None else []
        if len(answers) >= QUESTIONS_OF_A_CALL:
            return NodeError("asks_too_often", f"it asked {QUESTIONS_OF_A_CALL} times, and asks again")
        if size_problem(answers, ANSWERS_BYTES) is not None:
            return NodeError("asks_too_much", f"its answers have over {ANSWERS_BYTES:,} bytes, and it asks again")
        if (problem := size_problem(asked.checkpoint, EARLY_BYTES)) is not None:
            return NodeError("invalid_question", f"its checkpoint cannot be kept: {problem}")
        try:
            question = question_raised(asked.request)
        except BadQuestion as error:
            return error.error
        if self.plan.nodes[number].kind == "lookup" and (needed := for_what(self.plan, task_id)):
            question["prompt"] = f"{question['prompt']} {needed}"
        return self._open(number, item, question, purpose="raised", at=at, checkpoint=asked.checkpoint)

    def _is_told_to_stop(self, number: int, item: int) -> bool:
        """Tells whether a task that has just ended was to end for good: with the run, or by itself."""
        return self.is_stopped or self.id_of((number, item)) in self.cancelling

    def _free_id(self, task_id: str, name: str) -> str:
        """Returns the id of the next request of a task; another node, or a request of the run, may be called so.

        Args:
            name: how its requests are called, which is its own id but for those of the run.
        """
        book = self.requests
        count = book.counts.get(task_id, 0)
        request_id = name if not count else f"{name}#{count + 1}"
        while request_id in book.open or request_id in book.closed or (count and self._items.find(request_id)):
            count += 1
            request_id = f"{name}#{count + 1}"
        book.counts[task_id] = count
        return request_id

    def _asks_about_error(self, number: int, item: int, error: NodeError, at: float) -> bool:
        """Asks what to do about a failure, if the node says so; tells whether it was asked."""
        node = self.plan.nodes[number]
        is_whole_map = item < 0 and node.for_each is not None
        if is_whole_map or error.code in _FINAL_ERRORS or self._chunk(number, item) is not None:
            return False
        if self._is_told_to_stop(number, item):
            return False
        prompt = f"{self.id_of((number, item))!r} failed: {error.message}. What is to be done?"
        question = {"type": "SELECTION", "prompt": prompt, "options": [*ERROR_CHOICES]}
        self._record(number, item).error = error
        return self._open(number, item, question, purpose="error", at=at) is None

    def _close_request(self, task_id: str, at: float) -> None:
        """Closes what a task asks that has ended in another way."""
        if (request := self.requests.of_task(task_id)) is not None:
            self.requests.close(request, Closing("closed", at))
