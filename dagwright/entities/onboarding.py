"""The tools that onboarding plans call: their arguments and results, without the store behind them.

Every command that knows tools imports this module, so it must not import SQLAlchemy: that takes longer than a
command may take to start. The store and the verbs are imported when the first of them is called.
"""

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagwright.entities.catalogue import AnyPartyId, CompanyId, FundId, OrganisationId, Product, Role
from dagwright.tools import ToolSpec, context, spec_of, tool

if TYPE_CHECKING:
    from dagwright.entities.database import EntityDatabase
    from dagwright.entities.verbs import OnboardingVerbs


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


@dataclass(frozen=True, slots=True)
class CbuRequest:
    """What `cbu.ensure` was asked for; texts as they came."""

    name: str
    jurisdiction: str | None = None
    client_type: str | None = None
    parent_entity_id: str | None = None
    manco_id: str | None = None
    related_to: str | None = None


class _Store:
    """Opens the store at the first call of a verb; safe to share among threads."""

    def __init__(self, database: "EntityDatabase | str") -> None:
        self._database = database
        self._lock = threading.Lock()
        self._verbs: OnboardingVerbs | None = None

    def verbs(self) -> "OnboardingVerbs":
        # The one place for these imports: see the module's docstring.
        from dagwright.entities.database import as_database  # noqa: PLC0415
        from dagwright.entities.verbs import OnboardingVerbs  # noqa: PLC0415

        with self._lock:
            if self._verbs is None:
                self._verbs = OnboardingVerbs(as_database(self._database))
            return self._verbs


def onboarding_tools(database: "EntityDatabase | str") -> list[ToolSpec]:
    """Returns the tools `cbu.ensure`, `cbu.assign-role`, `cbu.add-product`, `entity.create-limited-company`.

    Args:
        database: the store, or its URL; nothing is opened before the first call of a tool.
    """
    store = _Store(database)

    @tool(name="entity.create-limited-company", effects="idempotent", returns="company")
    def create_limited_company(*, name: str, jurisdiction: str) -> CompanyResult:
        """Create a limited company, or return the one of that name and jurisdiction.

        Args:
            name: registered name, legal form included.
            jurisdiction: ISO 3166 code, for example LU.
        """
        return store.verbs().create_limited_company(context().idempotency_key, name=name, jurisdiction=jurisdiction)

    @tool(name="cbu.ensure", effects="idempotent", sets="cbu", returns="fund")
    def ensure_cbu(
        *,
        name: str,
        jurisdiction: str | None = None,
        client_type: str | None = None,
        parent_entity_id: OrganisationId | None = None,
        manco_id: CompanyId | None = None,
        related_to: OrganisationId | None = None,
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
        return store.verbs().ensure_cbu(context().idempotency_key, request)

    @tool(name="cbu.assign-role", effects="idempotent", returns="role")
    def assign_role(*, cbu_id: OrganisationId, entity_id: AnyPartyId, role: Role) -> RoleResult:
        """Give a party a role at a fund or a company.

        Args:
            cbu_id: id of the fund or company at which the role is held.
            entity_id: id of the person or organisation that gets the role.
            role: the role.
        """
        return store.verbs().assign_role(context().idempotency_key, cbu_id=cbu_id, entity_id=entity_id, role=role)

    @tool(name="cbu.add-product", effects="idempotent", returns="product")
    def add_product(*, cbu_id: FundId, product: Product) -> ProductResult:
        """Subscribe a fund to a product.

        Args:
            cbu_id: id of the fund.
            product: the product.
        """
        return store.verbs().add_product(context().idempotency_key, cbu_id=cbu_id, product=product)

    functions = (create_limited_company, ensure_cbu, assign_role, add_product)
    return [spec for function in functions if (spec := spec_of(function)) is not None]
