"""Special-purpose networks of the IANA registries, entry by entry: which addresses a request may go to."""

import ipaddress

import pytest

from dagwright.tools.builtin.special_networks import REACHABLE, UNREACHABLE, is_public

IPV4 = {
    "0.0.0.0/8": False,
    "0.0.0.0/32": False,
    "10.0.0.0/8": False,
    "100.64.0.0/10": False,
    "127.0.0.0/8": False,
    "169.254.0.0/16": False,
    "168.63.129.16/32": False,
    "172.16.0.0/12": False,
    "192.0.0.0/29": False,
    "192.0.0.8/32": False,
    "192.0.0.9/32": True,
    "192.0.0.10/32": True,
    "192.0.0.170/32": False,
    "192.0.0.171/32": False,
    "192.0.0.192/32": False,
    "192.0.0.255/32": False,
    "192.0.2.0/24": False,
    "192.31.196.0/24": True,
    "192.52.193.0/24": True,
    "192.88.99.0/24": False,
    "192.88.99.2/32": False,
    "192.168.0.0/16": False,
    "192.175.48.0/24": True,
    "198.18.0.0/15": False,
    "198.51.100.0/24": False,
    "203.0.113.0/24": False,
    "224.0.0.0/4": False,
    "240.0.0.0/4": False,
    "255.255.255.255/32": False,
}
IPV6 = {
    "::1/128": False,
    "::/128": False,
    "::/96": False,
    "64:ff9b:1::/48": False,
    "100::/64": False,
    "100:0:0:1::/64": False,
    "2001:1::1/128": True,
    "2001:1::2/128": True,
    "2001:1::3/128": True,
    "2001:1::4/128": False,
    "2001:2::/48": False,
    "2001:3::/32": True,
    "2001:4:112::/48": True,
    "2001:5::/32": False,
    "2001:10::/28": False,
    "2001:20::/28": True,
    "2001:30::/28": True,
    "2001:40::/28": False,
    "2001:db8::/32": False,
    "2620:4f:8000::/48": True,
    "3fff::/20": False,
    "4000::/3": False,
    "5f00::/16": False,
    "fc00::/7": False,
    "fe80::/10": False,
    "fec0::/10": False,
    "ff00::/8": False,
}
ORDINARY = ("8.8.8.8", "1.1.1.1", "191.255.255.255", "192.0.1.1", "223.255.255.255", "2606:4700::1111", "2a00::1")
NEIGHBOURS = (
    "168.63.129.15",
    "168.63.129.17",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.0",
    "198.20.0.0",
)


@pytest.mark.parametrize(("network", "expected"), [*IPV4.items(), *IPV6.items()])
def test_each_entry_is_judged_from_its_first_to_its_last_address(network: str, expected: bool) -> None:
    entry = ipaddress.ip_network(network)
    assert [is_public(entry[place]) for place in (0, entry.num_addresses // 2, -1)] == [expected] * 3


def test_every_entry_of_the_table_is_tested() -> None:
    tested = [ipaddress.ip_network(each) for each in (*IPV4, *IPV6)]
    for each in (*REACHABLE, *UNREACHABLE):
        network = ipaddress.ip_network(each)
        assert any(entry[0] in network and entry[-1] in network for entry in tested), each


CLOUD = {
    "AWS": ("169.254.169.254", "fd00:ec2::254", "169.254.170.2", "fd00:ec2::23", "169.254.169.253", "fd00:ec2::253"),
    "Google Cloud": ("169.254.169.254", "fd20:ce::254"),
    "Azure": ("169.254.169.254", "168.63.129.16"),
    "Alibaba Cloud": ("100.100.100.200", "100.100.2.136"),
    "Oracle Cloud": ("169.254.169.254", "192.0.0.192", "fd00:c1::a9fe:a9fe"),
    "OpenStack": ("fe80::a9fe:a9fe", "fe80::a9fe:a9fe%eth0"),
    "Tencent Cloud": ("169.254.0.23",),
}


@pytest.mark.parametrize("text", [text for addresses in CLOUD.values() for text in addresses])
def test_services_of_a_cloud_for_its_own_machines_are_not_public(text: str) -> None:
    address = ipaddress.ip_address(text)
    assert not is_public(address)
    if isinstance(address, ipaddress.IPv4Address):
        number = int(address)
        high, low = number >> 16, number & 0xFFFF
        for form in ("::ffff:{}", "64:ff9b::{}", "::ffff:0:{}", "64:ff9b:1::{}"):
            assert not is_public(ipaddress.ip_address(form.format(text))), form
        assert not is_public(ipaddress.ip_address(f"2002:{high:x}:{low:x}::1"))
        assert not is_public(ipaddress.ip_address(f"2001:0:808:808::{high ^ 0xFFFF:x}:{low ^ 0xFFFF:x}"))


@pytest.mark.parametrize("text", [*ORDINARY, *NEIGHBOURS])
def test_ordinary_addresses_are_public(text: str) -> None:
    assert is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("::ffff:{}", None),
        ("64:ff9b::{}", None),
        ("2002:{hex}::1", None),
        ("2001:0:808:808::{inverted}", None),
        ("::{}", False),
        ("64:ff9b:1::{}", False),
    ],
)
@pytest.mark.parametrize(("inner", "is_inner_public"), [("8.8.8.8", True), ("10.0.0.1", False), ("192.0.0.192", False)])
def test_an_address_inside_another_is_judged(
    form: str, expected: bool | None, inner: str, is_inner_public: bool
) -> None:
    number = int(ipaddress.IPv4Address(inner))
    digits = [f"{value >> 16:x}:{value & 0xFFFF:x}" for value in (number, number ^ 0xFFFFFFFF)]
    address = ipaddress.ip_address(form.format(inner, hex=digits[0], inverted=digits[1]))
    assert is_public(address) is (is_inner_public if expected is None else expected)
