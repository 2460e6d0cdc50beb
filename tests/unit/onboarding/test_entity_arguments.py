"""Lookups and references that an argument accepts or rejects. Each rejection has a pointer."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from dagwright.core.errors import PlanInvalid, Problem
from dagwright.core.model.resolvers import Resolver
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.validation.validation import check_document
from dagwright.dialects import to_document


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


TEXT = {"type": "string"}
FUND = {"type": "string", "x-dagwright-entity": ["fund"]}
ORGANISATION = {"anyOf": [{"type": "string", "x-dagwright-entity": ["company", "fund"]}, {"type": "null"}]}
OTHER_THAN_ONE = {"x-dagwright-other-than": "one_id"}

RESOLVER = Resolver(
    "find_entity",
    "bind_entities",
    types={
        **{"entity": None, "party": None, "person": "person", "company": "company", "limited-company": "company"},
        **{"fund": "fund", "cbu": "fund", "product": "product"},
    },
    terms=("product",),
)
TOOLS = {
    tool.name: tool
    for tool in (
        ToolDeclaration("make-company", input_schema=schema(name=TEXT), returns="company"),
        ToolDeclaration("make-fund", input_schema=schema(name=TEXT, parent_id=ORGANISATION), returns="cbu"),
        ToolDeclaration("find", input_schema=schema(name=TEXT), returns="party"),
        ToolDeclaration("subscribe", input_schema=schema(cbu_id=FUND, product=TEXT), returns="product"),
        ToolDeclaration("join", input_schema=schema(one_id=FUND, two_id={**ORGANISATION, **OTHER_THAN_ONE})),
        ToolDeclaration("notify", input_schema=schema(cbu_id=FUND, text=TEXT)),
        ToolDeclaration("any", input_schema=schema(cbu_id=TEXT)),
        ToolDeclaration("undeclared"),
    )
} | RESOLVER.tools()


def intent(verb: str, **fields: Any) -> dict[str, Any]:
    return {"verb": verb, "params": {}, "refs": {}, "lookups": None, **fields}


def lookup(entity_type: str) -> dict[str, str]:
    return {"search_text": "Apex", "entity_type": entity_type}


def problems_of(document: dict[str, Any], *, tools: Mapping[str, ToolDeclaration]) -> Sequence[Problem]:
    try:
        check_document(to_document(document), tools=tools)
    except PlanInvalid as error:
        return error.problems
    return ()


def problems_of_intents(*intents: dict[str, Any]) -> list[tuple[str, str, str | None]]:
    """Return pointer, message and hint of each problem. All problems have the code `invalid_arguments`."""
    problems = problems_of({"intents": list(intents)}, tools=TOOLS)
    assert {problem.code for problem in problems} <= {"invalid_arguments"}
    return [(problem.pointer, problem.message, problem.hint) for problem in problems]


@pytest.mark.parametrize(("entity_type", "kind"), [("Limited Company", "company"), ("person", "person")])
def test_lookup_of_an_unaccepted_type_is_rejected(entity_type: str, kind: str) -> None:
    assert problems_of_intents(intent("subscribe", lookups={"cbu-id": lookup(entity_type)})) == [
        (
            "/intents/0/lookups/cbu-id/entity_type",
            f"subscribe: 'cbu-id' takes a fund, and 'Apex' is looked up as a {kind}",
            "write the entity_type fund if that is the right type",
        )
    ]


@pytest.mark.parametrize(("verb", "key"), [("make-company", "name"), ("subscribe", "product"), ("notify", "text")])
def test_lookup_of_an_argument_that_takes_no_entity_is_rejected(verb: str, key: str) -> None:
    assert problems_of_intents(intent(verb, lookups={key: lookup("fund")})) == [
        (
            f"/intents/0/lookups/{key}",
            f"{verb}: {key!r} takes no entity, so it cannot have a lookup",
            f"write the value of {key!r} itself, without a lookup",
        )
    ]


@pytest.mark.parametrize("verb", ["any", "undeclared"])
def test_tool_without_declared_entities_accepts_any_reference_or_lookup(verb: str) -> None:
    subscription = intent("subscribe", refs={"cbu-id": "@result_2"})
    assert problems_of_intents(subscription, intent("make-fund"), intent(verb, refs={"cbu_id": "@result_1"})) == []
    assert problems_of_intents(intent(verb, lookups={"cbu_id": lookup("person")})) == []


def test_reference_of_an_unaccepted_kind_is_rejected_with_the_accepted_kinds() -> None:
    intents = [
        intent("make-company"),
        intent("make-fund"),
        intent("subscribe", refs={"cbu-id": "@result_1"}),
        intent("subscribe", refs={"cbu-id": "@result_3"}),
        intent("make-fund", refs={"parent-id": "@result_3"}),
    ]
    assert problems_of_intents(*intents) == [
        (
            "/intents/2/refs/cbu-id",
            "subscribe: 'cbu-id' takes a fund, and @result_1 is the result of make-company, a company",
            "@result_2 makes a cbu; @result_5 makes a cbu",
        ),
        (
            "/intents/3/refs/cbu-id",
            "subscribe: 'cbu-id' takes a fund, and @result_3 is the result of subscribe, a product",
            "@result_2 makes a cbu; @result_5 makes a cbu",
        ),
        (
            "/intents/4/refs/parent-id",
            "make-fund: 'parent-id' takes a company or fund, and @result_3 is the result of subscribe, a product",
            "@result_1 makes a company; @result_2 makes a cbu",
        ),
    ]


def test_reference_for_an_argument_that_takes_no_entity_is_rejected() -> None:
    assert problems_of_intents(intent("make-company"), intent("make-fund", refs={"name": "@result_1"})) == [
        (
            "/intents/1/refs/name",
            "make-fund: 'name' takes no entity, and @result_1 is the result of make-company, a company",
            "write the value of 'name' itself, without a reference",
        )
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {"refs": {"one-id": "@result_1", "two-id": "@result_1"}},
        {"params": {"one-id": "fund_1", "two-id": "fund_1"}},
        {"lookups": {"one-id": lookup("fund"), "two-id": lookup("fund")}},
    ],
)
def test_equal_entities_are_rejected_if_they_must_differ(fields: dict[str, Any]) -> None:
    ((_, message, _),) = problems_of_intents(intent("make-fund"), intent("join", **fields))
    assert message == "join: 'two-id' is the same entity as 'one-id', and must be a different entity"


@pytest.mark.parametrize(
    "fields",
    [
        {"refs": {"one-id": "@result_1", "two-id": "@result_2"}},
        {"params": {"one-id": "fund_1", "two-id": "fund_2"}},
        {"params": {"one-id": "fund_1"}, "refs": {"two-id": "@result_1"}},
        {"lookups": {"one-id": lookup("fund"), "two-id": {**lookup("fund"), "jurisdiction": "LU"}}},
        {"params": {"one-id": "fund_1"}},
    ],
)
def test_different_entities_are_accepted(fields: dict[str, Any]) -> None:
    assert problems_of_intents(intent("make-fund"), intent("make-fund"), intent("join", **fields)) == []


def test_entities_of_invalid_references_are_not_compared() -> None:
    refs = {"one-id": "result 1", "two-id": "result 1"}
    problems = problems_of({"intents": [intent("join", refs=refs)]}, tools=TOOLS)
    assert [problem.code for problem in problems] == ["invalid_reference"] * 2


def test_plan_checks_only_references_to_the_id_of_a_result() -> None:
    def plan(reference: str) -> dict[str, Any]:
        nodes = [
            {"id": "a", "tool": "make-fund"},
            {"id": "b", "tool": "subscribe", "arguments": {"cbu_id": "{{a.result.id}}"}},
            {"id": "c", "tool": "subscribe", "arguments": {"cbu_id": f"{{{{{reference}}}}}"}},
        ]
        return {"plan": 1, "nodes": nodes}

    (problem,) = problems_of(plan("b.result.id"), tools=TOOLS)
    expected = ("invalid_arguments", "/nodes/2/arguments/cbu_id", "a makes a cbu")
    assert (problem.code, problem.pointer, problem.hint) == expected
    assert problems_of(plan("b.result.cbu_id"), tools=TOOLS) == ()


def test_entity_keyword_must_list_kinds_of_entities() -> None:
    tools = {"t": ToolDeclaration("t", input_schema=schema(x={"type": "string", "x-dagwright-entity": ["funds"]}))}
    tools |= RESOLVER.tools()
    (problem,) = problems_of({"plan": 1, "nodes": [{"id": "a", "tool": "t"}]}, tools=tools)
    assert problem.code == "unknown_tool"
    assert "x-dagwright-entity is ['funds'], expected a list of some of person, company, fund" in problem.message
