"""Parties, their names, identifiers and links, and `effect`, the log of verb calls.

Stores from before the first migration have some of the tables; the missing tables are created.
`cbu_id` is the party that is the client business unit (CBU).
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the missing tables and indexes."""
    op.create_table(
        "party",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("name", sa.String(300), nullable=False),
        sa.Column("name_key", sa.String(1200), nullable=False),
        sa.Column("jurisdiction", sa.String(8), nullable=False),
        sa.Column("distinguisher", sa.String(40), nullable=False),
        sa.Column("client_type", sa.String(40), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.UniqueConstraint("kind", "name_key", "jurisdiction", "distinguisher", name="party_natural_key"),
        sa.CheckConstraint("kind IN ('person', 'company', 'fund')", name="party_kind"),
        sa.CheckConstraint("status IN ('active', 'inactive')", name="party_status"),
        if_not_exists=True,
    )
    op.create_index("party_by_name_key", "party", ["name_key"], if_not_exists=True)
    op.create_table(
        "party_name",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("party_id", sa.String(64), sa.ForeignKey("party.id"), nullable=False),
        sa.Column("name", sa.String(300), nullable=False),
        sa.Column("name_key", sa.String(1200), nullable=False),
        sa.Column("use", sa.String(16), nullable=False),
        sa.UniqueConstraint("party_id", "name_key", name="party_name_once"),
        if_not_exists=True,
    )
    op.create_index("party_name_by_key", "party_name", ["name_key"], if_not_exists=True)
    op.create_table(
        "party_identifier",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("party_id", sa.String(64), sa.ForeignKey("party.id"), nullable=False),
        sa.Column("scheme", sa.String(16), nullable=False),
        sa.Column("value", sa.String(64), nullable=False),
        sa.UniqueConstraint("scheme", "value", name="party_identifier_once"),
        if_not_exists=True,
    )
    op.create_index("party_identifier_by_party", "party_identifier", ["party_id"], if_not_exists=True)
    op.create_index("party_identifier_by_value", "party_identifier", ["value"], if_not_exists=True)
    _create_link_tables()
    _create_effect_table()


def _create_link_tables() -> None:
    op.create_table(
        "role_assignment",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("cbu_id", sa.String(64), sa.ForeignKey("party.id"), nullable=False),
        sa.Column("entity_id", sa.String(64), sa.ForeignKey("party.id"), nullable=False),
        sa.Column("role", sa.String(40), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.UniqueConstraint("cbu_id", "entity_id", "role", name="role_assignment_once"),
        if_not_exists=True,
    )
    op.create_index("role_assignment_by_entity", "role_assignment", ["entity_id"], if_not_exists=True)
    op.create_table(
        "product_subscription",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("cbu_id", sa.String(64), sa.ForeignKey("party.id"), nullable=False),
        sa.Column("product", sa.String(40), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.UniqueConstraint("cbu_id", "product", name="product_subscription_once"),
        if_not_exists=True,
    )
    op.create_table(
        "party_relation",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("from_id", sa.String(64), sa.ForeignKey("party.id"), nullable=False),
        sa.Column("to_id", sa.String(64), sa.ForeignKey("party.id"), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.UniqueConstraint("from_id", "to_id", "kind", name="party_relation_once"),
        if_not_exists=True,
    )
    is_manco = sa.text("kind = 'manco'")
    op.create_index(
        "party_relation_one_manco",
        "party_relation",
        ["from_id"],
        unique=True,
        sqlite_where=is_manco,
        postgresql_where=is_manco,
        if_not_exists=True,
    )
    op.create_index("party_relation_by_target", "party_relation", ["to_id"], if_not_exists=True)


def _create_effect_table() -> None:
    op.create_table(
        "effect",
        sa.Column("key", sa.String(128), primary_key=True),
        sa.Column("verb", sa.String(64), nullable=False),
        sa.Column("result", sa.JSON, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        if_not_exists=True,
    )
