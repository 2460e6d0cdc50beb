"""The search index: names split into words, and a list of all words.

This revision drops the search tables of earlier application versions, and creates empty tables. Revision 0005 indexes
all names.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.exc import DBAPIError

from dagwright.plugins.databases import DatabaseUnusable

revision = "0002"
down_revision = "0001"

_SQLITE = (
    # The tokenizer must not split words that contain `&` or `_`. `#` starts a tag with the kind or jurisdiction.
    "CREATE VIRTUAL TABLE party_words USING fts5(tokens, content='', detail=none, prefix='1 2',"
    " tokenize=\"ascii tokenchars '&_#'\")",
    "CREATE TRIGGER party_search_added AFTER INSERT ON party_search BEGIN"
    " INSERT INTO party_words(rowid, tokens) VALUES (new.id, new.tokens); END",
    "CREATE TRIGGER party_search_removed AFTER DELETE ON party_search BEGIN"
    " INSERT INTO party_words(party_words, rowid, tokens) VALUES ('delete', old.id, old.tokens); END",
    "CREATE VIRTUAL TABLE word_trigrams USING fts5(word, content='', detail=none, tokenize='trigram')",
    "CREATE VIRTUAL TABLE word_trigram_counts USING fts5vocab('word_trigrams', 'row')",
    "CREATE TRIGGER search_word_added AFTER INSERT ON search_word BEGIN"
    " INSERT INTO word_trigrams(rowid, word) VALUES (new.id, '  ' || new.word || ' '); END",
)
_POSTGRESQL = (
    "CREATE EXTENSION IF NOT EXISTS pg_trgm",
    # With fastupdate, every search would scan the entries pending since the last vacuum.
    "CREATE INDEX party_search_by_words ON party_search USING gin (array_to_tsvector(string_to_array(tokens, ' ')))"
    " WITH (fastupdate = off)",
    # All words are lower case, but the index is on `lower(word)`: PostgreSQL would use a trigram index on `word` for
    # equality comparisons too, where the unique index is faster.
    "CREATE INDEX search_word_by_trigram ON search_word USING gin (lower(word) gin_trgm_ops) WITH (fastupdate = off)",
)
_REQUIREMENTS = {
    "sqlite": "SQLite 3.34 or later with FTS5",
    "postgresql": "the extension pg_trgm; have an administrator run CREATE EXTENSION pg_trgm in this database",
}


def upgrade() -> None:
    """Drop the search tables of earlier application versions, and create new tables and indexes."""
    connection = op.get_bind()
    if connection.dialect.name == "sqlite":
        op.execute("DROP TABLE IF EXISTS party_trigram_count")
        op.execute("DROP TABLE IF EXISTS party_trigram")
    op.execute("DROP TABLE IF EXISTS party_search")
    op.create_table(
        "party_search",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("party_id", sa.String(64), sa.ForeignKey("party.id"), nullable=False),
        sa.Column("name_id", sa.Integer, nullable=False),
        sa.Column("use", sa.String(16), nullable=False),
        sa.Column("core", sa.String(1200), nullable=False),
        sa.Column("tokens", sa.String(2400), nullable=False),
        sa.Column("word_count", sa.Integer, nullable=False),
        sa.UniqueConstraint("party_id", "name_id", name="party_search_once"),
    )
    op.create_index("party_search_by_core", "party_search", ["core"])
    op.create_table(
        "search_word",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("word", sa.String(1200), nullable=False),
        sa.UniqueConstraint("word", name="search_word_once"),
    )
    try:
        for statement in _SQLITE if connection.dialect.name == "sqlite" else _POSTGRESQL:
            connection.exec_driver_sql(statement)
    except DBAPIError as error:
        requirement = _REQUIREMENTS[connection.dialect.name]
        raise DatabaseUnusable(f"the party search requires {requirement} ({error.orig})") from None
