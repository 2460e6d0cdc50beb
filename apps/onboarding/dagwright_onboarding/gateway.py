"""The EntityGateway: the interface of the entity store for the rest of the application.

It finds the parties that a text can mean, and returns the current state of a party. It never changes the store. This
module must not import the verbs or Temporal. It imports SQLAlchemy, so modules that are loaded by every command must
not import this module.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from dagwright_onboarding.catalogue import PartyKind
from dagwright_onboarding.database import EntityDatabase, as_database
from dagwright_onboarding.lookup import MAX_ROLES, Candidate, Findings, Identifier, PartyFinder
from dagwright_onboarding.models import Party, PartyIdentifier, PartyStatus, RoleAssignment
from dagwright_onboarding.parties import is_id
from dagwright_onboarding.terms import term_of


@dataclass(frozen=True, slots=True)
class KnownParty:
    """The current state of a party, a product or a role.

    Args:
        jurisdiction: ISO 3166 code, `None` if unknown.
        is_active: whether lookups find the party and verbs accept it.
    """

    id: str
    name: str
    kind: str
    jurisdiction: str | None
    is_active: bool


class EntityGateway:
    """Finds the parties that a text can mean; each call reads one consistent snapshot. Thread-safe.

    The store is opened at the first call.

    Args:
        database: the store, or its URL.
    """

    def __init__(self, database: EntityDatabase | str) -> None:
        self._database = as_database(database)

    def find(self, search_text: str, entity_type: str, *, jurisdiction: str | None = None) -> Findings:
        """Return the parties of a type that a text can mean, best first, each with identifiers and roles.

        If the result has no `unambiguous_match`, the caller must ask a person to choose among the hits or, if there are
        no hits, among the near matches.

        Args:
            search_text: an identifier, a name, an alias, a part of a name, or the id of a party.
            entity_type: see `Resolver.kinds_of`; `entity` means any.
            jurisdiction: ISO 3166 code that the parties must have; `US` includes `US-DE`.

        Raises:
            ValueError: the text is empty or too long, or the type or jurisdiction is unknown.
        """

        def search(session: Session) -> Findings:
            findings = PartyFinder(session).find(search_text, entity_type, jurisdiction=jurisdiction)
            return Findings(
                *(
                    _add_details(session, candidates)
                    for candidates in (findings.hits, findings.near_matches, findings.inactive_matches)
                )
            )

        return self._database.read(search)

    def get(self, party_id: str) -> KnownParty | None:
        """Return the party with this id, even if inactive, or the product or role with this code; `None` if unknown.

        If a product and a role have the same code, such as `DEPOSITARY`, the product is returned.
        """
        if (term := term_of(party_id)) is not None:
            return KnownParty(term.id, term.party_name, term.kind, None, is_active=True)
        party = self._database.read(lambda session: session.get(Party, party_id)) if is_id(party_id) else None
        if party is None:
            return None
        is_active = party.status == PartyStatus.ACTIVE
        return KnownParty(party.id, party.name, party.kind, party.jurisdiction or None, is_active)


def _add_details(session: Session, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return the candidates with identifiers, roles and date of birth."""
    ids = [candidate.id for candidate in candidates]
    if not ids:
        return ()
    identifiers, roles, dates_of_birth = _identifiers(session, ids), _roles(session, ids), _dates_of_birth(session, ids)
    return tuple(
        replace(
            candidate,
            identifiers=tuple(identifiers[candidate.id]),
            roles=tuple(roles[candidate.id]),
            date_of_birth=dates_of_birth.get(candidate.id),
        )
        for candidate in candidates
    )


def _dates_of_birth(session: Session, ids: Sequence[str]) -> dict[str, str]:
    query = select(Party.id, Party.distinguisher).where(
        Party.id.in_(ids), Party.kind == PartyKind.PERSON, Party.distinguisher != ""
    )
    return {party_id: date_of_birth for party_id, date_of_birth in session.execute(query)}  # noqa: C416 - mypy: rows are not pairs


def _identifiers(session: Session, ids: Sequence[str]) -> defaultdict[str, list[Identifier]]:
    query = select(PartyIdentifier).where(PartyIdentifier.party_id.in_(ids))
    identifiers: defaultdict[str, list[Identifier]] = defaultdict(list)
    for row in session.scalars(query.order_by(PartyIdentifier.scheme, PartyIdentifier.value)):
        identifiers[row.party_id].append(Identifier(row.scheme, row.value))
    return identifiers


def _roles(session: Session, ids: Sequence[str]) -> defaultdict[str, list[str]]:
    recency_rank = func.row_number().over(
        partition_by=RoleAssignment.entity_id, order_by=(RoleAssignment.created_at.desc(), RoleAssignment.id)
    )
    assignments = (
        select(RoleAssignment.entity_id, RoleAssignment.cbu_id, RoleAssignment.role, recency_rank.label("rank"))
        .where(RoleAssignment.entity_id.in_(ids))
        .subquery()
    )
    query = (
        select(assignments.c.entity_id, assignments.c.role, Party.name)
        .join(Party, Party.id == assignments.c.cbu_id)
        .where(assignments.c.rank <= MAX_ROLES)
        .order_by(assignments.c.entity_id, assignments.c.rank)
    )
    roles: defaultdict[str, list[str]] = defaultdict(list)
    for entity_id, role, cbu_name in session.execute(query):
        roles[entity_id].append(f"{role} at {cbu_name}")
    return roles
