"""What calls of the verbs have done: each runs once for its key, and takes down all that it changes and relies on.

The record of a call is written in the transaction of its change, so there is both or neither. `undoing` reads it.
This module must not know the verbs.
"""

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from pydantic import TypeAdapter
from sqlalchemy import event
from sqlalchemy.orm import Session
from sqlalchemy.orm.attributes import get_history

from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.entity_types import UNDO
from dagwright_onboarding.models import (
    KEY_LIMIT,
    Effect,
    EffectRow,
    Party,
    ProductSubscription,
    Relation,
    RoleAssignment,
)

UNKNOWN_CALL = UNDO
"""Stands as the verb of a call that was undone and never took effect."""

Row = Party | RoleAssignment | ProductSubscription | Relation
"""What verbs add and remove; all of them have an `id`."""

TABLES: dict[str, type[Row]] = {
    table.__tablename__: table for table in (Party, RoleAssignment, ProductSubscription, Relation)
}


class Change(StrEnum):
    """What became of a row, under `change` in its record; the record has its `table` and its columns as `row` too.

    One that was changed has the changed columns only, with the earlier values under `before`.
    """

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class Call:
    """One call in its transaction: takes down what is changed through the session, and what the verb found.

    Args:
        session: of this transaction alone.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.changes: list[dict[str, Any]] = []
        self._relied_on: dict[str, None] = {}
        # Bound to the session and not called by the verbs: a change that is not taken down could not be undone.
        event.listen(session, "after_flush", self._take_down)

    def relies_on(self, *rows: Row) -> None:
        """Keeps rows from being taken back with another call, as long as this one stands."""
        self._relied_on.update(dict.fromkeys(row.id for row in rows))

    def relies_on_value(self, row: Row, column: str) -> None:
        """Keeps one column of a row from being taken back with another call, as long as this one stands."""
        self._relied_on[value_id(row.id, column)] = None

    def relied_on(self) -> list[str]:
        """Returns the `EffectRow.row_id`s of all that the call changed or relies on, each once."""
        changed = (change["row"]["id"] for change in self.changes)
        return list(dict.fromkeys([*self._relied_on, *changed]))

    def _take_down(self, session: Session, _context: object) -> None:
        added = [row for row in session.new if isinstance(row, Row)]
        removed = [row for row in session.deleted if isinstance(row, Row)]
        for change, rows in ((Change.ADDED, added), (Change.REMOVED, removed)):
            self.changes += [_record(change, row, columns_of(row)) for row in rows]
        for row in session.dirty:
            if isinstance(row, Row) and (before := _before(row)):
                now = {name: getattr(row, name) for name in before}
                self.changes.append({**_record(Change.CHANGED, row, {"id": row.id, **now}), "before": before})


Result = TypeVar("Result")


class EffectLog:
    """Runs each call once, and knows what became of it."""

    def __init__(self, database: EntityDatabase) -> None:
        self._database = database

    def once(self, key: str, verb: str, result_type: type[Result], work: Callable[[Call], Result]) -> Result:
        """Returns what `work` made under this key, now or at an earlier attempt.

        Args:
            key: idempotency key of the call.
            verb: its name; the same for each attempt.
            result_type: what JSON can hold, such as a dataclass of texts.
            work: makes all changes through the session of its `Call`.

        Raises:
            ValueError: the call was undone, or the key is that of another verb.
        """

        def transaction(session: Session) -> Result:
            recorded = session.get(Effect, checked_key(key))
            if recorded is not None:
                return _recorded(recorded, verb, result_type=result_type)
            call = Call(session)
            result = work(call)
            session.flush()
            told = TypeAdapter(result_type).dump_python(result, mode="json")
            session.add(Effect(key=key, verb=verb, result=told, changes=call.changes))
            # Its rows name it by a foreign key, which no relation tells the session.
            session.flush()
            session.add_all(EffectRow(key=key, row_id=row_id) for row_id in call.relied_on())
            return result

        return self._database.write(transaction)


def checked_key(key: str) -> str:
    """Returns an idempotency key. Raises ValueError for a text that can be none."""
    if not 0 < len(key) <= KEY_LIMIT or "\0" in key:
        raise ValueError(f"an idempotency key has 1 to {KEY_LIMIT} characters; this is {key!r:.80}")
    return key


def columns_of(row: Row) -> dict[str, Any]:
    """Returns a row as JSON, by column."""
    values = {name: getattr(row, name) for name in row.__table__.columns.keys()}  # noqa: SIM118 - it is no mapping
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in values.items()}


def value_id(row_id: str, column: str) -> str:
    """Returns the `EffectRow.row_id` of one column of a row."""
    return f"{row_id}.{column}"


def _record(change: Change, row: Row, columns: dict[str, Any]) -> dict[str, Any]:
    return {"change": change.value, "table": row.__tablename__, "row": columns}


def _before(row: Row) -> dict[str, Any]:
    histories = {name: get_history(row, name) for name in row.__table__.columns.keys()}  # noqa: SIM118 - as above
    return {name: history.deleted[0] for name, history in histories.items() if history.added and history.deleted}


def _recorded(effect: Effect, verb: str, *, result_type: type[Result]) -> Result:
    if effect.verb not in (verb, UNKNOWN_CALL):
        raise ValueError(f"the idempotency key of a {effect.verb} was used again for a {verb}")
    if effect.undone_at is not None:
        when = effect.undone_at.isoformat(timespec="seconds")
        raise ValueError(f"this {verb} was taken back at {when}; it changes nothing any more, a new call is needed")
    return TypeAdapter(result_type).validate_python(effect.result)
