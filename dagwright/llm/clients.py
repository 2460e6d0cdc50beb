"""The model clients of a worker: one for each service, made when it is asked for the first time."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from dagwright.llm.capabilities import CapabilityCache
from dagwright.llm.client import ANSWER_S, Endpoint, ModelClient
from dagwright.llm.prices import PricesUnreadable, PriceTable, read_prices, shipped_prices
from dagwright.planning.model_calls.calls import NamedEndpoint
from dagwright.tools.redaction import Redaction


def _no_secret(name: str) -> str | None:  # noqa: ARG001 - the signature of a source of secrets
    return None


class SecretMissing(Exception):
    """A request names a secret that the worker does not have; the text says which variable to set."""


@dataclass(frozen=True, slots=True)
class ModelSetup:
    """What the settings say of models; nothing is opened or read before a worker needs it.

    Args:
        endpoint: the service of requests that name none.
        model: the model of requests that name none.
        prices_file: prices of the user's own; `None` for those that ship alone.
        secret: name -> value of `DAGWRIGHT_SECRET_<name>`, `None` if it is not set.
        answer_s: seconds without a byte after which a call is given up.
    """

    endpoint: Endpoint = field(default_factory=Endpoint)
    model: str | None = None
    prices_file: Path | None = None
    secret: Callable[[str], str | None] = field(default=_no_secret, repr=False)
    answer_s: float = ANSWER_S

    def prices(self) -> PriceTable:
        """Returns what models cost.

        Raises:
            PricesUnreadable: the user's own table cannot be used.
        """
        shipped = shipped_prices()
        if self.prices_file is None:
            return shipped
        try:
            return read_prices(self.prices_file).over(shipped)
        except PricesUnreadable as error:
            raise PricesUnreadable(f"DAGWRIGHT_PRICES cannot be used: {error}") from error


class ModelClients:
    """Clients of all services that requests name; used as `async with`, on one event loop.

    Args:
        setup: of the worker.

    Raises:
        PricesUnreadable: the user's own price table cannot be used.
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

    def client(self, named: NamedEndpoint | None) -> ModelClient:
        """Returns the client of a service.

        Args:
            named: `None` for the one of the settings. A named one gets its own key and never that of the settings.

        Raises:
            SecretMissing: the worker does not have its key.
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

    def _endpoint(self, named: NamedEndpoint) -> Endpoint:
        if not named.secret:
            return Endpoint(named.base_url)
        key = self._setup.secret(named.secret)
        if not key:
            shown = Redaction().place(named.base_url)
            raise SecretMissing(f"the key of {shown} is not set; set DAGWRIGHT_SECRET_{named.secret} for the worker")
        return Endpoint(named.base_url, key)
