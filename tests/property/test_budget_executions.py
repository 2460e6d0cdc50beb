"""Used and reserved budget is counted once, across any number of executions and for any reports of child runs."""

from hypothesis import given, settings
from hypothesis import strategies as st

from dagwright.core.model.requests import Feedback
from dagwright.core.model.states import NO_USAGE, Attempt, NodeStatus, Usage
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.features.budgets.budget import Budget, BudgetReport
from tests.support.plan_building import budget_of, compiled_plan, plan_of, restored_scheduler, started_scheduler

MODEL = ToolDeclaration("call_model", Effects.READ)
SUB_PLAN = {"plan": 1, "nodes": [{"id": "inner", "tool": "call_model"}]}
PLAN = compiled_plan(
    plan_of(
        *({"id": name, "tool": "call_model", "arguments": {"config": {"max_tokens": 50}}} for name in "abc"),
        {"id": "items", "tool": "call_model", "for_each": [1, 2], "arguments": {"config": {"max_tokens": 20}}},
        {"id": "after", "tool": "call_model", "depends_on": ["a", "items"], "join": "all_done"},
        {"id": "sub", "plan": SUB_PLAN},
    ),
    tools={MODEL.name: MODEL},
)


class BudgetedRun:
    """A run with a budget and a sub-plan that reports to the run. The run may continue as new at any moment."""

    def __init__(self) -> None:
        self.scheduler = started_scheduler(PLAN, setup={"budget": Budget({"calls": 2, "tokens": 3_000})})
        self.running_ids: list[str] = []
        self.child_call_count = 0
        """Number of the reported or pending calls of the sub-plan."""
        self.used, self.usage_reported_by_child = NO_USAGE, NO_USAGE
        self.at = 0.0

    @property
    def budget(self) -> Budget:
        return budget_of(self.scheduler)

    def apply(self, event: str, number: int) -> None:
        """Apply an event; `number` chooses the task that ends, and is the number of its tokens."""
        self.at += 1.0
        match event:
            case "start":
                while (task := self.scheduler.next_task(self.at)) is not None:
                    self.running_ids.append(task.id)
            case "end" if self.running_ids:
                self._end(self.running_ids.pop(number % len(self.running_ids)), number)
            case "report" if "sub" in self.running_ids:
                self._report(number)
            case "raise_limits" if (
                request := self.scheduler.features.feedback.requests.of_task("~budget")
            ) is not None:
                limits = {"calls": 1, "tokens": 1_000}
                assert self.scheduler.features.feedback.answer(Feedback(request.id, {"data": limits}), self.at) is None
            case "continue":
                self.scheduler = restored_scheduler(self.scheduler, PLAN)

    def _end(self, task_id: str, number: int) -> None:
        is_call = task_id != "sub" or bool(self._child_reservation_keys)
        call_usage = Usage(calls=1, prompt_tokens=number) if is_call else NO_USAGE
        self.used += call_usage
        usage, self.usage_reported_by_child = (
            (self.usage_reported_by_child + call_usage, NO_USAGE)
            if task_id == "sub"
            else (call_usage, self.usage_reported_by_child)
        )
        self.scheduler.complete(task_id, None, at=self.at, attempt=Attempt(1, self.at, usage=usage))

    @property
    def _child_reservation_keys(self) -> list[str]:
        return [key for child_id, key in self.budget.reservations if child_id]

    def _report(self, number: int) -> None:
        next_call, last_call = f"inner{self.child_call_count}", f"inner{self.child_call_count - 1}"
        usage_by_call: dict[str, Usage | None] = {}
        if ("sub", last_call) in self.budget.reservations:
            usage_by_call[last_call] = usage = Usage(calls=1, prompt_tokens=number)
            self.used, self.usage_reported_by_child = self.used + usage, self.usage_reported_by_child + usage
        if ("sub", last_call) not in self.budget.waiting_calls:
            self.child_call_count += 1
            self.scheduler.features.budget.handle_report(
                "sub", BudgetReport({next_call: 100}, usage_by_call), added_count=0, at=self.at
            )

    def check(self) -> None:
        total = self.scheduler.state.totals.usage.total
        assert total.calls + self.usage_reported_by_child.calls == self.used.calls
        assert total.tokens + self.usage_reported_by_child.tokens == self.used.tokens
        assert (
            sum((usage for name, usage in self.scheduler.state.totals.usage.tasks.items() if "[" not in name), NO_USAGE)
            == total
        )
        # Each running task has a reservation.
        reserved_keys = {key for child_id, key in self.budget.reservations if not child_id}
        assert reserved_keys >= {name for name in self.running_ids if name != "sub"}
        assert self.used.calls + len(self.budget.reservations) <= self.budget.limits["calls"]


@settings(deadline=None)
@given(
    events=st.lists(
        st.tuples(st.sampled_from(["start", "start", "end", "report", "raise_limits", "continue"]), st.integers(1, 60)),
        max_size=60,
    )
)
def test_usage_is_counted_once_across_executions(events: list[tuple[str, int]]) -> None:
    run = BudgetedRun()
    for event, number in events:
        run.apply(event, number)
        run.check()
    for _ in range(20):
        for event in ("start", "continue", "end", "raise_limits", "continue"):
            run.apply(event, 7)
    assert all(record.status is NodeStatus.COMPLETED for record in run.scheduler.records)
    assert run.scheduler.state.totals.usage.total == run.used
    assert (run.budget.reservations, run.budget.waiting_calls, run.budget.usage_by_child) == ({}, {}, {})
