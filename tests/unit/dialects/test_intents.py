"""The dialect `intents`."""

from typing import Any

import pytest

from dagwright.core.compiler.compilation import compile_plan
from dagwright.core.expressions.references import Lookup, ResultOf, Scope, resolve_bindings
from dagwright.core.model.tools import ToolDeclaration
from dagwright.dialects import to_document
from dagwright_onboarding.entity_types import RESOLVER
from tests.conformance.kit import check, codes_and_pointers_of, problems_of

ENSURE_INTENT: dict[str, Any] = {"verb": "cbu.ensure", "params": {"name": "Apex"}}
JOHN_LOOKUP = {"search_text": "John Smith", "entity_type": "person"}


def intent_with_ref(ref: str) -> dict[str, Any]:
    """Return an intent with one reference."""
    return {"verb": "v", "refs": {"a": ref}}


def intents_document(*entries: Any, **keys: Any) -> dict[str, Any]:
    return {"intents": list(entries), **keys}


def test_arguments_are_ordered_params_then_refs_then_lookups() -> None:
    refs, lookups = {"y": "@result_1", "x": "@cbu"}, {"w": JOHN_LOOKUP}
    entry = {"verb": "v", "params": {"z": [{"deep": None}]}, "refs": refs, "lookups": lookups}
    document = to_document(intents_document(ENSURE_INTENT, entry), context={"cbu": 7})
    arguments = document.plan["nodes"][1]["arguments"]
    assert list(arguments.items()) == [("z", [{"deep": None}]), ("y", None), ("x", 7), ("w", None)]
    assert document.bindings == {(1, "y"): ResultOf("@result_1", "identity"), (1, "w"): Lookup("John Smith", "person")}


def test_lookups_and_placeholders_add_no_edges() -> None:
    first_intent = {**ENSURE_INTENT, "lookups": {"a": JOHN_LOOKUP, "b": dict(JOHN_LOOKUP)}}
    checked_plan = check(intents_document(first_intent, {**ENSURE_INTENT, "lookups": {"a": JOHN_LOOKUP}}))
    assert checked_plan.levels == [["@result_1", "@result_2"]]
    assert checked_plan.edge_count == 0
    assert checked_plan.lookups == [Lookup("John Smith", "person")]
    params = {"a": {"b": "{{PLACEHOLDER_fund}}"}, "c": "@result_1 costs $100"}
    checked_plan = check(intents_document({"verb": "v", "params": params}))
    assert list(checked_plan.inputs) == ["fund"]
    assert checked_plan.edge_count == 0


def test_explanation_and_confidence_are_metadata() -> None:
    metadata = {"explanation": "Why", "confidence": 1}
    assert check(intents_document(ENSURE_INTENT, **metadata)).plan.metadata == metadata
    assert check(intents_document(ENSURE_INTENT, explanation=None, confidence=None)).plan.metadata == {}
    expected = [("invalid_field", "/extra"), ("invalid_field", "/explanation"), ("invalid_field", "/confidence")]
    assert codes_and_pointers_of(intents_document(ENSURE_INTENT, explanation=7, confidence=True, extra=1)) == expected


@pytest.mark.parametrize(
    "ref",
    ["@result_0", "@result_01", "@result_x", "@result_", "@result", "@Result_1", "result_1", "@", "", 1, None, {}],
)
def test_malformed_reference_is_rejected_at_its_key(ref: Any) -> None:
    (problem,) = problems_of(intents_document(ENSURE_INTENT, {"verb": "v", "refs": {"cbu/id": ref}}))
    assert (problem.code, problem.pointer) == ("invalid_reference", "/intents/1/refs/cbu~1id")
    assert problem.message.startswith("intent 2: ")


@pytest.mark.parametrize("number", ["3", "99999999999999999999", "9" * 5000])
def test_error_of_a_reference_to_a_missing_result_suggests_lookups(number: str) -> None:
    (problem,) = problems_of(intents_document(ENSURE_INTENT, intent_with_ref(f"@result_{number}")))
    assert (problem.code, problem.pointer) == ("invalid_reference", "/intents/1/refs/a")
    assert "lookups" in (problem.hint or "")


@pytest.mark.parametrize(
    ("lookup", "pointers"),
    [
        *((invalid_lookup, [""]) for invalid_lookup in (None, "John", [JOHN_LOOKUP])),
        ({}, ["", ""]),
        ({"search_text": "", "entity_type": 7}, ["/search_text", "/entity_type"]),
        ({**JOHN_LOOKUP, "type": "x"}, ["/type"]),
        ({**JOHN_LOOKUP, "search_text": "---"}, ["/search_text"]),
    ],
)
def test_malformed_lookup_is_rejected_at_its_key(lookup: Any, pointers: list[str]) -> None:
    problems = to_document(intents_document({"verb": "v", "lookups": {"a": lookup}}), tools=RESOLVER.tools()).problems
    actual = [(problem.code, problem.pointer) for problem in problems]
    assert actual == [("invalid_field", f"/intents/0/lookups/a{pointer}") for pointer in pointers]


@pytest.mark.parametrize("text", ["@result_1", " @result_1 ", "@result_0", "@Result_1", "@cbu", "@no.such-name"])
def test_reference_among_the_params_is_rejected_at_its_key(text: str) -> None:
    entry = {"verb": "v", "params": {"cbu/id": text}}
    (problem,) = problems_of(intents_document(ENSURE_INTENT, entry), context={"cbu": "fund_1"})
    assert (problem.code, problem.pointer) == ("invalid_reference", "/intents/1/params/cbu~1id")
    assert problem.message == (
        f"intent 2: Invalid reference: the param 'cbu/id' is {text!r}, but params cannot have refs"
    )
    assert problem.hint == "write it under refs"


def test_duplicate_key_is_rejected_at_its_second_location() -> None:
    refs = {"a": "@result_1", "b": "@result_1"}
    entry = {"verb": "v", "params": {"a": 1}, "refs": refs, "lookups": {"b": JOHN_LOOKUP}}
    expected = [("invalid_field", "/intents/1/refs/a"), ("invalid_field", "/intents/1/lookups/b")]
    assert codes_and_pointers_of(intents_document(ENSURE_INTENT, entry)) == expected


def test_unknown_context_name_is_reported() -> None:
    (problem,) = problems_of(intents_document(intent_with_ref("@manco")), context={"cbu": 1})
    assert (problem.code, problem.pointer) == ("missing_context", "/intents/0/refs/a")
    assert problem.hint == "give it in the context: manco=ID"
    (similar_name_problem,) = problems_of(intents_document(intent_with_ref("@cbu")), context={"cbuu": "fund_1"})
    assert similar_name_problem.hint == "did you mean 'cbuu'? Or give it in the context: cbu=ID"
    (earlier_intent_problem,) = problems_of(intents_document(ENSURE_INTENT, intent_with_ref("@cbu")))
    expected = "give it in the context: cbu=ID or, if an earlier intent makes it, write @result_N of that intent"
    assert earlier_intent_problem.hint == expected
    tools = {"cbu.ensure": ToolDeclaration("cbu.ensure", sets="cbu"), "v": ToolDeclaration("v")}
    raw = intents_document(intent_with_ref("@cbu"), ENSURE_INTENT, ENSURE_INTENT, intent_with_ref("@cbu"))
    first_problem, last_problem = to_document(raw, tools=tools).problems
    assert first_problem.hint == "give it in the context: cbu=ID"
    assert (last_problem.code, last_problem.pointer) == ("missing_context", "/intents/3/refs/a")
    assert last_problem.hint == "write @result_3"
    assert last_problem.message == (
        "intent 4: 'a' is @cbu, which the session does not have before this request; in this request, @cbu is @result_3"
    )
    assert to_document(raw, tools=tools, context={"cbu": "fund_1"}).problems == []


def test_context_name_is_replaced_by_the_id_in_its_value() -> None:
    fund: dict[str, Any] = {"id": "fund_1", "name": "Apex " * 50, "kind": "fund"}
    document = to_document(intents_document(intent_with_ref("@cbu")), context={"cbu": fund})
    assert document.plan["nodes"][0]["arguments"] == {"a": "fund_1"}
    lookup = document.bindings[0, "a"]
    assert isinstance(lookup, Lookup)
    assert (lookup, lookup.display_name) == (Lookup("fund_1", "", known_as="@cbu"), ("Apex " * 50)[:80])


@pytest.mark.parametrize("empty_id", ["", "  "])
def test_context_name_with_an_empty_id_is_reported(empty_id: str) -> None:
    (problem,) = problems_of(intents_document(intent_with_ref("@cbu")), context={"cbu": empty_id})
    expected = ("missing_context", "intent 1: 'a' is @cbu, which has no id in the session")
    assert (problem.code, problem.message) == expected
    assert problem.hint == "give it in the context: cbu=ID"


@pytest.mark.parametrize("value", ["{{@result_1.result}} \\{{x}} {{{{", {"a": ["{{item}}"]}, "plain", None, 7])
def test_value_of_a_context_name_is_never_parsed_as_a_reference(value: Any) -> None:
    checked_plan = check(intents_document(ENSURE_INTENT, intent_with_ref("@cbu")), context={"cbu": value})
    node = compile_plan(checked_plan).nodes[1]
    scope = Scope(get_node_value=lambda _, __: "wrong", inputs={})
    assert node.dependencies == ()
    assert resolve_bindings(dict(node.arguments), node.bindings, scope=scope) == {"a": value}


def test_reference_to_a_later_intent_has_a_note() -> None:
    (note,) = check(intents_document(intent_with_ref("@result_2"), ENSURE_INTENT)).notes
    assert (note.code, note.node_id) == ("forward_reference", "@result_1")
    assert note.message == "intent 1 uses @result_2, which comes later; intent 2 runs first"


def test_reference_resolves_to_the_id_of_a_result_or_to_the_whole_result() -> None:
    node = compile_plan(check(intents_document(ENSURE_INTENT, intent_with_ref("@result_1")))).nodes[1]
    for result, value in (({"id": 5, "name": "x"}, 5), ({"name": "x"}, {"name": "x"}), ("CBU-1", "CBU-1"), ([1], [1])):
        scope = Scope(get_node_value=lambda _, __, result=result: result, inputs={})  # type: ignore[misc]
        assert resolve_bindings(dict(node.arguments), node.bindings, scope=scope) == {"a": value}


def test_every_key_of_a_lookup_is_checked_before_the_run() -> None:
    lookups: dict[str, Any] = {
        "a": {"search_text": "", "entity_type": "spaceship"},
        "b": {"search_text": "Ann", "entity_type": "persn"},
        "c": {"search_text": "Ann", "entity_type": "Limited_Company"},
    }
    document = to_document({"intents": [{"verb": "v", "lookups": lookups}]}, tools=RESOLVER.tools())
    types = "entity, party, person, natural-person, company, limited-company, legal-entity, fund, cbu, product, role"
    unknown_type_message = f"Unknown entity type {{!r}}. Known types: {types}"
    assert [(problem.code, problem.pointer, problem.message, problem.hint) for problem in document.problems] == [
        ("invalid_field", f"/intents/0/lookups/{name}/{key}", f"intent 1, lookup '{name}': {message}", hint)
        for name, key, message, hint in (
            ("a", "search_text", "'search_text' must not be empty", None),
            ("a", "entity_type", unknown_type_message.format("spaceship"), None),
            ("b", "entity_type", unknown_type_message.format("persn"), "did you mean 'person'?"),
        )
    ]
