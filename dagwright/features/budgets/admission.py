"""How a run keeps to its budget: calls of models wait at the limit, somebody is asked, or it finishes with what it has.

It stands between the scheduler and what only moves nodes on; a run without a budget does nothing of it.

Replay: which calls wait, and when they go on, is part of the order of commands in history.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from dagwright.core.expressions.compute_budget import TooMuchWork
from dagwright.core.expressions.paths import MissingValue, get_value
from dagwright.core.expressions.questions import request_of
from dagwright.core.expressions.stored_values import StoredValue, WorkerText, unfilled_places
from dagwright.core.expressions.value_refs import encode, shown_in_arguments
from dagwright.core.model.budget_limits import Kind, Limit
from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.errors import NodeError
from dagwright.core.model.requests import BUDGET, BUDGET_TASK
from dagwright.core.model.states import Attempt, NodeStatus
from dagwright.core.model.tasks import Task
from dagwright.core.model.tools import MODEL_TOOL
from dagwright.core.model.usage import NONE, Usage, usage_from_json
from dagwright.core.scheduler import map_batches
from dagwright.core.scheduler.item_book import Place
from dagwright.core.scheduler.rebuild import Remaking
from dagwright.features.budgets.budget import Budget, Claim, Up, asks_models, is_needed_to_finish

BYTES_OF_A_TOKEN = 3
"""Of what is said, for an estimate on the safe side: it is about four in English, and two or three elsewhere."""
ANSWER_TOKENS = 1_000
"""What an answer is taken to have that has no `max_tokens`, however long those were that have come."""


_TYPES: Mapping[Kind, str] = {"money": "number", "time": "string"}
_EXAMPLES: Mapping[Kind, str] = {"time": ", such as 30m"}


class Rationing(Remaking):
    """The part of a scheduler that keeps to a budget."""

    _rationed: tuple[int, Usage, int] | None = None
    """What it hangs on who may start, as it was when that was last looked at."""
    _told_at: int = 0
    """Changes of the budget that the reasons of what waits tell of."""

    def settle(self, at: float) -> None:
        """Lets everything move on until nothing moves, calls that waited for budget too."""
        if (budget := self.changes.budget) is not None:
            budget.busy.look(at)
        super().settle(at)
        if budget is not None:
            self._ration(budget, at)

    def _rest(self, at: float) -> None:
        """Takes note of it if nothing runs, here and below, and people are waited for: that takes no time."""
        if (budget := self.changes.budget) is None:
            return
        resting = len(budget.busy.resting)
        waits = self.paused is not None or self.is_waiting or (resting and not self._queue.has_ready)
        budget.busy.wait(at, rests=bool(waits) and self.in_flight == resting)

    def _end(self, number: int, item: int, status: NodeStatus, at: float, *, error: NodeError | None = None) -> None:
        budget = self.changes.budget
        if budget is not None and not self.is_stopped and (budget.waiting or budget.held):
            name = ("", self.id_of((number, item)))
            if name in budget.waiting or name in budget.held:
                # Somebody cancelled it, or gave its result, before it was called.
                budget.settle(name, NONE)
        super()._end(number, item, status, at, error=error)

    def _tell_waiting(self) -> None:
        """Tells of all calls that wait for the budget how much of it is used."""
        budget = self.changes.budget
        if budget is None or budget.is_below or self._told_at == budget.changes:
            return
        self._told_at = budget.changes
        for task_id, words in budget.reasons(used=self.usage.total, grown=self.grown).items():
            place = self._items.find(task_id)
            if place is not None and self._record(*place).status is NodeStatus.WAITING:
                self._record(*place).reason = f"budget ({words})"

    # What Scheduler does.

    @abstractmethod
    def end_by_hand(self, places: Sequence[Place], status: NodeStatus, *, at: float) -> None:
        """Ends nodes and items that do not run, all of them before their dependents hear of it."""

    # What a driver tells of other runs.

    def take_told(self, call: str, told: Up, *, grown: int, at: float) -> None:
        """Takes what a sub-plan that runs tells of its calls of models."""
        if self.changes.budget is not None:
            self.changes.budget.take_told(call, told, grown=grown)
            self.settle(at)

    def take_given(self, keys: list[str], *, finishing: str | None, at: float) -> None:
        """Takes what the run above says: calls that may start, or that the run has to finish with what it has."""
        budget = self.changes.budget
        if budget is None or not budget.is_below or self.is_stopped:
            # One that has nothing above keeps its own budget.
            return
        if finishing is not None:
            self._finish(budget, finishing, at)
            return
        budget.take_given(keys)
        for task_id in [key for owner, key in budget.held if not owner]:
            self._let_go(task_id)
        self.settle(at)

    def give_back(self, task_id: str) -> None:
        """Gives back what is held for a call that cannot be sent; its end has to be told next."""
        budget = self.changes.budget
        if budget is not None and ("", task_id) in budget.held:
            budget.settle(("", task_id), NONE)

    def set_budget(self, limits: Mapping[Kind, Limit | None], at: float) -> None:
        """Sets limits in the place of those that there are; null is as much as it takes."""
        assert self.changes.budget is not None
        self.changes.budget.set_limits(limits)
        self.settle(at)

    def _take_budget(self, answer: Mapping[str, Any], at: float) -> None:
        budget = self.changes.budget
        assert budget is not None
        if "finish" in answer:
            self._finish(budget, budget.words([*budget.limits], used=self.usage.total, grown=self.grown), at)
        else:
            budget.raise_by(answer["more"])

    # Calls.

    def _has_to_wait(self, task: Task, at: float) -> bool:
        """Tells whether a task that could start must not: it waits for budget, or is left out.

        Its slots have been given back then.
        """
        budget = self.changes.budget
        if budget is None or task.chunk is not None or task.node.undoes is not None:
            return False
        if budget.finishing is not None and is_needed_to_finish(task.node):
            return False
        record = self._record(task.number, -1 if task.item is None else task.item)
        if budget.finishing is not None and task.node.kind in ("tool", "plan", "lookup"):
            self._queue.release(task.number)
            record.reason = f"left out: {budget.finishing}"
            self._end(task.number, -1 if task.item is None else task.item, NodeStatus.SKIPPED, at)
            self.settle(at)
            return True
        is_call = asks_models(task.node, self.plan.tools)
        if not is_call and not (budget.limits_all_nodes and task.node.kind in ("tool", "plan")):
            return False
        budget.busy.look(at)
        grown = self.grown
        # Those that were written first are not in the count of those that were added.
        added = max(task.number + 1 - self.plan.written_count + grown, 0)
        claim = Claim(self._estimate(task) if is_call else 0, nodes=added)
        if budget.claim(("", task.id), claim, used=self.usage.total, grown=grown):
            return False
        self._queue.release(task.number)
        record.status, record.reason = NodeStatus.WAITING, "budget (the run above is asked)"
        if budget.short_of(used=self.usage.total, grown=self.grown, name=("", task.id)):
            is_asked = budget.on_limit == "ask" and self.requests.of_task(BUDGET_TASK) is not None
            if not is_asked:
                self._ration(budget, at)
        return True

    def _stop(self, at: float, reason: str | None) -> None:
        super()._stop(at, reason)
        self._close_request(BUDGET_TASK, at)

    def _estimate(self, task: Task) -> int:
        """Returns about how many tokens a call will use, on the safe side; a tool or an agent is taken to ask once."""
        arguments = task.arguments
        try:
            size = len(encode(arguments, shown_in_arguments)[0])
        except ValueError:
            # It is no JSON, and is refused as soon as it is to be sent.
            return 1
        for _, part in unfilled_places(arguments):
            for each in part.parts if isinstance(part, WorkerText) else (part,):
                if isinstance(each, StoredValue) and each.shape is not None:
                    size += each.shape.size_bytes
        if task.node.tool != MODEL_TOOL:
            return size // BYTES_OF_A_TOKEN + ANSWER_TOKENS
        said = self._tokens_said(task.node) if arguments.get("before") is not None else 0
        config = arguments.get("config")
        most = config.get("max_tokens") if isinstance(config, Mapping) else None
        return size // BYTES_OF_A_TOKEN + said + (most if isinstance(most, int) else ANSWER_TOKENS)

    def _tokens_said(self, node: CompiledNode) -> int:
        """Returns how many tokens the conversation has with which a call goes on: those of its last answer.

        That is of a call that it waits for, or of one that what it waits for was called by.
        """
        nodes = self.plan.nodes
        near = [number for needed in node.dependencies for number in (needed, *nodes[needed].dependencies)]
        calls = [number for number in dict.fromkeys(near) if nodes[number].tool == MODEL_TOOL]
        return max((self._tokens_of_answer(number) for number in calls), default=0)

    def _tokens_of_answer(self, number: int) -> int:
        """Returns what the call has used that brought an answer; of one that tells nothing, what all tries have."""
        try:
            used = get_value(self.records[number].result, ("usage",), start="the answer")
            return usage_from_json(used).tokens
        except (MissingValue, TooMuchWork, ValueError):
            return self.usage.tasks.get(self.plan.nodes[number].id, NONE).tokens

    def _settle_claim(self, task_id: str, place: Place, attempt: Attempt) -> None:
        """Takes the end of a call, or of a run below."""
        budget = self.changes.budget
        assert budget is not None
        number, item = place
        chunk = self._chunk(number, item)
        if self.plan.nodes[number].kind == "plan" or (chunk is not None and chunk.count):
            budget.end_below(self.call_of_task(task_id), attempt.usage)
        elif attempt.usage.is_something or ("", task_id) in budget.held:
            # What has not even told when it started was lost on its way.
            is_known = attempt.usage.is_something or attempt.started_at is not None
            budget.settle(("", task_id), attempt.usage if is_known else None)

    # The limit.

    def _ration(self, budget: Budget, at: float) -> None:
        """Lets go on what waits and may now; asks for more, or finishes, where nothing will come free."""
        if self.is_stopped or not self._unfinished:
            self._close_request(BUDGET_TASK, at)
            return
        total, grown = self.usage.total, self.grown
        rationed = self._rationed
        if rationed is not None and rationed[1] is total and (rationed[0], rationed[2]) == (budget.changes, grown):
            return
        self._rationed = (budget.changes, total, grown)
        for task_id in budget.free(used=total, grown=grown):
            self._let_go(task_id)
        short = budget.short_of(used=total, grown=grown)
        request = self.requests.of_task(BUDGET_TASK)
        words = budget.words(short, used=total, grown=grown) if short else ""
        if short and (budget.on_limit == "finish" or self.plan.asks_nobody):
            self._finish(budget, words, at)
        elif short and request is None:
            self._ask_for_more(budget, words, at)
        elif not short:
            self._close_request(BUDGET_TASK, at)

    def _let_go(self, task_id: str) -> None:
        number, item = self._items.place(task_id)
        record = self._record(number, item)
        if record.status is NodeStatus.WAITING:
            record.status, record.reason = NodeStatus.READY, None
            self._queue.push((self.plan.nodes[number].priority, number, item))

    def _ask_for_more(self, budget: Budget, words: str, at: float) -> None:
        name = BUDGET
        while self._items.find(name) is not None:
            name = f"{name}#0"
        prompt = f"The budget of the run is used up ({words}). How much more may it use, or is it to finish as it is?"
        amounts: dict[str, Any] = {
            kind: {"type": _TYPES.get(kind, "integer"), "title": f"how much more of {kind}{_EXAMPLES.get(kind, '')}"}
            for kind in budget.limits
        }
        finish = {"type": "boolean", "title": "true, and nothing else, to finish with what there is"}
        schema = {"type": "object", "properties": {**amounts, "finish": finish}}
        question = {"type": "INFORMATION", "prompt": prompt, "schema": schema}
        request_id = self._free_id(BUDGET_TASK, name)
        self.requests.add(request_of(question, request_id, task=BUDGET_TASK, purpose="budget", at=at))

    def _finish(self, budget: Budget, words: str, at: float) -> None:
        """Leaves out what has not started; what makes the answer of what there is may start yet."""
        if budget.finishing is not None:
            return
        budget.finishing = words
        places = self._not_started()
        for number, item in places:
            self._record(number, item).reason = f"left out: {words}"
        waiting = [name for name in budget.waiting if not name[0]]
        for name in waiting:
            budget.settle(name, NONE)
        self.end_by_hand(places, NodeStatus.SKIPPED, at=at)
        for _, task_id in waiting:
            # What makes the answer; all else was left out.
            self._let_go(task_id)

    def _not_started(self) -> list[Place]:
        found: list[Place] = []
        for number, (node, record) in enumerate(zip(self.plan.nodes, self.records, strict=True)):
            is_needed = is_needed_to_finish(node) or node.undoes is not None
            if node.kind in ("region", "reported") or is_needed or map_batches.is_cut(record):
                continue
            if record.items:
                found += [(number, item) for item in range(len(record.items)) if self._is_idle(number, item)]
            elif self._is_idle(number, -1):
                found.append((number, -1))
        return found

    def _is_idle(self, number: int, item: int) -> bool:
        status = self._record(number, item).status
        if status is NodeStatus.WAITING:
            # What people have been asked goes on with their answer.
            return self.requests.of_task(self.id_of((number, item))) is None
        return status in (NodeStatus.PENDING, NodeStatus.READY)
