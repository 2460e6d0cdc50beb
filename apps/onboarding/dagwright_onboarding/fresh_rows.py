"""The rows of a file that need no look of their own: parties that are new, or there already just as the row says.

Of every other row it has to be looked, one after the other, what it renames, changes or is refused for. Of a large file
most rows are of one of these two kinds, and they are taken together. This module must not import Temporal.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from dagwright_onboarding.models import NameUse, Party, PartyIdentifier, PartyName, PartyStatus
from dagwright_onboarding.names import name_key
from dagwright_onboarding.parties import new_party
from dagwright_onboarding.party_file import PartyRow

LEI_SCHEME = "LEI"

_Mark = tuple[str, str]
"""What one party has and another may have too: an id, a LEI, or the key of a name."""
_Key = tuple[str, str, str, str]
"""Natural key of a party: kind, key of the name, jurisdiction, distinguisher."""


@dataclass(frozen=True, slots=True)
class TakenTogether:
    """What became of the rows that need no look of their own.

    Args:
        added: lines of those whose parties were added.
        unchanged: line of one whose party is there just so -> that party.
    """

    added: frozenset[int]
    unchanged: Mapping[int, Party]


def take_together(session: Session, rows: Sequence[PartyRow]) -> TakenTogether:
    """Adds the parties of the rows that are fresh, and finds those that change nothing.

    Both kinds share their id, their LEI and their names with no other one of these rows, so it does not matter when
    they come. A row is fresh if nobody in the store has, or had, what it has either: nothing can be wrong with it.
    """
    marks = {row.line: _marks(row) for row in rows}
    named = Counter(mark for each in marks.values() for mark in each)
    alone = [row for row in rows if all(named[mark] == 1 for mark in marks[row.line])]
    there = _there(session, alone)
    fresh = [row for row in alone if there.marks.isdisjoint(marks[row.line])]
    for row in fresh:
        session.add_all(_rows_of(row))
    session.flush()
    same = {row.line: party for row in alone if (party := there.just_so(row)) is not None}
    return TakenTogether(frozenset(row.line for row in fresh), same)


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


@dataclass(frozen=True, slots=True)
class _There:
    """What the store has that rows may mean.

    Args:
        marks: what somebody has.
        parties: natural key -> party, for the names of the rows.
        names: id of a party -> keys of its other names, for these parties.
        leis: id of a party -> its LEI, for these parties.
    """

    marks: set[_Mark]
    parties: Mapping[_Key, Party]
    names: Mapping[str, set[str]]
    leis: Mapping[str, str]

    def just_so(self, row: PartyRow) -> Party | None:
        """Returns the party of a row that says nothing new of it; `None` if it does, or if there is no such party."""
        key = row.key
        party = self.parties.get((key.kind.value, name_key(key.name), key.jurisdiction, key.distinguisher))
        if party is None:
            return None
        known = {party.name_key, *self.names.get(party.id, ())}
        is_same = (
            (row.id is None or (row.id == party.id and key.name == party.name))
            and row.client_type in ("", party.client_type)
            and row.status in (None, party.status)
            and row.lei in (None, self.leis.get(party.id))
            and known.issuperset(name_key(name) for name in (*row.aliases, *row.former_names))
        )
        return party if is_same else None


def _there(session: Session, rows: Sequence[PartyRow]) -> _There:
    keys = [name_key(row.key.name) for row in rows]
    ids = [row.id for row in rows if row.id is not None]
    leis = [row.lei for row in rows if row.lei is not None]
    parties = [*session.scalars(select(Party).where(or_(Party.name_key.in_(keys), Party.id.in_(ids))))]
    found = [party.id for party in parties]
    of_names = select(PartyName.party_id, PartyName.name_key)
    of_names = of_names.where(or_(PartyName.name_key.in_(keys), PartyName.party_id.in_(found)))
    of_leis = select(PartyIdentifier.party_id, PartyIdentifier.value).where(PartyIdentifier.scheme == LEI_SCHEME)
    of_leis = of_leis.where(or_(PartyIdentifier.value.in_(leis), PartyIdentifier.party_id.in_(found)))
    marks: set[_Mark] = {("id", party.id) for party in parties} | {("name", party.name_key) for party in parties}
    names: defaultdict[str, set[str]] = defaultdict(set)
    for party_id, key in session.execute(of_names):
        names[party_id].add(key)
        marks.add(("name", key))
    lei_of_party: dict[str, str] = {}
    for party_id, lei in session.execute(of_leis):
        lei_of_party[party_id] = lei
        marks.add(("lei", lei))
    by_key = {(each.kind, each.name_key, each.jurisdiction, each.distinguisher): each for each in parties}
    return _There(marks, by_key, names, lei_of_party)


def _rows_of(row: PartyRow) -> Iterator[Party | PartyName | PartyIdentifier]:
    yield (party := new_party(row.key, client_type=row.client_type, party_id=row.id))
    party.status = (row.status or PartyStatus.ACTIVE).value
    known = {party.name_key}
    yield from names_to_add(party.id, row.aliases, use=NameUse.ALIAS, known=known)
    yield from names_to_add(party.id, row.former_names, use=NameUse.FORMER, known=known)
    if row.lei is not None:
        yield lei_of(party.id, row.lei)
