"""The SQL database with tables of an application; needs the extra `database`."""

from dagwright.database.database import Database
from dagwright.database.error_messages import DatabaseUnavailable
from dagwright.database.migrations import DatabaseUnusable, Schema
from dagwright.interfaces.cli.command_database import open_database

__all__ = ["Database", "DatabaseUnavailable", "DatabaseUnusable", "Schema", "open_database"]
