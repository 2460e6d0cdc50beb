"""What a lookup may ask for: the closed list of entity types, which plans are checked against before they run."""

from dagwright.plugins.entities import Resolver

UNDO = "onboarding.undo"
"""Compensates for a call of a verb, or for the parties that `bind_parties` created."""
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
"""Products and roles are words of the catalogue: what is found of them is a code, such as `FUND_ACCOUNTING`."""
