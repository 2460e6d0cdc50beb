"""Names that answer with another address the second time, and redirects into the own network."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpcore
import pytest

from dagwright.tools import NotStarted
from dagwright.tools.builtin.addresses import AddressRefused
from dagwright.tools.builtin.http import http_tools
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.testing import tool_context

PUBLIC = "93.184.216.34"
NAME = "rebind.example"


class Network:
    """A resolver that gives its answers in order, and the addresses that are connected to."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.answers: list[str] = []
        self.connected: list[tuple[str, int]] = []
        self.replies: list[bytes] = []
        patch.setattr(socket, "getaddrinfo", self.getaddrinfo)
        patch.setattr(httpcore.AnyIOBackend, "connect_tcp", self.connect_tcp)

    def getaddrinfo(self, host: Any, port: Any, *_: Any, **__: Any) -> list[Any]:
        name = host.decode() if isinstance(host, bytes) else host
        address = self.answers.pop(0) if name == NAME else name
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    async def connect_tcp(self, host: str, port: int, **_: Any) -> httpcore.AsyncNetworkStream:
        self.connected.append((host, port))
        if not self.replies:
            raise httpcore.ConnectError("nobody there")
        return httpcore.AsyncMockStream([self.replies.pop(0)])


@pytest.fixture
async def network(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Network]:
    network = Network(monkeypatch)
    yield network
    assert network.replies == []


async def get(url: str, **arguments: Any) -> Any:
    [request] = http_tools(ToolEnvironment(Path()))
    with tool_context():
        return await request(url, **arguments)


def redirect(target: str) -> bytes:
    return f"HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode()


async def test_the_connection_goes_to_the_address_that_was_judged(network: Network) -> None:
    network.answers = [PUBLIC, "127.0.0.1"]
    with pytest.raises(NotStarted):
        await get(f"http://{NAME}:8080/")
    assert (network.connected, network.answers) == ([(PUBLIC, 8080)], ["127.0.0.1"])


async def test_each_attempt_and_each_redirect_is_judged_again(network: Network) -> None:
    network.answers = [PUBLIC, "127.0.0.1"]
    network.replies = [redirect(f"http://{NAME}/again")]
    with pytest.raises(AddressRefused, match=r"is at 127\.0\.0\.1, which is not a public address"):
        await get(f"http://{NAME}/")
    assert (network.connected, network.answers) == ([(PUBLIC, 80)], [])


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.1/",
        "//127.0.0.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://168.63.129.16/machine",
        "http://[::1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://[2002:7f00:1::1]/",
        "http://[fd00:ec2::254]/",
        f"http://user@{NAME}/",
    ],
)
async def test_a_redirect_into_the_own_network_is_refused(network: Network, target: str) -> None:
    network.answers = [PUBLIC, "10.0.0.1"]
    network.replies = [redirect(target)]
    with pytest.raises((AddressRefused, NotStarted)):
        await get(f"http://{NAME}/")
    assert network.connected == [(PUBLIC, 80)]


async def test_many_requests_at_once_never_connect_to_what_was_not_judged(network: Network) -> None:
    network.answers = [PUBLIC, "127.0.0.1"] * 20
    ends = await asyncio.gather(*(get(f"http://{NAME}/") for _ in range(40)), return_exceptions=True)
    assert {type(end) for end in ends} == {NotStarted, AddressRefused}
    assert set(network.connected) == {(PUBLIC, 80)}
