"""Finding and making the rows of the entity store, inside a transaction that the caller owns.

Everything here is idempotent by natural key: it returns the row that is there, or adds it. Two transactions
that add the same row meet at its unique constraint, and `EntityDatabase.write` runs the loser again.
This module must not import the verbs or Temporal.
"""

import base64
import re
import secrets
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from dagwright.entities.catalogue import PERSON_ROLES, PartyKind, checked_product, checked_role
from dagwright.entities.models import (
    ID_LIMIT,
    Party,
    PartyStatus,
    ProductSubscription,
    Relation,
    RelationKind,
    RoleAssignment,
)
from dagwright.entities.names import name_key

_ID = re.compile(rf"[A-Za-z0-9_.:-]{{1,{ID_LIMIT}}}")
_ID_BYTES = 10
"""80 random bits: a collision needs about 10^12 rows."""


@dataclass(frozen=True, slots=True)
class NaturalKey:
    """What makes a party the same party.

    Args:
        kind: what it is.
        name: as shown, cleaned by `names.clean_name`.
        jurisdiction: ISO 3166 code, empty if not known.
        distinguisher: tells apart persons of one name, else empty.
    """

    kind: PartyKind
    name: str
    jurisdiction: str = ""
    distinguisher: str = ""


def new_id(prefix: str) -> str:
    """Returns a fresh id that says what it stands for, such as `fund_k4y2m7qd3w5ta6rb`."""
    return f"{prefix}_{base64.b32encode(secrets.token_bytes(_ID_BYTES)).decode().lower()}"


def is_id(text: str) -> bool:
    """Returns whether a text could be an id at all."""
    return _ID.fullmatch(text) is not None


def described(party: Party) -> str:
    """Returns how messages name a party: `company 'Apex ManCo' (LU)`."""
    return f"{party.kind} {party.name!r} ({party.jurisdiction or 'jurisdiction not known'})"


def required_party(session: Session, party_id: str, *, argument: str) -> Party:
    """Returns the active party of an id that came as `argument`. Raises ValueError if there is none."""
    party = session.get(Party, party_id) if is_id(party_id) else None
    if party is None:
        raise ValueError(f"{argument}: no party has the id {party_id[:200]!r}")
    return _active(party, argument=argument)


def find_party(session: Session, key: NaturalKey) -> Party | None:
    """Returns the party with this natural key, active or not."""
    return session.scalars(
        select(Party).where(
            Party.kind == key.kind,
            Party.name_key == name_key(key.name),
            Party.jurisdiction == key.jurisdiction,
            Party.distinguisher == key.distinguisher,
        )
    ).one_or_none()


def add_party(session: Session, key: NaturalKey, *, client_type: str = "", party_id: str | None = None) -> Party:
    """Adds a party and returns it; the caller has looked that its natural key is free."""
    party = Party(
        id=party_id or new_id(key.kind.value),
        kind=key.kind.value,
        name=key.name,
        name_key=name_key(key.name),
        jurisdiction=key.jurisdiction,
        distinguisher=key.distinguisher,
        client_type=client_type,
    )
    session.add(party)
    session.flush()
    return party


def ensure_party(session: Session, key: NaturalKey, *, client_type: str = "") -> tuple[Party, bool]:
    """Returns the party of this natural key and whether it was added now.

    Where the jurisdiction is left open, the only party of that kind and name is meant.

    Raises:
        ValueError: the party is inactive, or the jurisdiction is open and several parties have the name.
    """
    party = find_party(session, key)
    if party is None and not key.jurisdiction:
        party = _only_party_of_name(session, key)
    if party is not None:
        return _active(party, argument="name"), False
    return add_party(session, key, client_type=client_type), True


def ensure_relation(session: Session, fund: Party, target: Party, *, kind: RelationKind) -> bool:
    """Links a fund to a party and returns whether that changed anything.

    Raises:
        ValueError: the two are the same, a person stands where an organisation must, or the fund has
            another management company.
    """
    if fund.id == target.id:
        raise ValueError(f"{described(fund)} cannot be its own {_RELATION_WORDS[kind]}")
    allowed = _RELATION_KINDS[kind]
    if target.kind not in allowed:
        expected = " or ".join(allowed)
        raise ValueError(f"the {_RELATION_WORDS[kind]} must be a {expected}, not {described(target)}")
    of_kind = select(Relation).where(Relation.from_id == fund.id, Relation.kind == kind)
    relations = session.scalars(of_kind).all()
    if any(relation.to_id == target.id for relation in relations):
        return False
    if relations and kind is RelationKind.MANCO:
        current = session.get_one(Party, relations[0].to_id)
        raise ValueError(f"{described(fund)} is managed by {described(current)} already")
    session.add(Relation(id=new_id("relation"), from_id=fund.id, to_id=target.id, kind=kind))
    session.flush()
    return True


def relations_of(session: Session, fund: Party) -> dict[RelationKind, list[str]]:
    """Returns the ids that a fund is linked to, by kind, oldest first."""
    found: dict[RelationKind, list[str]] = {kind: [] for kind in RelationKind}
    query = select(Relation).where(Relation.from_id == fund.id).order_by(Relation.created_at, Relation.id)
    for relation in session.scalars(query):
        found[RelationKind(relation.kind)].append(relation.to_id)
    return found


def ensure_role(session: Session, cbu: Party, entity: Party, *, role: str) -> tuple[RoleAssignment, bool]:
    """Gives `entity` a role at `cbu`; returns the assignment and whether it was added now.

    Raises:
        ValueError: unknown role, a person stands as the holder of roles, both are the same party, or the
            role is for persons only.
    """
    checked_role(role)
    if cbu.kind == PartyKind.PERSON:
        raise ValueError(f"cbu-id: roles are held at a fund or a company, not at {described(cbu)}")
    if cbu.id == entity.id:
        raise ValueError(f"entity-id: {described(cbu)} cannot have a role at itself")
    if role in PERSON_ROLES and entity.kind != PartyKind.PERSON:
        raise ValueError(f"entity-id: {role} must be a person, not {described(entity)}")
    existing = session.scalars(
        select(RoleAssignment).where(
            RoleAssignment.cbu_id == cbu.id,
            RoleAssignment.entity_id == entity.id,
            RoleAssignment.role == role,
        )
    ).one_or_none()
    if existing is not None:
        return existing, False
    assignment = RoleAssignment(id=new_id("role"), cbu_id=cbu.id, entity_id=entity.id, role=role)
    session.add(assignment)
    session.flush()
    return assignment, True


def ensure_product(session: Session, cbu: Party, *, product: str) -> tuple[ProductSubscription, bool]:
    """Subscribes a fund to a product; returns the subscription and whether it was added now.

    Raises:
        ValueError: unknown product, or the party is not a fund.
    """
    checked_product(product)
    if cbu.kind != PartyKind.FUND:
        raise ValueError(f"cbu-id: products are for funds, not for {described(cbu)}")
    existing = session.scalars(
        select(ProductSubscription).where(ProductSubscription.cbu_id == cbu.id, ProductSubscription.product == product)
    ).one_or_none()
    if existing is not None:
        return existing, False
    subscription = ProductSubscription(id=new_id("product"), cbu_id=cbu.id, product=product)
    session.add(subscription)
    session.flush()
    return subscription, True


_ORGANISATIONS = (PartyKind.COMPANY.value, PartyKind.FUND.value)
_RELATION_KINDS = {
    RelationKind.PARENT: _ORGANISATIONS,
    RelationKind.MANCO: (PartyKind.COMPANY.value,),
    RelationKind.RELATED: _ORGANISATIONS,
}
_RELATION_WORDS = {
    RelationKind.PARENT: "parent",
    RelationKind.MANCO: "management company",
    RelationKind.RELATED: "related party",
}


def _active(party: Party, *, argument: str) -> Party:
    if party.status != PartyStatus.ACTIVE:
        raise ValueError(f"{argument}: {described(party)} is inactive")
    return party


def _only_party_of_name(session: Session, key: NaturalKey) -> Party | None:
    same_name = select(Party).where(
        Party.kind == key.kind, Party.name_key == name_key(key.name), Party.status == PartyStatus.ACTIVE
    )
    found = session.scalars(same_name.order_by(Party.jurisdiction, Party.id).limit(6)).all()
    if len(found) > 1:
        names = ", ".join(described(party) for party in found)
        raise ValueError(f"name: several parties are called that ({names}); give the jurisdiction")
    return found[0] if found else None
