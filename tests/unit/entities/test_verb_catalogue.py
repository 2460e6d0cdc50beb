"""The catalogue of the verbs says what check does, and is the file in docs."""

from typing import Any

import pytest
import yaml

from dagwright.dialects import to_document
from dagwright.entities.catalogue import PRODUCTS, ROLES
from dagwright.entities.onboarding import onboarding_tools
from dagwright.entities.verb_catalogue import CATALOGUE_FILE, catalogue_text
from dagwright.plan.entity_types import KIND_OF
from dagwright.plan.errors import PlanInvalid
from dagwright.plan.validation import check_document

TOOLS = {spec.name: spec.declaration for spec in onboarding_tools("sqlite:///never-opened.db")}
VERBS: dict[str, Any] = yaml.safe_load(catalogue_text())["verbs"]
PARAMETERS = [(verb, name) for verb, told in VERBS.items() for name in told["parameters"]]


def is_refused(*intents: dict[str, Any], place: str) -> bool:
    """Returns whether check refuses what stands at a place of the last intent, whatever else is missing."""
    try:
        check_document(to_document({"intents": list(intents)}), tools=TOOLS)
    except PlanInvalid as invalid:
        return any(problem.pointer.startswith(f"/intents/{len(intents) - 1}/{place}") for problem in invalid.problems)
    return False


def test_file_is_fresh() -> None:
    assert CATALOGUE_FILE.read_text(encoding="utf-8") == catalogue_text()


def test_every_verb_is_told_and_its_undo_is_not() -> None:
    assert list(VERBS) == [name for name in TOOLS if name != "onboarding.undo"]
    for name, told in VERBS.items():
        assert told["effects"] == TOOLS[name].effects
        assert told.get("undo") == TOOLS[name].undo
        assert told.get("sets", "@").removeprefix("@") == (TOOLS[name].sets or "")


def test_verb_is_told_with_all_that_a_reader_needs() -> None:
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
def test_check_takes_the_lookups_and_references_of_the_catalogue_and_no_others(verb: str, name: str) -> None:
    parameter = VERBS[verb]["parameters"][name]
    for entity_type in KIND_OF:
        lookup = {name: {"search_text": "Apex", "entity_type": entity_type}}
        refused = is_refused({"verb": verb, "params": {}, "refs": {}, "lookups": lookup}, place=f"lookups/{name}")
        assert refused == (entity_type not in parameter.get("lookups", ()))
    for maker in VERBS:
        made: dict[str, Any] = {"verb": maker, "params": {}, "refs": {}, "lookups": None}
        refused = is_refused(made, {**made, "verb": verb, "refs": {name: "@result_1"}}, place=f"refs/{name}")
        assert refused == (maker not in parameter.get("refs", ()))
