"""Budget signals of a run: reports to its parent run and grants to its child runs."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from temporalio import workflow
from temporalio.exceptions import FailureError

from dagwright.core.boundary import limits, wire
from dagwright.core.scheduler.run_state import task_of_call
from dagwright.features.budgets.budget import Budget, BudgetReport
from dagwright.features.run_scheduler import RunScheduler
from dagwright.protocol.budgets import BudgetGrant, budget_grant_to_json, budget_report_to_json
from dagwright.protocol.commands import ChildSignal
from dagwright.protocol.messages import Parent

if TYPE_CHECKING:
    from dagwright.workflows.sub_plans import SubPlans


class BudgetSignals:
    """Sender of the budget signals of one run.

    Args:
        parent: parent run that gets the reports, if there is one.
    """

    def __init__(self, scheduler: RunScheduler, parent: Parent | None, sub_plans: "SubPlans") -> None:
        self._scheduler = scheduler
        self._parent = parent
        self._sub_plans = sub_plans
        self._is_finish_sent = (
            scheduler.features.budget.budget is not None and scheduler.features.budget.budget.finish_reason is not None
        )
        """Whether running sub-plans have received the reason to finish early. New sub-plans get it in their input."""
        self._send_tasks: set[asyncio.Task[None]] = set()
        self._poll_task: asyncio.Task[None] | None = None

    def send_changes(self, *, on_parent_lost: Callable[[], None]) -> None:
        """Send the changes since this method was last called.

        Args:
            on_parent_lost: called if the parent run no longer exists.
        """
        budget = self._scheduler.features.budget.budget
        if budget is None:
            return
        for call_id, granted_calls in budget.next_grants().items():
            task_id = task_of_call(self._scheduler.state, call_id)
            if task_id is not None:
                grant = budget_grant_to_json(BudgetGrant(granted_calls))
                self._sub_plans.send(ChildSignal(wire.SIGNAL_BUDGET_GRANT, grant, task_id))
        if budget.finish_reason is not None and not self._is_finish_sent:
            self._is_finish_sent = True
            grant = budget_grant_to_json(BudgetGrant(finish_reason=budget.finish_reason))
            self._sub_plans.signal_all(wire.SIGNAL_BUDGET_GRANT, grant)
        report = budget.next_report()
        if self._parent is None:
            return
        if report is not None:
            send_task = asyncio.create_task(self._report_to_parent(self._parent, report, on_parent_lost))
            self._send_tasks.add(send_task)
            send_task.add_done_callback(self._send_tasks.discard)
        if budget.requested_calls and self._poll_task is None:
            self._poll_task = asyncio.create_task(self._poll_parent(self._parent, budget, on_parent_lost))

    async def _poll_parent(self, parent: Parent, budget: Budget, on_parent_lost: Callable[[], None]) -> None:
        """Send empty reports, with increasing pauses, while calls wait for a grant.

        A report fails if the parent run no longer exists. Without the reports, the run would not notice the loss of its
        parent run, and the calls would wait without end.
        """
        pause_s = limits.SUB_PLAN_CHECK_S
        while budget.requested_calls:
            await workflow.sleep(pause_s, summary=wire.TIMER_CHECK_PARENT)
            pause_s = min(2 * pause_s, limits.MAX_SUB_PLAN_CHECK_S)
            if budget.requested_calls:
                await self._report_to_parent(parent, BudgetReport(), on_parent_lost)
        self._poll_task = None

    async def _report_to_parent(self, parent: Parent, report: BudgetReport, on_parent_lost: Callable[[], None]) -> None:
        budget = self._scheduler.features.budget.budget
        added_nodes = self._scheduler.state.added_count + (
            sum(budget.added_by_child.values()) if budget is not None else 0
        )
        try:
            parent_run = workflow.get_external_workflow_handle(parent.run_id)
            await parent_run.signal(
                wire.SIGNAL_BUDGET_REPORT, budget_report_to_json(report, task=parent.task, added_nodes=added_nodes)
            )
        except FailureError:
            on_parent_lost()
