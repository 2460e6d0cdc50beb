"""Find and create rows of the entity store, inside a transaction that the caller owns.

Every function is idempotent by natural key: it returns the existing row or adds it. Two transactions that add the same
row conflict at its unique constraint, and `EntityDatabase.write` retries the transaction that failed.
This module must not import the verbs or Temporal.
"""

import base64
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, and_, bindparam, or_, select
from sqlalchemy.orm import Session

from dagwright_onboarding.catalogue import PERSON_ROLES, PartyKind, validate_product, validate_role
from dagwright_onboarding.models import (
    MAX_ID_CHARACTERS,
    NameUse,
    Party,
    PartyName,
    PartyStatus,
    ProductSubscription,
    Relation,
    RelationKind,
    RoleAssignment,
)
from dagwright_onboarding.names import name_key

Lock = Mapping[str, Any]
"""PostgreSQL row lock as arguments of `with_for_update`; SQLite has one writer at a time."""
SHARED_LOCK: Final[Lock] = MappingProxyType({"read": True, "key_share": True})
"""Lock that PostgreSQL also takes for foreign keys: other transactions can also take it, but cannot delete the row."""
EXCLUSIVE_LOCK: Final[Lock] = MappingProxyType({})
"""Exclusive lock on a row that is about to be deleted."""

_ID = re.compile(rf"[A-Za-z0-9_.:-]{{1,{MAX_ID_CHARACTERS}}}")
_MAX_LISTED_PARTIES = 6
_ID_BYTES = 10
"""80 random bits: a collision needs about 10^12 rows."""


@dataclass(frozen=True, slots=True)
class NaturalKey:
    """The fields that identify a party.

    Args:
        kind: person, company or fund.
        name: name to show, from `names.clean_name`.
        jurisdiction: ISO 3166 code, empty if unknown.
        distinguisher: distinguishes persons of the same name; empty for other parties.
    """

    kind: PartyKind
    name: str
    jurisdiction: str = ""
    distinguisher: str = ""


def new_id(prefix: str) -> str:
    """Return a new id whose prefix names the type of the row, such as `fund_k4y2m7qd3w5ta6rb`."""
    return f"{prefix}_{base64.b32encode(secrets.token_bytes(_ID_BYTES)).decode().lower()}"


def is_id(text: str) -> bool:
    """Return whether a text has the form of an id."""
    return _ID.fullmatch(text) is not None


def describe(party: Party) -> str:
    """Return a party in words, for messages: `company 'Apex ManCo' (LU)`."""
    return f"{party.kind} {party.name!r} ({party.jurisdiction or 'jurisdiction unknown'})"


def describe_with_birth(party: Party) -> str:
    """Return a party in words with the date of birth, if known."""
    return describe(party) + (f", born {party.distinguisher}" if party.distinguisher else "")


def get_active_party(session: Session, party_id: str, *, argument: str) -> Party:
    """Return the active party with the id in `argument`. Raises ValueError if there is no such party."""
    party = session.get(Party, party_id) if is_id(party_id) else None
    return _require_party(party, party_id, argument=argument)


def lock_active_party(session: Session, party_id: str, *, argument: str) -> Party:
    """Return the active party as `get_active_party` does, with a shared lock until this transaction ends."""
    party = session.get(Party, party_id, with_for_update=dict(SHARED_LOCK)) if is_id(party_id) else None
    return _require_party(party, party_id, argument=argument)


def find_party(session: Session, key: NaturalKey) -> Party | None:
    """Return the party with this natural key, active or not, with a shared lock until this transaction ends."""
    query = select(Party).where(
        Party.kind == key.kind,
        Party.name_key == name_key(key.name),
        Party.jurisdiction == key.jurisdiction,
        Party.distinguisher == key.distinguisher,
    )
    return session.scalars(query.with_for_update(**SHARED_LOCK)).one_or_none()


def add_party(session: Session, key: NaturalKey, *, client_type: str = "", party_id: str | None = None) -> Party:
    """Add a party and return it; the caller has checked that its natural key is free."""
    session.add(party := new_party(key, client_type=client_type, party_id=party_id))
    session.flush()
    return party


def new_party(key: NaturalKey, *, client_type: str = "", party_id: str | None = None) -> Party:
    """Return a new row for a party, not added to a session."""
    return Party(
        id=party_id or new_id(key.kind.value),
        kind=key.kind.value,
        name=key.name,
        name_key=name_key(key.name),
        jurisdiction=key.jurisdiction,
        distinguisher=key.distinguisher,
        client_type=client_type,
    )


def ensure_exact_party(session: Session, key: NaturalKey, *, client_type: str = "") -> tuple[Party, bool]:
    """Return the party with exactly this natural key and whether it was added.

    An empty field of the key matches only an empty field.

    Raises:
        ValueError: the party is inactive.
    """
    party = find_party(session, key)
    if party is not None:
        return _check_active(party, argument="name"), False
    return add_party(session, key, client_type=client_type), True


def ensure_party(session: Session, key: NaturalKey, *, client_type: str = "") -> tuple[Party, bool]:
    """Return the party with this natural key and whether it was added.

    Without a jurisdiction, the active party of that kind and name is returned, if exactly one exists.

    Raises:
        ValueError: the party is inactive, or there is no jurisdiction and several parties have the name.
    """
    if not key.jurisdiction and find_party(session, key) is None:
        only_party = _only_party_of_name(session, key)
        if only_party is not None:
            return only_party, False
    return ensure_exact_party(session, key, client_type=client_type)


def ensure_person(session: Session, key: NaturalKey) -> tuple[Party, bool]:
    """Return the person with this natural key and whether the person was added.

    Raises:
        ValueError: the person is inactive, or the key is incomplete and may mean another existing person.
    """
    if find_party(session, key) is not None:
        return ensure_exact_party(session, key)
    parties_query = select(Party).where(Party.kind == PartyKind.PERSON, Party.name_key == name_key(key.name))
    if key.jurisdiction:
        parties_query = parties_query.where(Party.jurisdiction == key.jurisdiction)
    if key.distinguisher:
        parties_query = parties_query.where(Party.distinguisher == key.distinguisher)
    existing_row = session.scalars(
        parties_query.order_by(Party.jurisdiction, Party.distinguisher, Party.id).limit(1)
    ).first()
    if existing_row is not None:
        raise ValueError(
            f"name: {describe_with_birth(existing_row)} already exists; look that person up, or give jurisdiction and "
            "date-of-birth to add another person of the same name"
        )
    return ensure_exact_party(session, key)


def possible_duplicate(session: Session, party: Party) -> Party | None:
    """Return another active party that may be the same: of the same kind and name, with no known difference.

    If no other party has this name now, a party that formerly had the name is returned.
    """
    parameters = {
        "id": party.id,
        "kind": party.kind,
        "name_key": party.name_key,
        "jurisdiction": party.jurisdiction,
        "distinguisher": party.distinguisher,
    }
    return session.scalars(_SAME_NAME, parameters).first() or session.scalars(_SAME_FORMER_NAME, parameters).first()


def ensure_relation(
    session: Session, fund: Party, target: Party, *, kind: RelationKind, relation_id: str | None = None
) -> tuple[Relation, bool]:
    """Link a fund or company to a party; return the link and whether it was added.

    A `RELATED` link is symmetric: both orders of the parties mean the same link.

    Raises:
        ValueError: the two parties are the same, one of them has a kind that this link does not allow, or the fund
            already has another management company.
    """
    if fund.id == target.id:
        raise ValueError(f"{describe(fund)} cannot be its own {_RELATION_WORDS[kind]}")
    if fund.kind == PartyKind.PERSON:
        raise ValueError(f"cbu-id: expected a fund or a company, got {describe(fund)}")
    allowed_kinds = _TARGET_KINDS[kind]
    if target.kind not in allowed_kinds:
        expected_kinds = " or ".join(allowed_kinds)
        raise ValueError(f"the {_RELATION_WORDS[kind]} must be a {expected_kinds}, got {describe(target)}")
    if kind is RelationKind.RELATED:
        # No constraint covers both directions, so transactions that link the same two parties are serialized.
        session.get(Party, min(fund.id, target.id), with_for_update={"key_share": True})
    if (existing_row := find_relation(session, fund, target, kind=kind)) is not None:
        return existing_row, False
    if kind is RelationKind.MANCO:
        relations_query = select(Relation).where(Relation.from_id == fund.id, Relation.kind == kind)
        if (other_relation := session.scalars(relations_query).first()) is not None:
            current_company = session.get_one(Party, other_relation.to_id)
            raise ValueError(f"{describe(fund)} is already managed by {describe(current_company)}")
    relation = Relation(id=relation_id or new_id("relation"), from_id=fund.id, to_id=target.id, kind=kind)
    session.add(relation)
    session.flush()
    return relation, True


def find_relation(
    session: Session, fund: Party, target: Party, *, kind: RelationKind, lock: Lock = SHARED_LOCK
) -> Relation | None:
    """Return the link of a kind between two parties, locked until this transaction ends."""
    links_parties = and_(Relation.from_id == fund.id, Relation.to_id == target.id)
    if kind is RelationKind.RELATED:
        links_parties = or_(links_parties, and_(Relation.from_id == target.id, Relation.to_id == fund.id))
    query = select(Relation).where(links_parties, Relation.kind == kind).with_for_update(**lock)
    return session.scalars(query.order_by(Relation.id)).first()


def relations_of(session: Session, fund: Party) -> dict[RelationKind, list[str]]:
    """Return the ids of the parties that a fund or company is linked to, by kind, oldest link first."""
    relations: dict[RelationKind, list[str]] = {kind: [] for kind in RelationKind}
    is_related = and_(Relation.to_id == fund.id, Relation.kind == RelationKind.RELATED)
    query = select(Relation).where(or_(Relation.from_id == fund.id, is_related))
    for relation in session.scalars(query.order_by(Relation.created_at, Relation.id)):
        linked_id = relation.to_id if relation.from_id == fund.id else relation.from_id
        relations[RelationKind(relation.kind)].append(linked_id)
    return relations


def ensure_role(
    session: Session, cbu: Party, entity: Party, *, role: str, assignment_id: str | None = None
) -> tuple[RoleAssignment, bool]:
    """Give `entity` a role at `cbu`; return the assignment and whether it was added.

    Raises:
        ValueError: the role is unknown or for persons only, `cbu` is a person, or `cbu` and `entity` are the same
            party.
    """
    validate_role(role)
    if cbu.kind == PartyKind.PERSON:
        raise ValueError(f"cbu-id: roles are held at a fund or a company, not at {describe(cbu)}")
    if cbu.id == entity.id:
        raise ValueError(f"entity-id: {describe(cbu)} cannot have a role at itself")
    if role in PERSON_ROLES and entity.kind != PartyKind.PERSON:
        raise ValueError(f"entity-id: {role} must be a person, got {describe(entity)}")
    if (existing_row := find_role(session, cbu, entity, role=role)) is not None:
        return existing_row, False
    assignment = RoleAssignment(id=assignment_id or new_id("role"), cbu_id=cbu.id, entity_id=entity.id, role=role)
    session.add(assignment)
    session.flush()
    return assignment, True


def find_role(
    session: Session, cbu: Party, entity: Party, *, role: str, lock: Lock = SHARED_LOCK
) -> RoleAssignment | None:
    """Return the assignment of a role, locked until this transaction ends."""
    query = select(RoleAssignment).where(
        RoleAssignment.cbu_id == cbu.id,
        RoleAssignment.entity_id == entity.id,
        RoleAssignment.role == role,
    )
    return session.scalars(query.with_for_update(**lock)).one_or_none()


def ensure_product(
    session: Session, cbu: Party, *, product: str, subscription_id: str | None = None
) -> tuple[ProductSubscription, bool]:
    """Subscribe a fund to a product; return the subscription and whether it was added.

    Raises:
        ValueError: the product is unknown, or the party is not a fund.
    """
    validate_product(product)
    if cbu.kind != PartyKind.FUND:
        raise ValueError(f"cbu-id: only a fund can have products, not {describe(cbu)}")
    if (existing_row := find_product(session, cbu, product=product)) is not None:
        return existing_row, False
    subscription = ProductSubscription(id=subscription_id or new_id("product"), cbu_id=cbu.id, product=product)
    session.add(subscription)
    session.flush()
    return subscription, True


def find_product(session: Session, cbu: Party, *, product: str, lock: Lock = SHARED_LOCK) -> ProductSubscription | None:
    """Return the subscription of a fund, locked until this transaction ends."""
    query = select(ProductSubscription).where(
        ProductSubscription.cbu_id == cbu.id, ProductSubscription.product == product
    )
    return session.scalars(query.with_for_update(**lock)).one_or_none()


def _same_name_query(has_name: ColumnElement[bool]) -> Select[Party]:
    """Return the query for another party of the same name; an unknown field matches any value."""
    field_conditions = (
        or_(bindparam(column.key) == "", column.in_((bindparam(column.key), "")))
        for column in (Party.jurisdiction, Party.distinguisher)
    )
    other_parties = select(Party).where(
        Party.kind == bindparam("kind"), Party.id != bindparam("id"), has_name, *field_conditions
    )
    other_parties = other_parties.where(Party.status == PartyStatus.ACTIVE)
    return other_parties.order_by(Party.jurisdiction, Party.distinguisher, Party.id).limit(1)


# Built once, because building a query takes longer than running it, and a file may have millions of rows.
_SAME_NAME = _same_name_query(Party.name_key == bindparam("name_key"))
_SAME_FORMER_NAME = _same_name_query(
    Party.id.in_(
        select(PartyName.party_id).where(
            PartyName.name_key == bindparam("name_key"), PartyName.use == NameUse.FORMER.value
        )
    )
)

_ORGANISATIONS = (PartyKind.COMPANY.value, PartyKind.FUND.value)
_TARGET_KINDS = {
    RelationKind.PARENT: _ORGANISATIONS,
    RelationKind.MANCO: (PartyKind.COMPANY.value,),
    RelationKind.RELATED: _ORGANISATIONS,
}
_RELATION_WORDS = {
    RelationKind.PARENT: "parent",
    RelationKind.MANCO: "management company",
    RelationKind.RELATED: "related party",
}


def _require_party(party: Party | None, party_id: str, *, argument: str) -> Party:
    if party is None:
        raise ValueError(f"{argument}: no party has the id {party_id[:200]!r}")
    return _check_active(party, argument=argument)


def _check_active(party: Party, *, argument: str) -> Party:
    if party.status != PartyStatus.ACTIVE:
        raise ValueError(f"{argument}: {describe(party)} is inactive")
    return party


def _only_party_of_name(session: Session, key: NaturalKey) -> Party | None:
    parties_query = select(Party).where(
        Party.kind == key.kind, Party.name_key == name_key(key.name), Party.status == PartyStatus.ACTIVE
    )
    parties_query = parties_query.order_by(Party.jurisdiction, Party.id).limit(_MAX_LISTED_PARTIES)
    parties = session.scalars(parties_query.with_for_update(**SHARED_LOCK)).all()
    if len(parties) > 1:
        names = ", ".join(describe(party) for party in parties)
        raise ValueError(f"name: several parties have this name ({names}); give the jurisdiction")
    return parties[0] if parties else None
