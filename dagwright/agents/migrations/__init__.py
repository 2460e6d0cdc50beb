"""Alembic revisions of the table of agents."""
