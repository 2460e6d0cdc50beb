"""The closed lists of onboarding (roles, products, links, party kinds), and the validation of values such as a LEI.

Plans are validated against these lists before they run: the schemas of the verbs contain the lists as `enum`. This
module must not import the database.
"""

import difflib
import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal, get_args

from pydantic import WithJsonSchema

from dagwright.plugins.entities import ENTITY_KEYWORD, KIND_CONDITION_KEYWORD, OTHER_ENTITY_KEYWORD, TEXT_FORMAT
from dagwright_onboarding.entity_types import RESOLVER
from dagwright_onboarding.text_formats import check_date_of_birth


class PartyKind(StrEnum):
    """The kind of a party; it never changes."""

    PERSON = "person"
    COMPANY = "company"
    FUND = "fund"
    """A fund, or any other client business unit (CBU)."""


Product = Literal[
    "CUSTODY",
    "FUND_ACCOUNTING",
    "FUND_ADMINISTRATION",
    "TRANSFER_AGENCY",
    "DEPOSITARY",
    "MIDDLE_OFFICE",
    "COLLATERAL_MANAGEMENT",
    "SECURITIES_LENDING",
    "FOREIGN_EXCHANGE",
    "CASH_MANAGEMENT",
    "PRIME_BROKERAGE",
    "EXECUTION",
    "PERFORMANCE_MEASUREMENT",
    "RISK_REPORTING",
    "REGULATORY_REPORTING",
    "TAX_SERVICES",
    "CORPORATE_SECRETARIAL",
    "DOMICILIATION",
]
"""Products that a fund can subscribe to."""

PRODUCTS: tuple[str, ...] = get_args(Product)

PersonRole = Literal[
    "COMPLIANCE_OFFICER",
    "MONEY_LAUNDERING_REPORTING_OFFICER",
    "CONDUCTING_OFFICER",
    "CHIEF_EXECUTIVE_OFFICER",
    "CHIEF_FINANCIAL_OFFICER",
    "CHAIRPERSON",
    "PORTFOLIO_MANAGER",
    "RISK_MANAGER",
    "AUTHORISED_SIGNATORY",
    "AUTHORIZED_SIGNATORY",
    "CONTACT_PERSON",
    "ULTIMATE_BENEFICIAL_OWNER",
]
"""Roles that only a person can have."""

AnyPartyRole = Literal[
    "DIRECTOR",
    "COMPANY_SECRETARY",
    "BENEFICIAL_OWNER",
    "SHAREHOLDER",
    "INVESTOR",
    "GENERAL_PARTNER",
    "LIMITED_PARTNER",
    "TRUSTEE",
    "SETTLOR",
    "PROTECTOR",
    "BENEFICIARY",
    "SPONSOR",
    "PROMOTER",
    "MANAGEMENT_COMPANY",
    "INVESTMENT_MANAGER",
    "INVESTMENT_ADVISER",
    "DISTRIBUTOR",
    "ADMINISTRATOR",
    "CUSTODIAN",
    "DEPOSITARY",
    "TRANSFER_AGENT",
    "PAYING_AGENT",
    "PRIME_BROKER",
    "AUDITOR",
    "LEGAL_COUNSEL",
    "TAX_ADVISER",
]
"""Roles that a person or an organisation can have."""

Role = Literal[AnyPartyRole, PersonRole]

PERSON_ROLES: tuple[str, ...] = get_args(PersonRole)
ROLES: tuple[str, ...] = get_args(Role)

Link = Literal["PARENT", "MANAGEMENT_COMPANY", "RELATED"]
"""How another party is linked to a fund or company: as its parent, as its management company, or as a related party."""

LINKS: tuple[str, ...] = get_args(Link)


def _id_schema(*kinds: PartyKind) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", ENTITY_KEYWORD: [kind.value for kind in kinds]})


AnyPartyId = Annotated[str, _id_schema(*PartyKind)]
OrganisationId = Annotated[str, _id_schema(PartyKind.COMPANY, PartyKind.FUND)]
CompanyId = Annotated[str, _id_schema(PartyKind.COMPANY)]
FundId = Annotated[str, _id_schema(PartyKind.FUND)]


def _other_party_id_schema(*kinds: PartyKind) -> dict[str, Any]:
    kind_names = [kind.value for kind in kinds]
    return {"type": "string", ENTITY_KEYWORD: kind_names, OTHER_ENTITY_KEYWORD: "cbu_id"}


_PERSON_ROLES_ONLY = {KIND_CONDITION_KEYWORD: {"role": {PartyKind.PERSON.value: [*PERSON_ROLES]}}}
RoleHolderId = Annotated[str, WithJsonSchema({**_other_party_id_schema(*PartyKind), **_PERSON_ROLES_ONLY})]
"""Id of the party that gets `role` at the fund or company `cbu_id`; must differ from `cbu_id`."""
OtherOrganisationId = Annotated[str, WithJsonSchema(_other_party_id_schema(PartyKind.COMPANY, PartyKind.FUND))]
"""Id of an organisation other than the fund or company `cbu_id`."""


def _text_schema(text_format: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", TEXT_FORMAT: text_format})


Name = Annotated[str, _text_schema("name")]
Jurisdiction = Annotated[str, _text_schema("jurisdiction")]
DateOfBirth = Annotated[str, _text_schema("date_of_birth")]

_CLIENT_TYPE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_LEI = re.compile(r"[A-Z0-9]{18}[0-9]{2}")
_MAX_CLIENT_TYPE_CHARACTERS = 40


def nearest_hint(word: str, known_words: Iterable[str]) -> str:
    """Return `; did you mean 'X'?` for the closest known word, or a full stop if none is close."""
    close_matches = difflib.get_close_matches(word, list(known_words), n=1)
    return f"; did you mean {close_matches[0]!r}?" if close_matches else "."


def validate_role(role: str) -> str:
    """Return the role. Raises ValueError if it is not in the catalogue."""
    if role not in ROLES:
        raise ValueError(f"Unknown role {role!r}{nearest_hint(role.upper(), ROLES)} Known roles: {', '.join(ROLES)}")
    return role


def validate_product(product: str) -> str:
    """Return the product. Raises ValueError if it is not in the catalogue."""
    if product not in PRODUCTS:
        hint = nearest_hint(product.upper(), PRODUCTS)
        raise ValueError(f"Unknown product {product!r}{hint} Known products: {', '.join(PRODUCTS)}")
    return product


def validate_link(link: str) -> str:
    """Return the link. Raises ValueError if it is not in the catalogue."""
    if link not in LINKS:
        raise ValueError(f"Unknown link {link!r}{nearest_hint(link.upper(), LINKS)} Known links: {', '.join(LINKS)}")
    return link


def validate_date_of_birth(text: str, field_name: str = "date-of-birth") -> str:
    """Return a date as `1970-12-31`. Raises ValueError for an invalid date or a date in the future."""
    try:
        day = date.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{field_name} {text!r:.80} is not a date such as 1970-12-31") from None
    try:
        check_date_of_birth(day.isoformat())
    except ValueError as error:
        raise ValueError(f"{field_name} {error}") from None
    # In another time zone, it may already be the next day.
    if day > datetime.now(UTC).date() + timedelta(days=1):
        raise ValueError(f"{field_name} {day.isoformat()} is in the future")
    return day.isoformat()


def validate_client_type(text: str) -> str:
    """Return a client type as lower-case words joined by dashes. Raises ValueError for any other shape."""
    slug = "-".join(text.lower().replace("_", " ").replace("-", " ").split())
    if len(slug) > _MAX_CLIENT_TYPE_CHARACTERS or not _CLIENT_TYPE.fullmatch(slug):
        raise ValueError(f"client type {text!r} is not a short word such as 'fund' or 'pension-fund'")
    return slug


def validate_lei(text: str) -> str:
    """Return a Legal Entity Identifier in capitals.

    Raises:
        ValueError: not 20 letters and digits, or the check digits are wrong.

    Source: ISO 17442-1, check digits after ISO 7064 MOD 97-10.
    """
    lei = text.strip().upper()
    if not _LEI.fullmatch(lei):
        raise ValueError(f"LEI {text!r} is not 18 letters or digits followed by two check digits")
    if int("".join(str(int(character, 36)) for character in lei)) % 97 != 1:
        raise ValueError(f"LEI {text!r} has wrong check digits")
    return lei


def kind_of_entity_type(entity_type: str) -> PartyKind | None:
    """Return the party kind of an entity type, `None` for `entity` and `party`.

    Raises:
        ValueError: the type is not a party.
    """
    kind = RESOLVER.kind_of(entity_type)
    return None if kind is None else _party_kind(kind)


def kinds_of_entity_type(entity_type: str) -> tuple[PartyKind, ...]:
    """Return the party kinds of an entity type, every kind for `entity`. Raises ValueError for a product or role."""
    kinds = RESOLVER.kinds_of(entity_type)
    return tuple(PartyKind) if kinds is None else tuple(map(_party_kind, kinds))


def _party_kind(kind: str) -> PartyKind:
    if kind in RESOLVER.terms:
        raise ValueError(f"kind: a {kind} is not a party; products and roles are fixed in the catalogue")
    return PartyKind(kind)
