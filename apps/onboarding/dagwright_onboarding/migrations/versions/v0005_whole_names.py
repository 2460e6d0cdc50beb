"""All names are in the search index, those of inactive parties too, and a core is equal for any order of its words.

Earlier indices had no names of inactive parties, and the words of a core in the order of the name. What is not there is
made of the names, always as the present version searches it.
"""

from dataclasses import dataclass

import sqlalchemy as sa
from alembic import op

from dagwright_onboarding.search_index import NAMES_AT_ONCE, BroughtIn, bring_in_part

revision = "0005"
down_revision = "0004"

_READ = sa.text("SELECT id, core FROM party_search WHERE id > :after ORDER BY id LIMIT :count")
_PUT_IN_ORDER = sa.text("UPDATE party_search SET core = :core WHERE id = :id")


@dataclass(frozen=True, slots=True)
class PutInOrder:
    """How far the cores that were in the index are in order.

    Args:
        after: the last `party_search.id` that was looked at.
        done: how many were.
    """

    after: int
    done: int

    def __str__(self) -> str:
        return f"{self.done:,} names of the search index are as they are searched now"


def part(connection: sa.Connection, so_far: PutInOrder | BroughtIn | None) -> PutInOrder | BroughtIn | None:
    """Puts the next cores in order; when all are, brings in the next names."""
    if isinstance(so_far, BroughtIn):
        return bring_in_part(connection, so_far)
    before = so_far or PutInOrder(0, 0)
    rows = connection.execute(_READ, {"after": before.after, "count": NAMES_AT_ONCE}).all()
    if not rows:
        return bring_in_part(connection, None)
    in_order = ((row.id, row.core, " ".join(sorted(row.core.split()))) for row in rows)
    if changed := [{"id": id_, "core": core} for id_, was, core in in_order if core != was]:
        connection.execute(_PUT_IN_ORDER, changed)
    return PutInOrder(rows[-1].id, before.done + len(rows))


def upgrade() -> None:
    """Has the database look at what was brought in: PostgreSQL reads whole tables without, SQLite many small lists."""
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("ANALYZE party, party_search, search_word")
    else:
        connection.exec_driver_sql("INSERT INTO party_words(party_words) VALUES ('optimize')")
        connection.exec_driver_sql("INSERT INTO word_trigrams(word_trigrams) VALUES ('optimize')")
