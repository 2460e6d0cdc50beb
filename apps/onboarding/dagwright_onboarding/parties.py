"""Finding and making the rows of the entity store, inside a transaction that the caller owns.

Everything here is idempotent by natural key: it returns the row that is there, or adds it. Two transactions
that add the same row meet at its unique constraint, and `EntityDatabase.write` runs the loser again.
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

from dagwright_onboarding.catalogue import PERSON_ROLES, PartyKind, checked_product, checked_role
from dagwright_onboarding.models import (
    ID_LIMIT,
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
"""How PostgreSQL locks rows, as `with_for_update` takes it; on SQLite there is one writer at a time."""
HELD: Final[Lock] = MappingProxyType({"read": True, "key_share": True})
"""Nobody takes the row away, as with the foreign keys of PostgreSQL; others may hold it as well."""
TAKEN: Final[Lock] = MappingProxyType({})
"""Nobody else holds the row: it is to be taken away."""

_ID = re.compile(rf"[A-Za-z0-9_.:-]{{1,{ID_LIMIT}}}")
_SAME_NAMES_TOLD = 6
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


def described_with_birth(party: Party) -> str:
    """Returns the same with the date of birth of a person, if it is known."""
    return described(party) + (f", born {party.distinguisher}" if party.distinguisher else "")


def required_party(session: Session, party_id: str, *, argument: str) -> Party:
    """Returns the active party of an id that came as `argument`. Raises ValueError if there is none."""
    party = session.get(Party, party_id) if is_id(party_id) else None
    return _required(party, party_id, argument=argument)


def held_party(session: Session, party_id: str, *, argument: str) -> Party:
    """Returns the same as `required_party`; nobody takes the party away before this transaction ends."""
    party = session.get(Party, party_id, with_for_update=dict(HELD)) if is_id(party_id) else None
    return _required(party, party_id, argument=argument)


def find_party(session: Session, key: NaturalKey) -> Party | None:
    """Returns the party with this natural key, active or not; nobody takes it away before this transaction ends."""
    query = select(Party).where(
        Party.kind == key.kind,
        Party.name_key == name_key(key.name),
        Party.jurisdiction == key.jurisdiction,
        Party.distinguisher == key.distinguisher,
    )
    return session.scalars(query.with_for_update(**HELD)).one_or_none()


def add_party(session: Session, key: NaturalKey, *, client_type: str = "", party_id: str | None = None) -> Party:
    """Adds a party and returns it; the caller has looked that its natural key is free."""
    session.add(party := new_party(key, client_type=client_type, party_id=party_id))
    session.flush()
    return party


def new_party(key: NaturalKey, *, client_type: str = "", party_id: str | None = None) -> Party:
    """Returns the row of a party that is to be added."""
    return Party(
        id=party_id or new_id(key.kind.value),
        kind=key.kind.value,
        name=key.name,
        name_key=name_key(key.name),
        jurisdiction=key.jurisdiction,
        distinguisher=key.distinguisher,
        client_type=client_type,
    )


def ensure_exactly(session: Session, key: NaturalKey, *, client_type: str = "") -> tuple[Party, bool]:
    """Returns the party of this natural key and whether it was added now; what it leaves open is not known.

    Raises:
        ValueError: the party is inactive.
    """
    party = find_party(session, key)
    if party is not None:
        return _active(party, argument="name"), False
    return add_party(session, key, client_type=client_type), True


def ensure_party(session: Session, key: NaturalKey, *, client_type: str = "") -> tuple[Party, bool]:
    """Returns the party of this natural key and whether it was added now.

    Where the jurisdiction is left open, the only party of that kind and name is meant.

    Raises:
        ValueError: the party is inactive, or the jurisdiction is open and several parties have the name.
    """
    if not key.jurisdiction and find_party(session, key) is None:
        only = _only_party_of_name(session, key)
        if only is not None:
            return only, False
    return ensure_exactly(session, key, client_type=client_type)


def ensure_person(session: Session, key: NaturalKey) -> tuple[Party, bool]:
    """Returns the person of this natural key and whether they were added now.

    Raises:
        ValueError: the person is inactive, or what the key leaves open lets it mean another person who is there.
    """
    if find_party(session, key) is not None:
        return ensure_exactly(session, key)
    same_name = select(Party).where(Party.kind == PartyKind.PERSON, Party.name_key == name_key(key.name))
    if key.jurisdiction:
        same_name = same_name.where(Party.jurisdiction == key.jurisdiction)
    if key.distinguisher:
        same_name = same_name.where(Party.distinguisher == key.distinguisher)
    other = session.scalars(same_name.order_by(Party.jurisdiction, Party.distinguisher, Party.id).limit(1)).first()
    if other is not None:
        raise ValueError(
            f"name: {described_with_birth(other)} is there already; look that person up, or give jurisdiction and "
            "date-of-birth to add another one of the name"
        )
    return ensure_exactly(session, key)


def possible_twin(session: Session, party: Party) -> Party | None:
    """Returns another active party that may be this one: of its kind and name, and nothing known of both differs.

    One that had the name before counts too, if no other has it now.
    """
    known = {
        "id": party.id,
        "kind": party.kind,
        "name_key": party.name_key,
        "jurisdiction": party.jurisdiction,
        "distinguisher": party.distinguisher,
    }
    return session.scalars(_SAME_NAME, known).first() or session.scalars(_SAME_NAME_BEFORE, known).first()


def ensure_relation(
    session: Session, fund: Party, target: Party, *, kind: RelationKind, relation_id: str | None = None
) -> tuple[Relation, bool]:
    """Links a fund or company to a party; returns the link and whether it was added now.

    Two parties are related to each other: it is one link, whoever is named first.

    Raises:
        ValueError: the two are the same, a person stands where an organisation must, or the fund has
            another management company.
    """
    if fund.id == target.id:
        raise ValueError(f"{described(fund)} cannot be its own {_RELATION_WORDS[kind]}")
    if fund.kind == PartyKind.PERSON:
        raise ValueError(f"cbu-id: a fund or a company is linked to others, not {described(fund)}")
    allowed = _RELATION_KINDS[kind]
    if target.kind not in allowed:
        expected = " or ".join(allowed)
        raise ValueError(f"the {_RELATION_WORDS[kind]} must be a {expected}, not {described(target)}")
    if kind is RelationKind.RELATED:
        # No constraint holds for both directions, so those who link the same two wait for each other.
        session.get(Party, min(fund.id, target.id), with_for_update={"key_share": True})
    if (known := find_relation(session, fund, target, kind=kind)) is not None:
        return known, False
    if kind is RelationKind.MANCO:
        of_kind = select(Relation).where(Relation.from_id == fund.id, Relation.kind == kind)
        if (other := session.scalars(of_kind).first()) is not None:
            current = session.get_one(Party, other.to_id)
            raise ValueError(f"{described(fund)} is managed by {described(current)} already")
    relation = Relation(id=relation_id or new_id("relation"), from_id=fund.id, to_id=target.id, kind=kind)
    session.add(relation)
    session.flush()
    return relation, True


def find_relation(
    session: Session, fund: Party, target: Party, *, kind: RelationKind, lock: Lock = HELD
) -> Relation | None:
    """Returns the link of a kind between two parties, locked until this transaction ends."""
    ends = and_(Relation.from_id == fund.id, Relation.to_id == target.id)
    if kind is RelationKind.RELATED:
        ends = or_(ends, and_(Relation.from_id == target.id, Relation.to_id == fund.id))
    query = select(Relation).where(ends, Relation.kind == kind).with_for_update(**lock)
    return session.scalars(query.order_by(Relation.id)).first()


def relations_of(session: Session, fund: Party) -> dict[RelationKind, list[str]]:
    """Returns the ids that a fund or company is linked to, by kind, oldest first."""
    found: dict[RelationKind, list[str]] = {kind: [] for kind in RelationKind}
    related_to_it = and_(Relation.to_id == fund.id, Relation.kind == RelationKind.RELATED)
    query = select(Relation).where(or_(Relation.from_id == fund.id, related_to_it))
    for relation in session.scalars(query.order_by(Relation.created_at, Relation.id)):
        other = relation.to_id if relation.from_id == fund.id else relation.from_id
        found[RelationKind(relation.kind)].append(other)
    return found


def ensure_role(
    session: Session, cbu: Party, entity: Party, *, role: str, assignment_id: str | None = None
) -> tuple[RoleAssignment, bool]:
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
    if (known := find_role(session, cbu, entity, role=role)) is not None:
        return known, False
    assignment = RoleAssignment(id=assignment_id or new_id("role"), cbu_id=cbu.id, entity_id=entity.id, role=role)
    session.add(assignment)
    session.flush()
    return assignment, True


def find_role(session: Session, cbu: Party, entity: Party, *, role: str, lock: Lock = HELD) -> RoleAssignment | None:
    """Returns the assignment of a role, locked until this transaction ends."""
    query = select(RoleAssignment).where(
        RoleAssignment.cbu_id == cbu.id,
        RoleAssignment.entity_id == entity.id,
        RoleAssignment.role == role,
    )
    return session.scalars(query.with_for_update(**lock)).one_or_none()


def ensure_product(
    session: Session, cbu: Party, *, product: str, subscription_id: str | None = None
) -> tuple[ProductSubscription, bool]:
    """Subscribes a fund to a product; returns the subscription and whether it was added now.

    Raises:
        ValueError: unknown product, or the party is not a fund.
    """
    checked_product(product)
    if cbu.kind != PartyKind.FUND:
        raise ValueError(f"cbu-id: products are for funds, not for {described(cbu)}")
    if (known := find_product(session, cbu, product=product)) is not None:
        return known, False
    subscription = ProductSubscription(id=subscription_id or new_id("product"), cbu_id=cbu.id, product=product)
    session.add(subscription)
    session.flush()
    return subscription, True


def find_product(session: Session, cbu: Party, *, product: str, lock: Lock = HELD) -> ProductSubscription | None:
    """Returns the subscription of a fund, locked until this transaction ends."""
    query = select(ProductSubscription).where(
        ProductSubscription.cbu_id == cbu.id, ProductSubscription.product == product
    )
    return session.scalars(query.with_for_update(**lock)).one_or_none()


def _alike(called_so: ColumnElement[bool]) -> Select[Party]:
    """Returns the query for a party beside a known one; what is not known of one of them does not tell them apart."""
    open_or_same = (
        or_(bindparam(column.key) == "", column.in_((bindparam(column.key), "")))
        for column in (Party.jurisdiction, Party.distinguisher)
    )
    others = select(Party).where(Party.kind == bindparam("kind"), Party.id != bindparam("id"), called_so, *open_or_same)
    others = others.where(Party.status == PartyStatus.ACTIVE)
    return others.order_by(Party.jurisdiction, Party.distinguisher, Party.id).limit(1)


# Made once: to make them takes longer than to run them, and a file has very many rows.
_SAME_NAME = _alike(Party.name_key == bindparam("name_key"))
_SAME_NAME_BEFORE = _alike(
    Party.id.in_(
        select(PartyName.party_id).where(
            PartyName.name_key == bindparam("name_key"), PartyName.use == NameUse.FORMER.value
        )
    )
)

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


def _required(party: Party | None, party_id: str, *, argument: str) -> Party:
    if party is None:
        raise ValueError(f"{argument}: no party has the id {party_id[:200]!r}")
    return _active(party, argument=argument)


def _active(party: Party, *, argument: str) -> Party:
    if party.status != PartyStatus.ACTIVE:
        raise ValueError(f"{argument}: {described(party)} is inactive")
    return party


def _only_party_of_name(session: Session, key: NaturalKey) -> Party | None:
    same_name = select(Party).where(
        Party.kind == key.kind, Party.name_key == name_key(key.name), Party.status == PartyStatus.ACTIVE
    )
    same_name = same_name.order_by(Party.jurisdiction, Party.id).limit(_SAME_NAMES_TOLD)
    found = session.scalars(same_name.with_for_update(**HELD)).all()
    if len(found) > 1:
        names = ", ".join(described(party) for party in found)
        raise ValueError(f"name: several parties are called that ({names}); give the jurisdiction")
    return found[0] if found else None
