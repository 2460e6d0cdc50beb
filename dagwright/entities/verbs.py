"""The verbs of onboarding: one idempotent transaction each.

A verb is idempotent twice. By key: the effect is recorded under the idempotency key in the transaction that
makes it, so a second attempt gets the recorded result. By natural key: what is already there is found and
left as it is. `OnboardingVerbs` takes the key as an argument; the tools of
`onboarding` take it from their context.
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

from sqlalchemy.orm import Session

from dagwright.entities.catalogue import (
    PartyKind,
    checked_client_type,
    checked_jurisdiction,
)
from dagwright.entities.database import EntityDatabase
from dagwright.entities.models import Effect, Party, RelationKind
from dagwright.entities.names import clean_name
from dagwright.entities.onboarding import CbuRequest, CbuResult, CompanyResult, ProductResult, RoleResult
from dagwright.entities.parties import (
    NaturalKey,
    described,
    ensure_party,
    ensure_product,
    ensure_relation,
    ensure_role,
    relations_of,
    required_party,
)

DEFAULT_CLIENT_TYPE = "fund"


Result = TypeVar("Result", CompanyResult, CbuResult, RoleResult, ProductResult)


class OnboardingVerbs:
    """Runs the verbs against one store; raises ValueError for what only another plan can mend."""

    def __init__(self, database: EntityDatabase) -> None:
        self._database = database

    def create_limited_company(self, key: str, *, name: str, jurisdiction: str) -> CompanyResult:
        """Returns the company of this name and jurisdiction, added if it was not there."""
        natural_key = NaturalKey(PartyKind.COMPANY, clean_name(name), checked_jurisdiction(jurisdiction))

        def work(session: Session) -> CompanyResult:
            company, created = ensure_party(session, natural_key)
            return CompanyResult(company.id, company.kind, company.name, company.jurisdiction, created)

        return self._once(key, "entity.create-limited-company", CompanyResult, work)

    def ensure_cbu(self, key: str, request: CbuRequest) -> CbuResult:
        """Returns the fund of this name and jurisdiction, added if it was not there, linked as asked."""
        jurisdiction = checked_jurisdiction(request.jurisdiction) if request.jurisdiction else ""
        natural_key = NaturalKey(PartyKind.FUND, clean_name(request.name), jurisdiction)
        client_type = checked_client_type(request.client_type) if request.client_type else None

        def work(session: Session) -> CbuResult:
            fund, created = ensure_party(session, natural_key, client_type=client_type or DEFAULT_CLIENT_TYPE)
            _settle_client_type(fund, client_type)
            linked = _link(session, fund, request)
            return _cbu_result(session, fund, created=created, linked=linked)

        return self._once(key, "cbu.ensure", CbuResult, work)

    def assign_role(self, key: str, *, cbu_id: str, entity_id: str, role: str) -> RoleResult:
        """Returns the assignment of a role at a fund or company, added if it was not there."""

        def work(session: Session) -> RoleResult:
            cbu = required_party(session, cbu_id, argument="cbu-id")
            entity = required_party(session, entity_id, argument="entity-id")
            assignment, created = ensure_role(session, cbu, entity, role=role)
            return RoleResult(assignment.id, cbu.id, cbu.name, entity.id, entity.name, role, created)

        return self._once(key, "cbu.assign-role", RoleResult, work)

    def add_product(self, key: str, *, cbu_id: str, product: str) -> ProductResult:
        """Returns the subscription of a fund to a product, added if it was not there."""

        def work(session: Session) -> ProductResult:
            cbu = required_party(session, cbu_id, argument="cbu-id")
            subscription, created = ensure_product(session, cbu, product=product)
            return ProductResult(subscription.id, cbu.id, cbu.name, product, created)

        return self._once(key, "cbu.add-product", ProductResult, work)

    def _once(self, key: str, verb: str, result_type: type[Result], work: Callable[[Session], Result]) -> Result:
        """Runs `work` unless its effect is recorded, and records it in the same transaction."""

        def transaction(session: Session) -> Result:
            recorded = session.get(Effect, key)
            if recorded is not None:
                return _recorded_result(recorded, verb, result_type=result_type)
            result = work(session)
            session.add(Effect(key=key, verb=verb, result=asdict(result)))
            return result

        return self._database.write(transaction)


def _settle_client_type(fund: Party, client_type: str | None) -> None:
    if client_type is None or fund.client_type == client_type:
        return
    if fund.client_type:
        raise ValueError(f"client-type: {described(fund)} is a {fund.client_type!r}, not a {client_type!r}")
    fund.client_type = client_type


def _link(session: Session, fund: Party, request: CbuRequest) -> bool:
    wanted = (
        (RelationKind.PARENT, "parent-entity-id", request.parent_entity_id),
        (RelationKind.MANCO, "manco-id", request.manco_id),
        (RelationKind.RELATED, "related-to", request.related_to),
    )
    changes = [
        ensure_relation(session, fund, required_party(session, party_id, argument=argument), kind=kind)
        for kind, argument, party_id in wanted
        if party_id is not None
    ]
    return any(changes)


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


def _recorded_result(effect: Effect, verb: str, *, result_type: type[Result]) -> Result:
    if effect.verb != verb:
        raise ValueError(f"the idempotency key of a {effect.verb} was used again for a {verb}")
    fields: dict[str, Any] = effect.result
    return result_type(**fields)
