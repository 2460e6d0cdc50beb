"""What Alembic runs around the revisions: they happen in the transaction of the connection that `migrating` gives."""

from alembic import context

from dagwright.entities.migrating import VERSION_TABLE
from dagwright.entities.models import Base

context.configure(
    connection=context.config.attributes["connection"], target_metadata=Base.metadata, version_table=VERSION_TABLE
)
context.run_migrations()
