"""Where a lookup stands in a plan, so that a person finds what to mend."""

from typing import Any

from dagwright.plan.compiled import CompiledPlan
from dagwright.plan.lookup_places import lookup_errors
from dagwright.plan.scheduler import Scheduler
from dagwright.preparation import check_plan, prepare_plan

_ANN = {"search_text": "Ann", "entity_type": "person"}
_BOB = {"search_text": "Bob", "entity_type": "person"}
_PROBLEM = {"problem": {"code": "lookup_not_found", "message": "no"}}


def _intent(**lookups: object) -> dict[str, object]:
    return {"verb": "pay", "params": {}, "refs": {}, "lookups": lookups}


def _plan(raw: object) -> CompiledPlan:
    return prepare_plan(check_plan(raw, {}, any_tool=True), {})


def _errors(plan: CompiledPlan, bound: list[Any]) -> list[dict[str, Any]]:
    """Returns the errors of a run in which `bind_parties` came to this."""
    scheduler = Scheduler(plan, {})
    scheduler.begin(0.0)
    while (task := scheduler.next_task(0.0)) is not None:
        scheduler.complete(task.id, bound if task.id.startswith("lookups:") else {}, at=0.0)
    return lookup_errors(plan, scheduler.records)


def test_problems_of_lookups_name_the_first_place_of_each() -> None:
    plan = _plan({"intents": [_intent(to=_ANN), _intent(**{"from": _BOB, "to": _ANN})]})
    assert _errors(plan, [_PROBLEM, _PROBLEM]) == [
        {**_PROBLEM["problem"], "pointer": "/intents/0/lookups/to", "node": "@result_1", "argument": "to"},
        {**_PROBLEM["problem"], "pointer": "/intents/1/lookups/from", "node": "@result_2", "argument": "from"},
    ]
    assert _errors(plan, [{}, _PROBLEM])[0]["argument"] == "from"
    assert _errors(plan, [{"party": {"id": "a"}}, {"party": {"id": "b"}}]) == []


def test_place_in_a_sub_plan_is_told_by_the_nodes_that_lead_there() -> None:
    inner = {"plan": 1, "nodes": [{"id": "second", "plan": {"intents": [_intent(to=_ANN)]}}]}
    plan = _plan({"plan": 1, "nodes": [{"id": "first", "plan": inner}]})
    assert _errors(plan, [_PROBLEM]) == [
        {**_PROBLEM["problem"], "pointer": None, "node": "first/second/@result_1", "argument": "to"}
    ]
