"""Used and reserved budget is counted once, over any number of executions and for any reports of child runs."""

from hypothesis import given, settings
from hypothesis import strategies as st

from dagwright.core.model.requests import Feedback
from dagwright.core.model.states import NO_USAGE, Attempt, NodeStatus, Usage
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.features.budgets.budget import Budget, BudgetReport
from tests.support.plan_building import budget_of, compiled_plan, plan_of, restored_scheduler, started_scheduler

MODEL = ToolDeclaration("call_model", Effects.READ)
SUB = {"plan": 1, "nodes": [{"id": "inner", "tool": "call_model"}]}
PLAN = compiled_plan(
    plan_of(
        *({"id": name, "tool": "call_model", "arguments": {"config": {"max_tokens": 50}}} for name in "abc"),
        {"id": "items", "tool": "call_model", "for_each": [1, 2], "arguments": {"config": {"max_tokens": 20}}},
        {"id": "after", "tool": "call_model", "depends_on": ["a", "items"], "join": "all_done"},
        {"id": "sub", "plan": SUB},
    ),
    tools={MODEL.name: MODEL},
)


class Snapshot:
    """One run that is handed on from execution to execution at any moment, with a sub-plan that asks it."""

    def __init__(self) -> None:
        self.scheduler = started_scheduler(PLAN, setup={"budget": Budget({"calls": 2, "tokens": 3_000})})
        self.running: list[str] = []
        self.below = 0
        """Reported or pending calls of the sub-plan."""
        self.paid, self.sent_reports = NO_USAGE, NO_USAGE
        self.at = 0.0

    @property
    def budget(self) -> Budget:
        return budget_of(self.scheduler)

    def do(self, what: str, number: int) -> None:
        self.at += 1.0
        match what:
            case "start":
                while (task := self.scheduler.next_task(self.at)) is not None:
                    self.running.append(task.id)
            case "end" if self.running:
                self._end(self.running.pop(number % len(self.running)), number)
            case "tell" if "sub" in self.running:
                self._report(number)
            case "more" if (asked := self.scheduler.features.feedback.requests.of_task("~budget")) is not None:
                more = {"calls": 1, "tokens": 1_000}
                assert self.scheduler.features.feedback.answer(Feedback(asked.id, {"data": more}), self.at) is None
            case "carry":
                self.scheduler = restored_scheduler(self.scheduler, PLAN)

    def _end(self, task_id: str, number: int) -> None:
        is_call = task_id != "sub" or bool(self._held_in_children)
        last = Usage(calls=1, prompt_tokens=number) if is_call else NO_USAGE
        self.paid += last
        usage, self.sent_reports = (
            (self.sent_reports + last, NO_USAGE) if task_id == "sub" else (last, self.sent_reports)
        )
        self.scheduler.complete(task_id, None, at=self.at, attempt=Attempt(1, self.at, usage=usage))

    @property
    def _held_in_children(self) -> list[str]:
        return [key for owner, key in self.budget.reservations if owner]

    def _report(self, number: int) -> None:
        name, earlier = f"inner{self.below}", f"inner{self.below - 1}"
        settled: dict[str, Usage | None] = {}
        if ("sub", earlier) in self.budget.reservations:
            settled[earlier] = used = Usage(calls=1, prompt_tokens=number)
            self.paid, self.sent_reports = self.paid + used, self.sent_reports + used
        if ("sub", earlier) not in self.budget.waiting_calls:
            self.below += 1
            self.scheduler.features.budget.handle_report(
                "sub", BudgetReport({name: 100}, settled), added_nodes=0, at=self.at
            )

    def check(self) -> None:
        total = self.scheduler.state.totals.usage.total
        assert total.calls + self.sent_reports.calls == self.paid.calls
        assert total.tokens + self.sent_reports.tokens == self.paid.tokens
        assert (
            sum((used for name, used in self.scheduler.state.totals.usage.tasks.items() if "[" not in name), NO_USAGE)
            == total
        )
        # A task that may start again has its share before it starts.
        own = {key for owner, key in self.budget.reservations if not owner}
        assert own >= {name for name in self.running if name != "sub"}
        assert self.paid.calls + len(self.budget.reservations) <= self.budget.limits["calls"]


@settings(deadline=None)
@given(
    events=st.lists(
        st.tuples(st.sampled_from(["start", "start", "end", "tell", "more", "carry"]), st.integers(1, 60)), max_size=60
    )
)
def test_usage_is_counted_once_over_all_executions(events: list[tuple[str, int]]) -> None:
    run = Snapshot()
    for what, number in events:
        run.do(what, number)
        run.check()
    for _ in range(20):
        for what in ("start", "carry", "end", "more", "carry"):
            run.do(what, 7)
    assert all(record.status is NodeStatus.COMPLETED for record in run.scheduler.records)
    assert run.scheduler.state.totals.usage.total == run.paid
    assert (run.budget.reservations, run.budget.waiting_calls, run.budget.usage_by_child) == ({}, {}, {})
