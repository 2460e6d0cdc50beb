"""What answers of people do: they end what asked, start what waited, and add nodes; and what happens when time passes.

Every act of a person is one pure function of the scheduler, which says why it is refused or does it. The driver tells
the time with `advance` before each batch of events, so that a deadline is met at the same moment by whoever follows.
What an answer brings about, moving nodes on and ending them, is `dagwright.core.scheduler.readiness`, which builds on
this.

Replay: what an answer starts is part of the order of commands in history.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dagwright.core.expressions.compute_budget import TOO_MUCH_AT_ONCE, TooMuchWork
from dagwright.core.expressions.resolution import MissingData
from dagwright.core.model.actor import By
from dagwright.core.model.answers import BadAnswer, default_answer, grows, normal_answer, size_of, told_arguments
from dagwright.core.model.errors import NodeError
from dagwright.core.model.policy import Policy
from dagwright.core.model.requests import Closing, Feedback, Notice, Request, Through
from dagwright.core.model.states import NodeStatus
from dagwright.core.scheduler.extension import Extension
from dagwright.features.feedback.answer_reading import Taken, without_number
from dagwright.features.feedback.asking import Asking


class Answering(Asking):
    """The part of a scheduler that takes answers, and sees to deadlines."""

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

    def set_policy(self, policy: Policy, at: float, *, by: str = "") -> None:
        """Changes who has to be asked: what waits for an approval that is not asked for any more goes on, or fails."""
        self.go_on_with_policy(policy)
        self._release(at, by=by, what="policy changed")
        self.settle(at)

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
            task_id = self.id_of((number, item))
            names = [name for name in names if task_id in (name, without_number(name))]
        elif not self._unfinished:
            names = [*book.early]
        for name in names:
            book.drop_early(name)
        if item < 0:
            book.early_of.pop(number, None)

    def _take_early(self, request: Request, feedback: Feedback, at: float) -> None:
        try:
            if (rejection := request.rejects(feedback)) is not None:
                raise BadAnswer(rejection)
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
        hand.approved = True
        if (given := answer.get("arguments")) is not None:
            # Of what the run adds by itself people give a part: the rest is what it knows of the request.
            node = self.plan.nodes[number]
            hand.arguments = {**node.arguments, **given} if self.is_own(node.id) else given
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
            request.escalate(assignee, at)
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
