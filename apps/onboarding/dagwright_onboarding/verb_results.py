"""Results of the onboarding verbs, and the arguments of verbs with many parameters.

In a plan, a result is a JSON object, and `@result_N` means its `id`. This module must not import the database.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CompanyResult:
    """A company in the store; `created` is true if this call added the company."""

    id: str
    kind: str
    name: str
    jurisdiction: str
    created: bool


@dataclass(frozen=True, slots=True)
class PersonResult:
    """A person in the store; `created` is true if this call added the person."""

    id: str
    kind: str
    name: str
    jurisdiction: str | None
    date_of_birth: str | None
    created: bool


@dataclass(frozen=True, slots=True)
class CbuResult:
    """A fund in the store with all its links; `created` is true if this call added the fund."""

    id: str
    kind: str
    name: str
    jurisdiction: str | None
    client_type: str
    parent_entity_ids: list[str]
    manco_id: str | None
    related_to: list[str]
    """Ids of related parties; the relation is symmetric."""
    created: bool
    linked: bool
    """Whether this call added a link."""


@dataclass(frozen=True, slots=True)
class RoleHolder:
    """A party with a role at a fund or company."""

    role: str
    entity_id: str
    entity_name: str


@dataclass(frozen=True, slots=True)
class CbuFound:
    """The current state of a fund or company, with its links, roles and products."""

    id: str
    kind: str
    name: str
    jurisdiction: str | None
    client_type: str | None
    parent_entity_ids: list[str]
    manco_id: str | None
    related_to: list[str]
    roles: list[RoleHolder]
    """By role, then by name."""
    products: list[str]


@dataclass(frozen=True, slots=True)
class RoleResult:
    """An assigned role; `id` is the id of the assignment."""

    id: str
    cbu_id: str
    cbu_name: str
    entity_id: str
    entity_name: str
    role: str
    created: bool


@dataclass(frozen=True, slots=True)
class RoleRemoval:
    """A removed role; `id` is the id of the former assignment, null if the party did not have the role."""

    id: str | None
    cbu_id: str
    cbu_name: str
    entity_id: str
    entity_name: str
    role: str
    removed: bool


@dataclass(frozen=True, slots=True)
class ProductResult:
    """A product of a fund; `id` is the id of the subscription."""

    id: str
    cbu_id: str
    cbu_name: str
    product: str
    created: bool


@dataclass(frozen=True, slots=True)
class ProductRemoval:
    """A removed product; `id` is the id of the former subscription, null if the fund did not have the product."""

    id: str | None
    cbu_id: str
    cbu_name: str
    product: str
    removed: bool


@dataclass(frozen=True, slots=True)
class LinkResult:
    """A link between two parties; `id` is the id of the link."""

    id: str
    cbu_id: str
    cbu_name: str
    entity_id: str
    entity_name: str
    link: str
    created: bool


@dataclass(frozen=True, slots=True)
class LinkRemoval:
    """A removed link; `id` is the id of the former link, null if the parties were not linked."""

    id: str | None
    cbu_id: str
    cbu_name: str
    entity_id: str
    entity_name: str
    link: str
    removed: bool


@dataclass(frozen=True, slots=True)
class PartyResult:
    """A party in the store; `created` is true if this call added the party."""

    id: str
    kind: str
    name: str
    jurisdiction: str | None
    created: bool


@dataclass(frozen=True, slots=True)
class UndoResult:
    """An undone call; a later attempt of the call has no effect."""

    key: str
    verb: str | None
    """Name of the verb; null if the call never took effect."""
    reverted: list[str]
    """Descriptions of the undone changes, the last change first."""


@dataclass(frozen=True, slots=True)
class CbuRequest:
    """Arguments of `cbu.ensure`, not validated."""

    name: str
    jurisdiction: str | None = None
    client_type: str | None = None
    parent_entity_id: str | None = None
    manco_id: str | None = None
    related_to: str | None = None
