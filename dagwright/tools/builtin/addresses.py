"""Address checks for requests, and a transport that enforces them.

A host name is resolved once, every address is checked, and the connection goes to a checked address; the name is kept
for TLS and the `Host` header. So a name that later resolves to another address cannot redirect the request.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable

import httpx

from dagwright.tools.builtin.special_networks import is_public
from dagwright.tools.errors import GiveUp, NotStarted

HostResolver = Callable[[str, int], Awaitable[list[str]]]
"""Host name and port -> addresses as text, in order of preference."""

MAX_TRIED_ADDRESSES = 3


class AddressNotAllowed(GiveUp):
    """The settings do not allow the address of a request."""


async def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses of `host`, as the operating system resolves the name.

    Raises:
        NotStarted: the name has no address now.
    """
    try:
        addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NotStarted(f"The host {host!r} has no address: {error}") from None
    return list(dict.fromkeys(str(entry[4][0]) for entry in addresses))


class PinnedTransport(httpx.AsyncBaseTransport):
    """Transport that connects each request to a checked address, without connection reuse.

    Args:
        allow_private: whether addresses that are not public are allowed.
        resolve: resolves host names.
    """

    def __init__(self, allow_private: bool = False, resolve: HostResolver = resolve_host) -> None:
        self._allow_private = allow_private
        self._resolve = resolve
        # Connections are not reused: a connection for one name must not serve another name at the same address.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._http_transport = httpx.AsyncHTTPTransport(limits=limits, trust_env=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        host = request.url.raw_host.decode("ascii")
        port = request.url.port or (443 if request.url.scheme == "https" else 80)
        addresses = await self._checked_addresses(host, port)
        for address in addresses[: MAX_TRIED_ADDRESSES - 1]:
            try:
                return await self._http_transport.handle_async_request(_pin_address(request, address, host=host))
            except (httpx.ConnectError, httpx.ConnectTimeout):
                if address == addresses[-1]:
                    raise
        return await self._http_transport.handle_async_request(_pin_address(request, addresses[-1], host=host))

    async def aclose(self) -> None:
        await self._http_transport.aclose()

    async def _checked_addresses(self, host: str, port: int) -> list[str]:
        addresses = await self._resolve(host.strip("[]"), port)
        if not addresses:
            raise NotStarted(f"The host {host!r} has no address")
        for address in addresses:
            if not self._allow_private and not is_public(ipaddress.ip_address(address)):
                raise AddressNotAllowed(
                    f"The host {host!r} is at {address}, which is not a public address; "
                    "DAGWRIGHT_ALLOW_PRIVATE_ADDRESSES=true on the worker allows it"
                )
        return addresses


def _pin_address(request: httpx.Request, address: str, *, host: str) -> httpx.Request:
    return httpx.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": host.strip("[]")},
    )
