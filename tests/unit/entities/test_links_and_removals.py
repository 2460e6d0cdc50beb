"""People, links between parties that are there, what a CBU has, and taking all of it away again."""

from dataclasses import asdict, replace

import pytest

from dagwright.entities.catalogue import LINKS, PartyKind
from dagwright.entities.database import EntityDatabase
from dagwright.entities.effects import EffectLog
from dagwright.entities.overview import Change, changed_rows, read_overview
from dagwright.entities.verb_results import CbuRequest, PartyResult
from dagwright.entities.verbs import NewParty, OnboardingVerbs, create_parties


def test_people_of_one_name_are_told_apart_by_their_birth(verbs: OnboardingVerbs) -> None:
    older = verbs.create_person("k1", name="John Smith", jurisdiction="gb", date_of_birth="1950-03-01")
    younger = verbs.create_person("k2", name="John Smith", jurisdiction="GB", date_of_birth="1990-03-01")
    same = verbs.create_person("k3", name="JOHN  Smith", jurisdiction="GB", date_of_birth="1950-03-01")
    assert asdict(older) == {
        "id": older.id,
        "kind": "person",
        "name": "John Smith",
        "jurisdiction": "GB",
        "date_of_birth": "1950-03-01",
        "created": True,
    }
    assert younger.id != older.id
    assert same == replace(older, created=False)


def test_person_of_whom_only_the_name_is_known_is_made_once(verbs: OnboardingVerbs) -> None:
    first = verbs.create_person("k1", name="Ann Lee")
    assert (first.jurisdiction, first.date_of_birth, first.created) == (None, None, True)
    assert verbs.create_person("k2", name="Ann Lee") == replace(first, created=False)
    elsewhere = verbs.create_person("k3", name="Ann Lee", jurisdiction="IE")
    assert elsewhere.created


def test_person_who_may_be_another_one_is_not_made(verbs: OnboardingVerbs) -> None:
    verbs.create_person("k1", name="Ann Lee", jurisdiction="IE", date_of_birth="1970-12-31")
    for given in ({}, {"jurisdiction": "IE"}, {"date_of_birth": "1970-12-31"}):
        with pytest.raises(ValueError, match=r"person 'Ann Lee' \(IE\), born 1970-12-31 is there already"):
            verbs.create_person("k2", name="Ann Lee", **given)
    assert verbs.create_person("k3", name="Ann Lee", jurisdiction="GB").created


def test_two_funds_are_related_to_each_other_by_one_link(database: EntityDatabase, verbs: OnboardingVerbs) -> None:
    one = verbs.ensure_cbu("k1", CbuRequest("Fund A", "LU"))
    two = verbs.ensure_cbu("k2", CbuRequest("Fund B", "LU"))
    before = read_overview(database)
    link = verbs.link("k3", cbu_id=one.id, entity_id=two.id, link="RELATED")
    assert asdict(link) == {
        "id": link.id,
        "cbu_id": one.id,
        "cbu_name": "Fund A",
        "entity_id": two.id,
        "entity_name": "Fund B",
        "link": "RELATED",
        "created": True,
    }
    back = verbs.link("k4", cbu_id=two.id, entity_id=one.id, link="RELATED")
    assert (back.id, back.created) == (link.id, False)
    assert [change.change for change in changed_rows(before, read_overview(database))] == [Change.ADDED]
    assert verbs.get_cbu(one.id).related_to == [two.id]
    assert verbs.get_cbu(two.id).related_to == [one.id]
    assert verbs.unlink("k5", cbu_id=two.id, entity_id=one.id, link="RELATED").id == link.id
    assert read_overview(database) == before


@pytest.mark.parametrize("link", LINKS)
def test_company_is_linked_and_unlinked_as_a_fund_is(
    database: EntityDatabase, verbs: OnboardingVerbs, link: str
) -> None:
    ids = [verbs.create_limited_company(name, name=name, jurisdiction="LU").id for name in ("One", "Two", "Three")]
    before = read_overview(database)
    made = verbs.link("k1", cbu_id=ids[0], entity_id=ids[1], link=link)
    assert verbs.link("k2", cbu_id=ids[0], entity_id=ids[1], link=link) == replace(made, created=False)
    found = verbs.get_cbu(ids[0])
    held = {"PARENT": found.parent_entity_ids, "MANAGEMENT_COMPANY": [found.manco_id], "RELATED": found.related_to}
    assert held[link] == [ids[1]]
    assert verbs.unlink("k3", cbu_id=ids[0], entity_id=ids[2], link=link).removed is False
    gone = verbs.unlink("k4", cbu_id=ids[0], entity_id=ids[1], link=link)
    assert (gone.id, gone.link, gone.removed) == (made.id, link, True)
    assert verbs.unlink("k4", cbu_id=ids[0], entity_id=ids[1], link=link) == gone
    again = verbs.unlink("k5", cbu_id=ids[0], entity_id=ids[1], link=link)
    assert (again.id, again.removed) == (None, False)
    assert read_overview(database) == before


def test_role_and_product_are_taken_away_once(database: EntityDatabase, verbs: OnboardingVerbs) -> None:
    fund = verbs.ensure_cbu("k1", CbuRequest("Fund", "LU"))
    person = verbs.create_person("k2", name="Ann Lee")
    before = read_overview(database)
    role = verbs.assign_role("k3", cbu_id=fund.id, entity_id=person.id, role="DIRECTOR")
    product = verbs.add_product("k4", cbu_id=fund.id, product="CUSTODY")
    no_role = verbs.remove_role("k5", cbu_id=fund.id, entity_id=person.id, role="DIRECTOR")
    no_product = verbs.remove_product("k6", cbu_id=fund.id, product="CUSTODY")
    at_fund = {"cbu_id": fund.id, "cbu_name": "Fund", "removed": True}
    of_person = {"entity_id": person.id, "entity_name": "Ann Lee"}
    assert asdict(no_role) == {"id": role.id, "role": "DIRECTOR", **of_person, **at_fund}
    assert asdict(no_product) == {"id": product.id, "product": "CUSTODY", **at_fund}
    assert read_overview(database) == before
    assert verbs.remove_role("k7", cbu_id=fund.id, entity_id=person.id, role="DIRECTOR").removed is False
    assert verbs.remove_product("k8", cbu_id=fund.id, product="CUSTODY").removed is False
    assert verbs.remove_role("k5", cbu_id=fund.id, entity_id=person.id, role="DIRECTOR") == no_role
    assert verbs.assign_role("k9", cbu_id=fund.id, entity_id=person.id, role="DIRECTOR").created


def test_cbu_is_found_with_all_that_hangs_on_it(verbs: OnboardingVerbs) -> None:
    manco = verbs.create_limited_company("k1", name="ManCo", jurisdiction="LU")
    fund = verbs.ensure_cbu("k2", CbuRequest("Fund", "LU", manco_id=manco.id))
    people = [verbs.create_person(name, name=name).id for name in ("Zoe", "Ann")]
    for number, (person, role) in enumerate(
        [(people[0], "DIRECTOR"), (people[1], "DIRECTOR"), (people[0], "CHAIRPERSON")]
    ):
        verbs.assign_role(f"r{number}", cbu_id=fund.id, entity_id=person, role=role)
    for product in ("FUND_ACCOUNTING", "CUSTODY"):
        verbs.add_product(product, cbu_id=fund.id, product=product)
    assert asdict(verbs.get_cbu(fund.id)) == {
        "id": fund.id,
        "kind": "fund",
        "name": "Fund",
        "jurisdiction": "LU",
        "client_type": "fund",
        "parent_entity_ids": [],
        "manco_id": manco.id,
        "related_to": [],
        "roles": [
            {"role": "CHAIRPERSON", "entity_id": people[0], "entity_name": "Zoe"},
            {"role": "DIRECTOR", "entity_id": people[1], "entity_name": "Ann"},
            {"role": "DIRECTOR", "entity_id": people[0], "entity_name": "Zoe"},
        ],
        "products": ["CUSTODY", "FUND_ACCOUNTING"],
    }
    assert verbs.get_cbu(manco.id).client_type is None


NEW = [
    NewParty(PartyKind.PERSON, "John Smith"),
    NewParty(PartyKind.COMPANY, "ManCo", "lu"),
    NewParty(PartyKind.FUND, "Apex", "LU"),
]


def test_several_parties_are_created_as_one(database: EntityDatabase, verbs: OnboardingVerbs) -> None:
    known = verbs.create_limited_company("k1", name="ManCo", jurisdiction="LU")
    verbs.create_person("k2", name="John Smith", date_of_birth="1950-03-01")
    log = EffectLog(database)

    def once(key: str, *more: NewParty) -> list[PartyResult]:
        return log.once(key, "bind_parties", list[PartyResult], lambda call: create_parties(call, [*NEW, *more]))

    before = read_overview(database)
    with pytest.raises(ValueError, match="jurisdiction: a company such as 'Other' needs one"):
        once("k3", NewParty(PartyKind.COMPANY, "Other"))
    assert read_overview(database) == before
    made = once("k3")
    assert [(party.kind, party.name, party.jurisdiction, party.created) for party in made] == [
        ("person", "John Smith", None, True),
        ("company", "ManCo", "LU", False),
        ("fund", "Apex", "LU", True),
    ]
    assert made[1].id == known.id
    assert once("k3") == made
    assert verbs.get_cbu(made[2].id).client_type == "fund"
    assert verbs.undo("k3").reverted == [
        "fund 'Apex' (LU) is gone",
        "person 'John Smith' (jurisdiction not known) is gone",
    ]
    assert read_overview(database) == before
