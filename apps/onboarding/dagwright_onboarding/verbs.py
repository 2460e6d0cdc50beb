"""The onboarding verbs: one idempotent transaction each.

A verb is idempotent in two ways. By key: the result is recorded under the idempotency key in the transaction of the
change, and a second attempt returns the recorded result. By natural key: existing rows are found and left unchanged.
`OnboardingVerbs` takes the key as an argument; the tools of `onboarding` take it from their context.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from dagwright_onboarding.catalogue import (
    PartyKind,
    validate_client_type,
    validate_date_of_birth,
    validate_link,
    validate_product,
    validate_role,
)
from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.effects import EffectLog, Row, VerbCall
from dagwright_onboarding.models import Party, ProductSubscription, RelationKind, RoleAssignment
from dagwright_onboarding.names import clean_name
from dagwright_onboarding.parties import (
    EXCLUSIVE_LOCK,
    NaturalKey,
    describe,
    ensure_exact_party,
    ensure_party,
    ensure_person,
    ensure_product,
    ensure_relation,
    ensure_role,
    find_product,
    find_relation,
    find_role,
    get_active_party,
    lock_active_party,
    relations_of,
)
from dagwright_onboarding.text_formats import parse_jurisdiction
from dagwright_onboarding.undo import undo_call
from dagwright_onboarding.verb_results import (
    CbuFound,
    CbuRequest,
    CbuResult,
    CompanyResult,
    LinkRemoval,
    LinkResult,
    PartyResult,
    PersonResult,
    ProductRemoval,
    ProductResult,
    RoleHolder,
    RoleRemoval,
    RoleResult,
    UndoResult,
)

DEFAULT_CLIENT_TYPE = "fund"

_KIND_OF_LINK = {
    "PARENT": RelationKind.PARENT,
    "MANAGEMENT_COMPANY": RelationKind.MANCO,
    "RELATED": RelationKind.RELATED,
}


@dataclass(frozen=True, slots=True)
class NewParty:
    """A party to create; fields are not validated.

    Args:
        jurisdiction: required for a company.
        date_of_birth: distinguishes persons of the same name.
    """

    kind: PartyKind
    name: str
    jurisdiction: str | None = None
    date_of_birth: str | None = None

    def natural_key(self) -> NaturalKey:
        """Return the natural key. Raises ValueError for invalid fields."""
        if self.kind is PartyKind.COMPANY and not self.jurisdiction:
            raise ValueError(f"jurisdiction: required for the company {self.name!r:.80}")
        if self.kind is not PartyKind.PERSON and self.date_of_birth:
            raise ValueError(f"date-of-birth: only a person has a date of birth, not a {self.kind}")
        jurisdiction = parse_jurisdiction(self.jurisdiction) if self.jurisdiction else ""
        date_of_birth = validate_date_of_birth(self.date_of_birth) if self.date_of_birth else ""
        return NaturalKey(self.kind, clean_name(self.name), jurisdiction, date_of_birth)


class OnboardingVerbs:
    """Runs the verbs against one store; raises ValueError if the plan must be changed."""

    def __init__(self, database: EntityDatabase) -> None:
        self._database = database
        self._log = EffectLog(database)

    def create_limited_company(self, key: str, *, name: str, jurisdiction: str) -> CompanyResult:
        """Return the company with this name and jurisdiction; add a missing company."""
        natural_key = NaturalKey(PartyKind.COMPANY, clean_name(name), parse_jurisdiction(jurisdiction))

        def apply(call: VerbCall) -> CompanyResult:
            company, created = ensure_party(call.session, natural_key)
            call.protect_rows(company)
            return CompanyResult(company.id, company.kind, company.name, company.jurisdiction, created)

        return self._log.run_once(key, "entity.create-limited-company", CompanyResult, apply)

    def create_person(
        self, key: str, *, name: str, jurisdiction: str | None = None, date_of_birth: str | None = None
    ) -> PersonResult:
        """Return the person with this name, jurisdiction and date of birth; add a missing person."""
        natural_key = NewParty(PartyKind.PERSON, name, jurisdiction, date_of_birth).natural_key()

        def apply(call: VerbCall) -> PersonResult:
            person, created = ensure_person(call.session, natural_key)
            call.protect_rows(person)
            jurisdiction, date_of_birth = person.jurisdiction or None, person.distinguisher or None
            return PersonResult(person.id, person.kind, person.name, jurisdiction, date_of_birth, created)

        return self._log.run_once(key, "entity.create-person", PersonResult, apply)

    def ensure_cbu(self, key: str, request: CbuRequest) -> CbuResult:
        """Link the fund with this name and jurisdiction as requested, and return the fund; add a missing fund."""
        jurisdiction = parse_jurisdiction(request.jurisdiction) if request.jurisdiction else ""
        natural_key = NaturalKey(PartyKind.FUND, clean_name(request.name), jurisdiction)
        client_type = validate_client_type(request.client_type) if request.client_type else None

        def apply(call: VerbCall) -> CbuResult:
            initial_client_type = client_type or DEFAULT_CLIENT_TYPE
            fund, created = ensure_party(call.session, natural_key, client_type=initial_client_type)
            call.protect_rows(fund)
            _set_client_type(call, fund, client_type)
            linked = _link(call, fund, request)
            return _cbu_result(call.session, fund, created=created, linked=linked)

        return self._log.run_once(key, "cbu.ensure", CbuResult, apply)

    def get_cbu(self, cbu_id: str) -> CbuFound:
        """Return the current state of a fund or company, with its links, roles and products."""

        def read_state(session: Session) -> CbuFound:
            cbu = get_active_party(session, cbu_id, argument="cbu-id")
            if cbu.kind == PartyKind.PERSON:
                raise ValueError(f"cbu-id: expected a fund or a company, got {describe(cbu)}")
            return _describe_cbu(session, cbu)

        return self._database.read(read_state)

    def assign_role(self, key: str, *, cbu_id: str, entity_id: str, role: str) -> RoleResult:
        """Assign a role at a fund or company, unless the party has the role."""

        def apply(call: VerbCall) -> RoleResult:
            cbu, entity = _lock_parties(call, cbu_id, entity_id)
            assignment, created = ensure_role(call.session, cbu, entity, role=role)
            call.protect_rows(assignment)
            return RoleResult(assignment.id, cbu.id, cbu.name, entity.id, entity.name, role, created)

        return self._log.run_once(key, "cbu.assign-role", RoleResult, apply)

    def remove_role(self, key: str, *, cbu_id: str, entity_id: str, role: str) -> RoleRemoval:
        """Remove a role of a party at a fund or company."""
        validate_role(role)

        def apply(call: VerbCall) -> RoleRemoval:
            cbu, entity = _lock_parties(call, cbu_id, entity_id)
            assignment_id = _remove(call, find_role(call.session, cbu, entity, role=role, lock=EXCLUSIVE_LOCK))
            removed = assignment_id is not None
            return RoleRemoval(assignment_id, cbu.id, cbu.name, entity.id, entity.name, role, removed)

        return self._log.run_once(key, "cbu.remove-role", RoleRemoval, apply)

    def add_product(self, key: str, *, cbu_id: str, product: str) -> ProductResult:
        """Subscribe a fund to a product, unless the fund has the product already."""

        def apply(call: VerbCall) -> ProductResult:
            cbu = _lock_party(call, cbu_id, argument="cbu-id")
            subscription, created = ensure_product(call.session, cbu, product=product)
            call.protect_rows(subscription)
            return ProductResult(subscription.id, cbu.id, cbu.name, product, created)

        return self._log.run_once(key, "cbu.add-product", ProductResult, apply)

    def remove_product(self, key: str, *, cbu_id: str, product: str) -> ProductRemoval:
        """End the subscription of a fund to a product."""
        validate_product(product)

        def apply(call: VerbCall) -> ProductRemoval:
            cbu = _lock_party(call, cbu_id, argument="cbu-id")
            subscription_id = _remove(call, find_product(call.session, cbu, product=product, lock=EXCLUSIVE_LOCK))
            return ProductRemoval(subscription_id, cbu.id, cbu.name, product, subscription_id is not None)

        return self._log.run_once(key, "cbu.remove-product", ProductRemoval, apply)

    def link(self, key: str, *, cbu_id: str, entity_id: str, link: str) -> LinkResult:
        """Link two existing parties, unless they have this link already."""
        kind = _KIND_OF_LINK[validate_link(link)]

        def apply(call: VerbCall) -> LinkResult:
            cbu, entity = _lock_parties(call, cbu_id, entity_id)
            relation, created = ensure_relation(call.session, cbu, entity, kind=kind)
            call.protect_rows(relation)
            return LinkResult(relation.id, cbu.id, cbu.name, entity.id, entity.name, link, created)

        return self._log.run_once(key, "cbu.link", LinkResult, apply)

    def unlink(self, key: str, *, cbu_id: str, entity_id: str, link: str) -> LinkRemoval:
        """Remove a link between two parties."""
        kind = _KIND_OF_LINK[validate_link(link)]

        def apply(call: VerbCall) -> LinkRemoval:
            cbu, entity = _lock_parties(call, cbu_id, entity_id)
            relation_id = _remove(call, find_relation(call.session, cbu, entity, kind=kind, lock=EXCLUSIVE_LOCK))
            removed = relation_id is not None
            return LinkRemoval(relation_id, cbu.id, cbu.name, entity.id, entity.name, link, removed)

        return self._log.run_once(key, "cbu.unlink", LinkRemoval, apply)

    def undo(self, key: str) -> UndoResult:
        """Undo the call of a key, and prevent a later attempt of the call from taking effect; see `undo.undo_call`."""
        return self._database.write(lambda session: undo_call(session, key))


def create_parties(call: VerbCall, new_parties: Sequence[NewParty]) -> list[PartyResult]:
    """Return the requested parties in order; missing parties are added, and one undo removes all added parties.

    An existing party is returned only if all fields of its natural key are equal, including the empty fields.

    Args:
        call: call from `EffectLog.run_once`; its transaction may make other changes.

    Raises:
        ValueError: one of the parties is invalid; the transaction is rolled back.
    """
    return [_ensure_new_party(call, party.natural_key()) for party in new_parties]


def _ensure_new_party(call: VerbCall, natural_key: NaturalKey) -> PartyResult:
    client_type = DEFAULT_CLIENT_TYPE if natural_key.kind is PartyKind.FUND else ""
    party, created = ensure_exact_party(call.session, natural_key, client_type=client_type)
    call.protect_rows(party)
    return PartyResult(party.id, party.kind, party.name, party.jurisdiction or None, created)


def _lock_party(call: VerbCall, party_id: str, *, argument: str) -> Party:
    party = lock_active_party(call.session, party_id, argument=argument)
    call.protect_rows(party)
    return party


def _lock_parties(call: VerbCall, cbu_id: str, entity_id: str) -> tuple[Party, Party]:
    return _lock_party(call, cbu_id, argument="cbu-id"), _lock_party(call, entity_id, argument="entity-id")


def _remove(call: VerbCall, row: Row | None) -> str | None:
    """Remove a row, if there is one, and return its id."""
    if row is None:
        return None
    call.session.delete(row)
    return row.id


def _set_client_type(call: VerbCall, fund: Party, client_type: str | None) -> None:
    if client_type is None:
        return
    if fund.client_type not in ("", client_type):
        raise ValueError(f"client-type: {describe(fund)} is a {fund.client_type!r}, not a {client_type!r}")
    fund.client_type = client_type
    call.protect_value(fund, "client_type")


def _link(call: VerbCall, fund: Party, request: CbuRequest) -> bool:
    parties = (
        (RelationKind.PARENT, "parent-entity-id", request.parent_entity_id),
        (RelationKind.MANCO, "manco-id", request.manco_id),
        (RelationKind.RELATED, "related-to", request.related_to),
    )
    linked = False
    for kind, argument, party_id in parties:
        if party_id is not None:
            target = _lock_party(call, party_id, argument=argument)
            relation, created = ensure_relation(call.session, fund, target, kind=kind)
            call.protect_rows(relation)
            linked = linked or created
    return linked


def _cbu_result(session: Session, fund: Party, *, created: bool, linked: bool) -> CbuResult:
    relations = relations_of(session, fund)
    return CbuResult(
        id=fund.id,
        kind=fund.kind,
        name=fund.name,
        jurisdiction=fund.jurisdiction or None,
        client_type=fund.client_type,
        parent_entity_ids=relations[RelationKind.PARENT],
        manco_id=next(iter(relations[RelationKind.MANCO]), None),
        related_to=relations[RelationKind.RELATED],
        created=created,
        linked=linked,
    )


def _describe_cbu(session: Session, cbu: Party) -> CbuFound:
    relations = relations_of(session, cbu)
    roles_query = (
        select(RoleAssignment.role, Party.id, Party.name)
        .join(Party, RoleAssignment.entity_id == Party.id)
        .where(RoleAssignment.cbu_id == cbu.id)
        .order_by(RoleAssignment.role, Party.name, Party.id)
    )
    products_query = select(ProductSubscription.product).where(ProductSubscription.cbu_id == cbu.id)
    return CbuFound(
        id=cbu.id,
        kind=cbu.kind,
        name=cbu.name,
        jurisdiction=cbu.jurisdiction or None,
        client_type=cbu.client_type or None,
        parent_entity_ids=relations[RelationKind.PARENT],
        manco_id=next(iter(relations[RelationKind.MANCO]), None),
        related_to=relations[RelationKind.RELATED],
        roles=[RoleHolder(role, party_id, name) for role, party_id, name in session.execute(roles_query)],
        products=list(session.scalars(products_query.order_by(ProductSubscription.product))),
    )
