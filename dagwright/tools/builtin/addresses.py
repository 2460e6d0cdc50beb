"""Which addresses a request may go to, and a transport that goes nowhere else.

The name is resolved once; every address it has is judged; the connection goes to the judged address, with the
name kept for TLS and the `Host` header. So a name that answers differently the second time gains nothing.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable

import httpx

from dagwright.tools.builtin.special_networks import is_public
from dagwright.tools.errors import GiveUp, NotStarted

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""Host name and port -> addresses as text, in the order to try them."""

TRIED_ADDRESSES = 3


class AddressRefused(GiveUp):
    """A request would go to an address that the settings do not allow."""


async def resolved(host: str, port: int) -> list[str]:
    """Returns the addresses of `host`, as the machine resolves it.

    Raises:
        NotStarted: the name has no address now.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NotStarted(f"The host {host!r} has no address: {error}") from None
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class PinnedTransport(httpx.AsyncBaseTransport):
    """Sends each request to an address that was judged for it; keeps no connection.

    Args:
        allow_private: whether addresses that are not public may be used.
        resolve: how names become addresses.
    """

    def __init__(self, allow_private: bool = False, resolve: Resolve = resolved) -> None:
        self._allow_private = allow_private
        self._resolve = resolve
        # No connection is kept: one made for a name must not serve another name at the same address.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._inner = httpx.AsyncHTTPTransport(limits=limits, trust_env=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        host = request.url.raw_host.decode("ascii")
        port = request.url.port or (443 if request.url.scheme == "https" else 80)
        addresses = await self._judged(host, port)
        for address in addresses[: TRIED_ADDRESSES - 1]:
            try:
                return await self._inner.handle_async_request(_pinned(request, address, host=host))
            except (httpx.ConnectError, httpx.ConnectTimeout):
                if address == addresses[-1]:
                    raise
        return await self._inner.handle_async_request(_pinned(request, addresses[-1], host=host))

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _judged(self, host: str, port: int) -> list[str]:
        addresses = await self._resolve(host.strip("[]"), port)
        if not addresses:
            raise NotStarted(f"The host {host!r} has no address")
        for text in addresses:
            if not self._allow_private and not is_public(ipaddress.ip_address(text)):
                raise AddressRefused(
                    f"The host {host!r} is at {text}, which is not a public address; "
                    "DAGWRIGHT_ALLOW_PRIVATE_ADDRESSES=true on the worker allows it"
                )
        return addresses


def _pinned(request: httpx.Request, address: str, *, host: str) -> httpx.Request:
    return httpx.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": host.strip("[]")},
    )
