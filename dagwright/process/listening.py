"""A socket and an HTTP server within a process that has its own event loop and signal handlers.

The gateway and the MCP server use this module.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from ipaddress import ip_address

import uvicorn
from starlette.types import ASGIApp

PORT = 8484
"""Default port of the gateway."""
BACKLOG = 2048
"""Maximum number of pending connections: a thousand clients may reconnect at once."""
SHUTDOWN_TIMEOUT_S = 5.0
"""How long running responses may continue after the gateway is stopped. Streams end immediately."""
IDLE_TIMEOUT_S = 75
"""How long a connection may be idle: longer than in proxies, so that a proxy closes the connection first."""


class PortTaken(Exception):
    """The address is not available. The message has the reason and a hint."""


def open_socket(host: str, port: int | None) -> socket.socket:
    """Open a listening socket.

    Args:
        port: 0 for any free port; `None` for the default port, or any free port if the default port is taken.

    Raises:
        PortTaken: the address is not available.
    """
    for candidate_port in (port,) if port is not None else (PORT, 0):
        try:
            addresses = socket.getaddrinfo(host, candidate_port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, kind, protocol, _, socket_address = addresses[0]
            # If the protocol of the socket is set, asyncio sends each part of a stream immediately (TCP_NODELAY)
            # instead of after 40 ms.
            listener = socket.socket(family, kind, protocol)
            try:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(socket_address)
                listener.listen(BACKLOG)
            except BaseException:
                listener.close()
                raise
        except OSError as error:
            failure = error
        else:
            return listener
    address = f"{host}:{port if port is not None else PORT}"
    raise PortTaken(f"cannot listen on {address}: {failure.strerror}; choose another port with --port")


def is_local(listener: socket.socket) -> bool:
    """Return whether a socket is reachable only from this machine."""
    return ip_address(str(listener.getsockname()[0]).partition("%")[0]).is_loopback


def address_of(listener: socket.socket) -> str:
    """Return the URL of a server for clients on this machine, without a trailing slash."""
    host, port = listener.getsockname()[:2]
    local_host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{local_host}]:{port}" if ":" in local_host else f"http://{local_host}:{port}"


class _Server(uvicorn.Server):
    """A server that leaves the signal handlers to its process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving_app(
    app: ASGIApp,
    listener: socket.socket,
    *,
    stop_event: asyncio.Event | None = None,
    proxies: str | None = None,
) -> AsyncIterator[None]:
    """Serve requests until the block ends, then finish the running requests.

    Args:
        stop_event: set before the server stops, so that streams end.
        proxies: comma-separated addresses or networks of proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are
            trusted.
    """
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        # By default, uvicorn trusts the headers of local processes, which could then choose the address that their rate
        # limit applies to.
        proxy_headers=proxies is not None,
        forwarded_allow_ips=proxies,
        timeout_keep_alive=IDLE_TIMEOUT_S,
        timeout_graceful_shutdown=round(SHUTDOWN_TIMEOUT_S),
    )
    server = _Server(config)
    server_task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        if stop_event is not None:
            stop_event.set()
        server.should_exit = True
        await server_task
