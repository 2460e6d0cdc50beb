"""The entity gateway: parties filtered by jurisdiction, the state of a party, and searches for products and roles."""

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from dagwright_onboarding.catalogue import PRODUCTS, ROLES, PartyKind
from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.entity_types import RESOLVER
from dagwright_onboarding.gateway import EntityGateway, KnownParty
from dagwright_onboarding.lookup import Identifier
from dagwright_onboarding.models import Party, PartyStatus
from dagwright_onboarding.parties import NaturalKey, add_party
from dagwright_onboarding.terms import _PRODUCT_ALIASES, _ROLE_ALIASES
from dagwright_onboarding.verb_results import CbuRequest
from dagwright_onboarding.verbs import OnboardingVerbs
from tests.support.parties import Load


@pytest.fixture
def gateway(database: EntityDatabase) -> EntityGateway:
    return EntityGateway(database)


def add_parties(database: EntityDatabase, *keys: NaturalKey) -> list[str]:
    return database.write(lambda session: [add_party(session, key).id for key in keys])


def john_smith_key(jurisdiction: str, date_of_birth: str = "") -> NaturalKey:
    return NaturalKey(PartyKind.PERSON, "John Smith", jurisdiction, date_of_birth)


def test_latest_roles_distinguish_parties(
    database: EntityDatabase, gateway: EntityGateway, verbs: OnboardingVerbs
) -> None:
    first, second = add_parties(database, john_smith_key("GB", "1970-01-01"), john_smith_key("GB", "1980-01-01"))
    for number in range(4):
        fund = verbs.ensure_cbu(f"fund-{number}", CbuRequest(f"Fund {number}", "LU"))
        verbs.assign_role(f"role-{number}", cbu_id=fund.id, entity_id=first, role="DIRECTOR")
    roles = {party.id: party.roles for party in gateway.find("John Smith", "person").hits}
    assert roles == {first: ("DIRECTOR at Fund 3", "DIRECTOR at Fund 2", "DIRECTOR at Fund 1"), second: ()}


def test_identifiers_distinguish_companies(load: Load, gateway: EntityGateway) -> None:
    load("name,kind,jurisdiction,lei\nKite AG,company,CH,635400BLACKROCKMAN14\nKite AG,company,DE,\n")
    entries = [(party.jurisdiction, party.identifiers) for party in gateway.find("kite", "company").hits]
    assert entries == [("CH", (Identifier("LEI", "635400BLACKROCKMAN14"),)), ("DE", ())]


@pytest.mark.parametrize(
    ("search_text", "jurisdiction", "hits", "near_matches"),
    [
        ("john smith", "GB", {"GB": "exact name"}, {}),
        ("john smith", " gb", {"GB": "exact name"}, {}),
        ("john smith", "US", {"US-DE": "exact name"}, {}),
        (
            "john smith",
            "FR",
            {},
            {None: "has no known jurisdiction", "GB": "has the jurisdiction GB", "US-DE": "has the jurisdiction US-DE"},
        ),
        ("john smith", None, {None: "exact name", "GB": "exact name", "US-DE": "exact name"}, {}),
        ("Smith", "US", {"US-DE": "contains all these words"}, {}),
        ("Jo Smi", "GB", {"GB": "contains words with these beginnings"}, {}),
        ("Jon Smith", "GB", {}, {"GB": "different spelling"}),
    ],
)
def test_jurisdiction_narrows_the_hits(
    database: EntityDatabase,
    gateway: EntityGateway,
    *,
    search_text: str,
    jurisdiction: str | None,
    hits: dict[str | None, str],
    near_matches: dict[str | None, str],
) -> None:
    """`hits` and `near_matches` map the jurisdiction of each match to its reason, in the expected order."""
    add_parties(database, john_smith_key("GB"), john_smith_key("US-DE"), john_smith_key(""))
    findings = gateway.find(search_text, "person", jurisdiction=jurisdiction)
    assert [(party.jurisdiction, party.reason) for party in findings.hits] == [*hits.items()]
    assert [(party.jurisdiction, party.reason) for party in findings.near_matches] == [*near_matches.items()]


def test_current_data_of_a_party_are_returned(database: EntityDatabase, gateway: EntityGateway) -> None:
    (party_id,) = add_parties(database, john_smith_key(""))
    assert gateway.get(party_id) == KnownParty(party_id, "John Smith", "person", None, is_active=True)

    def change_party(session: Session) -> None:
        session.execute(update(Party).values(name="John Smyth", jurisdiction="GB", status=PartyStatus.INACTIVE))

    database.write(change_party)
    assert gateway.get(party_id) == KnownParty(party_id, "John Smyth", "person", "GB", is_active=False)
    assert [gateway.get(unknown_id) for unknown_id in ("person_none", "", "no id at all" * 20)] == [None] * 3


@pytest.mark.parametrize(
    ("search_text", "entity_type", "hits"),
    [
        ("custody", "product", [("CUSTODY", "Custody", "exact name")]),
        ("fund accounting", "Product", [("FUND_ACCOUNTING", "Fund accounting", "exact name")]),
        ("FUND_ACCOUNTING", "product", [("FUND_ACCOUNTING", "Fund accounting", "exact name")]),
        ("fund-accounting", "product", [("FUND_ACCOUNTING", "Fund accounting", "exact name")]),
        ("fx", "product", [("FOREIGN_EXCHANGE", "Foreign exchange", "other name")]),
        ("lending", "product", [("SECURITIES_LENDING", "Securities lending", "contains all these words")]),
        (
            "collat man",
            "product",
            [("COLLATERAL_MANAGEMENT", "Collateral management", "contains words with these beginnings")],
        ),
        ("compliance officer", "role", [("COMPLIANCE_OFFICER", "Compliance officer", "exact name")]),
        ("officer, compliance", "role", [("COMPLIANCE_OFFICER", "Compliance officer", "same words in another order")]),
        ("MLRO", "role", [("MONEY_LAUNDERING_REPORTING_OFFICER", "Money laundering reporting officer", "other name")]),
        ("authorized signatory", "role", [("AUTHORISED_SIGNATORY", "Authorised signatory", "other name")]),
        ("director", "role", [("DIRECTOR", "Director", "exact name")]),
        ("depositary", "role", [("DEPOSITARY", "Depositary", "exact name")]),
        ("tax", "product", [("TAX_SERVICES", "Tax services", "other name")]),
        ("custody", "entity", []),
        ("director", "product", []),
    ],
)
def test_products_and_roles_are_found_by_name_or_alias(
    gateway: EntityGateway, search_text: str, entity_type: str, hits: list[tuple[str, str, str]]
) -> None:
    actual = gateway.find(search_text, entity_type, jurisdiction="LU").hits
    assert [(term.id, term.name, term.reason) for term in actual] == hits


def test_aliases_refer_to_existing_codes() -> None:
    assert (set(_PRODUCT_ALIASES) - set(PRODUCTS), set(_ROLE_ALIASES) - set(ROLES)) == (set(), set())
    assert set(RESOLVER.terms) <= set(RESOLVER.types.values())


def test_product_or_role_is_found_by_its_code(gateway: EntityGateway) -> None:
    product = KnownParty("FUND_ACCOUNTING", "Fund accounting", "product", None, is_active=True)
    role = KnownParty("DIRECTOR", "Director", "role", None, is_active=True)
    assert [gateway.get("FUND_ACCOUNTING"), gateway.get("DIRECTOR")] == [product, role]
