"""The tools of the onboarding resolver (`entity_types.RESOLVER`): `find_party` and `bind_parties`.

Plans cannot call them by name. This module must not import SQLAlchemy, whose import takes longer than a command may
take to start.
"""

from typing import Any

from dagwright.tools import ToolRegistry, context, tool
from dagwright_onboarding.entity_types import RESOLVER
from dagwright_onboarding.lazy_database import LazyDatabase


def lookup_tools(store: LazyDatabase) -> ToolRegistry:
    """Return the tools `find_party` and `bind_parties`.

    Args:
        store: opened at the first call of a tool.
    """

    @tool(name=RESOLVER.find, effects="read", resolver=RESOLVER)
    def find_party(
        *, search_text: str, entity_type: str, jurisdiction: str | None = None, is_interactive: bool = True
    ) -> dict[str, Any]:
        """Find the party that a text means: a person, company, fund, or entity if the request does not name the type.
        Set the jurisdiction, such as LU, only if the request says where the party is. "@cbu" is the session's name for
        the current fund or client.

        Args:
            search_text: an identifier, a name or a part of a name.
            entity_type: person, company, fund, several of them such as company or fund, or entity for any.
            jurisdiction: ISO 3166 code of the party.
            is_interactive: whether the tool may ask a person.
        """
        from dagwright_onboarding.gateway import EntityGateway  # noqa: PLC0415
        from dagwright_onboarding.resolution import LookupRequest, PartyResolver  # noqa: PLC0415

        call = context()
        resolver = PartyResolver(
            EntityGateway(store.database),
            LookupRequest(search_text, entity_type, jurisdiction),
            is_interactive=is_interactive,
        )
        return resolver.resolve(call.answers, call.checkpoint)

    @tool(name=RESOLVER.bind, effects="idempotent", undo=RESOLVER.undo)
    def bind_parties(*, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Bind the results of lookups, and create the parties that users requested.

        Args:
            found: the result of `find_party` for each lookup, in order.
        """
        from dagwright_onboarding import binding  # noqa: PLC0415

        return binding.bind_parties(store.database, found, key=context().idempotency_key)

    return ToolRegistry.of(find_party, bind_parties)
