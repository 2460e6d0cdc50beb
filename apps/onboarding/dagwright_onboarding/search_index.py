"""Maintain the search index: the whole names of all parties, and the words of the names of active parties.

An inactive party has no words in the index, so searches do not find it. Its whole names are in the index, because a
lookup of such a name must not choose another party without asking. The index rows are written in the transaction that
writes the name, for every writer that uses the models. `name_search` reads them. This module must not depend on the
search steps and must not import Temporal.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, delete, event, func, literal, select, text
from sqlalchemy.orm import Mapper, Session, object_session

from dagwright_onboarding.catalogue import PartyKind
from dagwright_onboarding.models import Party, PartyName, PartySearch, PartyStatus
from dagwright_onboarding.names import core_words, words_of

Value = TypeVar("Value")

OWN_NAME = "name"
"""`PartySearch.use` of a party's own name."""
OWN_NAME_ID = 0
"""`PartySearch.name_id` of a party's own name."""

NAMES_PER_TRANSACTION = 5_000
"""Names that one transaction indexes. The transaction takes about a second, during which other writers wait."""


_IDS_PER_STATEMENT = 500
"""Maximum number of ids (of parties or of additional names) in one statement."""


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """Progress of indexing the names of a store.

    Args:
        last_party_id: id of the last party whose own name was processed, `None` when all own names were processed.
        last_name_id: id of the last additional name (`PartyName`) that was processed.
        processed_count: number of names processed.
        total_count: number of names at the start.
    """

    last_party_id: str | None
    last_name_id: int
    processed_count: int
    total_count: int

    def __str__(self) -> str:
        return f"{self.processed_count:,} of {self.total_count:,} names indexed"


def index_next_batch(connection: Connection, progress: IndexProgress | None) -> IndexProgress | None:
    """Index the next batch of names; return the progress, `None` when all names are indexed.

    Args:
        progress: result of the previous call, `None` for the first call.
    """
    if progress is None:
        total = sum(connection.scalar(select(func.count()).select_from(table)) or 0 for table in (Party, PartyName))
        progress = IndexProgress("", 0, 0, total)
    if progress.last_party_id is not None:
        rows = _own_names(connection, last_id=progress.last_party_id)
        last_party_id = rows[-1].id if rows else None
        progress = replace(progress, last_party_id=last_party_id, processed_count=progress.processed_count + len(rows))
    else:
        rows = _other_names(connection, last_id=progress.last_name_id)
        if not rows:
            return None
        progress = replace(
            progress, last_name_id=rows[-1].name_id, processed_count=progress.processed_count + len(rows)
        )
    _write(connection, rows)
    return progress


def core_of(words: Sequence[str]) -> str:
    """Return the `PartySearch.core` of these words: equal for any order of the words."""
    return " ".join(sorted(words))


def count_indexed_names(session: Session) -> int:
    """Return the number of indexed names."""
    return session.scalar(select(func.count()).select_from(PartySearch)) or 0


def party_tags(kind: str, jurisdiction: str) -> list[str]:
    """Return the tokens for the kind and jurisdiction of a party: `#fund #us #us_de`."""
    tags = [kind]
    if jurisdiction:
        tags.append(jurisdiction.partition("-")[0].lower())
    if "-" in jurisdiction:
        tags.append(jurisdiction.replace("-", "_").lower())
    return [f"#{tag}" for tag in tags]


_ADD_NAME = text(
    "INSERT INTO party_search (party_id, name_id, use, core, tokens, word_count)"
    " VALUES (:party_id, :name_id, :use, :core, :tokens, :word_count) ON CONFLICT DO NOTHING"
)
_ADD_WORD = text("INSERT INTO search_word (word) VALUES (:word) ON CONFLICT DO NOTHING")
_PARTY_COLUMNS = (Party.id, Party.kind, Party.jurisdiction, Party.status)
_OWN_NAMES = select(
    *_PARTY_COLUMNS, literal(OWN_NAME_ID).label("name_id"), literal(OWN_NAME).label("use"), Party.name_key
)
_OTHER_NAMES = select(*_PARTY_COLUMNS, PartyName.id.label("name_id"), PartyName.use, PartyName.name_key).join(
    PartyName, PartyName.party_id == Party.id
)


def _own_names(connection: Connection, *, last_id: str) -> Sequence[Row[*tuple[Any, ...]]]:
    return connection.execute(
        _OWN_NAMES.where(Party.id > last_id).order_by(Party.id).limit(NAMES_PER_TRANSACTION)
    ).all()


def _other_names(connection: Connection, *, last_id: int) -> Sequence[Row[*tuple[Any, ...]]]:
    return connection.execute(
        _OTHER_NAMES.where(PartyName.id > last_id).order_by(PartyName.id).limit(NAMES_PER_TRANSACTION)
    ).all()


def _write(connection: Connection, names: Sequence[Row[*tuple[Any, ...]]]) -> None:
    """Add names to the index; each row has the columns of `_OWN_NAMES`."""
    rows = []
    words: dict[str, None] = {}
    for party_id, kind, jurisdiction, status, name_id, use, key in names:
        name_words = words_of(key)
        tokens = [*name_words, *party_tags(kind, jurisdiction)] if status == PartyStatus.ACTIVE else []
        words.update(dict.fromkeys(name_words) if tokens else {})
        rows.append(
            {
                "party_id": party_id,
                "name_id": name_id,
                "use": use,
                # A person's name has no legal form: "Kim Se" is not "Kim" with the form "SE".
                "core": core_of(name_words if kind == PartyKind.PERSON else core_words(key)),
                "tokens": " ".join(tokens),
                "word_count": len(name_words),
            }
        )
    if rows:
        # Existing rows are not read first, because that query is very slow on PostgreSQL before the first ANALYZE.
        connection.execute(_ADD_NAME, rows)
    if words:
        # Sorted, so that two transactions with the same new words cannot deadlock.
        connection.execute(_ADD_WORD, [{"word": word} for word in sorted(words)])


@dataclass(slots=True)
class _NamesToIndex:
    """Ids of the parties and additional names that a flush wrote and that must be indexed, each once, in order."""

    party_ids: dict[str, None] = field(default_factory=dict)
    name_ids: dict[int, None] = field(default_factory=dict)


_SESSION_KEY = "names to be indexed"
"""Key of `_NamesToIndex` in the session of the flush."""


def _names_to_index(instance: Party | PartyName) -> _NamesToIndex:
    session = object_session(instance)
    # Mapper events come from the flush of a session only.
    assert session is not None
    names_to_index: _NamesToIndex = session.info.setdefault(_SESSION_KEY, _NamesToIndex())
    return names_to_index


def _index_party(_mapper: Mapper[Any], _connection: Connection, party: Party) -> None:
    # The additional names of the party are indexed by separate events.
    _names_to_index(party).party_ids[party.id] = None


def _reindex_party(mapper: Mapper[Any], connection: Connection, party: Party) -> None:
    _remove_party(mapper, connection, party)
    names_to_index = _names_to_index(party)
    names_to_index.party_ids[party.id] = None
    names_of_party = select(PartyName.id).where(PartyName.party_id == party.id).order_by(PartyName.id)
    names_to_index.name_ids.update(dict.fromkeys(connection.scalars(names_of_party)))


def _index_name(_mapper: Mapper[Any], _connection: Connection, name: PartyName) -> None:
    _names_to_index(name).name_ids[name.id] = None


def _reindex_name(mapper: Mapper[Any], connection: Connection, name: PartyName) -> None:
    _remove_name(mapper, connection, name)
    _names_to_index(name).name_ids[name.id] = None


def _discard_pending_names(session: Session, _context: object, _instances: object) -> None:
    """Discard the names of a failed flush."""
    session.info.pop(_SESSION_KEY, None)


def _index_pending_names(session: Session, _context: object) -> None:
    """Index all names of a flush in one batch; one statement per name would take several times as long."""
    names_to_index: _NamesToIndex | None = session.info.pop(_SESSION_KEY, None)
    if names_to_index is None:
        return
    connection = session.connection()
    for party_ids in _split_ids([*names_to_index.party_ids]):
        _write(connection, connection.execute(_OWN_NAMES.where(Party.id.in_(party_ids))).all())
    for name_ids in _split_ids([*names_to_index.name_ids]):
        _write(connection, connection.execute(_OTHER_NAMES.where(PartyName.id.in_(name_ids))).all())


def _split_ids(ids: Sequence[Value]) -> Iterator[Sequence[Value]]:
    for start in range(0, len(ids), _IDS_PER_STATEMENT):
        yield ids[start : start + _IDS_PER_STATEMENT]


def _remove_name(_mapper: Mapper[Any], connection: Connection, name: PartyName) -> None:
    statement = delete(PartySearch).where(PartySearch.party_id == name.party_id, PartySearch.name_id == name.id)
    connection.execute(statement)


def _remove_party(_mapper: Mapper[Any], connection: Connection, party: Party) -> None:
    connection.execute(delete(PartySearch).where(PartySearch.party_id == party.id))


# Each writer could call these functions instead, but a missing call would go unnoticed.
event.listen(Party, "after_insert", _index_party)
event.listen(Party, "after_update", _reindex_party)
event.listen(Party, "before_delete", _remove_party)
event.listen(PartyName, "after_insert", _index_name)
event.listen(PartyName, "after_update", _reindex_name)
event.listen(PartyName, "after_delete", _remove_name)
event.listen(Session, "before_flush", _discard_pending_names)
event.listen(Session, "after_flush", _index_pending_names)
