"""Bringing parties in from a CSV file, with a report of the rows that were refused.

A file may be loaded again at any time: what is there stays, further names and identifiers are added, and
nothing is removed. Rows go in by small transactions, each of which is whole or not at all.
This module must not import Temporal.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from dagwright.entities.database import EntityDatabase
from dagwright.entities.models import NameUse, Party, PartyIdentifier, PartyName
from dagwright.entities.names import name_key
from dagwright.entities.parties import add_party, described, find_party
from dagwright.entities.party_file import PartyRow, RefusedRow, read_party_file

ROWS_PER_TRANSACTION = 500
"""Keeps the write lock for well under a second on SQLite."""

LEI_SCHEME = "LEI"


class RowOutcome(StrEnum):
    """What a row of the file did to the store."""

    ADDED = "added"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What loading a file did; `refused` is in the order of the lines."""

    added: int
    updated: int
    unchanged: int
    refused: tuple[RefusedRow, ...]
    ignored_columns: tuple[str, ...]


def load_parties(database: EntityDatabase, path: Path) -> LoadReport:
    """Loads the parties of a CSV file (columns: see `party_file`) and reports what came of each row.

    Raises:
        PartiesUnreadable: the file as a whole cannot be used; nothing was loaded.
    """
    file = read_party_file(path)
    counts: Counter[RowOutcome] = Counter()
    refused = list(file.refused)
    for start in range(0, len(file.rows), ROWS_PER_TRANSACTION):
        batch = file.rows[start : start + ROWS_PER_TRANSACTION]
        for outcome in _load_batch(database, batch):
            if isinstance(outcome, RefusedRow):
                refused.append(outcome)
            else:
                counts[outcome] += 1
    refused.sort(key=lambda row: row.line)
    return LoadReport(
        counts[RowOutcome.ADDED],
        counts[RowOutcome.UPDATED],
        counts[RowOutcome.UNCHANGED],
        tuple(refused),
        file.ignored_columns,
    )


def _load_batch(database: EntityDatabase, rows: Sequence[PartyRow]) -> list[RowOutcome | RefusedRow]:
    def work(session: Session) -> list[RowOutcome | RefusedRow]:
        return [_outcome(session, row) for row in rows]

    return database.write(work)


def _outcome(session: Session, row: PartyRow) -> RowOutcome | RefusedRow:
    try:
        with session.begin_nested():
            return _load_row(session, row)
    except ValueError as error:
        return RefusedRow(row.line, str(error))


def _load_row(session: Session, row: PartyRow) -> RowOutcome:
    party = find_party(session, row.key)
    _refuse_foreign_id(session, row, party=party)
    is_new = party is None
    if party is None:
        party = add_party(session, row.key, client_type=row.client_type, party_id=row.id)
    changes = [
        _set_client_type(party, row),
        _set_status(party, row),
        _add_names(session, party, names=row.aliases, use=NameUse.ALIAS),
        _add_names(session, party, names=row.former_names, use=NameUse.FORMER),
        _add_lei(session, party, lei=row.lei),
    ]
    session.flush()
    if is_new:
        return RowOutcome.ADDED
    return RowOutcome.UPDATED if any(changes) else RowOutcome.UNCHANGED


def _refuse_foreign_id(session: Session, row: PartyRow, *, party: Party | None) -> None:
    if row.id is None:
        return
    if party is not None and party.id != row.id:
        raise ValueError(f"id: {described(party)} is there already with the id {party.id!r}, not {row.id!r}")
    holder = session.get(Party, row.id)
    if party is None and holder is not None:
        raise ValueError(f"id: {row.id!r} belongs to {described(holder)}")


def _set_client_type(party: Party, row: PartyRow) -> bool:
    if not row.client_type or party.client_type == row.client_type:
        return False
    if party.client_type:
        raise ValueError(f"client_type: {described(party)} is a {party.client_type!r}, not {row.client_type!r}")
    party.client_type = row.client_type
    return True


def _set_status(party: Party, row: PartyRow) -> bool:
    if row.status is None or party.status == row.status:
        return False
    party.status = row.status.value
    return True


def _add_names(session: Session, party: Party, *, names: Sequence[str], use: NameUse) -> bool:
    known = set(session.scalars(select(PartyName.name_key).where(PartyName.party_id == party.id)))
    known.add(party.name_key)
    has_changed = False
    for name in names:
        if (key := name_key(name)) not in known:
            known.add(key)
            session.add(PartyName(party_id=party.id, name=name, name_key=key, use=use.value))
            has_changed = True
    session.flush()
    return has_changed


def _add_lei(session: Session, party: Party, *, lei: str | None) -> bool:
    if lei is None:
        return False
    of_lei = select(PartyIdentifier).where(PartyIdentifier.scheme == LEI_SCHEME)
    holder = session.scalars(of_lei.where(PartyIdentifier.value == lei)).one_or_none()
    if holder is not None and holder.party_id != party.id:
        raise ValueError(f"lei: {lei} belongs to {described(session.get_one(Party, holder.party_id))}")
    own = session.scalars(of_lei.where(PartyIdentifier.party_id == party.id)).one_or_none()
    if own is not None and own.value != lei:
        raise ValueError(f"lei: {described(party)} has the LEI {own.value}, not {lei}")
    if own is not None:
        return False
    session.add(PartyIdentifier(party_id=party.id, scheme=LEI_SCHEME, value=lei))
    return True
