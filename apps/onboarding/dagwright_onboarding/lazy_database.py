"""The entity database as a dependency of tools: imported and opened at the first call.

Every command that lists tools imports the tools, and importing SQLAlchemy takes longer than a command may take to
start.
"""

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dagwright_onboarding.database import EntityDatabase


class LazyDatabase:
    """A database that is opened at first use; thread-safe.

    Args:
        database: the database, or its URL.
    """

    def __init__(self, database: "EntityDatabase | str") -> None:
        self._database_or_url = database
        self._lock = threading.Lock()
        self._database: EntityDatabase | None = None

    @property
    def database(self) -> "EntityDatabase":
        """The database, which the first access opens."""
        from dagwright_onboarding.database import as_database  # noqa: PLC0415 - see the module

        with self._lock:
            if self._database is None:
                self._database = as_database(self._database_or_url)
            return self._database
