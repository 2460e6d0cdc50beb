"""The store as a dependency of tools: imported and opened at the first call.

Every command that lists tools imports them, and importing SQLAlchemy takes longer than a command may take to start.
"""

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dagwright_onboarding.database import EntityDatabase


class LazyDatabase:
    """A store that is opened at first use; thread-safe.

    Args:
        database: the store, or its URL.
    """

    def __init__(self, database: "EntityDatabase | str") -> None:
        self._database_or_url = database
        self._lock = threading.Lock()
        self._opened: EntityDatabase | None = None

    @property
    def opened(self) -> "EntityDatabase":
        """The store."""
        from dagwright_onboarding.database import as_database  # noqa: PLC0415 - see the module

        with self._lock:
            if self._opened is None:
                self._opened = as_database(self._database_or_url)
            return self._opened
