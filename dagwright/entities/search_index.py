"""The index that finds names among a million: trigrams by FTS5 on SQLite and by `pg_trgm` on PostgreSQL.

Each name of a party stands in `party_search`, taken apart by `names`; the rows are written in the transaction that
writes the name. Queries here fetch the few names that a rule of `lookup` can mean; the rules rank them. This module
must not know the rules and must not import Temporal.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, Select, delete, event, func, insert, inspect, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import InstrumentedAttribute, Mapper, Session

from dagwright.entities.migrating import StoreUnusable
from dagwright.entities.models import Party, PartyName, PartySearch
from dagwright.entities.names import core_words, words_of

OWN_NAME = "name"
"""`PartySearch.use` of a party's own name."""
OWN_NAME_ID = 0
"""`PartySearch.name_id` of a party's own name."""

_NAMES_WEIGHED = 5_000
"""Names that are put in order for one search; of a text that more names have, the best of so many are told."""
_NAMES_TOLD = 200
"""Names that a search gets; ten parties are shown, and some have several names."""
_NEAR_NAMES = 500
"""Names whose spelling is compared; those that share the most trigrams."""
_NEAR_POSTINGS = 20_000
"""Entries of the index that SQLite counts for another spelling: the rarest trigrams are taken up to this sum."""
_NEAR_TRIGRAMS = 60
"""Most trigrams of one text on SQLite, which joins at most 500 selections."""
_NEAR_SIMILARITY = "0.25"
"""Share of trigrams in common from which PostgreSQL gives a name; `sarah cohen` and `sara chan` have 0.29."""
_ROWS_AT_ONCE = 2_000

_SQLITE_INDEX = (
    "CREATE VIRTUAL TABLE party_trigram USING fts5(words, content='party_search', content_rowid='id',"
    " tokenize='trigram', detail=none)",
    "CREATE VIRTUAL TABLE party_trigram_count USING fts5vocab('party_trigram', 'row')",
    "CREATE TRIGGER party_search_added AFTER INSERT ON party_search BEGIN"
    " INSERT INTO party_trigram(rowid, words) VALUES (new.id, new.words); END",
    "CREATE TRIGGER party_search_removed AFTER DELETE ON party_search BEGIN"
    " INSERT INTO party_trigram(party_trigram, rowid, words) VALUES ('delete', old.id, old.words); END",
)
_POSTGRES_INDEX = (
    "CREATE EXTENSION IF NOT EXISTS pg_trgm",
    "CREATE INDEX IF NOT EXISTS party_search_by_trigram ON party_search USING gin (words gin_trgm_ops)",
)


class SearchIndexUnavailable(StoreUnusable):
    """The database lacks what the search needs; the message says what to have installed."""


@dataclass(frozen=True, slots=True)
class KnownName:
    """One name of one active party; `name` is the party's own, `words` and `core` are of the name found."""

    id: str
    name: str
    kind: str
    jurisdiction: str
    use: str
    words: tuple[str, ...]
    core: tuple[str, ...]


def is_within(jurisdiction: str, wider: str) -> bool:
    """Returns whether one ISO 3166 code is the other or one of its divisions: `US-DE` is within `US`."""
    return jurisdiction == wider or jurisdiction.startswith(f"{wider}-")


def ready_search_index(connection: Connection) -> None:
    """Makes the index if it is missing, and brings in the names that are not in it; the other tables must be there.

    Raises:
        SearchIndexUnavailable: SQLite without trigrams, or PostgreSQL without the right to have `pg_trgm`.
    """
    PartySearch.metadata.create_all(connection, tables=[PartySearch.metadata.tables[PartySearch.__tablename__]])
    if connection.dialect.name == "sqlite":
        if not inspect(connection).has_table("party_trigram"):
            _make(connection, _SQLITE_INDEX, needs="SQLite 3.34 or later with FTS5")
    elif not _has_postgres_index(connection):
        needs = "the extension pg_trgm; have an administrator run CREATE EXTENSION pg_trgm in this database"
        _make(connection, _POSTGRES_INDEX, needs=needs)
    names = _count(connection, Party) + _count(connection, PartyName)
    if names != _count(connection, PartySearch):
        _bring_in_missing(connection)


class NameIndex:
    """Fetches names from one view of the store; all results are limited, the shortest names first."""

    def __init__(self, session: Session, *, kind: str | None, jurisdiction: str | None = None) -> None:
        self._session = session
        self._kind = kind
        self._jurisdiction = jurisdiction
        self._is_sqlite = session.get_bind().dialect.name == "sqlite"

    def same_core(self, core: Sequence[str]) -> list[KnownName]:
        """Returns the names that consist of these words, legal form aside."""
        return self._fetch("party_search s", ["s.core = :core"], {"core": " ".join(core)})

    def all_words(self, words: Sequence[str]) -> list[KnownName]:
        """Returns the names that have all these words, in any order."""
        distinct = list(dict.fromkeys(words))
        patterns = [f"% {_escaped(word)} %" for word in distinct]
        return self._like(patterns, trigrams=_trigrams(f"  {word} " for word in distinct))

    def beginnings(self, beginnings: Sequence[str]) -> list[KnownName]:
        """Returns the names with words that begin like these, in this order."""
        pattern = "%" + "".join(f" {_escaped(beginning)}%" for beginning in beginnings)
        return self._like([pattern], trigrams=_trigrams(f"  {beginning}" for beginning in beginnings))

    def near(self, words: Sequence[str]) -> list[KnownName]:
        """Returns the names that share the most trigrams with these words."""
        if not self._is_sqlite:
            self._session.execute(
                text("SELECT set_config('pg_trgm.similarity_threshold', :share, true)"), {"share": _NEAR_SIMILARITY}
            )
            source = (
                "(SELECT * FROM party_search WHERE words % :near"
                f" ORDER BY similarity(words, :near) DESC, id LIMIT {_NEAR_NAMES}) s"
            )
            return self._fetch(source, [], {"near": " ".join(words)}, limit=_NEAR_NAMES)
        rare = self._rare_trigrams(_trigrams(f"  {word} " for word in words))
        if not rare:
            return []
        each = " UNION ALL ".join(
            f"SELECT rowid AS id FROM party_trigram WHERE party_trigram MATCH :trigram{number}"
            for number in range(len(rare))
        )
        source = (
            f"(SELECT id, count(*) AS shared FROM ({each}) GROUP BY id ORDER BY shared DESC, id LIMIT {_NEAR_NAMES}) g"
            " CROSS JOIN party_search s ON s.id = g.id"
        )
        matches = {f"trigram{number}": _quoted(trigram) for number, trigram in enumerate(rare)}
        return self._fetch(source, [], matches, limit=_NEAR_NAMES)

    def _rare_trigrams(self, trigrams: Sequence[str]) -> list[str]:
        """Returns the trigrams that the fewest names have, as many as can be counted at once; at least one."""
        counted = []
        for trigram in trigrams:
            found = text("SELECT doc FROM party_trigram_count WHERE term = :term")
            names = self._session.execute(found, {"term": trigram}).scalar()
            if names:
                counted.append((names, trigram))
        counted.sort()
        kept: list[str] = []
        total = 0
        for names, trigram in counted[:_NEAR_TRIGRAMS]:
            total += names
            if kept and total > _NEAR_POSTINGS:
                break
            kept.append(trigram)
        return kept

    def _like(self, patterns: Sequence[str], *, trigrams: Sequence[str]) -> list[KnownName]:
        conditions = [rf"s.words LIKE :like{number} ESCAPE '\'" for number in range(len(patterns))]
        values = {f"like{number}": pattern for number, pattern in enumerate(patterns)}
        if not self._is_sqlite:
            return self._fetch("party_search s", conditions, values)
        conditions.insert(0, "g.party_trigram MATCH :match")
        values["match"] = " AND ".join(_quoted(trigram) for trigram in trigrams)
        return self._fetch("party_trigram g CROSS JOIN party_search s ON s.id = g.rowid", conditions, values)

    def _fetch(
        self, source: str, conditions: Sequence[str], values: dict[str, str], *, limit: int = _NAMES_TOLD
    ) -> list[KnownName]:
        conditions = [*conditions, "p.status = 'active'"]
        if self._kind is not None:
            conditions.append("p.kind = :kind")
            values = {**values, "kind": self._kind}
        if self._jurisdiction is not None:
            # As `is_within`; a code holds no sign that means something to LIKE.
            conditions.append("(p.jurisdiction = :jurisdiction OR p.jurisdiction LIKE :divisions)")
            values = {**values, "jurisdiction": self._jurisdiction, "divisions": f"{self._jurisdiction}-%"}
        query = (
            "SELECT id, name, kind, jurisdiction, use, words, core FROM ("
            "SELECT p.id, p.name, p.kind, p.jurisdiction, s.use, s.words, s.core, s.word_count"
            f" FROM {source} JOIN party p ON p.id = s.party_id WHERE {' AND '.join(conditions)} LIMIT {_NAMES_WEIGHED}"
            f") AS found ORDER BY word_count, name, jurisdiction, id LIMIT {limit}"
        )
        return [
            KnownName(id_, name, kind, jurisdiction, use, words=tuple(words.split()), core=tuple(core.split()))
            for id_, name, kind, jurisdiction, use, words, core in self._session.execute(text(query), values)
        ]


def _trigrams(texts: Iterable[str]) -> list[str]:
    found = (each[start : start + 3] for each in texts for start in range(len(each) - 2))
    return list(dict.fromkeys(found))


def _quoted(trigram: str) -> str:
    """Returns a trigram as FTS5 reads it; words hold no quotation mark."""
    return f'"{trigram}"'


def _escaped(word: str) -> str:
    """Returns a word for LIKE; of its signs only the underscore can stand in a word."""
    return word.replace("_", r"\_")


def _search_row(party_id: str, name_id: int, use: str, key: str) -> dict[str, Any]:
    words = words_of(key)
    return {
        "party_id": party_id,
        "name_id": name_id,
        "use": use,
        "core": " ".join(core_words(key)),
        "words": "".join(f"  {word}" for word in words) + " ",
        "word_count": len(words),
    }


def _row_of(written: Party | PartyName) -> dict[str, Any]:
    if isinstance(written, Party):
        return _search_row(written.id, OWN_NAME_ID, OWN_NAME, written.name_key)
    return _search_row(written.party_id, written.id, written.use, written.name_key)


def _index_name(_mapper: Mapper[Any], connection: Connection, written: Party | PartyName) -> None:
    connection.execute(insert(PartySearch), _row_of(written))


def _index_again(_mapper: Mapper[Any], connection: Connection, written: Party | PartyName) -> None:
    _forget_name(_mapper, connection, written)
    _index_name(_mapper, connection, written)


def _forget_name(_mapper: Mapper[Any], connection: Connection, written: Party | PartyName) -> None:
    row = _row_of(written)
    rows = delete(PartySearch).where(PartySearch.party_id == row["party_id"], PartySearch.name_id == row["name_id"])
    connection.execute(rows)


for _table in (Party, PartyName):
    # Bound to the tables and not called by who writes: a name that nobody finds is a mistake that nobody sees.
    event.listen(_table, "after_insert", _index_name)
    event.listen(_table, "after_update", _index_again)
event.listen(PartyName, "after_delete", _forget_name)


def _make(connection: Connection, statements: Sequence[str], *, needs: str) -> None:
    try:
        for statement in statements:
            connection.exec_driver_sql(statement)
    except DBAPIError as error:
        raise SearchIndexUnavailable(f"the search for parties needs {needs} ({error.orig})") from error


def _has_postgres_index(connection: Connection) -> bool:
    found = connection.scalar(text("SELECT to_regclass('party_search_by_trigram')"))
    return found is not None


def _count(connection: Connection, table: type[Party | PartyName | PartySearch]) -> int:
    return connection.scalar(select(func.count()).select_from(table)) or 0


def _bring_in_missing(connection: Connection) -> None:
    """Adds the names that another version of this program wrote without the index."""
    own = (
        select(Party.id, Party.name_key)
        .outerjoin(PartySearch, (PartySearch.party_id == Party.id) & (PartySearch.name_id == OWN_NAME_ID))
        .where(PartySearch.id.is_(None))
    )
    other = (
        select(PartyName.party_id, PartyName.id, PartyName.use, PartyName.name_key)
        .outerjoin(PartySearch, (PartySearch.party_id == PartyName.party_id) & (PartySearch.name_id == PartyName.id))
        .where(PartySearch.id.is_(None))
    )
    for rows in _in_parts(connection, own, by=Party.id, start=""):
        connection.execute(insert(PartySearch), [_search_row(id_, OWN_NAME_ID, OWN_NAME, key) for id_, key in rows])
    for rows in _in_parts(connection, other, by=PartyName.id, start=0):
        connection.execute(insert(PartySearch), [_search_row(*each) for each in rows])
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("ANALYZE party, party_search")


def _in_parts(
    connection: Connection, query: Select[*tuple[Any, ...]], *, by: InstrumentedAttribute[Any], start: str | int
) -> Iterator[Sequence[Row[*tuple[Any, ...]]]]:
    """Yields the rows of a query a few thousand at a time, in the order of a column whose values are above `start`."""
    while rows := connection.execute(query.where(by > start).order_by(by).limit(_ROWS_AT_ONCE)).all():
        yield rows
        start = rows[-1].id
