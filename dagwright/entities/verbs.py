"""The verbs of onboarding: one idempotent transaction each, and the tools that plans call them by.

A verb is idempotent twice. By key: the effect is recorded under the idempotency key in the transaction that
makes it, so a second attempt gets the recorded result. By natural key: what is already there is found and
left as it is. `OnboardingVerbs` takes the key as an argument; the tools take it from their context.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from sqlalchemy.orm import Session

from dagwright.entities.catalogue import (
    PartyKind,
    Product,
    Role,
    checked_client_type,
    checked_jurisdiction,
)
from dagwright.entities.database import EntityDatabase, as_database
from dagwright.entities.models import Effect, Party, RelationKind
from dagwright.entities.names import clean_name
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
from dagwright.tools import ToolSpec, context, spec_of, tool

DEFAULT_CLIENT_TYPE = "fund"


@dataclass(frozen=True, slots=True)
class CompanyResult:
    """A company that is in the store now; `created` says whether this call added it."""

    id: str
    kind: str
    name: str
    jurisdiction: str
    created: bool


@dataclass(frozen=True, slots=True)
class CbuResult:
    """A fund that is in the store now, with all its links; `created` says whether this call added it."""

    id: str
    kind: str
    name: str
    jurisdiction: str | None
    client_type: str
    parent_entity_ids: list[str]
    manco_id: str | None
    related_to: list[str]
    created: bool
    linked: bool
    """Whether this call added a link."""


@dataclass(frozen=True, slots=True)
class RoleResult:
    """A role that is assigned now; `id` is the assignment's."""

    id: str
    cbu_id: str
    cbu_name: str
    entity_id: str
    entity_name: str
    role: str
    created: bool


@dataclass(frozen=True, slots=True)
class ProductResult:
    """A product that a fund has now; `id` is the subscription's."""

    id: str
    cbu_id: str
    cbu_name: str
    product: str
    created: bool


Result = TypeVar("Result", CompanyResult, CbuResult, RoleResult, ProductResult)


@dataclass(frozen=True, slots=True)
class CbuRequest:
    """What `cbu.ensure` was asked for; texts as they came."""

    name: str
    jurisdiction: str | None = None
    client_type: str | None = None
    parent_entity_id: str | None = None
    manco_id: str | None = None
    related_to: str | None = None


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


def onboarding_tools(database: EntityDatabase | str) -> list[ToolSpec]:
    """Returns the tools `cbu.ensure`, `cbu.assign-role`, `cbu.add-product`, `entity.create-limited-company`.

    Args:
        database: the store, or its URL; nothing is opened before the first call of a tool.
    """
    verbs = OnboardingVerbs(as_database(database))

    @tool(name="entity.create-limited-company", effects="idempotent")
    def create_limited_company(*, name: str, jurisdiction: str) -> CompanyResult:
        """Create a limited company, or return the one of that name and jurisdiction.

        Args:
            name: registered name, legal form included.
            jurisdiction: ISO 3166 code, for example LU.
        """
        return verbs.create_limited_company(context().idempotency_key, name=name, jurisdiction=jurisdiction)

    @tool(name="cbu.ensure", effects="idempotent")
    def ensure_cbu(
        *,
        name: str,
        jurisdiction: str | None = None,
        client_type: str | None = None,
        parent_entity_id: str | None = None,
        manco_id: str | None = None,
        related_to: str | None = None,
    ) -> CbuResult:
        """Create a client business unit (a fund), or return the one of that name, and link it.

        Args:
            name: name of the fund.
            jurisdiction: ISO 3166 code, for example LU; left out, the only fund of that name is meant.
            client_type: a short word such as fund.
            parent_entity_id: id of the company or fund that stands above it.
            manco_id: id of its management company.
            related_to: id of a company or fund that it is related to.
        """
        request = CbuRequest(name, jurisdiction, client_type, parent_entity_id, manco_id, related_to)
        return verbs.ensure_cbu(context().idempotency_key, request)

    @tool(name="cbu.assign-role", effects="idempotent")
    def assign_role(*, cbu_id: str, entity_id: str, role: Role) -> RoleResult:
        """Give a party a role at a fund or a company.

        Args:
            cbu_id: id of the fund or company at which the role is held.
            entity_id: id of the person or organisation that gets the role.
            role: the role.
        """
        return verbs.assign_role(context().idempotency_key, cbu_id=cbu_id, entity_id=entity_id, role=role)

    @tool(name="cbu.add-product", effects="idempotent")
    def add_product(*, cbu_id: str, product: Product) -> ProductResult:
        """Subscribe a fund to a product.

        Args:
            cbu_id: id of the fund.
            product: the product.
        """
        return verbs.add_product(context().idempotency_key, cbu_id=cbu_id, product=product)

    functions = (create_limited_company, ensure_cbu, assign_role, add_product)
    return [spec for function in functions if (spec := spec_of(function)) is not None]


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
