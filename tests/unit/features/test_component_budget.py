"""Budget admission with a scheduler and no other component."""

from collections.abc import Callable, Mapping
from typing import Any

from dagwright.core.model.requests import BUDGET_TASK, Feedback, Purpose
from dagwright.core.model.states import Attempt, Usage
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.core.scheduler.scheduler import Scheduler
from dagwright.features.budgets.admission import BudgetAdmission
from dagwright.features.budgets.budget import Budget
from tests.support.components import alone, started_ids, state_of, statuses
from tests.support.plan_building import node

_TOOLS = {"ask": ToolDeclaration("ask", Effects.READ, uses_models=True)}


class FakeRequests:
    """Recorder of the requests of the run."""

    def __init__(self) -> None:
        self.run_answers: dict[Purpose, Callable[[Any, Feedback, float], None]] = {}
        self.asked: list[str] = []

    def is_asking(self, task: str) -> bool:
        return task == BUDGET_TASK and bool(self.asked)

    def ask_for_run(self, question: Mapping[str, Any], *, task: str, name: str, purpose: Purpose, at: float) -> None:
        self.asked.append(name)

    def close_request(self, task: str, at: float) -> None:
        self.asked.clear()


def _run(budget: Budget | None, requests: FakeRequests | None = None) -> tuple[Scheduler[Any], BudgetAdmission]:
    nodes = [node(name, tool="ask", arguments={"text": "x"}) for name in ("a", "b")]
    scheduler, admission = alone(
        state_of(*nodes, node("c", tool="any"), tools={**_TOOLS, "any": ToolDeclaration("any", Effects.READ)}),
        lambda scheduler: BudgetAdmission(scheduler, requests),
    )
    admission.use(budget)
    scheduler.start(0.0)
    return scheduler, admission


def test_run_without_a_budget_calls_none_of_its_hooks() -> None:
    scheduler, admission = _run(None)
    assert admission.needed_hooks() == ()
    assert started_ids(scheduler) == ["a", "b", "c"]


def test_call_beyond_the_budget_waits_and_starts_when_a_person_gives_more() -> None:
    requests = FakeRequests()
    scheduler, _ = _run(Budget({"calls": 1}), requests)
    assert started_ids(scheduler) == ["a", "c"]
    assert statuses(scheduler)["b"] == "waiting"
    scheduler.complete("a", 1, at=1.0, attempt=Attempt(usage=Usage(calls=1, input_tokens=10)))
    assert requests.asked == ["budget"]
    requests.run_answers["budget"]({"more": {"calls": 1}}, Feedback("budget", {}), 2.0)
    scheduler.propagate(2.0)
    assert (started_ids(scheduler, at=2.0), requests.asked) == (["b"], [])
