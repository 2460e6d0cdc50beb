"""Alembic environment: run the revisions in the transaction of the connection from `dagwright.database.migrations`."""

from alembic import context

from dagwright_onboarding.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=context.config.attributes["version_table"],
)
context.run_migrations()
