"""The budget that runs share: tells the run above and those below what the scheduler has to say of it."""

import asyncio
from collections.abc import Callable

from temporalio import workflow
from temporalio.exceptions import FailureError

from dagwright.core.boundary import limits, wire
from dagwright.core.scheduler.task_creation import task_of_call
from dagwright.features.budgets.budget import Budget, BudgetReport
from dagwright.features.run_scheduler import RunScheduler
from dagwright.protocol.budgets import BudgetGrant, budget_grant_to_json, budget_report_to_json
from dagwright.protocol.commands import ChildSignal
from dagwright.protocol.messages import Parent
from dagwright.workflows.sub_plans import SubPlans


class BudgetSignals:
    """Tells the others of the budget of one run.

    Args:
        parent: the run above, which is told; `None` for one that has none.
    """

    def __init__(self, scheduler: RunScheduler, parent: Parent | None, sub_plans: SubPlans) -> None:
        self._scheduler = scheduler
        self._parent = parent
        self._sub_plans = sub_plans
        self._finish_told = (
            scheduler.features.budget.budget is not None and scheduler.features.budget.budget.finishing is not None
        )
        """Those that run know of it; those that start are told in their input."""
        self._telling: set[asyncio.Task[None]] = set()
        self._looking: asyncio.Task[None] | None = None

    def tell(self, *, lose_above: Callable[[], None]) -> None:
        """Tells what has come up since the last time.

        Args:
            lose_above: called if the run above is gone, of which nothing can be asked then.
        """
        budget = self._scheduler.features.budget.budget
        if budget is None:
            return
        for call, calls in budget.next_grants().items():
            task_id = task_of_call(self._scheduler.state, call)
            if task_id is not None:
                given = budget_grant_to_json(BudgetGrant(calls))
                self._sub_plans.send(ChildSignal(wire.SIGNAL_BUDGET_GRANT, given, task_id))
        if budget.finishing is not None and not self._finish_told:
            self._finish_told = True
            given = budget_grant_to_json(BudgetGrant(finishing=budget.finishing))
            self._sub_plans.tell_all(wire.SIGNAL_BUDGET_GRANT, given)
        up = budget.next_report()
        if self._parent is None:
            return
        if up is not None:
            telling = asyncio.create_task(self._tell_above(self._parent, up, lose_above))
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)
        if budget.asked and self._looking is None:
            self._looking = asyncio.create_task(self._look_after_above(self._parent, budget, lose_above))

    async def _look_after_above(self, parent: Parent, budget: Budget, lose_above: Callable[[], None]) -> None:
        """Tells the run above now and then, ever more seldom, that calls wait: one that was terminated answers none."""
        pause_s = limits.SUB_PLAN_CHECK_S
        while budget.asked:
            await workflow.sleep(pause_s, summary=wire.TIMER_CHECK_PARENT)
            pause_s = min(2 * pause_s, limits.SUB_PLAN_CHECK_MAX_S)
            if budget.asked:
                await self._tell_above(parent, BudgetReport(), lose_above)
        self._looking = None

    async def _tell_above(self, parent: Parent, up: BudgetReport, lose_above: Callable[[], None]) -> None:
        budget = self._scheduler.features.budget.budget
        grown = self._scheduler.state.added_count + (sum(budget.grown_by_child.values()) if budget is not None else 0)
        try:
            above = workflow.get_external_workflow_handle(parent.workflow_id)
            await above.signal(wire.SIGNAL_BUDGET_REPORT, budget_report_to_json(up, task=parent.task, grown=grown))
        except FailureError:
            lose_above()
