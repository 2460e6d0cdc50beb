"""What the verbs of onboarding give back, and the longer ones are asked for; JSON objects to plans.

`id` is what `@result_N` stands for. This module must not import the database.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CompanyResult:
    """A company that is in the store now; `created` says whether this call added it."""

    id: str
    kind: str
    name: str
    jurisdiction: str
    created: bool


@dataclass(frozen=True, slots=True)
class PersonResult:
    """A person who is in the store now; `created` says whether this call added them."""

    id: str
    kind: str
    name: str
    jurisdiction: str | None
    date_of_birth: str | None
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
    """In either direction: two parties are related to each other."""
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
    """A fund or company as it is now, with all that hangs on it."""

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
    """A role that is assigned now; `id` is the assignment's."""

    id: str
    cbu_id: str
    cbu_name: str
    entity_id: str
    entity_name: str
    role: str
    created: bool


@dataclass(frozen=True, slots=True)
class RoleRemoval:
    """A role that nobody holds now; `id` was the assignment's, null if there was none to remove."""

    id: str | None
    cbu_id: str
    cbu_name: str
    entity_id: str
    entity_name: str
    role: str
    removed: bool


@dataclass(frozen=True, slots=True)
class ProductResult:
    """A product that a fund has now; `id` is the subscription's."""

    id: str
    cbu_id: str
    cbu_name: str
    product: str
    created: bool


@dataclass(frozen=True, slots=True)
class ProductRemoval:
    """A product that a fund does not have now; `id` was the subscription's, null if there was none to remove."""

    id: str | None
    cbu_id: str
    cbu_name: str
    product: str
    removed: bool


@dataclass(frozen=True, slots=True)
class LinkResult:
    """Two parties that are linked now; `id` is the link's."""

    id: str
    cbu_id: str
    cbu_name: str
    entity_id: str
    entity_name: str
    link: str
    created: bool


@dataclass(frozen=True, slots=True)
class LinkRemoval:
    """Two parties that are not linked in this way now; `id` was the link's, null if there was none to remove."""

    id: str | None
    cbu_id: str
    cbu_name: str
    entity_id: str
    entity_name: str
    link: str
    removed: bool


@dataclass(frozen=True, slots=True)
class PartyResult:
    """A party that is in the store now; `created` says whether this call added it."""

    id: str
    kind: str
    name: str
    jurisdiction: str | None
    created: bool


@dataclass(frozen=True, slots=True)
class UndoResult:
    """A call that has no effect now, and will have none."""

    key: str
    verb: str | None
    """What was called; null if the call never took effect."""
    reverted: list[str]
    """What was taken back, in words, the last change first."""


@dataclass(frozen=True, slots=True)
class CbuRequest:
    """What `cbu.ensure` was asked for; texts as they came."""

    name: str
    jurisdiction: str | None = None
    client_type: str | None = None
    parent_entity_id: str | None = None
    manco_id: str | None = None
    related_to: str | None = None
