"""How a run asks people: when a node asks first, what an answer does, and what happens when time passes.

Every act of a person is one pure function of the scheduler, which says why it is refused or does it. The driver tells
the time with `advance` before each batch of events, so that a deadline is met at the same moment by whoever follows.
What an answer brings about, moving nodes on and ending them, is `dagwright.plan.readiness`, which builds on this.

Replay: a request opens in the event that made its node ready; ids, deadlines and order follow from that.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dagwright.plan.answer_reading import EARLY_BYTES, AnswerReader, Taken, refused_words, without_number
from dagwright.plan.answers import (
    ERROR_CHOICES,
    BadAnswer,
    default_answer,
    grows,
    normal_answer,
    size_of,
    size_problem,
    told_arguments,
)
from dagwright.plan.arguments import problem_of_call
from dagwright.plan.by import By
from dagwright.plan.errors import NodeError
from dagwright.plan.extension import Extension
from dagwright.plan.human_fields import question_raised
from dagwright.plan.inputs import schema_of_missing
from dagwright.plan.plan_words import plan_words
from dagwright.plan.policy import Policy, letting_run
from dagwright.plan.questions import BadQuestion, request_of
from dagwright.plan.requests import INPUTS, PLAN, Closing, Feedback, Notice, Purpose, Request, Through
from dagwright.plan.resolution import MissingData, resolve_holes
from dagwright.plan.run_end import unreadable
from dagwright.plan.states import Attempt, NodeStatus, Record
from dagwright.plan.stored import unfilled_places
from dagwright.plan.tools import ToolDeclaration
from dagwright.plan.work import TOO_MUCH_AT_ONCE, TooMuchWork

QUESTIONS_OF_A_CALL = 100
"""What one call may ask, one thing after the other: a tool that always asks, and a default that answers, never end."""
ANSWERS_BYTES = 512 * 1024
"""What one call may have been answered before it asks again: all of it goes out with the call."""
_FINAL_ERRORS = frozenset({"rejected", "refused", "no_answer", "invalid_condition", "deadline_exceeded"})
"""Failures that nobody is asked about: people or the plan have decided already."""


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
    def abort(self, error: NodeError, at: float) -> None:
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
    def _take_back(self, task_id: str, attempt: Attempt) -> tuple[int, int, Record] | None:
        """Gives back the slots of a running task."""

    # What Remaking and Rationing do.

    @abstractmethod
    def spend_remaking(self, at: float) -> None:
        """Takes what it costs that the plan grows off the work of this moment."""

    @abstractmethod
    def _grow(self, extension: Extension, by: By, *, at: float, request: str | None) -> None:
        """Adds nodes to the plan, and moves on what hangs on them; its cost has been spent."""

    @abstractmethod
    def _take_budget(self, answer: Mapping[str, Any], at: float) -> None:
        """Does what somebody answered who was asked for more budget."""

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

    def answer(self, feedback: Feedback, at: float) -> str | None:
        """Takes an answer; returns why it is refused, or `None`."""
        self.advance(at)
        self.requests.hints.start(at)
        try:
            read = self._read(feedback, at)
            if isinstance(read, list):
                self._take_all(read, feedback, at)
        except TooMuchWork:
            return TOO_MUCH_AT_ONCE
        if isinstance(read, str):
            self.requests.hints.left -= 1
            return read
        if read is None:
            self._keep_early(feedback)
        self.requests.kept_bytes += size_of(feedback.answer) * (1 if read is None else len(read))
        self.settle(at)
        return None

    def advance(self, at: float) -> None:
        """Deals with every deadline and reminder that is due."""
        while (request := self.requests.take_due(at)) is not None:
            if request.deadline_at is not None and request.deadline_at <= at:
                self._expire(request, at)
            else:
                self._remind(request, at)
        self.settle(at)

    def ask(self, task_id: str, asked: Raised, *, at: float, attempt: Attempt) -> str | None:
        """Takes the question of a running tool, which is started again with the answer in `Task.answers`.

        Returns:
            Why it cannot be asked, or `None`. An event for a task that is not running is ignored; one that was told to
            stop asks nobody, and is cancelled.
        """
        ended = self._take_back(task_id, attempt)
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

    def set_policy(self, policy: Policy, at: float, *, by: str = "") -> None:
        """Changes who has to be asked: what waits for an approval that is not asked for any more goes on, or fails."""
        self.go_on_with_policy(policy)
        self._release(at, by=by, what="policy changed")
        self.settle(at)

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
            asked = resolve_holes(node.arguments, node.holes, scope=self._scope_of(number, item))
            return self._open(number, item, asked, purpose="answer", at=at) or True
        hand = self.by_hand.get(self._task_id(number, item))
        is_asked = node.kind in ("tool", "plan") and self._chunk(number, item) is None
        if not is_asked:
            return False
        verdict = self._verdict_on(number, item)
        # Whoever wrote the plan says what is asked; what the policy of the run refuses stays refused.
        if verdict == "refuse":
            return NodeError("refused", refused_words(node.tool))
        if node.approval == "never" or (node.approval == "policy" and verdict == "run"):
            return False
        if hand is not None and hand.approved:
            return False
        if (problem := self._problem_of_arguments(number, item)) is not None:
            # Nobody is asked about what the tool would refuse.
            return NodeError("invalid_arguments", problem)
        question: Mapping[str, Any] = {}
        if isinstance(node.approval, Mapping):
            question = resolve_holes(node.approval, node.approval_holes, scope=self._scope_of(number, item))
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
        tool = self.plan.tools.get(node.tool) or ToolDeclaration(node.tool)
        return node.kind == "tool" and self.policy.can_hold(tool)

    def _verdict_on(self, number: int, item: int) -> str:
        node = self.plan.nodes[number]
        if node.kind != "tool":
            # The nodes of a sub-plan are asked about one by one.
            return "run"
        tool = self.plan.tools.get(node.tool) or ToolDeclaration(node.tool)
        verdict = self.policy.verdict(tool, lambda: self._arguments_of(number, item))
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
        node, record, task_id = self.plan.nodes[number], self._record(number, item), self._task_id(number, item)
        tool = (node.tool or node.title or node.id) if purpose == "approval" else ""
        try:
            request = request_of(
                question, self._free_id(task_id, task_id), task=task_id, purpose=purpose, tool=tool, at=at
            )
            if purpose == "approval":
                request.arguments = self._arguments_of(number, item)
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
        task_id = self._task_id(number, item)
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
        return self._open(number, item, question, purpose="raised", at=at, checkpoint=asked.checkpoint)

    def _is_told_to_stop(self, number: int, item: int) -> bool:
        """Tells whether a task that has just ended was to end for good: with the run, or by itself."""
        return self._stopped or self._task_id(number, item) in self.cancelling

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
        prompt = f"{self._task_id(number, item)!r} failed: {error.message}. What is to be done?"
        question = {"type": "SELECTION", "prompt": prompt, "options": [*ERROR_CHOICES]}
        self._record(number, item).error = error
        return self._open(number, item, question, purpose="error", at=at) is None

    # Answers.

    def _keep_early(self, feedback: Feedback) -> None:
        place = self._place_of_request(feedback.request)
        # The inputs of the run belong to no node.
        self.requests.keep_early(feedback, place[0] if place is not None else -1)

    def _drop_early(self, number: int, item: int) -> None:
        """Drops the answers that were kept for a node or item, which has ended; of the last one, all."""
        book = self.requests
        names = book.early_of.get(number, ())
        if item >= 0:
            task_id = self._task_id(number, item)
            names = [name for name in names if task_id in (name, without_number(name))]
        elif not self._unfinished:
            names = [*book.early]
        for name in names:
            book.drop_early(name)
        if item < 0:
            book.early_of.pop(number, None)

    def _take_early(self, request: Request, feedback: Feedback, at: float) -> None:
        try:
            answer = normal_answer(request, feedback.answer)
            self._look_at_arguments(request, answer)
        except BadAnswer as error:
            by = feedback.by or "somebody"
            self.requests.refusals.append(f"the early answer of {by} to {request.id!r} does not fit: {error}")
            return
        if grows(request, answer):
            # What is just moving on would be moved on in a plan that is another one.
            self.requests.due.append(replace(feedback, request=request.id))
        else:
            self._take(request, answer, feedback, at)

    def _take_due(self, feedback: Feedback, at: float) -> None:
        """Takes an early answer by which the plan grows, or says why not; its request stays open then."""
        if (request := self.requests.open.get(feedback.request)) is None:
            return
        by = feedback.by or "somebody"
        try:
            read = self._read_all([request], feedback, at)
            if not isinstance(read, str):
                self._take_all(read, feedback, at)
                return
            refusal = f"does not fit: {read}"
        except TooMuchWork:
            refusal = f"to {request.id!r} was not taken: {TOO_MUCH_AT_ONCE}"
        self.requests.refusals.append(f"the early answer of {by} {refusal}")

    def _take_all(self, read: Sequence[Taken], feedback: Feedback, at: float) -> None:
        """Does what an answer to one or more requests says.

        Raises:
            TooMuchWork: too much is done at this moment; nothing has changed.
        """
        for taken in read:
            if taken.growth is not None:
                self.spend_remaking(at)
            if taken.request.id in self.requests.open:
                self._take(taken.request, taken.answer, feedback, at, growth=taken.growth)

    def _take(
        self, request: Request, answer: Any, feedback: Feedback, at: float, *, growth: Extension | None = None
    ) -> None:
        """Does what an answer that fits says."""
        what = _word_of(request, answer)
        given = told_arguments(answer["arguments"]) if "arguments" in answer else None
        closing = Closing("answered", at, feedback.by, feedback.through, what, feedback.note, given)
        self.requests.close(request, closing)
        if growth is not None:
            self._grow(growth, feedback.author, at=at, request=request.id)
        if request.purpose == "plan":
            self._take_leave(answer, feedback, at)
            return
        if request.purpose == "budget":
            self._take_budget(answer, at)
            return
        if request.purpose == "inputs":
            self.changes.inputs.update(answer["data"])
            self.inputs.update(answer["data"])
            self.begin(at)
            return
        number, item = self._items.place(request.task)
        record = self._record(number, item)
        record.reason = None
        self._budget.start(at)
        match request.purpose:
            case "answer":
                record.result = answer
                self._end(number, item, NodeStatus.COMPLETED, at)
            case "approval":
                self._take_approval(request, answer, feedback, at)
            case "error":
                self._take_choice(request, answer, at)
            case "raised":
                hand = self.hand_of(request.task)
                kept = {} if request.checkpoint is None else {"checkpoint": request.checkpoint}
                if kept:
                    # A call reads the last one alone, and all answers go out with every later call.
                    hand.answers = [{"request": told["request"], "answer": told["answer"]} for told in hand.answers]
                hand.answers.append({"request": request.id, "answer": answer, **kept})
                hand.tries, hand.attempts = hand.tries + 1, record.attempts
                self._start_again(number, item, at)

    def _take_leave(self, answer: Mapping[str, Any], feedback: Feedback, at: float) -> None:
        if answer["approved"]:
            self.cover(feedback.by)
            self.begin_with_inputs(at)
            return
        self.abort(_rejection(answer, feedback), at)

    def _take_approval(self, request: Request, answer: Mapping[str, Any], feedback: Feedback, at: float) -> None:
        number, item = self._items.place(request.task)
        if not answer["approved"]:
            self._end_failed(number, item, _rejection(answer, feedback), at)
            return
        hand = self.hand_of(request.task)
        hand.approved, hand.arguments = True, answer.get("arguments", hand.arguments)
        self._start_again(number, item, at)
        if answer.get("remember") and request.tool not in self.requests.remembered:
            self.requests.remembered[request.tool] = feedback.by
            self._release(at, by=feedback.by, what="approved")

    def _take_choice(self, request: Request, answer: Mapping[str, Any], at: float) -> None:
        number, item = self._items.place(request.task)
        record = self._record(number, item)
        match answer["action"]:
            case "value":
                record.result = answer["value"]
                self._end(number, item, NodeStatus.COMPLETED, at)
            case "skip":
                self._end(number, item, NodeStatus.SKIPPED, at)
            case "stop":
                self._end(number, item, NodeStatus.FAILED, at)
            case _ if "arguments" in answer:
                # Another node has taken its place.
                pass
            case _:
                hand = self.hand_of(request.task)
                hand.tries, hand.attempts = hand.tries + 1, record.attempts
                record.error = None
                self._start_again(number, item, at)

    def _start_again(self, number: int, item: int, at: float) -> None:
        """Starts a task that waited."""
        self._record(number, item).status = NodeStatus.READY
        self._start(number, item, at)

    def _release(self, at: float, *, by: str, what: str) -> None:
        """Starts what waits for an approval that the policy does not want any more."""
        for request in [*self.requests.open.values()]:
            if request.purpose != "approval" or request.id not in self.requests.open:
                continue
            number, item = self._items.place(request.task)
            if self.plan.nodes[number].approval != "policy":
                continue
            self._budget.start(at)
            try:
                verdict = self._verdict_on(number, item)
            except (MissingData, TooMuchWork):
                continue
            if verdict != "ask":
                self.requests.close(request, Closing("answered", at, by, "policy", what=what))
                self._record(number, item).reason = None
                self._start_again(number, item, at)

    # Time.

    def _expire(self, request: Request, at: float) -> None:
        if (assignee := request.escalates_to) is not None and request.deadline_s is not None:
            request.assignee, request.on_timeout = assignee, "fail"
            request.deadline_at = at + request.deadline_s
            request.next_reminder_at = None if request.reminder_s is None else at + request.reminder_s
            if request.task:
                self._record(*self._items.place(request.task)).reason = request.waits_for
            self.requests.watch(request)
            self.requests.notices.append(Notice("escalated", request, at))
            return
        if isinstance(request.on_timeout, Mapping):
            through: Through = "deadline"
            feedback = Feedback(request.id, request.on_timeout["default"], through=through)
            self._take(request, default_answer(request), feedback, at)
            return
        self.requests.close(request, Closing("expired", at, through="deadline"))
        number, item = self._items.place(request.task)
        self._record(number, item).reason = None
        message = f"nobody answered {request.id!r} in time: {request.prompt}"
        self._end_failed(number, item, NodeError("no_answer", message), at)

    def _remind(self, request: Request, at: float) -> None:
        assert request.next_reminder_at is not None
        assert request.reminder_s is not None
        missed = int((at - request.next_reminder_at) // request.reminder_s)
        request.next_reminder_at += (missed + 1) * request.reminder_s
        self.requests.watch(request)
        self.requests.notices.append(Notice("reminded", request, at))

    def _close_request(self, task_id: str, at: float) -> None:
        """Closes what a task asks that has ended in another way."""
        if (request := self.requests.of_task(task_id)) is not None:
            self.requests.close(request, Closing("closed", at))


def _rejection(answer: Mapping[str, Any], feedback: Feedback) -> NodeError:
    reason = f": {answer['reason']}" if answer["reason"] else ""
    if feedback.through == "deadline":
        return NodeError("rejected", f"nobody answered in time, and the plan rejects it then{reason}")
    return NodeError("rejected", f"rejected by {feedback.by or 'somebody'}{reason}")


def _word_of(request: Request, answer: Any) -> str:
    if request.purpose == "budget":
        return "finish" if "finish" in answer else "more"
    if request.purpose == "error":
        return str(answer["action"])
    if request.type == "APPROVAL":
        return "approved" if answer["approved"] else "rejected"
    return "answered"
