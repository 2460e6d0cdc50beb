"""Problems that `check` reports in onboarding intents, and the catalogue of the values that `check` accepts."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from dagwright.core.errors import PlanInvalid, Problem
from dagwright.core.validation.validation import check_document
from dagwright.dialects import to_document
from dagwright_onboarding.catalogue import PRODUCTS, ROLES
from dagwright_onboarding.entity_types import RESOLVER
from dagwright_onboarding.onboarding import onboarding_tools
from dagwright_onboarding.verb_catalogue import CATALOGUE_FILE, catalogue_text

EXAMPLES = Path(__file__).parents[3] / "examples" / "onboarding"
TOOLS = {spec.name: spec.declaration for spec in onboarding_tools("sqlite:///never-opened.db")}


def problems_of(*intents: dict[str, Any]) -> Sequence[Problem]:
    try:
        check_document(to_document({"intents": list(intents)}), tools=TOOLS)
    except PlanInvalid as error:
        return error.problems
    return ()


def intent(
    verb: str, *, refs: dict[str, str] | None = None, lookups: Mapping[str, Any] | None = None, **params: str
) -> dict[str, Any]:
    return {"verb": verb, "params": params, "refs": refs or {}, "lookups": lookups}


MANCO_INTENT = intent("entity.create-limited-company", name="ManCo", jurisdiction="LU")
FUND_INTENT = intent("cbu.ensure", name="Apex", jurisdiction="LU")


@pytest.mark.parametrize("example", ["full.json", "mixed.json", "ambiguous.json", "not_found.json"])
def test_examples_have_no_problems(example: str) -> None:
    document = json.loads((EXAMPLES / example).read_text(encoding="utf-8"))
    assert problems_of(*document["intents"]) == ()


def test_company_may_have_roles_but_no_products() -> None:
    role = intent("cbu.assign-role", refs={"cbu-id": "@result_1", "entity-id": "@result_2"}, role="DIRECTOR")
    assert problems_of(MANCO_INTENT, FUND_INTENT, role) == ()
    product = intent("cbu.add-product", refs={"cbu-id": "@result_1"}, product="CUSTODY")
    (problem,) = problems_of(MANCO_INTENT, FUND_INTENT, product)
    message = (
        "cbu.add-product: 'cbu-id' takes a fund, and @result_1 is the result of entity.create-limited-company, "
        "a company"
    )
    assert (problem.pointer, problem.message) == ("/intents/2/refs/cbu-id", message)
    assert problem.hint == "@result_2 makes a fund"


INVALID_BIRTH = "is not a date of birth from 1800-01-01 to 2099-12-31"


@pytest.mark.parametrize(
    ("verb", "invalid_params", "message"),
    [
        ("cbu.ensure", {"jurisdiction": "Luxembourg"}, "jurisdiction 'Luxembourg' is not an ISO 3166 code"),
        ("entity.create-limited-company", {"jurisdiction": "UK"}, "no country UK; the United Kingdom is GB"),
        ("entity.create-limited-company", {"jurisdiction": ""}, "jurisdiction '' is not an ISO 3166 code"),
        ("entity.create-limited-company", {"name": " "}, "' ' is not a name: it has no letter or digit"),
        ("entity.create-person", {"date-of-birth": "1980-02-30"}, "'1980-02-30' is not a date such as 1970-12-31"),
        ("entity.create-person", {"date-of-birth": "19800230"}, "'19800230' is not a date such as 1970-12-31"),
        ("entity.create-person", {"date-of-birth": "2999-01-01"}, INVALID_BIRTH),
        ("entity.create-person", {"date-of-birth": "0001-01-01"}, INVALID_BIRTH),
        ("entity.create-person", {"jurisdiction": "US-ZZ"}, "is not an ISO 3166 code: US has no subdivision ZZ"),
        ("entity.create-person", {"jurisdiction": "XX"}, "there is no country XX"),
        ("entity.create-person", {"name": ""}, "'' is not a name"),
        ("cbu.ensure", {"jurisdiction": "US-"}, "jurisdiction 'US-' is not an ISO 3166 code"),
        ("cbu.ensure", {"name": "\t"}, "is not a name"),
        ("cbu.ensure", {"name": "A\0B"}, "is not a name: it has the character U+0000 at position 1"),
        ("cbu.ensure", {"name": "A\nB"}, "is not a name: it has the character U+000A at position 1"),
        ("cbu.ensure", {"name": "A\u2028B"}, "is not a name: it has the character U+2028 at position 1"),
        ("entity.create-person", {"name": "Ann \u202eeeL"}, "is not a name: it has the character U+202E at position 4"),
        ("cbu.ensure", {"name": "Ape\u200bx Fund"}, "is not a name: it has the character U+200B at position 3"),
        ("cbu.ensure", {"name": "\u3164"}, "is not a name: it has the character U+3164 at position 0"),
        ("entity.create-person", {"name": "A" * 10_000}, "is not a name: it has 10,000 characters, at most 300 are"),
    ],
)
def test_invalid_value_is_rejected(verb: str, invalid_params: dict[str, str], message: str) -> None:
    valid_params = {"name": "Apex", "jurisdiction": "us-de"}
    assert problems_of({"verb": verb, "params": valid_params}) == ()
    (problem,) = problems_of({"verb": verb, "params": {**valid_params, **invalid_params}})
    assert (problem.code, problem.pointer) == ("invalid_arguments", f"/intents/0/params/{next(iter(invalid_params))}")
    assert message in problem.message


def test_problems_use_the_spelling_of_the_arguments_in_the_plan() -> None:
    [unknown_argument] = problems_of(FUND_INTENT, intent("cbu.add-product", refs={"cbu-id": "@result_1"}, prod="X"))
    assert unknown_argument.message == "cbu.add-product: unknown argument 'prod'"
    assert unknown_argument.hint == "did you mean 'product'?"
    intent_with_typo = {"verb": "cbu.assign-role", "params": {"entity-idd": "p", "role": "DIRECTOR"}}
    (missing_argument, misspelled_argument) = sorted(problems_of(intent_with_typo), key=lambda problem: problem.message)
    assert missing_argument.message == 'cbu.assign-role: "cbu-id" is a required property'
    assert misspelled_argument.hint == "did you mean 'entity-id'?"
    for params, missing_name in (({"product": "CUSTODY"}, "cbu-id"), ({"some_product": "CUSTODY"}, "cbu_id")):
        actual = {problem.message for problem in problems_of({"verb": "cbu.add-product", "params": params})}
        assert f'cbu.add-product: "{missing_name}" is a required property' in actual


def test_role_for_persons_is_rejected_for_companies() -> None:
    def find_problems(role: str, *, ref: str | None = None, lookup_type: str | None = None) -> list[tuple[str, str]]:
        refs = {"cbu-id": "@result_1"} | ({} if ref is None else {"entity-id": ref})
        lookups = None if lookup_type is None else {"entity-id": {"search_text": "Kite", "entity_type": lookup_type}}
        role_intent = intent("cbu.assign-role", refs=refs, lookups=lookups, role=role)
        return [(problem.pointer, problem.message) for problem in problems_of(FUND_INTENT, MANCO_INTENT, role_intent)]

    message_start = "cbu.assign-role: 'entity-id' takes a person where 'role' is COMPLIANCE_OFFICER, and"
    assert find_problems("COMPLIANCE_OFFICER", lookup_type="company") == [
        ("/intents/2/lookups/entity-id/entity_type", f"{message_start} 'Kite' is looked up as a company")
    ]
    company_result = "@result_2 is the result of entity.create-limited-company, a company"
    assert find_problems("COMPLIANCE_OFFICER", ref="@result_2") == [
        ("/intents/2/refs/entity-id", f"{message_start} {company_result}")
    ]
    for entity_type in ("person", "entity"):
        assert find_problems("COMPLIANCE_OFFICER", lookup_type=entity_type) == []
    assert find_problems("INVESTOR", lookup_type="company") == []
    assert find_problems("INVESTOR", ref="@result_2") == []


def test_fund_cannot_have_a_role_at_itself_or_a_link_to_itself() -> None:
    refs = {"cbu-id": "@result_1", "entity-id": "@result_1"}
    intents = [intent("cbu.link", refs=refs, link="PARENT"), intent("cbu.assign-role", refs=refs, role="INVESTOR")]
    actual = problems_of(FUND_INTENT, *intents)
    message = "'entity-id' is the same entity as 'cbu-id', and must be a different entity"
    assert [(problem.pointer, problem.message) for problem in actual] == [
        ("/intents/1/refs/entity-id", f"cbu.link: {message}"),
        ("/intents/2/refs/entity-id", f"cbu.assign-role: {message}"),
    ]


VERBS: dict[str, Any] = yaml.safe_load(catalogue_text())["verbs"]
PARAMETERS = [(verb, name) for verb, details in VERBS.items() for name in details["parameters"]]


def is_rejected(*intents: dict[str, Any], path: str) -> bool:
    """Return whether `check` rejects the value at a path of the last intent. Other problems are ignored."""
    return any(problem.pointer.startswith(f"/intents/{len(intents) - 1}/{path}") for problem in problems_of(*intents))


def test_catalogue_file_is_up_to_date() -> None:
    assert CATALOGUE_FILE.read_text(encoding="utf-8") == catalogue_text()


def test_catalogue_lists_every_verb_but_no_undo_or_lookup_tools() -> None:
    other_tools = {"onboarding.undo", "find_party", "bind_parties"}
    assert list(VERBS) == [name for name in TOOLS if name not in other_tools]
    for name, details in VERBS.items():
        assert details["effects"] == TOOLS[name].effects
        assert details.get("undo") == TOOLS[name].undo
        assert details.get("sets", "@").removeprefix("@") == (TOOLS[name].sets or "")


def test_catalogue_entry_has_the_parameters_result_and_undo_of_its_verb() -> None:
    product = VERBS["cbu.add-product"]
    assert product == {
        "description": "Subscribe a fund to a product.",
        "effects": "idempotent",
        "parameters": {
            "cbu-id": {
                "description": "id of the fund.",
                "lookups": ["entity", "party", "fund", "cbu"],
                "refs": ["cbu.ensure", "cbu.get"],
                "required": True,
            },
            "product": {
                "description": "the product.",
                "one_of": list(PRODUCTS),
                "lookups": ["product"],
                "required": True,
            },
        },
        "returns": {
            "id": "of a product",
            "cbu_id": "text",
            "cbu_name": "text",
            "product": "text",
            "created": "true or false",
        },
        "undo": "onboarding.undo",
    }
    assert VERBS["cbu.assign-role"]["parameters"]["role"]["one_of"] == list(ROLES)
    assert VERBS["cbu.get"]["returns"]["roles"] == "list of objects"
    assert (VERBS["cbu.ensure"]["sets"], VERBS["cbu.get"]["sets"]) == ("@cbu", "@cbu")


@pytest.mark.parametrize(("verb", "name"), PARAMETERS)
def test_check_accepts_only_lookups_and_references_of_the_catalogue(verb: str, name: str) -> None:
    parameter = VERBS[verb]["parameters"][name]
    for entity_type in RESOLVER.types:
        lookup = {name: {"search_text": "Apex", "entity_type": entity_type}}
        is_invalid = is_rejected(intent(verb, lookups=lookup), path=f"lookups/{name}")
        assert is_invalid == (entity_type not in parameter.get("lookups", ()))
    for producer in VERBS:
        is_invalid = is_rejected(intent(producer), intent(verb, refs={name: "@result_1"}), path=f"refs/{name}")
        assert is_invalid == (producer not in parameter.get("refs", ()))
