"""A readable overview of the store: counts, rows, and the changes between two overviews.

An overview is readable only for a small store, such as the store of the demo. This module must not change the store.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from sqlalchemy import select
from sqlalchemy.orm import Session, aliased

from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.models import Party, ProductSubscription, Relation, RelationKind, RoleAssignment


class RowKind(StrEnum):
    """Kind of a row of the overview; also the order of the counts."""

    PERSON = "person"
    COMPANY = "company"
    FUND = "fund"
    ROLE = "role"
    PRODUCT = "product"
    RELATION = "relation"


class RowChange(StrEnum):
    """How a row changed between two overviews."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class OverviewRow:
    """One row in words: `role`, `Apex ManCo S.à r.l. (LU)`, `DIRECTOR: John Smith (GB)`."""

    id: str
    kind: RowKind
    subject: str
    detail: str


@dataclass(frozen=True, slots=True)
class Overview:
    """A snapshot of the store; its rows are sorted by kind, subject and detail."""

    counts: Mapping[RowKind, int]
    rows: tuple[OverviewRow, ...]


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """A row that differs between two overviews, in its later state (in its earlier state if removed)."""

    change: RowChange
    row: OverviewRow


def read_overview(database: EntityDatabase) -> Overview:
    """Return all rows and counts of one snapshot of the store."""
    rows = database.read(lambda session: list(_rows(session)))
    order = list(RowKind)
    rows.sort(key=lambda row: (order.index(row.kind), row.subject, row.detail, row.id))
    counts = {kind: sum(row.kind is kind for row in rows) for kind in RowKind}
    return Overview(MappingProxyType(counts), tuple(rows))


def changed_rows(before: Overview, after: Overview) -> list[ChangedRow]:
    """Return the rows that differ, in the order of the later overview, removed rows last."""
    earlier_rows = {row.id: row for row in before.rows}
    later_ids = {row.id for row in after.rows}
    changes = [
        ChangedRow(RowChange.CHANGED if row.id in earlier_rows else RowChange.ADDED, row)
        for row in after.rows
        if earlier_rows.get(row.id) != row
    ]
    changes.extend(ChangedRow(RowChange.REMOVED, row) for row in before.rows if row.id not in later_ids)
    return changes


_RELATION_DETAIL = {
    RelationKind.PARENT: "has the parent",
    RelationKind.MANCO: "is managed by",
    RelationKind.RELATED: "is related to",
}


def _rows(session: Session) -> Iterator[OverviewRow]:
    cbu, second_party = aliased(Party), aliased(Party)
    for party in session.scalars(select(Party)):
        details = [party.jurisdiction or "jurisdiction unknown", party.client_type, party.status]
        detail = ", ".join(text for text in details if text)
        yield OverviewRow(party.id, RowKind(party.kind), party.name, detail)
    roles_query = (
        select(RoleAssignment, cbu, second_party)
        .join(cbu, RoleAssignment.cbu_id == cbu.id)
        .join(second_party, RoleAssignment.entity_id == second_party.id)
    )
    for assignment, organisation, holder in session.execute(roles_query):
        detail = f"{assignment.role}: {_name_and_code(holder)}"
        yield OverviewRow(assignment.id, RowKind.ROLE, _name_and_code(organisation), detail)
    products_query = select(ProductSubscription, cbu).join(cbu, ProductSubscription.cbu_id == cbu.id)
    for subscription, fund in session.execute(products_query):
        yield OverviewRow(subscription.id, RowKind.PRODUCT, _name_and_code(fund), subscription.product)
    relations_query = (
        select(Relation, cbu, second_party)
        .join(cbu, Relation.from_id == cbu.id)
        .join(second_party, Relation.to_id == second_party.id)
    )
    for relation, fund, target in session.execute(relations_query):
        detail = f"{_RELATION_DETAIL[RelationKind(relation.kind)]} {_name_and_code(target)}"
        yield OverviewRow(relation.id, RowKind.RELATION, _name_and_code(fund), detail)


def _name_and_code(party: Party) -> str:
    return f"{party.name} ({party.jurisdiction})" if party.jurisdiction else party.name
