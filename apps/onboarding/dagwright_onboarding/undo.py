"""Undo one call of a verb by its record: all changes of the call and nothing else, in one transaction.

If another call relies on a change, the undo fails. The record of an undone call stays under its key, and a call
that never took effect also gets a record, so that a late attempt finds the record and changes nothing.
This module must not depend on the verbs.
"""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, cast

from sqlalchemy import ColumnElement, exists, or_, select
from sqlalchemy.orm import Session

from dagwright_onboarding.effects import TABLES, UNKNOWN_VERB, RecordedChange, Row, validate_key, value_id
from dagwright_onboarding.models import (
    Effect,
    EffectRow,
    Party,
    PartyIdentifier,
    PartyName,
    ProductSubscription,
    Relation,
    RelationKind,
    RoleAssignment,
)
from dagwright_onboarding.parties import describe, ensure_product, ensure_relation, ensure_role, lock_active_party
from dagwright_onboarding.verb_results import UndoResult

_MAX_LISTED_CALLS = 3


def undo_call(session: Session, key: str) -> UndoResult:
    """Undo the call of a key, and prevent any later attempt of the call from taking effect.

    A second undo changes nothing and returns the same result.

    Raises:
        ValueError: other calls rely on a change, a removed row cannot be restored, or the changes were not recorded.
    """
    effect = session.get(Effect, validate_key(key), with_for_update=True)
    if effect is None:
        effect = Effect(key=key, verb=UNKNOWN_VERB, changes=[])
        session.add(effect)
        result = UndoResult(key, None, [])
    elif effect.undone_at is not None:
        return UndoResult(**effect.result)
    elif effect.changes is None:
        raise ValueError(f"this {effect.verb} cannot be undone: its changes were not recorded")
    else:
        descriptions = [_revert(session, record, key=key) for record in reversed(effect.changes)]
        result = UndoResult(key, effect.verb, [description for description in descriptions if description is not None])
    effect.result = asdict(result)
    effect.undone_at = datetime.now(UTC)
    return result


def _revert(session: Session, record: dict[str, Any], *, key: str) -> str | None:
    """Undo one change; return a description, or `None` if there is nothing left to undo."""
    table, row_id = TABLES[record["table"]], record["row"]["id"]
    change = RecordedChange(record["change"])
    if change is RecordedChange.REMOVED:
        return None if _was_addition_undone(session, row_id) else _restore(session, record)
    row = cast("Row | None", session.get(table, row_id, with_for_update=True))
    if row is None:
        return None
    description = _describe(session, row)
    if change is RecordedChange.ADDED:
        _check_unused_by_other_calls(session, row_id, description, key=key)
        _check_not_referenced(session, row, description)
        session.delete(row)
        session.flush()
        return f"{description} was removed"
    for column, previous_value in record["before"].items():
        _check_unused_by_other_calls(session, value_id(row_id, column), f"the {column} of {description}", key=key)
        setattr(row, column, previous_value)
    session.flush()
    return f"{description} was reset"


def _check_unused_by_other_calls(session: Session, row_id: str, description: str, *, key: str) -> None:
    verbs_query = select(Effect.verb).join(EffectRow, EffectRow.key == Effect.key)
    verbs_query = verbs_query.where(EffectRow.row_id == row_id, Effect.key != key, Effect.undone_at.is_(None))
    verbs = session.scalars(verbs_query.order_by(Effect.at, Effect.key).limit(_MAX_LISTED_CALLS)).all()
    if verbs:
        raise ValueError(f"{description} cannot be undone: used later by {', '.join(dict.fromkeys(verbs))}")


def _check_not_referenced(session: Session, row: Row, description: str) -> None:
    """Check that no rows, such as names loaded from a file, refer to a party."""
    if not isinstance(row, Party):
        return
    reference_conditions: Sequence[tuple[str, Any, ColumnElement[bool]]] = (
        ("another name", PartyName, PartyName.party_id == row.id),
        ("an identifier", PartyIdentifier, PartyIdentifier.party_id == row.id),
        ("a role", RoleAssignment, or_(RoleAssignment.cbu_id == row.id, RoleAssignment.entity_id == row.id)),
        ("a product", ProductSubscription, ProductSubscription.cbu_id == row.id),
        ("a link", Relation, or_(Relation.from_id == row.id, Relation.to_id == row.id)),
    )
    references = [
        reference
        for reference, table, condition in reference_conditions
        if session.scalar(select(exists(table).where(condition)))
    ]
    if references:
        raise ValueError(f"{description} cannot be undone: it now has {' and '.join(references)}")


def _was_addition_undone(session: Session, row_id: str) -> bool:
    """Return whether the call that added a row was undone while the row did not exist."""
    changes_query = (
        select(Effect.changes)
        .join(EffectRow, EffectRow.key == Effect.key)
        .where(EffectRow.row_id == row_id, Effect.undone_at.is_not(None))
    )
    changes = (change for changes in session.scalars(changes_query) for change in changes or ())
    return any(change["change"] == RecordedChange.ADDED and change["row"]["id"] == row_id for change in changes)


def _restore(session: Session, record: dict[str, Any]) -> str | None:
    """Add a removed row again with its id, as a verb would; raise the error of the verb if the row cannot be added."""
    columns = record["row"]
    row, was_added = _recreate(session, record["table"], columns)
    if not was_added:
        return None
    row.created_at = datetime.fromisoformat(columns["created_at"])
    session.flush()
    return f"{_describe(session, row)} was restored"


def _recreate(session: Session, table: str, columns: dict[str, Any]) -> tuple[Row, bool]:
    def lock_party(column: str) -> Party:
        return lock_active_party(session, columns[column], argument=column)

    if table == RoleAssignment.__tablename__:
        return ensure_role(
            session, lock_party("cbu_id"), lock_party("entity_id"), role=columns["role"], assignment_id=columns["id"]
        )
    if table == ProductSubscription.__tablename__:
        return ensure_product(session, lock_party("cbu_id"), product=columns["product"], subscription_id=columns["id"])
    kind = RelationKind(columns["kind"])
    return ensure_relation(session, lock_party("from_id"), lock_party("to_id"), kind=kind, relation_id=columns["id"])


def _describe(session: Session, row: Row) -> str:
    def describe_party(party_id: str) -> str:
        return describe(session.get_one(Party, party_id))

    match row:
        case Party():
            return describe(row)
        case RoleAssignment():
            return f"the role {row.role} of {describe_party(row.entity_id)} at {describe_party(row.cbu_id)}"
        case ProductSubscription():
            return f"the product {row.product} of {describe_party(row.cbu_id)}"
        case Relation():
            return f"the link of {describe_party(row.from_id)} to {describe_party(row.to_id)} ({row.kind})"
