"""What a run tells of its model calls: read from results, failures and the ends of sub-plans, by node and by agent."""

import json
from decimal import Decimal
from typing import Any

import pydantic_core
import pytest
from temporalio.api.common.v1 import Payload
from temporalio.exceptions import ActivityError, ApplicationError, RetryState

from dagwright.contracts.documents import RunFacts, result_document
from dagwright.contracts.messages import sub_plan_end_from_json
from dagwright.contracts.outcomes import take_failure, take_result, take_sub_plan_end
from dagwright.contracts.wire import METADATA_USAGE
from dagwright.plan.carry import carry_of, restore
from dagwright.plan.node_acts import RetryNode, SetResult
from dagwright.plan.scheduler import Scheduler
from dagwright.plan.states import Attempt
from dagwright.plan.steering import take
from dagwright.plan.tools import Effects, ToolDeclaration
from dagwright.plan.usage import Usage, UsageBook, usage_book_from_json
from tests.unit.plan.building import TOOLS, broken, compiled, node, plan_of, scheduler_of, started

FACTS = RunFacts("w1", "r1")
USED = Usage(calls=1, prompt_tokens=30, completion_tokens=12, money=Decimal("0.25"))


def answered(value: Any, usage: bytes) -> Payload:
    return Payload(metadata={"encoding": b"json/plain", METADATA_USAGE: usage}, data=pydantic_core.to_json(value))


def told(usage: Usage) -> bytes:
    return pydantic_core.to_json(usage.to_json())


def failure(details: Any) -> ActivityError:
    error = ActivityError(
        "failed",
        scheduled_event_id=1,
        started_event_id=2,
        identity="",
        activity_type="any",
        activity_id="a",
        retry_state=RetryState.MAXIMUM_ATTEMPTS_REACHED,
    )
    error.__cause__ = ApplicationError("no", details, type="model_cut_off")
    return error


def test_document_tells_what_nodes_used_and_all_of_it() -> None:
    scheduler = scheduler_of(node("a"), node("b"), node("c"))
    started(scheduler)
    take_result(scheduler, "a", answered(1, told(USED)), at=1.0)
    take_failure(scheduler, "b", failure({"attempt": 3, "usage": USED.to_json()}), at=1.0)
    take_result(scheduler, "c", Payload(metadata={"encoding": b"json/plain"}, data=b"1"), at=1.0)
    document = result_document(scheduler, FACTS)
    one = {
        "calls": 1,
        "prompt_tokens": 30,
        "completion_tokens": 12,
        "cached_tokens": 0,
        "reasoning_tokens": 0,
        "money": "0.25",
        "unpriced_calls": 0,
        "uncounted_calls": 0,
        "tokens": 42,
        "cost": "0.25",
    }
    assert document["usage"] == (USED + USED).told()
    assert {name: each.get("usage") for name, each in document["nodes"].items()} == {"a": one, "b": one, "c": None}


def test_run_that_asked_no_model_tells_nothing_of_it() -> None:
    scheduler = scheduler_of(node("a"))
    started(scheduler)
    scheduler.complete("a", 1, at=1.0)
    assert result_document(scheduler, FACTS)["usage"] == {}
    assert "usage" not in carry_of(scheduler)


@pytest.mark.parametrize("told_as", [b"", b"[1]", b"no JSON", b'{"calls": -1}', b'{"calls": "many"}'])
def test_usage_that_cannot_be_read_is_none(told_as: bytes) -> None:
    scheduler = scheduler_of(node("a"), node("b"))
    started(scheduler)
    take_result(scheduler, "a", answered(1, told_as), at=1.0)
    take_failure(scheduler, "b", failure({"usage": told_as.decode()}), at=1.0)
    assert (scheduler.records[0].result, scheduler.usage) == (1, UsageBook())


def test_unknown_cost_is_told_as_unknown() -> None:
    scheduler = scheduler_of(node("a"), node("b"))
    started(scheduler)
    scheduler.complete("a", 1, at=1.0, attempt=Attempt(usage=USED))
    scheduler.complete("b", 1, at=1.0, attempt=Attempt(usage=Usage(calls=1, prompt_tokens=5, unpriced_calls=1)))
    document = result_document(scheduler, FACTS)
    assert (document["usage"]["money"], document["usage"]["cost"], document["usage"]["tokens"]) == ("0.25", None, 47)


def test_every_try_of_a_node_counts() -> None:
    scheduler = scheduler_of(node("a"))
    started(scheduler)
    scheduler.fail("a", broken(), at=1.0, attempt=Attempt(usage=USED))
    assert take(RetryNode("a"), scheduler, at=2.0) is None
    started(scheduler, at=2.0)
    scheduler.fail("a", broken(), at=3.0, attempt=Attempt(usage=USED))
    assert take(SetResult("a", 5), scheduler, at=4.0) is None
    assert (scheduler.usage.total, scheduler.usage.tasks) == (USED + USED, {"a": USED + USED})


def test_node_with_items_has_used_what_they_have() -> None:
    scheduler = scheduler_of(node("m", for_each=["x", "y"], key="{{item}}"))
    started(scheduler)
    scheduler.complete("m[x]", 1, at=1.0, attempt=Attempt(usage=USED))
    scheduler.complete("m[y]", 1, at=1.0, attempt=Attempt(usage=USED))
    assert scheduler.usage.tasks == {"m[x]": USED, "m": USED + USED, "m[y]": USED}
    assert scheduler.usage.total == USED + USED


def agents_plan() -> Scheduler:
    agent = ToolDeclaration("agent.writer", Effects.READ)
    below = plan_of(node("in"))
    raw = plan_of(node("w", tool="agent.writer"), node("p", plan=below), node("q", plan=below))
    scheduler = Scheduler(compiled(raw, tools={**TOOLS, agent.name: agent}), {})
    scheduler.begin(0.0)
    started(scheduler)
    return scheduler


def test_agents_are_told_by_name_those_of_sub_plans_too() -> None:
    scheduler = agents_plan()
    scheduler.complete("w", 1, at=1.0, attempt=Attempt(usage=USED))
    inside = {**(USED + USED).told(), "agents": {"writer": USED.told(), "critic": USED.told()}}
    end = sub_plan_end_from_json({"task": "p", "status": "completed", "output": 1, "usage": inside})
    take_sub_plan_end(scheduler, end, at=2.0)
    take_sub_plan_end(scheduler, end, at=3.0)
    failed = {"task": "q", "status": "failed", "error": {"message": "no"}, "usage": USED.told()}
    take_sub_plan_end(scheduler, sub_plan_end_from_json(failed), at=2.0)
    assert scheduler.usage == UsageBook(
        USED + USED + USED + USED, {"w": USED, "p": USED + USED, "q": USED}, {"writer": USED + USED, "critic": USED}
    )
    assert result_document(scheduler, FACTS)["usage"]["agents"] == {
        "writer": (USED + USED).told(),
        "critic": USED.told(),
    }


def test_usage_goes_on_in_a_new_execution() -> None:
    scheduler = agents_plan()
    scheduler.complete("w", 1, at=1.0, attempt=Attempt(usage=USED))
    carried = json.loads(json.dumps(carry_of(scheduler)))
    following = Scheduler(scheduler.plan, {})
    restore(following, carried)
    assert following.usage == scheduler.usage
    assert usage_book_from_json(None) == UsageBook()
