"""Errors of Temporal's client as errors of Dagwright, for the public classes."""

import functools
import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Protocol, TypeVar

from temporalio.service import RPCError

from dagwright.server.errors import server_error


class Connected(Protocol):
    """An object whose methods send requests to a server."""

    @property
    def _address(self) -> str:
        """Address of the server."""
        ...


Public = TypeVar("Public", bound=type)


def reports_server_errors(public: Public) -> Public:
    """Make the public methods of a class raise `ServerError` or `ServerUnreachable` instead of the SDK's `RPCError`."""
    for name, method in [*vars(public).items()]:
        if name.startswith("_"):
            continue
        if inspect.iscoroutinefunction(method):
            setattr(public, name, _of_coroutine(method))
        elif inspect.isasyncgenfunction(method):
            setattr(public, name, _of_generator(method))
    return public


def _of_coroutine(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    async def call(self: Connected, /, *args: Any, **kwargs: Any) -> Any:
        try:
            return await method(self, *args, **kwargs)
        except RPCError as error:
            raise server_error(error, address=self._address) from error

    return call


def _of_generator(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    async def iterate(self: Connected, /, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        try:
            async with aclosing(method(self, *args, **kwargs)) as items:
                async for item in items:
                    yield item
        except RPCError as error:
            raise server_error(error, address=self._address) from error

    return iterate
