"""The migrations of the entity store, for Alembic; `migrating` runs them at the first opening of a store."""
