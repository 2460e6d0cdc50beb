"""Special-purpose networks of the IANA registries.

The tests of DNS rebinding use a host name that resolves to a private address only at the second lookup.
"""

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path
from typing import Any

import httpcore
import pytest

from dagwright.tools import NotStarted
from dagwright.tools.builtin.addresses import AddressNotAllowed
from dagwright.tools.builtin.http import http_tools
from dagwright.tools.builtin.special_networks import REACHABLE_NETWORKS, UNREACHABLE_NETWORKS, is_public
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.testing import tool_context

PUBLIC_NETWORKS = [
    *("192.0.0.9/32", "192.0.0.10/32", "192.31.196.0/24", "192.52.193.0/24", "192.175.48.0/24"),
    *("2001:1::1/128", "2001:1::2/128", "2001:1::3/128", "2001:3::/32", "2001:4:112::/48"),
    *("2001:20::/28", "2001:30::/28", "2620:4f:8000::/48"),
]
PRIVATE_NETWORKS = [
    *("0.0.0.0/8", "0.0.0.0/32", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
    *("168.63.129.16/32", "172.16.0.0/12", "192.0.0.0/29", "192.0.0.8/32", "192.0.0.170/32"),
    *("192.0.0.171/32", "192.0.0.192/32", "192.0.0.255/32", "192.0.2.0/24", "192.88.99.0/24"),
    *("192.88.99.2/32", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
    *("224.0.0.0/4", "240.0.0.0/4", "255.255.255.255/32", "::1/128", "::/128", "::/96", "64:ff9b:1::/48"),
    *("100::/64", "100:0:0:1::/64", "2001:1::4/128", "2001:2::/48", "2001:5::/32", "2001:10::/28"),
    *("2001:40::/28", "2001:db8::/32", "3fff::/20", "4000::/3", "5f00::/16", "fc00::/7", "fe80::/10"),
    *("fec0::/10", "ff00::/8"),
]
PUBLIC_ADDRESSES = [
    "8.8.8.8",
    "1.1.1.1",
    "191.255.255.255",
    "192.0.1.1",
    "223.255.255.255",
    "2606:4700::1111",
    "2a00::1",
    # Addresses next to private networks.
    "168.63.129.15",
    "168.63.129.17",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.0",
    "198.20.0.0",
]


@pytest.mark.parametrize(("cidr", "expected"), [*product(PUBLIC_NETWORKS, [True]), *product(PRIVATE_NETWORKS, [False])])
def test_first_middle_and_last_address_of_a_network_are_classified_alike(cidr: str, expected: bool) -> None:
    network = ipaddress.ip_network(cidr)
    assert [is_public(network[index]) for index in (0, network.num_addresses // 2, -1)] == [expected] * 3


def test_every_listed_network_is_tested() -> None:
    tested_networks = [ipaddress.ip_network(cidr) for cidr in (*PUBLIC_NETWORKS, *PRIVATE_NETWORKS)]
    for cidr in (*REACHABLE_NETWORKS, *UNREACHABLE_NETWORKS):
        network = ipaddress.ip_network(cidr)
        assert any(tested[0] in network and tested[-1] in network for tested in tested_networks), cidr


CLOUD_METADATA_ADDRESSES = {
    "AWS": ("169.254.169.254", "fd00:ec2::254", "169.254.170.2", "fd00:ec2::23", "169.254.169.253", "fd00:ec2::253"),
    "Google Cloud": ("169.254.169.254", "fd20:ce::254"),
    "Azure": ("169.254.169.254", "168.63.129.16"),
    "Alibaba Cloud": ("100.100.100.200", "100.100.2.136"),
    "Oracle Cloud": ("169.254.169.254", "192.0.0.192", "fd00:c1::a9fe:a9fe"),
    "OpenStack": ("fe80::a9fe:a9fe", "fe80::a9fe:a9fe%eth0"),
    "Tencent Cloud": ("169.254.0.23",),
}


@pytest.mark.parametrize(
    "address_text", [text for addresses in CLOUD_METADATA_ADDRESSES.values() for text in addresses]
)
def test_metadata_services_of_clouds_are_not_public(address_text: str) -> None:
    address = ipaddress.ip_address(address_text)
    assert not is_public(address)
    if isinstance(address, ipaddress.IPv4Address):
        number = int(address)
        high, low = number >> 16, number & 0xFFFF
        for form in ("::ffff:{}", "64:ff9b::{}", "::ffff:0:{}", "64:ff9b:1::{}"):
            assert not is_public(ipaddress.ip_address(form.format(address_text))), form
        assert not is_public(ipaddress.ip_address(f"2002:{high:x}:{low:x}::1"))
        assert not is_public(ipaddress.ip_address(f"2001:0:808:808::{high ^ 0xFFFF:x}:{low ^ 0xFFFF:x}"))


@pytest.mark.parametrize("text", PUBLIC_ADDRESSES)
def test_ordinary_addresses_are_public(text: str) -> None:
    assert is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize(
    ("form", "result_for_any_ipv4"),
    [
        ("::ffff:{}", None),
        ("64:ff9b::{}", None),
        ("2002:{hex}::1", None),
        ("2001:0:808:808::{inverted}", None),
        ("::{}", False),
        ("64:ff9b:1::{}", False),
    ],
)
@pytest.mark.parametrize(
    ("ipv4_text", "is_ipv4_public"), [("8.8.8.8", True), ("10.0.0.1", False), ("192.0.0.192", False)]
)
def test_ipv4_address_inside_an_ipv6_address_is_checked(
    form: str, result_for_any_ipv4: bool | None, ipv4_text: str, is_ipv4_public: bool
) -> None:
    number = int(ipaddress.IPv4Address(ipv4_text))
    digits = [f"{value >> 16:x}:{value & 0xFFFF:x}" for value in (number, number ^ 0xFFFFFFFF)]
    address = ipaddress.ip_address(form.format(ipv4_text, hex=digits[0], inverted=digits[1]))
    assert is_public(address) is (is_ipv4_public if result_for_any_ipv4 is None else result_for_any_ipv4)


# DNS rebinding.

PUBLIC_ADDRESS = "93.184.216.34"
HOST_NAME = "rebind.example"


class Network:
    """A resolver that returns its addresses in order, and a record of the opened connections."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.addresses: list[str] = []
        self.connections: list[tuple[str, int]] = []
        self.responses: list[bytes] = []
        patch.setattr(socket, "getaddrinfo", self.getaddrinfo)
        patch.setattr(httpcore.AnyIOBackend, "connect_tcp", self.connect_tcp)

    def getaddrinfo(self, host: Any, port: Any, *_: Any, **__: Any) -> list[Any]:
        name = host.decode() if isinstance(host, bytes) else host
        address = self.addresses.pop(0) if name == HOST_NAME else name
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    async def connect_tcp(self, host: str, port: int, **_: Any) -> httpcore.AsyncNetworkStream:
        self.connections.append((host, port))
        if not self.responses:
            raise httpcore.ConnectError("no response")
        return httpcore.AsyncMockStream([self.responses.pop(0)])


@pytest.fixture
async def network(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Network]:
    network = Network(monkeypatch)
    yield network
    assert network.responses == []


async def get(url: str, **arguments: Any) -> Any:
    [http_request] = http_tools(ToolEnvironment(Path()))
    with tool_context():
        return await http_request(url, **arguments)


def redirect(target: str) -> bytes:
    return f"HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode()


async def test_connection_uses_the_checked_address(network: Network) -> None:
    network.addresses = [PUBLIC_ADDRESS, "127.0.0.1"]
    with pytest.raises(NotStarted):
        await get(f"http://{HOST_NAME}:8080/")
    assert (network.connections, network.addresses) == ([(PUBLIC_ADDRESS, 8080)], ["127.0.0.1"])


async def test_address_after_a_redirect_is_checked_again(network: Network) -> None:
    network.addresses = [PUBLIC_ADDRESS, "127.0.0.1"]
    network.responses = [redirect(f"http://{HOST_NAME}/again")]
    with pytest.raises(AddressNotAllowed, match=r"is at 127\.0\.0\.1, which is not a public address"):
        await get(f"http://{HOST_NAME}/")
    assert (network.connections, network.addresses) == ([(PUBLIC_ADDRESS, 80)], [])


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
        f"http://user@{HOST_NAME}/",
    ],
)
async def test_redirect_into_a_private_network_is_rejected(network: Network, target: str) -> None:
    network.addresses = [PUBLIC_ADDRESS, "10.0.0.1"]
    network.responses = [redirect(target)]
    with pytest.raises((AddressNotAllowed, NotStarted)):
        await get(f"http://{HOST_NAME}/")
    assert network.connections == [(PUBLIC_ADDRESS, 80)]


async def test_concurrent_requests_never_connect_to_an_unchecked_address(network: Network) -> None:
    network.addresses = [PUBLIC_ADDRESS, "127.0.0.1"] * 20
    failures = await asyncio.gather(*(get(f"http://{HOST_NAME}/") for _ in range(40)), return_exceptions=True)
    assert {type(failure) for failure in failures} == {NotStarted, AddressNotAllowed}
    assert set(network.connections) == {(PUBLIC_ADDRESS, 80)}
