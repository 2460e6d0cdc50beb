"""Messages that start a plan as a child of a workflow."""

from datetime import timedelta
from typing import Any, cast

import pytest
from temporalio.exceptions import ApplicationError

from dagwright.core.boundary import wire
from dagwright.plans.plan import Plan
from dagwright.tools import tool
from dagwright.workflows.child import ChildPlanOptions, _memo_of, _message_of


@tool(effects="read")
def stock(n: int) -> int:
    """Return a number."""
    return n


def test_message_of_a_plan_has_its_dialect_title_and_options() -> None:
    tasks = {"dag": [{"id": "a", "tool": "stock", "query": "x", "dependencies": []}]}
    plan = Plan.parse(tasks, dialect="tasks")
    options = ChildPlanOptions(deadline=timedelta(minutes=2), context={"@order": "o-1"}, compensate=True)
    message = _message_of(plan, options)
    assert (message["plan"], message["dialect"]) == (tasks, "tasks")
    assert message["context"] == {"order": "o-1"}
    assert message["options"] == {"deadline": "2m", "compensate": True}
    text = '1. stock("x")'
    assert _message_of(Plan.parse(text, dialect="llmcompiler"), {})["dialect"] == "llmcompiler"
    assert "dialect" not in _message_of(text, {})
    assert _message_of(text, {"dialect": "llmcompiler"})["dialect"] == "llmcompiler"
    assert _memo_of(Plan("Refill"), {}, caller="order")[wire.MEMO_TITLE] == "Refill"


def test_invalid_tags_fail_the_workflow() -> None:
    with pytest.raises(ApplicationError, match="the value of tag 'order' must be a string, not int") as error:
        _memo_of(Plan("Refill"), cast(ChildPlanOptions, {"tags": {"order": 4711}}), caller="order")
    assert (error.value.type, error.value.non_retryable) == ("TagsInvalid", True)


def test_large_plan_is_not_copied_in_the_workflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copying a plan of 20,001 nodes takes so long that Temporal may stop the workflow task."""
    plan = Plan("Large")
    for number in range(3):
        plan.add(stock, n=number)

    def fail(_: object) -> Any:
        raise AssertionError("the plan was copied")

    monkeypatch.setattr("copy.deepcopy", fail)
    assert len(_message_of(plan, {})["plan"]["nodes"]) == 3
    assert _memo_of(plan, {}, caller="order")[wire.MEMO_TITLE] == "Large"
