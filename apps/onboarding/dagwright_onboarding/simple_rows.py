"""Load the rows of a file that need no individual handling: new parties, and unchanged existing parties.

Most rows of a large file are of these two kinds, so they are read and written in batches. `party_loading` handles all
other rows (renames, changes, conflicts) one by one. This module must not import Temporal.
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

_Identity = tuple[str, str]
"""A value by which a row may refer to a stored party: (`id`, id), (`lei`, LEI) or (`name`, name key)."""
_NaturalKey = tuple[str, str, str, str]
"""Natural key of a party: kind, key of the name, jurisdiction, distinguisher."""


@dataclass(frozen=True, slots=True)
class SimpleRows:
    """Rows that were handled as a batch.

    Args:
        added_lines: lines of the rows whose parties were added.
        unchanged_parties: line of a row -> the party, which already has all values of the row.
    """

    added_lines: frozenset[int]
    unchanged_parties: Mapping[int, Party]


def load_simple_rows(session: Session, rows: Sequence[PartyRow]) -> SimpleRows:
    """Add the parties of new rows, and find the rows that change nothing.

    A row qualifies only if it shares no id, LEI or name with another row of the batch, so the order does not matter.
    A row is new if no party in the store has any of its values, current or former: such a row cannot conflict.
    """
    identities_by_line = {row.line: _identities(row) for row in rows}
    counts = Counter(identity for row_identities in identities_by_line.values() for identity in row_identities)
    unique_rows = [row for row in rows if all(counts[identity] == 1 for identity in identities_by_line[row.line])]
    stored_values = _read_stored_values(session, unique_rows)
    new_rows = [row for row in unique_rows if stored_values.identities.isdisjoint(identities_by_line[row.line])]
    for row in new_rows:
        session.add_all(_database_rows_of(row))
    session.flush()
    unchanged_parties = {
        row.line: party for row in unique_rows if (party := stored_values.unchanged_party(row)) is not None
    }
    return SimpleRows(frozenset(row.line for row in new_rows), unchanged_parties)


def names_to_add(party_id: str, names: Iterable[str], *, use: NameUse, known_keys: set[str]) -> Iterator[PartyName]:
    """Yield a `PartyName` for each name that a party does not have yet.

    Args:
        known_keys: keys of the party's names; the keys of new names are added to this set.
    """
    for name in names:
        if (key := name_key(name)) not in known_keys:
            known_keys.add(key)
            yield PartyName(party_id=party_id, name=name, name_key=key, use=use.value)


def lei_identifier(party_id: str, lei: str) -> PartyIdentifier:
    """Return the `PartyIdentifier` that stores a LEI."""
    return PartyIdentifier(party_id=party_id, scheme=LEI_SCHEME, value=lei)


def _identities(row: PartyRow) -> frozenset[_Identity]:
    identities: set[_Identity] = {("name", name_key(name)) for name in (row.key.name, *row.former_names)}
    identities |= {("id", row.id)} if row.id is not None else set()
    identities |= {("lei", row.lei)} if row.lei is not None else set()
    return frozenset(identities)


@dataclass(frozen=True, slots=True)
class _StoredValues:
    """The stored values that rows may refer to.

    Args:
        identities: values that a stored party has.
        parties: natural key -> party, for each party with the name or the id of a row.
        other_name_keys: party id -> keys of the additional names, for each party in `parties`.
        leis: party id -> LEI, for each party in `parties` that has a LEI.
    """

    identities: set[_Identity]
    parties: Mapping[_NaturalKey, Party]
    other_name_keys: Mapping[str, set[str]]
    leis: Mapping[str, str]

    def unchanged_party(self, row: PartyRow) -> Party | None:
        """Return the party of a row that changes nothing, otherwise `None`."""
        key = row.key
        party = self.parties.get((key.kind.value, name_key(key.name), key.jurisdiction, key.distinguisher))
        if party is None:
            return None
        known_keys = {party.name_key, *self.other_name_keys.get(party.id, ())}
        is_same = (
            (row.id is None or (row.id == party.id and key.name == party.name))
            and row.client_type in ("", party.client_type)
            and row.status in (None, party.status)
            and row.lei in (None, self.leis.get(party.id))
            and known_keys.issuperset(name_key(name) for name in (*row.aliases, *row.former_names))
        )
        return party if is_same else None


def _read_stored_values(session: Session, rows: Sequence[PartyRow]) -> _StoredValues:
    keys = [name_key(row.key.name) for row in rows]
    ids = [row.id for row in rows if row.id is not None]
    leis = [row.lei for row in rows if row.lei is not None]
    parties = [*session.scalars(select(Party).where(or_(Party.name_key.in_(keys), Party.id.in_(ids))))]
    party_ids = [party.id for party in parties]
    names_query = select(PartyName.party_id, PartyName.name_key)
    names_query = names_query.where(or_(PartyName.name_key.in_(keys), PartyName.party_id.in_(party_ids)))
    leis_query = select(PartyIdentifier.party_id, PartyIdentifier.value).where(PartyIdentifier.scheme == LEI_SCHEME)
    leis_query = leis_query.where(or_(PartyIdentifier.value.in_(leis), PartyIdentifier.party_id.in_(party_ids)))
    identities: set[_Identity] = {("id", party.id) for party in parties} | {
        ("name", party.name_key) for party in parties
    }
    other_name_keys: defaultdict[str, set[str]] = defaultdict(set)
    for party_id, key in session.execute(names_query):
        other_name_keys[party_id].add(key)
        identities.add(("name", key))
    lei_of_party: dict[str, str] = {}
    for party_id, lei in session.execute(leis_query):
        lei_of_party[party_id] = lei
        identities.add(("lei", lei))
    parties_by_key = {(party.kind, party.name_key, party.jurisdiction, party.distinguisher): party for party in parties}
    return _StoredValues(identities, parties_by_key, other_name_keys, lei_of_party)


def _database_rows_of(row: PartyRow) -> Iterator[Party | PartyName | PartyIdentifier]:
    yield (party := new_party(row.key, client_type=row.client_type, party_id=row.id))
    party.status = (row.status or PartyStatus.ACTIVE).value
    known_keys = {party.name_key}
    yield from names_to_add(party.id, row.aliases, use=NameUse.ALIAS, known_keys=known_keys)
    yield from names_to_add(party.id, row.former_names, use=NameUse.FORMER, known_keys=known_keys)
    if row.lei is not None:
        yield lei_identifier(party.id, row.lei)
