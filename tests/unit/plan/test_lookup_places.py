"""Where a lookup stands in a plan, so that a person finds what to mend."""

from dagwright.plan.lookup_places import with_places
from dagwright.plan.references import Lookup
from dagwright.preparation import check_plan, prepare_plan

_ANN = {"search_text": "Ann", "entity_type": "person"}
_BOB = {"search_text": "Bob", "entity_type": "person"}


def _intent(**lookups: object) -> dict[str, object]:
    return {"verb": "pay", "params": {}, "refs": {}, "lookups": lookups}


def test_problems_of_lookups_name_the_first_place_of_each() -> None:
    raw = {"intents": [_intent(to=_ANN), _intent(**{"from": _BOB, "to": _ANN})]}
    plan = prepare_plan(check_plan(raw, {}, any_tool=True), {})
    lookups = [Lookup("Ann", "person"), Lookup("Bob", "person"), Lookup("Cy", "person")]

    assert with_places([{"index": number} for number in (0, 1, 2)], lookups, plan) == [
        {"index": 0, "pointer": "/intents/0/lookups/to", "node": "@result_1", "argument": "to"},
        {"index": 1, "pointer": "/intents/1/lookups/from", "node": "@result_2", "argument": "from"},
        {"index": 2, "pointer": None, "node": None},
    ]


def test_place_in_a_sub_plan_is_told_by_the_nodes_that_lead_there() -> None:
    inner = {"intents": [_intent(to=_ANN)]}
    raw = {"plan": 1, "nodes": [{"id": "first", "plan": inner}]}
    plan = prepare_plan(check_plan(raw, {}, any_tool=True), {})

    assert with_places([{"index": 0}], [Lookup("Ann", "person")], plan) == [
        {"index": 0, "pointer": None, "node": "first/@result_1", "argument": "to"}
    ]
