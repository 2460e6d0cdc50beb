"""Budget admission: at a limit, model calls wait, and the run asks a person for more budget or finishes early.

Replay: the rules for waiting calls determine the order in which the workflow starts activities. A changed order breaks
the replay of open runs.
"""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from dagwright.core.model.budget_limits import Limit, LimitKind
from dagwright.core.model.requests import BUDGET, BUDGET_TASK, Feedback, Purpose
from dagwright.core.model.states import NO_USAGE, Attempt, NodeStatus, Task, TaskRef, Usage
from dagwright.core.scheduler import map_items
from dagwright.core.scheduler.component import SchedulerComponent
from dagwright.core.scheduler.run_state import last_call_id
from dagwright.features.budgets.budget import (
    Budget,
    BudgetReport,
    CallName,
    Reservation,
    is_needed_to_finish,
    uses_models,
)
from dagwright.features.budgets.token_estimate import estimated_tokens

if TYPE_CHECKING:
    from dagwright.core.scheduler.scheduler import Scheduler

_JSON_TYPES: Mapping[LimitKind, str] = {"money": "number", "time": "string"}
_EXAMPLES: Mapping[LimitKind, str] = {"time": ", such as 30m"}
_CALL_KINDS = ("tool", "plan", "lookup")


def _call_name(task_id: str) -> CallName:
    """Return the name of a call of this run. The first part is empty, because the call is not made in a child run."""
    return "", task_id


class BudgetRequests(Protocol):
    """Interface to request more budget from a person."""

    run_answer_appliers: dict[Purpose, Callable[[Any, Feedback, float], None]]
    """Purpose of a request that belongs to the run, not to a node -> function that applies the person's answer."""

    def is_asking(self, task: str) -> bool:
        """Return whether a request is open for a task; `BUDGET_TASK` means the run's request for more budget."""
        ...

    def ask_for_run(self, question: Mapping[str, Any], *, task: str, base_id: str, purpose: Purpose, at: float) -> None:
        """Open a request that belongs to the run, not to a node.

        Args:
            task: `BUDGET_TASK`, which the request has in place of the id of a task.
            base_id: id of the first request for the task; later ids have a number too, such as `budget#2`.
        """
        ...

    def close_request(self, task: str, at: float) -> None:
        """Close the open request of a task, if there is one."""
        ...


class BudgetAdmission(SchedulerComponent):
    """Enforcement of the budget of a run.

    Args:
        requests: used to request more budget from a person. With `None`, the run finishes when the budget is used up.
    """

    def __init__(self, scheduler: "Scheduler[Any]", requests: BudgetRequests | None = None) -> None:
        self._scheduler = scheduler
        self._state = scheduler.state
        self._requests = requests
        self.budget: Budget | None = None
        self._last_inputs: tuple[int, Usage, int] | None = None
        """Values from which `_handle_waiting_calls` last decided; while they are unchanged, it has nothing to do."""
        self._reasons_revision = 0
        """Revision of the budget at the last update of the reasons of waiting tasks."""
        if requests is not None:
            requests.run_answer_appliers["budget"] = self._apply_answer

    def set_budget(self, budget: Budget | None) -> None:
        """Set the budget; `None` means no limits."""
        self.budget = budget
        self._state.budget_may_end_queued_tasks = budget is not None
        self._scheduler.update_hooks()

    # Hooks.

    def needed_hooks(self) -> Collection[str]:
        """Return no hooks if there is no budget."""
        return self.hooks if self.budget is not None else ()

    def before_propagation(self, at: float) -> None:
        """Update the busy time of the run."""
        if self.budget is not None:
            self.budget.busy_time.count_until(at)

    def on_quiescent(self, at: float) -> None:
        """Start waiting calls that now fit into the budget. The scheduler calls this when no node can change."""
        if self.budget is not None:
            self._handle_waiting_calls(self.budget, at)

    def on_idle(self, at: float) -> None:
        """Update the reasons of waiting calls, and pause the busy time while the run only waits for people.

        The scheduler calls this after `on_quiescent`, when no more tasks can start.
        """
        budget, state = self.budget, self._state
        if budget is None:
            return
        is_paused = state.paused is not None
        if not is_paused or state.is_stopped:
            self._update_reasons(budget)
        idle_count = len(budget.busy_time.idle_children)
        has_ready = self._scheduler.propagation.queue.has_ready
        is_run_waiting = is_paused or self._scheduler.is_waiting or bool(idle_count and not has_ready)
        budget.busy_time.pause_if_idle(at, is_idle=is_run_waiting and self._scheduler.in_flight == idle_count)

    def on_node_ended(self, ref: TaskRef, at: float) -> None:  # noqa: ARG002 - a hook
        """Release the reservation of a node that was cancelled, or whose result a person set, before its call ended.

        For every other node, `on_attempt` has already released the reservation.
        """
        budget = self.budget
        if budget is not None and not self._state.is_stopped and (budget.waiting_calls or budget.reservations):
            self.release(self._state.id_of(ref), include_waiting=True)

    def on_stop(self, at: float) -> None:
        """Close the request for more budget."""
        self._close_request(at)

    @property
    def is_waiting(self) -> bool:
        """Whether calls wait for budget."""
        return self.budget is not None and bool(self.budget.waiting_calls)

    def on_attempt(self, task_id: str, ref: TaskRef, attempt: Attempt) -> None:
        """Settle the reservation of a call, or of a child run, that has ended."""
        budget = self.budget
        if budget is None:
            return
        map_batch = self._state.map_batch(ref)
        if self._state.plan.nodes[ref.node].kind == "plan" or (map_batch is not None and map_batch.count):
            budget.end_child(last_call_id(self._state, task_id), attempt.usage)
        elif attempt.usage.is_nonzero or _call_name(task_id) in budget.reservations:
            # Without a reported start, the usage of the call is unknown.
            is_usage_known = attempt.usage.is_nonzero or attempt.started_at is not None
            budget.settle(_call_name(task_id), attempt.usage if is_usage_known else None)

    def before_start(self, task: Task, at: float) -> bool:
        """Reserve budget for a call; return `True` if the call must wait for budget, or was skipped because the run
        finishes early."""
        budget = self.budget
        if budget is None or task.map_batch is not None or task.node.compensates is not None:
            return False
        if budget.finish_reason is not None and is_needed_to_finish(task.node):
            return False
        if budget.finish_reason is not None and task.node.kind in _CALL_KINDS:
            self._skip_call(task, budget.finish_reason, at)
            return True
        is_model_call = uses_models(task.node, self._state.plan.tools)
        if not is_model_call and not (budget.limits_all_nodes and task.node.kind in ("tool", "plan")):
            return False
        budget.busy_time.count_until(at)
        return not self._reserve(budget, task, at, is_model_call=is_model_call)

    def _skip_call(self, task: Task, message: str, at: float) -> None:
        self._scheduler.propagation.queue.release(task.ref.node)
        self._state.record(task.ref).reason = f"not started: {message}"
        self._scheduler.end_tasks([task.ref], NodeStatus.SKIPPED, at=at)

    def _reserve(self, budget: Budget, task: Task, at: float, *, is_model_call: bool) -> bool:
        """Reserve budget for a task, or let it wait; return whether it may start."""
        state = self._state
        run_usage, added_count = state.totals.usage.total, state.added_count
        # Number of added nodes up to and including the node of the task; 0 for a node of the original plan. The added
        # nodes are the last of the visible nodes.
        added_count_up_to_task = max(task.ref.node + 1 - state.plan.visible_count + added_count, 0)
        reservation = Reservation(estimated_tokens(state, task) if is_model_call else 0, nodes=added_count_up_to_task)
        if budget.reserve(_call_name(task.id), reservation, run_usage=run_usage, added_count=added_count):
            return True
        self._scheduler.propagation.queue.release(task.ref.node)
        record = state.record(task.ref)
        # `_update_reasons` replaces this reason, unless this run is a child run.
        record.status, record.reason = NodeStatus.WAITING, "budget (requested from the parent run)"
        if budget.exhausted_limits(run_usage=run_usage, added_count=added_count, name=_call_name(task.id)):
            has_request = budget.on_limit == "ask" and self._is_asking(BUDGET_TASK)
            if not has_request:
                self._handle_waiting_calls(budget, at)
        return False

    # Messages of the parent run and of child runs.

    def handle_report(self, call: str, report: BudgetReport, *, added_count: int, at: float) -> None:
        """Handle a report of a child run about its model calls."""
        if self.budget is not None:
            self.budget.apply_report(call, report, added_count=added_count)
            self._scheduler.propagate(at)

    def handle_grant(self, keys: list[str], *, finish_reason: str | None, at: float) -> None:
        """Handle a message of the parent run: grants for calls, or the instruction to finish early.

        Args:
            keys: keys of the calls that may start (`Budget.apply_grants`).
            finish_reason: why the run must finish early; `None` for grants.
        """
        budget = self.budget
        if budget is None or not budget.is_child or self._state.is_stopped:
            # Only a running child run gets its budget from a parent run.
            return
        if finish_reason is not None:
            self._finish(budget, finish_reason, at)
            return
        budget.apply_grants(keys)
        for task_id in [task_id for child_call_id, task_id in budget.reservations if not child_call_id]:
            self._start_waiting_call(task_id)
        self._scheduler.propagate(at)

    def release(self, task_id: str, *, include_waiting: bool = False) -> None:
        """Release the reservation of a call that cannot be sent. The code that calls this method must then report the
        end of the call.

        Args:
            include_waiting: also remove the call if it waits for budget.
        """
        budget, name = self.budget, _call_name(task_id)
        if budget is not None and (name in budget.reservations or (include_waiting and name in budget.waiting_calls)):
            budget.settle(name, NO_USAGE)

    # Commands.

    def set_limits(self, limits: Mapping[LimitKind, Limit | None], at: float) -> None:
        """Replace limits; null removes a limit."""
        assert self.budget is not None
        self.budget.set_limits(limits)
        self._scheduler.propagate(at)

    def _apply_answer(self, answer: Any, feedback: Feedback, at: float) -> None:  # noqa: ARG002 - a RunAnswerApplier
        budget = self.budget
        assert budget is not None
        if "finish" in answer:
            self._finish(budget, self._usage_text(budget, [*budget.limits]), at)
        else:
            budget.raise_limits(answer["more"])

    # The limit.

    def _usage_text(self, budget: Budget, kinds: list[LimitKind]) -> str:
        return budget.describe(kinds, run_usage=self._state.totals.usage.total, added_count=self._state.added_count)

    def _update_reasons(self, budget: Budget) -> None:
        """Update the reason of every waiting call: the limits that delay the call, with their used amounts."""
        if budget.is_child or self._reasons_revision == budget.revision:
            return
        self._reasons_revision = budget.revision
        state = self._state
        for task_id, message in budget.reasons_by_task(
            run_usage=state.totals.usage.total, added_count=state.added_count
        ).items():
            record = state.record_of(task_id)
            if record is not None and record.status is NodeStatus.WAITING:
                record.reason = f"budget ({message})"

    def _handle_waiting_calls(self, budget: Budget, at: float) -> None:
        """Start the waiting calls that fit into the budget.

        If a call would not fit even without the reservations of other calls, request more budget or finish the run.
        """
        state = self._state
        if state.is_stopped or not state.unfinished_count:
            self._close_request(at)
            return
        total_usage, added_count = state.totals.usage.total, state.added_count
        last_inputs = self._last_inputs
        if (
            last_inputs is not None
            and last_inputs[1] is total_usage
            and (last_inputs[0], last_inputs[2]) == (budget.revision, added_count)
        ):
            return
        self._last_inputs = (budget.revision, total_usage, added_count)
        for task_id in budget.grant_waiting(run_usage=total_usage, added_count=added_count):
            self._start_waiting_call(task_id)
        exhausted_kinds = budget.exhausted_limits(run_usage=total_usage, added_count=added_count)
        if not exhausted_kinds:
            self._close_request(at)
        elif budget.on_limit == "finish" or state.plan.is_non_interactive or self._requests is None:
            self._finish(budget, self._usage_text(budget, exhausted_kinds), at)
        elif not self._is_asking(BUDGET_TASK):
            self._ask_for_more(self._requests, budget, self._usage_text(budget, exhausted_kinds), at)

    def _start_waiting_call(self, task_id: str) -> None:
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

    def _ask_for_more(self, requests: BudgetRequests, budget: Budget, message: str, at: float) -> None:
        base_id = BUDGET
        while self._state.items.find(base_id) is not None:
            # A node of the plan has this id.
            base_id = f"{base_id}#0"
        prompt = f"The budget of the run is used up ({message}). How much more may it use, or should it finish now?"
        amount_schemas: dict[str, Any] = {
            kind: {
                "type": _JSON_TYPES.get(kind, "integer"),
                "title": f"how much more of {kind}{_EXAMPLES.get(kind, '')}",
            }
            for kind in budget.limits
        }
        finish_schema = {"type": "boolean", "title": "true to finish with the results so far; then omit other fields"}
        schema = {"type": "object", "properties": {**amount_schemas, "finish": finish_schema}}
        question = {"type": "INFORMATION", "prompt": prompt, "schema": schema}
        requests.ask_for_run(question, task=BUDGET_TASK, base_id=base_id, purpose="budget", at=at)

    # Finishing early.

    def _finish(self, budget: Budget, message: str, at: float) -> None:
        """Skip all nodes that have not started, except those that are needed to finish."""
        if budget.finish_reason is not None:
            return
        budget.finish_reason = message
        refs = self._skippable_tasks()
        for ref in refs:
            self._state.record(ref).reason = f"not started: {message}"
        # The calls of this run, not of its child runs.
        own_names = [name for name in budget.waiting_calls if not name[0]]
        for name in own_names:
            budget.settle(name, NO_USAGE)
        self._scheduler.end_tasks(refs, NodeStatus.SKIPPED, at=at)
        for _, task_id in own_names:
            # This starts only the calls that are needed to finish: the tasks of all other calls do not wait any more.
            self._start_waiting_call(task_id)

    def _skippable_tasks(self) -> list[TaskRef]:
        tasks: list[TaskRef] = []
        state = self._state
        for number, (node, record) in enumerate(zip(state.plan.nodes, state.records, strict=True)):
            is_needed = is_needed_to_finish(node) or node.compensates is not None
            if node.kind in ("region", "external") or is_needed or map_items.is_batched(record):
                continue
            refs = [TaskRef(number, index) for index in range(len(record.items))] or [state.items.node_ref(number)]
            tasks += [ref for ref in refs if self._can_be_skipped(ref)]
        return tasks

    def _can_be_skipped(self, ref: TaskRef) -> bool:
        status = self._state.record(ref).status
        if status is NodeStatus.WAITING:
            # Requests to people stay open.
            return not self._is_asking(self._state.id_of(ref))
        return status in (NodeStatus.PENDING, NodeStatus.READY)
