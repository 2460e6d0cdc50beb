"""What a lookup may ask for: the closed list of entity types, which plans are checked against before they run."""

import re
from collections.abc import Mapping
from typing import Final

from dagwright.plan.references import suggestion

KIND_OF: Final[Mapping[str, str | None]] = {
    "entity": None,
    "party": None,
    "person": "person",
    "natural-person": "person",
    "company": "company",
    "limited-company": "company",
    "legal-entity": "company",
    "fund": "fund",
    "cbu": "fund",
    "product": "product",
    "role": "role",
}
"""Entity type -> the kind that it means; `None` is any kind of parties."""

TERM_KINDS: Final = ("product", "role")
"""Kinds that are no parties but words of the catalogue: what is found of them is a code, such as `FUND_ACCOUNTING`."""


_JURISDICTION = re.compile(r"[A-Za-z]{2}(-[A-Za-z0-9]{1,3})?")


def is_jurisdiction(text: str) -> bool:
    """Tells whether a text has the form of an ISO 3166 code, such as `LU` or `US-DE`."""
    return _JURISDICTION.fullmatch(text.strip()) is not None


class UnknownEntityType(ValueError):
    """There is no such type of entity; `hint` is the nearest one, if one is near."""

    def __init__(self, entity_type: str) -> None:
        self.hint = suggestion(slug_of(entity_type), KIND_OF)
        near = f"; {self.hint}" if self.hint else "."
        super().__init__(f"Unknown entity type {entity_type!r:.80}{near} Known types: {', '.join(KIND_OF)}")


def kind_of(entity_type: str) -> str | None:
    """Returns the kind that an entity type means in any spelling (`Limited Company`), `None` for any kind of parties.

    Raises:
        UnknownEntityType: it means none.
    """
    slug = slug_of(entity_type)
    if slug not in KIND_OF:
        raise UnknownEntityType(entity_type)
    return KIND_OF[slug]


def slug_of(entity_type: str) -> str:
    """Returns the one spelling that stands for all of an entity type."""
    return "-".join(entity_type.lower().replace("_", " ").replace("-", " ").split())
