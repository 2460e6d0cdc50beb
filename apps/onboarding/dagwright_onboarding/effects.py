"""The log of verb calls: each call runs once per key, and its record lists the rows that the call changed or relies on.

The record is written in the transaction of the change, so change and record are committed together. `undo` reads
the record. This module must not depend on the verbs.
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
    MAX_KEY_CHARACTERS,
    Effect,
    EffectRow,
    Party,
    ProductSubscription,
    Relation,
    RoleAssignment,
)

UNKNOWN_VERB = UNDO
"""Verb name in the record of a call that was undone before the call took effect: the verb of such a call is unknown."""

Row = Party | RoleAssignment | ProductSubscription | Relation
"""Rows that verbs add and remove; all of them have an `id`."""

TABLES: dict[str, type[Row]] = {
    table.__tablename__: table for table in (Party, RoleAssignment, ProductSubscription, Relation)
}


class RecordedChange(StrEnum):
    """How a row was changed: the field `change` of the record of a change.

    The other fields are `table`, the name of the table, and `row`, the columns. For a changed row, `row` has only the
    id and the changed columns, and `before` has the previous values.
    """

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class VerbCall:
    """One call of a verb in its transaction. It records the rows that the call changes or relies on.

    Args:
        session: the session of this transaction only.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.changes: list[dict[str, Any]] = []
        self._protected_ids: dict[str, None] = {}
        # The session calls the listener, so every change is recorded, whatever the verb does.
        event.listen(session, "after_flush", self._record_changes)

    def protect_rows(self, *rows: Row) -> None:
        """Until this call is undone, prevent the undo of other calls from removing these rows."""
        self._protected_ids.update(dict.fromkeys(row.id for row in rows))

    def protect_value(self, row: Row, column: str) -> None:
        """Until this call is undone, prevent the undo of other calls from resetting one column of a row."""
        self._protected_ids[value_id(row.id, column)] = None

    def used_row_ids(self) -> list[str]:
        """Return the `EffectRow.row_id`s of all rows that the call changed or relies on, each once."""
        changed_ids = (change["row"]["id"] for change in self.changes)
        return list(dict.fromkeys([*self._protected_ids, *changed_ids]))

    def _record_changes(self, session: Session, _context: object) -> None:
        added_rows = [row for row in session.new if isinstance(row, Row)]
        removed_rows = [row for row in session.deleted if isinstance(row, Row)]
        for change, rows in ((RecordedChange.ADDED, added_rows), (RecordedChange.REMOVED, removed_rows)):
            self.changes += [_record(change, row, columns_of(row)) for row in rows]
        for row in session.dirty:
            if isinstance(row, Row) and (previous_values := _previous_values(row)):
                current_values = {name: getattr(row, name) for name in previous_values}
                self.changes.append(
                    {
                        **_record(RecordedChange.CHANGED, row, {"id": row.id, **current_values}),
                        "before": previous_values,
                    }
                )


Result = TypeVar("Result")


class EffectLog:
    """Runs each call once and stores its result."""

    def __init__(self, database: EntityDatabase) -> None:
        self._database = database

    def run_once(self, key: str, verb: str, result_type: type[Result], apply: Callable[[VerbCall], Result]) -> Result:
        """Return the result of `apply` for this key: the recorded result of an earlier attempt, if there is one.

        Args:
            key: idempotency key of the call.
            verb: name of the verb; the same for each attempt.
            result_type: a type that JSON can represent, such as a dataclass of texts.
            apply: makes all changes through the session of its `VerbCall`.

        Raises:
            ValueError: the call was undone, or the key belongs to another verb.
        """

        def apply_once(session: Session) -> Result:
            effect = session.get(Effect, validate_key(key))
            if effect is not None:
                return _stored_result(effect, verb, result_type=result_type)
            call = VerbCall(session)
            result = apply(call)
            session.flush()
            encoded_result = TypeAdapter(result_type).dump_python(result, mode="json")
            session.add(Effect(key=key, verb=verb, result=encoded_result, changes=call.changes))
            # Flush first: the rows refer to the record by a foreign key that the session does not know.
            session.flush()
            session.add_all(EffectRow(key=key, row_id=row_id) for row_id in call.used_row_ids())
            return result

        return self._database.write(apply_once)


def validate_key(key: str) -> str:
    """Return an idempotency key. Raises ValueError if the key is empty, too long or has a NUL character."""
    if not 0 < len(key) <= MAX_KEY_CHARACTERS or "\0" in key:
        raise ValueError(f"an idempotency key must have 1 to {MAX_KEY_CHARACTERS} characters, got {key!r:.80}")
    return key


def columns_of(row: Row) -> dict[str, Any]:
    """Return a row as JSON, by column."""
    values = {name: getattr(row, name) for name in row.__table__.columns.keys()}  # noqa: SIM118 - not a mapping
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in values.items()}


def value_id(row_id: str, column: str) -> str:
    """Return the `EffectRow.row_id` of one column of a row."""
    return f"{row_id}.{column}"


def _record(change: RecordedChange, row: Row, columns: dict[str, Any]) -> dict[str, Any]:
    return {"change": change.value, "table": row.__tablename__, "row": columns}


def _previous_values(row: Row) -> dict[str, Any]:
    histories = {name: get_history(row, name) for name in row.__table__.columns.keys()}  # noqa: SIM118 - as above
    return {name: history.deleted[0] for name, history in histories.items() if history.added and history.deleted}


def _stored_result(effect: Effect, verb: str, *, result_type: type[Result]) -> Result:
    if effect.verb not in (verb, UNKNOWN_VERB):
        raise ValueError(f"the idempotency key of a {effect.verb} was reused for a {verb}")
    if effect.undone_at is not None:
        undone_at = effect.undone_at.isoformat(timespec="seconds")
        raise ValueError(f"this {verb} was undone at {undone_at} and cannot run again; make a new call")
    return TypeAdapter(result_type).validate_python(effect.result)
