"""Index all names, including those of inactive parties, with the words of each core in sorted order.

A core is a name without its legal form. Earlier indexes had no names of inactive parties, and stored the words of a
core in the order of the name. Missing names are indexed by the code of the current version.
"""

from dataclasses import dataclass

import sqlalchemy as sa
from alembic import op

from dagwright_onboarding.search_index import NAMES_PER_TRANSACTION, IndexProgress, index_next_batch

revision = "0005"
down_revision = "0004"

_READ = sa.text("SELECT id, core FROM party_search WHERE id > :after ORDER BY id LIMIT :count")
_UPDATE_CORE = sa.text("UPDATE party_search SET core = :core WHERE id = :id")


@dataclass(frozen=True, slots=True)
class CoreProgress:
    """Progress of sorting the cores in the index.

    Args:
        last_id: the last `party_search.id` that was processed.
        processed_count: number of processed names.
    """

    last_id: int
    processed_count: int

    def __str__(self) -> str:
        return f"{self.processed_count:,} names of the search index converted"


def migrate_part(
    connection: sa.Connection, progress: CoreProgress | IndexProgress | None
) -> CoreProgress | IndexProgress | None:
    """Sort the next batch of cores; after all cores are sorted, index the next batch of names."""
    if isinstance(progress, IndexProgress):
        return index_next_batch(connection, progress)
    core_progress = progress or CoreProgress(0, 0)
    rows = connection.execute(_READ, {"after": core_progress.last_id, "count": NAMES_PER_TRANSACTION}).all()
    if not rows:
        return index_next_batch(connection, None)
    sorted_cores = ((row.id, row.core, " ".join(sorted(row.core.split()))) for row in rows)
    if changed_cores := [{"id": id_, "core": core} for id_, old_core, core in sorted_cores if core != old_core]:
        connection.execute(_UPDATE_CORE, changed_cores)
    return CoreProgress(rows[-1].id, core_progress.processed_count + len(rows))


def upgrade() -> None:
    """Update the statistics of PostgreSQL, which otherwise scans whole tables; merge the index segments of SQLite."""
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("ANALYZE party, party_search, search_word")
    else:
        connection.exec_driver_sql("INSERT INTO party_words(party_words) VALUES ('optimize')")
        connection.exec_driver_sql("INSERT INTO word_trigrams(word_trigrams) VALUES ('optimize')")
