"""Taking back what one call of a verb did, by its record: only what that call changed, all of it or nothing.

What others rely on by now stays, and the undo is refused. The record of an undone call stays under its key, and one is
left for a call that never took effect: an attempt that comes late finds it and changes nothing.
This module must not know the verbs.
"""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, cast

from sqlalchemy import ColumnElement, exists, or_, select
from sqlalchemy.orm import Session

from dagwright_onboarding.effects import TABLES, UNKNOWN_CALL, Change, Row, checked_key, value_id
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
from dagwright_onboarding.parties import described, ensure_product, ensure_relation, ensure_role, held_party
from dagwright_onboarding.verb_results import UndoResult

_CALLS_TOLD = 3


def undo_call(session: Session, key: str) -> UndoResult:
    """Takes back what the call of a key did, and keeps any later attempt of it from doing anything.

    Done again, it changes nothing and returns the same.

    Raises:
        ValueError: others rely on what it did, what it removed cannot stand again, or it is not known what it changed.
    """
    effect = session.get(Effect, checked_key(key), with_for_update=True)
    if effect is None:
        effect = Effect(key=key, verb=UNKNOWN_CALL, changes=[])
        session.add(effect)
        undone = UndoResult(key, None, [])
    elif effect.undone_at is not None:
        return UndoResult(**effect.result)
    elif effect.changes is None:
        raise ValueError(f"this {effect.verb} cannot be taken back: it is not known what it changed")
    else:
        reverted = [_revert(session, record, key=key) for record in reversed(effect.changes)]
        undone = UndoResult(key, effect.verb, [words for words in reverted if words is not None])
    effect.result = asdict(undone)
    effect.undone_at = datetime.now(UTC)
    return undone


def _revert(session: Session, record: dict[str, Any], *, key: str) -> str | None:
    """Takes one change back; returns it in words, or `None` if there is nothing to take back any more."""
    table, row_id = TABLES[record["table"]], record["row"]["id"]
    change = Change(record["change"])
    if change is Change.REMOVED:
        return None if _was_taken_back(session, row_id) else _restore(session, record)
    row = cast("Row | None", session.get(table, row_id, with_for_update=True))
    if row is None:
        return None
    words = _in_words(session, row)
    if change is Change.ADDED:
        _refuse_if_relied_on(session, row_id, words, key=key)
        _refuse_if_held(session, row, words)
        session.delete(row)
        session.flush()
        return f"{words} is gone"
    for column, before in record["before"].items():
        _refuse_if_relied_on(session, value_id(row_id, column), f"the {column} of {words}", key=key)
        setattr(row, column, before)
    session.flush()
    return f"{words} is as before"


def _refuse_if_relied_on(session: Session, row_id: str, words: str, *, key: str) -> None:
    calls = select(Effect.verb).join(EffectRow, EffectRow.key == Effect.key)
    others = calls.where(EffectRow.row_id == row_id, Effect.key != key, Effect.undone_at.is_(None))
    verbs = session.scalars(others.order_by(Effect.at, Effect.key).limit(_CALLS_TOLD)).all()
    if verbs:
        told = " and ".join(f"a {verb}" for verb in dict.fromkeys(verbs))
        raise ValueError(f"{words} stays: {told} has used it since")


def _refuse_if_held(session: Session, row: Row, words: str) -> None:
    """Refuses to take away a party on which hangs what no call has made, such as what was loaded from a file."""
    if not isinstance(row, Party):
        return
    hanging: Sequence[tuple[str, Any, ColumnElement[bool]]] = (
        ("another name", PartyName, PartyName.party_id == row.id),
        ("an identifier", PartyIdentifier, PartyIdentifier.party_id == row.id),
        ("a role", RoleAssignment, or_(RoleAssignment.cbu_id == row.id, RoleAssignment.entity_id == row.id)),
        ("a product", ProductSubscription, ProductSubscription.cbu_id == row.id),
        ("a link", Relation, or_(Relation.from_id == row.id, Relation.to_id == row.id)),
    )
    held = [what for what, table, condition in hanging if session.scalar(select(exists(table).where(condition)))]
    if held:
        raise ValueError(f"{words} stays: it has {' and '.join(held)} by now")


def _was_taken_back(session: Session, row_id: str) -> bool:
    """Tells whether the call that added a row was undone while the row was not there."""
    undone = (
        select(Effect.changes)
        .join(EffectRow, EffectRow.key == Effect.key)
        .where(EffectRow.row_id == row_id, Effect.undone_at.is_not(None))
    )
    changes = (change for changes in session.scalars(undone) for change in changes or ())
    return any(change["change"] == Change.ADDED and change["row"]["id"] == row_id for change in changes)


def _restore(session: Session, record: dict[str, Any]) -> str | None:
    """Makes a removed row again, with its id, as a verb would: what is in its way is told in the same words."""
    told = record["row"]
    row, was_added = _made_again(session, record["table"], told)
    if not was_added:
        return None
    row.created_at = datetime.fromisoformat(told["created_at"])
    session.flush()
    return f"{_in_words(session, row)} is there again"


def _made_again(session: Session, table: str, told: dict[str, Any]) -> tuple[Row, bool]:
    def party(column: str) -> Party:
        return held_party(session, told[column], argument=column)

    if table == RoleAssignment.__tablename__:
        return ensure_role(session, party("cbu_id"), party("entity_id"), role=told["role"], assignment_id=told["id"])
    if table == ProductSubscription.__tablename__:
        return ensure_product(session, party("cbu_id"), product=told["product"], subscription_id=told["id"])
    kind = RelationKind(told["kind"])
    return ensure_relation(session, party("from_id"), party("to_id"), kind=kind, relation_id=told["id"])


def _in_words(session: Session, row: Row) -> str:
    def party(party_id: str) -> str:
        return described(session.get_one(Party, party_id))

    match row:
        case Party():
            return described(row)
        case RoleAssignment():
            return f"the role {row.role} of {party(row.entity_id)} at {party(row.cbu_id)}"
        case ProductSubscription():
            return f"the product {row.product} of {party(row.cbu_id)}"
        case Relation():
            return f"the link of {party(row.from_id)} to {party(row.to_id)} ({row.kind})"
