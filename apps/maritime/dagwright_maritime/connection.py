"""How a worker reaches the search server: `async with reach_search() as search`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagwright.tools.context import context
from dagwright.tools.errors import GiveUp, RetryLater
from dagwright_maritime.attempts import keep, kept
from dagwright_maritime.indices import Indices
from dagwright_maritime.search.asking import RETRY_AFTER, NoAnswer
from dagwright_maritime.search.client import SearchClients
from dagwright_maritime.search.errors import NeverStarted, NotRunning
from dagwright_maritime.search.limits import QueryLimits
from dagwright_maritime.settings import MaritimeSettings

if TYPE_CHECKING:
    from opensearchpy import AsyncOpenSearch

SERVER_ATTEMPTS = 24
"""Attempts of a worker that asks the server: with `RETRY_AFTER` between them a server may be away for two minutes."""
_SILENT_ATTEMPTS = 3
"""How many of them may get no answer from a server that is there; those for which it was away do not count."""


@dataclass(frozen=True, slots=True)
class Search:
    """The search server of the settings, and what may be asked of it."""

    client: "AsyncOpenSearch"
    indices: Indices
    limits: QueryLimits


@asynccontextmanager
async def reach_search() -> AsyncIterator[Search]:
    """Gives the server that the worker's settings name, and says in the end what its failures mean for the call.

    All calls of a process share one client, which stays open for the next one.

    Raises:
        RetryLater: there is no server now.
        GiveUp: no server was ever named or started, or it has left several attempts without an answer.
    """
    # It imports the client of Temporal, which takes half a second of a command that only checks.
    from dagwright_maritime.search.server import find_address  # noqa: PLC0415

    environment = context().environment
    settings = environment.settings_of(MaritimeSettings)
    try:
        client = environment.resources.get(SearchClients).client(find_address(settings))
        limits = QueryLimits(rows=settings.opensearch_max_rows, timeout_s=settings.opensearch_timeout_s)
        yield Search(client, Indices(settings.opensearch_prefix), limits)
    except NeverStarted as error:
        raise GiveUp(str(error)) from None
    except NotRunning as error:
        raise RetryLater(str(error), after=RETRY_AFTER) from None
    except NoAnswer as error:
        silent = kept().search_silent + 1
        keep(search_silent=silent)
        if silent < _SILENT_ATTEMPTS:
            raise
        raise GiveUp(f"{error}; {silent} attempts got no answer that is of use; {error.advice}") from None
