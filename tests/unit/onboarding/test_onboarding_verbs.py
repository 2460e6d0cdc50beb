"""Onboarding verbs: idempotency by key and by natural key, atomicity, links, removals, and parts of a fund (CBU)."""

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace

import pytest

from dagwright.tools.testing import tool_context
from dagwright_onboarding.catalogue import LINKS, PartyKind
from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.effects import EffectLog
from dagwright_onboarding.onboarding import onboarding_tools
from dagwright_onboarding.overview import RowChange, RowKind, changed_rows, read_overview
from dagwright_onboarding.parties import NaturalKey, ensure_party
from dagwright_onboarding.verb_results import CbuRequest, PartyResult
from dagwright_onboarding.verbs import NewParty, OnboardingVerbs, create_parties


def add_person(database: EntityDatabase, name: str) -> str:
    key = NaturalKey(PartyKind.PERSON, name, "GB")
    return database.write(lambda session: ensure_party(session, key)[0].id)


def test_company_is_created_once_and_found_with_another_idempotency_key(verbs: OnboardingVerbs) -> None:
    name = "Apex ManCo S.à r.l."
    first, repeated_result = (verbs.create_limited_company("k1", name=name, jurisdiction="lu") for _ in range(2))
    company_with_other_spelling = verbs.create_limited_company("k2", name=" APEX  manco s.a r.l. ", jurisdiction="LU")
    irish_company = verbs.create_limited_company("k3", name=name, jurisdiction="IE")
    assert repeated_result == first
    assert asdict(first) == {"id": first.id, "kind": "company", "name": name, "jurisdiction": "LU", "created": True}
    assert (company_with_other_spelling, irish_company.id == first.id) == (replace(first, created=False), False)


def test_cbu_is_linked_to_the_requested_parties(verbs: OnboardingVerbs) -> None:
    holding = verbs.create_limited_company("k1", name="HoldCo Ltd", jurisdiction="JE")
    manco = verbs.create_limited_company("k2", name="ManCo Ltd", jurisdiction="JE")
    sister = verbs.ensure_cbu("k3", CbuRequest("Sister Fund", "JE"))
    fund = verbs.ensure_cbu("k4", CbuRequest("Fund I", "JE", "fund", holding.id, manco.id, sister.id))
    party = {"id": fund.id, "kind": "fund", "name": "Fund I", "jurisdiction": "JE", "client_type": "fund"}
    links = {"parent_entity_ids": [holding.id], "manco_id": manco.id, "related_to": [sister.id]}
    assert asdict(fund) == {**party, **links, "created": True, "linked": True}
    same_cbu = verbs.ensure_cbu("k5", CbuRequest("Fund I", "JE", None, holding.id))
    assert same_cbu == replace(fund, created=False, linked=False)


def test_cbu_gets_a_second_parent_but_no_second_manco(verbs: OnboardingVerbs) -> None:
    first = verbs.create_limited_company("k1", name="One Ltd", jurisdiction="LU")
    second = verbs.create_limited_company("k2", name="Two Ltd", jurisdiction="LU")
    verbs.ensure_cbu("k3", CbuRequest("Fund", "LU", parent_entity_id=first.id, manco_id=first.id))
    linked_cbu = verbs.ensure_cbu("k4", CbuRequest("Fund", "LU", parent_entity_id=second.id))
    assert (linked_cbu.parent_entity_ids, linked_cbu.linked, linked_cbu.created) == ([first.id, second.id], True, False)
    with pytest.raises(ValueError, match=r"is already managed by company 'One Ltd' \(LU\)"):
        verbs.ensure_cbu("k5", CbuRequest("Fund", "LU", manco_id=second.id))


def test_cbu_without_jurisdiction_must_have_a_unique_name(verbs: OnboardingVerbs) -> None:
    luxembourg_fund = verbs.ensure_cbu("k1", CbuRequest("Apex", "LU"))
    assert verbs.ensure_cbu("k2", CbuRequest("apex")).id == luxembourg_fund.id
    verbs.ensure_cbu("k3", CbuRequest("Apex", "IE"))
    message = r"several parties have this name \(fund 'Apex' \(IE\), fund 'Apex' \(LU\)\)"
    with pytest.raises(ValueError, match=message):
        verbs.ensure_cbu("k4", CbuRequest("Apex"))
    assert verbs.ensure_cbu("k5", CbuRequest("Unplaced")).jurisdiction is None


def test_role_and_product_are_added_once(database: EntityDatabase, verbs: OnboardingVerbs) -> None:
    person = add_person(database, "John Smith")
    fund = verbs.ensure_cbu("k1", CbuRequest("Fund", "LU"))
    director = {"cbu_id": fund.id, "entity_id": person, "role": "DIRECTOR"}
    role = verbs.assign_role("k2", **director)
    product = verbs.add_product("k3", cbu_id=fund.id, product="CUSTODY")
    fund_fields = {"cbu_id": fund.id, "cbu_name": "Fund", "created": True}
    person_fields = {"entity_id": person, "entity_name": "John Smith"}
    assert asdict(role) == {"id": role.id, "role": "DIRECTOR", **person_fields, **fund_fields}
    assert asdict(product) == {"id": product.id, "product": "CUSTODY", **fund_fields}
    overview_before = read_overview(database)
    assert verbs.assign_role("k2", **director) == role
    assert verbs.assign_role("k4", **director) == replace(role, created=False)
    assert verbs.add_product("k5", cbu_id=fund.id, product="CUSTODY") == replace(product, created=False)
    assert read_overview(database) == overview_before


INVALID_CALLS: list[tuple[str, str, dict[str, str]]] = [
    ("cbu-id: no party has the id 'fund_x'", "cbu.add-product", {"cbu_id": "fund_x", "product": "CUSTODY"}),
    ("cbu-id: no party has the id 'a\\x00b'", "cbu.add-product", {"cbu_id": "a\0b", "product": "CUSTODY"}),
    ("'CUSTODIE'; did you mean 'CUSTODY'?", "cbu.add-product", {"cbu_id": "FUND", "product": "CUSTODIE"}),
    ("can have products, not company 'ManCo' (LU)", "cbu.add-product", {"cbu_id": "CO", "product": "CUSTODY"}),
    ("entity-id: no party has the id ''", "cbu.assign-role", {"cbu_id": "FUND", "entity_id": "", "role": "TRUSTEE"}),
    (
        "Unknown role 'KING'. Known roles: DI",
        "cbu.assign-role",
        {"cbu_id": "CO", "entity_id": "PERSON", "role": "KING"},
    ),
    ("a company, not at person", "cbu.assign-role", {"cbu_id": "PERSON", "entity_id": "CO", "role": "TRUSTEE"}),
    ("cannot have a role at itself", "cbu.assign-role", {"cbu_id": "CO", "entity_id": "CO", "role": "TRUSTEE"}),
    ("must be a person, got", "cbu.assign-role", {"cbu_id": "FUND", "entity_id": "CO", "role": "RISK_MANAGER"}),
    ("manco-id: no party has the id 'x'", "cbu.ensure", {"name": "New", "manco_id": "x"}),
    ("the management company must be a company, got person", "cbu.ensure", {"name": "New", "manco_id": "PERSON"}),
    ("the parent must be a company or fund", "cbu.ensure", {"name": "New", "parent_entity_id": "PERSON"}),
    ("cannot be its own related party", "cbu.ensure", {"name": "Fund", "related_to": "FUND"}),
    ("fund 'Fund' (LU) is a 'fund', not a 'trust'", "cbu.ensure", {"name": "Fund", "client_type": "Trust"}),
    ("client type '?' is not a short word", "cbu.ensure", {"name": "Fund", "client_type": "?"}),
    ("date-of-birth '1970-02-30' is not a", "entity.create-person", {"name": "Ann", "date_of_birth": "1970-02-30"}),
    ("date-of-birth 2099-12-31 is in", "entity.create-person", {"name": "Ann", "date_of_birth": "2099-12-31"}),
    ("already exists; look that person up, or give jurisdiction", "entity.create-person", {"name": "John Smith"}),
    ("cbu-id: expected a fund or a company, got person", "cbu.get", {"cbu_id": "PERSON"}),
    ("cbu-id: no party has the id 'x'", "cbu.get", {"cbu_id": "x"}),
    ("Unknown role 'KING'", "cbu.remove-role", {"cbu_id": "CO", "entity_id": "PERSON", "role": "KING"}),
    ("Unknown product 'GOLD'", "cbu.remove-product", {"cbu_id": "FUND", "product": "GOLD"}),
    ("Unknown link 'SISTER'", "cbu.link", {"cbu_id": "FUND", "entity_id": "CO", "link": "SISTER"}),
    ("cannot be its own parent", "cbu.link", {"cbu_id": "FUND", "entity_id": "FUND", "link": "PARENT"}),
    ("expected a fund or a company", "cbu.link", {"cbu_id": "PERSON", "entity_id": "CO", "link": "RELATED"}),
    ("related party must be a company or", "cbu.link", {"cbu_id": "FUND", "entity_id": "PERSON", "link": "RELATED"}),
    ("not an ISO 3166 code", "entity.create-limited-company", {"name": "New", "jurisdiction": "Luxembourg"}),
    ("the name is empty", "entity.create-limited-company", {"name": "  ", "jurisdiction": "LU"}),
    ("the character U+0000 at", "entity.create-limited-company", {"name": "a\0b", "jurisdiction": "LU"}),
    ("the name has 301 characters", "entity.create-limited-company", {"name": "n" * 301, "jurisdiction": "LU"}),
]
"""Each entry has a part of the expected message, the verb, and the arguments of the verb.

The test replaces `FUND`, `CO` and `PERSON` by the ids of a fund, a company and a person.
"""


def test_invalid_arguments_are_reported_and_change_nothing(database: EntityDatabase, verbs: OnboardingVerbs) -> None:
    ids = {
        "PERSON": add_person(database, "John Smith"),
        "CO": verbs.create_limited_company("k1", name="ManCo", jurisdiction="LU").id,
        "FUND": verbs.ensure_cbu("k2", CbuRequest("Fund", "LU", "fund")).id,
    }
    overview_before = read_overview(database)
    functions = {spec.name: spec.function for spec in onboarding_tools(database)}
    for message, tool_name, arguments in INVALID_CALLS:
        function = functions[tool_name]
        assert function is not None
        with tool_context(idempotency_key="k3"), pytest.raises(ValueError, match=re.escape(message)):
            function(**{name: ids.get(value, value) for name, value in arguments.items()})
    assert changed_rows(overview_before, read_overview(database)) == []


def test_key_of_a_verb_is_rejected_for_another_verb(verbs: OnboardingVerbs) -> None:
    verbs.create_limited_company("k1", name="Apex", jurisdiction="LU")
    with pytest.raises(ValueError, match=r"key of a entity\.create-limited-company was reused for a cbu\.ensure"):
        verbs.ensure_cbu("k1", CbuRequest("Apex", "LU"))
    verbs.undo("k1")
    with pytest.raises(ValueError, match=r"key of a entity\.create-limited-company was reused for a cbu\.ensure"):
        verbs.ensure_cbu("k1", CbuRequest("Apex", "LU"))


def test_parallel_calls_with_different_keys_create_a_single_row(
    database: EntityDatabase, verbs: OnboardingVerbs
) -> None:
    person = add_person(database, "John Smith")

    def onboard(number: int) -> tuple[bool, bool, bool, bool]:
        manco = verbs.create_limited_company(f"m{number}", name="ManCo", jurisdiction="LU")
        fund = verbs.ensure_cbu(f"f{number}", CbuRequest("Fund", "LU", manco_id=manco.id))
        role = verbs.assign_role(f"r{number}", cbu_id=fund.id, entity_id=person, role="DIRECTOR")
        product = verbs.add_product(f"p{number}", cbu_id=fund.id, product="CUSTODY")
        return manco.created, fund.created, role.created, product.created

    with ThreadPoolExecutor(8) as threads:
        created_flags = list(threads.map(onboard, range(16)))
    assert [Counter(column) for column in zip(*created_flags, strict=True)] == [Counter({False: 15, True: 1})] * 4
    assert dict(read_overview(database).counts) == dict.fromkeys(RowKind, 1)


def test_parallel_attempts_with_the_same_key_get_the_same_result(verbs: OnboardingVerbs) -> None:
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda _: verbs.ensure_cbu("k", CbuRequest("Fund", "LU")), range(16)))
    assert results == [results[0]] * 16
    assert results[0].created


def test_tools_take_their_idempotency_key_from_the_context(database: EntityDatabase) -> None:
    specs = {spec.name: spec for spec in onboarding_tools(database)}
    assert list(specs) == [
        *("entity.create-limited-company", "entity.create-person", "cbu.ensure", "cbu.get", "cbu.add-product"),
        *("cbu.remove-product", "cbu.assign-role", "cbu.remove-role", "cbu.link", "cbu.unlink", "onboarding.undo"),
        *("find_party", "bind_parties"),
    ]
    read_verbs = {name for name, spec in specs.items() if spec.declaration.effects != "idempotent"}
    assert read_verbs == {"cbu.get", "find_party"}
    ensure_tool = specs["cbu.ensure"]
    assert ensure_tool.function is not None
    arguments = ensure_tool.bind({"name": "Apex Capital Fund", "jurisdiction": "LU", "client-type": "fund"})
    with tool_context(idempotency_key="dw1_a"):
        first = ensure_tool.function(**arguments)
        repeated_result = ensure_tool.function(**arguments)
    with tool_context(idempotency_key="dw1_b"):
        result_of_other_key = ensure_tool.function(**arguments)
    assert (first.created, repeated_result, result_of_other_key.created) == (True, first, False)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite://", "in-memory"),
        ("sqlite:///:memory:", "in-memory"),
        ("mysql://host/db", "'mysql'"),
        ("x", "invalid database URL"),
    ],
)
def test_unsupported_database_url_is_rejected(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EntityDatabase(url)


def test_changes_are_reported_row_by_row(database: EntityDatabase, verbs: OnboardingVerbs) -> None:
    add_person(database, "John Smith")
    overview_before = read_overview(database)
    manco = verbs.create_limited_company("k1", name="ManCo", jurisdiction="LU")
    fund = verbs.ensure_cbu("k2", CbuRequest("Fund", "LU", manco_id=manco.id))
    verbs.add_product("k3", cbu_id=fund.id, product="CUSTODY")
    changes = changed_rows(overview_before, read_overview(database))
    assert [(change.change, change.row.kind, change.row.subject, change.row.detail) for change in changes] == [
        (RowChange.ADDED, RowKind.COMPANY, "ManCo", "LU, active"),
        (RowChange.ADDED, RowKind.FUND, "Fund", "LU, fund, active"),
        (RowChange.ADDED, RowKind.PRODUCT, "Fund (LU)", "CUSTODY"),
        (RowChange.ADDED, RowKind.RELATION, "Fund (LU)", "is managed by ManCo (LU)"),
    ]


def test_persons_with_the_same_name_differ_by_date_of_birth_and_jurisdiction(verbs: OnboardingVerbs) -> None:
    older = verbs.create_person("k1", name="John Smith", jurisdiction="gb", date_of_birth="1950-03-01")
    younger = verbs.create_person("k2", name="John Smith", jurisdiction="GB", date_of_birth="1990-03-01")
    same_person = verbs.create_person("k3", name="JOHN  Smith", jurisdiction="GB", date_of_birth="1950-03-01")
    person = {"id": older.id, "kind": "person", "name": "John Smith", "created": True}
    assert asdict(older) == {**person, "jurisdiction": "GB", "date_of_birth": "1950-03-01"}
    assert (younger.id == older.id, same_person) == (False, replace(older, created=False))
    ann = verbs.create_person("k4", name="Ann Lee")
    assert (ann.jurisdiction, ann.date_of_birth, ann.created) == (None, None, True)
    assert verbs.create_person("k5", name="Ann Lee") == replace(ann, created=False)
    assert verbs.create_person("k6", name="Ann Lee", jurisdiction="IE").created


def test_possible_duplicate_of_a_person_is_not_created(verbs: OnboardingVerbs) -> None:
    verbs.create_person("k1", name="Ann Lee", jurisdiction="IE", date_of_birth="1970-12-31")
    for matching_fields in ({}, {"jurisdiction": "IE"}, {"date_of_birth": "1970-12-31"}):
        with pytest.raises(ValueError, match=r"person 'Ann Lee' \(IE\), born 1970-12-31 already exists"):
            verbs.create_person("k2", name="Ann Lee", **matching_fields)
    assert verbs.create_person("k3", name="Ann Lee", jurisdiction="GB").created


def test_two_funds_are_related_to_each_other_by_a_single_link(database: EntityDatabase, verbs: OnboardingVerbs) -> None:
    first = verbs.ensure_cbu("k1", CbuRequest("Fund A", "LU"))
    second = verbs.ensure_cbu("k2", CbuRequest("Fund B", "LU"))
    overview_before = read_overview(database)
    link = verbs.link("k3", cbu_id=first.id, entity_id=second.id, link="RELATED")
    link_fields = {"cbu_id": first.id, "cbu_name": "Fund A", "entity_id": second.id, "entity_name": "Fund B"}
    assert asdict(link) == {**link_fields, "id": link.id, "link": "RELATED", "created": True}
    reverse_link = verbs.link("k4", cbu_id=second.id, entity_id=first.id, link="RELATED")
    assert (reverse_link.id, reverse_link.created) == (link.id, False)
    assert [change.change for change in changed_rows(overview_before, read_overview(database))] == [RowChange.ADDED]
    assert verbs.get_cbu(first.id).related_to == [second.id]
    assert verbs.get_cbu(second.id).related_to == [first.id]
    assert verbs.unlink("k5", cbu_id=second.id, entity_id=first.id, link="RELATED").id == link.id
    assert read_overview(database) == overview_before


@pytest.mark.parametrize("link", LINKS)
def test_company_is_linked_and_unlinked(database: EntityDatabase, verbs: OnboardingVerbs, link: str) -> None:
    ids = [verbs.create_limited_company(name, name=name, jurisdiction="LU").id for name in ("One", "Two", "Three")]
    overview_before = read_overview(database)
    arguments = {"cbu_id": ids[0], "entity_id": ids[1], "link": link}
    created_link = verbs.link("k1", **arguments)
    assert verbs.link("k2", **arguments) == replace(created_link, created=False)
    company = verbs.get_cbu(ids[0])
    managers = [company.manco_id]
    links = {"PARENT": company.parent_entity_ids, "MANAGEMENT_COMPANY": managers, "RELATED": company.related_to}
    assert links[link] == [ids[1]]
    assert verbs.unlink("k3", cbu_id=ids[0], entity_id=ids[2], link=link).removed is False
    removal = verbs.unlink("k4", **arguments)
    assert (removal.id, removal.link, removal.removed) == (created_link.id, link, True)
    assert verbs.unlink("k4", **arguments) == removal
    repeated_removal = verbs.unlink("k5", **arguments)
    assert (repeated_removal.id, repeated_removal.removed) == (None, False)
    assert read_overview(database) == overview_before


def test_role_and_product_are_removed_once(database: EntityDatabase, verbs: OnboardingVerbs) -> None:
    fund = verbs.ensure_cbu("k1", CbuRequest("Fund", "LU"))
    person = verbs.create_person("k2", name="Ann Lee")
    overview_before = read_overview(database)
    director = {"cbu_id": fund.id, "entity_id": person.id, "role": "DIRECTOR"}
    role = verbs.assign_role("k3", **director)
    product = verbs.add_product("k4", cbu_id=fund.id, product="CUSTODY")
    role_removal = verbs.remove_role("k5", **director)
    product_removal = verbs.remove_product("k6", cbu_id=fund.id, product="CUSTODY")
    fund_fields = {"cbu_id": fund.id, "cbu_name": "Fund", "removed": True}
    person_fields = {"entity_id": person.id, "entity_name": "Ann Lee"}
    assert asdict(role_removal) == {"id": role.id, "role": "DIRECTOR", **person_fields, **fund_fields}
    assert asdict(product_removal) == {"id": product.id, "product": "CUSTODY", **fund_fields}
    assert read_overview(database) == overview_before
    assert verbs.remove_role("k7", **director).removed is False
    assert verbs.remove_product("k8", cbu_id=fund.id, product="CUSTODY").removed is False
    assert verbs.remove_role("k5", **director) == role_removal
    assert verbs.assign_role("k9", **director).created


def test_cbu_has_its_links_roles_and_products(verbs: OnboardingVerbs) -> None:
    manco = verbs.create_limited_company("k1", name="ManCo", jurisdiction="LU")
    fund = verbs.ensure_cbu("k2", CbuRequest("Fund", "LU", manco_id=manco.id))
    zoe, ann = (verbs.create_person(name, name=name).id for name in ("Zoe", "Ann"))
    for person, role in ((zoe, "DIRECTOR"), (ann, "DIRECTOR"), (zoe, "CHAIRPERSON")):
        verbs.assign_role(f"{role} {person}", cbu_id=fund.id, entity_id=person, role=role)
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
            {"role": "CHAIRPERSON", "entity_id": zoe, "entity_name": "Zoe"},
            {"role": "DIRECTOR", "entity_id": ann, "entity_name": "Ann"},
            {"role": "DIRECTOR", "entity_id": zoe, "entity_name": "Zoe"},
        ],
        "products": ["CUSTODY", "FUND_ACCOUNTING"],
    }
    assert verbs.get_cbu(manco.id).client_type is None


def test_several_parties_are_created_atomically(database: EntityDatabase, verbs: OnboardingVerbs) -> None:
    manco = verbs.create_limited_company("k1", name="ManCo", jurisdiction="LU")
    verbs.create_person("k2", name="John Smith", date_of_birth="1950-03-01")
    john, apex = NewParty(PartyKind.PERSON, "John Smith"), NewParty(PartyKind.FUND, "Apex", "LU")
    new_parties = [john, NewParty(PartyKind.COMPANY, "ManCo", "lu"), apex]

    def create_new_parties(key: str, *additional_parties: NewParty) -> list[PartyResult]:
        parties = [*new_parties, *additional_parties]
        log = EffectLog(database)
        return log.run_once(key, "bind_parties", list[PartyResult], lambda call: create_parties(call, parties))

    overview_before = read_overview(database)
    with pytest.raises(ValueError, match="jurisdiction: required for the company 'Other'"):
        create_new_parties("k3", NewParty(PartyKind.COMPANY, "Other"))
    assert read_overview(database) == overview_before
    parties = create_new_parties("k3")
    expected = [("person", "John Smith", None, True), ("company", "ManCo", "LU", False), ("fund", "Apex", "LU", True)]
    assert [(party.kind, party.name, party.jurisdiction, party.created) for party in parties] == expected
    assert parties[1].id == manco.id
    assert create_new_parties("k3") == parties
    assert verbs.get_cbu(parties[2].id).client_type == "fund"
    undo_messages = ["fund 'Apex' (LU) was removed", "person 'John Smith' (jurisdiction unknown) was removed"]
    assert verbs.undo("k3").reverted == undo_messages
    assert read_overview(database) == overview_before
