"""The rows of a file whose parties have nothing to do with any other: these can be added all at once.

Of every other row it has to be looked, one after the other, what it renames, changes or is refused for. Of a large file
most rows are fresh. This module must not import Temporal.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.orm import Session

from dagwright.entities.models import NameUse, Party, PartyIdentifier, PartyName, PartyStatus
from dagwright.entities.names import name_key
from dagwright.entities.parties import new_party
from dagwright.entities.party_file import PartyRow

LEI_SCHEME = "LEI"

_Mark = tuple[str, str]
"""What one party has and another may have too: an id, a LEI, or the key of a name."""


def add_fresh(session: Session, rows: Sequence[PartyRow]) -> frozenset[int]:
    """Adds the parties of the rows that are fresh, and returns their lines.

    A row is fresh if nobody has its id, its LEI or its name, and had not the name before: neither in the store nor in
    another one of these rows. So nothing can be wrong with it, and it does not matter when it comes.
    """
    marks = {row.line: _marks(row) for row in rows}
    named = Counter(mark for each in marks.values() for mark in each)
    alone = [row for row in rows if all(named[mark] == 1 for mark in marks[row.line])]
    taken = _taken(session, alone)
    fresh = [row for row in alone if taken.isdisjoint(marks[row.line])]
    for row in fresh:
        session.add_all(_rows_of(row))
    session.flush()
    return frozenset(row.line for row in fresh)


def names_to_add(party_id: str, names: Iterable[str], *, use: NameUse, known: set[str]) -> Iterator[PartyName]:
    """Yields the rows of those names that a party does not have yet.

    Args:
        known: keys of the names that it has; those of the new ones are added.
    """
    for name in names:
        if (key := name_key(name)) not in known:
            known.add(key)
            yield PartyName(party_id=party_id, name=name, name_key=key, use=use.value)


def lei_of(party_id: str, lei: str) -> PartyIdentifier:
    """Returns the row of a LEI."""
    return PartyIdentifier(party_id=party_id, scheme=LEI_SCHEME, value=lei)


def _marks(row: PartyRow) -> frozenset[_Mark]:
    found: set[_Mark] = {("name", name_key(name)) for name in (row.key.name, *row.former_names)}
    found |= {("id", row.id)} if row.id is not None else set()
    found |= {("lei", row.lei)} if row.lei is not None else set()
    return frozenset(found)


def _taken(session: Session, rows: Sequence[PartyRow]) -> set[_Mark]:
    """Returns what of these rows somebody in the store has."""
    keys = [name_key(row.key.name) for row in rows]
    ids = [row.id for row in rows if row.id is not None]
    leis = [row.lei for row in rows if row.lei is not None]
    taken: set[_Mark] = set()
    if keys:
        there: ColumnElement[bool] = Party.name_key.in_(keys)
        there = or_(there, Party.id.in_(ids)) if ids else there
        for party_id, key in session.execute(select(Party.id, Party.name_key).where(there)):
            taken |= {("id", party_id), ("name", key)}
        called_so = select(PartyName.name_key).where(PartyName.name_key.in_(keys))
        taken |= {("name", key) for key in session.scalars(called_so)}
    if leis:
        of_lei = select(PartyIdentifier.value).where(PartyIdentifier.scheme == LEI_SCHEME)
        taken |= {("lei", lei) for lei in session.scalars(of_lei.where(PartyIdentifier.value.in_(leis)))}
    return taken


def _rows_of(row: PartyRow) -> Iterator[Party | PartyName | PartyIdentifier]:
    yield (party := new_party(row.key, client_type=row.client_type, party_id=row.id))
    party.status = (row.status or PartyStatus.ACTIVE).value
    known = {party.name_key}
    yield from names_to_add(party.id, row.aliases, use=NameUse.ALIAS, known=known)
    yield from names_to_add(party.id, row.former_names, use=NameUse.FORMER, known=known)
    if row.lei is not None:
        yield lei_of(party.id, row.lei)
