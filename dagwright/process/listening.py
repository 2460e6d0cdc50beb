"""A socket and an HTTP server inside of a process that has an event loop and signals of its own.

The gateway and the MCP server listen so.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from ipaddress import ip_address

import uvicorn
from starlette.types import ASGIApp

PORT = 8484
"""Where the gateway listens if nobody says otherwise."""
BACKLOG = 2048
"""Connections that wait for their turn: a thousand clients may come back at once."""
LEAVING_S = 5.0
"""How long answers under way may take once the gateway ends; streams end at once, and their runs go on."""
IDLE_S = 75
"""How long a connection may wait for its next request: longer than proxies keep theirs, so that they close first."""


class PortTaken(Exception):
    """Nobody can listen there; the text says why, and what to do."""


def opened_socket(host: str, port: int | None) -> socket.socket:
    """Returns a socket that listens.

    Args:
        port: 0 for any free one; `None` for the usual one, or any free one if that is taken.

    Raises:
        PortTaken: nobody can listen there.
    """
    for each in (port,) if port is not None else (PORT, 0):
        try:
            info = socket.getaddrinfo(host, each, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
            # With its protocol asyncio sends each part of a stream at once (TCP_NODELAY), not after 40 ms.
            listener = socket.socket(info[0], info[1], info[2])
            try:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(info[4])
                listener.listen(BACKLOG)
            except BaseException:
                listener.close()
                raise
        except OSError as error:
            wrong = error
        else:
            return listener
    where = f"{host}:{port if port is not None else PORT}"
    raise PortTaken(f"{where} cannot be listened on: {wrong.strerror}; name another --host or --port")


def is_of_this_machine(listener: socket.socket) -> bool:
    """Tells whether nobody but this machine reaches a socket."""
    return ip_address(str(listener.getsockname()[0]).partition("%")[0]).is_loopback


def address_of(listener: socket.socket) -> str:
    """Returns the address of a server, without a slash at its end; a client on this machine reaches it there."""
    host, port = listener.getsockname()[:2]
    known = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{known}]:{port}" if ":" in known else f"http://{known}:{port}"


class _Server(uvicorn.Server):
    """Leaves the signals to the process that it is a part of."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def listening(
    app: ASGIApp,
    listener: socket.socket,
    *,
    leaving: asyncio.Event | None = None,
    proxies: str | None = None,
) -> AsyncIterator[None]:
    """Answers requests for as long as the block lasts, and then those that are under way.

    Args:
        leaving: set before the end, so that streams end.
        proxies: addresses or networks of proxies, separated by commas, whose `X-Forwarded-For` and `X-Forwarded-Proto`
            count.
    """
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        # By default every process on this machine could choose the address that it is limited by.
        proxy_headers=proxies is not None,
        forwarded_allow_ips=proxies,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=round(LEAVING_S),
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        if leaving is not None:
            leaving.set()
        server.should_exit = True
        await serving
