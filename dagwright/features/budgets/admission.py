"""Budget admission: calls of models wait at the limit, a person is asked for more, or the run finishes early.

Replay: which calls wait, and when they start, is part of the order of commands in history.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from dagwright.core.model.budget_limits import Kind, Limit
from dagwright.core.model.requests import BUDGET, BUDGET_TASK, Feedback, Purpose
from dagwright.core.model.states import Attempt, NodeStatus
from dagwright.core.model.task_ref import TaskRef
from dagwright.core.model.tasks import Task
from dagwright.core.model.usage import NONE, Usage
from dagwright.core.scheduler import map_batches
from dagwright.core.scheduler.component import SchedulerComponent
from dagwright.core.scheduler.scheduler import Scheduler
from dagwright.core.scheduler.task_creation import call_of_task
from dagwright.features.budgets.budget import Budget, Claim, Up, asks_models, is_needed_to_finish
from dagwright.features.budgets.token_estimate import estimated_tokens

_TYPES: Mapping[Kind, str] = {"money": "number", "time": "string"}
_EXAMPLES: Mapping[Kind, str] = {"time": ", such as 30m"}
_CALLS = ("tool", "plan", "lookup")


class BudgetRequests(Protocol):
    """How a person is asked for more budget."""

    run_answers: dict[Purpose, Callable[[Any, Feedback, float], None]]

    def is_asking(self, task: str) -> bool:
        """Tell whether a task, or the run under the name of one, has an open request."""
        ...

    def ask_for_run(self, question: Mapping[str, Any], *, task: str, name: str, purpose: Purpose, at: float) -> None:
        """Open a request of the run.

        Args:
            task: stands for the run where the request has its task.
            name: base of the id of the request.
        """
        ...

    def close_request(self, task: str, at: float) -> None:
        """Close the open request of a task, if it has one."""
        ...


class BudgetAdmission(SchedulerComponent):
    """Keeps a run to its budget.

    Args:
        requests: how a person is asked for more budget; without, the run finishes at the limit.
    """

    def __init__(self, scheduler: Scheduler[Any], requests: BudgetRequests | None = None) -> None:
        self._scheduler = scheduler
        self._state = scheduler.state
        self._requests = requests
        self.budget: Budget | None = None
        self._admitted: tuple[int, Usage, int] | None = None
        """What the last admission pass depended on; unchanged means that there is nothing to do."""
        self._reasons_at = 0
        """Revision of the budget that the reasons of waiting tasks report."""
        if requests is not None:
            requests.run_answers["budget"] = self._apply_answer

    def use(self, budget: Budget | None) -> None:
        """Keep to a budget from now on; `None` is no limit."""
        self.budget = budget
        self._state.ends_queued = budget is not None
        self._scheduler.update_hooks()

    # Hooks.

    def needed_hooks(self) -> Collection[str]:
        """Return no hook if nothing is limited."""
        return self.hooks if self.budget is not None else ()

    def before_propagation(self, at: float) -> None:
        """Count the time in which the run does something."""
        if self.budget is not None:
            self.budget.busy.look(at)

    def on_quiescent(self, at: float) -> None:
        """Start what waited and now fits into the budget."""
        if self.budget is not None:
            self._admit_waiting(self.budget, at)

    def on_idle(self, at: float) -> None:
        """Report how much of the budget is used, and stop counting time while only people are waited for."""
        budget, state = self.budget, self._state
        if budget is None:
            return
        is_paused = state.paused is not None
        if not is_paused or state.is_stopped:
            self._update_reasons(budget)
        resting = len(budget.busy.resting)
        has_ready = self._scheduler.propagation.queue.has_ready
        waits = is_paused or self._scheduler.is_waiting or (resting and not has_ready)
        budget.busy.wait(at, rests=bool(waits) and self._scheduler.in_flight == resting)

    def on_node_ended(self, ref: TaskRef, at: float) -> None:  # noqa: ARG002 - a hook
        """Release what a node holds or waits for that was cancelled, or given a result, before it was called."""
        budget = self.budget
        if budget is not None and not self._state.is_stopped and (budget.waiting or budget.held):
            self.release(self._state.id_of(ref), is_waiting=True)

    def on_stop(self, at: float) -> None:
        """Ask for no more budget."""
        self._close_request(at)

    @property
    def is_waiting(self) -> bool:
        """Whether calls wait for budget."""
        return self.budget is not None and bool(self.budget.waiting)

    def on_attempt(self, task_id: str, ref: TaskRef, attempt: Attempt) -> None:
        """Settle the reservation of a call, or of a child run, that has ended."""
        budget = self.budget
        if budget is None:
            return
        chunk = self._state.chunk(ref)
        if self._state.plan.nodes[ref.node].kind == "plan" or (chunk is not None and chunk.count):
            budget.end_below(call_of_task(self._state, task_id), attempt.usage)
        elif attempt.usage.is_something or ("", task_id) in budget.held:
            # A call that did not even report its start was lost on its way.
            is_known = attempt.usage.is_something or attempt.started_at is not None
            budget.settle(("", task_id), attempt.usage if is_known else None)

    def before_start(self, task: Task, at: float) -> bool:
        """Reserve what a call needs; without, it waits, or is left out of a run that finishes early."""
        budget = self.budget
        if budget is None or task.chunk is not None or task.node.undoes is not None:
            return False
        if budget.finishing is not None and is_needed_to_finish(task.node):
            return False
        if budget.finishing is not None and task.node.kind in _CALLS:
            self._leave_out(task, budget.finishing, at)
            return True
        is_call = asks_models(task.node, self._state.plan.tools)
        if not is_call and not (budget.limits_all_nodes and task.node.kind in ("tool", "plan")):
            return False
        budget.busy.look(at)
        return not self._reserve(budget, task, at, is_call=is_call)

    def _leave_out(self, task: Task, words: str, at: float) -> None:
        self._scheduler.propagation.queue.release(task.ref.node)
        self._state.record(task.ref).reason = f"left out: {words}"
        self._scheduler.end_tasks([task.ref], NodeStatus.SKIPPED, at=at)

    def _reserve(self, budget: Budget, task: Task, at: float, *, is_call: bool) -> bool:
        """Reserve what a task needs, or let it wait; returns whether it may start."""
        state = self._state
        used, added_count = state.totals.usage.total, state.added_count
        # Nodes that were written at the start do not count as added.
        added = max(task.ref.node + 1 - state.plan.written_count + added_count, 0)
        claim = Claim(estimated_tokens(state, task) if is_call else 0, nodes=added)
        if budget.claim(("", task.id), claim, used=used, grown=added_count):
            return True
        self._scheduler.propagation.queue.release(task.ref.node)
        record = state.record(task.ref)
        record.status, record.reason = NodeStatus.WAITING, "budget (the run above is asked)"
        if budget.short_of(used=used, grown=added_count, name=("", task.id)):
            is_asked = budget.on_limit == "ask" and self._is_asking(BUDGET_TASK)
            if not is_asked:
                self._admit_waiting(budget, at)
        return False

    # What a driver reports of other runs.

    def take_report(self, call: str, report: Up, *, grown: int, at: float) -> None:
        """Handle what a child run reports of its calls of models."""
        if self.budget is not None:
            self.budget.take_told(call, report, grown=grown)
            self._scheduler.propagate(at)

    def take_grant(self, keys: list[str], *, finishing: str | None, at: float) -> None:
        """Handle what the parent run grants: calls that may start, or that the run has to finish early."""
        budget = self.budget
        if budget is None or not budget.is_below or self._state.is_stopped:
            # A root run has its own budget.
            return
        if finishing is not None:
            self._finish(budget, finishing, at)
            return
        budget.take_given(keys)
        for task_id in [key for owner, key in budget.held if not owner]:
            self._start_waiting(task_id)
        self._scheduler.propagate(at)

    def release(self, task_id: str, *, is_waiting: bool = False) -> None:
        """Release the reservation of a call that cannot be sent; its end has to be reported next.

        Args:
            is_waiting: also of one that waits for its reservation.
        """
        budget, name = self.budget, ("", task_id)
        if budget is not None and (name in budget.held or (is_waiting and name in budget.waiting)):
            budget.settle(name, NONE)

    # Commands.

    def set_limits(self, limits: Mapping[Kind, Limit | None], at: float) -> None:
        """Replace limits; null is no limit."""
        assert self.budget is not None
        self.budget.set_limits(limits)
        self._scheduler.propagate(at)

    def _apply_answer(self, answer: Any, feedback: Feedback, at: float) -> None:  # noqa: ARG002 - a RunAnswer
        budget = self.budget
        assert budget is not None
        if "finish" in answer:
            self._finish(budget, self._words(budget, [*budget.limits]), at)
        else:
            budget.raise_by(answer["more"])

    # The limit.

    def _words(self, budget: Budget, kinds: list[Kind]) -> str:
        return budget.words(kinds, used=self._state.totals.usage.total, grown=self._state.added_count)

    def _update_reasons(self, budget: Budget) -> None:
        """Report in the reason of every call that waits how much of the budget is used."""
        if budget.is_below or self._reasons_at == budget.changes:
            return
        self._reasons_at = budget.changes
        state = self._state
        for task_id, words in budget.reasons(used=state.totals.usage.total, grown=state.added_count).items():
            record = state.record_of(task_id)
            if record is not None and record.status is NodeStatus.WAITING:
                record.reason = f"budget ({words})"

    def _admit_waiting(self, budget: Budget, at: float) -> None:
        """Start what waits and may now; ask for more, or finish, where no reservation will be released."""
        state = self._state
        if state.is_stopped or not state.unfinished:
            self._close_request(at)
            return
        total, added = state.totals.usage.total, state.added_count
        admitted = self._admitted
        if admitted is not None and admitted[1] is total and (admitted[0], admitted[2]) == (budget.changes, added):
            return
        self._admitted = (budget.changes, total, added)
        for task_id in budget.free(used=total, grown=added):
            self._start_waiting(task_id)
        short = budget.short_of(used=total, grown=added)
        if not short:
            self._close_request(at)
        elif budget.on_limit == "finish" or state.plan.is_non_interactive or self._requests is None:
            self._finish(budget, self._words(budget, short), at)
        elif not self._is_asking(BUDGET_TASK):
            self._ask_for_more(self._requests, budget, self._words(budget, short), at)

    def _start_waiting(self, task_id: str) -> None:
        ref = self._state.items.ref(task_id)
        record = self._state.record(ref)
        if record.status is NodeStatus.WAITING:
            record.reason = None
            self._scheduler.propagation.enqueue(ref)

    def _is_asking(self, task: str) -> bool:
        return self._requests is not None and self._requests.is_asking(task)

    def _close_request(self, at: float) -> None:
        if self._requests is not None:
            self._requests.close_request(BUDGET_TASK, at)

    def _ask_for_more(self, requests: BudgetRequests, budget: Budget, words: str, at: float) -> None:
        name = BUDGET
        while self._state.items.find(name) is not None:
            name = f"{name}#0"
        prompt = f"The budget of the run is used up ({words}). How much more may it use, or is it to finish as it is?"
        amounts: dict[str, Any] = {
            kind: {"type": _TYPES.get(kind, "integer"), "title": f"how much more of {kind}{_EXAMPLES.get(kind, '')}"}
            for kind in budget.limits
        }
        finish = {"type": "boolean", "title": "true, and nothing else, to finish with what there is"}
        schema = {"type": "object", "properties": {**amounts, "finish": finish}}
        question = {"type": "INFORMATION", "prompt": prompt, "schema": schema}
        requests.ask_for_run(question, task=BUDGET_TASK, name=name, purpose="budget", at=at)

    # Finishing early.

    def _finish(self, budget: Budget, words: str, at: float) -> None:
        """Leave out what has not started; what makes the answer from the results so far may still start."""
        if budget.finishing is not None:
            return
        budget.finishing = words
        refs = self._not_started()
        for ref in refs:
            self._state.record(ref).reason = f"left out: {words}"
        waiting = [name for name in budget.waiting if not name[0]]
        for name in waiting:
            budget.settle(name, NONE)
        self._scheduler.end_tasks(refs, NodeStatus.SKIPPED, at=at)
        for _, task_id in waiting:
            # What makes the answer; all else was left out.
            self._start_waiting(task_id)

    def _not_started(self) -> list[TaskRef]:
        found: list[TaskRef] = []
        state = self._state
        for number, (node, record) in enumerate(zip(state.plan.nodes, state.records, strict=True)):
            is_needed = is_needed_to_finish(node) or node.undoes is not None
            if node.kind in ("region", "reported") or is_needed or map_batches.is_cut(record):
                continue
            refs = [TaskRef(number, index) for index in range(len(record.items))] or [state.items.node(number)]
            found += [ref for ref in refs if self._is_idle(ref)]
        return found

    def _is_idle(self, ref: TaskRef) -> bool:
        status = self._state.record(ref).status
        if status is NodeStatus.WAITING:
            # Requests to people stay open.
            return not self._is_asking(self._state.id_of(ref))
        return status in (NodeStatus.PENDING, NodeStatus.READY)
