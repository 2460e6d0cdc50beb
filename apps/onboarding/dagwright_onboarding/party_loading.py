"""Load parties from a CSV file, with a report of the rows that were rejected.

Loading a file again is safe: existing parties stay, new names and identifiers are added, and nothing is removed. A row
with the id of a party and another name renames the party, regardless of the order of the lines. Rows are written in
small atomic transactions, so that other writers do not wait long. This module must not import Temporal.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from dagwright.plugins.databases import DatabaseUnavailable, DatabaseUnusable
from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.models import NameUse, Party, PartyIdentifier, PartyName, PartyStatus
from dagwright_onboarding.names import name_key
from dagwright_onboarding.parties import (
    NaturalKey,
    add_party,
    describe,
    describe_with_birth,
    find_party,
    possible_duplicate,
)
from dagwright_onboarding.party_file import PartyFile, PartyRow, RejectedRow, read_party_file
from dagwright_onboarding.simple_rows import LEI_SCHEME, lei_identifier, load_simple_rows, names_to_add

ProgressCallback = Callable[[int, int], None]
"""Called before the first and after each transaction with the number of loaded rows and the total; an exception ends
the load."""

ROWS_PER_TRANSACTION = 100
"""Rows of one transaction. A transaction takes hundredths of a second, even if each row is handled individually."""


class RowOutcome(StrEnum):
    """How a row changed the store."""

    ADDED = "added"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class DuplicateRow:
    """A row whose party cannot be distinguished from another party of the same name.

    Args:
        line: line of the file on which the row starts, 1 for the first.
        other: description of the other party.
    """

    line: int
    other: str


@dataclass(frozen=True, slots=True)
class RenamedRow:
    """A row that renamed its party.

    Args:
        line: line of the file on which the row starts, 1 for the first.
        party: description of the party with its new name.
        before: the previous name, now a former name unless only the spelling differs.
    """

    line: int
    party: str
    before: str


@dataclass(frozen=True, slots=True)
class _RowResult:
    """Result of a row that was not rejected."""

    outcome: RowOutcome
    duplicate: DuplicateRow | None = None
    renamed: RenamedRow | None = None
    stays_inactive: bool = False


class _NameConflict(ValueError):
    """The name of a row belongs to another party.

    Args:
        other_id: id of the other party.
    """

    def __init__(self, text: str, *, other_id: str) -> None:
        super().__init__(text)
        self.other_id = other_id


@dataclass(frozen=True, slots=True)
class _ConflictingRow:
    """A rejected row whose name belongs to the party `name_holder_id`, which another row may rename."""

    row: PartyRow
    name_holder_id: str
    rejection: RejectedRow


@dataclass(frozen=True, slots=True)
class LoadReport:
    """Result of a load; rows are in line order.

    Args:
        duplicates: rows that were added or renamed although another party may be the same.
        still_inactive: number of inactive parties whose rows have no status.
        renamed: rows that renamed a party; they also count as updated.
    """

    added: int
    updated: int
    unchanged: int
    rejected: tuple[RejectedRow, ...]
    ignored_columns: tuple[str, ...]
    duplicates: tuple[DuplicateRow, ...] = ()
    still_inactive: int = 0
    renamed: tuple[RenamedRow, ...] = ()


def load_parties(database: EntityDatabase, path: Path, *, on_progress: ProgressCallback | None = None) -> LoadReport:
    """Load the parties of a CSV file (columns: see `party_file`) and report the outcome of each row.

    Raises:
        PartiesUnreadable: the file is not usable; nothing was loaded.
    """
    return load_party_file(database, read_party_file(path), on_progress=on_progress)


def load_party_file(
    database: EntityDatabase, file: PartyFile, *, on_progress: ProgressCallback | None = None
) -> LoadReport:
    """Load the rows of a file that was already read, and report the outcome of each row.

    Raises:
        DatabaseUnusable, DatabaseUnavailable: the database failed; the message says how many rows were loaded.
    """
    counts: Counter[RowOutcome] = Counter()
    rejected_rows = list(file.rejected)
    duplicates: list[DuplicateRow] = []
    renamed_rows: list[RenamedRow] = []
    still_inactive = loaded_count = 0
    try:
        if on_progress is not None:
            on_progress(0, len(file.rows))
        for results in _load_by_transaction(database, file.rows):
            loaded_count += len(results)
            for result in results:
                if isinstance(result, RejectedRow):
                    rejected_rows.append(result)
                    continue
                counts[result.outcome] += 1
                duplicates += [result.duplicate] if result.duplicate is not None else []
                renamed_rows += [result.renamed] if result.renamed is not None else []
                still_inactive += result.stays_inactive
            if on_progress is not None:
                on_progress(loaded_count, len(file.rows))
    except (DatabaseUnusable, DatabaseUnavailable) as error:
        raise type(error)(f"{error}; {describe_progress(loaded_count, len(file.rows))}") from None
    rejected_rows.sort(key=lambda row: row.line)
    duplicates.sort(key=lambda row: row.line)
    renamed_rows.sort(key=lambda row: row.line)
    return LoadReport(
        counts[RowOutcome.ADDED],
        counts[RowOutcome.UPDATED],
        counts[RowOutcome.UNCHANGED],
        tuple(rejected_rows),
        file.ignored_columns,
        tuple(duplicates),
        still_inactive,
        tuple(renamed_rows),
    )


def _load_by_transaction(
    database: EntityDatabase, rows: Sequence[PartyRow]
) -> Iterator[Sequence[_RowResult | RejectedRow]]:
    """Yield the outcomes by transaction. A row that needs the name of another party is loaded after the other rows."""
    conflicting_rows: list[_ConflictingRow] = []
    row_batches = [rows[start : start + ROWS_PER_TRANSACTION] for start in range(0, len(rows), ROWS_PER_TRANSACTION)]
    for outcome_lists in database.write_in_parts(row_batches, _load_batch):
        outcomes = [outcome for outcome_list in outcome_lists for outcome in outcome_list]
        conflicting_rows += [outcome for outcome in outcomes if isinstance(outcome, _ConflictingRow)]
        yield [outcome for outcome in outcomes if not isinstance(outcome, _ConflictingRow)]
    loadable_rows = _sort_by_renames(conflicting_rows)
    for late_outcomes in database.write_in_parts([conflict.row for conflict in loadable_rows], _load_single_row):
        yield [outcome.rejection if isinstance(outcome, _ConflictingRow) else outcome for outcome in late_outcomes]
    loaded_lines = {conflict.row.line for conflict in loadable_rows}
    for conflict in conflicting_rows:
        if conflict.row.line not in loaded_lines:
            advice = f"the rows swap names; first give {conflict.name_holder_id!r} a third name in a separate load"
            yield [RejectedRow(conflict.row.line, f"{conflict.rejection.reason}; {advice}")]


def _sort_by_renames(conflicting_rows: Sequence[_ConflictingRow]) -> list[_ConflictingRow]:
    """Return the rows in an order in which each new name is free when its row is loaded; omit rows that swap names."""
    rows_by_name_holder: defaultdict[str | None, list[_ConflictingRow]] = defaultdict(list)
    for conflict in conflicting_rows:
        rows_by_name_holder[conflict.name_holder_id].append(conflict)
    waiting_ids = {conflict.row.id for conflict in conflicting_rows}
    loadable_rows = deque(conflict for conflict in conflicting_rows if conflict.name_holder_id not in waiting_ids)
    ordered_rows: list[_ConflictingRow] = []
    while loadable_rows:
        ordered_rows.append(conflict := loadable_rows.popleft())
        loadable_rows += rows_by_name_holder.pop(conflict.row.id, [])
    return ordered_rows


def describe_progress(loaded_count: int, row_count: int) -> str:
    """Return the message for a load that was interrupted after `loaded_count` of `row_count` rows."""
    if not loaded_count:
        return "nothing was loaded"
    return f"{loaded_count:,} of {row_count:,} rows were loaded and stay; load the file again for the rest"


def _load_batch(session: Session, rows: Sequence[PartyRow]) -> list[_RowResult | RejectedRow | _ConflictingRow]:
    simple_rows = load_simple_rows(session, rows)
    results = dict.fromkeys(simple_rows.added_lines, _RowResult(RowOutcome.ADDED))
    results |= {
        row.line: _unchanged_result(row, simple_rows.unchanged_parties[row.line])
        for row in rows
        if row.line in simple_rows.unchanged_parties
    }
    return [results.get(row.line) or _load_single_row(session, row) for row in rows]


def _unchanged_result(row: PartyRow, party: Party) -> _RowResult:
    return _RowResult(RowOutcome.UNCHANGED, stays_inactive=_stays_inactive(row, party))


def _stays_inactive(row: PartyRow, party: Party) -> bool:
    return row.status is None and party.status == PartyStatus.INACTIVE


def _load_single_row(session: Session, row: PartyRow) -> _RowResult | RejectedRow | _ConflictingRow:
    try:
        with session.begin_nested():
            return _load_row(session, row)
    except _NameConflict as error:
        return _ConflictingRow(row, error.other_id, RejectedRow(row.line, str(error)))
    except ValueError as error:
        return RejectedRow(row.line, str(error))


def _load_row(session: Session, row: PartyRow) -> _RowResult:
    party, name_before = _party_of(session, row)
    is_new = party is None
    if party is None:
        party = add_party(session, row.key, client_type=row.client_type, party_id=row.id)
    changes = [
        name_before is not None,
        _set_client_type(party, row),
        _set_status(party, row),
        _add_names(session, party, names=row.aliases, use=NameUse.ALIAS),
        _add_names(session, party, names=row.former_names, use=NameUse.FORMER),
        _add_lei(session, party, lei=row.lei),
    ]
    session.flush()
    duplicate = None
    if is_new or name_before is not None:
        duplicate = possible_duplicate(session, party) if party.status == PartyStatus.ACTIVE else None
    duplicate_row = DuplicateRow(row.line, describe_with_birth(duplicate)) if duplicate is not None else None
    if is_new:
        return _RowResult(RowOutcome.ADDED, duplicate_row)
    outcome = RowOutcome.UPDATED if any(changes) else RowOutcome.UNCHANGED
    renamed = RenamedRow(row.line, describe(party), name_before) if name_before is not None else None
    return _RowResult(outcome, duplicate_row, renamed, _stays_inactive(row, party))


def _party_of(session: Session, row: PartyRow) -> tuple[Party | None, str | None]:
    """Return the party of a row, and the previous name of the party if the row renames the party.

    Raises:
        _NameConflict: another party has the name.
        ValueError: the id belongs to a party of another kind, jurisdiction or date of birth.
    """
    party_with_id = session.get(Party, row.id) if row.id is not None else None
    if party_with_id is None:
        party = find_party(session, row.key)
        if party is not None and row.id is not None:
            text = f"id: {describe(party)} already exists with the id {party.id!r}, not {row.id!r}"
            raise _NameConflict(text, other_id=party.id)
        return party, None
    # Empty fields change nothing.
    jurisdiction, distinguisher = (
        row.key.jurisdiction or party_with_id.jurisdiction,
        row.key.distinguisher or party_with_id.distinguisher,
    )
    if (party_with_id.kind, party_with_id.jurisdiction, party_with_id.distinguisher) != (
        row.key.kind,
        jurisdiction,
        distinguisher,
    ):
        raise ValueError(f"id: {row.id!r} belongs to {describe_with_birth(party_with_id)}; only its name can change")
    party_with_name = find_party(session, NaturalKey(row.key.kind, row.key.name, jurisdiction, distinguisher))
    if party_with_name is not None and party_with_name is not party_with_id:
        name_holder_text = f"{describe(party_with_name)} with the id {party_with_name.id!r}"
        text = f"id: {row.id!r} belongs to {describe(party_with_id)}, but the new name belongs to {name_holder_text}"
        raise _NameConflict(text, other_id=party_with_name.id)
    return party_with_id, _rename(session, party_with_id, row.key.name)


def _rename(session: Session, party: Party, name: str) -> str | None:
    """Rename a party; return its previous name, `None` if the name is unchanged."""
    if (name_before := party.name) == name:
        return None
    key_before, party.name, party.name_key = party.name_key, name, name_key(name)
    if party.name_key != key_before:
        is_name_of_party = PartyName.party_id == party.id
        for same_name in session.scalars(
            select(PartyName).where(is_name_of_party, PartyName.name_key == party.name_key)
        ):
            session.delete(same_name)
        session.flush()
        _add_names(session, party, names=[name_before], use=NameUse.FORMER)
    return name_before


def _set_client_type(party: Party, row: PartyRow) -> bool:
    if not row.client_type or party.client_type == row.client_type:
        return False
    if party.client_type:
        raise ValueError(f"client_type: {describe(party)} is a {party.client_type!r}, not {row.client_type!r}")
    party.client_type = row.client_type
    return True


def _set_status(party: Party, row: PartyRow) -> bool:
    if row.status is None or party.status == row.status:
        return False
    party.status = row.status.value
    return True


def _add_names(session: Session, party: Party, *, names: Sequence[str], use: NameUse) -> bool:
    if not names:
        return False
    stored_keys = set(session.scalars(select(PartyName.name_key).where(PartyName.party_id == party.id)))
    stored_keys.add(party.name_key)
    new_names = [*names_to_add(party.id, names, use=use, known_keys=stored_keys)]
    session.add_all(new_names)
    session.flush()
    return bool(new_names)


def _add_lei(session: Session, party: Party, *, lei: str | None) -> bool:
    if lei is None:
        return False
    leis_query = select(PartyIdentifier).where(PartyIdentifier.scheme == LEI_SCHEME)
    stored_lei = session.scalars(leis_query.where(PartyIdentifier.value == lei)).one_or_none()
    if stored_lei is not None and stored_lei.party_id != party.id:
        raise ValueError(f"lei: {lei} belongs to {describe(session.get_one(Party, stored_lei.party_id))}")
    lei_of_party = session.scalars(leis_query.where(PartyIdentifier.party_id == party.id)).one_or_none()
    if lei_of_party is not None and lei_of_party.value != lei:
        raise ValueError(f"lei: {describe(party)} has the LEI {lei_of_party.value}, not {lei}")
    if lei_of_party is not None:
        return False
    session.add(lei_identifier(party.id, lei))
    return True
