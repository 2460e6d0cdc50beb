"""Load agents from the database for plans and workers. A database file without agents is not opened with SQLAlchemy.

Every command loads these agents, but most users have none, and importing SQLAlchemy takes longer than the whole
command `check`.
"""

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

from dagwright.agents.agent_calls import agent_tools
from dagwright.agents.class_agents import load_class
from dagwright.agents.registry import AgentRegistry, AgentsUnreadable
from dagwright.core.extras import database_extra, require_extra
from dagwright.core.model.agents import AgentCard
from dagwright.core.model.tools import AGENT_PREFIX
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.spec import ToolSpec

_ANY_AGENT_QUERY = "SELECT 1 FROM agent_card LIMIT 1"

# Not structlog, which writes to stdout in a command without a configured log.
_LOG = logging.getLogger(__name__)


def stored_cards(database_url: str) -> tuple[AgentCard, ...]:
    """Return the cards that new plans use, sorted by name; `()` with a logged warning if the database is unreadable.

    Raises:
        MissingExtra: the libraries that read the database are not installed.
    """
    if not _may_have_agents(database_url):
        return ()
    require_extra(database_extra(database_url))
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415 - see the module docstring

    from dagwright.agents.stored_agents import AGENTS, StoredAgents  # noqa: PLC0415 - see the module docstring
    from dagwright.database.database import Database  # noqa: PLC0415 - see the module docstring
    from dagwright.database.error_messages import DatabaseUnavailable  # noqa: PLC0415 - see the module docstring
    from dagwright.database.migrations import DatabaseUnusable  # noqa: PLC0415 - see the module docstring

    try:
        database = Database(database_url, AGENTS)
        try:
            return tuple(version.card for version in StoredAgents(database).current_versions())
        finally:
            database.dispose()
    except (SQLAlchemyError, DatabaseUnusable, DatabaseUnavailable, ValueError) as error:
        _LOG.warning("the agents in the database cannot be loaded: %s", error)
        return ()


class StoredAgentTools:
    """Agents in a database as tools that a worker can call. The database is opened on the first call.

    Args:
        environment: environment of the worker.
    """

    def __init__(self, database_url: str, environment: ToolEnvironment) -> None:
        self._database_url = database_url
        self._environment = environment

    def spec(self, name: str, version: str | None) -> ToolSpec | None:
        """Return an agent as a tool, even if the agent was removed; `None` if the agent is unknown or has type `llm`.

        Args:
            version: version of the card; `None` for the newest version.

        Raises:
            ToolLoadError: the database cannot be read, or the class does not exist.
            MissingExtra: the libraries that read the database are not installed.
        """
        card = self._card(name, version)
        if card is None or card.type == "llm":
            return None
        classes = {name: load_class(card.class_name, folder=Path.cwd())} if card.class_name is not None else {}
        return agent_tools(AgentRegistry.of(card, classes=classes), self._environment)[AGENT_PREFIX + name]

    def _card(self, name: str, version: str | None) -> AgentCard | None:
        if not _may_have_agents(self._database_url):
            return None
        require_extra(database_extra(self._database_url))
        from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415 - see the module docstring

        from dagwright.agents.stored_agents import AGENTS, StoredAgents  # noqa: PLC0415 - see the module docstring
        from dagwright.database.database import Database  # noqa: PLC0415 - see the module docstring
        from dagwright.database.error_messages import DatabaseUnavailable  # noqa: PLC0415 - see the module docstring
        from dagwright.database.migrations import DatabaseUnusable  # noqa: PLC0415 - see the module docstring

        database = Database(self._database_url, AGENTS)
        try:
            return StoredAgents(database).card(name, version)
        except (SQLAlchemyError, DatabaseUnusable, DatabaseUnavailable) as error:
            raise AgentsUnreadable(f"the database with the agents cannot be read: {error}") from None
        finally:
            database.dispose()


def _may_have_agents(database_url: str) -> bool:
    """Return whether to query the database: always, except for a SQLite file without agents."""
    if not database_url.startswith("sqlite"):
        return True
    path = Path(database_url.partition(":///")[2].partition("?")[0])
    if not path.is_file():
        return False
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return connection.execute(_ANY_AGENT_QUERY).fetchone() is not None
    except sqlite3.Error:
        return False
