"""The entity types that a lookup may have. A plan with another type is rejected before the plan runs."""

from dagwright.plugins.entities import Resolver

UNDO = "onboarding.undo"
"""Tool that undoes a call of an onboarding verb, or removes the parties that `bind_parties` created."""
RESOLVER = Resolver(
    find="find_party",
    bind="bind_parties",
    undo=UNDO,
    types={
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
    },
    terms=("product", "role"),
    filters={"jurisdiction": "jurisdiction"},
)
"""Resolver of parties, products and roles. Products and roles are terms of the catalogue: their lookup returns a code,
such as `FUND_ACCOUNTING`."""
