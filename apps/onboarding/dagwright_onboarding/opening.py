"""The store as tools hold it: not even imported before one of them is called.

Every command that knows tools imports them, and SQLAlchemy takes longer to import than a command may take to start.
"""

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dagwright_onboarding.database import EntityDatabase


class LazyDatabase:
    """A store that is made of its URL at first use; safe to share among threads.

    Args:
        database: the store, or its URL.
    """

    def __init__(self, database: "EntityDatabase | str") -> None:
        self._given = database
        self._lock = threading.Lock()
        self._opened: EntityDatabase | None = None

    @property
    def opened(self) -> "EntityDatabase":
        """The store."""
        from dagwright_onboarding.database import as_database  # noqa: PLC0415 - see the module

        with self._lock:
            if self._opened is None:
                self._opened = as_database(self._given)
            return self._opened
