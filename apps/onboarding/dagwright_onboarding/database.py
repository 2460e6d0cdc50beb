"""The store of parties: a database with their tables and the search index of their names."""

from pathlib import Path

from dagwright.plugins.databases import Database, Schema
from dagwright_onboarding.search_index import BroughtIn, bring_in_part, names_in_index

PARTIES = Schema(
    folder=Path(__file__).parent / "migrations",
    revisions=("0001", "0002", "0003", "0004", "0005"),
    version_table="dagwright_schema",
)


class EntityDatabase(Database):
    """Open the store of parties; see `Database`."""

    def __init__(self, url: str) -> None:
        super().__init__(url, PARTIES)

    def bring_in_names(self) -> int:
        """Index names that were written without the models, by SQL for example; return how many there were."""
        before = self.read(names_in_index)
        so_far: BroughtIn | None = None
        while (so_far := self._index_part(so_far)) is not None:
            self.release_write_lock()
        return self.read(names_in_index) - before

    def _index_part(self, so_far: BroughtIn | None) -> BroughtIn | None:
        return self.write(lambda session: bring_in_part(session.connection(), so_far))


def as_database(database: EntityDatabase | str) -> EntityDatabase:
    """Return the database itself, or a new one for a URL."""
    return EntityDatabase(database) if isinstance(database, str) else database
