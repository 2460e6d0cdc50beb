"""The tools that onboarding plans call: their arguments and results, without the store.

Every command that lists tools imports this module, so it must not import SQLAlchemy, whose import takes longer than a
command may take to start. The store and the verbs are imported at the first call of a tool.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dagwright.settings import Settings
from dagwright.tools import ToolSpec, context, spec_of, tool
from dagwright_onboarding.catalogue import (
    AnyPartyId,
    CompanyId,
    DateOfBirth,
    FundId,
    Jurisdiction,
    Link,
    Name,
    OrganisationId,
    OtherOrganisationId,
    Product,
    Role,
    RoleHolderId,
)
from dagwright_onboarding.entity_types import UNDO
from dagwright_onboarding.lazy_database import LazyDatabase
from dagwright_onboarding.lookup_tools import lookup_tools
from dagwright_onboarding.verb_results import (
    CbuFound,
    CbuRequest,
    CbuResult,
    CompanyResult,
    LinkRemoval,
    LinkResult,
    PersonResult,
    ProductRemoval,
    ProductResult,
    RoleRemoval,
    RoleResult,
    UndoResult,
)

if TYPE_CHECKING:
    from dagwright_onboarding.database import EntityDatabase
    from dagwright_onboarding.verbs import OnboardingVerbs

VerbsProvider = Callable[[], "OnboardingVerbs"]
"""Function that returns the verbs; the first call opens the store."""


def onboarding_tools(database: "EntityDatabase | str") -> list[ToolSpec]:
    """Return the verbs of `apps/onboarding/docs/verbs.yaml`, the tool that undoes calls of verbs, and the lookup tools.

    Args:
        database: the store, or its URL; opened at the first call of a tool.
    """
    store = LazyDatabase(database)

    def get_verbs() -> "OnboardingVerbs":
        from dagwright_onboarding.verbs import OnboardingVerbs  # noqa: PLC0415 - see the module

        return OnboardingVerbs(store.database)

    tools = [
        *_tools_of_parties(get_verbs),
        *_tools_of_cbus(get_verbs),
        *_tools_of_links(get_verbs),
        _undo_tool(get_verbs),
    ]
    return [*(spec for function in tools if (spec := spec_of(function)) is not None), *lookup_tools(store)]


def _tools_of_parties(get_verbs: VerbsProvider) -> list[Callable[..., Any]]:
    @tool(name="entity.create-limited-company", effects="idempotent", undo=UNDO, returns="company")
    def create_limited_company(*, name: Name, jurisdiction: Jurisdiction) -> CompanyResult:
        """Create a limited company, or return the existing company with this name and jurisdiction.

        Args:
            name: registered name, legal form included.
            jurisdiction: ISO 3166 code, for example LU.
        """
        return get_verbs().create_limited_company(context().idempotency_key, name=name, jurisdiction=jurisdiction)

    @tool(name="entity.create-person", effects="idempotent", undo=UNDO, returns="person")
    def create_person(
        *, name: Name, jurisdiction: Jurisdiction | None = None, date_of_birth: DateOfBirth | None = None
    ) -> PersonResult:
        """Create a person, or return the existing person with this name, jurisdiction and date of birth.

        Args:
            name: full name.
            jurisdiction: ISO 3166 code of the country, for example GB.
            date_of_birth: such as 1970-12-31; distinguishes persons of the same name.
        """
        key = context().idempotency_key
        return get_verbs().create_person(key, name=name, jurisdiction=jurisdiction, date_of_birth=date_of_birth)

    return [create_limited_company, create_person]


def _tools_of_cbus(get_verbs: VerbsProvider) -> list[Callable[..., Any]]:
    @tool(name="cbu.ensure", effects="idempotent", undo=UNDO, sets="cbu", returns="fund")
    def ensure_cbu(
        *,
        name: Name,
        jurisdiction: Jurisdiction | None = None,
        client_type: str | None = None,
        parent_entity_id: OrganisationId | None = None,
        manco_id: CompanyId | None = None,
        related_to: OrganisationId | None = None,
    ) -> CbuResult:
        """Create a client business unit (a fund) or find the fund with this name, then link the fund as requested.

        Args:
            name: name of the fund.
            jurisdiction: ISO 3166 code, for example LU; may be omitted if only one fund has that name.
            client_type: a short word such as fund.
            parent_entity_id: id of its parent company or fund.
            manco_id: id of its management company.
            related_to: id of a related company or fund.
        """
        request = CbuRequest(name, jurisdiction, client_type, parent_entity_id, manco_id, related_to)
        return get_verbs().ensure_cbu(context().idempotency_key, request)

    @tool(name="cbu.get", effects="read", sets="cbu", returns="party")
    def get_cbu(*, cbu_id: OrganisationId) -> CbuFound:
        """Return the current state of a fund or company, with its links, roles and products.

        Args:
            cbu_id: id of the fund or company.
        """
        return get_verbs().get_cbu(cbu_id)

    @tool(name="cbu.add-product", effects="idempotent", undo=UNDO, returns="product")
    def add_product(*, cbu_id: FundId, product: Product) -> ProductResult:
        """Subscribe a fund to a product.

        Args:
            cbu_id: id of the fund.
            product: the product.
        """
        return get_verbs().add_product(context().idempotency_key, cbu_id=cbu_id, product=product)

    @tool(name="cbu.remove-product", effects="idempotent", undo=UNDO, returns="product")
    def remove_product(*, cbu_id: FundId, product: Product) -> ProductRemoval:
        """End the subscription of a fund to a product.

        Args:
            cbu_id: id of the fund.
            product: the product.
        """
        return get_verbs().remove_product(context().idempotency_key, cbu_id=cbu_id, product=product)

    return [ensure_cbu, get_cbu, add_product, remove_product]


def _tools_of_links(get_verbs: VerbsProvider) -> list[Callable[..., Any]]:
    @tool(name="cbu.assign-role", effects="idempotent", undo=UNDO, returns="role")
    def assign_role(*, cbu_id: OrganisationId, entity_id: RoleHolderId, role: Role) -> RoleResult:
        """Give a party a role at a fund or a company.

        Args:
            cbu_id: id of the fund or company at which the role is held.
            entity_id: id of the person or organisation that gets the role.
            role: the role.
        """
        return get_verbs().assign_role(context().idempotency_key, cbu_id=cbu_id, entity_id=entity_id, role=role)

    @tool(name="cbu.remove-role", effects="idempotent", undo=UNDO, returns="role")
    def remove_role(*, cbu_id: OrganisationId, entity_id: AnyPartyId, role: Role) -> RoleRemoval:
        """Remove a role of a party at a fund or a company.

        Args:
            cbu_id: id of the fund or company at which the role is held.
            entity_id: id of the person or organisation that has the role.
            role: the role.
        """
        return get_verbs().remove_role(context().idempotency_key, cbu_id=cbu_id, entity_id=entity_id, role=role)

    @tool(name="cbu.link", effects="idempotent", undo=UNDO, returns="link")
    def link(*, cbu_id: OrganisationId, entity_id: OtherOrganisationId, link: Link) -> LinkResult:
        """Link two parties that exist, such as two funds that are related to each other.

        Args:
            cbu_id: id of the fund or company that is linked.
            entity_id: id of the other party of the link.
            link: what that party is to the fund or company.
        """
        return get_verbs().link(context().idempotency_key, cbu_id=cbu_id, entity_id=entity_id, link=link)

    @tool(name="cbu.unlink", effects="idempotent", undo=UNDO, returns="link")
    def unlink(*, cbu_id: OrganisationId, entity_id: OrganisationId, link: Link) -> LinkRemoval:
        """Remove a link between two parties.

        Args:
            cbu_id: id of the fund or company that is linked.
            entity_id: id of the other party of the link.
            link: what that party is to the fund or company.
        """
        return get_verbs().unlink(context().idempotency_key, cbu_id=cbu_id, entity_id=entity_id, link=link)

    return [assign_role, remove_role, link, unlink]


def _undo_tool(get_verbs: VerbsProvider) -> Callable[..., Any]:
    @tool(name=UNDO, effects="idempotent")
    def undo(*, key: str, arguments: dict[str, Any], result: Any = None) -> UndoResult:  # noqa: ARG001 - undo tools
        """Undo a call of a verb, and prevent any later attempt of that call from taking effect.

        Args:
            key: idempotency key of the call.
            arguments: arguments of the call; not used, the store has a record of the call.
            result: result of the call; not used, the store has a record of the call.
        """
        return get_verbs().undo(key)

    return undo


def tools(settings: Settings) -> Sequence[ToolSpec]:
    """Return the tools for the database of the settings, which is opened at the first call."""
    return onboarding_tools(settings.database_url)
