"""Binding of lookup results: the final check of each party, and the creation of parties on request."""

import json
from typing import Any

import pytest
from sqlalchemy.orm import Session

from dagwright_onboarding.binding import MAX_PROBLEMS_BYTES, bind_parties
from dagwright_onboarding.catalogue import PartyKind
from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.models import Effect, Party, PartyStatus
from dagwright_onboarding.parties import NaturalKey, add_party

_CREATE_ANN = {"create": {"kind": "person", "name": "Ann"}, "reason": "created at the request of a person"}


def found_party(party: Party) -> dict[str, Any]:
    return {"entity": {"id": party.id, "name": party.name, "kind": party.kind}, "reason": "exact name"}


def party_with_id(party_id: str, *kinds: str, known_as: str = "id") -> dict[str, Any]:
    return {"entity": {"id": party_id}, "reason": known_as, "known_as": known_as, "kinds": [*kinds]}


@pytest.fixture
def bob(database: EntityDatabase) -> Party:
    return database.write(lambda session: add_party(session, NaturalKey(PartyKind.PERSON, "Bob", "GB")))


def deactivate(database: EntityDatabase, party: Party) -> None:
    def set_status(session: Session) -> None:
        session.get_one(Party, party.id).status = PartyStatus.INACTIVE

    database.write(set_status)


def party_names(database: EntityDatabase) -> list[str]:
    return database.read(lambda session: sorted(party.name for party in session.query(Party)))


def test_unusable_party_is_reported_and_nothing_is_created(database: EntityDatabase, bob: Party) -> None:
    removed_party = {"entity": {"id": "person_gone", "name": "Cy", "kind": "person"}}
    deactivate(database, bob)
    first, second, third = bind_parties(database, [_CREATE_ANN, found_party(bob), removed_party], key="k")
    assert (first, second["problem"]["code"]) == ({}, "lookup_not_found")
    assert second["problem"]["message"] == "Lookup result: person 'Bob' (GB) is inactive."
    assert third["problem"]["message"] == "Lookup result: person 'Cy' (person_gone) no longer exists."
    assert party_names(database) == ["Bob"]


def test_party_of_the_context_is_fetched_by_id(database: EntityDatabase, bob: Party) -> None:
    context_party = party_with_id(bob.id, "person", known_as="@cbu")
    [entry] = bind_parties(database, [context_party], key="k")
    assert (entry["entity"]["name"], entry["reason"]) == ("Bob", "@cbu")
    hint = "give the id of a company or fund in the context: cbu=ID"
    ids = (bob.id, "fund_x", "a\0b", "")
    requests = [party_with_id(party_id, "company", "fund", known_as="@cbu") for party_id in ids]
    failed_entries = bind_parties(database, requests, key="k")
    assert [entry["problem"] for entry in failed_entries] == [
        {"code": "missing_context", "message": message, "hint": hint, "candidates": []}
        for message in (
            "@cbu is person 'Bob' (GB); expected a company or fund.",
            "@cbu is 'fund_x', and no party has that id.",
            "@cbu is 'a\\x00b', and no party has that id.",
            "@cbu is '', and no party has that id.",
        )
    ]
    deactivate(database, bob)
    [entry] = bind_parties(database, [context_party], key="k")
    assert entry["problem"]["message"] == "@cbu is person 'Bob' (GB), which is inactive."


def test_party_named_by_its_id_is_fetched(database: EntityDatabase, bob: Party) -> None:
    [entry] = bind_parties(database, [party_with_id(bob.id, "person")], key="k")
    assert (entry["entity"]["name"], entry["created"]) == ("Bob", False)
    deactivate(database, bob)
    hint = "give the id of a fund, or look up its name under lookups"
    requests = [party_with_id(party_id, "fund") for party_id in ("nonsense", "", bob.id)]
    failed_entries = bind_parties(database, requests, key="k")
    assert [entry["problem"] for entry in failed_entries] == [
        {"code": "invalid_arguments", "message": message, "hint": hint, "candidates": []}
        for message in (
            "No party has the id 'nonsense'.",
            "No party has the id ''.",
            f"'{bob.id}' is person 'Bob' (GB), which is inactive.",
        )
    ]


def test_product_or_role_is_bound_to_its_code(database: EntityDatabase) -> None:
    product = {"id": "FUND_ACCOUNTING", "name": "Fund accounting", "kind": "product", "jurisdiction": None}
    [entry] = bind_parties(database, [{"entity": product, "reason": "exact name"}], key="k")
    assert entry == {"entity": product, "reason": "exact name", "created": False}


def test_party_is_created_once_for_repeated_calls(database: EntityDatabase, bob: Party) -> None:
    requests = [_CREATE_ANN, found_party(bob), _CREATE_ANN]
    entries = bind_parties(database, requests, key="k")
    assert [entry["created"] for entry in entries] == [True, False, False]
    assert entries[0]["entity"] == entries[2]["entity"]
    assert bind_parties(database, requests, key="k") == entries
    assert [entry["created"] for entry in bind_parties(database, [_CREATE_ANN], key="other")] == [False]
    assert party_names(database) == ["Ann", "Bob"]
    effect_verbs = database.read(lambda session: [effect.verb for effect in session.query(Effect)])
    assert effect_verbs == ["bind_parties"] * 2


def test_second_person_with_the_same_name_is_another_party(database: EntityDatabase, bob: Party) -> None:
    bob_junior = {"kind": "person", "name": "Bob", "jurisdiction": "GB", "date_of_birth": "1980-01-31"}
    [entry] = bind_parties(database, [{"create": bob_junior, "reason": ""}], key="k")
    assert (entry["created"], entry["entity"]["id"] == bob.id) == (True, False)


def test_problems_are_shortened_to_the_size_limit(database: EntityDatabase) -> None:
    problem = {"code": "lookup_ambiguous", "message": "m", "hint": "h", "candidates": [{"name": "x" * 200}] * 10}
    result = bind_parties(database, [{"problem": problem}, *[{"problem": problem}] * 400], key="k")
    assert len(json.dumps(result)) <= MAX_PROBLEMS_BYTES
    assert {len(entry["problem"]["candidates"]) for entry in result} == {1}
