"""What Alembic runs around the revisions: they happen in the transaction of the connection that `migrations` gives."""

from alembic import context

from dagwright.agents.stored import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=context.config.attributes["version_table"],
)
context.run_migrations()
