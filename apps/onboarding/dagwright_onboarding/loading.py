"""Bringing parties in from a CSV file, with a report of the rows that were refused.

A file may be loaded again at any time: what is there stays, further names and identifiers are added, and
nothing is removed; a row that has the id of a party renames it, in whatever order the lines are. Rows go in by small
transactions, each of which is whole or not at all, and between two of them others can write.
This module must not import Temporal.
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
from dagwright_onboarding.fresh_rows import LEI_SCHEME, lei_of, names_to_add, take_together
from dagwright_onboarding.models import NameUse, Party, PartyIdentifier, PartyName, PartyStatus
from dagwright_onboarding.names import name_key
from dagwright_onboarding.parties import (
    NaturalKey,
    add_party,
    described,
    described_with_birth,
    find_party,
    possible_twin,
)
from dagwright_onboarding.party_file import PartyFile, PartyRow, RefusedRow, read_party_file

Watch = Callable[[int, int], None]
"""Is told at first and after each transaction how many rows are in, and of how many; what it raises ends the load."""

ROWS_AT_ONCE = 100
"""Rows that are looked at together: some hundredths of a second, even if each has to be looked at by itself."""


class RowOutcome(StrEnum):
    """What a row of the file did to the store."""

    ADDED = "added"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class TwinRow:
    """A row whose party cannot be told from another one of its name by what is known of both.

    Args:
        line: line of the file on which the row starts, 1 for the first.
        other: that party, in words.
    """

    line: int
    other: str


@dataclass(frozen=True, slots=True)
class RenamedRow:
    """A row whose party had another name.

    Args:
        line: line of the file on which the row starts, 1 for the first.
        party: how it is called now, in words.
        before: how it was called, which is a former name now, unless it is only spelt otherwise.
    """

    line: int
    party: str
    before: str


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What came of a row that was not refused."""

    outcome: RowOutcome
    twin: TwinRow | None = None
    renamed: RenamedRow | None = None
    is_left_inactive: bool = False


class _NameTaken(ValueError):
    """A row gives its party a name that another party has.

    Args:
        by: id of that one.
    """

    def __init__(self, words: str, *, by: str) -> None:
        super().__init__(words)
        self.by = by


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A row that was refused for a name that the party `taken_by` has, and maybe another row takes away."""

    row: PartyRow
    taken_by: str
    refused: RefusedRow


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What loading a file did; rows are in the order of the lines.

    Args:
        twins: rows that were added or renamed though another party may be the same one.
        left_inactive: parties that are inactive and whose rows have no status.
        renamed: rows that gave a party another name; they are counted as updated too.
    """

    added: int
    updated: int
    unchanged: int
    refused: tuple[RefusedRow, ...]
    ignored_columns: tuple[str, ...]
    twins: tuple[TwinRow, ...] = ()
    left_inactive: int = 0
    renamed: tuple[RenamedRow, ...] = ()


def load_parties(database: EntityDatabase, path: Path, *, watch: Watch | None = None) -> LoadReport:
    """Loads the parties of a CSV file (columns: see `party_file`) and reports what came of each row.

    Raises:
        PartiesUnreadable: the file as a whole cannot be used; nothing was loaded.
    """
    return load_read_parties(database, read_party_file(path), watch=watch)


def load_read_parties(database: EntityDatabase, file: PartyFile, *, watch: Watch | None = None) -> LoadReport:
    """Loads the parties of a file that was read, and reports what came of each row.

    Raises:
        DatabaseUnusable, DatabaseUnavailable: the database refuses to go on; the message says how many rows are in.
    """
    counts: Counter[RowOutcome] = Counter()
    refused = list(file.refused)
    twins: list[TwinRow] = []
    renamed: list[RenamedRow] = []
    left_inactive = done = 0
    try:
        if watch is not None:
            watch(0, len(file.rows))
        for part in _parts(database, file.rows):
            done += len(part)
            for loaded in part:
                if isinstance(loaded, RefusedRow):
                    refused.append(loaded)
                    continue
                counts[loaded.outcome] += 1
                twins += [loaded.twin] if loaded.twin is not None else []
                renamed += [loaded.renamed] if loaded.renamed is not None else []
                left_inactive += loaded.is_left_inactive
            if watch is not None:
                watch(done, len(file.rows))
    except (DatabaseUnusable, DatabaseUnavailable) as error:
        raise type(error)(f"{error}; {how_far(done, len(file.rows))}") from None
    refused.sort(key=lambda row: row.line)
    twins.sort(key=lambda row: row.line)
    renamed.sort(key=lambda row: row.line)
    return LoadReport(
        counts[RowOutcome.ADDED],
        counts[RowOutcome.UPDATED],
        counts[RowOutcome.UNCHANGED],
        tuple(refused),
        file.ignored_columns,
        tuple(twins),
        left_inactive,
        tuple(renamed),
    )


def _parts(database: EntityDatabase, rows: Sequence[PartyRow]) -> Iterator[Sequence[_Loaded | RefusedRow]]:
    """Yields what came of the rows, transaction by transaction; those that give each other's names on come in turn."""
    waiting: list[_Waiting] = []
    together = [rows[at : at + ROWS_AT_ONCE] for at in range(0, len(rows), ROWS_AT_ONCE)]
    for parts in database.write_in_parts(together, _outcomes):
        part: Sequence[_Loaded | RefusedRow | _Waiting] = [each for outcomes in parts for each in outcomes]
        waiting += [each for each in part if isinstance(each, _Waiting)]
        yield [each for each in part if not isinstance(each, _Waiting)]
    turns = _in_turn(waiting)
    for part in database.write_in_parts([each.row for each in turns], _outcome):
        yield [each.refused if isinstance(each, _Waiting) else each for each in part]
    tried = {each.row.line for each in turns}
    for each in waiting:
        if each.row.line not in tried:
            way = f"the rows exchange names: give {each.taken_by!r} a third name in a load before"
            yield [RefusedRow(each.row.line, f"{each.refused.reason}; {way}")]


def _in_turn(waiting: Sequence[_Waiting]) -> list[_Waiting]:
    """Returns rows so that each comes behind the one that takes its name away; those in a circle are left out."""
    behind: defaultdict[str | None, list[_Waiting]] = defaultdict(list)
    for each in waiting:
        behind[each.taken_by].append(each)
    there = {each.row.id for each in waiting}
    turns = deque(each for each in waiting if each.taken_by not in there)
    found: list[_Waiting] = []
    while turns:
        found.append(each := turns.popleft())
        turns += behind.pop(each.row.id, [])
    return found


def how_far(done: int, rows: int) -> str:
    """Returns what is to be said of a load that ended before its time.

    Args:
        done: rows that are in, of `rows`.
    """
    if not done:
        return "nothing was loaded"
    return f"{done:,} of {rows:,} rows are loaded and stay; load the file again for the others"


def _outcomes(session: Session, rows: Sequence[PartyRow]) -> list[_Loaded | RefusedRow | _Waiting]:
    taken = take_together(session, rows)
    told = dict.fromkeys(taken.added, _Loaded(RowOutcome.ADDED))
    told |= {row.line: _unchanged(row, taken.unchanged[row.line]) for row in rows if row.line in taken.unchanged}
    return [told.get(row.line) or _outcome(session, row) for row in rows]


def _unchanged(row: PartyRow, party: Party) -> _Loaded:
    return _Loaded(RowOutcome.UNCHANGED, is_left_inactive=_is_left_inactive(row, party))


def _is_left_inactive(row: PartyRow, party: Party) -> bool:
    return row.status is None and party.status == PartyStatus.INACTIVE


def _outcome(session: Session, row: PartyRow) -> _Loaded | RefusedRow | _Waiting:
    try:
        with session.begin_nested():
            return _load_row(session, row)
    except _NameTaken as error:
        return _Waiting(row, error.by, RefusedRow(row.line, str(error)))
    except ValueError as error:
        return RefusedRow(row.line, str(error))


def _load_row(session: Session, row: PartyRow) -> _Loaded:
    party, before = _party_of(session, row)
    is_new = party is None
    if party is None:
        party = add_party(session, row.key, client_type=row.client_type, party_id=row.id)
    changes = [
        before is not None,
        _set_client_type(party, row),
        _set_status(party, row),
        _add_names(session, party, names=row.aliases, use=NameUse.ALIAS),
        _add_names(session, party, names=row.former_names, use=NameUse.FORMER),
        _add_lei(session, party, lei=row.lei),
    ]
    session.flush()
    twin = None
    if is_new or before is not None:
        twin = possible_twin(session, party) if party.status == PartyStatus.ACTIVE else None
    told_twin = TwinRow(row.line, described_with_birth(twin)) if twin is not None else None
    if is_new:
        return _Loaded(RowOutcome.ADDED, told_twin)
    outcome = RowOutcome.UPDATED if any(changes) else RowOutcome.UNCHANGED
    renamed = RenamedRow(row.line, described(party), before) if before is not None else None
    return _Loaded(outcome, told_twin, renamed, _is_left_inactive(row, party))


def _party_of(session: Session, row: PartyRow) -> tuple[Party | None, str | None]:
    """Returns the party of a row, and the name that it had if the row gives it another one.

    Raises:
        _NameTaken: another party has its name.
        ValueError: its id is that of something else.
    """
    holder = session.get(Party, row.id) if row.id is not None else None
    if holder is None:
        party = find_party(session, row.key)
        if party is not None and row.id is not None:
            words = f"id: {described(party)} is there already with the id {party.id!r}, not {row.id!r}"
            raise _NameTaken(words, by=party.id)
        return party, None
    # What is blank changes nothing.
    where, born = row.key.jurisdiction or holder.jurisdiction, row.key.distinguisher or holder.distinguisher
    if (holder.kind, holder.jurisdiction, holder.distinguisher) != (row.key.kind, where, born):
        raise ValueError(f"id: {row.id!r} belongs to {described_with_birth(holder)}; only its name can change")
    known = find_party(session, NaturalKey(row.key.kind, row.key.name, where, born))
    if known is not None and known is not holder:
        words = f"id: {row.id!r} belongs to {described(holder)}, and {described(known)} is {known.id!r}"
        raise _NameTaken(words, by=known.id)
    return holder, _rename(session, holder, row.key.name)


def _rename(session: Session, party: Party, name: str) -> str | None:
    """Gives a party a name; returns the one that it had, `None` if it is the same."""
    if (before := party.name) == name:
        return None
    key_before, party.name, party.name_key = party.name_key, name, name_key(name)
    if party.name_key != key_before:
        own = PartyName.party_id == party.id
        for again in session.scalars(select(PartyName).where(own, PartyName.name_key == party.name_key)):
            session.delete(again)
        session.flush()
        _add_names(session, party, names=[before], use=NameUse.FORMER)
    return before


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
    if not names:
        return False
    known = set(session.scalars(select(PartyName.name_key).where(PartyName.party_id == party.id)))
    known.add(party.name_key)
    new = [*names_to_add(party.id, names, use=use, known=known)]
    session.add_all(new)
    session.flush()
    return bool(new)


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
    session.add(lei_of(party.id, lei))
    return True
