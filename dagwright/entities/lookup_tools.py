"""The tools behind lookups: `find_party` finds the party that a text means, `bind_parties` binds what was found.

They are the run's own (`dagwright.features.lookups.lookups`): a plan cannot name them. This module must not import
SQLAlchemy, which takes longer than a command may take to start.
"""

from typing import TYPE_CHECKING, Any

from dagwright.entities.opening import LazyDatabase
from dagwright.features.lookups.lookups import BIND_PARTIES, FIND_PARTY
from dagwright.tools import ToolRegistry, context, tool

if TYPE_CHECKING:
    from dagwright.entities.database import EntityDatabase


def lookup_tools(database: "EntityDatabase | str") -> ToolRegistry:
    """Returns the tools `find_party` and `bind_parties`.

    Args:
        database: the store, or its URL; nothing is opened before the first call of a tool.
    """
    store = LazyDatabase(database)

    @tool(name=FIND_PARTY, effects="read")
    def find_party(
        *, search_text: str, entity_type: str, jurisdiction: str | None = None, asks: bool = True
    ) -> dict[str, Any]:
        """Find the party that a text means; a person is asked where that is not clear.

        Args:
            search_text: an identifier, a name or a part of one.
            entity_type: person, company, fund, several of them such as company or fund, or entity for any.
            jurisdiction: ISO 3166 code of the parties that are meant.
            asks: whether a person can be asked.
        """
        from dagwright.entities.gateway import SqlEntityGateway  # noqa: PLC0415
        from dagwright.entities.resolution import PartySearch, Wanted  # noqa: PLC0415

        call = context()
        search = PartySearch(SqlEntityGateway(store.opened), Wanted(search_text, entity_type, jurisdiction), asks=asks)
        return search.found(call.answers, call.checkpoint)

    @tool(name=BIND_PARTIES, effects="idempotent")
    def bind_parties(*, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Bind what was found, and create the parties that people wanted created.

        Args:
            found: what `find_party` found of each lookup, in order.
        """
        from dagwright.entities import binding  # noqa: PLC0415

        return binding.bind_parties(store.opened, found, key=context().idempotency_key)

    return ToolRegistry.of(find_party, bind_parties)
