"""Table of agent cards. Databases of earlier versions already have this table."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the table if it does not exist."""
    op.create_table(
        "agent_card",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("version", sa.String(12), nullable=False),
        sa.Column("card", sa.JSON, nullable=False),
        sa.Column("added_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("removed_at", sa.DateTime(timezone=True), nullable=True),
        sa.UniqueConstraint("name", "number", name="agent_card_version"),
        if_not_exists=True,
    )
