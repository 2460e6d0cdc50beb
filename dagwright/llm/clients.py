"""Model clients of a worker: one client per server, created at its first use."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from dagwright.llm.capabilities import CapabilityCache
from dagwright.llm.client import ANSWER_S, Endpoint, ModelClient
from dagwright.llm.prices import PricesUnreadable, PriceTable, read_prices, shipped_prices
from dagwright.planning.model_calls.model_requests import NamedEndpoint
from dagwright.tools.redaction import Redaction


def _no_secret(name: str) -> str | None:  # noqa: ARG001 - the signature of a source of secrets
    return None


class SecretMissing(Exception):
    """A request names a secret that the worker does not have; the message names the variable to set."""


@dataclass(frozen=True, slots=True)
class ModelSetup:
    """Model settings of a worker; nothing is opened or read before it is needed.

    Args:
        endpoint: default server.
        model: default model.
        prices_file: the user's price table; `None` uses only the table that ships with Dagwright.
        secret: name -> value of `DAGWRIGHT_SECRET_<name>`, `None` if it is not set.
        answer_s: read timeout in seconds.
    """

    endpoint: Endpoint = field(default_factory=Endpoint)
    model: str | None = None
    prices_file: Path | None = None
    secret: Callable[[str], str | None] = field(default=_no_secret, repr=False)
    answer_s: float = ANSWER_S

    def prices(self) -> PriceTable:
        """Return the price table.

        Raises:
            PricesUnreadable: the user's table is invalid.
        """
        shipped = shipped_prices()
        if self.prices_file is None:
            return shipped
        try:
            return read_prices(self.prices_file).over(shipped)
        except PricesUnreadable as error:
            raise PricesUnreadable(f"DAGWRIGHT_PRICES cannot be used: {error}") from error


class ModelClients:
    """Clients of all servers that requests name; use with `async with`, on one event loop.

    Args:
        setup: model settings of the worker.

    Raises:
        PricesUnreadable: the user's price table is invalid.
    """

    def __init__(self, setup: ModelSetup) -> None:
        self._setup = setup
        self._prices = setup.prices()
        self._capability_cache = CapabilityCache()
        self._clients: dict[Endpoint, ModelClient] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.close()

    @property
    def default_model(self) -> str | None:
        """Return the model of calls that do not name one."""
        return self._setup.model

    def client(self, named: NamedEndpoint | None) -> ModelClient:
        """Return the client of a server.

        Args:
            named: `None` for the server of the settings. A named server gets its own key and never the key of the
                settings.

        Raises:
            SecretMissing: the worker does not have the key of the server.
        """
        endpoint = self._setup.endpoint if named is None else self._endpoint(named)
        if endpoint not in self._clients:
            self._clients[endpoint] = ModelClient(
                endpoint,
                model=self._setup.model,
                prices=self._prices,
                capability_cache=self._capability_cache,
                answer_s=self._setup.answer_s,
            )
        return self._clients[endpoint]

    def _endpoint(self, named_endpoint: NamedEndpoint) -> Endpoint:
        if not named_endpoint.secret:
            return Endpoint(named_endpoint.base_url)
        key = self._setup.secret(named_endpoint.secret)
        if not key:
            location = Redaction().location(named_endpoint.base_url)
            raise SecretMissing(
                f"the key of {location} is not set; set DAGWRIGHT_SECRET_{named_endpoint.secret} for the worker"
            )
        return Endpoint(named_endpoint.base_url, key)
