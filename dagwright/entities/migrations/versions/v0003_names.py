"""All names are in the search index. The index is made of the names, always as the present version searches it."""

from alembic import op

from dagwright.entities.search_index import bring_in_part

revision = "0003"
down_revision = "0002"

part = bring_in_part


def upgrade() -> None:
    """Has the database look at what was brought in: PostgreSQL reads whole tables without, SQLite many small lists."""
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("ANALYZE party, party_search, search_word")
    else:
        connection.exec_driver_sql("INSERT INTO party_words(party_words) VALUES ('optimize')")
        connection.exec_driver_sql("INSERT INTO word_trigrams(word_trigrams) VALUES ('optimize')")
