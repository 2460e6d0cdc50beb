"""The migrations of the entity store, for Alembic; `migrations` runs them at the first opening of a store."""
