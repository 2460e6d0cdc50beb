"""The SQL database with tables of an application; needs the extra `database`."""

from dagwright.database.database import Database
from dagwright.database.migrating import Schema, StoreUnusable
from dagwright.database.refusing import StoreRefuses
from dagwright.interfaces.cli.databases import opened_database

__all__ = ["Database", "Schema", "StoreRefuses", "StoreUnusable", "opened_database"]
