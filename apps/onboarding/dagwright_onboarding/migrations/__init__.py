"""The Alembic migrations of the entity store; `migrations` runs them when a store is first opened."""
