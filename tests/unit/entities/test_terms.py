"""Products and roles are found as parties are: by their names and what else people call them, and never as parties."""

import pytest

from dagwright.entities.catalogue import PRODUCTS, ROLES
from dagwright.entities.database import EntityDatabase
from dagwright.entities.gateway import EntityGateway, KnownParty, SqlEntityGateway
from dagwright.entities.terms import _PRODUCT_ALIASES, _ROLE_ALIASES
from dagwright.plan.entity_types import KIND_OF, TERM_KINDS


@pytest.fixture
def gateway(database: EntityDatabase) -> EntityGateway:
    return SqlEntityGateway(database)


@pytest.mark.parametrize(
    ("search_text", "entity_type", "hits"),
    [
        ("custody", "product", [("CUSTODY", "Custody", "exact name")]),
        ("fund accounting", "Product", [("FUND_ACCOUNTING", "Fund accounting", "exact name")]),
        ("FUND_ACCOUNTING", "product", [("FUND_ACCOUNTING", "Fund accounting", "exact name")]),
        ("fund-accounting", "product", [("FUND_ACCOUNTING", "Fund accounting", "exact name")]),
        ("fx", "product", [("FOREIGN_EXCHANGE", "Foreign exchange", "other name")]),
        ("lending", "product", [("SECURITIES_LENDING", "Securities lending", "has all these words")]),
        ("collat man", "product", [("COLLATERAL_MANAGEMENT", "Collateral management", "words begin like this")]),
        ("compliance officer", "role", [("COMPLIANCE_OFFICER", "Compliance officer", "exact name")]),
        ("officer, compliance", "role", [
            ("COMPLIANCE_OFFICER", "Compliance officer", "has just these words")]),
        ("MLRO", "role", [
            ("MONEY_LAUNDERING_REPORTING_OFFICER", "Money laundering reporting officer", "other name")]),
        ("authorized signatory", "role", [("AUTHORISED_SIGNATORY", "Authorised signatory", "other name")]),
        ("director", "role", [("DIRECTOR", "Director", "exact name")]),
        ("depositary", "role", [("DEPOSITARY", "Depositary", "exact name")]),
        ("tax", "product", [("TAX_SERVICES", "Tax services", "other name")]),
        ("custody", "entity", []),
        ("director", "product", []),
    ],
)  # fmt: skip
def test_term_is_found(
    gateway: EntityGateway, search_text: str, entity_type: str, hits: list[tuple[str, str, str]]
) -> None:
    found = gateway.find(search_text, entity_type, jurisdiction="LU").hits
    assert [(each.id, each.name, each.reason) for each in found] == hits


def test_misspelt_term_is_near(gateway: EntityGateway) -> None:
    found = gateway.find("custdy", "product")
    assert (found.hits, [(each.id, each.reason) for each in found.near[:1]]) == ((), [("CUSTODY", "another spelling")])


def test_every_code_is_found_by_its_name_alone(gateway: EntityGateway) -> None:
    for kind, codes in (("product", PRODUCTS), ("role", ROLES)):
        for code in codes:
            (found,) = gateway.find(code.replace("_", " ").lower(), kind).hits
            assert (found.id, found.kind) == (code.replace("AUTHORIZED", "AUTHORISED"), kind)


def test_aliases_are_of_codes_that_there_are() -> None:
    assert (set(_PRODUCT_ALIASES) - set(PRODUCTS), set(_ROLE_ALIASES) - set(ROLES)) == (set(), set())
    assert set(TERM_KINDS) <= set(KIND_OF.values())


def test_term_is_got_by_its_code(gateway: EntityGateway) -> None:
    assert gateway.get("FUND_ACCOUNTING") == KnownParty(
        "FUND_ACCOUNTING", "Fund accounting", "product", None, is_active=True
    )
    assert gateway.get("DIRECTOR") == KnownParty("DIRECTOR", "Director", "role", None, is_active=True)
