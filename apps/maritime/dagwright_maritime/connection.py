"""Access to the search server for worker tools: `async with connect_search() as search`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagwright.tools.context import context
from dagwright.tools.errors import GiveUp, RetryLater
from dagwright_maritime.attempt_state import load_state, save_state
from dagwright_maritime.indices import Indices
from dagwright_maritime.search.client import SearchClients
from dagwright_maritime.search.errors import NeverStarted, NotRunning
from dagwright_maritime.search.limits import QueryLimits
from dagwright_maritime.search.requests import RETRY_AFTER, QueryTimeout
from dagwright_maritime.settings import MaritimeSettings

if TYPE_CHECKING:
    from opensearchpy import AsyncOpenSearch

SERVER_ATTEMPTS = 24
"""Maximum number of attempts of a tool that uses the server. With pauses of `RETRY_AFTER` between the attempts, the
tool survives an outage of two minutes."""
_MAX_FAILURES = 3
"""A call fails after this number of attempts in which a running server did not respond."""


@dataclass(frozen=True, slots=True)
class Search:
    """The configured search server, with the query limits."""

    client: "AsyncOpenSearch"
    indices: Indices
    limits: QueryLimits


@asynccontextmanager
async def connect_search() -> AsyncIterator[Search]:
    """Connect to the server of the worker's settings. A server failure inside the block raises one of the errors below.

    All calls of a process share one client, which stays open.

    Raises:
        RetryLater: the server is not running.
        GiveUp: no server was ever configured or started, or the server did not respond to several attempts.
    """
    # `search.server` imports the Temporal client, which would add half a second to a command that only checks plans.
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
    except QueryTimeout as error:
        failures = load_state().search_failures + 1
        save_state(search_failures=failures)
        if failures < _MAX_FAILURES:
            raise
        raise GiveUp(f"{error}; {failures} attempts got no response; {error.advice}") from None
