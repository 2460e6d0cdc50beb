"""The rows that each call of a verb changed and relies on, and the time at which the call was undone.

For calls before this revision the rows are unknown, so these calls cannot be undone.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the columns to the effects, and the table of the rows that effects rely on."""
    op.add_column("effect", sa.Column("changes", sa.JSON))
    op.add_column("effect", sa.Column("undone_at", sa.DateTime(timezone=True)))
    op.create_table(
        "effect_row",
        sa.Column("key", sa.String(128), sa.ForeignKey("effect.key"), primary_key=True),
        sa.Column("row_id", sa.String(128), primary_key=True),
    )
    op.create_index("effect_row_by_row", "effect_row", ["row_id"])
