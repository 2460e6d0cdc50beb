"""Convert errors of Temporal's client to errors of Dagwright in the public classes."""

import functools
import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Protocol, TypeVar

from temporalio.service import RPCError

from dagwright.server.errors import server_error


class HasAddress(Protocol):
    """An object whose methods send requests to a server."""

    @property
    def _address(self) -> str:
        """Address of the server."""
        ...


PublicClass = TypeVar("PublicClass", bound=type)


def reports_server_errors(public_class: PublicClass) -> PublicClass:
    """Make the public methods of a class raise `ServerError` or `ServerUnreachable` instead of the SDK's `RPCError`."""
    for name, method in [*vars(public_class).items()]:
        if name.startswith("_"):
            continue
        if inspect.iscoroutinefunction(method):
            setattr(public_class, name, _reporting_coroutine(method))
        elif inspect.isasyncgenfunction(method):
            setattr(public_class, name, _reporting_generator(method))
    return public_class


def _reporting_coroutine(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    async def call(self: HasAddress, /, *args: Any, **kwargs: Any) -> Any:
        try:
            return await method(self, *args, **kwargs)
        except RPCError as error:
            raise server_error(error, address=self._address) from error

    return call


def _reporting_generator(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    async def iterate(self: HasAddress, /, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        try:
            async with aclosing(method(self, *args, **kwargs)) as items:
                async for item in items:
                    yield item
        except RPCError as error:
            raise server_error(error, address=self._address) from error

    return iterate
