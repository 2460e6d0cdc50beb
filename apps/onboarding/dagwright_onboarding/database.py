"""The store of parties: a database with the party tables and the search index of their names."""

from pathlib import Path

from dagwright.plugins.databases import Database, Schema
from dagwright_onboarding.search_index import IndexProgress, count_indexed_names, index_next_batch

PARTIES = Schema(
    folder=Path(__file__).parent / "migrations",
    revisions=("0001", "0002", "0003", "0004", "0005"),
    version_table="dagwright_schema",
)


class EntityDatabase(Database):
    """The store of parties; see `Database`."""

    def __init__(self, url: str) -> None:
        super().__init__(url, PARTIES)

    def index_missing_names(self) -> int:
        """Index the names that plain SQL wrote instead of the model classes; return the number of added names."""
        count_before = self.read(count_indexed_names)
        progress: IndexProgress | None = None
        while (progress := self._index_batch(progress)) is not None:
            self.pause_between_writes()
        return self.read(count_indexed_names) - count_before

    def _index_batch(self, progress: IndexProgress | None) -> IndexProgress | None:
        return self.write(lambda session: index_next_batch(session.connection(), progress))


def as_database(database: EntityDatabase | str) -> EntityDatabase:
    """Return a given database unchanged; for a URL, return a new `EntityDatabase`."""
    return EntityDatabase(database) if isinstance(database, str) else database
