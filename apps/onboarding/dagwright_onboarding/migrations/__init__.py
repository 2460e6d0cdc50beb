"""The Alembic migrations of the entity store; `dagwright.database.migrations` runs them when a store is opened."""
