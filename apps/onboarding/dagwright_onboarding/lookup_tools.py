"""The tools behind lookups: `find_party` finds the party that a text means, `bind_parties` binds what was found.

They are those of the resolver (`entity_types.RESOLVER`): a plan cannot name them. This module must not import
SQLAlchemy, which takes longer than a command may take to start.
"""

from typing import Any

from dagwright.tools import ToolRegistry, context, tool
from dagwright_onboarding.entity_types import RESOLVER
from dagwright_onboarding.opening import LazyDatabase


def lookup_tools(store: LazyDatabase) -> ToolRegistry:
    """Returns the tools `find_party` and `bind_parties`.

    Args:
        store: not opened before the first call of a tool.
    """

    @tool(name=RESOLVER.find, effects="read", resolver=RESOLVER)
    def find_party(
        *, search_text: str, entity_type: str, jurisdiction: str | None = None, asks: bool = True
    ) -> dict[str, Any]:
        """Find the party that a text means: a person, company, fund, or entity where the request does not say. Give
        the jurisdiction, such as LU, only if the request says where the party is. "@cbu" is a name of the session for
        the fund or client that is being worked on.

        Args:
            search_text: an identifier, a name or a part of one.
            entity_type: person, company, fund, several of them such as company or fund, or entity for any.
            jurisdiction: ISO 3166 code of the parties that are meant.
            asks: whether a person can be asked.
        """
        from dagwright_onboarding.gateway import SqlEntityGateway  # noqa: PLC0415
        from dagwright_onboarding.resolution import PartySearch, Wanted  # noqa: PLC0415

        call = context()
        search = PartySearch(SqlEntityGateway(store.opened), Wanted(search_text, entity_type, jurisdiction), asks=asks)
        return search.found(call.answers, call.checkpoint)

    @tool(name=RESOLVER.bind, effects="idempotent", undo=RESOLVER.undo)
    def bind_parties(*, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Bind what was found, and create the parties that people wanted created.

        Args:
            found: what `find_party` found of each lookup, in order.
        """
        from dagwright_onboarding import binding  # noqa: PLC0415

        return binding.bind_parties(store.opened, found, key=context().idempotency_key)

    return ToolRegistry.of(find_party, bind_parties)
