"""Which kinds of parties are looked up: those that are taken at each argument where the lookup stands."""

from collections.abc import Sequence
from typing import Any

from dagwright.dialects import to_document
from dagwright.entities.onboarding import onboarding_tools
from dagwright.plan.compilation import compile_plan
from dagwright.plan.errors import PlanInvalid, Problem
from dagwright.plan.lookups import KNOWN_BEFORE, found_before
from dagwright.plan.references import Lookup
from dagwright.plan.validation import check_document

TOOLS = {spec.name: spec.declaration for spec in onboarding_tools("sqlite:///never-opened.db")}


def anyone(text: str = "Meridian", entity_type: str = "entity") -> dict[str, str]:
    return {"search_text": text, "entity_type": entity_type}


def ensure(**lookups: dict[str, str]) -> dict[str, Any]:
    named = {name.replace("_", "-"): lookup for name, lookup in lookups.items()}
    return {"verb": "cbu.ensure", "params": {"name": "Apex", "jurisdiction": "LU"}, "lookups": named}


def role(name: str, entity_type: str = "entity") -> dict[str, Any]:
    lookups = {"entity-id": anyone(entity_type=entity_type)}
    return {"verb": "cbu.assign-role", "params": {"role": name}, "refs": {"cbu-id": "@result_1"}, "lookups": lookups}


def looked_up(*intents: dict[str, Any]) -> list[tuple[str, str]]:
    checked = check_document(to_document({"intents": list(intents)}), tools=TOOLS)
    return [(lookup.search_text, lookup.entity_type) for lookup in checked.lookups]


def problems_of(*intents: dict[str, Any]) -> Sequence[Problem]:
    try:
        check_document(to_document({"intents": list(intents)}), tools=TOOLS)
    except PlanInvalid as invalid:
        return invalid.problems
    return ()


def test_entity_means_the_kinds_that_the_parameter_takes() -> None:
    assert looked_up(ensure(manco_id=anyone("A"), related_to=anyone("B", "party"))) == [
        ("A", "company"),
        ("B", "company or fund"),
    ]
    assert looked_up(ensure(), role("DIRECTOR")) == [("Meridian", "entity")]
    assert looked_up(ensure(), role("COMPLIANCE_OFFICER")) == [("Meridian", "person")]
    assert looked_up(ensure(manco_id=anyone("A", "limited-company"))) == [("A", "limited-company")]


def test_lookup_of_several_parameters_means_the_kinds_that_all_of_them_take() -> None:
    intents = [ensure(related_to=anyone(), manco_id=anyone()), role("DIRECTOR")]
    assert looked_up(*intents) == [("Meridian", "company")]
    assert looked_up(ensure(related_to=anyone()), role("DIRECTOR")) == [("Meridian", "company or fund")]
    # Whoever writes a type means that party, wherever else the text stands.
    assert looked_up(ensure(manco_id=anyone()), role("COMPLIANCE_OFFICER", "person")) == [
        ("Meridian", "company"),
        ("Meridian", "person"),
    ]


def test_lookup_that_no_party_can_be_is_refused() -> None:
    (problem,) = problems_of(ensure(manco_id=anyone()), role("DIRECTOR"), role("COMPLIANCE_OFFICER"))
    assert (problem.code, problem.pointer, problem.message) == (
        "invalid_arguments",
        "/intents/2/lookups/entity-id/entity_type",
        "cbu.assign-role: 'entity-id' takes a person where 'role' is COMPLIANCE_OFFICER, and 'Meridian' is looked up"
        " for 'manco-id' of @result_1 too, which takes a company",
    )
    assert problem.hint == "write at each lookup the entity_type that is taken there, if two parties are meant"


def test_lookup_where_no_party_is_taken_is_still_refused() -> None:
    (problem,) = problems_of(ensure(manco_id=anyone(), client_type=anyone()))
    assert problem.pointer == "/intents/0/lookups/client-type"


def test_party_that_was_bound_before_is_meant_where_no_fewer_kinds_were_searched() -> None:
    plan = compile_plan(check_document(to_document({"intents": [ensure(related_to=anyone())]}), tools=TOOLS))
    (node,) = [node for node in plan.nodes if node.tool == "find_party"]
    company = {"id": "company_1", "name": "Meridian", "kind": "company"}

    def before(entity_type: str, kind: str = "company") -> dict[str, Any] | None:
        return found_before(node, {Lookup("Meridian", entity_type): {**company, "kind": kind}})

    known = {"party": company, "reason": KNOWN_BEFORE}
    assert (before("entity"), before("company or fund")) == (known, known)
    assert before("entity", "person") is None
    # A fund of that name was not searched for.
    assert before("company") is None
